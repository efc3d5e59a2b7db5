"""From inert records to what a reader of checkpoints wants: containers of arrays, and modules as state dicts."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...graph.dtypes import Array
from ...tensors.quantized_dtypes import LSQParams, QParams, QuantDtypeMeta, QuantMode
from .machine import PickleMachine
from .stored import BFLOAT16, ArrayDraft, DTypeDraft, Global, PickledTensor, StoredObject

_MOST_LEVELS = 100
_LONGEST_KEY = 2000
_PER_ITEM = 64
_FLAT = {
    ("megengine.module.batchnorm", n) for n in ("BatchNorm1d", "BatchNorm2d", "SyncBatchNorm", "_BatchNorm")
} | {("megengine.module.normalization", n) for n in ("GroupNorm", "LayerNorm", "InstanceNorm")}
"""Modules whose parameters `state_dict` gives with one axis."""

_Wrap = Callable[[PickledTensor, Array, Any], Any]
"""Makes a value of a tensor, its array and its parameters of quantization."""
_QPARAMS = {("megengine.quantization.utils", c.__name__): c for c in (QParams, LSQParams)}
_MODE = ("megengine.quantization.utils", "QuantMode")
_META_TYPES = [[str, kind, str, int, int, bool] for kind in (str, type(None))]
_META = ("megengine.core.tensor.dtype", "QuantDtypeMeta")


def settle(machine: PickleMachine, value: object, tensor: _Wrap | None = None) -> object:
    """Return the object that a pickle stands for.

    Args:
        machine: the reader, whose budget pays for copies and whose errors name places.
        value: what it made.
        tensor: makes a value of a tensor, its array and its parameters of quantization; by default the array.

    Raises:
        FormatError: it holds an object that is neither array, tensor, module nor container, or nests too deeply.
    """
    return _Settler(machine, tensor).value(value, 0)


class _Settler:
    def __init__(self, machine: PickleMachine, wrap: _Wrap | None) -> None:
        self.machine = machine
        self.wrap = wrap
        self.done: dict[int, Any] = {}
        self.open: set[int] = set()
        self.members: dict[int, tuple[int, list[tuple[str, Any]]]] = {}

    def value(self, value: object, level: int) -> object:
        """Any value; one that is shared is settled once."""
        if value is None or isinstance(value, (bool, int, float, str, complex, np.generic)):
            return value
        if id(value) in self.done:
            return self.done[id(value)]
        if id(value) in self.open:
            self.machine.fail("the pickle holds a container that contains itself")
        if level > _MOST_LEVELS:
            self.machine.fail(f"the pickle nests deeper than {_MOST_LEVELS} levels")
        self.open.add(id(value))
        settled = self._settled(value, level + 1)
        self.open.discard(id(value))
        self.done[id(value)] = settled
        return settled

    def _settled(self, value: object, level: int) -> object:
        if isinstance(value, dict):
            return self._dict(value, level)
        if isinstance(value, (list, tuple)):
            return type(value)(self.value(v, level) for v in value)
        if isinstance(value, (bytes, set, frozenset)):
            return value
        if isinstance(value, bytearray):
            self.machine.spend(len(value))
            return bytes(value)
        return self._draft(value, level)

    def _dict(self, value: dict[Any, Any], level: int) -> dict[Any, Any]:
        settled: dict[Any, Any] = OrderedDict() if isinstance(value, OrderedDict) else {}
        if isinstance(value, defaultdict):
            settled = defaultdict(value.default_factory)
        for k, v in value.items():
            settled[k] = self.value(v, level)
        return settled

    def _draft(self, value: object, level: int) -> object:
        """Stand in for an array, a dtype, a tensor, a module or a name while the pickle is read."""
        if isinstance(value, ArrayDraft):
            return self.array(value)
        if isinstance(value, DTypeDraft):
            return BFLOAT16 if value.bfloat16 else value.np
        if isinstance(value, PickledTensor):
            return self.tensor(value, self.array(value.value), level)
        if isinstance(value, StoredObject):
            if not _is_module(value):
                raise self.machine.refusal(value.cls, "give an object of")
            return self.module(value, level)
        assert isinstance(value, Global)
        raise self.machine.refusal(value, "give")

    def tensor(self, stored: PickledTensor, array: Array, level: int) -> object:
        if self.wrap is None:
            return array
        qparams = stored.state.get("qparams") if isinstance(stored.state, dict) else None
        if not isinstance(qparams, StoredObject) or qparams.cls.key not in _QPARAMS:
            return self.wrap(stored, array, None)
        return self.wrap(stored, array, self.qparams(qparams, level))

    def qparams(self, stored: StoredObject, level: int) -> QParams:
        """Return parameters of quantization, made of plain values and tensors alone."""
        kind = _QPARAMS[stored.cls.key]
        names = kind._names()
        slots = stored.state[1] if isinstance(stored.state, tuple) and len(stored.state) == 2 else None
        if not isinstance(slots, dict) or slots.keys() != set(names):
            self.machine.fail(f"the attributes of {stored.cls} are not {', '.join(names)}")
        return kind(*(self._quantizing(slots[n], level) for n in names))

    def _quantizing(self, value: object, level: int) -> Any:  # noqa: ANN401 - a field of QParams
        """Read one of the parameters: a mode, a kind of dtype, a number or a tensor."""
        key: tuple[str, str] | None = None
        args: tuple[Any, ...] = ()
        if isinstance(value, StoredObject):
            key, args = value.cls.key, value.args if isinstance(value.args, tuple) else ()
        if key == _MODE and len(args) == 1 and type(args[0]) is int and args[0] in (1, 2):
            return QuantMode(args[0])
        if key == _META and len(args) == 6 and list(map(type, args)) in _META_TYPES:
            return QuantDtypeMeta(*args)
        plain = isinstance(value, (PickledTensor, ArrayDraft, np.generic)) or type(value) in (int, float)
        if value is not None and not plain:
            self.machine.fail("a quantization parameter is neither a mode, a dtype, a number nor a tensor")
        return self.value(value, level)

    def array(self, value: object) -> Array:
        """Return the contents of an array, which must have come."""
        if isinstance(value, np.generic):
            return np.asarray(value)
        if not isinstance(value, ArrayDraft):
            self.machine.fail("a tensor holds no array")
        if value.value is None:
            self.machine.fail("an array has no contents")
        return value.value

    def module(self, module: StoredObject, level: int) -> OrderedDict[str, Any]:
        """Return the state dict of a module that was saved whole, as its `state_dict` gives it."""
        state: OrderedDict[str, Any] = OrderedDict()
        self._collect(module, "", state, level)
        return state

    def _collect(self, module: StoredObject, prefix: str, state: OrderedDict[str, Any], level: int) -> None:
        if level > _MOST_LEVELS:
            self.machine.fail(
                f"the pickle nests modules deeper than {_MOST_LEVELS} levels, or within themselves"
            )
        inner: list[tuple[str, StoredObject]] = []
        for name, leaf in self._held(module):
            if len(prefix) + len(name) > _LONGEST_KEY:
                self.machine.fail(f"the name of a parameter is longer than {_LONGEST_KEY} characters")
            if isinstance(leaf, PickledTensor):
                array = self.array(leaf.value)
                flat = array.reshape(-1) if module.cls.key in _FLAT else array
                self.machine.spend(_PER_ITEM + len(prefix) + len(name))
                state[prefix + name] = self.tensor(leaf, flat, level)
            else:
                inner.append((name, leaf))
        for name, leaf in inner:
            self._collect(leaf, f"{prefix}{name}.", state, level + 1)

    def _held(self, module: StoredObject) -> list[tuple[str, Any]]:
        """Return the tensors and modules that a module holds, each once; looked for once, however often it is asked."""
        if id(module) in self.members:
            cost, members = self.members[id(module)]
            self.machine.visit(cost)
            return members
        before, seen, members = self.machine.visits, {id(module)}, []
        state = _attributes(module)
        self.machine.visit(len(state) + 1)
        for attribute in sorted(state):
            for name, leaf in self._leaves(attribute, state[attribute], 0):
                if id(leaf) not in seen:
                    seen.add(id(leaf))
                    members.append((name, leaf))
        self.members[id(module)] = before - self.machine.visits, members
        return members

    def _leaves(self, name: str, value: object, depth: int) -> Iterator[tuple[str, Any]]:
        """Return tensors and modules within an attribute, by dotted names, as Module looks for them."""
        if isinstance(value, PickledTensor) or (isinstance(value, StoredObject) and _is_module(value)):
            yield name, value
        elif isinstance(value, (list, tuple, dict)):
            if depth > _MOST_LEVELS or len(name) > _LONGEST_KEY:
                self.machine.fail(f"the attribute {name[:40]} nests deeper than {_MOST_LEVELS} levels")
            self.machine.visit(len(value) + 1)
            if isinstance(value, dict):
                items = [(k, value[k]) for k in sorted(k for k in value if isinstance(k, str))]
            else:
                items = [(str(i), v) for i, v in enumerate(value)]
            for k, v in items:
                for inner, leaf in self._leaves(k, v, depth + 1):
                    yield f"{name}.{inner}", leaf


def _attributes(module: StoredObject) -> dict[str, Any]:
    state = module.state
    return {k: v for k, v in state.items() if isinstance(k, str)} if isinstance(state, dict) else {}


def _is_module(value: StoredObject) -> bool:
    state = value.state
    return isinstance(state, dict) and "training" in state and "_forward_hooks" in state
