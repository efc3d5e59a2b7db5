"""Replay every fixture on every engine and write docs/engines.md.

    python scripts/engines.py onnxruntime openvino                    # these sections anew, the others as they are
    python scripts/engines.py megengine:.venv-oracle/bin/python       # real MegEngine, one process for all files
    python scripts/engines.py openvino 'nets/*'                       # some files; only prints

An engine's packages must be installed. Takes a few minutes for each engine.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import loadrun
from loadrun.base.about import About
from loadrun.base.errors import LoadRunError
from loadrun.engines import check_engine
from loadrun.runner import Verdict

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from tests.support.fixture_files import FIXTURES, fixture_names  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "engines.md"
HEAD = """# Engines over all fixtures

Every file below `fixtures/` is replayed on every engine and judged by its own checks, whose expected values real
MegEngine 1.13.0 recorded. What the reference engine does not pass either (files whose names begin with `xfail`, files
without checks) is counted apart. Written by `scripts/engines.py`, which prints the files that differ.

Differences of `onnxruntime` are those of the model that it gets; [onnx_export.md](onnx_export.md) gives
the reasons: one quantum of a quantized value where rounding meets a half, one step of 8-bit images, the order of equal
elements, the last bit of means of integers, sums of float16.
"""

_REFUSAL = re.compile(r"\w+ (?:cannot run .*?|rejects the translated model): (.*); run the model on")


@dataclass
class Folder:
    """What the files of one folder came to."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    refused: int = 0
    apart: int = 0


@dataclass
class Found:
    """What an engine came to."""

    about: About | None = None
    folders: dict[str, Folder] = field(default_factory=lambda: defaultdict(Folder))
    refused: Counter[str] = field(default_factory=Counter)
    files: int = 0


def measure(spec: str, files: Iterable[Path]) -> Found:
    """Replay files on an engine."""
    found = Found()
    for path in files:
        name = path.relative_to(FIXTURES).as_posix()
        folder = found.folders[name.rsplit("/", 1)[0]]
        try:
            bundle = loadrun.load(path)
        except LoadRunError:
            continue
        if not len(bundle.testcases):
            continue
        found.files += 1
        runner, reference = loadrun.Runner(bundle, spec), loadrun.Runner(bundle)
        for i in range(len(bundle.testcases)):
            result = runner.replay_one(i)
            found.about = result.engine or found.about
            if result.verdict is Verdict.PASS:
                folder.passed += 1
            elif reference.replay_one(i).verdict is not Verdict.PASS:
                folder.apart += 1
            elif refusal := _REFUSAL.match(result.message or ""):
                folder.refused += 1
                found.refused[refusal[1]] += 1
            else:
                folder.failed += result.verdict is Verdict.FAIL
                folder.errors += result.verdict is not Verdict.FAIL
                print(f"{spec}: {name}: {result.verdict.value}")
    return found


def section(spec: str, found: Found) -> str:
    """The engine's part of the document."""
    name = spec.partition(":")[0]
    about = found.about
    assert about is not None
    provider = "" if name == "megengine" else f" ({about.provider})"
    folders = found.folders.values()
    passed, failed = sum(f.passed for f in folders), sum(f.failed for f in folders)
    errors, apart = sum(f.errors for f in folders), sum(f.apart for f in folders)
    refused = sum(f.refused for f in folders)
    lines = [
        f"## {name}",
        "",
        f"{name} {about.version}{provider}, {about.arithmetic}: {passed} testcases of {found.files} files pass,",
        f"{failed} differ, {errors} cannot be run, {refused} are refused; {apart} are apart.",
    ]
    different = {place: f.failed + f.errors for place, f in sorted(found.folders.items())}
    if any(different.values()):
        lines += ["", f"By folder: {', '.join(f'{place} {n}' for place, n in different.items() if n)}."]
    if found.refused:
        lines += ["", "Refused:", ""]
    for why, count in sorted(found.refused.items(), key=lambda pair: (-pair[1], pair[0])):
        lines.append(f"- {why} ({count})")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Replay, and write or print."""
    patterns = [a for a in sys.argv[1:] if "/" in a and ":" not in a]
    specs = [check_engine(a) for a in sys.argv[1:] if a not in patterns] or [
        "onnxruntime",
        "openvino",
    ]
    names = [n for n in fixture_names() if not patterns or any(fnmatch(n, p) for p in patterns)]
    files = [FIXTURES / n for n in names]
    made = {s.partition(":")[0]: section(s, measure(s, files)) for s in specs}
    if patterns:
        print("\n".join(made.values()))
        return
    old = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else HEAD
    kept = {part.split("\n", 1)[0]: f"## {part}" for part in old.split("\n## ")[1:]}
    sections = {**kept, **made}
    DOCUMENT.write_text(
        "\n".join([HEAD, *(sections[n].rstrip() + "\n" for n in sorted(sections))]), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
