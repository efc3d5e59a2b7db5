"""Checkpoints within zip files: one pickle, or .npy arrays (what numpy.savez writes). Nothing is unpacked to disk."""

import io
import zipfile

from ...base.archives import DAMAGE
from ...base.errors import FormatError, InputError
from ...graph.dtypes import Array
from ...inputs.files import read_npy

_MOST_GROWTH = 20
_FLOOR = 64 << 20
_MOST_MEMBERS = 100_000
_PICKLES = (".pkl", ".pickle", ".mge", ".pth", ".pt")
_CHUNK = 1 << 20


def read_archive(data: bytes | memoryview) -> bytes | dict[str, Array]:
    """Return the contents of a zip file: the bytes of its only pickle, or its arrays by name.

    Raises:
        FormatError: it is damaged, holds neither, or expands to more than 20 times its size (at least 64 MiB).
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _contents(archive, max(_MOST_GROWTH * len(data), _FLOOR))
    except FormatError:
        raise
    except InputError as e:
        raise FormatError(str(e)) from None
    except DAMAGE as e:
        raise FormatError(f"the zip file is damaged: {e}") from None


def _contents(archive: zipfile.ZipFile, most: int) -> bytes | dict[str, Array]:
    members = [m for m in archive.infolist() if not m.is_dir()]
    names = [m.filename for m in members]
    if len(names) > _MOST_MEMBERS or len(set(names)) != len(names):
        raise FormatError(f"the zip file has {len(names)} members: too many, or several with the same name")
    if any(n == "data.pkl" or n.endswith("/data.pkl") for n in names):
        raise FormatError(
            "this is a PyTorch file; convert it where PyTorch is installed: "
            "numpy.savez('weights.npz', **{k: v.numpy() for k, v in torch.load(...).items()})"
        )
    total = sum(m.file_size for m in members)
    if total > most:
        raise FormatError(f"the zip file expands to {total} bytes, at most {most} are allowed")
    if names and all(n.endswith(".npy") for n in names):
        return {m.filename[:-4]: _array(_member_bytes(archive, m), m.filename) for m in members}
    pickles = [m for m in members if m.filename.lower().endswith(_PICKLES)]
    if len(pickles) != 1:
        shown = ", ".join(n[:60] for n in names[:5])
        raise FormatError(f"the zip file holds {shown or 'nothing'}; expected one .pkl, or .npy arrays only")
    return _member_bytes(archive, pickles[0])


def _member_bytes(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Read a member in pieces: at once, zipfile would expand all of it before checking the length in the directory."""
    parts = []
    with archive.open(member) as f:
        while part := f.read(_CHUNK):
            parts.append(part)
    return b"".join(parts)


def _array(raw: bytes, name: str) -> Array:
    value = read_npy(io.BytesIO(raw), len(raw), name)
    is_scalar = b"'shape': ()" in raw[:256]  # read_npy gives those one axis, as inputs of dumps need
    return value.reshape(()) if is_scalar else value
