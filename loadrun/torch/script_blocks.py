"""What the nodes in the blocks of a node of TorchScript are: views, what they read, what they write."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch


def counter_of(body: Any) -> tuple[int, str] | None:
    """Find the count of a loop over a range that may break: its place in what the loop carries, and the range's end."""
    flag = next(iter(body.outputs())).node()
    least = next(flag.inputs()).node() if flag.kind() == "aten::__and__" else flag
    if least.kind() != "aten::lt":
        return None
    raised, end = least.inputs()
    carried = [v.debugName() for v in body.inputs()][1:]
    if raised.node().kind() != "aten::add":
        return None
    count, by = raised.node().inputs()
    one = by.node().kind() == "prim::Constant" and by.toIValue() == 1
    return (
        (carried.index(count.debugName()), end.debugName()) if one and count.debugName() in carried else None
    )


@cache
def schema_of(text: str) -> Any:
    """Parse the schema of an operator, as a node writes it."""
    return torch._C.parse_schema(text)


def is_view(node: Any) -> bool:
    """Whether what a node gives may share memory with what it takes first."""
    if not node.kind().startswith("aten::") or not node.schema():
        return False
    returns = schema_of(node.schema()).returns
    return bool(returns and returns[0].alias_info is not None)


def written_in(node: Any, roots: dict[str, str]) -> list[str]:
    """Return the values from outside that the blocks of a node write to.

    Args:
        node: the node.
        roots: the value from outside of which a value is a view.
    """
    written: dict[str, None] = {}
    for block in node.blocks():
        for inner in block.nodes():
            inputs = [v.debugName() for v in inner.inputs()]
            outputs = [v.debugName() for v in inner.outputs()]
            if inner.kind() == "prim::Loop":
                (body,) = inner.blocks()
                pairs = zip([v.debugName() for v in body.inputs()][1:], inputs[2:], strict=True)
                roots.update((own, roots[v]) for own, v in pairs if v in roots)
            written.update((n, None) for n in written_in(inner, roots))
            if not inputs or inputs[0] not in roots or not is_view(inner):
                continue
            roots.update((v, roots[inputs[0]]) for v in outputs)
            first = schema_of(inner.schema()).arguments[0].alias_info
            if first is not None and first.is_write:
                written[roots[inputs[0]]] = None
    return list(written)


def attributes_in(node: Any) -> Iterator[Any]:
    """Yield the nodes in a node's blocks that read attributes of modules."""
    for block in node.blocks():
        for inner in block.nodes():
            if inner.kind() == "prim::GetAttr":
                yield inner
            yield from attributes_in(inner)


def read_in(node: Any) -> list[str]:
    """Names of the values from outside that the blocks of a node read, in order, attributes of modules included."""
    names: dict[str, None] = {}
    for block in node.blocks():
        inputs = {v.debugName(): None for v in block.inputs()}
        for inner in block.nodes():
            used = [v.debugName() for v in inner.inputs()] + read_in(inner)
            names.update((n, None) for n in used if n not in inputs)
            known = names if inner.kind() == "prim::GetAttr" else inputs
            known.update((v.debugName(), None) for v in inner.outputs())
        names.update((v.debugName(), None) for v in block.outputs() if v.debugName() not in inputs)
    return list(names)
