"""Tensors and modules within lists, tuples and dicts that are attributes of a module, by dotted names."""

from collections.abc import Callable, Iterator
from typing import Any

from ...tensors import Tensor


class ModuleBase:
    """Base of `Module`, by which this file knows modules."""


def is_leaf(value: Any) -> bool:
    """Return whether a value is a tensor or a module."""
    return isinstance(value, (Tensor, ModuleBase))


def expand(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and modules in a value with their dotted names, dicts in the order of their keys.

    Raises:
        AssertionError: a dict holds one under a key that is not a string.

    >>> x = Tensor([1.0])
    >>> [name for name, _ in expand("a", [x, {"k": (x,)}])]
    ['a.0', 'a.1.k.0']
    """
    if is_leaf(value):
        yield name, value
        return
    if isinstance(value, dict):
        items: Any = ((k, value[k]) for k in sorted(value))
    elif isinstance(value, (list, tuple)):
        items = ((str(i), v) for i, v in enumerate(value))
    else:
        return
    for key, item in items:
        for inner, leaf in expand(key, item):
            if not isinstance(key, str):
                raise AssertionError(f"keys for Tensor and Module must be str, error key: {key}")
            yield f"{name}.{inner}", leaf


def access(root: Any, path: str, callback: Callable[[Any, Any, Any], Any] | None = None) -> Any:
    """Return what is at a dotted path below a module.

    Args:
        root: a module, list, tuple or dict.
        path: names, keys and positions, with dots between.
        callback: gets the parent, the last name and the value; its result is returned instead.

    Raises:
        AttributeError: there is no such attribute; KeyError and IndexError likewise.
    """
    parent, value = None, root
    key: Any = None
    for part in path.split("."):
        parent = value
        if isinstance(parent, (list, tuple)):
            key = int(part)
            value = parent[key]
        elif isinstance(parent, dict):
            key = part
            value = parent[key]
        else:
            key = part
            value = getattr(parent, part)
    return value if callback is None else callback(parent, key, value)
