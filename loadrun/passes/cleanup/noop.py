"""Removing operators that pass their input on: marks, identities, hints and copies (MegEngine's
RemoveNonComputingOpr, RemoveShapeHint and RemoveRedundantCopy)."""

from __future__ import annotations

from ...graph import Graph, Opr, Var
from ..rewriter import Rewriter, each


def remove_noops(graph: Graph) -> Graph:
    """Remove Identity and MarkNoBroadcastElemwise, and joins of a single part; outputs keep their names."""
    return each(graph, _forwarded, "Identity", "MarkNoBroadcastElemwise", "Concat")


def _forwarded(r: Rewriter, opr: Opr) -> Var | None:
    return r.var(opr.inputs[0]) if len(opr.inputs) == 1 else None


def remove_copies(graph: Graph) -> Graph:
    """Remove the first of two copies after each other."""

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        source = r.var(opr.inputs[0])
        inner = source.owner
        if inner.type != "Copy" or not r.single(opr.inputs[0]):
            return None
        return r.add("Copy", *opr.params, inputs=[inner.inputs[0]], like=opr)[0]

    return each(graph, visit, "Copy")
