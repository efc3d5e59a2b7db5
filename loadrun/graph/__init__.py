"""The intermediate representation: dtypes, parameter records, and the graph of MegEngine's operators."""

from .graph import Graph, Header, Metadata, Opr, StoredTensor, TensorFormat, Var, readers_of

__all__ = ["Graph", "Header", "Metadata", "Opr", "StoredTensor", "TensorFormat", "Var", "readers_of"]
