"""Testcases in folders beside a model, laid out as ONNX's own tests have them, whose names say the model's."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..base.errors import UnsupportedError
from ..base.writing import replacing
from ..engines.reference import ReferenceEngine
from ..graph.composite import holds_composites
from ..graph.dtypes import Array
from ..testcase import EXPECT, FileValue, Testcase
from .encode import OPTIONAL, TensorMessage, encode_tensor, encode_value
from .file import FILE, KEY, OnnxFile, accepted_file, read_accepted
from .messages import Piece
from .model import WrittenModel
from .source import ExportSource
from .tensors import ElemType
from .testdata import find_sets, set_name, sets_in
from .types import kind_of_dtype

_PACKED = 5
"""Axes of an image whose channels are in packs, which ONNX does not have."""


def write_data_sets(model: Path, source: ExportSource, written: WrittenModel) -> tuple[int, list[str]]:
    """Write every testcase as ``input_K.pb`` and ``output_K.pb`` beside a model.

    Returns:
        how many there are, and which testcases were left out and why, a phrase each.

    The folders are called after the model, ``NAME.test_data_set_N``, so that several models may be in one folder.
    What the file's checks ask of the outputs goes along, as ``checks.json``.

    Outputs are what the testcases expect; where they expect nothing of an output, or expect it with channels in packs,
    what the reference engine gives.
    A testcase of a shape that the model does not take is left out. Folders of higher numbers, and files of inputs and
    outputs that the model does not have, are what an earlier export left there: they go.
    """
    makers = _Files(source, written)
    count = 0
    left_out: list[str] = []
    for number, case in enumerate(source.testcases):
        files = makers.of_file(case)
        if files is None:
            if why := _misfit(source, written, {n: v for n, v in case.inputs.items() if n in written.inputs}):
                left_out.append(f"testcase {number}, {why}")
                continue
            files = makers.of_arrays(case)
        target = model.parent / f"{set_name(model.stem)}{count}"
        target.mkdir(parents=True, exist_ok=True)
        for name, pieces in files.items():
            _write(target / name, pieces)
        if KEY in written.model.metadata:
            with replacing(target / FILE) as file:
                file.write(written.model.metadata[KEY].encode())
        else:
            (target / FILE).unlink(missing_ok=True)
        for kind, names in (("input", written.inputs), ("output", written.outputs)):
            k = len(names)
            while (surplus := target / f"{kind}_{k}.pb").is_file():
                surplus.unlink()
                k += 1
        count += 1
    _remove_older(model, count)
    return count, left_out


class _Files:
    """Makes the files of a data set."""

    def __init__(self, source: ExportSource, written: WrittenModel) -> None:
        self._source, self._written = source, written
        graph = written.model.graph
        self._infos = {v.name: v for v in (*graph.inputs, *graph.outputs)}
        self._composite = holds_composites(source.graph)
        self._engine: ReferenceEngine | None = None

    def of_file(self, case: Testcase) -> dict[str, list[Piece]] | None:
        """Return the values as the file that the model was made of has them, None where they are not all there."""
        values = case.file_values if self._composite else None
        names = {n: f"input_{k}.pb" for k, n in enumerate(self._written.inputs)}
        names |= {n + EXPECT: f"output_{k}.pb" for k, n in enumerate(self._written.outputs)}
        if values is None or any(n not in values or isinstance(values[n], dict) for n in names):
            return None
        ends = {**self._written.inputs, **{n + EXPECT: new for n, new in self._written.outputs.items()}}
        infos = {n: self._infos[ends[n]] for n in names}
        return {
            path: encode_value(
                ends[n], values[n], infos[n].elem, is_optional=infos[n].held[:1] == (OPTIONAL,)
            )
            for n, path in names.items()
        }

    def of_arrays(self, case: Testcase) -> dict[str, list[Piece]]:
        """Return the values that the graph takes and gives."""
        source, written = self._source, self._written
        expects = {
            n: e for n, e in case.expects.items() if n in written.outputs and not self._is_packed(n, e)
        }
        missing = [n for n in written.outputs if n not in expects]
        if missing:
            self._engine = self._engine or ReferenceEngine(source.graph, list(source.outputs.values()))
            used = {n: v for n, v in case.inputs.items() if n in self._engine.inputs}
            computed = dict(zip(source.outputs, self._engine.run(used), strict=True))
            expects |= {n: computed[n] for n in missing}
        files = {}
        for k, (name, new) in enumerate(written.inputs.items()):
            files[f"input_{k}.pb"] = self._tensor(new, case.inputs[name], name in source.scalars)
        for k, (name, new) in enumerate(written.outputs.items()):
            dtype, value = source.outputs[name].dtype, expects[name]
            if dtype is not None and not dtype.is_quantized and value.dtype != dtype.np:
                value = value.astype(dtype.np)
            files[f"output_{k}.pb"] = self._tensor(new, value, name in source.scalars and value.size == 1)
        return files

    def _is_packed(self, name: str, value: Array) -> bool:
        shape = self._infos[self._written.outputs[name]].shape
        return value.ndim == _PACKED and shape is not None and len(shape) == _PACKED - 1

    def _tensor(self, name: str, value: Array, scalar: bool) -> list[Piece]:
        elem = self._infos[name].elem if self._composite else None
        return encode_tensor(TensorMessage.of(name, value.reshape(()) if scalar else value, elem))


def accept(
    source: OnnxFile, values: Mapping[int, Mapping[str, FileValue]], event: Mapping[str, object]
) -> None:
    """Replace expected values in the data sets beside a model, and record it in ``NAME.accepted.json``.

    Args:
        source: the model.
        values: the new values in the model's types, by data set and output name.
        event: who accepted them, when and why.

    Raises:
        UnsupportedError: a value is text, or not of its type.
    """
    model = Path(str(source.location))
    places = {n: f"output_{k}.pb" for k, n in enumerate(source.outputs)}
    sets = find_sets(model, None, source.inputs, list(places))
    optional = {v.name for v in source.graph.outputs if getattr(v.dtype, "kind", "") == "optional"}
    files: dict[Path, list[Piece]] = {}
    for number, new in values.items():
        for name, value in new.items():
            dtype = source.outputs[name]
            if dtype is None or dtype.name == "String":
                raise UnsupportedError(
                    f"expected values of {name!r} are {dtype}, which data sets are not written in"
                )
            try:
                elem = ElemType(kind_of_dtype(dtype))
                path = sets[number].folder / places[name]
                files[path] = encode_value(name, value, elem, is_optional=name in optional)
            except ValueError as e:
                raise UnsupportedError(f"the new value of {name!r} cannot be written: {e}") from e
    record = json.dumps([*read_accepted(model), event], indent=1)
    # A record of values that were not written any more does less harm than values without a record.
    with replacing(accepted_file(model)) as file:
        file.write(record.encode())
    for path, pieces in files.items():
        _write(path, pieces)


def _remove_older(model: Path, count: int) -> None:
    """Remove data sets of an earlier model of that name, which are none of this one; folders with other files stay."""
    for entry in sets_in(model.parent, model.stem):
        number = entry.name.removeprefix(set_name(model.stem))
        if int(number) < count or entry.is_symlink():
            continue
        files = list(entry.iterdir())
        if all(
            (f.name == FILE or re.fullmatch(r"(in|out)put_\d+\.pb", f.name)) and f.is_file() for f in files
        ):
            for file in files:
                file.unlink()
            entry.rmdir()


def _misfit(source: ExportSource, written: WrittenModel, inputs: Mapping[str, Array]) -> str:
    """Say why the model does not take these values; empty if it does."""
    if missing := [n for n in written.inputs if n not in inputs]:
        return f"which has no value for {missing[0]!r}"
    declared = {v.name: v.shape for v in written.model.graph.inputs}
    for name, value in inputs.items():
        shape = declared[written.inputs[name]]
        if shape is None or name in source.scalars:
            continue
        if len(shape) != value.ndim or any(
            isinstance(n, int) and n != m for n, m in zip(shape, value.shape, strict=True)
        ):
            sizes = ["?" if n is None else n for n in shape]
            return f"whose {name!r} has shape {list(value.shape)}, while the model takes {sizes}"
    return ""


def _write(path: Path, pieces: Iterable[Piece]) -> None:
    with replacing(path) as file:
        file.writelines(pieces)
