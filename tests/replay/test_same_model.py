"""Files that hold the same model with other testcases: it is read and prepared once, and each is judged by its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import FormatError
from loadrun.dump import container, load_all
from loadrun.replay.reporting import Closed, Event, Replayed, Task
from loadrun.replay.serial import Replayer

MLP = Path("fixtures/nets/mlp.mge")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The same model in a and c; b expects something else; d has other weights."""
    data = MLP.read_bytes()
    bundle = loadrun.load(MLP)
    expected = bundle.testcases[1].arrays["out:expect"]
    weights = next(
        o.tensors[0] for o in bundle.graph.oprs if o.type == "ImmutableTensor" and o.tensors
    ).value()
    wrong = data.replace(expected.tobytes(), (expected + np.float32(1)).tobytes())
    other = data.replace(weights.tobytes(), (weights * np.float32(2)).tobytes())
    assert len({data, wrong, other}) == 3
    for name, content in {"a": data, "b": wrong, "c": data, "d": other}.items():
        (tmp_path / f"{name}.mge").write_bytes(content)
    return tmp_path


def verdicts(events: list[Event]) -> list[str]:
    return [e.result.verdict.value for e in events if isinstance(e, Replayed)]


def test_each_file_is_judged_by_its_own_testcases(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = []
    finish = container._finish
    monkeypatch.setattr(container, "_finish", lambda bundle: graphs.append(bundle.graph) or finish(bundle))
    replayer = Replayer()
    found = {n: verdicts([*replayer.events(Task(str(folder / f"{n}.mge")))]) for n in "abcda"}
    assert found["a"] == found["c"] == ["pass"] * 3
    assert found["b"] == ["pass", "fail", "pass"]
    assert found["d"] == ["fail"] * 3
    assert graphs[0] is graphs[1] is graphs[2]
    assert len(set(map(id, graphs))) == 3, "d is another model, and a was let go for it"


def test_policies_of_a_run_hold(folder: Path) -> None:
    replayer = Replayer()
    assert verdicts([*replayer.events(Task(str(folder / "a.mge")))]) == ["pass"] * 3
    strict = loadrun.Runner(load_all(folder / "c.mge", like=loadrun.load(folder / "a.mge"))[0])
    assert [r.verdict.value for r in strict.replay()] == ["pass"] * 3


def test_a_file_that_changed_is_not_shared(folder: Path) -> None:
    first = loadrun.load(folder / "a.mge")
    later = os.stat(folder / "a.mge").st_mtime_ns + 10**9
    os.utime(folder / "a.mge", ns=(later, later))
    second = load_all(folder / "c.mge", like=first)[0]
    assert second.graph is not first.graph
    second.require_unchanged()


def test_a_shared_model_is_watched(folder: Path) -> None:
    first = loadrun.load(folder / "a.mge")
    second = load_all(folder / "c.mge", like=first)[0]
    assert second.graph is first.graph
    later = os.stat(folder / "a.mge").st_mtime_ns + 10**9
    os.utime(folder / "a.mge", ns=(later, later))
    with pytest.raises(FormatError, match="written to while it was in use") as e:
        second.require_unchanged()
    assert e.value.path == str(folder / "a.mge")


def test_a_broken_file_behind_the_same_model(folder: Path) -> None:
    data = (folder / "a.mge").read_bytes()
    (folder / "e.mge").write_bytes(data[:-100])
    replayer = Replayer()
    list(replayer.events(Task(str(folder / "a.mge"))))
    last = list(replayer.events(Task(str(folder / "e.mge"))))[-1]
    assert isinstance(last, Closed)
    assert last.failure is not None
    assert "truncated" in last.failure.message


def test_the_first_of_them_may_be_removed(folder: Path) -> None:
    replayer = Replayer()
    list(replayer.events(Task(str(folder / "a.mge"))))
    (folder / "a.mge").unlink()
    assert verdicts([*replayer.events(Task(str(folder / "c.mge")))]) == ["pass"] * 3
    shutil.copy(folder / "d.mge", folder / "a.mge")
    assert verdicts([*replayer.events(Task(str(folder / "c.mge")))]) == ["pass"] * 3
