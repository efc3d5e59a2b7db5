"""Messages of the library."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import loadrun
from loadrun.base.logger import enable_debug_log


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def logger(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    found = loadrun.megengine.get_logger("loadrun.test.logger")
    monkeypatch.setattr(found.handlers[0], "stream", stream)
    before = loadrun.megengine.set_log_level("INFO")
    yield found
    loadrun.megengine.set_log_level(before)
    loadrun.megengine.set_log_file(None)


def test_messages(logger: logging.Logger, stream: io.StringIO) -> None:
    assert loadrun.megengine.get_logger("loadrun.test.logger") is logger
    assert not logger.propagate
    logger.debug("quiet")
    logger.info("plain")
    logger.warning("careful %d", 7)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith(" INFO plain")
    assert lines[1].endswith(" WARNING careful 7")


def test_levels(logger: logging.Logger, stream: io.StringIO) -> None:
    assert loadrun.megengine.set_log_level(logging.ERROR) == "INFO"
    logger.warning("quiet")
    assert loadrun.megengine.set_log_level(logging.DEBUG, update_existing=False) == logging.ERROR
    logger.warning("quiet")
    enable_debug_log()
    logger.debug("loud")
    assert stream.getvalue().count("\n") == 1


def test_file(logger: logging.Logger, tmp_path: Path) -> None:
    path, opened = tmp_path / "log.txt", io.StringIO()
    loadrun.megengine.set_log_file(str(path))
    logger.error("to both")
    loadrun.megengine.get_logger("loadrun.test.later").error("from a later one")
    loadrun.megengine.set_log_file(opened)
    logger.info("to the open one")
    loadrun.megengine.set_log_file(None)
    logger.info("to none")
    assert [line.partition("ERROR ")[2] for line in path.read_text().splitlines()] == [
        "to both",
        "from a later one",
    ]
    assert opened.getvalue().endswith(" INFO to the open one\n")
