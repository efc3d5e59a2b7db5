"""Arrays that a test computed before: the fixture ``loadrun_snapshot`` of the plugin for pytest."""

import io
import json
import os
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from ..base.about import author
from ..base.errors import FormatError, UsageError, UsageTypeError
from ..base.files import contents
from ..base.writing import replacing
from ..compare.comparison import compare
from ..compare.judging import Criteria, judge
from ..compare.policy import parse
from ..compare.results import Verdict
from ..compare.tolerances import default_maxerr, magnitude
from ..dump.record import tensor_digest
from ..graph.dtypes import Array, dtype_of

_ROWS = 10
"""Elements of a snapshot that are shown."""


def is_ci(environment: Mapping[str, str]) -> bool:
    """Return whether an environment is that of continuous integration.

    >>> is_ci({"CI": "true"}), is_ci({"CI": "false"}), is_ci({})
    (True, False, False)
    """
    words = (
        environment.get(name, "") for name in ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "JENKINS_URL", "TF_BUILD")
    )
    return any(word.lower() not in ("", "0", "false") for word in words)


class Snapshots:
    """The arrays of one test, as .npy files in the folder ``snapshots`` beside its module.

    Args:
        module: the test's file.
        test: the test's name, with its parameters.
        reason: why new values are right, which replaces those that differ; None compares.
    """

    def __init__(self, module: Path, test: str, reason: str | None) -> None:
        self._folder = module.parent / "snapshots" / module.stem
        self._test, self._reason = test, reason
        self._names: set[str] = set()

    def check(self, value: object, name: str = "", check: str = "") -> None:
        """Compare an array with the one that was stored; one that is not there is written, and fails this once.

        Args:
            value: the array, of numbers or truth values; what `numpy.asarray` takes; or a mapping of such, each a
                snapshot by its key.
            name: what tells several arrays of one test apart.
            check: the terms of a policy, as `loadrun --check` takes them; default is ``maxerr<=1e-4`` by MegEngine's
                measure for floats, and ``exact`` for others.

        Raises:
            AssertionError: dtype, shape or values differ, or there is no stored array.
            UsageError: two arrays of a test have one name, the values are no numbers, or the terms make no sense.
        """
        __tracebackhide__ = True
        if isinstance(value, Mapping):
            self._check_each(value, name, check)
            return
        for what, text in (("name", name), ("check", check)):
            if not isinstance(text, str):
                raise UsageTypeError(f"the {what} of a snapshot must be a text, found {type(text).__name__}")
        try:
            array = np.asarray(value)
        except ValueError as e:
            raise UsageError(f"the value of a snapshot is not an array: {e}") from None
        if array.dtype.kind not in "biuf":
            raise UsageError(f"snapshots are of numbers or truth values, found {array.dtype}")
        if name in self._names:
            raise UsageError(f"{self._test} has two snapshots {name!r}; give each a name")
        self._names.add(name)
        path = self._folder / f"{_file_name(self._test)}{'.' + _file_name(name) if name else ''}.npy"
        before = _read(path)
        why = "there is none" if before is None else _difference(before, array, name, check)
        if not why:
            return
        if self._reason is not None:
            self._accept(path, before, array, self._reason)
            return
        if before is None and not is_ci(os.environ):
            self._accept(path, None, array, "the first run of the test")
            raise AssertionError(
                f"{path}: there was none, so it was written; look at it, and run the test again"
            )
        raise AssertionError(f"{path}: {why}\n`pytest --loadrun-update` writes what the test computes now")

    __call__ = check

    def _check_each(self, values: Mapping[object, object], name: str, check: str) -> None:
        """Compare all values of a mapping, and tell of all that differ."""
        __tracebackhide__ = True
        said = []
        for key, value in values.items():
            try:
                self.check(value, f"{name}.{key}" if name else str(key), check)
            except AssertionError as e:
                said.append(str(e))
        if said:
            raise AssertionError("\n".join(said))

    def _accept(self, path: Path, before: Array | None, after: Array, why: str) -> None:
        """Store an array, and who accepted it, when and why."""
        path.parent.mkdir(parents=True, exist_ok=True)
        event = {
            "by": author(),
            "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "reason": why,
            "file": path.name,
            "before": None if before is None else tensor_digest(before),
            "after": tensor_digest(after),
        }
        record = path.parent / "accepted.jsonl"
        events = contents(record, "the record") if record.is_file() else b""
        with replacing(record) as file:
            file.write(bytes(events) + json.dumps(event).encode() + b"\n")
        data = io.BytesIO()
        np.save(data, after, allow_pickle=False)
        with replacing(path) as file:
            file.write(data.getbuffer())


def _read(path: Path) -> Array | None:
    if not path.is_file():
        return None
    data = io.BytesIO(contents(path, "a snapshot"))
    try:
        stored: Array = np.lib.format.read_array(data, allow_pickle=False)
    except (ValueError, EOFError, MemoryError) as e:
        raise FormatError(f"not a .npy file: {e}", path=os.fspath(path)) from None
    return stored


def _difference(expect: Array, got: Array, name: str, check: str) -> str:
    """Say how an array differs from the stored one; empty if it fulfils the policy."""
    if (expect.dtype, expect.shape) != (got.dtype, got.shape):
        return f"expected {expect.dtype} {list(expect.shape)}, found {got.dtype} {list(got.shape)}"
    usual = default_maxerr(magnitude(expect))
    policy = parse(check or ("exact" if got.dtype.kind != "f" else f"maxerr={usual}"))
    if not got.size:
        return ""
    maxerr = policy.maxerr if policy.maxerr is not None else policy.covering
    criteria = Criteria(name, dtype_of(got), usual if maxerr is None else maxerr, policy=policy, loosen=True)
    result = judge(criteria, expect, got)
    if result.verdict is Verdict.PASS:
        return ""
    said = "; ".join(filter(None, (result.reason, *result.notes))) or str(compare(expect, got))
    return f"{said}\n{_rows(expect, got)}"


def _rows(expect: Array, got: Array) -> str:
    """Return a table of the elements that differ, those that differ most first."""
    from tabulate import tabulate  # for start-up

    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(np.float64) - expect.astype(np.float64)).reshape(-1)
    differs = np.flatnonzero((expect != got).reshape(-1) & ~((expect != expect) & (got != got)).reshape(-1))
    worst = differs[np.argsort(-np.nan_to_num(apart[differs], nan=np.inf), kind="stable")]
    rows = [
        (str([*map(int, np.unravel_index(i, got.shape))]), expect.flat[i], got.flat[i], f"{apart[i]:.6g}")
        for i in worst[:_ROWS]
    ]
    more = f"\nand {len(worst) - _ROWS} more" if len(worst) > _ROWS else ""
    heads = ("index", "expected", "obtained", "difference")
    return tabulate([[*map(str, row)] for row in rows], heads, "simple", disable_numparse=True) + more


def _file_name(name: str) -> str:
    """Return a name that every file system takes, another one for each other name."""
    plain = re.sub(r"[^\w.\[\]-]", "_", name)[:120]
    if plain == name:
        return plain
    raw = np.frombuffer(name.encode("utf-8", "surrogatepass"), np.uint8)
    return f"{plain}-{tensor_digest(raw)[:8]}"
