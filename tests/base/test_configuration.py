"""`loadrun.toml` and `tool.loadrun`: found, checked, and what they say of a file."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from loadrun.base import configuration
from loadrun.base.configuration import find_configuration, read_configuration
from loadrun.base.errors import FormatError, UsageError

needs_toml = pytest.mark.skipif(
    not any(configuration.find_spec(m) for m in ("tomllib", "tomli")), reason="no package reads TOML"
)
TEXT = """
engines = ["onnxruntime"]
timeout = 60

[[files]]
match = ["legacy/*.mge"]
check = ["rtol=1e-3"]
timeout = 5.5

[[files]]
match = ["old.mge", "new.mge"]
xfail = "rounds differently"
expires = 2027-03-01
"""


@needs_toml
def test_rules(tmp_path: Path) -> None:
    (tmp_path / "loadrun.toml").write_text(TEXT)
    (tmp_path / "a" / "legacy").mkdir(parents=True)
    found = find_configuration(tmp_path / "a" / "legacy")
    assert found is not None
    rule = found.of(tmp_path / "a" / "legacy" / "old.mge")
    assert (rule.engines, rule.check, rule.timeout) == (("onnxruntime",), ("rtol=1e-3",), 5.5)
    assert rule.xfail == "rounds differently"
    plain = found.of(tmp_path / "x.mge")
    assert (plain.engines, plain.check, plain.timeout, plain.xfail) == (("onnxruntime",), (), 60, None)
    assert found.without_engines().of(tmp_path / "x.mge").engines == ()


@needs_toml
def test_entries_expire(tmp_path: Path) -> None:
    (tmp_path / "loadrun.toml").write_text(TEXT)
    found = read_configuration(tmp_path / "loadrun.toml")
    last, after = (
        configuration.Configuration(found.path, found.data, day)
        for day in (date(2027, 3, 1), date(2027, 3, 2))
    )
    assert last.of(tmp_path / "old.mge").xfail == "rounds differently"
    rule = after.of(tmp_path / "old.mge")
    assert rule.xfail is None
    assert rule.notes == ("its entry in loadrun.toml expired on 2027-03-01: rounds differently",)


@needs_toml
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("engines = 1", "engines: expected"),
        ("engnies = []", "unknown key 'engnies'; expected one of check, engines, files, timeout"),
        ("[[files]]\nskip = 'x'", "the member 'match' is missing"),
        ("[[files]]\nmatch = ['a']\nxfial = 'x'", "files[0]: unknown key 'xfial'"),
        ("[[files]]\nmatch = ['a']\nexpires = '2027'", "expected a date"),
        ("[[files]]\nmatch = ['a']\nxfail = ''", "files[0].xfail: expected the reason"),
        ("[[files]]\nmatch = ['a']\nskip = ' '", "files[0].skip: expected the reason"),
        ("timeout = 0", "timeout"),
        ("a = ", "invalid TOML"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "loadrun.toml"
    path.write_text(text)
    with pytest.raises(FormatError) as e:
        read_configuration(path)
    assert said in str(e.value)
    assert str(path) in str(e.value)


@needs_toml
def test_tool_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("tool = 5")
    with pytest.raises(FormatError, match=r"tool\.loadrun: expected .*5"):
        read_configuration(path)


@needs_toml
def test_the_nearest_file_counts(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.loadrun]\ntimeout = 7\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    # A pyproject.toml that says nothing of loadrun is passed over.
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    found = find_configuration(tmp_path / "a" / "b")
    assert found is not None
    assert found.of("m.mge").timeout == 7


def test_without_a_reader_of_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "find_spec", lambda name: None)
    (tmp_path / "loadrun.toml").write_text("")
    with pytest.raises(UsageError, match="needs the package tomli"):
        find_configuration(tmp_path)
