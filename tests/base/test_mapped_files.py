"""Files that are mapped into memory: giving back their pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadrun.base import files
from loadrun.base.files import give_back_pages, mapped_file


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
    before = set(files._mapped)
    data, _ = mapped_file(tmp_path / "w", "weights")
    assert len(files._mapped) == len(before) + 1
    del data
    assert set(files._mapped) == before
