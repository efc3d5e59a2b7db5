"""What torch itself computes for a trace, and the comparison with it at the example's sizes and at others."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..base.errors import EngineError, InputError
from ..base.proving import Watch
from ..compare.tolerances import error_between, limit_of
from ..graph.dtypes import Array
from ..inputs.kinds import is_sorted, kinds
from ..testcase import EXPECT, Bundle, Testcase
from ..tracing.naming import input_names
from ..verify.pack.capture import Recorder
from .call import ndarray, no_numbers, of_numpy
from .exporting import name_of_target, submodules
from .extra import quiet
from .guards import linear
from .registry import UnsupportedCallError
from .signature import Signature, open_sizes_in


def outputs_of(traced: Any, flat: Sequence[Any], module: Any = None, *, anew: bool = True) -> list[Array]:
    """Return torch's results for the leaves of a call's arguments, as arrays of the graph's dtypes.

    Args:
        traced: a trace.
        flat: the leaves.
        module: what torch runs, that which was traced by default.
        anew: whether attributes that the call changes, as by sizes, are as before in the next one; buffers always are.

    Raises:
        EngineError: the module failed, or returned another structure than when it was traced.
    """
    function = traced.module if module is None else module
    copies = [v.detach().clone() if isinstance(v, torch.Tensor) else copy.deepcopy(v) for v in flat]
    changes = any(s.kind.name == "BUFFER_MUTATION" for s in traced.program.graph_signature.output_specs)
    # A compiled one has no attributes that sizes change, and its copy is compiled anew.
    compiled = isinstance(traced.original, (torch.fx.GraphModule, torch.jit.ScriptModule))
    if (
        module is None
        and isinstance(traced.original, torch.nn.Module)
        and (changes or (anew and not compiled))
    ):
        owner = _copied(traced.original, changes)
        function = owner if function is traced.original else getattr(owner, function.__name__)
    args, kwargs = pytree.tree_unflatten(copies, traced.program.call_spec.in_spec)
    try:
        with torch.no_grad(), quiet():
            outputs = function(*args, **kwargs)
    except Exception as error:
        _check_weights(traced)
        raise EngineError(f"torch: {type(error).__name__}: {str(error).strip()[:300]}") from error
    leaves, spec = pytree.tree_flatten(outputs)
    if len(leaves) != len(traced.signature.user_outputs()):
        raise EngineError(
            f"torch returned {spec}, but {traced.program.call_spec.out_spec} when it was traced"
        )
    arrays = []
    fakes = traced.signature.of_graph(traced.signature.output_fakes())
    for leaf, fake in zip(traced.signature.of_graph(leaves), fakes, strict=True):
        if isinstance(leaf, torch.Tensor) and (why := no_numbers(leaf)):
            raise EngineError(f"torch's result is {why}")
        if isinstance(leaf, torch.Tensor) and isinstance(fake, torch.Tensor) and leaf.dtype != fake.dtype:
            _check_weights(traced)
            raise EngineError(
                f"torch: the module gives {str(leaf.dtype)[6:]} where torch's exported program gives "
                f"{str(fake.dtype)[6:]}, as attention in mixed precision does, which has a path of its own outside of "
                "training (torch.backends.mha.set_fastpath_enabled(False) turns it off)"
            )
        try:
            value = leaf if isinstance(leaf, torch.Tensor) else torch.as_tensor(leaf)
            arrays.append(ndarray(value))
        except UnsupportedCallError as error:
            raise EngineError(f"torch's result: {error}") from error
    return arrays


def _check_weights(traced: Any) -> None:
    """Check that the weights of a module have the dtypes that they were traced with.

    Raises:
        EngineError: one has not, as after `module.double()`.
    """
    if not isinstance(traced.original, torch.nn.Module):
        return
    named = dict(traced.original.named_parameters()) | dict(traced.original.named_buffers())
    about = traced.program.graph_signature
    for node in traced.program.graph.find_nodes(op="placeholder"):
        name = about.inputs_to_parameters.get(node.name) or about.inputs_to_buffers.get(node.name)
        old, new = node.meta.get("val"), named.get(name)
        if isinstance(old, torch.Tensor) and new is not None and new.dtype != old.dtype:
            raise EngineError(
                f"the module's {name} is {str(new.dtype)[6:]}, but it was {str(old.dtype)[6:]} when the module was "
                "traced; trace it again"
            )


def _copied(owner: torch.nn.Module, changes: bool) -> torch.nn.Module:
    """Return a copy of a module; with the same tensors, unless it changes some."""
    shared = {} if changes else {id(t): t for t in (*owner.parameters(), *owner.buffers())}
    with quiet():
        try:
            return copy.deepcopy(owner, shared)
        except (RuntimeError, TypeError):
            # Some hold what cannot be copied, a lock or a result.
            if changes:
                raise
            return owner


class TorchRecorder(Recorder):
    """Captures testcases whose expected values are torch's, and keeps the reference engine's errors."""

    def __init__(self, model: Bundle, traced: Any) -> None:
        super().__init__(model)
        self.traced = traced
        self.provenance["engine"] = "torch"
        self.provenance["torch"] = str(torch.__version__)
        self.names = input_names(traced.recording, traced._names)

    def capture(self, inputs: Mapping[str, Array]) -> Testcase:
        """Run the module, and the model beside it."""
        flat = self._arguments(inputs)
        self.traced.check(flat)
        case = super().capture(inputs)
        truth = self.traced.truth(flat)
        arrays = dict(case.arrays)
        errors: dict[str, float] = {}
        for key, name, value in zip(self.traced._keys, self.bundle.outputs, truth, strict=True):
            expected = arrays[name + EXPECT]
            stored = np.asarray(value).astype(expected.dtype).reshape(value.shape or (1,))
            errors[name] = error_between(stored, expected)
            self.traced.differences[key] = max(errors[name], self.traced.differences.get(key, 0.0))
            arrays[name + EXPECT] = stored
        about = {**case.provenance, "reference_error": {k: float(f"{v:.3g}") for k, v in errors.items()}}
        return Testcase(arrays, case.dtypes, about)

    def _arguments(self, inputs: Mapping[str, Array]) -> list[Any]:
        """Build the leaves of the module's arguments for a testcase; unused inputs are the example's."""
        places = {key: f"arg_{i}" for i, key in enumerate(self.traced.signature.input_names())}
        flat = []
        for name, example, _ in self.traced.signature.inputs(self.traced._example):
            fed = inputs.get(self.names.get(places.get(name, ""), ""))
            flat.append(example if fed is None else _like(fed, example))
        return flat


def _like(value: Array, example: Any) -> Any:
    """Convert an input of the graph to the type that the module takes there."""
    if not isinstance(example, torch.Tensor):
        return int(value.reshape(-1)[0])
    return of_numpy(value.reshape(()) if example.ndim == 0 else value, example.dtype)


_FLOATS = (torch.float32, torch.float64, torch.float16)
_SECOND = 1.0
_KINDS = ("numbers of 1e-4", "ties")
"""What neither the example nor other sizes show."""
_NOISE = 4
"""How many times as large an error may be as that of torch beside float64."""

Place = tuple[str, int]
"""An axis of an input: the input's name, and the number of the axis."""
_NO_PLACES: Mapping[Place, int] = MappingProxyType({})
Axes = frozenset[tuple[int, int]]
"""Axes of arguments: the number of a leaf among all, and that of the axis."""

_FREE = {
    "topk kthvalue sort argsort median nanmedian mode": (
        "{} may name any place of equal values: compare values, sort with stable=True, or make the values differ"
    )
}
"""What torch leaves open, by its operators."""


def draws_numbers(program: Any) -> bool:
    """Whether a program draws random numbers, so that no two runs agree."""
    return any(isinstance(n.target, torch._ops.OpOverload) and _draws(n) for n in program.graph.nodes)


def _draws(node: Any) -> bool:
    """Whether a call draws random numbers; dropout outside of training does not."""
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    schema = node.target._schema
    arguments = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    arguments |= dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | node.kwargs
    rate = arguments.get("p", arguments.get("dropout_p", arguments.get("dropout")))
    trained = arguments.get("train", arguments.get("training", True))
    return not (trained is False or rate == 0)


class Trace(Protocol):
    """The part of a traced torch module that is compared with torch."""

    program: Any
    signature: Signature
    _example: list[Any]
    _fixed: Axes
    _interpreter: Any
    _keys: list[str]

    def check(self, flat: Sequence[Any]) -> None:
        """Refuse arguments that the graph does not take."""

    def truth(self, flat: Sequence[Any]) -> list[Array]:
        """Return torch's own results."""

    def _run(self, flat: Sequence[Any]) -> list[Any]:
        """Return the results of the graph."""


def open_sizes(traced: Trace) -> dict[Any, int]:
    """Map the symbols of a program's dynamic sizes to their values in the example."""
    sizes: dict[Any, int] = {}
    for _, value, fake in traced.signature.inputs(traced._example):
        for axis, expression in open_sizes_in(fake):
            if (terms := linear(expression)) is not None:
                symbol, times, plus = terms
                sizes.setdefault(symbol, (value.shape[axis] - plus) // times)
    return sizes


def _resized(traced: Trace, sizes: Mapping[Any, int], alone: Mapping[Place, int] = _NO_PLACES) -> list[Any]:
    """Repeat or cut the example's leaves to other sizes, some axes `alone`, so that indices stay in range."""
    leaves = []
    for name, value, fake in traced.signature.inputs(traced._example):
        if not isinstance(value, torch.Tensor) or not isinstance(fake, torch.Tensor):
            leaves.append(value)
            continue
        example = value
        shape = [n if isinstance(n, int) else int(n.node.expr.subs(sizes)) for n in fake.shape]
        for axis, tied in enumerate(shape):
            n = alone.get((name, axis), tied)
            if n != value.shape[axis]:
                value = value.index_select(axis, torch.arange(n) % max(value.shape[axis], 1))
        same = value.numel() and bool((value == value.flatten()[0]).all())
        if value.is_floating_point() and (same or value.numel() > example.numel()):
            # Many functions agree on all zeros or all ones; the place of one of several equal values is anyone's.
            low, high = (0.25, 0.75) if same else (0.0, 1e-3)
            value = value + torch.linspace(low, high, value.numel()).reshape(value.shape).to(value.dtype)
        # Borders, offsets and positions stay in order.
        leaves.append(value.sort(-1).values if is_sorted(example) else value)
    return leaves


def differing_outputs(
    traced: Trace, outputs: Sequence[Any], truth: Sequence[Any], limit: float | None = None
) -> dict[str, float]:
    """List the outputs in which the graph and torch differ by more than a limit, with their errors.

    Nobody gave that limit, so errors go by the size of the output (see `error_between`).
    """
    limit = _limit(traced) if limit is None else limit
    errors = {
        n: error_between(b, a, by_size=True) for n, a, b in zip(traced._keys, outputs, truth, strict=True)
    }
    return {n: e for n, e in errors.items() if not e <= limit}


def _limit(traced: Trace) -> float:
    return limit_of(str(dtype).removeprefix("torch.") for dtype in _dtypes(traced.program))


def _dtypes(program: Any) -> Iterator[torch.dtype]:
    """Yield the dtypes that a program computes in, which mixed precision makes others than those of its results."""
    yield torch.float32
    for module in submodules(program):
        for node in module.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                yield value.dtype


def errors_at(
    traced: Trace, sizes: Mapping[Any, int], checked: bool = True, alone: Mapping[Place, int] = _NO_PLACES
) -> dict[str, float] | None:
    """Compute the graph's errors at some sizes; None if torch does not run there, empty if the graph refuses.

    Args:
        traced: a trace.
        sizes: by torch's symbols.
        checked: whether sizes count as refused for which torch's export does not hold.
        alone: sizes of axes of inputs, whatever torch's symbols say of them.
    """
    # Of bags of embeddings torch reads where offsets say, beyond the end as well.
    if any("embedding_bag" in str(n.target) and n.args[2:3] for n in traced.program.graph.nodes):
        return None
    try:
        flat = _resized(traced, sizes, alone)
        if checked:
            traced.check(flat)
        truth = traced.truth(flat)
    except (InputError, EngineError, RuntimeError, TypeError):
        return None
    try:
        errors = differing_outputs(traced, traced._run(flat), truth)
    except (InputError, EngineError):
        # The graph refuses these sizes, so nothing is silently wrong.
        return {}
    return beyond_rounding(traced, flat, errors)


def beyond_rounding(traced: Trace, flat: Sequence[Any], errors: Mapping[str, float]) -> dict[str, float]:
    """Leave out errors that torch's own results have beside float64.

    Rounding may decide, as in a matrix that is nearly singular, and in small numbers beside large ones.
    """
    if not errors:
        return {}
    try:
        # The program beside itself, since it may not be what the module computes.
        wide = outputs_of(traced, flat, _in_float64(traced.program))
        noise = differing_outputs(traced, wide, outputs_of(traced, flat, traced.program.module()), 0.0)
    except (EngineError, RuntimeError, TypeError):
        return dict(errors)
    limit = _limit(traced)
    return {n: e for n, e in errors.items() if noise.get(n, 0.0) <= min(limit, e / _NOISE)}


def _in_float64(program: Any) -> Callable[..., Any]:
    """Return a program that computes in float64, and returns what it does in float32."""
    with quiet():
        module = copy.deepcopy(program.module()).double()

    def to(dtype: torch.dtype, old: torch.dtype, values: Any) -> Any:
        return pytree.tree_map_only(torch.Tensor, lambda x: x.to(dtype) if x.dtype == old else x, values)

    def function(*args: Any, **kwargs: Any) -> Any:
        wide = to(torch.float64, torch.float32, (args, kwargs))
        return to(torch.float32, torch.float64, module(*wide[0], **wide[1]))

    return function


def why_different(traced: Trace, flat: Sequence[Any]) -> str:
    """Say why a trace may differ from torch for the leaves of a call's arguments."""
    with suppress(Exception):
        of_program = outputs_of(traced, flat, traced.program.module())
        if not differing_outputs(traced, traced._run(flat), of_program):
            return (
                "torch's exported program gives what the graph gives, the module itself something else (it has a fast "
                "path in torch, as attention has for rows that are masked entirely); see which of both is meant"
            )
    names = {
        name_of_target(n.target).split(".")[1] for n in traced.program.graph.nodes if n.op == "call_function"
    }
    free = [(op, text) for ops, text in _FREE.items() for op in ops.split() if op in names]
    said = [text.format(op.strip("_").replace("linalg_", "linalg.")) for op, text in free]
    return "; ".join(said) or "an operator may be lowered wrongly"


def runs_at(traced: Trace, sizes: Mapping[Any, int]) -> bool:
    """Whether both torch and the graph run at some sizes, and agree there."""
    differences = errors_at(traced, sizes)
    if differences is None or differences:
        return False
    try:
        traced._run(_resized(traced, sizes))
    except (InputError, EngineError):
        return False
    return True


def holds_at(traced: Trace, sizes: Mapping[Any, int]) -> bool:
    """Whether what torch assumed of the sizes holds for others."""
    try:
        traced.check(_resized(traced, sizes))
    except InputError:
        return False
    return True


def resizing(fake: Any, shape: tuple[int, ...]) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    """Return the shape of a value, in storage form, as a function of other sizes."""

    def resized(numbers: Mapping[str, int]) -> tuple[int, ...]:
        if not isinstance(fake, torch.Tensor) or not fake.ndim:
            return shape
        sizes = []
        for n, size in zip(fake.shape, shape, strict=True):
            if isinstance(n, torch.SymInt):
                known = {s: numbers[str(s)] for s in n.node.expr.free_symbols if str(s) in numbers}
                value = n.node.expr.subs(known)
                size = int(value) if value.is_Integer else size
            sizes.append(size)
        return tuple(sizes)

    return resized


def shapes_that_follow(
    traced: Trace, flat: Sequence[Any], tied: Mapping[Any, Any]
) -> dict[str, Callable[[Mapping[str, int]], tuple[int, ...]]]:
    """Return the shapes of inputs with sizes that follow from others, as those of a cache and its mask do.

    Args:
        traced: a trace.
        flat: the leaves of its example.
        tied: by a size's symbol, the one that stands for all that change together.
    """
    example = {str(s): n for s, n in open_sizes(traced).items()}

    def complete(resized: Callable[..., tuple[int, ...]]) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
        def from_sizes(numbers: Mapping[str, int]) -> tuple[int, ...]:
            others = {str(s): numbers[str(t)] for s, t in tied.items() if str(t) in numbers}
            return resized({**example, **numbers, **others})

        return from_sizes

    return {
        name: complete(resizing(fake, tuple(value.shape)))
        for name, value, fake in traced.signature.inputs(flat)
        if any(not (size.is_number or size.is_symbol) for _, size in open_sizes_in(fake))
    }


def why_invalid(traced: Trace, flat: Sequence[Any], sizes: Mapping[str, tuple[int, ...]]) -> str:
    """Say why a trace does not hold for other shapes of its inputs, by name; "" where it does."""
    leaves = []
    for name, value, _ in traced.signature.inputs(flat):
        if isinstance(value, torch.Tensor) and value.ndim and name in sizes:
            value = value.new_zeros(1).expand(sizes[name])
        leaves.append(value)
    try:
        traced.check(leaves)
    except InputError as error:
        return str(error)
    return ""


def on_other_data(traced: Trace, flat: Sequence[Any]) -> Iterator[tuple[str, list[Any], dict[str, float]]]:
    """Yield data of other kinds at the sizes of an example, while there is a second, and the graph's errors there."""
    names = [str(i) for i, x in enumerate(flat) if isinstance(x, torch.Tensor) and x.dtype in _FLOATS]
    watch = Watch()
    example = {n: flat[int(n)].detach().numpy() for n in names}
    for kind, values in kinds(example, ordered=True):
        if kind not in _KINDS:
            continue
        leaves = list(flat)
        for n in names:
            leaves[int(n)] = torch.from_numpy(values[n])
        try:
            truth = traced.truth(leaves)
            if all(np.isfinite(v).all() for v in truth if v.dtype.kind in "fc"):
                errors = differing_outputs(traced, traced._run(leaves), truth)
                yield kind, leaves, beyond_rounding(traced, leaves, errors)
        except (InputError, EngineError, RuntimeError, TypeError, ValueError, IndexError):
            continue
        if watch.seconds > _SECOND:
            return


def at_other_sizes(traced: Trace) -> tuple[dict[str, float], list[Any]]:
    """Compute the graph's errors with every dynamic size one more, and twice as much; return the arguments, too.

    Half of a size is often the same where it is one more.
    """
    symbols = open_sizes(traced)
    for factor, more in ((1, 1), (2, 0)):
        sizes = {s: factor * n + more for s, n in symbols.items()}
        if errors := errors_at(traced, sizes):
            return errors, _resized(traced, sizes)
    return {}, []
