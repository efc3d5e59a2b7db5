"""PyTorch modules in: `trace` records one as MegEngine's operators, self-verifying dumps of it hold torch's results.

torch is imported when the first module is traced, not when this package is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..base.registry import late
from .extra import need_torch
from .registry import aten

with late(__name__):
    from .. import tracing
    from . import modules, program, traced as torch_traced

__all__ = ["aten", "save", "trace", "trace_module"]


def trace(
    module: Callable[..., Any],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    *,
    opt_level: int = 2,
    check: bool = True,
) -> torch_traced.TorchTrace:
    """Record a torch module as a graph of MegEngine's operators.

    The module is exported by `torch.export.export(strict=False)` as it is: call ``.eval()`` first. What the recorded
    graph computes is compared with what torch computes (`TorchTrace.differences`): for the example, and where sizes are
    dynamic, at others as well. Sizes for which the graph does not hold, such as a 1 that torch treats differently,
    get a graph of their own when they are called, and are refused in dumps. Dumps hold torch's results.

    Args:
        module: a `torch.nn.Module`, a method of one, a `ScriptModule` or `ScriptFunction`, an `ExportedProgram`, or
            a function of torch tensors.
        args: example arguments, a tuple or list; one tensor or dict alone stands for itself. None: the first call is
            the example, or that which an exported program brings.
        kwargs: example keyword arguments.
        dynamic_shapes: which sizes may differ later, as `torch.export.export` takes it; True lets torch find out for
            all sizes. None fixes them all.
        opt_level: how far the graph is simplified, see `loadrun.tracing.trace`.
        check: False only warns if the graph differs from torch.

    Raises:
        UsageError: torch is not installed.
        TraceError: torch cannot export the module, or the graph differs from torch.
        UnsupportedError: operators have no counterpart; the text names all of them, each with the module's path and
            the source line.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    >>> traced = trace(net, torch.ones(2, 4), dynamic_shapes=True)
    >>> traced(torch.zeros(5, 4)).shape, max(traced.differences.values()) < 1e-6
    (torch.Size([5, 3]), True)
    """
    torch = need_torch()

    traced = torch_traced.TorchTrace(module, dynamic_shapes, opt_level, check=check)
    if isinstance(module, torch.export.ExportedProgram) and args is None and kwargs is None:
        args, kwargs = module.example_inputs or (None, None)
    if args is not None or kwargs is not None:
        positional = tuple(args) if isinstance(args, (tuple, list)) else () if args is None else (args,)
        call = (positional, dict(kwargs or {}))
        positional, named = torch.utils._pytree.tree_map(lambda x: modules.as_torch(x), call)
        traced.record(positional, named)
    return traced


def save(module: Any, path: Any, *args: Any, **kwargs: Any) -> None:
    """Write an exported program, what it computes and its checks as one file, which `torch.export.load` reads, too."""
    need_torch()

    program.save(module, path, *args, **kwargs)


def trace_module(mod: Any, inputs: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
    """Trace several methods of a torch module; see `loadrun.tracing.trace_module`, which this is."""
    return tracing.trace_module(mod, inputs, *args, **kwargs)
