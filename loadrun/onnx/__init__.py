"""ONNX both ways."""
