"""Expected values from anywhere: files that hold what a model must give."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...base import schema
from ...base.errors import FormatError, InputError, SpecError, UsageError, clean
from ...base.files import contents
from ...base.seals import require_digest, unsealed
from ...compare.record import ABOUT
from ...graph import Graph, StoredTensor, Var
from ...graph.dtypes import Array
from ...graph.params import Host2DeviceCopy
from ...inputs.lists import LocatedSpec, expand
from ...inputs.loading import Loader
from ...inputspec import InputPart, InputSpec, PathSource
from ...ops.infer import infer_dtypes
from ...passes.constants import bare
from ...testcase import EXPECT, Bundle

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
