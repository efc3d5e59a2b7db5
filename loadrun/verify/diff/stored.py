"""Values of variables from elsewhere: folders of load_and_run, .npz files, folders of .npy files.

load_and_run's ``--bin_io_dump DIR`` writes one file for every variable and ``--bin_out_dump DIR`` one for every output:

| bytes | content |
| --- | --- |
| 0 | u32, the length of the text; u32, the number of the dtype; u32, the number of sizes that follow, 7 |
| 12 | 7 times u32: the shape, filled up with zeros |
| 40 | the text: how MegEngine prints the variable, its name behind ``name:`` |
| | the values |
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import unpack_from

import numpy as np

from ...base.errors import FormatError, InputError
from ...base.files import contents
from ...graph import Graph, Opr, Var, readers_of
from ...graph.dtypes import Array, DType, decode, nbytes
from ...inputs.files import members, read_array
from .matching import is_constant
from .measuring import distance, sketch, sketches_agree

TYPE_NUMBERS = {
    **dict(
        enumerate(
            ("Float32", "Uint8", "Int8", "Int16", "Int32", "IntB1", "IntB2", "IntB4", "Byte", "Float16")
        )
    ),
    **dict(enumerate(("UintB4", "BFloat16", "Bool", "Uint16", "Complex64"), 10)),
    **dict(
        enumerate(
            ("Quantized8Asymm", "QuantizedS32", "QuantizedS8", "Quantized4Asymm", "QuantizedS4"), 100_000
        )
    ),
    **dict(enumerate(("QuantizedS16", "QuantizedS1"), 100_005)),
}
"""Types by the numbers that MegEngine has for them while it runs, which are not those of files. Scales are not stored,
so quantized values are read as the integers that they are."""
_NAME = re.compile(r"name:(.*?), slot:|name=([^,}]*)")
_CHECK = re.compile(r"assert_eq\((.+?):expect,")


@dataclass(frozen=True)
class ModuleValue:
    """A stored value of a module, for the last operator of its name.

    Attributes:
        name: the module's name.
        biases: constants that may be part of the value, one at a time, since other operators add them.
    """

    name: str
    biases: tuple[Array, ...]

    def candidates(self, value: Array) -> Iterator[Array]:
        """Yield the operator's value as it is and with each bias."""
        yield value
        for bias in self.biases:
            if _broadcasts(bias, value):
                yield value + bias


def _broadcasts(bias: Array, value: Array) -> bool:
    sizes = zip(bias.shape[::-1], value.shape[::-1], strict=False)
    return bias.dtype == value.dtype and bias.ndim <= value.ndim and all(n in (1, m) for n, m in sizes)


def _modules(var: Var) -> Iterator[str]:
    """Yield the names of the modules that a variable's name is in, from the innermost."""
    name = var.name or ""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def biases_behind(readers: Sequence[Opr]) -> list[Var]:
    """List the constants that the only reader of a value adds to it."""
    if len(readers) != 1 or not _adds(readers[0]):
        return []
    return [v for v in readers[0].inputs if is_constant(v)]


def _adds(opr: Opr) -> bool:
    return opr.title.startswith(("ADD", "FUSE_ADD"))


class _Unplaced:
    """Stored values that no name of a variable says the place of, found again by their numbers.

    Args:
        arrays: the values by name.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._left: dict[int, list[tuple[str, Array]]] = defaultdict(list)
        for name, array in arrays.items():
            self._left[array.size].append((name, array))

    def take(
        self, value: Array, biases: Iterable[Array], tolerance: float
    ) -> tuple[str, Array, Array] | None:
        """Take the first one with the numbers of a value, as it is or with a bias; returns name, array and value."""
        there = self._left.get(value.size, [])
        for candidate in ModuleValue("", (*biases,)).candidates(value) if there else ():
            candidate_sketch = sketch(candidate)
            for i, (name, array) in enumerate(there):
                if array.shape != candidate.shape or not sketches_agree(
                    candidate_sketch, sketch(array), tolerance
                ):
                    continue
                apart = distance(candidate, array, tolerance)
                if apart is not None and apart.relative <= tolerance:
                    del there[i]
                    return name, array, candidate
        return None


class StoredValues:
    """Arrays by variable name.

    Args:
        arrays: name and array of each, in the order in which they were computed where that is known.
    """

    def __init__(self, arrays: Sequence[tuple[str, Array]]) -> None:
        self._arrays = list(arrays)
        self._names: dict[str, Array] = {}
        for name, array in arrays:
            self._names.setdefault(name, array)

    def __len__(self) -> int:
        return len(self._arrays)

    def names(self) -> list[str]:
        """List the names, once each."""
        return list(self._names)

    def of(self, var: Var) -> Array | None:
        """Return the value that has a variable's name."""
        return self._names.get(var.name or "")

    def modules(self, graph: Graph) -> dict[int, ModuleValue]:
        """Tell which variables stand for what modules give, as forward hooks keep it by the modules' names.

        A module gives what its last operator computes; operators are named after their modules
        (``features.0.Convolution``). A bias may be added by an operator of another name: that of the model's output, or
        the sum with a residual.

        Returns:
            stored values by the ids of variables.
        """
        last: dict[str, Var] = {}
        readers = readers_of(graph.oprs)
        read = {*readers, *(v.id for v in graph.outputs)}
        for opr in graph.oprs:
            if not opr.inputs or not opr.outputs:
                continue
            # Normalizations have statistics beside their result.
            result = next((v for v in opr.outputs if v.id in read), opr.outputs[-1])
            last.update((module, result) for module in _modules(result) if module in self._names)
        # The innermost of several modules that end alike.
        ends = {var.id: name for name, var in sorted(last.items(), key=lambda item: len(item[0]))}
        biases = {number: biases_behind(readers.get(number, ())) for number in ends}
        by_name = {name: number for number, name in ends.items()}
        for var in filter(is_constant, graph.vars()):
            for module in _modules(var):
                outside = [o for o in readers.get(var.id, ()) if module not in _modules(o.outputs[-1])]
                if module in by_name and any(map(_adds, outside)):
                    biases[by_name[module]].append(var)
        return {
            number: ModuleValue(name, tuple(v.owner.tensors[v.index].value() for v in biases[number]))
            for number, name in ends.items()
        }

    def unplaced(self, graph: Graph, modules: Mapping[int, ModuleValue]) -> _Unplaced:
        """Give the values that are neither those of variables nor of `modules`, such as those of folded layers."""
        known = {v.name for v in graph.vars()} | {m.name for m in modules.values()}
        return _Unplaced({n: a for n, a in self._names.items() if n not in known})

    def named(self, name: str) -> Array:
        """Return a value by its own name."""
        return self._names[name]


def read_values(path: str | os.PathLike[str]) -> StoredValues:
    """Read stored values.

    Args:
        path: a folder of load_and_run's ``--bin_io_dump`` or ``--bin_out_dump``, a folder of .npy files that are called
            like variables, or an .npz file.

    Raises:
        InputError: the folder holds nothing of the kind.
        FormatError: a file is damaged.
    """
    place = Path(path)
    if place.is_dir():
        arrays = [p for p in sorted(place.iterdir()) if p.is_file()]
        if any(p.suffix == ".npy" for p in arrays):
            return StoredValues([(p.stem, _array(p)) for p in arrays if p.suffix == ".npy"])
        if not arrays:
            raise InputError(f"{place}: the folder is empty; expected files of --bin_io_dump or .npy files")
        return StoredValues([read_binary_dump(p) for p in sorted(arrays, key=_sort_key)])
    return StoredValues([(name, read()) for name, read in members(str(place)).items()])


def _array(path: Path) -> Array:
    return read_array(str(path), lambda pixels: pixels)


def _sort_key(path: Path) -> tuple[int, str]:
    """Files of --bin_io_dump are numbered in hexadecimal."""
    return (int(path.name, 16), path.name) if re.fullmatch("[0-9a-f]+", path.name) else (1 << 62, path.name)


def read_binary_dump(path: Path, dtypes: Mapping[str, DType | None] | None = None) -> tuple[str, Array]:
    """Name and value of one file that load_and_run wrote.

    Args:
        path: the file.
        dtypes: data types by name where they are known; without one, quantized values are the integers that are stored.

    Raises:
        FormatError: the file is not of that kind, or shorter than its shape says.
    """
    data = contents(path, "a value of --bin_io_dump")
    if len(data) < 40:
        raise FormatError(f"{path}: {len(data)} bytes are too few for a file of --bin_io_dump")
    length, kind, ndim = unpack_from("<III", data)
    text = data[40 : 40 + length].decode("utf-8", "replace")
    match = _NAME.search(text)
    name = next((g for g in match.groups() if g), "") if match else ""
    known = (dtypes or {}).get(name)
    if checked := _CHECK.match(name):
        # --bin_out_dump of a model with checks: what a check hands on is the output that it looks at.
        name = checked[1]
        known = known or (dtypes or {}).get(name)
    dtype = known or DType(TYPE_NUMBERS.get(kind, ""))
    if ndim > 7 or 40 + length > len(data) or kind not in TYPE_NUMBERS:
        raise FormatError(f"{path}: not a file of --bin_io_dump (text of {length} bytes, dtype {kind})")
    sizes = unpack_from("<7I", data, 12)
    shape = tuple(n for n in sizes if n)
    size = nbytes(shape, dtype)
    if 40 + length + size > len(data):
        raise FormatError(f"{path}: {list(shape)} {dtype.name} need more bytes than the file has")
    return name, decode(np.frombuffer(data, np.uint8, size, 40 + length), shape, dtype)
