"""The door to `loadrun.torch`: torch's modules are recognised without importing torch."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..base.registry import resolve
from .structure import leaves


def is_torch_callable(value: Any) -> bool:
    """Whether a value is a torch module, a method of one, a script or an exported program.

    False if nothing has imported torch.

    >>> is_torch_callable(print)
    False
    """
    torch = sys.modules.get("torch")
    kind = getattr(getattr(torch, "nn", None), "Module", None)
    if kind is None:
        return False
    owner = getattr(value, "__self__", value)
    if isinstance(owner, kind):
        return True
    of_torch = type(value).__module__.partition(".")[0] == "torch"
    return of_torch and bool(resolve("loadrun.torch.modules:is_torch_program")(value))


def is_torch_call(function: Any, *examples: Any) -> bool:
    """Return whether `trace` is called with a torch module, or a function and examples that hold torch tensors."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    if kind is None:
        return False
    return is_torch_callable(function) or any(isinstance(leaf, kind) for _, leaf in leaves(examples))


def is_torch_source(value: Any, examples: Iterable[Any]) -> bool:
    """Whether a value is exported by `loadrun.torch`: what torch calls, a trace of it, a .pt2 file, or a function.

    Args:
        value: what is to be exported.
        examples: the example arguments; torch tensors among them say that a function is one of torch tensors.
    """
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value).endswith(".pt2")
    if is_torch_callable(value):
        return True
    torch = sys.modules.get("torch")
    if torch is None or not callable(value):
        return False
    if type(value).__module__ == "loadrun.torch.traced":
        return True
    return any(isinstance(leaf, torch.Tensor) for _, leaf in leaves([*examples]))


def traced_torch(
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
    """
    by_keyword = example_inputs_is_kwarg or example_kwarg_inputs is not None
    return resolve("loadrun.torch.methods:traced_method")(
        func,
        example_inputs if example_kwarg_inputs is None else example_kwarg_inputs,
        (check_trace, check_inputs, check_tolerance, strict, by_keyword),
        symbolic_shape,
        opt_level,
        options,
    )


def traced_torch_module(
    mod: Any,
    inputs: Mapping[str, Any],
    check_trace: bool,
    check_inputs: Iterable[Mapping[str, Any]] | None,
    check_tolerance: float,
    strict: bool,
    by_keyword: bool,
    opt_level: int,
) -> Any:
    """`trace_module` of a torch module."""
    return resolve("loadrun.torch.methods:traced_methods")(
        mod, inputs, check_trace, check_inputs, check_tolerance, strict, by_keyword, opt_level
    )
