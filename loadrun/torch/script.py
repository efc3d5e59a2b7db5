"""TorchScript as Python code that `torch.export` follows: scripts, traces of `torch.jit` and their methods.

A script's graph is followed node by node. What is known while it is exported is decided there; loops and branches that
a tensor decides become `torch.while_loop` and `torch.cond`. A number that follows from a tensor stays a tensor.
"""

import inspect
import linecache
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
from torch._higher_order_ops.while_loop import while_loop_op

from ..base.errors import TraceError
from . import script_nodes
from .script_nodes import attributes_in, counter_of, is_view, read_in, schema_of, written_in

_LAYOUTS = {0: torch.strided}
_FORMATS = {
    0: torch.contiguous_format,
    1: torch.preserve_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
}
_ENDLESS = 2**63 - 1
"""The number of steps of a loop that has only a condition."""
_FEW = 32
"""The most steps of a loop that are written one after the other although a tensor may end it."""
_NUMBERED: dict[str, Mapping[int, Any]] = {
    "dtype": script_nodes.DTYPES,
    "layout": _LAYOUTS,
    "memory_format": _FORMATS,
}
"""Arguments that scripts give as numbers, and what torch takes in Python."""


def is_script(value: Any) -> bool:
    """Whether a value is a script: a module, a method of one, or a function."""
    kinds = (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptMethod)
    return isinstance(value, kinds)


class Scripted(torch.nn.Module):  # type: ignore[misc]
    """A script as a module of Python code, with the parameters and buffers under their own names.

    Args:
        script: a `ScriptModule`, a method of one, or a `ScriptFunction`.

    Attributes:
        loops_over_sizes: whether a loop over an open size stays one, rather than run as often as in the example.
    """

    def __init__(self, script: Any) -> None:
        super().__init__()
        self.loops_over_sizes = False
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
            values = [_Object(owner, "")] * (owner is not None) + [*bound.arguments.values()]
            results = _Run(self).values(graph, values)
            return results[0] if len(results) == 1 else tuple(results)

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
        parameter = (
            value if isinstance(value, torch.nn.Parameter) else torch.nn.Parameter(value, requires_grad=False)
        )
        module.register_parameter(name, parameter)
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
        outer: the values that are known around a branch or the body of a loop.
    """

    def __init__(self, module: Scripted, outer: Mapping[str, Any] | None = None) -> None:
        self.module = module
        self.env: dict[str, Any] = dict(outer or {})
        self.roots: dict[str, str] = {}

    def values(self, block: Any, inputs: Sequence[Any]) -> list[Any]:
        """Go through a graph or a block; its results."""
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
        if kind == "prim::GetAttr" and outputs[0] in self.env:
            return
        call = partial(self._computed, node, kind, args)
        result = call() if place is None else _frame(place)(call)
        if len(outputs) == 1 and kind not in script_nodes.SEVERAL:
            result = [result]
        self.env.update(zip(outputs, result or (), strict=False))
        if outputs and is_view(node):
            source = next(node.inputs()).debugName()
            self.roots[outputs[0]] = self.roots.get(source, source)

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
        if (
            args
            and isinstance(args[0], (list, dict))
            and (kind in script_nodes.COLLECTIONS or kind in script_nodes.CHANGES)
        ):
            if kind in script_nodes.CHANGES and isinstance(
                args[0], (script_nodes.OuterList, script_nodes.OuterDict)
            ):
                raise TraceError("how a list or dict changes depends on a tensor's value")
            return (script_nodes.COLLECTIONS.get(kind) or script_nodes.CHANGES[kind])(*args)
        primitive = script_nodes.PRIMITIVES.get(kind)
        if primitive is not None:
            return primitive(*args)
        plain = script_nodes.PLAIN.get(kind)
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
            holder: Any = self.module
            for part in path.split("."):
                holder = getattr(holder, part, None)
            return value if holder is None else holder
        return value

    # Loops and branches

    def _if(self, node: Any, condition: Any) -> list[Any]:
        yes, no = node.blocks()
        if not isinstance(condition, torch.Tensor):
            return self.values(yes if condition else no, ())
        names, values = self._tensors(node)
        written = self._written(node, names)
        branches = [
            lambda *captured, b=block, o=other: tuple(
                self._inner(b, names, captured, written=written, other=o)
            )
            for block, other in ((yes, no), (no, yes))
        ]
        results = torch.ops.higher_order.cond(condition.reshape(()).bool(), *branches, tuple(values))
        return self._wrote(written, list(results))

    def _wrote(self, written: Sequence[str], results: list[Any]) -> list[Any]:
        """Write what a branch or loop made of tensors from outside, its last results, into these; the others."""
        count = len(results) - len(written)
        for name, value in zip(written, results[count:], strict=True):
            self.env[name].copy_(value)
        return results[:count]

    def _written(self, node: Any, names: Sequence[str]) -> list[str]:
        """Return the tensors from outside that a node's blocks write to; torch refuses those that are the module's own.

        Raises:
            TraceError: they also read another view of the same memory.
        """
        own = {attribute.output().debugName() for attribute in attributes_in(node)}
        inner = {n: n for n in names if n not in own}
        written = written_in(node, inner)
        roots = {n: self.roots.get(n, n) for n in names}
        for name in written:
            shared = [n for n in names if n != name and roots[n] == roots[name]]
            if shared:
                raise TraceError(
                    f"what a tensor decides writes to {name} and uses {shared[0]}, which share memory; clone one"
                )
        return written

    def _loop(self, node: Any, args: list[Any]) -> list[Any]:
        most, go, *carried = args
        (body,) = node.blocks()
        if self.module.loops_over_sizes:
            most, go, *carried = map(_open_size, args)
        done = 0
        if not isinstance(most, torch.Tensor):
            done, go = self._unrolled(body, most, go, carried)
            if done >= most or not isinstance(go, torch.Tensor):
                return carried
        names, values = self._tensors(node)
        state = [torch.as_tensor(v) if isinstance(v, (bool, int, float)) else v for v in carried]
        if not all(isinstance(v, torch.Tensor) for v in state):
            raise TraceError(
                "the loop ends depending on a tensor's value, and not all that it changes are tensors"
            )
        written = self._written(node, names)
        state += [self.env[n].clone() for n in written]
        counted = counter_of(body)
        at, end = counted if counted is not None else (-1, "")
        if counted is not None and isinstance(carried[at], int) and isinstance(self.env.get(end), int):
            # A range that a break ends has its own count among what the loop carries.
            most = min(most, done + self.env[end] - carried[at])
        if type(most) is int and most - done <= _FEW:
            counts = {at: carried[at] - done} if counted is not None and isinstance(carried[at], int) else {}
            return self._wrote(
                written, self._stopped(body, range(done, most), go, state, names, written, counts)
            )
        first = (torch.tensor(done), torch.as_tensor(go).reshape(()).bool(), *state)
        count = len(first)

        def goes_on(i: Any, flag: Any, *rest: Any) -> Any:
            if not isinstance(most, torch.Tensor) and most >= _ENDLESS:
                return flag.clone()
            return torch.logical_and(i < (rest[len(state)] if isinstance(most, torch.Tensor) else most), flag)

        def step(i: Any, flag: Any, *rest: Any) -> Any:
            captured = rest[len(state) + isinstance(most, torch.Tensor) :]
            loop_values, changed = rest[: len(carried)], rest[len(carried) : len(state)]
            current = {**dict(zip(names, captured, strict=True)), **dict(zip(written, changed, strict=True))}
            flag, *after = self._inner(body, names, [current[n] for n in names], (i, *loop_values), written)
            after = [_like(v, s) for v, s in zip(after, state, strict=True)]
            return (i + 1, torch.as_tensor(flag).reshape(()).bool().clone(), *after)

        more = (most.reshape(()), *values) if isinstance(most, torch.Tensor) else tuple(values)
        return self._wrote(written, list(while_loop_op(goes_on, step, first, more))[2:count])

    def _stopped(
        self,
        body: Any,
        steps: range,
        go: Any,
        state: list[Any],
        names: Sequence[str],
        written: Sequence[str],
        counts: Mapping[int, int],
    ) -> list[Any]:
        """Run each step of a loop in a branch that is taken unless the loop has ended; what the last one leaves.

        Args:
            body, steps, go, state, names, written: the loop.
            counts: the places in the state of numbers that each step raises by 1, and what they are at step 0.
        """
        count = len(state) - len(written)
        for i in steps:

            def step(*rest: Any, i: int = i) -> Any:
                current = dict(
                    zip((*names, *written), (*rest[len(state) :], *rest[count : len(state)]), strict=True)
                )
                values = [counts[k] + i if k in counts else v for k, v in enumerate(rest[:count])]
                flag, *after = self._inner(body, names, [current[n] for n in names], (i, *values), written)
                return (flag.reshape(()).bool(), *(_like(v, s) for v, s in zip(after, state, strict=True)))

            def same(*rest: Any) -> Any:
                return (script_nodes.full(False), *(v.clone() for v in rest[: len(state)]))

            values = (*state, *(self.env[n] for n in names))
            go, *state[:] = torch.ops.higher_order.cond(go.reshape(()).bool(), step, same, values)
        return state

    def _unrolled(self, body: Any, most: int, go: Any, carried: list[Any]) -> tuple[int, Any]:
        """Run the steps of a loop that are known to be run; their number, and whether it goes on."""
        step = 0
        while step < most and not isinstance(go, torch.Tensor) and go:
            go, *carried[:] = self.values(body, (step, *carried))
            step += 1
        return step, go

    def _tensors(self, node: Any) -> tuple[list[str], list[torch.Tensor]]:
        """Return the tensors from outside that a node's blocks read, the module's own among them."""
        for attribute in attributes_in(node):
            self._node(attribute)
        names = [n for n in read_in(node) if isinstance(self.env.get(n), torch.Tensor)]
        return names, [self.env[n] for n in names]

    def _inner(
        self,
        block: Any,
        names: Sequence[str],
        captured: Sequence[Any],
        values: Sequence[Any] = (),
        written: Sequence[str] = (),
        other: Any = None,
    ) -> list[Any]:
        outer = {n: script_nodes.outside(v) for n, v in self.env.items()}

        def known() -> dict[str, Any]:
            values = ((n, v.clone() if n in written else v) for n, v in zip(names, captured, strict=True))
            return {**outer, **dict(values)}

        # What a branch leaves open, as after a break, nobody reads; it has the form that the other one gives it.
        left = [k for k, v in enumerate(block.outputs()) if v.node().kind() == "prim::Uninitialized"]
        filled = _Run(self.module, known()).values(other, ()) if other is not None and left else []
        run = _Run(self.module, known())
        results = run.values(block, values)
        results = [filled[k] if filled and k in left else v for k, v in enumerate(results)]
        results += [run.env[n] for n in written]
        if not all(isinstance(v, (torch.Tensor, bool, int, float)) for v in results):
            raise TraceError(
                "what a tensor's value decides gives tensors and numbers alone, none of them None"
            )
        read = {id(g) for g in (*captured, *values)}
        tensors = [v if isinstance(v, torch.Tensor) else script_nodes.full(v) for v in results]
        # What a branch gives must not be what it was given.
        return [v.clone() if id(v) in read else v for v in tensors]


def _open_size(value: Any) -> Any:
    """Make a tensor of a size that torch leaves open, so that the graph computes with it."""
    if isinstance(value, torch.SymBool):
        value = torch.sym_ite(value, 1, 0)
    return torch.scalar_tensor(value, dtype=torch.int64) if isinstance(value, torch.SymInt) else value


def _like(value: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    if value.shape != state.shape or value.dtype != state.dtype:
        raise TraceError(
            f"a step of the loop makes {value.dtype} of shape {[*value.shape]} from {state.dtype} of shape "
            f"{[*state.shape]}; what a loop changes keeps dtype and shape"
        )
    return value


def _operator(node: Any, kind: str, args: list[Any]) -> Any:
    """Call torch's own operator."""
    if kind == "aten::_convolution":
        return torch.ops.aten.convolution(*args[:9])
    schema = schema_of(node.schema())
    space, _, name = schema.name.partition("::")
    packet = getattr(getattr(torch.ops, space), name)
    positional, named = [], {}
    of_tensors = any("Tensor" in str(arg.type) for arg in schema.arguments)
    for arg, value in zip(schema.arguments, args, strict=True):
        table = _NUMBERED.get(arg.name)
        if table is not None and isinstance(value, int):
            value = table[value]
        if of_tensors and re.fullmatch(r"(Optional\[)?(List\[)?int\]*", str(arg.type)):
            # Torch follows an index or a size that is known when the graph runs as a number, not as a tensor.
            value = torch.fx.node.map_aggregate(
                value, lambda v: v.item() if isinstance(v, torch.Tensor) else v
            )
        if not arg.has_default_value() and not arg.kwarg_only:
            positional.append(value)
        elif isinstance(value, torch.Tensor) or value != arg.default_value:
            named[arg.name] = value
    return packet(*positional, **named)
