"""Things by name: registered, imported when they are asked for, refused when two have one name."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from loadrun.base.registry import Registry, resolve

Function = Callable[[float], float]


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[str, Function]:
    """A registry with one module that registers `square` and uses the registry while it is imported."""
    (tmp_path / "shapes_registry.py").write_text(
        "from loadrun.base.registry import Registry\nFIGURES = Registry('figure', ['shapes_family'])\n"
    )
    (tmp_path / "shapes_family.py").write_text(
        "from shapes_registry import FIGURES\n"
        "@FIGURES.register('square', 'quadrat')\n"
        "def square(x): return x * x\n"
        "FOUND = FIGURES.get('circle')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("shapes_registry", "shapes_family"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    found: Registry[str, Function] = resolve("shapes_registry:FIGURES")
    return found


def test_modules_are_imported_for_the_first_name(shapes: Registry[str, Function]) -> None:
    assert "shapes_family" not in sys.modules
    assert shapes["square"](3) == 9
    assert sys.modules["shapes_family"].FOUND is None
    assert sorted(shapes) == ["quadrat", "square"]
    assert len(shapes) == 2


def test_two_of_a_name_are_refused(shapes: Registry[str, Function]) -> None:
    shapes.load()
    with pytest.raises(ValueError, match="'square' is registered twice as a figure"):
        shapes.register("square")(math.sqrt)
    shapes["square"] = math.sqrt
    assert shapes["square"](9) == 3


def test_unknown_names(shapes: Registry[str, Function]) -> None:
    assert shapes.get("circle") is None
    assert "circle" not in shapes
    with pytest.raises(KeyError, match="no figure is registered as 'sqare'; did you mean 'square'"):
        shapes["sqare"]


def test_a_home_for_every_name() -> None:
    found: Registry[str, Function] = Registry("root", {"square": "math:sqrt", "broken": "math:no_such_root"})
    assert "square" in found
    assert found["square"](16) == 4
    with pytest.raises(AttributeError, match="no_such_root"):
        found["broken"]


def test_a_module_that_cannot_be_imported_is_tried_again() -> None:
    found: Registry[str, Function] = Registry("root", ["loadrun.no_such_module"])
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError):
            found.get("square")
