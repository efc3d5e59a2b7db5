"""Write docs/audit.md: what the checks of all fixtures catch of mutants, and the checks that catch nothing.

It takes some minutes. With a file as argument, what is found of each fixture is kept there, so that a run that is
interrupted goes on where it was.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from loadrun.base.errors import LoadRunError
from loadrun.compare.impostors import ImpostorWatch
from loadrun.dump import load_all
from loadrun.runner import Runner, check_errors
from loadrun.verify.audit import NO_CHECK, audit
from loadrun.verify.audit_mutants import EXPECTED

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from tests.support.fixture_files import FIXTURES, fixture_names  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "audit.md"
MUTANTS = 12
"""Weight elements that are made wrong in a file."""
HEAD = f"""# What the checks of the fixtures catch

Every fixture was replayed with single elements of weights made wrong, and with testcases whose expected values are
wrong, whose inputs are moved by one, or that have the inputs of another (`loadrun audit --mutants {MUTANTS}`). A wrong
weight element that changes no output is not caught: weights that testcases do not reach, outputs that round the
change away. Elements that only meet padding are not counted. This page is written by `scripts/audit_fixtures.py`.
"""


def paths() -> list[Path]:
    """The fixtures that are to pass, in order."""
    return [FIXTURES / name for name in fixture_names() if "/xfail_" not in name]


def examined(path: Path) -> list[dict[str, Any]]:
    """What is found of every check of a file."""
    found = []
    for bundle in load_all(path):
        runner = Runner(bundle)
        watch = ImpostorWatch({}, runner.policies, check_errors(bundle))
        try:
            for result in runner.replay():
                watch.results(result)
            scores = audit(bundle, mutants=MUTANTS).scores
        except LoadRunError as e:
            found.append({"output": "", "error": str(e).splitlines()[0]})
            continue
        vacuous = watch.impostors()
        for s in scores:
            if s.reason == NO_CHECK:
                continue
            found.append(
                {
                    "output": s.output,
                    "caught": sum(s.caught.values()),
                    "missed": s.passed,
                    "unmoved": s.unmoved,
                    "moved": bool(set(s.caught) - {EXPECTED}),
                    "reason": s.reason,
                    "impostors": vacuous.get(s.output, []),
                }
            )
    return found


def gathered(cache: Path | None) -> dict[str, list[dict[str, Any]]]:
    """What is found of all files, by their names from the fixtures' folder on."""
    known: dict[str, list[dict[str, Any]]] = {}
    if cache is not None and cache.exists():
        known.update(json.loads(line) for line in cache.read_text().splitlines())
    for path in paths():
        name = path.relative_to(FIXTURES).as_posix()
        if name not in known:
            known[name] = examined(path)
            if cache is not None:
                with cache.open("a") as f:
                    f.write(json.dumps([name, known[name]]) + "\n")
    return known


def folder(name: str) -> str:
    """What a fixture is counted under."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == "ops" else parts[0]


def page(found: dict[str, list[dict[str, Any]]]) -> str:
    """The page."""
    checks = {name: [c for c in rows if "error" not in c] for name, rows in found.items()}
    every = [c for rows in checks.values() for c in rows]
    compared = [c for c in every if not c["reason"]]
    reached = [c for c in compared if c["moved"] or c["missed"]]
    caught, missed = sum(c["caught"] for c in reached), sum(missed_of(c) for c in reached)
    whole = sum(not missed_of(c) for c in reached)
    lines = [
        HEAD,
        f"{len(found)} files, {len(every)} checks. {len(compared)} of them compare; mutants reached {len(reached)}.",
        f"Of {caught + missed} mutants {caught} were caught "
        f"({100 * caught / (caught + missed):.1f} %); {whole} checks caught all that reached them.",
        "",
        "| fixtures | files | checks | reached | mutants | caught | catch all |",
        "| --- | --: | --: | --: | --: | --: | --: |",
    ]
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    files = Counter(folder(name) for name in found)
    for name, rows in checks.items():
        groups[folder(name)] += rows
    for group, rows in sorted(groups.items()):
        there = [c for c in rows if not c["reason"] and (c["moved"] or c["missed"])]
        good, bad = sum(c["caught"] for c in there), sum(missed_of(c) for c in there)
        score = f"{100 * good / (good + bad):.1f} %" if good + bad else "-"
        cells = (
            group,
            files[group],
            len(rows),
            len(there),
            good + bad,
            score,
            sum(not missed_of(c) for c in there),
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", *listed(checks)]
    return "\n".join(lines) + "\n"


def missed_of(check: dict[str, Any]) -> int:
    """Count the mutants that a check does not catch."""
    return sum(check["missed"].values()) + sum(check["unmoved"].values())


def listed(checks: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The checks that cannot fail, by why."""
    silent, blind, impostors, unmoved = [], [], [], 0
    for name, rows in checks.items():
        for c in rows:
            place = f"`{name}` {c['output']}"
            if c["reason"]:
                silent.append(f"- {place}: {c['reason']}")
            elif c["missed"] and not c["moved"]:
                what = ", ".join(f"{n} {kind}" for kind, n in sorted(c["missed"].items()))
                blind.append(f"- {place}: {what}")
            elif not c["moved"]:
                unmoved += 1
            elif c["impostors"]:
                impostors.append(f"- {place}: {', '.join(c['impostors'])}")
    return [
        "## Checks that catch no wrong weight and no wrong input",
        "",
        *(blind or ["None."]),
        "",
        "## Checks that compare nothing",
        "",
        *(silent or ["None."]),
        "",
        "## Checks that catch mutants, and yet an impostor would pass",
        "",
        *(impostors or ["None."]),
        "",
        "## Checks whose outputs no mutant moves",
        "",
        f"{unmoved}: outputs that follow from shapes or constants alone, and comparisons that stay as they are.",
    ]


if __name__ == "__main__":
    TARGET.write_text(page(gathered(Path(sys.argv[1]) if len(sys.argv) > 1 else None)))
