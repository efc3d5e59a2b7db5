"""The input DSL as text: parsing, rendering, errors with a caret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from loadrun.base.errors import LoadRunError, SpecError
from loadrun.base.pointing import point
from loadrun.inputs.loading import load_cases
from loadrun.inputspec import (
    FILLS,
    MAX_SEED,
    Generated,
    InputPart,
    InputSpec,
    ListFile,
    PathSource,
    Values,
    parse,
)
from tests.support.input_models import model

GOLDEN = Path(__file__).parent / "golden" / "input_errors.txt"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a.npy", [(None, PathSource("a.npy"))]),
        ("data:cat.jpg", [("data", PathSource("cat.jpg"))]),
        (" data : cat.jpg ; m : x y.npy ", [("data", PathSource("cat.jpg")), ("m", PathSource("x y.npy"))]),
        ("data:we:ird.npy", [("data", PathSource("we:ird.npy"))]),
        ("we::ird.npy", [(None, PathSource("we:ird.npy"))]),
        ("a::b:c::d", [("a:b", PathSource("c:d"))]),
        (r"C:\x\a.npy", [(None, PathSource(r"C:\x\a.npy"))]),
        (r"data:C:\x\a.npy", [("data", PathSource(r"C:\x\a.npy"))]),
        ("data:C:/x/a.npy", [("data", PathSource("C:/x/a.npy"))]),
        ("a:/home/x.npy", [("a", PathSource("/home/x.npy"))]),
        ("'semi;colon.npy'", [(None, PathSource("semi;colon.npy"))]),
        ('"a:b":"c;d.npy"', [("a:b", PathSource("c;d.npy"))]),
        ('\'it\'\'s\':"say ""x"""', [("it's", PathSource('say "x"'))]),
        ("it's.npy", [(None, PathSource("it's.npy"))]),
        ("x.npz!key", [(None, PathSource("x.npz", "key"))]),
        ("a:x.NPZ ! 'k;1'", [("a", PathSource("x.NPZ", "k;1"))]),
        ("x.json!key", [(None, PathSource("x.json", "key"))]),
        ("wow!.npy", [(None, PathSource("wow!.npy"))]),
        ("'x.npz!key'", [(None, PathSource("x.npz!key"))]),
        ("[1].npy", [(None, PathSource("[1].npy"))]),
        ("a:{b}/c.png;d:[x.npy]", [("a", PathSource("{b}/c.png")), ("d", None)]),
        ("#rand(0,255)", [(None, Generated("rand", (0, 255)))]),
        ("#rand( -1.5e2 , +3 )", [(None, Generated("rand", (-150, 3)))]),
        ("a:#rand(0,1,2,...)", [("a", Generated("rand", (0, 1), (2,), True))]),
        ("#rand(0,1,...)", [(None, Generated("rand", (0, 1), (), True))]),
        ("#rand(1,-1,2,…)", [(None, Generated("rand", (1, -1), (2,), True))]),
        ("#rand(0,1,1_0)", [(None, Generated("rand", (0, 1), (10,)))]),
        ("#randn", [(None, Generated("randn"))]),
        ("#randn(...)", [(None, Generated("randn", (), (), True))]),
        ("#randn(0,1,4)", [(None, Generated("randn", (0, 1), (4,)))]),
        ("#randint(0,9,seed=3)", [(None, Generated("randint", (0, 9), seed=3))]),
        ("#rand(0,1,2,..., seed = 3)", [(None, Generated("rand", (0, 1), (2,), True, 3))]),
        ("#zeros", [(None, Generated("zeros"))]),
        ("#zeros()", [(None, Generated("zeros"))]),
        ("#ones(2,...)", [(None, Generated("ones", (), (2,), True))]),
        ("#full(.5,2,3)", [(None, Generated("full", (0.5,), (2, 3)))]),
        ("{1, 3,224,224}", [(None, Generated("rand", (0, 1), (1, 3, 224, 224), braces=True))]),
        ("[[1, 2],[3,4]]", [(None, Values("[[1,2],[3,4]]"))]),
        ("a:[1.5, -2e3, true]", [("a", Values("[1.5,-2000.0,true]"))]),
        ("a:#ones;", [("a", Generated("ones"))]),
    ],
)
def test_parse(text: str, parts: list[tuple[str | None, object]]) -> None:
    if parts[-1][1] is None:
        with pytest.raises(SpecError):
            parse(text)
        return
    spec = parse(text)
    assert [(p.name, p.source) for p in spec.parts] == parts
    assert parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("@ list.txt", "list.txt"),
        ("@odd;name:x.txt", "odd;name:x.txt"),
        ("@a::b", "a::b"),
        ("@@x", "@x"),
        ("@' x '", " x "),
        (r"@C:\lists\a.txt", r"C:\lists\a.txt"),
    ],
)
def test_list_file(text: str, path: str) -> None:
    assert parse(text).listed == ListFile(path)
    assert parse(str(parse(text))) == parse(text)


def golden() -> list[tuple[str, str]]:
    found = []
    for block in re.split(r"^=== ", GOLDEN.read_text(encoding="utf-8"), flags=re.M)[1:]:
        head, message = block.split("\n", 1)
        found.append((head, message.rstrip("\n")))
    return found


@pytest.mark.parametrize(("text", "message"), golden(), ids=[head for head, _ in golden()])
def test_error_texts(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block of the golden file: the specification after ===, and the whole message for a model of two inputs."""
    monkeypatch.chdir(tmp_path)
    Path("loop.txt").write_text("#ones\n\n@loop.txt\n")
    Path("bad.txt").write_text("# three lines\n#ones\na:#rand(0,\n")
    Path("typo.txt").write_text("#radn(0,1)\n")
    Path("none.txt").write_text("\n# nothing\n")
    Path("binary.txt").write_bytes(b"\xff\xfe#")
    Path("text.npy").write_text("hello")
    Path("sub").mkdir()
    Path("x.pkl").write_bytes(b"\x80\x04.")
    inputs = model(image=("Float32", (1, 3, 4, 5)), mask=("Uint8", (4,)))
    with pytest.raises(LoadRunError) as e:
        list(load_cases(text.split(" && "), inputs))
    assert str(e.value) == message


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1)
numbers = st.floats(allow_nan=False, allow_infinity=False)
whole = st.integers(-(2**31), 2**31)


@st.composite
def fills(draw: st.DrawFn) -> Generated:
    kind = draw(st.sampled_from(sorted(FILLS)))
    if kind == "randint":
        low = draw(whole)
        args = (float(low), float(low + draw(st.integers(1, 2**32))))
    elif kind == "rand":
        args = tuple(sorted(draw(numbers.filter(lambda x: abs(x) < 1e300)) for _ in range(2)))
    else:
        args = tuple(draw(numbers) for _ in range(FILLS[kind][1]))
    shape = draw(st.none() | st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8).map(tuple))
    rest = shape is not None and draw(st.booleans())
    return Generated(kind, args, shape, rest, draw(st.none() | st.integers(0, MAX_SEED)))


paths = st.builds(PathSource, names)
picked = st.builds(PathSource, names.map(lambda n: n + ".npz"), names)
braces = st.lists(st.integers(0, 99), min_size=1, max_size=8).map(
    lambda s: Generated("rand", (0.0, 1.0), tuple(s), braces=True)
)
values = st.lists(st.integers(-9, 9) | numbers, max_size=5).map(lambda v: parse(str(v)).parts[0].source)
sources = paths | picked | fills() | braces | values


@given(st.lists(st.tuples(names, sources), min_size=1, max_size=4, unique_by=lambda p: p[0]))
def test_rendering_parses_back(parts: list[tuple[str, Generated | PathSource | Values]]) -> None:
    spec = InputSpec(tuple(InputPart(n, s) for n, s in parts))
    assert parse(str(spec)) == spec
    alone = InputSpec((InputPart(None, parts[0][1]),))
    assert parse(str(alone)) == alone


@given(names)
def test_rendered_list_files_parse_back(path: str) -> None:
    spec = InputSpec(listed=ListFile(path))
    assert parse(str(spec)) == spec


pieces = [*"ab.#@:;!'\"{}[](),. 01+-e\\", "#rand(", "...", "seed=", ".npz", "::"]
dense = st.lists(st.sampled_from(pieces), max_size=20).map("".join)


@given(st.text(max_size=30) | dense)
def test_any_text_parses_or_fails_clearly(text: str) -> None:
    try:
        spec = parse(text)
    except SpecError as e:
        lines = str(e).split("\n")
        assert len(lines) == 3
        assert lines[2].strip() == "^"
        return
    assert parse(str(spec)) == spec


def test_caret_in_long_and_wide_texts() -> None:
    message, shown, caret = point("wrong", "x" * 500 + "HERE" + "y" * 500, 500).split("\n")
    assert message == "wrong"
    assert len(shown) < 120
    assert shown[caret.index("^") :].startswith("HERE")
    # Characters of double width, none and control characters keep the caret in its column.
    assert point("m", "漢字:x", 3).split("\n")[2] == "       ^"
    assert point("m", "e\u0301:x", 2).split("\n")[2] == "   ^"
    assert point("m", "a\x1b[31m\nx", 2).split("\n")[1] == "  a?[31m x"


@pytest.mark.parametrize("spec", [None, 3, b"#rand(0,1)"])
def test_other_types(spec: object) -> None:
    with pytest.raises(SpecError, match="a specification must be a string"):
        load_cases([spec], model(a=("Float32", (2,))))  # type: ignore[list-item]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 50 + "]" * 50,
        "#rand(0,1" + ",1" * 10_000 + ")",
        "'" * 9999,
        "#zeros(" + "9" * 9999,
    ],
)
def test_hostile_texts(text: str) -> None:
    with pytest.raises(SpecError) as e:
        parse(text)
    assert len(str(e.value)) < 500


def test_members_only_of_archives() -> None:
    with pytest.raises(SpecError, match="members"):
        PathSource("a.npy", "key")
