"""The intermediate representation: dtypes, parameter records, and the graph of MegEngine's operators."""

from .graph import Graph, Metadata, Opr, StoredTensor, TensorFormat, Var, readers_of, same_graph

__all__ = ["Graph", "Metadata", "Opr", "StoredTensor", "TensorFormat", "Var", "readers_of", "same_graph"]
