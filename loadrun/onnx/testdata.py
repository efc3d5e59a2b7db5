"""Testcases beside an ONNX model: folders ``test_data_set_N`` of stored tensors, in the order of inputs and outputs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..base.errors import FormatError, InputError, UsageError
from ..base.files import contents
from ..graph.dtypes import Array, DType
from ..testcase import EXPECT, LazyTestcases, Testcase
from .messages import TensorProto, parse
from .tensors import ExternalData, UnsupportedTensorTypeError, array, kind_name
from .values import UnsupportedNodeError, checked, graph_type

__all__ = ["DataSet", "find_sets", "set_name", "sets_in", "testcases"]

_MOST_BYTES = 1 << 31


class DataSet:
    """One folder of inputs and outputs.

    Args:
        folder: where the files are.
        names: names of the model's inputs, without those that have a stored value.
        outputs: names of its outputs.

    Attributes:
        kinds: ONNX's types of the tensors that were read, by name and, of outputs, ``:expect``.
    """

    def __init__(self, folder: Path, names: Sequence[str], outputs: Sequence[str]) -> None:
        self.folder = folder
        self.kinds: dict[str, int] = {}
        self._count = len(outputs)
        self._inputs = {n: folder / f"input_{i}.pb" for i, n in enumerate(names)}
        self._outputs = {n: folder / f"output_{i}.pb" for i, n in enumerate(outputs)}

    def inputs(self) -> dict[str, Array]:
        """Values by input name; what is not a tensor or has no file is left out."""
        return self._read(self._inputs, "")

    def outputs(self) -> dict[str, Array]:
        """Values by output name."""
        return self._read(self._outputs, EXPECT)

    def surplus(self) -> list[str]:
        """Files of outputs that the model does not have."""
        found = [re.fullmatch(r"output_(\d+)\.pb", p.name) for p in self.folder.glob("output_*.pb")]
        return sorted(m.group() for m in found if m is not None and int(m.group(1)) >= self._count)

    def _read(self, files: dict[str, Path], ending: str) -> dict[str, Array]:
        found = {}
        for name, path in files.items():
            if path.is_file():
                proto = _proto(path)
                value = _value(proto, path)
                if value is not None:
                    found[name] = value
                    self.kinds[name + ending] = proto.data_type
        return found


def _proto(path: Path) -> TensorProto:
    """The tensor in a file as it is stored."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise FormatError(f"a value of {path.stat().st_size} bytes is larger than 2 GiB")
        return parse(TensorProto, memoryview(contents(path, "a tensor")))
    except FormatError as e:
        e.path = str(path)
        raise


def _value(proto: TensorProto, path: Path) -> Array | None:
    """The value of a tensor, None for strings and the like."""
    try:
        return np.array(array(proto, ExternalData(path.parent)))
    except UnsupportedTensorTypeError:
        return None
    except FormatError as e:
        e.path = str(path)
        raise


def find_sets(
    model: Path | None, given: str | os.PathLike[str] | None, names: Sequence[str], outputs: Sequence[str]
) -> list[DataSet]:
    """The data sets beside a model, or in the folder that is given instead.

    Those that bear the model's name are its own; where there are none, those without a name are, as in ONNX's zoo.

    Raises:
        UsageError: the given folder holds none.
    """
    if given is None and model is None:
        return []
    root = Path(given) if given is not None else Path(model or "").parent
    found = ([] if model is None else sets_in(root, model.stem)) or sets_in(root)
    if given is not None and not found:
        if not (root / "output_0.pb").is_file() and not (root / "input_0.pb").is_file():
            raise UsageError(f"{root} holds neither test_data_set_N folders nor input_0.pb")
        found = [root]
    return [DataSet(f, names, outputs) for f in found]


def sets_in(folder: Path, stem: str = "") -> list[Path]:
    """The folders of data sets, in order of their numbers.

    Args:
        folder: where they are.
        stem: the model's name without ending, which theirs begin with; empty for those that belong to no name.
    """
    if not folder.is_dir():
        return []
    form = re.compile(re.escape(set_name(stem)) + r"(\d{1,9})")
    numbers = ((form.fullmatch(entry.name), entry) for entry in folder.iterdir())
    return [e for _, e in sorted((int(m.group(1)), e) for m, e in numbers if m is not None and e.is_dir())]


def set_name(stem: str) -> str:
    """What the names of a model's data sets begin with, before the number.

    >>> set_name("resnet") + "0", set_name("") + "0"
    ('resnet.test_data_set_0', 'test_data_set_0')
    """
    return f"{stem}.test_data_set_" if stem else "test_data_set_"


def testcases(sets: Sequence[DataSet], kinds: dict[str, int]) -> LazyTestcases:
    """The data sets as testcases of the graph.

    Args:
        sets: the data sets.
        kinds: ONNX's types of the graph's inputs and, by name and ``:expect``, of the expected values.
    """

    def read(i: int) -> Testcase:
        one = sets[i]
        whole = {**one.inputs(), **{n + EXPECT: v for n, v in one.outputs().items()}}
        arrays: dict[str, Array] = {}
        dtypes: dict[str, DType] = {}
        faults = dict.fromkeys(one.surplus(), "the model has no such output")
        for name, kind in kinds.items():
            if name not in whole:
                raise InputError(f"{one.folder} holds no value for {name!r}")
            if one.kinds[name] != kind:
                types = f"holds {kind_name(one.kinds[name])}, where the model has {kind_name(kind)}"
                if not name.endswith(EXPECT):
                    raise InputError(f"the data of the input {name!r} in {one.folder} {types}")
                faults[name[: -len(EXPECT)]] = f"its expected value {types}"
            try:
                arrays[name] = np.atleast_1d(checked(whole[name], kind, name))
            except UnsupportedNodeError as e:
                raise InputError(f"{one.folder}: {e}") from e
            dtypes[name] = graph_type(kind)
        return Testcase(arrays, dtypes, {"source": one.folder.name}, faults=faults)

    return LazyTestcases(read, range(len(sets)))
