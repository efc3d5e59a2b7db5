"""Packing data and the outputs it must give into a model's file, and taking packed files apart."""
