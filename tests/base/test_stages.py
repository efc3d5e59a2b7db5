"""The line that tells what a long call is at."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from loadrun.base import stages
from loadrun.base.stages import counted, stage, tell
from loadrun.cli.groups import limited
from loadrun.verify.pack.options import PackOptions


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_for(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of standard error; pytest would take back what a fixture puts there."""
    out = Terminal()
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(stages, "_AFTER", 0.02)
    monkeypatch.setattr(stages, "_EVERY", 0.02)
    return out


def shown(out: Terminal) -> list[str]:
    """What the line said, repetitions left out; the last entry tells that it was removed."""
    lines = [x.partition(" (")[0].strip() for x in out.getvalue().replace("\r\r", "\r").split("\r")[1:-1]]
    return [x for i, x in enumerate(lines) if i == 0 or x != lines[i - 1]]


def wait(out: Terminal, text: str) -> None:
    until = time.monotonic() + 20
    while text not in out.getvalue() and time.monotonic() < until:
        time.sleep(0.005)


def test_innermost_stage_is_shown_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    with stage("outer"):
        wait(terminal, "outer")
        for item in counted("ab", 2, "case"):
            wait(terminal, f"case {'ab'.index(item) + 1}/2")
    assert shown(terminal) == ["outer", "case 1/2", "case 2/2", ""]


@pytest.mark.parametrize(
    ("began", "text"), [(lambda: limited(doing="comparing"), "comparing"), (PackOptions().limited, "packing")]
)
def test_commands_show_what_takes_long(
    monkeypatch: pytest.MonkeyPatch, began: Callable[[], AbstractContextManager[None]], text: str
) -> None:
    terminal = terminal_for(monkeypatch)
    with began():
        wait(terminal, text)
    assert shown(terminal) == [text, ""]


def test_a_stage_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    tell("nothing to tell")
    with stage("measuring"):
        for part in ("measuring 10%", "measuring 90%"):
            tell(part)
            wait(terminal, part)
    assert shown(terminal) == ["measuring 10%", "measuring 90%", ""]


def test_short_calls_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    monkeypatch.setattr(stages, "_AFTER", 30)
    with stage("short"):
        pass
    assert terminal.getvalue() == ""


def test_files_and_other_threads_get_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)

    def other() -> None:
        with stage("elsewhere"):
            time.sleep(0.1)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with stage("into a file"):
        assert stages._NAME not in [t.name for t in threading.enumerate()]
    assert terminal.getvalue() == ""
