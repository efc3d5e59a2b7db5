"""Files that are mapped into memory: which one an array is a view of, and giving back their pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadrun.base import files
from loadrun.base.files import give_back_pages, mapped_at, mapped_file


def test_an_array_knows_the_file_that_it_is_a_view_of(tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_bytes(bytes(range(200)) * 100)
    data, _ = mapped_file(path, "weights")
    view = np.frombuffer(data[64:128], np.uint8)
    assert mapped_at(view) == (str(path), 64)
    assert mapped_at(view.view("<f4")[2:]) == (str(path), 72)
    assert mapped_at(view.copy()) is None
    assert mapped_at(view[::2]) is None
    copied, _ = mapped_file(path, "weights", True)
    assert mapped_at(np.frombuffer(copied, np.uint8)) is None


def test_pages_that_were_given_back_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LARGE", 1)
    content = np.random.default_rng(0).integers(0, 256, 1 << 20, dtype=np.uint8)
    (tmp_path / "w").write_bytes(content.tobytes())
    data, _ = mapped_file(tmp_path / "w", "weights")
    view = np.frombuffer(data, np.uint8)
    assert int(view.sum()) == int(content.sum())
    give_back_pages()
    np.testing.assert_array_equal(view, content)


def test_a_file_that_is_no_longer_mapped_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(bytes(4096))
    before = dict(files._mapped)
    data, _ = mapped_file(tmp_path / "w", "weights")
    assert len(files._mapped) == len(before) + 1
    del data
    assert files._mapped.keys() == before.keys()
