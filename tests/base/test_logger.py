"""Messages of the library."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import loadrun
from loadrun.base.logger import MegEngineLogFormatter, enable_debug_log, replace_mgb_log_level


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
    assert lines[0].endswith("\x1b[0mplain")
    assert lines[1].endswith("\x1b[1;31mWRN careful 7\x1b[0m")


def test_levels(logger: logging.Logger, stream: io.StringIO) -> None:
    assert loadrun.megengine.set_log_level(logging.ERROR) == "INFO"
    logger.warning("quiet")
    assert loadrun.megengine.set_log_level(logging.DEBUG, update_existing=False) == logging.ERROR
    logger.warning("quiet")
    enable_debug_log()
    logger.debug("loud")
    assert stream.getvalue().count("\n") == 1
    inner = logging.getLogger("megbrain")
    before = inner.level
    with replace_mgb_log_level(logging.ERROR):
        assert inner.level == logging.ERROR
    assert inner.level == before


def test_file(logger: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    loadrun.megengine.set_log_file(str(path))
    logger.error("to both")
    logger.info("long\n" + "\n".join(["x"] * 300))
    opened = MegEngineLogFormatter.log_fout
    loadrun.megengine.set_log_file(None)
    assert opened.closed
    text = path.read_text()
    assert "@test_logger.py:loadrun.test.logger] ERR to both\n" in text
    assert "BEGIN_LONG_LOG_300_LINES{" in text
    assert "\x1b" not in text


def test_long_messages_are_shortened(logger: logging.Logger, stream: io.StringIO) -> None:
    logger.info("\n".join(map(str, range(1000))))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 257
    assert "744 lines left out" in lines[128]
    assert lines[-1].endswith("999\x1b[0m") or lines[-1].endswith("999")


def test_errors_show_where(logger: logging.Logger, stream: io.StringIO) -> None:
    try:
        raise ValueError("here")
    except ValueError:
        logger.exception("failed")
    assert "\x1b[34m  Traceback" in stream.getvalue()
