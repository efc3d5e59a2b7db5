"""TorchScript as Python code that `torch.export` follows: scripts, traces of `torch.jit` and their methods.

A script's graph is followed node by node. What is known while it is exported is decided there; loops and branches that
a tensor decides become `torch.while_loop` and `torch.cond`. A number that follows from a tensor stays a tensor.
"""

from __future__ import annotations

import inspect
import linecache
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
from torch._higher_order_ops.while_loop import while_loop_op

from ..base.errors import TraceError

__all__ = ["Scripted", "is_script"]

_DTYPES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    8: torch.complex32,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    12: torch.qint8,
    13: torch.quint8,
    14: torch.qint32,
    15: torch.bfloat16,
}
_LAYOUTS = {0: torch.strided}
_FORMATS = {
    0: torch.contiguous_format,
    1: torch.preserve_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
}
_ENDLESS = 2**63 - 1
"""The number of steps of a loop that has only a condition."""
_NUMBERED: dict[str, Mapping[int, Any]] = {"dtype": _DTYPES, "layout": _LAYOUTS, "memory_format": _FORMATS}
"""Arguments that scripts give as numbers, and what torch takes in Python."""


def is_script(value: Any) -> bool:
    """Whether a value is a script: a module, a method of one, or a function."""
    kinds = (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptMethod)
    return isinstance(value, kinds)


class Scripted(torch.nn.Module):  # type: ignore[misc]
    """A script as a module of Python code, with the parameters and buffers under their own names.

    Args:
        script: a `ScriptModule`, a method of one, or a `ScriptFunction`.
    """

    def __init__(self, script: Any) -> None:
        super().__init__()
        owner = script if isinstance(script, torch.jit.ScriptModule) else None
        if isinstance(script, torch._C.ScriptMethod):
            owner = torch.jit._recursive.wrap_cpp_module(script.owner)
        code = script.forward if isinstance(script, torch.jit.ScriptModule) else script
        self._loadrun_name = f"the script {getattr(script, 'original_name', None) or code.name}"
        self._trail = _Trail()
        if owner is not None:
            for name, value in owner.named_parameters():
                _put(self, name, value, True)
            for name, value in owner.named_buffers():
                _put(self, name, value, False)
        graph = code.inlined_graph
        signature = _signature(code.schema, owner is not None)

        def forward(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            values = [*bound.arguments.values()]
            return _Run(self, owner).block(graph, [_Object(owner, "")] * (owner is not None) + values)

        forward.__signature__ = signature  # type: ignore[attr-defined]
        self.forward = forward

    @property
    def place(self) -> str:
        """The source line of the node that was gone through last."""
        return "" if self._trail.place is None else _shown(self._trail.place)


class _Trail:
    """Where a script is gone through; torch takes back what a module's own attributes become."""

    place: tuple[str, int] | None = None


def _put(module: torch.nn.Module, path: str, value: torch.Tensor, trained: bool) -> None:
    """Register a parameter or buffer in modules named as those of its path."""
    *parts, name = path.split(".")
    for part in parts:
        if part not in module._modules:
            module.add_module(part, torch.nn.Module())
        module = module._modules[part]
    if trained:
        # The parameters of a script that was loaded from a file are plain tensors.
        own = (
            value if isinstance(value, torch.nn.Parameter) else torch.nn.Parameter(value, requires_grad=False)
        )
        module.register_parameter(name, own)
    else:
        module.register_buffer(name, value)


def _signature(schema: Any, bound: bool) -> inspect.Signature:
    parameters = []
    for arg in schema.arguments[bound:]:
        default = arg.default_value if arg.has_default_value() else inspect.Parameter.empty
        parameters.append(
            inspect.Parameter(arg.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        )
    return inspect.Signature(parameters)


class _Object:
    """A module inside a script: its path in the outermost one."""

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path


def _place(node: Any) -> tuple[str, int] | None:
    """File and line of a node's source."""
    match = re.search(r'File "([^"]+)", line (\d+)\n', node.sourceRange() or "")
    if match is None:
        return None
    return match.group(1), min(int(match.group(2)), 1 << 24)


def _shown(place: tuple[str, int]) -> str:
    text = linecache.getline(*place).strip()
    return f"{place[0]}:{place[1]}{': ' if text else ''}{text}"


@cache
def _frame(place: tuple[str, int]) -> Callable[[Callable[[], Any]], Any]:
    """Make a function that calls another one from a line of a script, which torch notes for what it records."""
    # Of all functions, torch notes those of this name.
    code = (lambda call: call()).__code__
    return FunctionType(code.replace(co_filename=place[0], co_firstlineno=place[1], co_name="forward"), {})


class _Run:
    """One call of a script.

    Args:
        module: what is called.
        owner: the script's own module.
        outer: the values that are known around a branch or the body of a loop.
    """

    def __init__(self, module: Scripted, owner: Any, outer: Mapping[str, Any] | None = None) -> None:
        self.module = module
        self.owner = owner
        self.env: dict[str, Any] = dict(outer or {})

    def block(self, block: Any, inputs: Sequence[Any]) -> Any:
        """Go through a graph; what it returns, one value alone as itself."""
        results = self.values(block, inputs)
        return results[0] if len(results) == 1 else tuple(results)

    def values(self, block: Any, inputs: Sequence[Any]) -> list[Any]:
        """Go through a block; its results."""
        for value, one in zip(block.inputs(), inputs, strict=True):
            self.env[value.debugName()] = one
        for node in block.nodes():
            self._node(node)
        return [self.env[v.debugName()] for v in block.outputs()]

    def _node(self, node: Any) -> None:
        place = _place(node)
        if place is not None:
            self.module._trail.place = place
        args = [self.env[v.debugName()] for v in node.inputs()]
        outputs = [v.debugName() for v in node.outputs()]
        kind = node.kind()
        if kind == "prim::Constant":
            self.env[outputs[0]] = node.output().toIValue()
            return
        call = partial(self._computed, node, kind, args)
        result = call() if place is None else _frame(place)(call)
        if len(outputs) == 1 and kind not in _SEVERAL:
            result = [result]
        self.env.update(zip(outputs, result or (), strict=False))

    def _computed(self, node: Any, kind: str, args: list[Any]) -> Any:
        if kind == "prim::If":
            return self._if(node, args[0])
        if kind == "prim::Loop":
            return self._loop(node, args)
        if kind == "prim::GetAttr":
            return self._attribute(args[0], node.s("name"))
        if kind == "prim::DictConstruct":
            return dict(zip(args[::2], args[1::2], strict=True))
        if kind == "prim::RaiseException":
            raise TraceError(f"the script raises {args[0]}")
        primitive = _PRIM.get(kind)
        if primitive is not None:
            return primitive(*args)
        plain = _PLAIN.get(kind)
        if plain is not None:
            numbers = self._numbers(node, args)
            if not any(isinstance(leaf, torch.Tensor) for leaf in torch.utils._pytree.tree_leaves(numbers)):
                return plain(*numbers)
        if kind.startswith("prim::"):
            raise TraceError(f"{kind} is not supported in scripts; rewrite it")
        return _operator(node, kind, args)

    def _numbers(self, node: Any, args: list[Any]) -> list[Any]:
        """Arguments with numbers in the places of constants, among which traces hold numbers as tensors."""
        constants = [v.node().kind() == "prim::Constant" for v in node.inputs()]
        if all(constants):
            return args
        return [
            a.item() if c and isinstance(a, torch.Tensor) and not a.ndim else a
            for a, c in zip(args, constants, strict=True)
        ]

    def _attribute(self, instance: _Object, name: str) -> Any:
        path = f"{instance.path}.{name}" if instance.path else name
        value = getattr(instance.value, name)
        if isinstance(value, torch.nn.Module):
            return _Object(value, path)
        if isinstance(value, torch.Tensor):
            # The module's own, which torch replaces while it exports; a plain attribute has none.
            own: Any = self.module
            for part in path.split("."):
                own = getattr(own, part, None)
            return value if own is None else own
        return value

    # Loops and branches

    def _if(self, node: Any, condition: Any) -> list[Any]:
        yes, no = node.blocks()
        if not isinstance(condition, torch.Tensor):
            return self.values(yes if condition else no, ())
        names, values = self._tensors(node)
        branches = [lambda *captured, b=block: tuple(self._inner(b, names, captured)) for block in (yes, no)]
        results = torch.ops.higher_order.cond(condition.reshape(()).bool(), *branches, tuple(values))
        return list(results)

    def _loop(self, node: Any, args: list[Any]) -> list[Any]:
        most, go, *carried = args
        (body,) = node.blocks()
        if not isinstance(most, torch.Tensor) and self._unrolled(body, most, go, carried):
            return carried
        names, values = self._tensors(node)
        state = [torch.as_tensor(v) if isinstance(v, (bool, int, float)) else v for v in carried]
        if not all(isinstance(v, torch.Tensor) for v in state):
            raise TraceError(
                "the loop ends depending on a tensor's value, and not all that it changes are tensors"
            )
        first = (torch.zeros((), dtype=torch.int64), torch.as_tensor(go).reshape(()).bool(), *state)
        count = len(first)

        def goes_on(i: Any, flag: Any, *rest: Any) -> Any:
            if not isinstance(most, torch.Tensor) and most >= _ENDLESS:
                return flag.clone()
            return torch.logical_and(i < (rest[len(state)] if isinstance(most, torch.Tensor) else most), flag)

        def step(i: Any, flag: Any, *rest: Any) -> Any:
            captured = rest[len(state) + isinstance(most, torch.Tensor) :]
            flag, *after = self._inner(body, names, captured, (i, *rest[: len(state)]))
            after = [_like(v, s) for v, s in zip(after, state, strict=True)]
            return (i + 1, torch.as_tensor(flag).reshape(()).bool().clone(), *after)

        more = (most.reshape(()), *values) if isinstance(most, torch.Tensor) else tuple(values)
        return list(while_loop_op(goes_on, step, first, more))[2:count]

    def _unrolled(self, body: Any, most: int, go: Any, carried: list[Any]) -> bool:
        """Run a loop whose steps are known; whether it has ended, or a tensor decides how it goes on."""
        if isinstance(go, torch.Tensor) or _decided_by_tensor(body):
            return False
        step = 0
        while step < most and go:
            go, *carried[:] = self.values(body, (step, *carried))
            step += 1
            if isinstance(go, torch.Tensor):
                raise TraceError("the loop goes on depending on a tensor's value after a step that did not")
        return True

    def _tensors(self, node: Any) -> tuple[list[str], list[torch.Tensor]]:
        """Return the tensors from outside that a node's blocks read."""
        names = [n for n in _read(node) if isinstance(self.env.get(n), torch.Tensor)]
        return names, [self.env[n] for n in names]

    def _inner(
        self, block: Any, names: Sequence[str], captured: Sequence[Any], own: Sequence[Any] = ()
    ) -> list[Any]:
        outer = {n: _Outer(v) if isinstance(v, list) else v for n, v in self.env.items()}
        run = _Run(self.module, self.owner, {**outer, **dict(zip(names, captured, strict=True))})
        results = run.values(block, own)
        read = {id(g) for g in (*captured, *own)}
        tensors = [v if isinstance(v, torch.Tensor) else torch.as_tensor(v) for v in results]
        # What a branch gives must not be what it was given.
        return [v.clone() if id(v) in read else v for v in tensors]


def _like(value: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    if value.shape != state.shape or value.dtype != state.dtype:
        raise TraceError(
            f"a step of the loop makes {value.dtype} of shape {[*value.shape]} from {state.dtype} of shape "
            f"{[*state.shape]}; what a loop changes keeps dtype and shape"
        )
    return value


def _decided_by_tensor(body: Any) -> bool:
    """Whether the condition of a loop's next step follows from a tensor."""
    flag = next(iter(body.outputs()))
    return bool(flag.node().kind() in ("aten::Bool", "aten::__and__", "aten::__or__", "aten::__not__"))


def _read(node: Any) -> list[str]:
    """Names of the values from outside that the blocks of a node read, in order."""
    names: dict[str, None] = {}
    for block in node.blocks():
        own = {v.debugName() for v in block.inputs()}
        for inner in block.nodes():
            used = [v.debugName() for v in inner.inputs()] + _read(inner)
            names.update((n, None) for n in used if n not in own)
            own.update(v.debugName() for v in inner.outputs())
        names.update((v.debugName(), None) for v in block.outputs() if v.debugName() not in own)
    return list(names)


def _operator(node: Any, kind: str, args: list[Any]) -> Any:
    """Call torch's own operator."""
    if kind == "aten::_convolution":
        return torch.ops.aten.convolution(*args[:9])
    schema = torch._C.parse_schema(node.schema())
    space, _, name = schema.name.partition("::")
    packet = getattr(getattr(torch.ops, space), name)
    positional, named = [], {}
    for arg, value in zip(schema.arguments, args, strict=True):
        table = _NUMBERED.get(arg.name)
        if table is not None and isinstance(value, int):
            value = table[value]
        if not arg.has_default_value() and not arg.kwarg_only:
            positional.append(value)
        elif isinstance(value, torch.Tensor) or value != arg.default_value:
            named[arg.name] = value
    return packet(*positional, **named)


def _number(kind: type) -> Callable[[Any], Any]:
    """Make a conversion to a Python number, which leaves a tensor one."""
    dtype = {int: torch.int64, float: torch.float32, bool: torch.bool}[kind]
    return lambda x: x.reshape(()).to(dtype) if isinstance(x, torch.Tensor) else kind(x)


def _unless_tensor(plain: Callable[..., Any], of_tensors: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: (of_tensors if any(isinstance(a, torch.Tensor) for a in args) else plain)(*args)


class _Outer(list[Any]):
    """A list from outside, as the body of a loop or branch sees it that a tensor decides."""


def _appended(items: list[Any], value: Any) -> list[Any]:
    if isinstance(items, _Outer):
        raise TraceError("a list grows a number of times that depends on a tensor's value")
    items.append(value)
    return items


_SEVERAL = {"prim::If", "prim::Loop", "prim::ListUnpack", "prim::TupleUnpack"}
_PRIM: dict[str, Callable[..., Any]] = {
    "prim::ListConstruct": lambda *items: [*items],
    "prim::TupleConstruct": lambda *items: items,
    "prim::ListUnpack": list,
    "prim::TupleUnpack": list,
    "prim::TupleIndex": operator.getitem,
    "prim::NumToTensor": lambda x: x,
    "prim::is_nested": lambda x: False,
    # As in training: without gradients torch's layers take one fused call that nothing else has.
    "aten::is_grad_enabled": lambda: True,
    "prim::requires_grad": lambda x: True,
    "prim::unchecked_cast": lambda x: x,
    "prim::unchecked_unwrap_optional": lambda x: x,
    "prim::Uninitialized": lambda: None,
    "prim::Print": lambda *_: None,
    "prim::dtype": lambda x: next(n for n, d in _DTYPES.items() if d == x.dtype),
    "prim::device": lambda x: x.device,
    "prim::type": lambda x: x.type,
    "prim::layout": lambda x: 0,
    "prim::is_cuda": lambda x: False,
    "prim::data": lambda x: x.detach(),
    "prim::min": min,
    "prim::max": max,
    "aten::_unwrap_optional": lambda x: x,
    "aten::warn": lambda *_: None,
    "aten::Int": _number(int),
    "aten::IntImplicit": _number(int),
    "aten::ScalarImplicit": lambda x: x,
    "aten::item": lambda x: x.reshape(()),
    "aten::Float": _number(float),
    "aten::FloatImplicit": _number(float),
    "aten::Bool": _number(bool),
    "aten::size": lambda x, *axis: x.shape[axis[0]] if axis else [*x.shape],
    "aten::dim": lambda x: x.dim(),
    "aten::numel": lambda x: x.numel(),
    "aten::len": len,
    "aten::append": _appended,
    "aten::is_floating_point": lambda x: x.is_floating_point(),
    "aten::__is__": lambda a, b: a is b,
    "aten::__isnot__": lambda a, b: a is not b,
    "aten::__not__": _unless_tensor(operator.not_, torch.logical_not),
    "aten::__and__": _unless_tensor(lambda a, b: a and b, torch.logical_and),
    "aten::__or__": _unless_tensor(lambda a, b: a or b, torch.logical_or),
    "aten::__getitem__": lambda x, at: x[at],
    "aten::__contains__": lambda x, key: key in x,
    "aten::list": list,
    "aten::keys": lambda x: [*x],
    "aten::values": lambda x: [*x.values()],
    "aten::items": lambda x: [*x.items()],
    "aten::copy": lambda x: x.copy(),
    "aten::format": lambda text, *values: text.format(*values),
    "aten::tensor": lambda data, dtype=None, *_: torch.tensor(data, dtype=_DTYPES.get(dtype)),
}
"""Nodes of scripts that are no operators of torch, or take what is a tensor here for a number."""
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, *_: a + b,
    "sub": lambda a, b, *_: a - b,
    "mul": operator.mul,
    "div": lambda a, b, mode=None: a / b if mode is None else a // b if mode == "floor" else int(a / b),
    "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "neg": operator.neg,
    "pow": operator.pow,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "abs": abs,
    "sqrt": lambda x: x**0.5,
    "__range_length": lambda lo, hi, step: len(range(lo, hi, step)),
    "__derive_index": lambda i, start, step: start + i * step,
    "slice": lambda x, start=None, end=None, step=1: x[start:end:step],
}
_PLAIN = {f"aten::{name}": function for name, function in _ARITHMETIC.items()}
"""Operators on Python's own numbers and lists."""
