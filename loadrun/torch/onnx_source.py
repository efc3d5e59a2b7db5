"""Torch's modules, scripts and programs as what `loadrun.onnx.export` writes."""

import inspect
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..base.errors import EngineError, InputError, TraceError, TraceWarning, UsageError
from ..graph.dtypes import Array, dtype_of as array_dtype_of
from ..onnx.inserted import ModuleParts, OpenSizes
from ..onnx.options import ExportOptions, OperatorExportTypes, TrainingMode
from ..onnx.source import ExportSource, Input
from ..onnx.writing import TRANSLATIONS
from ..tensors.access import dtype_of, stored, tensor_name
from ..testcase import EXPECT, Testcase
from ..verify.pack.capture import coarse_limits, largest, tolerances
from . import against_torch
from .exporting import is_missing, name_of_target, place_of
from .extra import quiet
from .left_out import node_values, result_names, results_of
from .modules import as_module, as_torch, named_alone, owner_of, parameters_of
from .onnx_gru import has_open_steps
from .onnx_nodes import inserted_nodes
from .open_axes import dynamic_axes, specs_of
from .program import recorded_cases
from .signature import fixed_size, open_sizes_in
from .traced import TorchTrace

_CONTROL = ("higher_order.cond", "higher_order.while_loop")


@dataclass(frozen=True)
class Chosen:
    """Which nodes of a program stand beside the graph in an ONNX model; see `Selection` of `left_out`.

    Args:
        options: those of the export.
        trained: whether the module is in training mode.
    """

    options: ExportOptions
    trained: bool

    def in_training(self, node: Any) -> bool:
        """Return whether a node is dropout or batch normalization in training, which ONNX has."""
        if not self.trained or not isinstance(node.target, torch._ops.OpOverload):
            return False
        name = node.target._schema.name
        if name in ("aten::dropout", "aten::native_dropout"):
            return bool((*node.args, *node.kwargs.values())[2])
        return name.startswith(("aten::_native_batch_norm_legit", "aten::batch_norm")) and node.args[5:6] == (
            True,
        )

    def whole(self, node: Any) -> bool:
        """Return whether a node is, so that its operator is not decomposed."""
        target = node.target
        if isinstance(target, torch._ops.HigherOrderOperator):
            return name_of_target(target) in _CONTROL
        if not isinstance(target, torch._ops.OpOverload) or not _gives_tensors(node):
            return False
        every = self.options.kind is OperatorExportTypes.ONNX_ATEN
        return every or target in self.options.table or self.in_training(node) or has_open_steps(node)

    def chosen(self, node: Any) -> bool:
        """Return whether a node of the program that is recorded is."""
        if self.whole(node):
            return True
        return self.options.fallback and isinstance(node.target, torch._ops.OpOverload) and is_missing(node)

    def refused(self, types: Collection[str]) -> bool:
        """Return whether a node is that was lowered to operators of these types."""
        return self.options.fallback and any(TRANSLATIONS.get(t) is None for t in types)


def _limits(source: ExportSource) -> dict[str, dict[str, object]]:
    """Return the tolerances of outputs of few bits, which runtimes round after other operators than torch."""
    coarse = coarse_limits(source.outputs)
    limits = tolerances(None, list(coarse), coarse=coarse, scales=largest(source.testcases))
    return {name: {"maxerr": limit} for name, limit in limits.items()}


def _gives_tensors(node: Any) -> bool:
    value = node.meta.get("val")
    parts = value if isinstance(value, (tuple, list)) else [value]
    return all(isinstance(part, torch.Tensor) for part in parts)


def read(
    model: Any, positional: tuple[Any, ...], named: Mapping[str, Any], options: ExportOptions
) -> ExportSource:
    """Make a graph of what torch computes.

    Args:
        model: a module, a method of one, a script, an exported program or its file, a function of tensors, or a trace.
        positional, named: example values.
        options: those of the export.

    Raises:
        UsageError: examples that do not fit, or sizes that cannot differ.
        TraceError: torch cannot export it, or the graph gives something else than torch.
        UnsupportedError: operators have no counterpart.
    """
    args, kwargs = pytree.tree_map(as_torch, (tuple(positional), dict(named)))
    cases: list[Mapping[str, Array]] | None = None
    if not callable(model) and not isinstance(model, torch.export.ExportedProgram):
        model, cases = recorded_cases(model)
    if isinstance(model, torch.export.ExportedProgram) and not args and not kwargs:
        args, kwargs = model.example_inputs or ((), {})
    owner = owner_of(model.module if isinstance(model, TorchTrace) else model)
    trained = options.training is TrainingMode.TRAINING or (
        options.training is TrainingMode.PRESERVE and bool(getattr(owner, "training", False))
    )
    reader = _Reader(model, Chosen(options, trained), args, kwargs)
    with _in_mode(owner, reader.mode), warnings.catch_warnings():
        if trained:
            # That statistics change is what training is.
            warnings.simplefilter("ignore", TraceWarning)
        reader.trace()
        return reader.source(cases)


@contextmanager
def _in_mode(owner: Any, mode: TrainingMode) -> Iterator[None]:
    """Put a module into the mode of the export, and all of its modules back."""
    if not isinstance(owner, torch.nn.Module) or mode is TrainingMode.PRESERVE:
        yield
        return
    # A frozen script has no mode.
    before = {m: m.training for m in owner.modules() if hasattr(m, "training")}
    if before:
        owner.train(mode is TrainingMode.TRAINING)
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


class _Reader:
    """Traces a model, and makes of the trace what is exported."""

    def __init__(self, model: Any, chosen: Chosen, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.options, self.chosen = chosen.options, chosen
        self.args, self.kwargs = args, kwargs
        self.wanted: dict[str, Any] | None = None
        level = 2 if self.options.optimize and self.options.folding else 0
        needed = self.options.fallback or chosen.trained or self.options.weights or self.options.table
        self.mode = self.options.training
        if isinstance(model, TorchTrace) and not needed:
            # It is compared with the module in the mode in which that was traced.
            self.traced, self.mode = model, TrainingMode.PRESERVE
            return
        if isinstance(model, TorchTrace):
            model = model.module
        program = isinstance(model, torch.export.ExportedProgram)
        dynamic = self.options.axes is not None or self.options.shapes is not None
        shapes = self._shapes if dynamic and not program else None
        self.traced = TorchTrace(model, shapes, level, selection=chosen)

    def trace(self) -> None:
        """Record the model on the example, if it is not yet.

        Raises:
            UsageError: there is no example, it does not fit, or a size cannot differ.
        """
        traced = self.traced
        if traced.program is not None:
            self.flat = traced._example
            if self.args or self.kwargs:
                self.flat = traced.signature.leaves(self.args, self.kwargs)
                traced.check(self.flat)
            return
        known = parameters_of(getattr(traced.module, "forward", traced.module))
        if not self.args and not self.kwargs and (known is None or known.parameters):
            raise UsageError("args is empty: a module or function is traced with example values")
        self.args, self.kwargs = _ordered(traced.module, self.args, self.kwargs)
        traced.record(self.args, self.kwargs)
        self.flat = traced.signature.leaves(self.args, self.kwargs)
        if self._fixed() and self._retraced():
            return
        if fixed := self._fixed():
            raise UsageError(
                f"{fixed} cannot be dynamic: torch took it for fixed when it exported the module (the code uses the "
                "size as a number, or the example has a size of 1 there)"
            )

    def _retraced(self) -> bool:
        """Trace larger values, of which torch takes no size for fixed because a result has one element."""
        larger = [self._enlarged(*leaf) for leaf in zip(self._labels(), self.flat, strict=True)]
        args, kwargs = pytree.tree_unflatten(larger, self.traced.program.call_spec.in_spec)
        retraced = TorchTrace(
            self.traced.module, self._shapes, self.traced.options.opt_level, selection=self.chosen
        )
        try:
            retraced.record(args, kwargs)
            agree = not against_torch.differing_outputs(
                retraced, retraced._run(self.flat), retraced.truth(self.flat)
            )
        except (TraceError, InputError, EngineError):
            return False
        before, self.traced = self.traced, retraced
        if agree and not self._fixed():
            return True
        self.traced = before
        return False

    def _enlarged(self, label: str, leaf: Any) -> Any:
        for axis in dynamic_axes(self.wanted or {}, label, leaf):
            leaf = leaf.index_select(axis, torch.arange(leaf.shape[axis] + 4) % max(leaf.shape[axis], 1))
        return leaf

    # Sizes that may differ

    def _labels(self) -> list[str]:
        """Return the names of the inputs, one for each leaf of the arguments."""
        return [s.arg.name for s in self.traced.signature.user_inputs()]

    def _shapes(self, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Which sizes may differ, as `torch.export.export` takes it."""
        bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        tensors: list[str] = []
        labelled: dict[int, str] = {}
        for name, value in bound.items():
            for path, leaf in pytree.tree_flatten_with_path(value)[0]:
                if isinstance(leaf, torch.Tensor):
                    labelled[id(leaf)] = "_".join(
                        [name, *(str(getattr(p, "key", getattr(p, "idx", ""))) for p in path)]
                    )
                    tensors.append(labelled[id(leaf)])
        self.wanted = {}
        if self.options.axes is not None:
            renamed = dict(zip(tensors, self.options.input_names, strict=False))
            if not isinstance(self.options.axes, Mapping):
                raise UsageError(
                    f"dynamic_axes must be a dict from names of inputs and outputs to axes, found "
                    f"{type(self.options.axes).__name__}"
                )
            for label in tensors:
                names = (renamed.get(label, label), label, f"{label}.real")
                named_axes = next((self.options.axes[n] for n in names if n in self.options.axes), None)
                if named_axes is not None:
                    self.wanted[label] = dict.fromkeys(named_axes, "")
        else:
            self.wanted = self._of_shapes(bound, tensors)
        dim = torch.export.Dim

        def sizes(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return None
            axes = dynamic_axes(self.wanted or {}, labelled[id(leaf)], leaf)
            return {i: dim.AUTO if i in axes else dim.STATIC for i in range(leaf.ndim)}

        return {name: pytree.tree_map(sizes, value) for name, value in bound.items()}

    def _of_shapes(self, bound: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        """`dynamic_shapes` by the inputs' names: given in the structure of the arguments, by name, or in order."""
        shapes = self.options.shapes
        specs: dict[str, Any] = {}
        if isinstance(shapes, Mapping):
            names = dict(zip(self.options.input_names, labels, strict=False))
            for key, spec in shapes.items():
                name = str(key)
                if name in bound:
                    specs |= specs_of(bound[name], spec, name)
                elif names.get(name, name) in labels:
                    specs[names.get(name, name)] = spec
                else:
                    raise UsageError(f"dynamic_shapes names {name!r}; the inputs are {', '.join(labels)}")
        elif isinstance(shapes, (list, tuple)) and len(shapes) <= len(bound):
            for (name, value), spec in zip(bound.items(), shapes, strict=False):
                specs |= specs_of(value, spec, name)
        else:
            raise UsageError(
                f"dynamic_shapes must be a dict by input or a list of at most {len(bound)}, found {shapes!r:.80}"
            )
        return {name: spec for name, spec in specs.items() if spec is not None}

    def _fixed(self) -> str:
        """Name an axis that should be dynamic and is none, "" where all are."""
        if self.traced._dynamic is None or not self.wanted:
            return ""
        for label, leaf in zip(self._labels(), self.flat, strict=True):
            fake = self.traced.signature.fakes().get(label)
            for axis in dynamic_axes(self.wanted, label, leaf):
                if isinstance(fake, torch.Tensor) and fixed_size(fake.shape[axis]) is not None:
                    return f"axis {axis} of {label!r}"
        return ""

    # What is exported

    def source(self, cases: Sequence[Mapping[str, Array]] | None) -> ExportSource:
        """Return the trace as what is exported."""
        traced = self.traced
        signature = traced.signature
        seen = node_values(traced.program, self.flat) if traced.left_out else {}
        results = results_of(traced.left_out, seen)
        names = signature.input_names()
        beside = [key for node in traced.left_out.values() for key in result_names(node)]
        weights = traced.weight_feeds()
        graph = traced.graph([*names, *beside, *(tensor_name(t) or "" for t in weights)])
        feeds = signature.feeds(self.flat)
        examples = {n: stored(t) for n, t in zip([*names, *beside], [*feeds, *results], strict=True)}
        parameters = {tensor_name(t) or "": stored(t).reshape(t.shape) for t in weights}
        inputs = [Input(n, dtype_of(t), stored(t).shape) for n, t in zip(names, feeds, strict=True)]
        reads = [key for name in traced.left_out for key in traced._interpreter.read_by(name)[0]]
        outputs = dict(zip([*traced._keys, *reads], graph.outputs, strict=True))
        self._warn()
        source = ExportSource(graph, inputs, outputs, examples, called=self._called)
        source.module = ModuleParts(
            inserted_nodes(traced._interpreter, traced.left_out, seen, results, self.chosen),
            parameters,
            self._weights(),
            traced._interpreter.places,
            lambda file: torch.export.save(traced.program, file),
        )
        truth = traced.truth(self.flat)
        ends = zip([*names, *traced._keys], [*feeds, *truth], strict=True)
        source.scalars = frozenset(n for n, value in ends if value.shape == ())
        free = self._free() if self.wanted is None else {}
        dynamic, tied = self._sizes(free)
        source.sizes = OpenSizes(
            dynamic,
            tied=tied,
            resized=against_torch.shapes_that_follow(traced, self.flat, free),
            invalid=partial(against_torch.why_invalid, traced, self.flat),
            asked=self.wanted if self.options.axes is None else None,
        )
        if not against_torch.draws_numbers(traced.program) and not self.chosen.trained:
            source.testcases = self._testcases(cases, source, truth)
            source.limits = _limits(source)
        return source

    def _warn(self) -> None:
        """Say for which sizes the model holds, what it does not give, and which operators go out in another domain."""
        said = []
        fixed = [getattr(s.arg, "value", None) for s in self.traced.signature.user_outputs()]
        if numbers := [repr(v) for v in fixed if v is not None]:
            said.append(
                f"results that are no tensors are no outputs of the model: {', '.join(numbers)[:200]}"
            )
        if conditions := " and ".join(c.text for c in self.traced._conditions):
            said.append(
                f"the model holds where {conditions}, and fails at other sizes: torch decided a branch by the "
                "example's"
            )
        every = not self.options.fallback or self.options.kind is OperatorExportTypes.ONNX_ATEN
        others = [] if every else [n for n in self.traced.left_out.values() if not self.chosen.whole(n)]
        if places := dict.fromkeys(f"{name_of_target(n.target)} ({place_of(n)})" for n in others):
            said.append(
                f"ONNX has no operators for {', '.join(places)}: they are written in torch's own domain, which few "
                "runtimes support"
            )
        for text in said:
            warnings.warn(text, TraceWarning, stacklevel=8)

    def _called(self) -> list[Array]:
        owner = owner_of(self.traced.module)
        with _in_mode(owner, self.mode), quiet():
            return self.traced.truth(self.flat)

    def _sizes(self, free: Mapping[Any, Any]) -> tuple[dict[str, dict[int, str]], dict[tuple[str, int], str]]:
        """Names of the sizes that the trace leaves open, and which of them are one and the same; see `_free`."""
        dynamic: dict[str, dict[int, str]] = {}
        tied: dict[tuple[str, int], str] = {}
        names: dict[str, str] = {}
        for name, fake in self.traced.signature.graph_inputs():
            for axis, expression in open_sizes_in(fake):
                if not expression.is_number:
                    symbol = str(free.get(expression, expression))
                    tied[name, axis] = symbol
                    if self.wanted is not None or all(s in free for s in expression.free_symbols):
                        dynamic.setdefault(name, {})[axis] = names.setdefault(symbol, f"{name}_dim_{axis}")
        return dynamic, tied

    def _free(self) -> dict[Any, Any]:
        """Return the sizes with which the model runs at other values: alone, or with all others that equal them.

        Returns:
            by symbol, the symbol that stands for all that change together.
        """
        symbols = against_torch.open_sizes(self.traced)

        def runs(*changed: Any) -> bool:
            old = symbols[changed[0]]
            larger = [{**symbols, **dict.fromkeys(changed, n)} for n in (old + 1, 2 * old, 3 * old, old + 32)]
            # A pooling gives as much for one more in front of a layer that takes no other size.
            return (
                any(against_torch.runs_at(self.traced, sizes) for sizes in larger[:2])
                and sum(against_torch.holds_at(self.traced, sizes) for sizes in larger) > 1
            )

        free = {s: s for s in symbols if runs(s)}
        for size in {n for s, n in symbols.items() if s not in free}:
            every = [s for s, n in symbols.items() if n == size]
            for together in ([s for s in every if s not in free], every):
                if len(together) > 1 and runs(*together):
                    free.update(dict.fromkeys(together, together[0]))
                    break
        return free

    def _weights(self) -> list[str]:
        owner = owner_of(self.traced.module)
        state = owner.state_dict() if isinstance(owner, torch.nn.Module) else self.traced.program.state_dict
        return list(state)

    def _testcases(
        self, cases: Sequence[Mapping[str, Array]] | None, source: ExportSource, truth: Sequence[Array]
    ) -> list[Testcase]:
        """Return the example with torch's results, or what a file has recorded."""
        expects = {n + EXPECT: v for n, v in zip(self.traced._keys, truth, strict=True)}
        dtypes = {i.name: i.dtype for i in source.inputs} | {n: array_dtype_of(v) for n, v in expects.items()}
        if cases is None:
            cases = [{**source.examples, **expects}]
        testcases = []
        for case in cases:
            arrays = {
                n: case[n].astype(d.np).reshape(case[n].shape or (1,)) for n, d in dtypes.items() if n in case
            }
            testcases.append(Testcase(arrays, {n: dtypes[n] for n in arrays}))
        return testcases


def _ordered(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Arguments by position as far as that goes, in the function's order; what is not given has its default.

    Raises:
        UsageError: the function does not take them.
    """
    known = parameters_of(named_alone(as_module(function), kwargs).forward)
    if known is None:
        return args, kwargs
    try:
        bound = known.bind(*args, **kwargs)
    except TypeError as e:
        raise UsageError(f"args does not fit the model: {e}") from None
    if kwargs:
        bound.apply_defaults()
    return bound.args, bound.kwargs
