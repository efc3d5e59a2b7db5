"""Testcases beside an ONNX model: folders ``test_data_set_N`` of stored tensors, in the order of inputs and outputs."""

import os
import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np

from ..base.errors import FormatError, InputError, UsageError
from ..base.files import contents
from ..base.registry import late
from ..graph.dtypes import Array, DType
from ..testcase import EXPECT, FileValue, LazyTestcases, Testcase, spread
from .messages import SequenceProto, TensorProto, TypeProto, parse
from .tensors import STRING, ExternalData, UnsupportedTensorTypeError, kind_name
from .types import dtype_of_kind

with late(__name__):
    from . import file

_MOST_BYTES = 1 << 31
_MOST_SETS = 1 << 20


class DataSet:
    """One folder of inputs and outputs.

    Args:
        folder: where the files are.
        names: names of the model's inputs, without those that have a stored value.
        outputs: names of its outputs.

    Attributes:
        kinds: ONNX's types of the tensors that were read, by name and, of outputs, ``:expect``.
        others: likewise, the names of those tensors that say they are another input or output.
    """

    def __init__(self, folder: Path, names: Sequence[str], outputs: Sequence[str]) -> None:
        self.folder = folder
        self.kinds: dict[str, int] = {}
        self.others: dict[str, str] = {}
        self._inputs = {n: folder / f"input_{i}.pb" for i, n in enumerate(names)}
        self._outputs = {n: folder / f"output_{i}.pb" for i, n in enumerate(outputs)}

    def typed_values(self, types: Mapping[str, TypeProto | None]) -> dict[str, FileValue]:
        """Map input names, and output names with ``:expect``, to values in the types that the model declares.

        What has no file is left out, and so are complex numbers.
        """
        files = {**self._inputs, **{n + EXPECT: p for n, p in self._outputs.items()}}
        values: dict[str, FileValue] = {}
        for name, path in files.items():
            if not path.is_file():
                continue
            try:
                kind = types.get(name.removesuffix(EXPECT))
                data = _bytes(path)
                if kind is not None and kind.tensor is None:
                    values[name] = file.parsed(data, kind, path.parent)
                    if name.endswith(EXPECT) and kind.sequence is not None:
                        for i, item in enumerate(parse(SequenceProto, data).tensors):
                            self.kinds[f"{name.removesuffix(EXPECT)}.{i}{EXPECT}"] = item.data_type
                else:
                    proto = parse(TensorProto, data)
                    values[name] = file.tensor_value(proto, ExternalData(path.parent))
                    self.kinds[name] = proto.data_type
                    group = self._outputs if name.endswith(EXPECT) else self._inputs
                    if proto.name in group and proto.name != name.removesuffix(EXPECT):
                        self.others[name] = proto.name
            except UnsupportedTensorTypeError:
                continue
            except FormatError as e:
                e.path = str(path)
                raise
        return values

    def gaps(self) -> dict[str, str]:
        """Say of outputs without a file, where others have one, that theirs is missing."""
        there = [p.is_file() for p in self._outputs.values()]
        if not any(there) or all(there):
            return {}
        return {
            name: f"its expected value is missing: {self.folder.name} has no {path.name}"
            for name, path in self._outputs.items()
            if not path.is_file()
        }

    def surplus(self) -> dict[str, str]:
        """List the files of inputs and outputs that the model does not have."""
        sides = {"input": len(self._inputs), "output": len(self._outputs)}
        return {
            name: f"the model has no such {side}"
            for side, count in sides.items()
            for name, number in self._numbered(side)
            if number >= count
        }

    def feeds_all(self, count: int) -> bool:
        """Return whether there are so many values of inputs, and no more."""
        return [n for _, n in self._numbered("input")] == list(range(count))

    def _numbered(self, side: str) -> list[tuple[str, int]]:
        matches = (re.fullmatch(rf"{side}_(\d+)\.pb", p.name) for p in self.folder.glob(f"{side}_*.pb"))
        return sorted(((m.group(), int(m.group(1))) for m in matches if m is not None), key=itemgetter(1))


def item_kind(name: str, types: Mapping[str, TypeProto | None]) -> int | None:
    """Return ONNX's type of a value of a sequence of tensors, which has its number in its name; None of others."""
    output, _, number = name.rpartition(".")
    kind = types.get(output) if number.isdigit() and name not in types else None
    while kind is not None and kind.optional is not None:
        kind = kind.optional.of
    item = kind.sequence.of if kind is not None and kind.sequence is not None else None
    tensor = item.tensor if item is not None else None
    return tensor.elem if tensor is not None and tensor.elem != STRING else None


def _bytes(path: Path) -> memoryview:
    if path.stat().st_size > _MOST_BYTES:
        raise FormatError(f"a value of {path.stat().st_size} bytes is larger than 2 GiB")
    return memoryview(contents(path, "a tensor"))


def find_sets(
    model: Path | None, folder: str | os.PathLike[str] | None, names: Sequence[str], outputs: Sequence[str]
) -> list[DataSet]:
    """Find the data sets beside a model, or in the given folder instead.

    Those that bear the model's name are its own; where there are none, those without a name are, as in ONNX's zoo.

    Raises:
        UsageError: the given folder holds none.
    """
    if folder is None and model is None:
        return []
    root = Path(folder) if folder is not None else Path(model or "").parent
    folders = ([] if model is None else sets_in(root, model.stem)) or sets_in(root)
    if folder is not None and not folders:
        if not (root / "output_0.pb").is_file() and not (root / "input_0.pb").is_file():
            raise UsageError(f"{root} has neither test_data_set_N folders nor input_0.pb")
        folders = [root]
    return [DataSet(f, names, outputs) for f in folders]


def sets_in(folder: Path, stem: str = "") -> list[Path]:
    """List the folders of data sets, in order of their numbers.

    Args:
        folder: where they are.
        stem: the model's name without ending, which theirs begin with; empty for those that belong to no name.
    """
    if not folder.is_dir():
        return []
    form = re.compile(re.escape(set_name(stem)) + r"(\d{1,9})")
    numbers = ((form.fullmatch(entry.name), entry) for entry in folder.iterdir())
    return [e for _, e in sorted((int(m.group(1)), e) for m, e in numbers if m is not None and e.is_dir())]


def lost_sets(sets: Sequence[DataSet]) -> list[str]:
    """Say which data sets are missing between others, by their numbers."""
    names = [s.folder.name.rpartition("_") for s in sets]
    numbers = [int(number) for _, _, number in names if number.isdigit()]
    if len(numbers) < len(sets) or not numbers:
        return []
    lost = sorted({*range(numbers[0], numbers[-1])}.difference(numbers)) if numbers[-1] < _MOST_SETS else []
    return [f"{names[0][0]}_{n} is missing, while there are data sets up to {numbers[-1]}" for n in lost[:1]]


def set_name(stem: str) -> str:
    """Return the prefix of a model's data set names, before the number.

    >>> set_name("resnet") + "0", set_name("") + "0"
    ('resnet.test_data_set_0', 'test_data_set_0')
    """
    return f"{stem}.test_data_set_" if stem else "test_data_set_"


def testcases(
    sets: Sequence[DataSet], kinds: Mapping[str, int], types: Mapping[str, TypeProto | None]
) -> LazyTestcases:
    """Read the data sets as testcases of the graph, and of the file itself.

    Args:
        sets: the data sets.
        kinds: ONNX's types of the graph's inputs and, by name and ``:expect``, of the expected values.
        types: the declared types of the model's inputs and outputs.
    """

    def read(i: int) -> Testcase:
        one = sets[i]
        file_values = one.typed_values(types)
        values = spread(file_values)
        # How many values a sequence has is a matter of the data set.
        items = {n: k for n in values if (k := item_kind(n.removesuffix(EXPECT), types)) is not None}
        others = {n: k for n, k in kinds.items() if item_kind(n.removesuffix(EXPECT), types) is None}
        arrays: dict[str, Array] = {}
        dtypes: dict[str, DType] = {}
        faults = one.surplus() | one.gaps()
        for name, kind in (others | items).items():
            value = values.get(name)
            if not isinstance(value, np.ndarray) or value.dtype == object:
                raise InputError(f"{one.folder} holds no value for {name!r}")
            if (other := one.others.get(name)) is not None:
                said = f"of {name.removesuffix(EXPECT)!r} by its file's number is {other!r} by its own name"
                if not name.endswith(EXPECT):
                    raise InputError(f"the data {said} in {one.folder}")
                faults[name[: -len(EXPECT)]] = f"the expected value {said}"
            elif one.kinds.get(name, kind) != kind:
                said = f"holds {kind_name(one.kinds[name])}, but the model has {kind_name(kind)}"
                if not name.endswith(EXPECT):
                    raise InputError(f"the data of the input {name!r} in {one.folder} {said}")
                faults[name[: -len(EXPECT)]] = f"its expected value {said}"
            dtypes[name] = dtype_of_kind(kind)
            with np.errstate(all="ignore"):
                arrays[name] = np.atleast_1d(value.astype(dtypes[name].np, copy=False))
        return Testcase(arrays, dtypes, {"source": one.folder.name}, faults=faults).with_file_values(
            file_values
        )

    return LazyTestcases(read, range(len(sets)))
