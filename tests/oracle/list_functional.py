"""Asks MegEngine what its ``trace.dump`` calls the outputs of the recorded calls of its API (fixtures/functional).

Run by a Python that has MegEngine 1.13: ``python tests/oracle/list_functional.py tests/data/functional_names.json``
writes ``{family: {case: [plain, optimized]}}``, the names without `optimize_for_inference` and, where they differ, with
it. Of the cases of one function it keeps those whose names differ, and a case that MegEngine cannot dump is left out;
``--all`` keeps every case that can be traced.
"""

from __future__ import annotations

import importlib
import io
import json
import multiprocessing
import os
import re
import sys
from pathlib import Path
from typing import Any

import megengine
import megengine.functional
import megengine.jit
import megengine.module
import megengine.quantization
import megengine.random

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 60
MOST_OUTPUTS = 8


def ask(case: Any) -> list[list[str]]:
    """The names of a case's outputs without and with `optimize_for_inference`."""
    megengine.config.async_level = 0
    function = case.make(megengine)
    flatten = importlib.import_module("fixtures.functional._case").flatten
    found = []
    for optimize in (False, True):
        traced = megengine.jit.trace(
            lambda *xs: tuple(x for x in flatten(function(*xs)) if isinstance(x, megengine.Tensor)),
            symbolic=True,
            capture_as_const=True,
        )
        traced(*[megengine.tensor(x) for x in case.inputs])
        found.append(list(traced.dump(io.BytesIO(), optimize_for_inference=optimize).outputs))
    return found[:1] if found[0] == found[1] else found


def work(case: Any, pipe: Any) -> None:
    """Body of the process of one case; what MegEngine cannot dump has no names."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        pipe.send(ask(case))
    except Exception:
        pipe.send(None)


def names(case: Any) -> list[list[str]] | None:
    """The names of a case's outputs, asked for in a process of its own, since a bad call can kill the runtime."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=work, args=(case, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(TIMEOUT) else None
    except EOFError:
        return None
    finally:
        process.kill()
        process.join()


def main() -> None:
    """Write the table."""
    keep_all = "--all" in sys.argv
    sys.path[0] = str(ROOT)
    table: dict[str, dict[str, list[list[str]]]] = {}
    for path in sorted((ROOT / "fixtures" / "functional").glob("*_cases.py")):
        family = path.name.removesuffix("_cases.py")
        seen: set[Any] = set()
        table[family] = {}
        for case in importlib.import_module(f"fixtures.functional.{family}_cases").CASES:
            if case.raises is not None or not case.traceable:
                continue
            found = names(case)
            if found is None or (len(found[0]) > MOST_OUTPUTS and not keep_all):
                continue
            kind = (
                case.id.split("-")[0],
                json.dumps([[re.sub(r"^.*\W.*\[\d+\]", "", n) for n in f] for f in found]),
            )
            if keep_all or kind not in seen:
                table[family][case.id] = found
            seen.add(kind)
        print(f"{family}: {len(table[family])}", flush=True)
    rows = []
    for family, cases in table.items():
        entries = ",\n".join(f"{json.dumps(id)}: {json.dumps(found)}" for id, found in cases.items())
        rows.append(f"{json.dumps(family)}: {{\n{entries}\n}}")
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
