"""The common form of everything that can be exported: a graph, its inputs, example values and testcases."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from ..base.errors import UnsupportedError, UsageError
from ..base.registry import late, resolve
from ..graph import Graph, Var
from ..graph.composite import holds_composites
from ..graph.dtypes import Array, DType
from ..testcase import Bundle, Testcase
from ..tracing.modules import TracedModule
from ..tracing.torch_door import is_torch_source
from .encode import unused
from .inserted import ModuleParts, OpenSizes
from .options import ExportOptions, TrainingMode

with late(__name__):
    from .. import dump, runner, tracing
    from ..passes import constants as constant_pass
    from ..tensors import value as tensor_value
    from ..tracing import arguments
    from . import file

if TYPE_CHECKING:
    from ..tracing.recording import Recording
    from ..tracing.traced import Traced

Exportable = str | os.PathLike[str] | Bundle | Graph | Callable[..., object]
"""A path, a Bundle, a Graph, a trace, a TracedModule (its `forward` or only method), a module or a function."""


@dataclass(frozen=True)
class Input:
    """One input: its name, dtype and the example's shape."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


@dataclass(eq=False)
class ExportSource:
    """A model to export.

    Attributes:
        graph: the model without checks.
        inputs: the inputs in the order in which they are given, those that nothing reads among them.
        outputs: the outputs by name.
        examples: example values by input name, where there are any.
        testcases: testcases that the file has, with expected values by output name.
        limits: the file's checks of the outputs, see `loadrun.onnx.file`.
        called: what was given, called with the examples as they were given: the values of the outputs in order. None
            for files and graphs, which have no order but that of their inputs here.
        sizes: which sizes may differ where nothing else is said.
        module: what a torch module has beside the graph.
        scalars: inputs and outputs without axes.
        metadata: what the file says about the model, by key.
    """

    graph: Graph
    inputs: list[Input]
    outputs: dict[str, Var]
    examples: dict[str, Array] = field(default_factory=dict)
    testcases: Sequence[Testcase] = ()
    limits: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    called: Callable[[], list[Array]] | None = None
    sizes: OpenSizes = field(default_factory=OpenSizes)
    module: ModuleParts = field(default_factory=ModuleParts)
    scalars: frozenset[str] = frozenset()
    metadata: Mapping[str, str] = field(default_factory=dict)

    def expect(self, outputs: object) -> None:
        """Refuse example outputs that are not what the model gives: other shapes, or another number of them.

        Raises:
            UsageError: they are not.
        """
        if outputs is None or self.called is None:
            return
        shapes = [x.shape for x in self.called()]
        examples = [x.shape for x in _values(outputs)]
        if examples != shapes:
            raise UsageError(
                f"example_outputs has the shapes {', '.join(str([*s]) for s in examples)}, but the model's outputs "
                f"{', '.join(str([*s]) for s in shapes)}"
            )

    @property
    def reads(self) -> list[str]:
        """The outputs that inserted nodes read; they are none of the model."""
        return [name for node in self.module.inserted for name in node.inputs]


def read_source(
    model: Exportable, args: object, kwargs: Mapping[str, Any] | None, options: ExportOptions
) -> ExportSource:
    """Make a graph of anything that can be exported.

    Args:
        model: a path, a Bundle, a Graph, a trace, a TracedModule (its `forward` or one method), a module, a function.
        args: example values in torch's three forms: a tuple, one value, or a tuple that ends in a dict of keyword
            arguments.
        kwargs: example keyword arguments.
        options: the mode in which a module is traced, and what becomes of torch's operators.

    Raises:
        UsageError: examples that do not fit, or something that cannot be exported.
    """
    positional, named = _arguments(args, kwargs)
    if isinstance(model, TracedModule):
        methods = model.methods
        if len(methods) != 1 and "forward" not in methods:
            raise UsageError(
                f"name the method to export, such as model.{next(iter(methods))}: "
                f"traced are {', '.join(methods)}"
            )
        model = methods["forward"] if "forward" in methods else next(iter(methods.values()))
    if is_torch_source(model, (*positional, *named.values())):
        read: Callable[..., ExportSource] = resolve("loadrun.torch.onnx_source:read")
        return read(model, positional, named, options)
    if options.training == TrainingMode.TRAINING or options.fallback or options.table:
        raise UsageError(
            "training=TRAINING, operator_export_type and custom_translation_table apply to torch modules only, found "
            f"{type(model).__name__}"
        )
    if isinstance(model, (str, os.PathLike)):
        if not os.fspath(model):
            raise UsageError("model must be the path of a file, found ''")
        model = dump.load(model)
    if isinstance(model, Graph):
        model = Bundle(model)
    if isinstance(model, Bundle):
        bundle = model if options.keeps_nodes(model.graph) else model.lowered()
        return _of_bundle(bundle, positional, named)
    return _of_callable(model, positional, named, options.training == TrainingMode.EVAL)


def _arguments(args: object, kwargs: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if args is None:
        args = ()
    if not isinstance(args, tuple):
        args = tuple(args) if isinstance(args, list) else (args,)
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise UsageError(f"kwargs must be a dict of keyword arguments, found {type(kwargs).__name__}")
    named = dict(kwargs or {})
    if args and isinstance(args[-1], dict):
        extra = args[-1]
        if not all(isinstance(k, str) for k in extra):
            return args, named
        doubled = sorted(set(extra) & set(named))
        if doubled:
            raise UsageError(f"{', '.join(doubled)} are both in kwargs and in the dict that ends args")
        named = {**extra, **named}
        args = args[:-1]
    return args, named


def _array(value: object) -> Array:
    value = value.detach() if hasattr(value, "detach") else value
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


# Files


def _examples_by_name(
    names: list[str], positional: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Array]:
    """Map input names to example values."""
    if len(positional) > len(names):
        raise UsageError(
            f"args has {len(positional)} values for {len(names)} inputs ({', '.join(names) or 'none'})"
        )
    by_position = dict(zip(names, positional, strict=False))
    unknown = sorted(set(named) - set(names))
    if unknown:
        raise UsageError(f"the model has no input {', '.join(unknown)}; its inputs are {', '.join(names)}")
    doubled = sorted(set(by_position) & set(named))
    if doubled:
        raise UsageError(f"{', '.join(doubled)} given twice: by position and by name")
    return {k: _array(v) for k, v in {**by_position, **named}.items()}


def _of_bundle(bundle: Bundle, positional: tuple[Any, ...], named: Mapping[str, Any]) -> ExportSource:
    graph = constant_pass.bare(bundle)
    left = {v.name for v in graph.inputs}
    for var in bundle.inputs:
        # The signature of what the model was made of stays, also what nothing reads.
        if var.name in bundle.input_order and var.name not in left:
            graph.add("Host2DeviceCopy", *var.owner.params, names=[var.name], tensors=var.owner.tensors)
    variables = Bundle(graph).inputs
    names = [v.name or "" for v in variables]
    # Inputs that only checks read, or nothing, are no part of a model of MegEngine; values for them are not needed.
    named = {n: v for n, v in named.items() if n in names or n not in {i.name for i in bundle.inputs}}
    examples = _examples_by_name(names, positional, named)
    cases = bundle.testcases
    if not examples and len(cases):
        examples = {k: v for k, v in cases[0].inputs.items() if k in names}
    alone = Bundle(graph)
    missing = [v for v in variables if (v.name or "") not in examples]
    if examples and not missing:
        examples = runner.fit_inputs(alone, examples)
    elif not missing or all(v.owner.tensors[0].shape is not None for v in missing):
        examples = {**runner.random_inputs(alone), **examples}
    inputs = []
    for var in variables:
        tensor = var.owner.tensors[0]
        value = examples.get(var.name or "")
        shape = value.shape if value is not None else tensor.shape
        if shape is None:
            raise UsageError(f"the file gives no shape for input {var.name!r}: give example values in args")
        inputs.append(Input(var.name or "", tensor.dtype, tuple(shape)))
    outputs = dict(zip(_names(bundle, graph), graph.outputs, strict=True))
    source = ExportSource(graph, inputs, outputs, examples, cases, file.limits_of(bundle))
    if isinstance(bundle.source.file, file.OnnxFile):
        source.metadata = bundle.source.file.metadata
    if holds_composites(graph):
        source.scalars = bundle.scalars
    return source


def _names(bundle: Bundle, graph: Graph) -> list[str]:
    names = list(bundle.outputs) if bundle.checks else []
    if len(names) == len(graph.outputs):
        return names
    return _labels(graph)


def _labels(graph: Graph) -> list[str]:
    taken: set[str] = set()
    return [unused(v.label, taken) for v in graph.outputs]


# Functions and modules


@runtime_checkable
class _Module(Protocol):
    training: bool

    def eval(self) -> object: ...
    def train(self) -> object: ...


def _of_callable(
    model: object, positional: tuple[Any, ...], named: dict[str, Any], eval_mode: bool
) -> ExportSource:
    if isinstance(model, tracing.Traced):
        return _of_trace(model, positional, named)
    if not callable(model):
        raise UsageError(
            f"expected a path, a Bundle, a trace, a module or a function, found {type(model).__name__}"
        )
    if not positional and not named:
        raise UsageError("args is empty: a function or module is traced with example values")
    return _traced(model, positional, named, eval_mode)


def _traced(
    model: Callable[..., object], positional: tuple[Any, ...], named: dict[str, Any], eval_mode: bool
) -> ExportSource:
    constants = {
        i: v
        for i, v in enumerate(positional)
        if not any(isinstance(x, (tensor_value.Tensor, np.ndarray)) for _, x in arguments.leaves(v))
    }
    rest = [v for i, v in enumerate(positional) if i not in constants]

    def call(*tensors: object, **keywords: object) -> object:
        left = iter(tensors)
        values = [constants[i] if i in constants else next(left) for i in range(len(positional))]
        return model(*values, **keywords)

    function: Callable[..., Any] = getattr(model, "forward", model)
    names = _parameter_names(function, len(positional))
    traced = tracing.trace(call, symbolic=True, capture_as_const=True)
    with _eval_mode(model, eval_mode):
        traced(*rest, **named)
    kept = [n for i, n in enumerate(names) if i not in constants]
    source = _of_trace(traced, tuple(rest), named, kept)

    def called() -> list[Array]:
        with _eval_mode(model, eval_mode):
            return _values(model(*positional, **named))

    source.called = called
    return source


@contextmanager
def _eval_mode(model: object, wanted: bool) -> Iterator[None]:
    """Put a module that is in training mode in eval mode, and back afterwards."""
    module = model if wanted and isinstance(model, _Module) and model.training else None
    if module is not None:
        module.eval()
    try:
        yield
    finally:
        if module is not None:
            module.train()


def _values(result: object) -> list[Array]:
    """Return the arrays of a result, in order."""
    return [
        _array(v)
        for _, v in arguments.leaves(result)
        if isinstance(v, (tensor_value.Tensor, np.ndarray)) or hasattr(v, "numpy")
    ]


def _parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    """Return the names of the first positional parameters."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for i in range(count):
        one = parameters[min(i, len(parameters) - 1)] if parameters else None
        if one is None or one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD):
            names.append(f"arg_{i}")
        elif one.kind is one.VAR_POSITIONAL:
            names.append(f"{one.name}_{i - parameters.index(one)}")
        else:
            names.append(one.name)
    return names


def _of_trace(
    traced: Traced, positional: tuple[Any, ...], named: Mapping[str, Any], names: Sequence[str] = ()
) -> ExportSource:
    if traced.recording is None:
        if not positional and not named:
            raise UsageError(
                "the traced function has not been called yet: call it, or give example values in args"
            )
        traced(*positional, **named)
    recording = traced.recording
    assert recording is not None
    labels = dict(_input_labels(traced, recording, names))
    positions = [a for a in recording.args if a.startswith("arg_")]
    graph = traced.graph([labels[a] for a in positions])
    taken = [labels[a] for a in recording.args]
    by_name = {v.name: v for v in graph.inputs}
    values = dict(_example_values(positional, named))
    examples, inputs = {}, []
    for arg, label in zip(recording.args, taken, strict=True):
        var = by_name.get(label)
        source = recording.args[arg]
        tensor = (var or source).owner.tensors[0]
        dtype = tensor.dtype
        value = values.get(arg)
        shape = tensor.shape
        if value is not None:
            value = value.astype(dtype.np, copy=False)
            value = value.reshape(value.shape or (1,))
            examples[label] = value
            shape = value.shape
        if shape is None:
            raise UsageError(f"the shape of input {label!r} is not known: give example values in args")
        inputs.append(Input(label, dtype, tuple(shape)))
    if not examples:
        examples = runner.random_inputs(Bundle(graph))
    if any(v.owner.tensors[0].data is not None for v in graph.inputs):
        raise UnsupportedError("an input of the trace has a value")
    outputs = dict(zip(_labels(graph), graph.outputs, strict=True))
    called = (lambda: _values(traced(*positional, **named))) if positional or named else None
    return ExportSource(graph, inputs, outputs, examples, called=called)


def _input_labels(traced: Traced, recording: Recording, names: Sequence[str]) -> list[tuple[str, str]]:
    """Pair the recording's input names with the model's."""
    if not names:
        last = max((int(a.split("_")[1]) for a in recording.args if a.startswith("arg_")), default=-1)
        names = _parameter_names(traced.__wrapped__, 1 + last)
    pairs = []
    for arg in recording.args:
        if arg.startswith("kwarg_"):
            pairs.append((arg, arg.removeprefix("kwarg_")))
            continue
        number, _, path = arg.removeprefix("arg_").partition("_")
        base = names[int(number)]
        pairs.append((arg, f"{base}_{path}" if path else base))
    labels = [label for _, label in pairs]
    if len(set(labels)) < len(labels):
        return [(arg, arg.removeprefix("kwarg_")) for arg, _ in pairs]
    return pairs


def _example_values(positional: tuple[Any, ...], named: Mapping[str, Any]) -> list[tuple[str, Array]]:
    """Map the names that a recording uses to values."""
    examples = []
    groups = [(f"arg_{i}", v) for i, v in enumerate(positional)]
    groups += [(f"kwarg_{k}", v) for k, v in named.items()]
    for prefix, value in groups:
        for path, leaf in arguments.leaves(value):
            if isinstance(leaf, (tensor_value.Tensor, np.ndarray)):
                examples.append(("_".join(map(str, (prefix, *path))), _array(leaf)))
    return examples
