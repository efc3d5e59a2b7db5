"""What a report keeps of a model's files, so that `--resume` runs again what changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from loadrun.base.states import state_of


def test_what_may_belong_to_all_models_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [tmp_path / f"m{i}.mge" for i in range(20)]
    free = [tmp_path / f"x{i}.npy" for i in range(20)]
    for file in (*models, *free):
        file.touch()
    stat, looked = os.stat, []
    monkeypatch.setattr(os, "stat", lambda path, **kwargs: (looked.append(path), stat(path, **kwargs))[1])
    known: dict[str, bytes] = {}
    states = [state_of(m, known=known) for m in models]
    monkeypatch.undo()
    # Is it a folder, and what is it like.
    assert sum(os.fspath(p).endswith(".npy") for p in looked) <= 2 * len(free)
    assert states == [state_of(m) for m in models]
    free[7].write_bytes(b"1")
    assert not {*states} & {state_of(m) for m in models}


def test_a_file_of_the_same_size_and_age_is_another_one(tmp_path: Path) -> None:
    model = tmp_path / "m.mge"
    model.write_bytes(b"old")
    before, age = state_of(model), model.stat().st_mtime_ns
    # Clocks of file systems tick every few milliseconds.
    time.sleep(0.05)
    model.write_bytes(b"new")
    os.utime(model, ns=(age, age))
    assert model.stat().st_mtime_ns == age
    assert state_of(model) != before
