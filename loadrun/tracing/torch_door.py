"""The door to `loadrun.torch`: torch's modules are recognised without importing torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..base.registry import resolve

__all__ = ["is_torch_call", "is_torch_callable", "traced_torch", "traced_torch_module"]


def is_torch_callable(value: Any) -> bool:
    """Tell whether a value is a torch module or a method of one; False where nothing has imported torch.

    >>> is_torch_callable(print)
    False
    """
    kind = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)
    return kind is not None and isinstance(getattr(value, "__self__", value), kind)


def is_torch_call(args: tuple[Any, ...]) -> bool:
    """Tell whether arguments of `trace` are a torch module, or a function and torch tensors as its example."""
    if len(args) == 1:
        return is_torch_callable(args[0])
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    examples = args[1] if len(args) > 1 and isinstance(args[1], tuple) else args[1:]
    return kind is not None and (is_torch_callable(args[0]) or any(isinstance(x, kind) for x in examples))


def traced_torch(
    module: Callable[..., Any],
    example_inputs: Any = None,
    *,
    symbolic_shape: bool = True,
    opt_level: int = 2,
    **options: Any,
) -> Any:
    """`trace` of a torch module: `loadrun.torch.trace` with sizes that may differ.

    Args:
        module: the module, or a method of one.
        example_inputs: what `torch.jit.trace` takes: a tensor, or a tuple of arguments; None: the first call decides.
        symbolic_shape: whether sizes are values of the graph.
        opt_level: how far the graph is simplified.
        options: those of `trace` that make no difference here, and those of `torch.jit.trace` that `trace_module` has.
    """
    return resolve("loadrun.torch.methods:traced_method")(
        module, example_inputs, symbolic_shape, opt_level, options
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
