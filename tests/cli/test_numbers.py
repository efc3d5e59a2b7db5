"""Numbers of options: what is none is a usage error, whichever option takes it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.cli.parsers import parsers
from loadrun.verify.reduce import ReduceOptions, reduce_file

MLP = "fixtures/nets/mlp.mge"


def numeric() -> Iterator[tuple[str, argparse.Action]]:
    """Options that take a number, or several separated by commas, by command and name."""
    for command, (_, parser) in parsers().items():
        for action in parser._actions:
            if not callable(action.type):
                continue
            with suppress(argparse.ArgumentTypeError, ValueError):
                value = action.type("2")
                if isinstance(value[0] if isinstance(value, (list, tuple)) else value, (int, float)):
                    yield f"{command} {action.option_strings[0]}", action


OPTIONS = dict(numeric())


def test_the_options_with_numbers_are_found() -> None:
    named = {"run --timeout", "reduce --timeout", "bench --min-time", "bench --threads", "audit --mutants"}
    assert named <= set(OPTIONS)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1", "1e999", "", "9" * 5000])
@pytest.mark.parametrize("option", OPTIONS)
def test_what_is_no_number_is_refused(option: str, text: str) -> None:
    action = OPTIONS[option]
    assert callable(action.type)
    if "--range" in action.option_strings and text == "inf":
        # The limit that only NaN and infinity are beyond.
        assert action.type(text) == float("inf")
        return
    with pytest.raises(argparse.ArgumentTypeError, match="expected"):
        action.type(text)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (
            ["reduce", MLP, "-o", "x.mge", "--fails", "false", "--timeout", "nan"],
            "seconds above 0, found 'nan'",
        ),
        (
            ["reduce", MLP, "-o", "x.mge", "--fails", "false", "--timeout", "-1"],
            "seconds above 0, found '-1'",
        ),
        (["report", "a.json", "b.json", "--max-slowdown", "nan"], "1.1x, found 'nan'"),
        (["report", "a.json", "b.json", "--max-slowdown", "-5"], "1.1x, found '-5'"),
        (["pack", MLP, "-o", "x.mge", "--maxerr", "nan"], "at least 0, found 'nan'"),
        (["pack", MLP, "-o", "x.mge", "--maxerr", "out=-1"], "at least 0, found '-1'"),
        ([MLP, "--iter", "9" * 20], "a whole number of at least 0, found '9999"),
        ([MLP, "--batch-size", "0"], "a whole number of at least 1, found '0'"),
    ],
)
def test_the_exit_code_is_that_of_usage_errors(
    typed: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed) == 2
    assert expected in capsys.readouterr().err


def test_a_record_of_options_is_checked_where_it_is_used(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="timeout must be above 0, found -1"):
        reduce_file(MLP, tmp_path / "x.mge", ReduceOptions(fails="false", timeout=-1.0))
    assert not (tmp_path / "x.mge").exists()
