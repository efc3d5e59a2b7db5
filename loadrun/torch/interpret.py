"""Reading an exported graph node by node: each is recorded by its lowering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..arrays.array import Array
from ..base.errors import LoadRunError, UnsupportedError
from ..build import emit as e
from ..graph import Var
from ..graph.dtypes import array_dtype, plain
from ..tensors import Tensor
from ..tensors.access import dtype_of, is_scalar, recorded_variable, snapshot, variable_of
from ..tensors.naming import scope
from ..tensors.session import active
from ..tracing.recorder import TraceRecorder
from .call import FxCall
from .complex import Complex, constants, touches_complex
from .exporting import NO_COMPLEX, WRAPPERS, LoweringProblem, name_of_target, place_of, refusal
from .registry import UnsupportedCallError, lowering_of
from .sizes import computed, is_size_operator
from .values import arr, narrow, ten

__all__ = ["Interpreter"]


class Interpreter:
    """Records the operators of an exported program.

    Args:
        program: an exported program without in-place operators.
        module: its source, for messages.

    Attributes:
        variables: each node's result, by name, as a variable of the recorded graph, and whether it has no axes; of a
            complex value both parts.
        coarse: operators that give float64 and are computed in float32.
    """

    def __init__(self, program: Any, module: Any) -> None:
        self.program = program
        self.module = module
        self.constants = _constants(program)
        self.problems: list[LoweringProblem] = []
        self.coarse: dict[str, None] = {}
        self.variables: dict[str, tuple[Var, bool]] = {}

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Record the whole program.

        Args:
            inputs: a tensor (or number) by placeholder name of each user input.

        Returns:
            the values that the output node lists.

        Raises:
            UnsupportedError: operators cannot be lowered with these arguments; the text names them all.
        """
        self.problems = []
        given = {**{n: t for n, t in self.constants.items() if n not in inputs}, **inputs}
        graph = self.program.graph_module.graph
        # Tokens, which order effects, have no value.
        feeds = [given.get(n.name) for n in graph.nodes if n.op == "placeholder"]
        found = self._graph(self.program.graph_module, feeds, top=True)
        if self.problems:
            raise refusal(self.module, self.problems)
        return list(found)

    def _graph(self, module: Any, feeds: Sequence[Any], top: bool = False) -> Any:
        env: dict[Any, Any] = {}
        waiting = iter(feeds)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(waiting)
            elif node.op == "get_attr":
                env[node] = _attribute(module, node.target)
            elif node.op == "output":
                return _mapped(node.args[0], env)
            else:
                env[node] = self._node(node, env)
            if top:
                self._keep(node.name, env.get(node))
        return None

    def _keep(self, name: str, found: Any) -> None:
        if isinstance(found, Complex):
            self._keep(f"{name}.real", found.real)
            self._keep(f"{name}.imag", found.imaginary)
        elif isinstance(found, Tensor) and variable_of(found) is not None:
            self.variables[name] = recorded_variable(found), is_scalar(found)

    def _node(self, node: Any, env: Mapping[Any, Any]) -> Any:
        args, kwargs = _mapped(node.args, env), _mapped(dict(node.kwargs), env)
        name = name_of_target(node.target)
        try:
            if isinstance(node.target, torch._ops.HigherOrderOperator):
                return self._higher(node, name, args, kwargs)
            if is_size_operator(node.target):
                return computed(node.target, args, kwargs)
            complex = touches_complex(node)
            lowering = lowering_of(name, complex)
            if lowering is None:
                raise UnsupportedCallError(NO_COMPLEX if complex else "no lowering")
            call = FxCall(node, _fakes(node.args), _fakes(dict(node.kwargs)))
            with _scope_of(node):
                session = active()
                before = len(session.recording.graph.oprs) if isinstance(session, TraceRecorder) else 0
                rounds = name.split(".")[1] not in _MOVES
                found = lowering.function(call, *args, **kwargs)
                fake = call.fake[0] if isinstance(call.fake, (list, tuple)) and call.fake else call.fake
                wide = getattr(fake, "dtype", None) in (torch.float64, torch.complex128)
                if wide and isinstance(session, TraceRecorder) and session.lossy(before):
                    self.coarse.setdefault(name)
                return _settled(found, call.fake, rounds)
        except UnsupportedCallError as error:
            why = str(error)
        except UnsupportedError:
            raise
        except LoadRunError as error:
            why = str(error).partition("\n")[0]
        self.problems.append(LoweringProblem(name, why, place_of(node)))
        return _stand_in(node.meta.get("val"))

    def _higher(self, node: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        short = name.removeprefix("higher_order.")
        if short == "cond":
            return self._cond(*args, **kwargs)
        if short == "with_effects":
            return None, None
        if short in WRAPPERS:
            inside = [a for a in args if not isinstance(a, torch.fx.GraphModule)]
            graph = next(a for a in args if isinstance(a, torch.fx.GraphModule))
            count = sum(n.op == "placeholder" for n in graph.graph.nodes)
            return self._graph(graph, inside[len(inside) - count :])
        raise UnsupportedCallError("this control operator has no counterpart; unroll it, or use torch.cond")

    def _cond(self, condition: Any, yes: Any, no: Any, operands: Sequence[Any] = ()) -> Any:
        """Run both branches, and choose one of their results, which have equal shapes."""
        a, b = (self._graph(branch, list(operands)) for branch in (yes, no))
        if not isinstance(condition, Tensor):
            return a if condition else b

        def chosen(x: Any, y: Any) -> Any:
            if not isinstance(x, Tensor) and not isinstance(y, Tensor) and x == y:
                return x
            if isinstance(x, Complex) and isinstance(y, Complex):
                return Complex(chosen(x.real, y.real), chosen(x.imag, y.imag))
            return ten(np.where(arr(condition, "bool"), arr(x), arr(y)))

        return type(a)(chosen(x, y) for x, y in zip(a, b, strict=True))


def _constants(program: Any) -> dict[str, Any]:
    """Map placeholder names to parameters, buffers and lifted constants."""
    found: dict[str, Any] = {}
    for spec in program.graph_signature.input_specs:
        if spec.target is None:
            continue
        held = program.state_dict.get(spec.target)
        if held is None:
            held = program.constants.get(spec.target)
        found[spec.arg.name] = _Later(held, spec.target) if isinstance(held, torch.Tensor) else held
    return found


class _Later:
    """A constant that is copied when a node first needs it."""

    def __init__(self, value: torch.Tensor, name: str) -> None:
        self.value = value
        self.name = name
        self.made: Tensor | Complex | None = None

    def tensor(self) -> Tensor | Complex:
        if self.made is None:
            self.made = constants(self.value, self.name)
        return self.made


def _mapped(value: Any, env: Mapping[Any, Any]) -> Any:
    """Replace nodes in arguments by their values."""

    def change(leaf: Any) -> Any:
        if isinstance(leaf, torch.fx.Node):
            leaf = env[leaf]
        return leaf.tensor() if isinstance(leaf, _Later) else leaf

    return torch.fx.node.map_aggregate(value, change)


def _fakes(value: Any) -> Any:
    return torch.fx.node.map_aggregate(
        value, lambda leaf: leaf.meta.get("val") if isinstance(leaf, torch.fx.Node) else leaf
    )


def _attribute(module: Any, target: str) -> Any:
    found = module
    for part in target.split("."):
        found = getattr(found, part)
    return constants(found, target) if isinstance(found, torch.Tensor) else found


_MOVES = frozenset(
    (
        *("view", "reshape", "_unsafe_view", "permute", "transpose", "t", "expand", "squeeze", "unsqueeze"),
        *(
            "slice",
            "select",
            "cat",
            "stack",
            "clone",
            "alias",
            "detach",
            "split",
            "split_with_sizes",
            "unbind",
        ),
        *(
            "index",
            "index_select",
            "gather",
            "flip",
            "roll",
            "repeat",
            "contiguous",
            "lift_fresh_copy",
            "embedding",
        ),
    )
)
"""Operators whose results need no rounding, since they only move numbers."""


def _settled(value: Any, fake: Any, rounds: bool) -> Any:
    """Return results as plain tensors of the dtypes that torch gives them.

    Args:
        fake: what torch knows of them.
        rounds: whether bfloat16 is rounded.
    """
    if isinstance(value, Array):
        value = snapshot(value)
    if isinstance(value, Complex):
        value = value.settled()
        if not isinstance(fake, torch.Tensor):
            return value
        real, imaginary = (
            v if v is None else _as_torch(v, fake, False) for v in (value.real, value.imaginary)
        )
        return Complex(real, imaginary)
    if isinstance(value, (list, tuple)):
        fakes = fake if isinstance(fake, (list, tuple)) else [None] * len(value)
        return tuple(_settled(v, f, rounds) for v, f in zip_longest(value, fakes[: len(value)]))
    return (
        _as_torch(value, fake, rounds)
        if isinstance(value, Tensor) and isinstance(fake, torch.Tensor)
        else value
    )


def _as_torch(x: Tensor, fake: torch.Tensor, rounds: bool) -> Tensor:
    """Return a result in torch's dtype; bfloat16 is held as float32 that was rounded to it."""
    try:
        want = array_dtype(np.empty(0, narrow(fake.dtype)))
    except UnsupportedCallError:
        return x
    if fake.dtype is torch.bfloat16 and rounds:
        x = e.cast(x, plain("BFloat16"))
    return x if dtype_of(x) == want or e.is_bool(x) != (want.name == "Bool") else e.cast(x, want)


def _stand_in(fake: Any) -> Any:
    """Return zeros in place of a failed operator, so that everything after it is checked too."""

    def zeros(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            sizes = [n if isinstance(n, int) else n.node.hint or 1 for n in leaf.shape]
            try:
                dtype = narrow(leaf.dtype)
            except UnsupportedCallError:
                dtype = np.dtype("float32")
            found = ten(arr(np.zeros(sizes, dtype)))
            return Complex(found) if leaf.is_complex() else found
        return leaf if isinstance(leaf, (int, float, bool)) else 1

    return pytree.tree_map(zeros, fake)


def _scope_of(node: Any) -> Any:
    """Name operators after the module that they come from."""
    stack = [e for e in (node.meta.get("nn_module_stack") or {}).values() if isinstance(e, tuple)]
    path = str(stack[-1][0]) if stack else ""
    return scope(path) if path and not path.startswith("_empty") else nullcontext()
