"""Loading what an input specification names: arrays, images, generated numbers."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .dtypes import Array
from .errors import InputError, SpecError
from .graph import Tensor, Var
from .inputspec import Fill, InputSpec, PathSource, Source, Values, parse
from .testcase import Bundle

__all__ = ["load_inputs", "load_spec", "random_values"]

_JSON_TYPES = {"float32": "f4", "float": "f4", "int32": "i4", "int": "i4", "int8": "i1", "uint8": "u1"}
_MAX_ARRAY = 2**33


def load_inputs(text: str, bundle: Bundle, *, seed: int = 0) -> dict[str, Array]:
    """Parse a specification and load its data for the inputs of a model.

    Args:
        text: the specification, see `loadrun.inputspec`.
        bundle: the model whose inputs are fed.
        seed: seed of generated data that has none of its own.

    Returns:
        arrays by input name, in the inputs' storage dtypes.

    Raises:
        SpecError: the text is malformed or does not fit the model's inputs.
        InputError: a file holds something else than what the input takes.
        OSError: a file cannot be opened.
    """
    spec = parse(text)
    if spec.listed is not None:
        raise SpecError(f"--input takes one specification, not the list {spec.listed}")
    return load_spec(spec, bundle.inputs, seed=seed)


def load_spec(spec: InputSpec, inputs: list[Var], *, seed: int = 0) -> dict[str, Array]:
    """Load the data of a parsed specification for the given graph inputs."""
    known = {v.name or "": v.owner.tensors[0] for v in inputs}
    listing = ", ".join(f"{n} ({t.dtype} {_shape(t)})" for n, t in known.items()) or "none"
    found: dict[str, Array] = {}
    for part in spec.parts:
        if part.name is None:
            whole = _whole(part.source, known, seed, alone=len(spec.parts) == 1)
            if whole is not None:
                found.update(whole)
                continue
            if len(known) != 1 or len(spec.parts) != 1:
                raise SpecError(
                    f"{part}: say which input this is for, as NAME:{part}; the inputs are {listing}"
                )
        name = part.name if part.name is not None else next(iter(known))
        if name not in known:
            raise SpecError(f"the model has no input {name!r}; its inputs are {listing}")
        try:
            found[name] = _load(part.source, name, known[name], seed + list(known).index(name))
        except (SpecError, InputError) as e:
            raise type(e)(f"input {name!r}: {e}") from None
    missing = [n for n, t in known.items() if n not in found and t.data is None]
    if missing:
        raise SpecError(f"no data for the input {missing[0]!r}; the inputs are {listing}")
    return found


def random_values(fill: Fill, tensor: Tensor, seed: int) -> Array:
    """Generated data in the tensor's storage dtype; the same bytes on every platform and numpy version."""
    shape = _fill_shape(fill, tensor)
    count = int(np.prod(shape, dtype=object))
    if count * 8 > _MAX_ARRAY:
        raise SpecError(f"{fill} would take {count} elements; that is more than loadrun generates")
    want = tensor.dtype.np
    if fill.kind in ("zeros", "ones", "full"):
        value = fill.args[0] if fill.kind == "full" else float(fill.kind == "ones")
        return _cast(np.full(shape, value), want)
    bits = np.random.PCG64(seed if fill.seed is None else fill.seed)
    unit = (bits.random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53 if count else np.zeros(0)
    values: Array
    if fill.kind == "randn":
        mean, std = fill.args or (0.0, 1.0)
        other = (bits.random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53 if count else unit
        values = mean + std * np.sqrt(-2.0 * np.log(1.0 - unit)) * np.cos(2.0 * np.pi * other)
    else:
        low, high = fill.args
        values = low + (high - low) * unit
        if fill.kind == "randint":
            values = np.floor(values)
    return _cast(values.reshape(shape), want)


def _cast(values: Array, want: np.dtype[Any]) -> Array:
    """As MegEngine casts drawn values: integers are truncated and wrap, bool is not zero."""
    if want.kind in "iu":
        return np.trunc(values).astype(np.int64).astype(want)
    return np.asarray(values != 0) if want.kind == "b" else values.astype(want)


def _fill_shape(fill: Fill, tensor: Tensor) -> tuple[int, ...]:
    own = tensor.shape
    if fill.shape is None or fill.rest:
        if own is None:
            raise SpecError(f"{fill}: the file gives no shape for this input, so all axes must be given")
        given = fill.shape or ()
        if len(given) > len(own):
            raise SpecError(f"{fill} gives {len(given)} axes, the input has {len(own)}: {list(own)}")
        return (*given, *own[len(given) :])
    if own is not None and len(own) != len(fill.shape):
        raise SpecError(f"{fill} has {len(fill.shape)} axes, the input has {len(own)}: {list(own)}")
    return fill.shape


def _whole(source: Source, known: Mapping[str, Tensor], seed: int, *, alone: bool) -> dict[str, Array] | None:
    """Sources that feed every input at once: one #rand alone, an .npz or .json by input names."""
    if not alone:
        return None
    if isinstance(source, Fill):
        return {n: _fed(random_values(source, t, seed + i), n, t) for i, (n, t) in enumerate(known.items())}
    if isinstance(source, PathSource) and source.member is None:
        suffix = Path(source.path).suffix.lower()
        if suffix == ".npz":
            arrays = _npz(source.path)
            if set(arrays) & set(known) or len(arrays) > 1:
                return {n: _fed(a, n, known[n]) for n, a in arrays.items() if n in known}
        if suffix == ".json":
            return {n: _fed(a, n, known[n]) for n, a in _json(source.path).items() if n in known}
    return None


def _load(source: Source, name: str, tensor: Tensor, seed: int) -> Array:
    if isinstance(source, Fill):
        return _fed(random_values(source, tensor, seed), name, tensor)
    if isinstance(source, Values):
        data = json.loads(source.text)
        try:
            values = np.array(data, np.float32 if "." in source.text or "e" in source.text else None)
        except (ValueError, OverflowError):
            raise SpecError(f"{source}: the lists are not of equal lengths") from None
        return _fed(values, name, tensor)
    suffix = Path(source.path).suffix.lower()
    if suffix == ".npy":
        return _fed(_npy(source.path), name, tensor)
    if suffix == ".npz":
        return _fed(_pick(_npz(source.path), source, name), name, tensor)
    if suffix == ".json":
        return _fed(_pick(_json(source.path), source, name), name, tensor)
    return _fed(image(source.path, tensor), name, tensor)


def _fed(array: Array, name: str, tensor: Tensor) -> Array:
    """Check rank and dtype of loaded data and cast it as MegEngine does."""
    if tensor.shape is not None and array.ndim != len(tensor.shape):
        raise InputError(
            f"data for {name!r} has shape {list(array.shape)}, the input has {list(tensor.shape)}"
        )
    want = tensor.dtype.np
    return array if array.dtype == want else _cast(array, want)


def _npy(path: str) -> Array:
    try:
        with open(path, "rb") as f:
            array = np.lib.format.read_array(f, allow_pickle=False)
    except ValueError as e:
        raise InputError(_unpicklable(path, e)) from None
    return _numeric(array, path)


def _unpicklable(path: str, e: Exception) -> str:
    if "allow_pickle" in str(e):
        return (
            f"{path} holds Python objects, which are never unpickled; "
            "convert it once with numpy.save(path, array.astype('float32'))"
        )
    return f"{path} is not a .npy array: {e}"


def _numeric(array: Array, path: str) -> Array:
    if array.dtype.kind not in "fiub":
        raise InputError(f"{path} holds {array.dtype}; expected numbers or booleans")
    return array.reshape(1) if array.ndim == 0 else array


def _npz(path: str) -> dict[str, Array]:
    """All arrays of an .npz; the sizes in its directory are checked before anything is unpacked."""
    try:
        with zipfile.ZipFile(path) as z:
            total = sum(i.file_size for i in z.infolist())
            if total > max(_MAX_ARRAY // 8, 200 * os.path.getsize(path)):
                raise InputError(f"{path} would unpack to {total} bytes; that is no plausible .npz")
        with np.load(path, allow_pickle=False) as z:
            return {k: _numeric(z[k], f"{path}!{k}") for k in z.files}
    except zipfile.BadZipFile:
        raise InputError(f"{path} is not an .npz archive") from None
    except ValueError as e:
        raise InputError(_unpicklable(path, e)) from None


def _pick(arrays: dict[str, Array], source: PathSource, name: str) -> Array:
    key = source.member or name
    if key in arrays:
        return arrays[key]
    if source.member is None and len(arrays) == 1:
        return next(iter(arrays.values()))
    raise InputError(f"{source.path} has no array {key!r}; it holds {', '.join(arrays) or 'none'}")


def _json(path: str) -> dict[str, Array]:
    """load_and_run's form: {"name": {"shape": [...], "type": "float32", "raw": [...]}}."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        return {
            name: np.array(v["raw"], np.float64).reshape(v["shape"]).astype(_JSON_TYPES[v["type"]])
            for name, v in data.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise InputError(
            f'{path}: expected {{"name": {{"shape": [...], "type": "float32", "raw": [...]}}}} with a type of '
            f"{', '.join(_JSON_TYPES)}: {type(e).__name__}: {e}"
        ) from None


def image(path: str, tensor: Tensor) -> Array:
    """An image in the layout that the input's shape asks for: NCHW, NHWC or CHW, colour (BGR) or gray.

    Raises:
        InputError: the file is no image, or the shape fits no image layout.
    """
    import cv2

    raw = np.fromfile(path, np.uint8)
    pixels = cv2.imdecode(raw, cv2.IMREAD_COLOR) if raw.size else None
    if pixels is None:
        raise InputError(f"{path} is neither an image that OpenCV reads nor .npy, .npz or .json")
    shape = tensor.shape or ()
    chw, batched = len(shape) == 3, len(shape) == 4
    if batched and shape[1] in (1, 3):
        channels, last = shape[1], False
    elif batched and shape[3] in (1, 3):
        channels, last = shape[3], True
    elif chw and shape[0] in (1, 3):
        channels, last = shape[0], False
    else:
        raise InputError(
            f"{path} is an image, but the input's shape {list(shape)} is none of [N,C,H,W], [N,H,W,C], [C,H,W] "
            "with 1 or 3 channels"
        )
    if channels == 1:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)[:, :, None]
    array = pixels if last else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(array[None] if batched else array)


def _shape(t: Tensor) -> str:
    return "any shape" if t.shape is None else str(list(t.shape))
