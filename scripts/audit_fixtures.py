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
from loadrun.compare.vacuity import ImpostorWatch
from loadrun.dump import load_all
from loadrun.runner import Runner, own_errors
from loadrun.verify.audit import audit

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"
TARGET = ROOT / "docs" / "audit.md"
MUTANTS = 4
"""At most that many of each kind for a file."""
HEAD = f"""# What the checks of the fixtures catch

Every fixture was replayed with weights negated, set to zero and permuted, some inputs moved by one and testcases
swapped (`loadrun audit --mutants {MUTANTS}`). A mutant counts for an output that it changes by more than rounding does;
its check catches it when it fails. This page is written by `scripts/audit_fixtures.py`.
"""


def paths() -> list[Path]:
    """The fixtures that are to pass, in order."""
    return sorted(p for p in FIXTURES.rglob("*.mge") if not p.name.startswith("xfail_"))


def examined(path: Path) -> list[dict[str, Any]]:
    """What is found of every check of a file."""
    found = []
    for bundle in load_all(path):
        runner = Runner(bundle)
        watch = ImpostorWatch({}, runner.policies, own_errors(bundle))
        try:
            for result in runner.replay():
                watch.results(result)
            scores = audit(bundle, mutants=MUTANTS)
        except LoadRunError as e:
            found.append({"output": "", "error": str(e).splitlines()[0]})
            continue
        vacuous = watch.found()
        for s in scores:
            found.append(
                {
                    "output": s.output,
                    "caught": sum(s.caught.values()),
                    "missed": s.passed,
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
    reached = [c for c in compared if c["caught"] or c["missed"]]
    caught, missed = sum(c["caught"] for c in reached), sum(sum(c["missed"].values()) for c in reached)
    whole = sum(not c["missed"] for c in reached)
    lines = [
        HEAD,
        f"{len(found)} files, {len(every)} checks. {len(compared)} of them compare; mutants reached {len(reached)}.",
        f"Of {caught + missed} mutants that changed an output {caught} were caught "
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
        there = [c for c in rows if not c["reason"] and (c["caught"] or c["missed"])]
        good, bad = sum(c["caught"] for c in there), sum(sum(c["missed"].values()) for c in there)
        score = f"{100 * good / (good + bad):.1f} %" if good + bad else "-"
        cells = (
            group,
            files[group],
            len(rows),
            len(there),
            good + bad,
            score,
            sum(not c["missed"] for c in there),
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", *listed(checks)]
    return "\n".join(lines) + "\n"


def listed(checks: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The checks that could not fail, by why."""
    silent, blind, impostors, unmoved = [], [], [], []
    for name, rows in checks.items():
        for c in rows:
            place = f"`{name}` {c['output']}"
            if c["reason"]:
                silent.append(f"- {place}: {c['reason']}")
            elif c["missed"] and not c["caught"]:
                what = ", ".join(f"{n} {kind}" for kind, n in sorted(c["missed"].items()))
                blind.append(f"- {place}: {what}")
            elif not c["caught"]:
                unmoved.append(f"- {place}")
            elif c["impostors"]:
                impostors.append(f"- {place}: {', '.join(c['impostors'])}")
    return [
        "## Checks that catch none of the mutants that reach them",
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
        "Outputs that follow from shapes or constants alone, and comparisons that stay as they are.",
        "",
        *(unmoved or ["None."]),
    ]


if __name__ == "__main__":
    TARGET.write_text(page(gathered(Path(sys.argv[1]) if len(sys.argv) > 1 else None)))
