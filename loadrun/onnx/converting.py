"""Conversion of a model to another format, by file extension."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..base.errors import UsageError, clean
from ..base.files import MODELS, one_file
from ..base.proving import proving
from ..base.stages import stage
from ..dump import save
from ..dump.container import load_dump
from ..dump.options import DumpOptions, DumpResult
from ..inputs.feeds import ModelOptions
from ..testcase import Bundle
from .exported import Exported
from .exporting import export

_WRITTEN = (".mge", ".onnx")


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(ModelOptions):
    """Describe how a model is converted; the options of `ModelOptions` are among these.

    Attributes:
        dump: use the N-th dump of a file that has several, counted from 1.
        format: format version of a .mge file (default: that of A, or FBS_V2).
        opset: opset version, 7 to 26 (default: 18 or later).
        dynamic: make an axis dynamic, such as data:0=batch (default: axes in which the testcases of A differ). In
            Python, names of axes: ``{"data": {0: "batch"}}``.
        external_data: store the weights in a separate file.
        narrow: store 64-bit numbers in 32 bits in a .mge file even where that changes values; the record says so.
        prove: how much is proven before a file is written: nothing, what a second allows, or data of every kind; see
            `loadrun.proof`.
    """

    dump: int | None = None
    format: str | None = None
    opset: int | None = None
    dynamic: Mapping[str, Mapping[int, str]] | None = None
    external_data: bool = False
    narrow: bool = False
    prove: str = "quick"


@dataclass(frozen=True)
class Converted:
    """The result of a conversion; one of the first two is set.

    Attributes:
        dump: the counts of a .mge file.
        exported: what the export to ONNX says.
        missed: what the source holds to be compared, and the file that was written does not, such as a data set whose
            folder is missing.
    """

    dump: DumpResult | None = None
    exported: Exported | None = None
    missed: tuple[str, ...] = ()


def convert_file(
    source: str | os.PathLike[str], target: str | os.PathLike[str], options: ConvertOptions | None = None
) -> Converted:
    """Write the model of a file in another format; testcases go along.

    Args:
        source: the file to read.
        target: the file to write; file name endings tell the formats: ``.mge`` or ``.onnx``, and ``.pt2`` for a source.
        options: how.

    Raises:
        UsageError: the endings name no conversion, or options are for another one.
        LoadRunError: the model cannot be read or written; the target is as it was.

    >>> import loadrun, os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model, again = os.path.join(folder, "a.onnx"), os.path.join(folder, "b.mge")
    ...     made = convert_file("fixtures/nets/mlp.mge", model, ConvertOptions(opset=17))
    ...     back = convert_file(model, again)
    ...     verdicts = [r.verdict.value for r in loadrun.run(again)]
    >>> made.exported.opset_version, back.dump.testcases, verdicts
    (17, 3, ['pass', 'pass', 'pass'])
    """
    options = options or ConvertOptions()
    path = one_file(os.fspath(source))
    _ending(path, MODELS)
    ending = _ending(os.fspath(target), _WRITTEN)
    onnx_options = [n for n in ("opset", "dynamic", "external_data") if getattr(options, n)]
    if ending == ".mge" and onnx_options:
        raise UsageError(f"--{onnx_options[0].replace('_', '-')} applies to .onnx files only")
    if ending == ".onnx" and (options.format or options.narrow):
        raise UsageError(f"--{'format' if options.format else 'narrow'} applies to .mge files only")
    with stage(f"reading {path}"):
        bundle = load_dump(path, options.dump, **options.read)
    with stage(f"writing {os.fspath(target)}"), proving(options.prove):
        return replace(_written(bundle, target, ending, options), missed=tuple(bundle.facts.missed))


def _written(
    bundle: Bundle, target: str | os.PathLike[str], ending: str, options: ConvertOptions
) -> Converted:
    if ending == ".mge":
        return Converted(dump=save(bundle, target, DumpOptions(narrow=options.narrow), format=options.format))
    exported = export(
        bundle,
        f=target,
        opset_version=options.opset,
        dynamic_axes=options.dynamic,
        external_data=options.external_data,
    )
    return Converted(exported=exported)


def _ending(path: str, known: Sequence[str]) -> str:
    """Return the file extension of a name.

    Raises:
        UsageError: it names no format.
    """
    extension = os.path.splitext(path)[1].lower()
    if extension not in known:
        raise UsageError(f"{clean(path, 200)}: the name must end in {' or '.join(known)} to tell the format")
    return extension
