"""Which axes of the arguments torch.export may leave open, and which a caller wants open."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..base.errors import UnsupportedError, UsageError
from .against_torch import Axes, Trace
from .exporting import name_of_target
from .registry import DATA_SIZED
from .signature import open_sizes_in

_PUTS = ("aten.index_put.default", "aten._unsafe_index_put.default")


def every_size(fixed: Axes, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Build dynamic shapes that let torch find which sizes may vary, in the structure of `forward`'s arguments.

    Args:
        fixed: axes that may not, each with the number of its argument among the leaves of all.
        module, args, kwargs: the module and its arguments.
    """
    places = {id(x): i for i, x in enumerate(pytree.tree_leaves((args, kwargs)))}

    def is_object(value: Any) -> bool:
        kind = pytree._get_node_type(value)
        return kind in pytree.SUPPORTED_NODES and kind not in pytree.BUILTIN_TYPES

    def auto(leaf: Any) -> Any:
        if is_object(leaf):
            # Of a registered class (a cache of transformers) torch takes what it consists of.
            return pytree.tree_map(
                auto, pytree.SUPPORTED_NODES[type(leaf)].flatten_fn(leaf)[0], is_leaf=is_object
            )
        if not isinstance(leaf, torch.Tensor):
            return None
        # A size of 0 or 1 is fixed, but for that of a batch of one.
        dim, place = torch.export.Dim, places[id(leaf)]
        return {
            i: dim.AUTO if (n > 1 or (n == 1 and i == 0)) and (place, i) not in fixed else dim.STATIC
            for i, n in enumerate(leaf.shape)
        }

    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    return {name: pytree.tree_map(auto, value, is_leaf=is_object) for name, value in bound.items()}


def needed_axes(traced: Trace, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception) -> Axes:
    """List the axes to fix after a trace at open sizes failed: those that operators must know, else all.

    Of all, the first ones, which are often those of a batch, come last.
    """
    leaves = pytree.tree_leaves((args, kwargs))
    every = frozenset(
        (i, axis) for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) for axis in range(x.ndim)
    )
    inner = frozenset((i, axis) for i, axis in every if axis)
    if not inner <= traced._fixed:
        every = inner
    symbols = traced._interpreter.open_sizes if traced._interpreter is not None else frozenset()
    if not symbols or not isinstance(error, UnsupportedError):
        return every
    places = {id(x): i for i, x in enumerate(leaves)}
    axes = {
        (places[id(value)], axis)
        for _, value, fake in traced.signature.inputs(traced.signature.leaves(args, kwargs))
        for axis, size in open_sizes_in(fake)
        if size.free_symbols & symbols and id(value) in places
    }
    return frozenset(axes) or every


def _has_mask_among(indices: Sequence[Any]) -> bool:
    """Whether there are masks beside other indices, which are paired with the places where they are true."""
    dtypes = [i.meta["val"].dtype for i in indices if isinstance(i, torch.fx.Node)]
    return len(indices) > 1 and torch.bool in dtypes


def is_dynamic(node: Any) -> bool:
    """Return whether a result has a size that is no number for torch, or its lowering takes sizes from data."""

    def symbolic(leaf: Any) -> bool:
        if isinstance(leaf, torch.Tensor):
            return any(not isinstance(n, int) for n in leaf.shape)
        return isinstance(leaf, torch.SymInt)

    name = name_of_target(node.target) if node.op == "call_function" else ""
    known = name not in DATA_SIZED and not (name in _PUTS and _has_mask_among(node.args[1]))
    return not known or any(symbolic(leaf) for leaf in pytree.tree_leaves(node.meta.get("val")))


def specs_of(value: Any, spec: Any, label: str) -> dict[str, Any]:
    """Return what `dynamic_shapes` says of the tensors in an argument, by their names.

    Raises:
        UsageError: it does not have the argument's structure.
    """
    if spec is None or not isinstance(value, (torch.Tensor, dict, list, tuple)):
        return {}
    if not isinstance(spec, (Mapping, list, tuple)):
        raise UsageError(
            f"dynamic_shapes does not have the structure of {label!r}: found {spec!r} for {type(value).__name__}"
        )
    if isinstance(value, torch.Tensor):
        return {label: spec}
    specs: dict[str, Any] = {}
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        try:
            inner = spec[key]
        except (KeyError, IndexError, TypeError):
            raise UsageError(f"dynamic_shapes does not have the structure of {label!r}") from None
        specs |= specs_of(part, inner, f"{label}_{key}")
    return specs


def dynamic_axes(wanted: Mapping[str, Any], label: str, leaf: Any) -> list[int]:
    """Return the axes of an input that are to be dynamic."""
    spec = wanted.get(label)
    if spec is None or not isinstance(leaf, torch.Tensor):
        return []
    pairs = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
    axes = [axis for axis, dim in pairs if dim is not None and not isinstance(dim, int) and not _static(dim)]
    if odd := [
        a for a in axes if not isinstance(a, int) or isinstance(a, bool) or not -leaf.ndim <= a < leaf.ndim
    ]:
        raise UsageError(
            f"{label!r} has {leaf.ndim} axes, but a dynamic size is requested for axis {odd[0]!r}"
        )
    return [a % leaf.ndim for a in axes]


def _static(dim: Any) -> bool:
    return getattr(getattr(dim, "type", None), "name", None) == "STATIC" or dim == "__static__"
