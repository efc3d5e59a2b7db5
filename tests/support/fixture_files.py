"""Where the fixtures are for tests: ``fixtures/`` with the archives of operators as folders, unpacked once."""

from __future__ import annotations

from functools import cache

from fixtures.make.archives import unpacked

__all__ = ["FIXTURES", "fixture_names"]

FIXTURES = unpacked()


@cache
def fixture_names() -> tuple[str, ...]:
    """The dumps, as ``nets/mlp.mge`` and ``ops/conv/conv2d_3x3.mge``."""
    folders = [FIXTURES / "nets", FIXTURES / "optimized", *sorted((FIXTURES / "ops").iterdir())]
    return tuple(
        path.relative_to(FIXTURES).as_posix() for folder in folders for path in sorted(folder.glob("*.mge"))
    )
