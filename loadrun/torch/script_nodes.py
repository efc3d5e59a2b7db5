"""Nodes of TorchScript that are no operators of torch: on Python's numbers, lists and dicts."""

import operator
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch

DTYPES = dict(
    enumerate(
        getattr(torch, name)
        for name in """
        uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool
        qint8 quint8 qint32 bfloat16
        """.split()
    )
)


def full(value: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Make a tensor of a number by an operator: torch has no constants of its own in branches."""
    kinds = {bool: torch.bool, int: torch.int64, float: torch.float32}
    return torch.full((), value, dtype=dtype or kinds[type(value)])


def _number(kind: type) -> Callable[[Any], Any]:
    """Make a conversion to a Python number, which leaves a tensor one."""
    dtype = {int: torch.int64, float: torch.float32, bool: torch.bool}[kind]
    return lambda x: x.reshape(()).to(dtype) if isinstance(x, torch.Tensor) else kind(x)


def _same(x: Any) -> Any:
    return x


def _steps(low: Any, high: Any, step: Any) -> Any:
    """Count the numbers in a range, whose end may be a tensor or a size that torch leaves open."""
    count = -((low - high) // step)
    return count.clamp(min=0) if isinstance(count, torch.Tensor) else torch.sym_max(count, 0)


class OuterList(list[Any]):
    """A list from outside, as the body of a loop or branch sees it that a tensor decides."""


class OuterDict(dict[Any, Any]):
    """A dict alike."""


def outside(value: Any) -> Any:
    """Mark lists and dicts as coming from outside."""
    if isinstance(value, list):
        return OuterList(map(outside, value))
    if isinstance(value, dict):
        return OuterDict((k, outside(v)) for k, v in value.items())
    return tuple(map(outside, value)) if isinstance(value, tuple) else value


def _set_item(items: Any, at: Any, value: Any) -> Any:
    items[at] = value
    return items


def _extended(items: list[Any], others: list[Any]) -> list[Any]:
    items.extend(others)
    return items


COLLECTIONS: dict[str, Callable[..., Any]] = {
    "aten::add": operator.add,
    "aten::mul": operator.mul,
    "aten::slice": lambda x, start=None, end=None, step=1: x[start:end:step],
    "aten::get": lambda x, *key: x.get(*key),
    "aten::sorted": sorted,
}
"""Nodes that read a list or dict, and are also operators on tensors or numbers."""
CHANGES: dict[str, Callable[..., Any]] = {
    "aten::append": lambda x, item: _extended(x, [item]),
    "aten::extend": _extended,
    "aten::add_": _extended,
    **{
        f"aten::{name}": lambda x, *args, name=name: getattr(x, name)(*args)
        for name in "insert pop popitem clear reverse remove update setdefault".split()
    },
    "aten::sort": lambda x, reverse=False: x.sort(reverse=reverse),
    "aten::Delete": operator.delitem,
    "aten::_set_item": _set_item,
}
"""Nodes that change a list or dict."""


SEVERAL = {"prim::If", "prim::Loop", "prim::ListUnpack", "prim::TupleUnpack"}
PRIMITIVES: dict[str, Callable[..., Any]] = {
    "prim::ListConstruct": lambda *items: [*items],
    "prim::TupleConstruct": lambda *items: items,
    "prim::ListUnpack": list,
    "prim::TupleUnpack": list,
    "prim::TupleIndex": operator.getitem,
    **dict.fromkeys(("prim::NumToTensor", "prim::unchecked_cast", "prim::unchecked_unwrap_optional"), _same),
    **dict.fromkeys(("aten::ScalarImplicit", "aten::_unwrap_optional"), _same),
    "prim::is_nested": lambda x: False,
    # As in training: without gradients torch's layers take one fused call that nothing else has.
    "aten::is_grad_enabled": lambda: True,
    "prim::requires_grad": lambda x: True,
    "prim::Uninitialized": lambda: None,
    "prim::Print": lambda *_: None,
    "prim::dtype": lambda x: next(n for n, d in DTYPES.items() if d == x.dtype),
    "prim::device": lambda x: x.device,
    "prim::type": lambda x: x.type,
    "prim::layout": lambda x: 0,
    "prim::is_cuda": lambda x: False,
    "prim::data": lambda x: x.detach(),
    "prim::abs": abs,
    "prim::min": min,
    "prim::max": max,
    "aten::warn": lambda *_: None,
    **dict.fromkeys(("aten::Int", "aten::IntImplicit"), _number(int)),
    "aten::item": lambda x: x.reshape(()),
    **dict.fromkeys(("aten::Float", "aten::FloatImplicit"), _number(float)),
    "aten::Bool": _number(bool),
    "aten::size": lambda x, *axis: x.shape[axis[0]] if axis else [*x.shape],
    "aten::__range_length": _steps,
    "aten::__derive_index": lambda i, start, step: start + i * step,
    "aten::dim": lambda x: x.dim(),
    "aten::numel": lambda x: x.numel(),
    "aten::len": lambda x: x.shape[0] if isinstance(x, torch.Tensor) else len(x),
    "aten::is_floating_point": lambda x: x.is_floating_point(),
    "aten::__is__": lambda a, b: a is b,
    "aten::__isnot__": lambda a, b: a is not b,
    "aten::__not__": lambda x: x.logical_not() if isinstance(x, torch.Tensor) else not x,
    "aten::__and__": operator.and_,
    "aten::__or__": operator.or_,
    "aten::__xor__": operator.xor,
    "aten::__getitem__": lambda x, at: x[at],
    "aten::__contains__": lambda x, key: key in x,
    "aten::list": list,
    "aten::keys": lambda x: [*x],
    "aten::values": lambda x: [*x.values()],
    "aten::items": lambda x: [*x.items()],
    "aten::copy": lambda x: x.copy(),
    "aten::format": lambda text, *values: text.format(*values),
    "aten::tensor": lambda data, dtype=None, *_: (
        torch.tensor(data, dtype=DTYPES.get(dtype))
        if isinstance(data, (list, torch.Tensor))
        else full(data, DTYPES.get(dtype))
    ),
}
"""Nodes of scripts that are no operators of torch, or take what is a tensor here for a number."""
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, *_: a + b,
    "sub": lambda a, b, *_: a - b,
    **{n: getattr(operator, n) for n in "mul floordiv neg pow eq ne lt le gt ge abs".split()},
    "div": lambda a, b, mode=None: a / b if mode is None else a // b if mode == "floor" else int(a / b),
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "sqrt": lambda x: x**0.5,
    "slice": lambda x, start=None, end=None, step=1: x[start:end:step],
}
PLAIN = {f"aten::{name}": function for name, function in _ARITHMETIC.items()}
"""Operators on Python's own numbers and lists."""


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
