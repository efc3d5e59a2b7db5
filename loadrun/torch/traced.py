"""`TorchTrace`: a torch module or function as a recorded graph, called with torch tensors or ndarrays."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..base.errors import EngineError, InputError, LoadRunError, TraceError, TraceWarning, UnsupportedError
from ..base.stages import stage
from ..compare.tolerances import error_between
from ..graph import Graph
from ..graph.dtypes import Array
from ..tensors import Tensor, access
from ..tensors.switches import exact_arithmetic
from ..testcase import Bundle
from ..tracing.dumping import Dumps
from ..tracing.naming import input_names
from ..tracing.recording import TraceOptions
from ..tracing.traced import Traced
from ..verify.pack.capture import Recorder
from . import against_torch, modules
from .against_torch import TorchRecorder, outputs_of
from .exporting import (
    callable_of,
    decided_by_data,
    export,
    guards_of,
    made_functional,
    refusal,
    submodules,
    unsupported,
)
from .extra import quiet
from .guards import Condition, guarded, read_inputs, refusing
from .interpret import Interpreter
from .left_out import Selection, given_results, named_tensors, node_values, results_of, weights_of
from .notes import notes_of, surprises
from .open_axes import every_size, is_dynamic, needed_axes
from .registry import UnsupportedCallError
from .script import Scripted
from .signature import Signature
from .size_limits import SizeOneError, fixed_by_example, needed_conditions, never_a_one, never_one, refuse_one

_KEPT = 16
"""The number of traces for other sizes that are kept."""


class _DifferenceError(TraceError):
    """A graph that differs from torch, which may be wrong for all sizes."""


class TorchTrace(modules.ModuleAttributes, Dumps):
    """A traced torch module: calls run its graph, `dump` writes it.

    Args:
        module: a module, a method of one, a script, an exported program, or a function of torch tensors.
        dynamic_shapes: which sizes may differ in later calls, see `loadrun.torch.trace`.
        opt_level: how far the graph is simplified, see `loadrun.tracing.trace`.
        program: an earlier export of the module, with its dynamic shapes.
        check: whether a graph that differs from torch is refused; False only warns, None does neither.
        selection: which nodes of the program are left out of the graph, to stand beside it in an ONNX model.

    Attributes:
        left_out: these nodes, by name.
        weights: path and value of the parameters that are inputs of the graph, by the program's names for them.
        module: what is traced.
        program: torch's exported program, once it is traced.
        signature: its arguments and results.
        notes: what is not as in torch: narrowed dtypes, buffers that the module changes.
        others: traces of the same for sizes for which this one does not hold.
        differences: the largest error between torch's outputs and the reference engine's, by output name; of the
            traced example, and of all testcases of the latest `dump`.
    """

    def __init__(
        self,
        module: Callable[..., Any],
        dynamic_shapes: Any = None,
        opt_level: int = 2,
        *,
        program: Any = None,
        check: bool | None = True,
        selection: Selection | None = None,
    ) -> None:
        if isinstance(module, torch.export.ExportedProgram):
            program, module = module, callable_of(module)
        self.module = module = modules.without_observers(module)
        self._exported = program
        self._checks = check
        self._never_one: frozenset[Any] = frozenset()
        self._conditions: list[Condition] = []
        self.original = modules.owner_of(module)
        self.program: Any = None
        self.signature: Any = None
        self.notes: list[str] = []
        self.differences: dict[str, float] = {}
        self.others: list[TorchTrace] = []
        self.selection = selection
        self.left_out: dict[str, Any] = {}
        self.weights: dict[str, tuple[str, Any]] = {}
        self._dynamic = None if dynamic_shapes is False else dynamic_shapes
        self._follows_one = self._dynamic is not None
        self._fixed: frozenset[tuple[int, int]] = frozenset()
        self.options = TraceOptions(
            symbolic=True, capture_as_const=True, without_host=True, opt_level=opt_level, exact=True
        )
        self._inner: Any = None
        self._example: list[Any] = []
        self._keys: list[str] = []
        self._by_key = False
        self._names: Any = None
        self._symbolic = False
        self._path_of_example = False
        self._guards: Any = None
        self._interpreter: Any = None
        self._lock = threading.RLock()

    # For dumps

    _widens = True  # Torch adds in another order than the reference engine.

    @property
    def recording(self) -> Any:
        """The recorded graph, None before the first call."""
        return None if self._inner is None else self._inner.recording

    @property
    def outputs(self) -> Any:
        """The results of the recorded function; None before the first call."""
        return None if self._inner is None else self._inner.outputs

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The code to compare with: the module itself."""
        return self.module

    @property
    def bundle(self) -> Bundle:
        """The model as it would be dumped without testcases."""
        return Bundle(self.graph())

    def graph(self, arg_names: Any = None, output_names: Any = None) -> Graph:
        """Return the recorded graph with named inputs and outputs; see `loadrun.tracing.Traced.graph`."""
        self._names = arg_names
        if output_names is None and not self._by_key:
            output_names = self._keys
        graph = super().graph(arg_names, output_names)
        names = input_names(self.recording, arg_names)
        graph.fixed_shapes = {
            name: shape
            for name, shape in zip(names.values(), self.signature.input_shapes(), strict=False)
            if any(n is not None for n in shape)
        }
        return graph

    def dump(self, file: Any, **options: Any) -> Any:
        """Write the graph as a .mge file; ground truth is what torch computes.

        Weights keep their parameters' names unless ``keep_param_name=False``.

        Args:
            file: a path, or an open binary file.
            options: those of `loadrun.tracing.Traced.dump`; ``input_data`` takes the module's arguments as well:
                tensors, tuples of positional arguments, and dicts of those by keyword.

        Returns:
            the counts that MegEngine returns.
        """
        self.differences = {}
        return super().dump(file, **{"keep_param_name": True, **options})

    def example(self) -> dict[str, Array]:
        """Return the tensors that were traced, by the names that the recording has for them."""
        return self._fed(self._example)

    def _fed(self, flat: Sequence[Any]) -> dict[str, Array]:
        return dict(zip(self.recording.args, map(access.stored, self.signature.feeds(flat)), strict=False))

    def _data(self, item: Any, arg_names: Any, graph_inputs: Collection[str]) -> Any:
        """Return arrays by input name for the arguments of a call; see `loadrun.tracing.dumping.Dumps`."""
        names = input_names(self.recording, arg_names)
        as_inputs = isinstance(item, Mapping) and set(item) <= set(names.values())
        if isinstance(item, str) or as_inputs:
            return super()._data(item, arg_names, graph_inputs)
        fed = self._fed(self.signature.leaves(*modules.call_of(item)))
        return {names[key]: value for key, value in fed.items() if names[key] in graph_inputs}

    def _truth(self, model: Bundle) -> Recorder:
        # Torch draws other numbers in every call.
        return Recorder(model) if against_torch.draws_numbers(self.program) else TorchRecorder(model, self)

    # Calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph; the first call traces.

        Torch tensors give torch tensors of torch's dtypes, ndarrays alone give ndarrays.

        Raises:
            InputError: the arguments are not those of the traced call: another structure, dtype or fixed size.
            TraceError, UnsupportedError: the module cannot be traced.
        """
        args, kwargs = pytree.tree_map(modules.as_torch, (args, kwargs))
        with self._lock:
            if self.program is None:
                return self.record(args, kwargs)
            flat = self.signature.leaves(args, kwargs)
            traced = self.holding(flat)
            try:
                outputs = traced._run(flat)
            except EngineError as error:
                traced = self._at_sizes(flat, error)
                outputs = traced._run(flat)
            return traced.signature.rebuilt(outputs)

    forward = __call__

    def holding(self, flat: Sequence[Any]) -> TorchTrace:
        """Return the trace that takes these arguments: this one, or one of `others`, which may be a new one.

        Raises:
            InputError: none does.
        """
        try:
            self.check(flat)
        except InputError as error:
            for other in self.others:
                if other.holds(flat):
                    return other
            return self._at_sizes(flat, error)
        return self

    def _at_sizes(self, flat: Sequence[Any], error: LoadRunError) -> TorchTrace:
        """Trace the module for sizes for which this trace does not hold.

        Raises:
            LoadRunError: `error`, if it is not about sizes, or the module takes no such sizes.
        """
        sizes = [getattr(x, "shape", ()) for x in flat]
        same = sizes == [getattr(x, "shape", ()) for x in self._example]
        # A size of 1 alone is refused that the caller's `dynamic_shapes` allow.
        one = isinstance(error, SizeOneError) and self._exported is None and self.selection is None
        if same or not (self._respecializes or one) or not self.signature.same_kinds(flat):
            raise error
        dynamic = True if self._respecializes else None
        other = TorchTrace(self.module, dynamic, self.options.opt_level, check=self._checks)
        try:
            other.record(*pytree.tree_unflatten(list(flat), self.program.call_spec.in_spec))
        except (UnsupportedError, TraceError, EngineError):
            raise error from None
        self.others = [*self.others[1 - _KEPT :], other]
        return other

    def holds(self, flat: Sequence[Any]) -> bool:
        """Return whether the trace takes these arguments."""
        try:
            self.check(flat)
        except InputError:
            return False
        return True

    @property
    def code(self) -> str:
        """What torch exported, as Python code; empty before the first call."""
        return "" if self.program is None else str(self.program.graph_module.code)

    def save(self, file: Any, **options: Any) -> Any:
        """Write the graph as a .mge file, which `dump` does as well."""
        modules.refuse_scripts(options)
        return self.dump(file, **options)

    def record(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Export and record the module on an example, and compare what the reference engine gives with torch's.

        Where torch is to find the sizes that may vary, those that an operator must know are fixed, all of them if
        torch cannot export the module for others: calls at other sizes are traced by themselves.

        Returns:
            the graph's results for the example.
        """
        modules.refuse_no_numbers(args, kwargs)
        args, kwargs = modules.distinct((args, dict(kwargs)), self._dynamic is not None)
        self._fixed = frozenset()
        while True:
            try:
                return self._record(args, kwargs)
            except _DifferenceError:
                raise
            except (UnsupportedError, TraceError) as error:
                fixed = needed_axes(self, args, kwargs, error) if self._respecializes else None
                if not fixed or fixed <= self._fixed:
                    raise
                self._fixed |= fixed
                self.notes = []
                self._follows_one = True

    @property
    def _respecializes(self) -> bool:
        """Whether sizes for which a trace does not hold get a trace of their own."""
        return self._dynamic is True and self._exported is None and self.selection is None

    def _record(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        module = modules.named_alone(modules.as_module(self.module), kwargs)
        if isinstance(module, Scripted):
            module.loops_over_sizes = self.selection is not None
        with torch.no_grad(), stage("torch exports the module"):
            if self._exported is not None:
                program = made_functional(self._exported, module, self.selection)
            else:
                try:
                    program = self._export(module, args, kwargs)
                except TraceError as error:
                    if not decided_by_data(error.__cause__ or error) or modules.is_torch_program(self.module):
                        raise
                    try:
                        module = modules.along_example(module, args, kwargs)
                    except Exception:
                        raise error from None
                    self._path_of_example = True
                    program = self._export(module, args, kwargs)
        nodes = [n for n in program.graph_module.graph.nodes if n.op == "call_function"]
        self.left_out = {n.name: n for n in nodes if self.selection is not None and self.selection.chosen(n)}
        self.weights = (
            weights_of(program) if self.selection is not None and self.selection.options.weights else {}
        )
        if problems := unsupported(program, self.left_out):
            raise refusal(module, problems)
        self.program = program
        self.signature = Signature(program, modules.parameters_of(module.forward))
        try:
            outputs = self._recorded(module, args, kwargs)
            if self._left_out_besides(nodes):
                outputs = self._recorded(module, args, kwargs)
        except BaseException:
            self.program = self._inner = None
            raise
        # What is not as in torch is kept, and a caller is warned of what is not expected.
        self.notes += notes_of(program, self.signature, self._interpreter.coarse, self._fixed)
        for text in surprises(program, self._interpreter.coarse):
            warnings.warn(text, TraceWarning, stacklevel=4)
        self._example = self.signature.leaves(args, kwargs)
        truth = self.truth(self._example)
        follows = self._follows_one and self._exported is None and not against_torch.draws_numbers(program)
        if follows and against_torch.differing_outputs(self, outputs, truth):
            # A size of one was taken for any other.
            self._follows_one, self.program, self._inner, self.notes = False, None, None, []
            return self._record(args, kwargs)
        try:
            self._hold(outputs, truth, module, args, kwargs)
        except TraceError:
            self.program = self._inner = None
            raise
        return self.signature.rebuilt(outputs)

    def _export(self, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        shapes = partial(every_size, self._fixed) if self._dynamic is True else self._dynamic
        return export(module, args, kwargs, shapes, follow_one=self._follows_one, selection=self.selection)

    def _left_out_besides(self, nodes: Sequence[Any]) -> bool:
        """Leave out the nodes whose operators turn out to have no counterpart; whether there are any."""
        refused = self.selection.refused if self.selection is not None else lambda types: False
        types = self._interpreter.types
        more = {n.name: n for n in nodes if refused(types.get(n.name, ()))}
        self.left_out |= more
        return bool(more)

    @stage("comparing the graph with torch")
    def _hold(
        self,
        outputs: Sequence[Array],
        truth: Sequence[Array],
        module: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        """Compare the graph with torch at the example's sizes, and at others where sizes are dynamic.

        Raises:
            TraceError: they differ, and the trace is to be checked.
        """
        for name, computed, right in zip(self._keys, outputs, truth, strict=True):
            self.differences[name] = max(error_between(right, computed), self.differences.get(name, 0.0))
        if against_torch.draws_numbers(self.program):
            return
        errors = against_torch.differing_outputs(self, outputs, truth)
        self._report(against_torch.beyond_rounding(self, self._example, errors), self._example)
        if self._path_of_example:
            self.notes.append("values decided in Python which way to go: the graph goes the example's way")
        else:
            for kind, flat, errors in against_torch.on_other_data(self, self._example):
                self._report(errors, flat, kind)
        if not self._symbolic:
            return
        errors, flat = against_torch.at_other_sizes(self)
        self._report(errors, flat)
        if not errors:
            self._never_one, self._conditions = never_one(self), needed_conditions(self)
        fixed = fixed_by_example(self) if self._dynamic is True else []
        if said := [*self._conditions, *fixed]:
            self.notes.append(f"the graph holds where {' and '.join(dict.fromkeys(c.text for c in said))}")
        if self._never_one or self._conditions:
            # Record again, with inputs that refuse other sizes.
            self._recorded(module, args, kwargs)

    def _report(self, errors: Mapping[str, float], flat: Sequence[Any], kind: str = "") -> None:
        if not errors or self._checks is None:
            return
        worst = ", ".join(f"{n} ({e:.3g})" for n, e in [*errors.items()][:3])
        why = "; ".join([*self.notes, against_torch.why_different(self, flat)])
        sizes = ", ".join(str([*x.shape]) for x in flat if hasattr(x, "shape"))
        where = kind or ("the example" if flat is self._example else f"sizes of {sizes}")
        text = f"the graph differs from torch for {where}: {worst}, the error of MegEngine's measure; {why}"
        if self._checks:
            raise _DifferenceError(f"{text}; check=False accepts it anyway")
        warnings.warn(text, TraceWarning, stacklevel=6)

    def check(self, flat: Sequence[Any]) -> None:
        """Refuse what the exported program does not hold for.

        Raises:
            InputError: sizes that torch took for fixed, or for related to one another, when it exported the module.
        """
        self.signature.check(flat)
        if not self._symbolic:
            return
        if self._guards is None:
            with quiet():
                self._guards = guards_of(self.program)
        try:
            self._guards(*flat)
        except (AssertionError, ZeroDivisionError) as error:
            raise InputError(
                f"the traced module is not valid for these sizes: {str(error).strip()[:300]}\n  when torch exported "
                "it, the code assumed fixed sizes (a size as a number in Python, or a dynamic axis of size 1)"
            ) from error
        refuse_one(self, flat, self._never_one)

    def _run(self, flat: Sequence[Any]) -> list[Array]:
        # What torch gives for the nodes that are left out is fed under the names of the graph's inputs.
        results = results_of(self.left_out, node_values(self.program, flat)) if self.left_out else []
        outputs = self._inner(*self.signature.feeds(flat), *results, *self.weight_feeds())
        values = [x.numpy() for x in (outputs.values() if self._by_key else outputs)]
        return values[: len(self._keys)]

    def weight_feeds(self) -> list[Tensor]:
        """Return the weights that are inputs of the graph."""
        return named_tensors((path, value) for path, value in self.weights.values())

    @stage("recording operators")
    def _recorded(self, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        interpreter = self._interpreter = Interpreter(self.program, module, self.left_out)
        self._keys = self.signature.output_names()

        read = read_inputs(self.program)
        kind = self.program.call_spec.out_spec.type
        # That of a named tuple is a function.
        self._by_key = (isinstance(kind, type) and issubclass(kind, dict)) or bool(self.left_out)

        def function(*tensors: Tensor) -> Any:
            waiting = iter(tensors)
            with exact_arithmetic():
                inputs = self.signature.graph_inputs()
                conditions = [*never_a_one(inputs, self._never_one), *self._conditions]
                values, left = guarded({n: next(waiting) for n, _ in inputs}, conditions, read)
                values |= given_results(self.left_out, waiting)
                values |= {name: next(waiting) for name in self.weights}
                outputs = self.signature.kept(interpreter.run({**self.signature.numbers(), **values}))
                outputs = refusing(outputs, left)
            named = dict(zip(self._keys, outputs, strict=True))
            named |= {key: v for n in self.left_out for key, v in zip(*interpreter.read_by(n), strict=True)}
            return named if self._by_key else tuple(outputs)

        self._symbolic = any(is_dynamic(n) for m in submodules(self.program) for n in m.graph.nodes)
        self._inner = Traced(function, replace(self.options, symbolic_shape=self._symbolic))
        try:
            return self._run(self.signature.leaves(args, kwargs))
        except UnsupportedError:
            failed = [n for n in interpreter.failed if n not in self.left_out]
            if self.selection is None or not self.selection.options.fallback or not failed:
                raise
            self.left_out |= {n.name: n for n in self.program.graph_module.graph.nodes if n.name in failed}
            return self._recorded(module, args, kwargs)
        except UnsupportedCallError as error:
            raise TraceError(str(error)) from error

    # Results of torch

    @stage("running torch")
    def truth(self, flat: Sequence[Any], *, anew: bool = True) -> list[Array]:
        """Return torch's own results for the leaves of a call's arguments, as arrays of the graph's dtypes."""
        return outputs_of(self, flat, anew=anew)
