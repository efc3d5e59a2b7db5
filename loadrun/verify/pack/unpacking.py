"""Taking a packed file apart, and reading expected values that are given for one."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...base import schema
from ...base.errors import FormatError, InputError, SpecError, UsageError, clean
from ...base.files import contents, one_file
from ...base.plain import plain
from ...base.seals import require_digest, seal, unsealed
from ...base.writing import FileNames, new_folder
from ...compare.record import ABOUT, header
from ...dump import load_all, save
from ...dump.container import load_dump
from ...graph import Graph, StoredTensor, Var
from ...graph.dtypes import Array
from ...graph.params import Host2DeviceCopy
from ...inputs.feeds import ModelOptions
from ...inputs.lists import LocatedSpec, expand
from ...inputs.loading import Loader
from ...inputspec import InputPart, InputSpec, PathSource
from ...ops.infer import infer_dtypes
from ...passes.constants import bare
from ...testcase import EXPECT, Bundle, Testcase

UNPACKED = "testcases.json"
"""The file that `loadrun convert` describes testcases in."""


def expected_cases(
    specs: Sequence[str], bundle: Bundle, seed: int, warn: Callable[[str], None]
) -> Iterator[dict[str, Array]]:
    """Load expected values, written as input specifications are: ``logits:golden.npy``, one for each testcase.

    Args:
        specs: texts; list files are as many as they have lines; ``testcases.json`` of an unpacked file stands for
            the expected values that the file had.
        bundle: the model whose outputs they are for.
        seed: seed of generated data.
        warn: called with what deserves a look.

    Raises:
        SpecError: a text is malformed.
        UsageError: a name is that of no output.
        InputError: a file cannot be read, or holds what the output cannot be, such as 0.5 for an integer.
    """
    model = bare(bundle)
    infer_dtypes(model.needed())
    outputs = Bundle(model).outputs
    names = list(outputs)
    graph = Graph()
    known = {name: _like(graph, name, var) for name, var in outputs.items()}
    for case in _located(specs):
        parts = [p.name for p in case.spec.parts]
        wanted = [n for n in parts if n] or names[:1]
        if len(names) > 1 and not all(parts):
            raise SpecError(
                f"{case.where or 'an expected value'}: the model has {len(names)} outputs; say which one"
            )
        for name in wanted:
            if name not in known:
                raise UsageError(
                    f"there is an expected value for {name!r}, but the outputs are {', '.join(map(repr, names))}"
                )
        yield Loader([known[n] for n in wanted], 1, False, None, seed, warn, exact=True).load(case, 0)


def _located(specs: Sequence[str]) -> Iterator[LocatedSpec]:
    for text in specs:
        if Path(text).name == UNPACKED:
            yield from _unpacked(Path(text))
        else:
            yield from expand([text])


def _unpacked(path: Path) -> Iterator[LocatedSpec]:
    """Yield the expected values that the index of an unpacked file names."""
    index = read_index(path)
    for i, values in enumerate(index["testcases"]):
        parts = [
            InputPart(name.removesuffix(EXPECT), PathSource(v["file"]))
            for name, v in values.items()
            if name.endswith(EXPECT)
        ]
        yield LocatedSpec(InputSpec(tuple(parts)), f"{path}: testcase {i}", path.parent)


def _inside(value: object, where: str) -> str:
    """Accept the name of a file of the folder that `unpack` wrote; an index may not lead anywhere else."""
    name = schema.text(value, where)
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise FormatError(f"{where} names {clean(name)}, which is outside its folder")
    return name


_SIZE = schema.integer(0, 1 << 62)
_VALUES = schema.mapping(
    schema.exactly({"file": _inside, "dtype": schema.text, "shape": schema.items(_SIZE)})
)
_CHECK = schema.exactly(
    {"output": schema.text, "maxerr": schema.number(finite=False), "verbose": schema.truth}
)
_INDEX = schema.exactly(
    {
        "model": schema.text,
        "checks": schema.items(_CHECK),
        "record": schema.either(ABOUT),
        "testcases": schema.items(_VALUES),
    }
)


def read_index(path: Path) -> dict[str, Any]:
    """Read the index of an unpacked file.

    Raises:
        InputError: it is damaged, or not what `loadrun convert` wrote.
    """
    text, digest = unsealed(bytes(contents(path, "an index of testcases")))
    try:
        index = _INDEX(json.loads(text), "the index")
        require_digest(text, digest, "the index")
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path} is not an index that `loadrun convert` wrote: {e}") from None
    return index


def _like(graph: Graph, name: str, var: Var) -> Var:
    assert var.dtype is not None
    tensor = StoredTensor(var.dtype, None, name)
    return graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=[name], tensors=[tensor])[0]


@dataclass(frozen=True)
class Unpacked:
    """The description that a folder made by `unpack` gives of the file that it was.

    Attributes:
        model: the model's file.
        inputs: the list of the inputs; None if there are no testcases.
        index: the file that describes the testcases, which `loadrun.verify.pack.unpacking` takes; None without checks.
        maxerr: tolerance of every check.
        policies: texts of policies, ``NAME: TERMS``.
        silent: whether MegEngine prints no errors.
        provenance: where the testcases came from, as the file's record said.
    """

    model: str
    inputs: str | None
    index: str | None
    maxerr: Mapping[str, float]
    policies: tuple[str, ...]
    silent: bool
    provenance: Mapping[str, object]


def read_unpacked(folder: str | os.PathLike[str]) -> Unpacked | None:
    """Read what `unpack` wrote beside a model; None if a folder is another one.

    Raises:
        InputError: the index is damaged, or the folder holds those of several dumps.
    """
    place = Path(folder)
    index = place / UNPACKED
    if not index.is_file():
        several = sorted(str(p.parent) for p in place.glob(f"[0-9]*/{UNPACKED}"))
        if several:
            raise InputError(
                f"{place} holds {len(several)} unpacked dumps; pack each separately, such as {several[0]}, and the "
                "later ones with --append"
            )
        if (place / "inputs.txt").is_file() and (place / "model.mge").is_file():
            raise InputError(f"{index}, which holds the checks and policies of an unpacked file, is missing")
        return None
    about = read_index(index)
    record = about["record"] or {}
    return Unpacked(
        str(place / "model.mge"),
        f"@{place / 'inputs.txt'}" if about["testcases"] else None,
        str(index) if about["checks"] else None,
        {c["output"]: c["maxerr"] for c in about["checks"]},
        tuple(f"{name}: {p['check']}" for name, p in record.get("policy", {}).items() if "check" in p),
        any(not c["verbose"] for c in about["checks"]),
        record.get("provenance", {}),
    )


def unpack(bundle: Bundle, folder: str | os.PathLike[str]) -> list[str]:
    """Write the bare model and every testcase into a new folder.

    It gets ``model.mge``, a folder of .npy files for each testcase, ``inputs.txt``, a list of specifications with
    which `loadrun pack` makes the file again, and ``testcases.json``: dtypes, shapes and files of all values, the
    checks, and what the file's record says.

    Args:
        bundle: what to take apart.
        folder: must be new or empty. It appears when it is complete.

    Returns:
        the names of what was written there.

    Raises:
        UsageError: the folder holds something.
        FormatError: a testcase is damaged.
    """
    with new_folder(_free(folder)) as target:
        _unpack(bundle, target)
        return sorted(p.name for p in target.iterdir())


def unpack_all(bundles: Sequence[Bundle], folder: str | os.PathLike[str]) -> None:
    """Write the dumps of one file into the folders ``1``, ``2`` and so on of a new folder; see `unpack`."""
    with new_folder(_free(folder)) as target:
        for i, bundle in enumerate(bundles, 1):
            (target / str(i)).mkdir()
            _unpack(bundle, target / str(i))


@dataclass(frozen=True, kw_only=True)
class UnpackOptions(ModelOptions):
    """Describe what is unpacked; the options of `ModelOptions` are among these.

    Attributes:
        dump: use the N-th dump of a file that has several, counted from 1; None takes all.
    """

    dump: int | None = None


def unpack_file(
    path: str | os.PathLike[str], folder: str | os.PathLike[str], options: UnpackOptions | None = None
) -> list[int]:
    """Write the model of a file without its checks, and its testcases, into a new folder; see `unpack`.

    Args:
        path: the file.
        folder: must be new or empty. It appears when it is complete; the dumps of a file that holds several get a
            folder each.
        options: which dump.

    Returns:
        how many testcases each dump has.

    Raises:
        UsageError: the folder holds something, or there is no such dump.
        LoadRunError: the file cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     unpack_file("fixtures/nets/mlp.mge", f"{place}/mlp"), sorted(os.listdir(f"{place}/mlp"))
    ([3], ['0', '1', '2', 'inputs.txt', 'model.mge', 'testcases.json'])
    """
    options = options or UnpackOptions()
    if options.dump is None:
        bundles = load_all(one_file(os.fspath(path)), **options.read)
    else:
        bundles = [load_dump(path, options.dump, **options.read)]
    if len(bundles) == 1:
        unpack(bundles[0], folder)
    else:
        unpack_all(bundles, folder)
    return [len(b.testcases) for b in bundles]


def _free(folder: str | os.PathLike[str]) -> Path:
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} already exists; a model is unpacked into a new or empty folder")
    return target


def _unpack(bundle: Bundle, folder: Path) -> None:
    bundle = bundle.lasting()
    model = bare(bundle)
    # In the file that it was, an output without a name of its own had that of its check.
    model.header.has_middle_tensors = True
    save(model, folder / "model.mge")
    _testcases(bundle, folder)


def _testcases(bundle: Bundle, folder: Path) -> None:
    """Write the testcases one at a time; the two lists grow line by line with them."""
    about = {
        "model": "model.mge",
        "checks": [{"output": c.name, "maxerr": c.maxerr, "verbose": c.verbose} for c in bundle.checks],
        "record": header(bundle.record) if isinstance(bundle.record, memoryview) else None,
    }
    with (
        (folder / UNPACKED).open("w+b") as index,
        (folder / "inputs.txt").open("w", encoding="utf-8", errors="surrogateescape") as inputs,
    ):
        index.write(json.dumps(plain(about), indent=1, allow_nan=False)[:-2].encode() + b',\n "testcases": [')
        for i, case in enumerate(bundle.testcases):
            values = _values(case, folder, str(i))
            parts = [
                InputPart(n, PathSource(str(v["file"]))) for n, v in values.items() if not n.endswith(EXPECT)
            ]
            inputs.write(f"{InputSpec(tuple(parts))}\n")
            line = json.dumps(plain(values), allow_nan=False).encode()
            index.write((b"," if i else b"") + b"\n  " + line)
        index.write(b"\n ]}")
        seal(index)


def _values(case: Testcase, folder: Path, number: str) -> dict[str, dict[str, object]]:
    """Write the values of a testcase into a folder of its own."""
    (folder / number).mkdir()
    entries: dict[str, dict[str, object]] = {}
    names = FileNames(plain=True)
    for name, array in case.arrays.items():
        file = names.file(name.replace(EXPECT, ".expect"))
        np.save(folder / number / f"{file}.npy", array, allow_pickle=False)
        dtype, shape = str(case.dtypes[name]), list(array.shape)
        entries[name] = {"file": f"{number}/{file}.npy", "dtype": dtype, "shape": shape}
    return entries
