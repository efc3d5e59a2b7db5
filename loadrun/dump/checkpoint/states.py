"""From inert records to what a reader of checkpoints wants: containers of arrays, and modules as state dicts."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...graph.dtypes import Array
from ...tensors.quantized_dtypes import LSQParams, QParams, QuantDtypeMeta, QuantMode
from .stored import ARRAYS, DTYPE, PER_ITEM, TENSORS, Global, Reader, StoredObject, array_of, dtype_of

_MOST_LEVELS = 100
_LONGEST_KEY = 2000
_MOST_VISITS = 1_000_000
"""Attributes that are looked at; a pickle of as many opcodes has half of them, unless it shares objects."""
_FLAT = {
    ("megengine.module.batchnorm", n) for n in ("BatchNorm1d", "BatchNorm2d", "SyncBatchNorm", "_BatchNorm")
} | {("megengine.module.normalization", n) for n in ("GroupNorm", "LayerNorm", "InstanceNorm")}
"""Modules whose parameters `state_dict` gives with one axis."""

_Wrap = Callable[[str, Array, Any], Any]
"""Makes a value of the class of a tensor, its array and its parameters of quantization."""
_QPARAMS = {("megengine.quantization.utils", c.__name__): c for c in (QParams, LSQParams)}
_MODE = ("megengine.quantization.utils", "QuantMode")
_META_TYPES = [[str, kind, str, int, int, bool] for kind in (str, type(None))]
_META = ("megengine.core.tensor.dtype", "QuantDtypeMeta")


def settle(reader: Reader, value: object, tensor: _Wrap | None = None) -> object:
    """Return the object that a pickle stands for.

    Args:
        reader: whose budget pays for copies and whose errors name places.
        value: what was read.
        tensor: makes a value of the class of a tensor, its array and its parameters of quantization; by default the
            array.

    Raises:
        FormatError: it holds an object that is neither array, tensor, module nor container, or nests too deeply.
    """
    return _Settler(reader, tensor).value(value, 0)


class _Settler:
    def __init__(self, reader: Reader, wrap: _Wrap | None) -> None:
        self.reader = reader
        self.wrap = wrap
        self.done: dict[int, Any] = {}
        self.open: set[int] = set()
        self.visits = 0

    def value(self, value: object, level: int) -> Any:  # noqa: ANN401 - a pickle holds anything
        """Any value; one that is shared is settled once."""
        if value is None or isinstance(value, (bool, int, float, str, complex)):
            return value
        if id(value) in self.done:
            return self.done[id(value)]
        if id(value) in self.open:
            self.reader.fail("the pickle holds a container that contains itself")
        if level > _MOST_LEVELS:
            self.reader.fail(f"the pickle nests deeper than {_MOST_LEVELS} levels")
        self.open.add(id(value))
        settled = self._settled(value, level + 1)
        self.open.discard(id(value))
        self.done[id(value)] = settled
        return settled

    def _settled(self, value: object, level: int) -> object:
        if isinstance(value, dict):
            settled: dict[Any, Any] = OrderedDict() if isinstance(value, OrderedDict) else {}
            if isinstance(value, defaultdict):
                settled = defaultdict(value.default_factory)
            settled.update((k, self.value(v, level)) for k, v in value.items())
            return settled
        if isinstance(value, (list, tuple)):
            return type(value)(self.value(v, level) for v in value)
        if isinstance(value, memoryview):
            self.reader.spend(len(value))
            return bytes(value)
        if isinstance(value, StoredObject):
            return self._object(value, level)
        if isinstance(value, Global):
            self.reader.refuse(value, "give")
        return value

    def _object(self, stored: StoredObject, level: int) -> object:
        """Return an array, a number of numpy, a dtype, a tensor or the state dict of a module."""
        if stored.cls.key in ARRAYS:
            return array_of(self.reader, stored)
        if stored.cls.key == DTYPE:
            return dtype_of(self.reader, stored)
        if stored.cls.key in TENSORS:
            return self.tensor(stored, self.array(stored, level), level)
        if not _is_module(stored):
            self.reader.refuse(stored.cls, "give an object of")
        state: OrderedDict[str, Any] = OrderedDict()
        self._collect(stored, "", state, level)
        return state

    def tensor(self, stored: StoredObject, array: Array, level: int) -> object:
        if self.wrap is None:
            return array
        self.reader.spend(array.nbytes)
        qparams = stored.state.get("qparams") if stored.state else None
        known = isinstance(qparams, StoredObject) and qparams.cls.key in _QPARAMS
        kind = TENSORS[stored.cls.key]
        return self.wrap(kind, array, self.qparams(qparams, level) if known else None)  # type: ignore[arg-type]

    def qparams(self, stored: StoredObject, level: int) -> QParams:
        """Return parameters of quantization, made of plain values and tensors alone."""
        kind = _QPARAMS[stored.cls.key]
        names = kind._names()
        slots = stored.state[1] if isinstance(stored.state, tuple) and len(stored.state) == 2 else None
        if not isinstance(slots, dict) or slots.keys() != set(names):
            self.reader.fail(f"the attributes of {stored.cls} are not {', '.join(names)}")
        return kind(*(self._quantizing(slots[n], level) for n in names))

    def _quantizing(self, value: object, level: int) -> Any:  # noqa: ANN401 - a field of QParams
        """Read one of the parameters: a mode, a kind of dtype, a number or a tensor."""
        key, args = (value.cls.key, value.args) if isinstance(value, StoredObject) else (None, ())
        if key == _MODE and len(args) == 1 and type(args[0]) is int and args[0] in (1, 2):
            return QuantMode(args[0])
        if key == _META and len(args) == 6 and list(map(type, args)) in _META_TYPES:
            return QuantDtypeMeta(*args)
        if value is not None and type(value) not in (int, float) and key not in TENSORS and key not in ARRAYS:
            self.reader.fail("a quantization parameter is neither a mode, a dtype, a number nor a tensor")
        return self.value(value, level)

    def array(self, tensor: StoredObject, level: int) -> Array:
        """Return the contents of a tensor."""
        state, held = tensor.state, tensor.args[0] if tensor.args else None
        if state is not None and not isinstance(state, dict):
            self.reader.fail(f"the state of a tensor is of type {type(state).__name__}, expected a dict")
        if state and "data" in state:  # as releases up to 1.1 wrote it
            held = state["data"]
        if not isinstance(held, StoredObject) or held.cls.key not in ARRAYS:
            self.reader.fail("a tensor holds no array")
        return np.asarray(self.value(held, level))

    def visit(self, count: int) -> None:
        """Count values that are looked at, as often as they are: shared ones can be without end."""
        self.visits += count
        if self.visits > _MOST_VISITS:
            self.reader.fail("the pickle shares its objects too often")

    def _collect(self, module: StoredObject, prefix: str, state: OrderedDict[str, Any], level: int) -> None:
        """Put the tensors of a module that was saved whole into a state dict, by the names that it gives them."""
        if level > _MOST_LEVELS:
            self.reader.fail(
                f"the pickle nests modules deeper than {_MOST_LEVELS} levels, or within themselves"
            )
        self.visit(len(module.state))
        seen, inner = {id(module)}, []
        for attribute in sorted(k for k in module.state if isinstance(k, str)):
            for name, leaf in self._leaves(attribute, module.state[attribute], 0):
                if id(leaf) in seen:
                    continue
                seen.add(id(leaf))
                if len(prefix) + len(name) > _LONGEST_KEY:
                    self.reader.fail(f"the name of a parameter is longer than {_LONGEST_KEY} characters")
                if leaf.cls.key not in TENSORS:
                    inner.append((name, leaf))
                    continue
                self.reader.spend(PER_ITEM + len(prefix) + len(name))
                if module.cls.key in _FLAT:
                    flat = self.array(leaf, level).reshape(-1)
                    state[prefix + name] = self.tensor(leaf, flat, level)
                else:
                    state[prefix + name] = self.value(leaf, level)
        for name, leaf in inner:
            self._collect(leaf, f"{prefix}{name}.", state, level + 1)

    def _leaves(self, name: str, value: object, depth: int) -> Iterator[tuple[str, StoredObject]]:
        """Return tensors and modules within an attribute, by dotted names, as Module looks for them."""
        if isinstance(value, StoredObject) and (value.cls.key in TENSORS or _is_module(value)):
            yield name, value
        elif isinstance(value, (list, tuple, dict)):
            if depth > _MOST_LEVELS or len(name) > _LONGEST_KEY:
                self.reader.fail(f"the attribute {name[:40]} nests deeper than {_MOST_LEVELS} levels")
            self.visit(len(value) + 1)
            if isinstance(value, dict):
                items = [(k, value[k]) for k in sorted(k for k in value if isinstance(k, str))]
            else:
                items = [(str(i), v) for i, v in enumerate(value)]
            for k, v in items:
                for inner, leaf in self._leaves(k, v, depth + 1):
                    yield f"{name}.{inner}", leaf


def _is_module(value: StoredObject) -> bool:
    state = value.state
    return isinstance(state, dict) and "training" in state and "_forward_hooks" in state
