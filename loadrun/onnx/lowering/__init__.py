"""Lowerings of ONNX's operators to MegEngine's, one family a file; `loadrun.onnx.call` imports and finds them."""
