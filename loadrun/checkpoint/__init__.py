"""MegEngine checkpoints (state dicts that ``megengine.save`` wrote) without MegEngine, and without unpickling.

A checkpoint is a pickle, and a pickle is a program. It is read here by a machine that knows arrays, tensors and
containers and refuses everything else: no name of the file is ever looked up or called.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from ..dtypes import Array
from ..errors import FormatError
from ..files import contents
from ..imperative import Parameter, Tensor
from ..imperative.device import check_device
from .archive import read_archive
from .emit import save_checkpoint
from .machine import MOST_STEPS, PickleMachine
from .states import settle
from .stored import PickledTensor

__all__ = ["load_checkpoint", "save_checkpoint"]


def load_checkpoint(
    source: str | os.PathLike[str] | bytes | BinaryIO,
    map_location: str | Mapping[str, str] | Callable[[str], str] | None = None,
    *,
    tensors: bool = True,
    max_steps: int = MOST_STEPS,
) -> Any:
    """Read what ``megengine.save`` or ``pickle.dump`` wrote: usually a dict of arrays by parameter name.

    Tensors come back as tensors, arrays as arrays; whole modules become their state dict (keys and shapes as
    ``Module.state_dict`` gives them), containers and plain values stay. Quantized arrays keep MegEngine's dtype
    (storage integers with ``dtype.metadata["mgb_dtype"]``), bfloat16 becomes float32 with such a mark. A zip file may
    hold one such pickle or, as ``numpy.savez`` writes, .npy arrays.

    Args:
        source: path, bytes or open binary file.
        map_location: on which device tensors go, a name, names by names, or a function of names; checked as MegEngine
            does, and without effect, as the CPU computes.
        tensors: False gives arrays where the file holds MegEngine's tensors.
        max_steps: opcodes after which a pickle is refused; a tensor takes about thirty.

    Returns:
        the stored object.

    Raises:
        ValueError: `map_location` names no device.
        FormatError: the file is malformed, or names anything but arrays, tensors and containers; the message names
            it and its place. Nothing that the file names is imported or called.
        OSError: the file cannot be opened.

    Source of semantics: MegEngine ``serialization.py`` and ``tensor.py``, Python's pickle protocols 0 to 5.

    >>> import io, numpy as np
    >>> f = io.BytesIO()
    >>> save_checkpoint({"fc.weight": np.eye(2, dtype="float32"), "epoch": 3}, f)
    >>> state = load_checkpoint(f.getvalue())
    >>> state["fc.weight"].tolist(), state["epoch"]
    ([[1.0, 0.0], [0.0, 1.0]], 3)
    >>> load_checkpoint(b"cos\\nsystem\\n(Vtouch x\\ntR.")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    loadrun.errors.FormatError: refuses to call os.system: a checkpoint may hold ... (at byte 0)
    """
    _check_location(map_location)
    try:
        data = _contents(source)
        if data[:4] == b"PK\x03\x04":
            found = read_archive(data)
            if isinstance(found, dict):
                return found
            data = found
        machine = PickleMachine(data, max_steps)
        return settle(machine, machine.run(), _tensor) if tensors else settle(machine, machine.run())
    except FormatError as e:
        if e.path is None and isinstance(source, (str, os.PathLike)):
            e.path = os.fspath(source)
        raise


def _tensor(stored: PickledTensor, array: Array) -> Tensor:
    kinds = {"Tensor": Tensor, "Parameter": Parameter}
    return kinds[stored.kind](array, dtype=array.dtype)


def read_pickle(data: bytes, named: Callable[[str, str], Any]) -> Any:
    """Return what a pickle holds, with tensors, as `load_checkpoint` does.

    Args:
        data: the pickle.
        named: gives what stands for a class by module and name, None for one that is refused.

    Raises:
        FormatError: as `load_checkpoint`.
    """
    machine = PickleMachine(data)
    return settle(machine, machine.run(), _tensor, named)


def _check_location(map_location: object) -> None:
    """Refuse what MegEngine refuses as a mapping of devices."""
    if isinstance(map_location, Mapping):
        names: list[object] = [*map_location.keys(), *map_location.values()]
    else:
        names = [map_location] if map_location is not None and not callable(map_location) else []
    for name in names:
        check_device(name)


def _contents(source: str | os.PathLike[str] | bytes | BinaryIO) -> bytes:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if isinstance(source, (str, os.PathLike)):
        return contents(source, "a checkpoint")
    return source.read()
