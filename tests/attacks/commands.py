"""Command lines to fuzz: options of the parsers themselves, with values that they take and values that they do not."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from loadrun.base.errors import LoadRunError
from loadrun.cli import main
from loadrun.cli.parsers import options, parsers
from loadrun.dump import load
from loadrun.onnx import export

__all__ = ["command", "take_command"]

NETS = Path(__file__).resolve().parents[2] / "fixtures" / "nets"
LEFT_OUT = {
    "--jobs",
    "--max-memory",
    "--threads",
    "--timeout",
    "--help",
    "--version",
}
"""Options that start processes or change this one."""
CODES = {0, 1, 2, 3, 4, 5}
FILES = [
    "mlp.mge",
    "m.onnx",
    "x.npy",
    "cut.mge",
    "empty.mge",
    "list.txt",
    "r.json",
    "r.jsonl",
    "results",
    "folder",
]
VALUES = [
    *(
        "0",
        "1",
        "2",
        "-1",
        "1e-3",
        "nan",
        "inf",
        "10%",
        "1.1x",
        "99999999999999999999",
        "",
        " ",
        "é",
        "\udcff",
        "\x1b[2J",
    ),
    *(
        "reference",
        "wide",
        "reference,wide",
        "bogus",
        "onnxruntime",
        "out",
        "data",
        "x",
        "*",
        "-",
        ".",
        "/dev/null",
    ),
    *(
        "#ones",
        "#rand(0,1)",
        "data:#ones",
        "@list.txt",
        "out: atol=1e-3",
        "out: exact",
        "cosine>=0.9",
        "out:x.npy",
    ),
    *(
        "data=1,1,28,28",
        "1x3",
        "n=2",
        "basic",
        "ADD",
        "{}",
        "[1,2]",
        "a:b:c",
        "missing.mge",
        "folder/new.mge",
    ),
]


@cache
def _exported() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        export(load(NETS / "mlp.mge"), f=f"{folder}/m.onnx")
        return (Path(folder) / "m.onnx").read_bytes()


def _fill(folder: Path) -> None:
    """Write the files that command lines name, good ones and bad ones."""
    whole = (NETS / "mlp.mge").read_bytes()
    (folder / "mlp.mge").write_bytes(whole)
    (folder / "cut.mge").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.mge").touch()
    (folder / "m.onnx").write_bytes(_exported())
    (folder / "list.txt").write_text("#ones\n@list.txt\n")
    (folder / "r.json").write_text('{"files": []}')
    (folder / "r.jsonl").write_text('{"verdict": "pass"}\n')
    (folder / "folder").mkdir()
    (folder / "folder" / "a.mge").write_bytes(whole)
    np.save(folder / "x.npy", np.ones((2, 2), "f4"))


def command(rng: random.Random) -> bytes:
    """Return a command line as JSON: a command, files, and up to four options with one value each."""
    every = {n: p for n, (_, p) in parsers().items() if n != "load_and_run"}
    name = rng.choice([*every, "run", "run"])
    known = [a for a in options(every[name]) if not LEFT_OUT & set(a.option_strings)]
    words = [
        rng.choice([*FILES, *VALUES]) if rng.random() < 0.1 else rng.choice(FILES[:2])
        for _ in range(rng.choice((1, 1, 2)))
    ]
    for action in rng.sample(known, min(len(known), rng.randrange(5))):
        words += [rng.choice(action.option_strings), *_values(rng, action)]
    if name == "bench":
        # It times for seconds otherwise.
        words += ["--min-time", "0", "--min-passes", "1"]
    if rng.random() < 0.2:
        words[rng.randrange(len(words))] = rng.choice(VALUES)
    return json.dumps([name, *words]).encode()


def _values(rng: random.Random, action: argparse.Action) -> list[str]:
    if action.nargs == 0:
        return []
    if action.choices and rng.random() < 0.8:
        return [str(rng.choice(list(action.choices)))]
    if action.type in (int, float) or rng.random() < 0.2:
        return [rng.choice(VALUES[:15])]
    return [rng.choice([*FILES, *VALUES])]


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def take_command(data: bytes) -> str:
    """Run a command line in a folder of its own; a code that no page names, or a traceback, is a fault.

    Raises:
        AssertionError: it ended in one.
    """
    argv = json.loads(data)
    said = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        _inside(folder),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(said),
    ):
        _fill(Path(folder))
        try:
            code = main(argv)
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else 2
        except LoadRunError as e:
            raise AssertionError(f"{argv} lets {type(e).__name__} through") from e
    if code not in CODES or "Traceback" in said.getvalue():
        raise AssertionError(f"ends with {code}: {said.getvalue()[-2000:]}")
    return "refused" if code == 2 else "taken"
