"""Writes to places that data name (``cache[:, position] = row``) while torch exports a module."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class WritesToPlaces(TorchFunctionMode):  # type: ignore[misc]
    """Writes through views: torch reads a place that data name as a symbol where it reads, but not where it writes."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a function, or what stands for an assignment."""
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and _is_mixed(args[1]):
            # Numbers pick a part before lists do.
            parts = [slice(None) if _is_list(i) else i for i in args[1]]
            rest = [i if _is_list(i) or i is ... else slice(None) for i in args[1] if not _is_place(i)]
            return func(_view(args[0], tuple(parts)), tuple(rest), *args[2:])
        if func is not torch.Tensor.__setitem__ or not _is_view_by_data(args[1]):
            return func(*args, **(kwargs or {}))
        target, index, value = args
        view = _view(target, index)
        if not isinstance(value, torch.Tensor):
            return view.fill_(value)
        # As in an assignment, a value may have more axes of one in front.
        return view.copy_(value.reshape(value.shape[max(value.ndim - view.ndim, 0) :]))


def _view(x: torch.Tensor, index: Any) -> torch.Tensor:
    """Return the part that an index picks, by operators that take a number as a symbol."""
    items = index if isinstance(index, tuple) else (index,)
    axis, rest = 0, x.ndim - sum(i is not None and i is not ... for i in items)
    for item in items:
        if item is ...:
            axis += rest
        elif item is None:
            x, axis = x.unsqueeze(axis), axis + 1
        elif isinstance(item, slice):
            x = torch.ops.aten.slice(x, axis, *map(_number, (item.start, item.stop)), _number(item.step) or 1)
            axis += 1
        else:
            x = x.select(axis, _number(item))
    return x


def _number(n: Any) -> Any:
    return n.item() if isinstance(n, torch.Tensor) else n


def _is_view_by_data(index: Any) -> bool:
    """Whether an index picks a part without copying it, by a number that is known as a symbol or a tensor alone."""
    items = index if isinstance(index, tuple) else (index,)
    numbers = [n for i in items for n in ((i.start, i.stop, i.step) if isinstance(i, slice) else (i,))]
    by_data = [isinstance(n, torch.SymInt) or _is_number(n) for n in numbers]
    return any(by_data) and all(
        data or n is None or n is ... or type(n) is int for n, data in zip(numbers, by_data, strict=True)
    )


def _is_mixed(index: Any) -> bool:
    """Whether an index has both a number that a tensor holds and lists of numbers."""
    return isinstance(index, tuple) and any(map(_is_number, index)) and any(map(_is_list, index))


def _is_list(i: Any) -> bool:
    """Whether a part of an index is a list of numbers, not of truth values."""
    if isinstance(i, list):
        return all(type(n) is int for n in i)
    return isinstance(i, torch.Tensor) and i.ndim > 0 and i.dtype not in (torch.bool, torch.uint8)


def _is_place(i: Any) -> bool:
    """Whether a part of an index is one number."""
    return type(i) is int or isinstance(i, torch.SymInt) or _is_number(i)


def _is_number(x: Any) -> bool:
    """Whether a tensor holds one integer, without axes."""
    whole = isinstance(x, torch.Tensor) and not (x.is_floating_point() or x.is_complex())
    return whole and x.ndim == 0 and x.dtype is not torch.bool
