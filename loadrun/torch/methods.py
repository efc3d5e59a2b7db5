"""Several methods of one torch module, traced and checked, as `torch.jit.trace_module` does."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..base.errors import InputError, LoadRunError, TraceError, UsageError, UsageTypeError
from ..compare.tolerances import error_between
from ..graph.dtypes import Array
from ..tracing.modules import TracedModule, _call_form, checked_inputs
from ..tracing.replay import fed
from .call import ndarray
from .exporting import name_of_target, place_of
from .left_out import node_values
from .modules import ModuleAttributes, as_module, as_torch, is_torch_program, owner_of, refuse_scripts
from .traced import TorchTrace

_HARMLESS = frozenset(
    """
    symbolic capture_as_const record_only sublinear_memory_config dtr_config profiling
    graph_opt_config without_host imperative optimize
    """.split()
)


class TracedTorchModule(ModuleAttributes, TracedModule):
    """Traced methods of a torch module, with its submodules, parameters and buffers.

    Calls run the recorded graphs in numpy. It is no ScriptModule and has no gradients: `save` writes a method as a .mge
    file, and `loadrun.onnx.export` as an ONNX model.
    """

    def __repr__(self) -> str:
        """Name the methods, and what it is not."""
        names = ", ".join(self.methods)
        return f"TracedTorchModule({names}: graphs that run in numpy, without gradients; no ScriptModule)"

    def __getattr__(self, name: str) -> Any:
        methods = self.__dict__.get("methods", {})
        return methods[name] if name in methods else super().__getattr__(name)

    def save(self, file: Any, method: str | None = None, **options: Any) -> Any:
        """Write one method as a .mge file, which `dump` does as well."""
        refuse_scripts(options)
        return self.dump(file, method, **options)

    @property
    def code(self) -> str:
        """What torch exported of ``forward``, or of the only method, as Python code."""
        code: str = self.methods[self._main()].code
        return code


def traced_method(
    func: Callable[..., Any],
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Iterable[Any] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
    _store_inputs: bool = True,
    *,
    example_inputs_is_kwarg: bool = False,
    symbolic_shape: bool = True,
    opt_level: int = 2,
    **options: Any,
) -> Any:
    """`trace` of a torch module: `loadrun.torch.trace` with sizes that may differ, by `torch.jit.trace`'s parameters.

    Args:
        func: a module, a method of one, a script, an exported program, or a function of tensors.
        example_inputs: a tensor, or a tuple or list of arguments; None: the first call decides.
        optimize: ignored, as in torch, and so are the parameters that begin with an underscore.
        check_trace, check_inputs, check_tolerance, strict: as in `trace_module`.
        example_kwarg_inputs: example arguments by name, instead of `example_inputs`.
        example_inputs_is_kwarg: whether `example_inputs` and `check_inputs` are arguments by name.
        symbolic_shape: whether sizes are values of the graph.
        opt_level: how far the graph is simplified.
        options: those of `trace` that make no difference here.

    Raises:
        UsageTypeError: an option that neither `loadrun.tracing.trace` nor `torch.jit.trace` has.
    """
    unknown = set(options) - _HARMLESS
    if unknown:
        raise UsageTypeError(f"trace of a torch module takes no {', '.join(sorted(unknown))}")
    example = example_inputs if example_kwarg_inputs is None else example_kwarg_inputs
    if example is None:
        traced = TorchTrace(func, True if symbolic_shape else None, opt_level)
        program = isinstance(func, torch.export.ExportedProgram) and func.example_inputs
        if program:
            traced.record(*program)
        return traced
    name = getattr(func, "__name__", "forward") if not isinstance(func, torch.nn.Module) else "forward"
    owner = owner_of(func)
    if isinstance(func, torch.export.ExportedProgram) or (is_torch_program(func) and owner is func):
        name = "forward"
    elif not isinstance(owner, torch.nn.Module):
        owner, name = as_module(func), "forward"
    by_keyword = example_inputs_is_kwarg or example_kwarg_inputs is not None
    if check_inputs is not None and isinstance(check_inputs, Iterable):
        check_inputs = [{name: v} for v in check_inputs]
    inputs = {name: example}
    cases = checked_inputs(check_inputs, inputs, check_tolerance)
    return traced_methods(
        owner, inputs, check_trace, cases, check_tolerance, strict, by_keyword, opt_level, symbolic_shape
    ).methods[name]


def traced_methods(
    mod: Any,
    inputs: Mapping[str, Any],
    check_trace: bool,
    check_inputs: Iterable[Mapping[str, Any]],
    tolerance: float,
    strict: bool,
    by_keyword: bool,
    opt_level: int,
    symbolic: bool = True,
) -> TracedTorchModule:
    """Trace methods of a torch module, and check them on these and on further inputs.

    Raises:
        UsageError: there is no such method.
        TraceError: a method cannot be exported, or its graph differs from torch.
    """
    methods: dict[str, Any] = {}
    for name, example in inputs.items():
        function = mod if name == "forward" and is_torch_program(mod) else getattr(mod, name, None)
        if not callable(function) and function is not mod:
            raise UsageError(f"{type(mod).__name__} has no method {name!r}")
        args, kwargs = _arguments(name, example, by_keyword)
        # `_check` compares, where that is requested.
        method = TorchTrace(function, True if symbolic else None, opt_level, check=None)
        outputs = method.record(args, kwargs)
        if strict and isinstance(outputs, (list, dict)):
            raise TraceError(
                f"{name} returns a {type(outputs).__name__}, which a caller may change, and the trace cannot follow "
                "that; return a tuple, or pass strict=False"
            )
        methods[name] = method
    for examples in (inputs, *check_inputs) if check_trace else ():
        for name, example in examples.items():
            args, kwargs = _arguments(name, example, by_keyword)
            methods[name] = _holding(methods[name], args, kwargs)
            _check(mod, name, methods[name], args, kwargs, tolerance)
    return TracedTorchModule(mod, methods)


def _holding(method: TorchTrace, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> TorchTrace:
    """Find a trace that holds for these arguments: this one, or a new one with these as its example.

    Torch takes some sizes of an example for fixed, such as an output of one element.
    """
    if method._dynamic is not True or method.holds(method.signature.leaves(args, kwargs)):
        return method
    traced = TorchTrace(method.module, True, method.options.opt_level, check=None)
    try:
        traced.record(args, kwargs)
    except LoadRunError:
        return method
    traced.others = [method, *method.others]
    return traced


def _arguments(name: str, example: Any, by_keyword: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = _call_form(name, example, by_keyword)
    converted: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(as_torch, (args, kwargs))
    return converted


def _check(
    mod: Any,
    name: str,
    method: TorchTrace,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    tolerance: float,
) -> None:
    """Compare a method's graph with torch.

    Raises:
        TraceError: they differ; the text says by how much, where the difference begins and its likely cause.
    """
    try:
        flat = method.signature.leaves(args, kwargs)
        method = method.holding(flat)
        outputs = method._run(flat)
    except InputError as error:
        raise TraceError(f"{name}: the traced graph does not run on these inputs: {error}") from error
    truth, again = (method.truth(flat, anew=False) for _ in range(2))
    for key, want, got, other in zip(method._keys, truth, outputs, again, strict=True):
        far = max(error_between(want, got), error_between(want, other))
        if far <= tolerance:
            continue
        if error_between(want, other) > tolerance:
            why = "torch's own results differ between two calls: it draws random numbers or changes its state"
        else:
            why = _first_difference(method, flat, tolerance)
        if getattr(mod, "training", False):
            why += "; the module is in training mode: was .eval() forgotten?"
        raise TraceError(
            f"{name}: output {key!r} differs by {far:.3g} (tolerance {tolerance:g}) between torch and the traced "
            f"graph\n{why}"
        )


def _first_difference(method: TorchTrace, flat: list[Any], tolerance: float) -> str:
    """Find the first node of the exported graph whose value differs."""
    program, seen = method.program, node_values(method.program, flat)
    values = _values(method, flat)
    for node in program.graph_module.graph.nodes:
        want = seen.get(node.name)
        if node.op != "call_function" or not isinstance(want, torch.Tensor):
            continue
        error = error_between(ndarray(want), values[node.name]) if node.name in values else 0.0
        if error > tolerance:
            return (
                f"first operator that differs: {name_of_target(node.target)} by {error:.3g}, in {place_of(node)}\n"
                "likely cause: rounding; raise check_tolerance if the difference is acceptable"
            )
    return (
        "no single operator of the exported graph differs: the Python code took another path on these inputs"
    )


def _values(method: TorchTrace, flat: Sequence[Any]) -> dict[str, Array]:
    """Map the exported graph's nodes, by name, to their recorded values for the leaves of a call's arguments."""
    evaluator = fed(method.recording, method._fed(flat))
    return {
        name: evaluator.value(var).reshape(()) if scalar else evaluator.value(var)
        for name, (var, scalar) in method._interpreter.variables.items()
    }
