"""Reading an exported graph node by node: each is recorded by its lowering."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..arrays.array import TracedArray
from ..base.errors import LoadRunError, UnsupportedError
from ..graph import Var
from ..graph.dtypes import Array, array_dtype, plain
from ..layers import emit as e
from ..layers.shared.sizes import ManyAxes
from ..tensors import Tensor, TracedNumber, access, active
from ..tensors.naming import scope
from ..tracing.recording import loses_float64
from .call import FxCall, as_array, as_tensor, constant, is_half, narrow, needs_float32, rounds_often, widened
from .exporting import WRAPPERS, LoweringProblem, name_of_target, place_of, refusal
from .registry import OperatorLowering, UnsupportedCallError, lowering_of
from .sizes import computed, is_size_operator, open_scalars


@dataclass(frozen=True)
class Port:
    """The place of a graph's value among the arguments of a node that is not recorded."""

    number: int


@dataclass(frozen=True)
class Constant:
    """A constant among the arguments of a node that is not recorded: its value, and the parameter's name."""

    value: Array
    name: str


class Interpreter:
    """Records the operators of an exported program.

    Args:
        program: an exported program without in-place operators.
        module: what it was made of, for messages.
        left_out: nodes that are not recorded, by name: what they give are inputs of the graph, what they read are
            outputs.
        root: the graph to record, the program's own by default.

    Attributes:
        read: the values that every node in `left_out` reads.
        arguments: its positional and named arguments, with a `Port` in the place of each of these values.
        failed: nodes that could not be lowered.
        types: the operators that each node is recorded as.
        places: source lines by the names of operators, "" for a name that several have.
        variables: what each node gave, by name, as a variable of the recorded graph, and whether it has no axes.
        open_sizes: the symbols of dynamic sizes that operators need to know.
        coarse: operators that give float64 and are computed in float32.
    """

    def __init__(
        self, program: Any, module: Any, left_out: Mapping[str, Any] | None = None, root: Any = None
    ) -> None:
        self.program = program
        self.root = program.graph_module if root is None else root
        self.module = module
        self.left_out = dict(left_out or {})
        self.read: dict[str, list[Tensor]] = {}
        self.arguments: dict[str, tuple[Any, Any]] = {}
        self.failed: list[str] = []
        self.types: dict[str, set[str]] = {}
        self.places: dict[str, str] = {}
        self.constants = _constants(program)
        self.problems: list[LoweringProblem] = []
        self.coarse: dict[str, None] = {}
        self.open_sizes: frozenset[Any] = frozenset()
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
        values = {**{n: t for n, t in self.constants.items() if n not in inputs}, **inputs}
        graph = self.root.graph
        # Tokens, which order effects, hold nothing.
        feeds = [values.get(n.name) for n in graph.nodes if n.op == "placeholder"]
        return self.run_graph(feeds, inputs)

    def run_graph(self, feeds: Sequence[Any], results: Mapping[str, Any]) -> list[Any]:
        """Record the graph.

        Args:
            feeds: values of its placeholders.
            results: what the nodes that are left out give, by name.

        Raises:
            UnsupportedError: see `run`.
        """
        self.problems, self.failed = [], []
        self._results = {n: results[n] for n in self.left_out}
        outputs = self._graph(self.root, feeds, top=True)
        if self.problems:
            raise refusal(self.module, self.problems)
        return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]

    def _graph(self, module: Any, feeds: Sequence[Any], top: bool = False) -> Any:
        env: dict[Any, Any] = {}
        waiting = iter(feeds)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(waiting)
            elif node.op == "get_attr":
                env[node] = _attribute(module, node.target)
            elif node.op == "output":
                many = [n for n in node.all_input_nodes if top and isinstance(env[n], ManyAxes)]
                self.problems += [
                    LoweringProblem(name_of_target(n.target), env[n].refusal, place_of(n)) for n in many
                ]
                return _mapped(node.args[0], env)
            elif top and node.name in self.left_out:
                env[node] = self._leave_out(node, env)
            else:
                env[node] = self._node(node, env, top)
            if top:
                self._keep(node.name, env.get(node))
        return None

    def _keep(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and access.variable_of(value) is not None:
            self.variables[name] = access.recorded_variable(value), access.is_scalar(value)

    def _leave_out(self, node: Any, env: Mapping[Any, Any]) -> Any:
        """Keep what a node reads; its results are inputs of the graph."""
        values: list[Tensor] = []

        def port(leaf: Any) -> Any:
            if isinstance(leaf, ManyAxes):
                raise UnsupportedError(f"{leaf.refusal}, in {place_of(node)}")
            if isinstance(leaf, TracedNumber):
                leaf = as_tensor(leaf)
            if not isinstance(leaf, Tensor):
                return leaf
            if access.variable_of(leaf) is None:
                value = access.stored(leaf)
                return Constant(
                    value.reshape(()) if access.is_scalar(leaf) else value, access.tensor_name(leaf) or ""
                )
            values.append(leaf)
            return Port(len(values) - 1)

        mapped = _mapped((node.args, dict(node.kwargs)), env)
        self.arguments[node.name] = pytree.tree_map(port, mapped)
        self.read[node.name] = values
        return self._results[node.name]

    def _place(self, node: Any, names: Sequence[str]) -> None:
        """Keep the source line of operators that no other line has under these names."""
        place = place_of(node)
        for name in names:
            self.places[name] = place if self.places.setdefault(name, place) == place else ""

    def read_by(self, name: str) -> tuple[list[str], list[Tensor]]:
        """Return the values that a node reads which is left out, and names for them."""
        values = self.read[name]
        return [f"{name}:in{i}" for i in range(len(values))], values

    def _node(self, node: Any, env: Mapping[Any, Any], top: bool = False) -> Any:
        args, kwargs = _mapped(node.args, env), _mapped(dict(node.kwargs), env)
        name = name_of_target(node.target)
        entries = getattr(getattr(active(), "recording", None), "entries", [])
        before = len(entries)
        try:
            if isinstance(node.target, torch._ops.HigherOrderOperator):
                return self._higher(node, name, args, kwargs)
            if is_size_operator(node.target):
                return computed(node.target, args, kwargs)
            lowering = lowering_of(name)
            if lowering is None:
                raise UnsupportedCallError("no lowering")
            call = FxCall(node, _fakes(node.args), _fakes(dict(node.kwargs)))
            args, kwargs = open_scalars(call, args, kwargs)
            with _scope_of(node):
                rounds = name.split(".")[1] not in _MOVES
                if rounds and lowering.family not in _WHOLE and is_half(call):
                    result = _lowered_half(lowering, name, call, args, kwargs, entries)
                else:
                    result = lowering.function(call, *args, **kwargs)
                if loses_float64(r.opr for r in entries[before:]) and _is_wide(call.fake):
                    self.coarse.setdefault(name)
                result = _settled(result, call.fake, rounds)
            if top:
                self.types[node.name] = {r.opr.type for r in entries[before:]}
                self._place(node, [r.opr.name or "" for r in entries[before:]])
            return result
        except UnsupportedCallError as error:
            why = str(error)
            self.open_sizes |= getattr(error, "symbols", frozenset())
        except UnsupportedError:
            raise
        except (LoadRunError, ValueError) as error:
            why = str(error).partition("\n")[0]
        except Exception:
            if not self.problems:
                raise
            # What stands in for a failed operator may have another shape.
            return _stand_in(node.meta.get("val"))
        self.problems.append(LoweringProblem(name, why, place_of(node)))
        self.failed += [node.name] if top else []
        return _stand_in(node.meta.get("val"))

    def _higher(self, node: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        short = name.removeprefix("higher_order.")
        if short == "cond":
            return self._cond(*args, **kwargs)
        if short == "while_loop":
            return self._while_loop(*args)
        if short == "scan" and len(args) == 4:
            length = _fakes(node.args[2])[0].shape[0]
            (count,) = FxCall(node, (), {}).static([length], "the number of steps of scan")
            return self._scan(count, *args)
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
            return as_tensor(np.where(as_array(condition, "bool"), as_array(x), as_array(y)))

        return type(a)(chosen(x, y) for x, y in zip(a, b, strict=True))

    def _while_loop(self, condition: Any, body: Any, state: Sequence[Any], read: Sequence[Any] = ()) -> Any:
        """Repeat the body as long as a condition holds that no data decide."""
        for _ in range(_MOST_TURNS):
            going = self._graph(condition, [*state, *read])
            going = going[0] if isinstance(going, (list, tuple)) else going
            known = _constant(going) if isinstance(going, Tensor) else going
            if known is None:
                raise UnsupportedCallError(
                    "data or dynamic sizes decide when this loop ends, and graphs have no loops; an .onnx file has"
                )
            if not bool(np.asarray(known).reshape(-1)[0]):
                return tuple(state)
            state = self._graph(body, [*state, *read])
        raise UnsupportedCallError(f"this loop takes more than {_MOST_TURNS} turns")

    def _scan(
        self, count: int, body: Any, state: Sequence[Any], rows: Sequence[Any], read: Sequence[Any]
    ) -> Any:
        """Apply the body to one entry of the first axis after the other."""
        if count > _MOST_TURNS:
            raise UnsupportedCallError(f"this scan takes more than {_MOST_TURNS} steps")
        steps: list[Sequence[Any]] = []
        for i in range(count):
            results = list(self._graph(body, [*state, *(as_tensor(as_array(x)[i]) for x in rows), *read]))
            state = results[: len(state)]
            steps.append(results[len(state) :])
        return (*state, *map(_stacked, zip(*steps, strict=True)))


_MOST_TURNS = 4096


def _constant(x: Tensor) -> Array | None:
    """Return the value of a tensor that no input has a part in, else None."""
    session = active()
    return access.stored(x) if session is None or session.detached(x) else None


def _stacked(values: Sequence[Any]) -> Any:
    return as_tensor(np.stack([as_array(v) for v in values]))


def _constants(program: Any) -> dict[str, Any]:
    """Map placeholder names to parameters, buffers and lifted constants."""
    values: dict[str, Any] = {}
    for spec in program.graph_signature.input_specs:
        if spec.target is None:
            continue
        value = program.state_dict.get(spec.target)
        if value is None:
            value = program.constants.get(spec.target)
        values[spec.arg.name] = _Later(value, spec.target) if isinstance(value, torch.Tensor) else value
    return values


class _Later:
    """A constant that is copied when a node first needs it."""

    def __init__(self, value: torch.Tensor, name: str) -> None:
        self.value = value
        self.name = name
        self.cached: Tensor | None = None

    def tensor(self) -> Tensor:
        if self.cached is None:
            self.cached = constant(self.value, self.name)
        return self.cached


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
    value = module
    for part in target.split("."):
        value = getattr(value, part)
    return constant(value, target) if isinstance(value, torch.Tensor) else value


def _is_wide(fake: Any) -> bool:
    first = fake[0] if isinstance(fake, (list, tuple)) and fake else fake
    return getattr(first, "dtype", None) is torch.float64


_WHOLE = frozenset(("windows", "layers", "quantized", "random"))
"""Families that MegEngine has whole operators for, or that take no float16."""
_MOVES = frozenset(
    (
        *("view", "reshape", "_unsafe_view", "permute", "transpose", "t", "expand", "squeeze", "unsqueeze"),
        *"slice select cat stack clone alias detach split split_with_sizes unbind".split(),
        *"index index_select gather flip roll repeat contiguous lift_fresh_copy embedding".split(),
    )
)
"""Operators whose results need no rounding, since they only move numbers."""


def _lowered_half(
    lowering: OperatorLowering,
    name: str,
    call: FxCall,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    entries: Sequence[Any],
) -> Any:
    """Lower a call with float16; in float32 where that takes several steps or numbers that float16 cannot hold."""
    if not needs_float32(name, call):
        before = len(entries)
        result = lowering.function(call, *args, **kwargs)
        if not rounds_often(name, (r.opr for r in entries[before:])):
            return result
    named = dict(zip(kwargs, widened([*kwargs.values()]), strict=True))
    return lowering.function(call.in_float32(), *widened(args), **named)


def _settled(value: Any, fake: Any, rounds: bool) -> Any:
    """Return results as plain tensors of the dtypes that torch gives them.

    Args:
        fake: what torch knows of them.
        rounds: whether bfloat16 is rounded.
    """
    if isinstance(value, TracedArray):
        value = access.snapshot(value)
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
    return x if access.dtype_of(x) == want or e.is_bool(x) != (want.name == "Bool") else e.cast(x, want)


def _stand_in(fake: Any) -> Any:
    """Return zeros in place of a failed operator, so that everything after it is checked too."""

    def zeros(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            sizes = [n if isinstance(n, int) else n.node.hint or 1 for n in leaf.shape]
            try:
                dtype = narrow(leaf.dtype)
            except UnsupportedCallError:
                dtype = np.dtype("float32")
            return as_tensor(as_array(np.zeros(sizes, dtype)))
        return leaf if isinstance(leaf, (int, float, bool)) else 1

    return pytree.tree_map(zeros, fake)


def _scope_of(node: Any) -> Any:
    """Name operators after the module that they come from."""
    stack = [e for e in (node.meta.get("nn_module_stack") or {}).values() if isinstance(e, tuple)]
    path = str(stack[-1][0]) if stack else ""
    return scope(path) if path and not path.startswith("_empty") else nullcontext()
