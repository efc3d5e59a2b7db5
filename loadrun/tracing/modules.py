"""`trace_module`: trace several methods of one object, check them and dump them."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..base.errors import TraceError, UsageError, UsageTypeError
from ..base.registry import resolve
from ..dump.options import DumpResult
from ..graph import Graph
from ..tensors.value import Tensor
from .arguments import leaves
from .checking import check_method, fresh
from .recording import TraceOptions
from .torch_door import is_torch_callable
from .traced import Traced


def partial_trace(
    func: Callable[..., Any] | None = None,
    *,
    backend: str = "default",
    without_host: bool = True,
    **options: Any,
) -> Any:
    """Trace a part of a larger computation; later calls run its graph without the Python code.

    Tensors that the function uses from outside (parameters) are asked for their value in every call.

    Args:
        func: the function; left out when used as a decorator with options.
        backend: "default"; there is one.
        without_host: must be True, as in MegEngine.
        options: those of `trace`.

    >>> import loadrun
    >>> w = loadrun.tensor([2.0])
    >>> @partial_trace
    ... def scaled(x):
    ...     return x * w
    >>> scaled(loadrun.tensor([3.0])).item(), scaled(loadrun.tensor([4.0])).item()
    (6.0, 8.0)
    """
    if backend != "default":
        raise UsageError(f"the backend must be 'default', found {backend!r}")
    if not without_host:
        raise UsageError("partial_trace only supports without_host=True; use trace")
    alone = partial(Traced, options=TraceOptions(**options, without_host=True, live=True))
    return alone if func is None else alone(func)


class TracedModule:
    """Traced methods of one object; they are attributes, and the object itself is `original`.

    The parameters (Tensors that the methods use) stay those of the object: a change of their values shows in
    later calls of every method.
    """

    def __init__(self, original: Any, methods: Mapping[str, Traced]) -> None:
        self.original = original
        self.methods = dict(methods)

    def __getattr__(self, name: str) -> Any:
        methods = self.__dict__.get("methods", {})
        if name in methods:
            return methods[name]
        raise AttributeError(f"{name!r} was not traced; traced methods are {', '.join(methods) or 'none'}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the traced ``forward`` or ``__call__``."""
        for name in ("forward", "__call__"):
            if name in self.methods:
                return self.methods[name](*args, **kwargs)
        raise UsageTypeError(
            f"neither forward nor __call__ was traced; traced methods are {', '.join(self.methods)}"
        )

    @property
    def graph(self) -> Graph:
        """The graph of ``forward``, or of the only method; its text lists the operators."""
        graph: Graph = getattr(self, self._main()).graph()
        return graph

    @property
    def code(self) -> str:
        """The operators of ``forward``, or of the only method, as text."""
        return str(self.graph)

    def _main(self) -> str:
        for name in ("forward", "__call__"):
            if name in self.methods:
                return name
        if len(self.methods) == 1:
            return next(iter(self.methods))
        raise UsageError(
            f"name the method, such as .{next(iter(self.methods))}: traced are {', '.join(self.methods)}"
        )

    def dump(self, file: Any, method: str | None = None, **options: Any) -> DumpResult:
        """Write one method as a .mge file.

        Args:
            file: a path, or an open binary file.
            method: which one; may be left out if there is only one.
            options: those of `trace.dump`.
        """
        if method is None and len(self.methods) != 1:
            raise UsageError(f"name the method to dump; traced are {', '.join(self.methods)}")
        name = method if method is not None else next(iter(self.methods))
        dumped: DumpResult = getattr(self, name).dump(file, **options)
        return dumped


def trace_module(
    mod: Any,
    inputs: Mapping[str, Any],
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Iterable[Mapping[str, Any]] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_inputs_is_kwarg: bool = False,
    _store_inputs: bool = True,
    *,
    opt_level: int = 2,
) -> TracedModule:
    """Trace methods of an object on example inputs, and check that the graphs compute what Python does.

    The parameters are those of ``torch.jit.trace_module`` in its order; `optimize` and those that begin with an
    underscore make no difference here.

    Args:
        mod: any object whose methods compute with numpy, MegEngine's functions or modules; or a torch module or
            script, whose submodules, parameters and buffers the result has as well.
        inputs: example inputs by method name: a tensor or ndarray, or a tuple or list of arguments.
        optimize: ignored, as in torch.
        check_trace: run the original and the graph on the example and on `check_inputs`, and compare.
        check_inputs: further inputs of the same form, for instance of other batch sizes; a torch module is traced
            again for sizes for which the first trace does not hold.
        check_tolerance: the largest error ``|a - b| / max(1, min(|a|, |b|))`` that counts as equal.
        strict: refuse lists and dicts as outputs, which callers may change; tuples and tensors pass.
        example_inputs_is_kwarg: the inputs of a method are a dict of keyword arguments.
        opt_level: see `trace`.

    Returns:
        an object with the traced methods.

    Raises:
        TraceError: a method cannot be traced, or the graph computes something else; the text names the output, the
            difference, the first operator that differs, both source lines and the likely cause.
        UsageError: `inputs` names something that is not a method.

    >>> import numpy as np
    >>> class Coder:
    ...     def encode(self, x): return np.tanh(x) * 2
    ...     def decode(self, z): return np.arctanh(z / 2)
    >>> coder = trace_module(Coder(), {"encode": np.zeros((1, 3)), "decode": np.ones((1, 3))})
    >>> coder.decode(coder.encode(np.full((2, 3), 0.5))).round(3).tolist()
    [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]
    """
    if not isinstance(inputs, Mapping) or not inputs:
        raise UsageError(
            'inputs maps method names to example inputs, such as {"forward": x}, found '
            f"{type(inputs).__name__} {inputs!r:.60}"
        )
    check_inputs = checked_inputs(check_inputs, inputs, check_tolerance)
    if is_torch_callable(mod):
        traced: TracedModule = resolve("loadrun.torch.methods:traced_methods")(
            mod,
            inputs,
            check_trace,
            check_inputs,
            check_tolerance,
            strict,
            example_inputs_is_kwarg,
            opt_level,
        )
        return traced
    methods: dict[str, Traced] = {}
    for name, example in inputs.items():
        function = getattr(mod, name, None)
        if not callable(function):
            known = [
                n for n in dir(mod) if not n.startswith("_") and callable(inspect.getattr_static(mod, n))
            ]
            raise UsageError(
                f"{type(mod).__name__} has no method {name!r}; it has {', '.join(known) or 'none'}"
            )
        method = Traced(function, TraceOptions(opt_level=opt_level, without_host=True, live=True))
        args, kwargs = _call_form(name, example, example_inputs_is_kwarg)
        outputs = method(*fresh(args), **fresh(kwargs))
        _check_outputs(name, outputs, strict)
        methods[name] = method
    if check_trace:
        for examples in (inputs, *check_inputs):
            for name, example in examples.items():
                args, kwargs = _call_form(name, example, example_inputs_is_kwarg)
                check_method(mod, name, methods[name], args, kwargs, check_tolerance)
    return TracedModule(mod, methods)


def _call_form(name: str, example: Any, by_keyword: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if by_keyword:
        if not isinstance(example, Mapping):
            raise UsageError(
                f"example_inputs_is_kwarg: the inputs of {name!r} are a dict, found {type(example).__name__}"
            )
        return (), dict(example)
    return (tuple(example) if isinstance(example, (tuple, list)) else (example,)), {}


def checked_inputs(cases: Any, inputs: Mapping[str, Any], tolerance: float) -> Iterator[Mapping[str, Any]]:
    """Return `check_inputs`, which may make one after the other, as dicts that name traced methods.

    Raises:
        UsageError: it is something else, or the tolerance is no number from 0 on.
    """
    if not isinstance(tolerance, (int, float)) or not 0 <= tolerance < float("inf"):
        raise UsageError(f"check_tolerance must be a number of at least 0, found {tolerance!r}")
    if isinstance(cases, Mapping):
        cases = [cases]
    if cases is not None and not isinstance(cases, Iterable):
        raise UsageError(f"check_inputs must be a list of dicts like inputs, found {type(cases).__name__}")
    return _cases(() if cases is None else cases, inputs)


def _cases(cases: Iterable[Any], inputs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for case in cases:
        if not isinstance(case, Mapping):
            raise UsageError(
                f"check_inputs must be a list of dicts like inputs, found {type(case).__name__} in it"
            )
        for name in case:
            if name not in inputs:
                raise UsageError(f"check_inputs names {name!r}, which is not traced")
        yield case


def _check_outputs(name: str, outputs: Any, strict: bool) -> None:
    values = [x for _, x in leaves(outputs)]
    odd = [x for x in values if not isinstance(x, (Tensor, np.ndarray))]
    if odd or not values:
        what = f"{type(odd[0]).__name__} {odd[0]!r:.40}" if odd else "nothing"
        raise TraceError(f"{name} returns {what}; a traced method returns tensors or arrays")
    if strict and (mutable := _mutable(outputs)) is not None:
        raise TraceError(
            f"{name} returns a {type(mutable).__name__}, which a caller may change, and the trace cannot follow that; "
            "return a tuple, or pass strict=False"
        )


def _mutable(outputs: Any) -> Any:
    if isinstance(outputs, (list, dict)):
        return outputs
    if isinstance(outputs, tuple):
        return next((m for x in outputs if (m := _mutable(x)) is not None), None)
    return None
