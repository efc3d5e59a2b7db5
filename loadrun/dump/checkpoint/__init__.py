"""MegEngine checkpoints (state dicts that ``megengine.save`` wrote) without MegEngine, and without running code.

A checkpoint is a pickle, and a pickle is a program. Its names stand for records that know arrays, tensors and
containers and refuse everything else: no name of the file is ever looked up or called.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from ...base.errors import FormatError
from ...base.files import contents
from ...graph.dtypes import Array
from ...tensors import Parameter, Tensor
from ...tensors.access import set_qparams
from ...tensors.quantized_dtypes import QParams
from ...tensors.switches import check_device
from .emit import save_checkpoint
from .machine import PickleMachine
from .states import settle

__all__ = ["load_checkpoint", "save_checkpoint"]

_TORCH = (
    "this is a PyTorch file; convert it where PyTorch is installed: "
    "numpy.savez('weights.npz', **{k: v.numpy() for k, v in torch.load(...).items()}); "
    "dict(numpy.load('weights.npz')) is then a state dict"
)
_ZIP = "this is a zip archive; unpack the checkpoint in it, or read arrays of numpy.savez by dict(numpy.load(file))"


def load_checkpoint(
    source: str | os.PathLike[str] | bytes | BinaryIO,
    map_location: str | Mapping[str, str] | Callable[[str], str] | None = None,
    *,
    tensors: bool = True,
) -> Any:  # noqa: ANN401 - a pickle holds anything
    """Read what ``megengine.save`` or ``pickle.dump`` wrote: usually a dict of arrays by parameter name.

    Tensors come back as tensors, arrays as arrays; whole modules become their state dict (keys and shapes as
    ``Module.state_dict`` gives them), containers and plain values stay. Quantized arrays keep MegEngine's dtype
    (storage integers with ``dtype.metadata["mgb_dtype"]``), bfloat16 becomes float32 with such a mark.

    Args:
        source: path, bytes or open binary file.
        map_location: on which device tensors go: a name, names by names, or a function of names; the CPU computes.
        tensors: False gives arrays where the file holds MegEngine's tensors.

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
    loadrun.base.errors.FormatError: refuses to call os.system: a checkpoint may hold ... (at byte 0)
    """
    _check_location(map_location)
    try:
        data = _contents(source)
        if data[:4] == b"PK\x03\x04":
            first = data[30 : 30 + int.from_bytes(data[26:28], "little")]
            raise FormatError(_TORCH if first.endswith(b"data.pkl") else _ZIP)
        machine = PickleMachine(data)
        return settle(machine, machine.run(), _tensor if tensors else None)
    except FormatError as e:
        if e.path is None and isinstance(source, (str, os.PathLike)):
            e.path = os.fspath(source)
        raise


def _tensor(kind: str, array: Array, qparams: QParams | None) -> Tensor:
    kinds = {"Tensor": Tensor, "Parameter": Parameter}
    tensor = kinds[kind](array, dtype=array.dtype)
    set_qparams(tensor, qparams)
    return tensor


def _check_location(map_location: str | Mapping[str, str] | Callable[[str], str] | None) -> None:
    """Refuse names of no device; where tensors go makes no difference.

    Raises:
        InvalidDeviceError: one of them is no such name.
    """
    if isinstance(map_location, Mapping):
        for name in (*map_location.keys(), *map_location.values()):
            check_device(name)
    elif not callable(map_location):
        check_device(map_location)


def _contents(source: str | os.PathLike[str] | bytes | BinaryIO) -> bytes:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if isinstance(source, (str, os.PathLike)):
        return contents(source, "a checkpoint")
    return source.read()
