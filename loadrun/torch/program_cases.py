"""The testcases in the archive of an exported program (.pt2), beside what torch keeps there."""

import io
import json
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base.errors import FormatError
from ..base.schema import anything, exactly, integer, items, mapping, number, text
from ..base.seals import require_digest, sealed, unsealed
from ..base.writing import replacing, temporary
from ..graph.dtypes import Array
from ..testcase import EXPECT, SourceFile

_PLACE, _FORMAT = "loadrun/", 1
"""Not below ``extra/``: torch reads files there as text."""
_PROMISE = "loadrun/testcases.json "
"""What the archive's comment begins with, which promises testcases; the digest of their index comes next."""


def accept(
    source: SourceFile, values: Mapping[int, Mapping[str, Array]], event: Mapping[str, object]
) -> None:
    """Replace expected values in an archive, and record it there.

    Args:
        source: the program.
        values: the new values in torch's types, by testcase and output name.
        event: who accepted them, when and why.
    """
    path = str(source.location)
    kept = read_cases(path)
    assert kept is not None
    cases = [
        {**case, **{n + EXPECT: v for n, v in values.get(i, {}).items()}} for i, case in enumerate(kept.cases)
    ]
    with temporary() as file:
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(file, "w") as new:
            for info in old.infolist():
                if f"/{_PLACE}" not in info.filename:
                    new.writestr(info, old.read(info))
        append_cases(file, cases, {"maxerr": kept.limits, "accepted": [*kept.accepted, event]})
        file.seek(0)
        with replacing(path) as target:
            shutil.copyfileobj(file, target)


def append_cases(file: Any, values: Sequence[Mapping[str, Array]], about: Mapping[str, object]) -> None:
    """Append testcases to the records of a program's archive, and what is said about them."""
    with zipfile.ZipFile(file, "a") as archive:
        root = next(n for n in archive.namelist() if n.endswith("archive_format"))
        place = root[: -len("archive_format")] + _PLACE
        listed: list[dict[str, str]] = []
        for i, case in enumerate(values):
            listed.append({})
            for k, (name, value) in enumerate(case.items()):
                listed[-1][name] = f"{i}.{k}.npy"
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, value, allow_pickle=False)
                archive.writestr(f"{place}{i}.{k}.npy", buffer.getbuffer())
        index = sealed(json.dumps({"format": _FORMAT, **about, "testcases": listed}))
        archive.writestr(f"{place}testcases.json", index)
        _, digest = unsealed(index.encode())
        archive.comment = f"{_PROMISE}{digest}".encode()


_TESTCASES = exactly(
    {"format": integer(_FORMAT, _FORMAT), "testcases": items(mapping(text)), "maxerr": mapping(number(0.0))},
    {"accepted": items(mapping(anything))},
)


class RecordedCases(NamedTuple):
    """What was saved with a program: testcases, tolerances, and who accepted new expected values."""

    cases: list[dict[str, Array]]
    limits: dict[str, float]
    accepted: list[object]


def read_cases(file: Any) -> RecordedCases | None:
    """Read the testcases and tolerances of an archive, or None if there are none.

    Raises:
        FormatError: they are damaged.
    """
    with zipfile.ZipFile(file) as archive:
        names = [n for n in archive.namelist() if n.endswith(f"{_PLACE}testcases.json")]
        promised = archive.comment.startswith(_PROMISE.encode())
        if not names:
            if promised:
                raise FormatError("the testcases that the archive promises are missing: restore the file")
            return None
        place = names[0][: -len("testcases.json")]
        try:
            index, digest = unsealed(archive.read(names[0]))
            about = _TESTCASES(json.loads(index), "testcases.json")
            files = [f for listed in about["testcases"] for f in listed.values()]
            if len({*files}) != len(files):
                raise FormatError("testcases.json: a file is the value of two names")
            cases = []
            for listed in about["testcases"]:
                data = {n: io.BytesIO(archive.read(place + f)) for n, f in listed.items()}
                cases.append({n: np.lib.format.read_array(f, allow_pickle=False) for n, f in data.items()})
            require_digest(index, digest, "testcases.json")
            if promised and archive.comment != f"{_PROMISE}{digest}".encode():
                raise FormatError("testcases.json does not have the digest that the archive promises")
            return RecordedCases(cases, about["maxerr"], about.get("accepted", []))
        except (KeyError, TypeError, ValueError, RecursionError) as e:
            why = str(e) if isinstance(e, FormatError) else f"{type(e).__name__}: {e}"
            raise FormatError(f"the testcases in it are damaged: {why}") from e
