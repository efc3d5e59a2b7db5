"""The states of modules: parameters and buffers by dotted names, within lists, tuples and dicts too."""

import logging
import os
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...base.registry import late
from ...graph.dtypes import Array
from ...tensors import Tensor
from ...tensors.access import static_shape

with late(__name__):
    from ...dump import checkpoint


State = str | os.PathLike[str] | dict[str, Any] | Callable[[str, Tensor], Any]
_log = logging.getLogger("loadrun.megengine.module")


class ModuleBase:
    """Base of `Module`, by which this file knows modules."""

    _flat_state = False
    """Switch: state dicts hold the parameters with one axis."""

    @abstractmethod
    def _flatten(self, *, recursive: bool, with_key: bool) -> Iterator[Any]:
        """Yield the tensors and the modules in it with their names."""


def states(module: ModuleBase, prefix: str = "") -> Iterator[tuple[type[ModuleBase], str, Tensor]]:
    """Yield every state with its module's class and its dotted name; a shared module's under each of its names."""
    for name, leaf in module._flatten(recursive=False, with_key=True):
        if isinstance(leaf, Tensor):
            yield type(module), prefix + name, leaf
    for name, leaf in module._flatten(recursive=False, with_key=True):
        if not isinstance(leaf, Tensor):
            yield from states(leaf, f"{prefix}{name}.")


def state_of(module: ModuleBase, prefix: str, keep_var: bool) -> OrderedDict[str, Any]:
    """Return what `Module.state_dict` gives."""
    state: OrderedDict[str, Any] = OrderedDict()
    for kind, name, tensor in states(module, prefix):
        if name in state:
            raise AssertionError(f"duplicated state: {name}")
        value: Any = tensor if keep_var else _array(tensor)
        state[name] = value.reshape(-1) if kind._flat_state else value
    return state


def _array(tensor: Tensor) -> Array:
    """Return the value, which says in its dtype how it is quantized."""
    value = tensor.numpy()
    return value.view(tensor.dtype) if "mgb_dtype" in (tensor.dtype.metadata or {}) else value


def load_state(module: ModuleBase, state: State, strict: bool) -> None:
    """Put a state into a module, as `Module.load_state_dict` does."""
    if isinstance(state, (str, os.PathLike)):
        state = checkpoint.load_checkpoint(state, tensors=False)
    if isinstance(state, dict):
        keys, look_up = set(state), _looked_up(state)
    elif callable(state):
        keys, look_up = set(), state
    else:
        raise ValueError(f"a state is a dict, a function or the name of a file, found {type(state).__name__}")
    missing, loaded = [], set()
    for kind, name, tensor in states(module):
        value = look_up(name, tensor)
        if value is None:
            missing.append(name)
            continue
        tensor.set_value(_fitting(kind, name, tensor, value))
        loaded.add(name)
    for what, names in (("unused", keys - loaded), ("missing", missing)):
        if names:
            text = f"{what} parameters: {', '.join(sorted(names))}"
            if strict:
                raise KeyError(f"{text}; strict=False leaves them out")
            _log.warning("%s", text)


def _looked_up(state: dict[str, Any]) -> Callable[[str, Tensor], Any]:
    return lambda name, tensor: state.get(name)


def _fitting(kind: type[ModuleBase], name: str, tensor: Tensor, value: Any) -> Tensor:
    """Return a given value as a tensor of the shape that the module has."""
    if isinstance(value, Tensor):
        value = _array(value)
    if not isinstance(value, np.ndarray):
        raise AssertionError(
            f"the state of {name} is of type {type(value).__name__}, expected a numpy.ndarray"
        )
    shape = static_shape(tensor)
    if value.shape != shape:
        # Release 1.0 held the parameters of normalizations with one axis, later ones with four.
        if not kind._flat_state or value.size != np.prod(shape, dtype=object):
            raise ValueError(
                f"the shape of param `{name}` is {list(shape)}, the given value's {list(value.shape)}: shape mismatch"
            )
        value = value.reshape(shape)
    return Tensor(value, dtype=value.dtype)


def expand(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and modules in a value with their dotted names, dicts in the order of their keys.

    Raises:
        AssertionError: a dict holds one under a key that is not a string.

    >>> x = Tensor([1.0])
    >>> [name for name, _ in expand("a", [x, {"k": (x,)}])]
    ['a.0', 'a.1.k.0']
    """
    if isinstance(value, (Tensor, ModuleBase)):
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
