"""Policies: what outputs must fulfil besides MegEngine's check, when a file is packed and when it is judged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun import Bundle, Testcase, Verdict
from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.compare import compare
from loadrun.compare.impostors import ImpostorWatch
from loadrun.compare.judging import Criteria, judge
from loadrun.compare.policy import Policy, parse, parse_all
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy
from loadrun.runner import check_errors
from loadrun.verify.pack.capture import capture, embed
from tests.support.small_models import unary

F32, I32 = DType("Float32"), DType("Int32")


def model(path: Path, dtype: DType = F32) -> Path:
    """``y = x + x``."""
    g = Graph()
    tensor = StoredTensor(dtype, (1, 3), "x")
    (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[tensor], names=["x"])
    g.outputs = g.add("Elemwise", Elemwise(mode=ElemwiseMode.ADD), inputs=[x, x], names=["y"])
    loadrun.save(g, path)
    return path


@pytest.mark.parametrize(
    ("terms", "expect", "got", "broken"),
    [
        ("exact", [1, 2], [1, 2], []),
        ("exact", [1, 2], [1, 2.5], ["exact is violated: 1 of 2 values differ"]),
        ("exact, nan=equal", [1, np.nan], [1, np.nan], []),
        ("rtol=1e-3", [1000, 1], [1001, 1], []),
        ("rtol=1e-3", [1000, 1], [1001.5, 1], ["rtol=0.001 is violated by 1 of 2 values"]),
        ("rtol=1e-3, atol=1e-2", [1000, 0], [1001, 0.01], []),
        ("atol=1e-2", [1000, 0], [1000.5, 0], ["atol=0.01 is violated by 1 of 2 values"]),
        ("rtol=0.1, nan=equal", [np.nan, 1], [np.nan, 1.05], []),
        ("rtol=0.1", [np.nan, 1], [np.nan, 1], ["rtol=0.1 is violated by 1 of 2 values"]),
        # cos of (1, 0) and (1, 1) is 1/sqrt(2)
        ("cosine>=0.8", [1, 0], [1, 1], ["cosine>=0.8 does not hold: cosine is 0.707107"]),
        ("cosine>=0.7", [1, 0], [1, 1], []),
        ("top1=1", [1, 0], [0.9, 0.3], []),
        ("top1=1", [1, 0], [0.3, 0.9], ["top1>=1 does not hold: top1 is 0"]),
        # 10 log10(100 / 1) = 20 dB
        ("snr>=19.9", [10, 0], [9, 0], []),
        ("snr>=20.1", [10, 0], [9, 0], ["snr>=20.1 does not hold: snr is 20"]),
        ("max_abs<=0.4", [10, 0], [9.5, 0], ["max_abs<=0.4 does not hold: max_abs is 0.5"]),
        ("ulp<=1", [1, 2], [np.nextafter(np.float32(1), np.float32(2)), 2], []),
        ("snr_db>=20.1", [10, 0], [9, 0], ["snr_db>=20.1 does not hold: snr_db is 20"]),
        # 0.5 ln(0.5 / 0.25) + 0.5 ln(0.5 / 0.75) = 0.5 ln 2 + 0.5 ln (2/3)
        ("kl<=0.1439", [0.5, 0.5], [0.25, 0.75], []),
        ("kl<=0.1438", [0.5, 0.5], [0.25, 0.75], ["kl<=0.1438 does not hold: kl is 0.143841"]),
        # the same two distributions as logits: ln(1/4) = -1.386, ln(3/4) = -0.288
        ("kl<=0.1438", [5, 5], [-1.3862944, -0.2876821], ["kl<=0.1438 does not hold: kl is 0.143841"]),
        # of logits in two rows, which are apart in level
        ("kl<=0.1439", [[5, 5], [0, 9]], [[-1.3862944, -0.2876821], [30, 39]], []),
        (
            "kl<=0.1438",
            [[0, 9], [5, 5]],
            [[30, 39], [8.6137056, 9.7123179]],
            ["kl<=0.1438 does not hold: kl is 0.143841"],
        ),
        ("kl<=9", [0.5, 0.5], [0, 1], ["kl<=9 does not hold: kl is inf"]),
        ("kl<=1", [5], [5], ["kl<=1 cannot be evaluated: values of this dtype and shape have no kl"]),
        ("top2=1", [3, 2, 1], [2, 3, 1], []),
        ("top2=1", [3, 2, 1], [3, 1, 2], ["top2>=1 does not hold: top2 is 0"]),
        ("top2=1, near_tie<=1", [3, 2, 1], [3, 1, 2], []),
        ("top1=1, near_tie<=0.1", [0.5, 0.4], [0.4, 0.5], []),
        ("top1=1, near_tie<=0.09", [0.5, 0.4], [0.4, 0.5], ["top1>=1 does not hold: top1 is 0"]),
        (
            "off_by<=1",
            [1, 2],
            [1, 2],
            ["off_by<=1 cannot be evaluated: values of this dtype and shape have no off_by"],
        ),
    ],
)
def test_terms(terms: str, expect: list[float], got: list[float], broken: list[str]) -> None:
    e, g = np.array(expect, "f4"), np.array(got, "f4")
    assert parse(terms).violations(compare(e, g), e, g) == broken


@pytest.mark.parametrize(
    "text",
    [
        *("", "equal", "rtol>=1", "cosine<=1", "rtol=x", "rtol=nan", "rtol=-1", "nan=1", "top1", "exact=1"),
        *(
            "fraction<=1",
            "cosine>=-1",
            "top1>=0",
            "ppm<=1000000",
            "fraction<=-1",
            "fraction>=0.1",
            "near_tie<=0.1",
            "top0=1",
        ),
        *("kl>=1", "snr_db<=3", "top1>=99", "cosine>=2"),
    ],
)
def test_terms_that_mean_nothing(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


@pytest.mark.parametrize(
    ("limit", "verdict", "note"),
    [
        (0.5, "fail", "max_abs<=0.5 does not hold: max_abs is 0.75 of the 2 of 3 pairs that are finite"),
        (
            0.75,
            "pass",
            "NaN or infinities: measures other than the error are of the 2 of 3 pairs that are finite",
        ),
    ],
)
def test_measures_beside_nan_say_what_they_are_of(limit: float, verdict: str, note: str) -> None:
    policy = parse(f"nan=equal, max_abs<={limit}")
    found = judge(
        Criteria("y", F32, 1.0, policy=policy),
        np.array([1, 2, np.nan], "f4"),
        np.array([1, 2.75, np.nan], "f4"),
    )
    assert (found.verdict.value, found.notes) == (verdict, (note,))


def test_last_places_of_bfloat16() -> None:
    """Between 1 and 2 its values are 2^-7 apart."""
    expect, got = np.array([1, 1.5], "f4"), np.array([1 + 2.0**-7, 1.5], "f4")
    for terms, verdict in (("ulp<=1", "pass"), ("ulp<=0", "fail")):
        found = judge(Criteria("y", DType("BFloat16"), 1.0, policy=parse(terms)), expect, got)
        assert found.verdict.value == verdict


@pytest.mark.parametrize(
    ("terms", "maxerr", "expect", "got", "verdict", "note"),
    [
        # One of four is off by 1, which is 1/4 of the elements.
        ("fraction<=0.25", 1e-4, [1, 2, 3, 4], [1, 2, 3, 5], "pass", "1 of 4 values are beyond"),
        ("fraction<=0.2", 1e-4, [1, 2, 3, 4], [1, 2, 3, 5], "fail", "fraction<=0.2 is 0.25"),
        ("ppm<=250000", 1e-4, [1, 2, 3, 4], [1, 2, 3, 5], "pass", "fraction<=0.25 is 0.25"),
        ("ppm<=249999", 1e-4, [1, 2, 3, 4], [1, 2, 3, 5], "fail", "1 of 4 values"),
        ("fraction<=0.25", 1e-4, [1, 2, 3, 4], [1, 2, 3, 4], "pass", None),
        ("fraction<=0.25", 1e-4, [1, 2, 3, 4], [1, 2, 3, np.nan], "pass", "1 of 4 values"),
        # The file's tolerance of 1 refuses none of them, rtol two.
        ("rtol=0.1, fraction<=0.25", 1.0, [1, 2, 3, 4], [1, 2.5, 3.5, 4], "fail", "2 of 4 values"),
        ("rtol=0.1, fraction<=0.5", 1.0, [1, 2, 3, 4], [1, 2.5, 3.5, 4], "pass", "2 of 4 values"),
        ("exact, fraction<=0.25", 1.0, [1, 2, 3, 4], [1, 2, 3.5, 4], "pass", "1 of 4 values"),
        ("fraction<=0.25, max_abs<=0.5", 1e-4, [1, 2, 3, 4], [1, 2, 3, 5], "fail", "max_abs<=0.5"),
    ],
)
def test_share_of_elements(
    terms: str, maxerr: float, expect: list[float], got: list[float], verdict: str, note: str | None
) -> None:
    found = judge(
        Criteria("y", F32, maxerr, policy=parse(terms)), np.array(expect, "f4"), np.array(got, "f4")
    )
    assert found.verdict.value == verdict
    assert (note or "") in " ".join(found.notes)
    assert bool(found.notes) is (note is not None)
    # What MegEngine's check refuses and a share lets through is marked.
    beyond = maxerr == 1e-4 and expect != got and verdict == "pass"
    assert (found.tolerance.loosened == maxerr) is beyond


@pytest.mark.parametrize(
    ("new", "old", "weaker"),
    [
        ("", "exact", True),
        ("exact", "", False),
        ("exact, nan=equal", "exact", True),
        ("maxerr=2", "maxerr=1", True),
        ("atol=1", "rtol=1", True),
        ("rtol=1", "rtol=1, atol=0", False),
        ("ulp<=2", "ulp<=1", True),
        ("cosine>=0.9", "cosine>=0.99", True),
        ("cosine>=0.99, snr>=3", "cosine>=0.9", False),
        ("exact, fraction<=0.1", "exact", True),
        ("top1=1, near_tie<=0.1", "top1=1", True),
        ("top1=1", "top1=1, near_tie<=0.1", False),
    ],
)
def test_weaker_policies(new: str, old: str, weaker: bool) -> None:
    one, other = (parse(text) if text else Policy() for text in (new, old))
    assert one.is_weaker(other) is weaker


def test_a_near_tie_is_said() -> None:
    e, g = np.array([[0.5, 0.4], [0.9, 0.1]], "f4"), np.array([[0.44, 0.46], [0.9, 0.1]], "f4")
    found = judge(Criteria("p", F32, 0.1, policy=parse("top1=1, near_tie<=0.1")), e, g)
    assert found.verdict is Verdict.PASS
    assert found.notes == ("top1: 1 of 2 rows swap elements that nearly tie (near_tie<=0.1)",)
    assert judge(Criteria("p", F32, 0.1, policy=parse("top1=1")), e, g).verdict is Verdict.FAIL


def test_zeros_that_a_share_lets_through_are_told() -> None:
    sparse = np.zeros(200, "f4")
    sparse[7] = 5
    for terms, said in (("fraction<=0.01", True), ("fraction<=0.004", False)):
        watch = ImpostorWatch({"y": 1e-4}, {"y": parse(terms)})
        watch.add("y", sparse)
        assert any("zeros" in w for w in watch.warnings()) is said


def test_names_of_policies() -> None:
    found = parse_all(["b:0: exact", "rtol=1"])
    assert (found["b:0"].exact, found[""].rtol) == (True, 1.0)
    with pytest.raises(UsageError, match="two policies name the output 'a'"):
        parse_all(["a: exact", "a: rtol=1"])


def test_covering_tolerance_lets_through_what_the_policy_does() -> None:
    """The worst values that rtol and atol allow, at several sizes, are within it by MegEngine's measure."""
    policy = parse("rtol=1e-2, atol=1e-3")
    assert policy.covering is not None
    for size in (0.0, 0.5, 1.0, 3.0, 1e4):
        for sign in (1, -1):
            e = np.array([size])
            g = e + sign * (1e-3 + 1e-2 * size)
            error = abs(e - g) / np.maximum(1, np.minimum(abs(e), abs(g)))
            assert float(error[0]) <= policy.covering
    assert parse("exact").covering == 0.0


def test_policy_is_only_stricter() -> None:
    e, g = np.array([1.0, 2], "f4"), np.array([1.0, 2.1], "f4")
    strict = Criteria("y", F32, 0.2, policy=parse("exact"))
    assert judge(strict, e, g).verdict is Verdict.FAIL
    loose = Criteria("y", F32, 1e-4, policy=parse("maxerr=1"))
    assert judge(loose, e, g).verdict is Verdict.FAIL
    asked = judge(Criteria("y", F32, 1e-4, policy=parse("maxerr=1"), loosen=True), e, g)
    assert (asked.verdict, asked.tolerance.loosened) == (Verdict.PASS, 1e-4)


def test_packed_policies_are_kept_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = model(tmp_path / "m.mge"), tmp_path / "p.mge"
    assert (
        main(["pack", str(source), "-d", "[[1,2,3]]", "--check", "y: rtol=1e-3, top1=1", "-o", str(out)]) == 0
    )
    bundle = loadrun.load(out)
    # MegEngine sees a tolerance that covers the policy: 1e-3 / (1 - 1e-3).
    assert bundle.checks[0].maxerr == pytest.approx(1e-3 / 0.999, rel=1e-4)
    bundle.testcases = [
        Testcase({"x": np.array([[1, 2, 3]], "f4"), "y:expect": np.array([[2, 4, v]], "f4")})
        for v in (6, 6.0059, 6.0065)
    ]
    found = [r.outputs[0] for r in loadrun.run(bundle)]
    assert [o.verdict for o in found] == [Verdict.PASS, Verdict.PASS, Verdict.FAIL]
    again = tmp_path / "q.mge"
    assert main(["pack", str(out), "-d", "[[3,2,1]]", "-o", str(again), "-q"]) == 0
    assert loadrun.Runner(again).policies["y"].text == "rtol=1e-3, top1=1"
    assert main(["pack", str(source), "-d", "#ones", "--check", "z: exact", "-o", str(out)]) == 2
    assert "a policy names the output 'z'; the outputs are 'y'" in capsys.readouterr().err


def test_default_and_exceptions(tmp_path: Path) -> None:
    g = Graph()
    (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1, 3), "x")], names=["x"])
    a = g.add("Elemwise", Elemwise(mode=ElemwiseMode.ADD), inputs=[x, x], names=["a"])
    b = g.add("Elemwise", Elemwise(mode=ElemwiseMode.MUL), inputs=[x, x], names=["b"])
    g.outputs = [*a, *b]
    loadrun.save(g, tmp_path / "m.mge")
    argv = ["pack", str(tmp_path / "m.mge"), "-d", "#rand(1,2)", "-o", str(tmp_path / "p.mge"), "-q"]
    assert main([*argv, "--maxerr", "1e-6", "--maxerr", "b=1e-3"]) == 0
    assert {c.name: c.maxerr for c in loadrun.load(tmp_path / "p.mge").checks} == {
        "a": float(np.float32(1e-6)),
        "b": float(np.float32(1e-3)),
    }


def test_integers_are_packed_exactly(tmp_path: Path) -> None:
    bundle = loadrun.load(model(tmp_path / "m.mge", I32))
    case = capture(bundle, {"x": np.array([[25000, 1, 2]], "i4")})
    for maxerr, limit in ((1e-4, 0.0), ({"y": 1e-3}, 1e-3)):
        assert embed(bundle, [case], maxerr).checks[0].maxerr == limit
    made = embed(bundle, [case])
    made.testcases = [Testcase({**case.arrays, "y:expect": np.array([[50004, 2, 4]], "i4")}, case.dtypes)]
    (result,) = loadrun.run(made)
    assert result.verdict is Verdict.FAIL
    assert result["y"].dtype == np.int32


@pytest.mark.parametrize(
    ("terms", "expect", "got", "verdict"),
    [
        # One of four is beyond; by the file's tolerance of 0.01 where the policy has none of its own.
        ("fraction<=0.25", [1, 2, 3, 4], [1.005, 2, 3, 5], "pass"),
        ("fraction<=0.25", [1, 2, 3, 4], [1.05, 2, 3, 5], "fail"),
        ("rtol=0.3", [1, 2, 3, 4], [1.05, 2, 3, 5], "pass"),
        ("rtol=0.1", [1, 2, 3, 4], [1.05, 2, 3, 5], "fail"),
        ("maxerr<=0.3", [1, 2, 3, 4], [1.05, 2, 3, 5], "pass"),
        ("cosine>=0.99", [1, 2, 3, 4], [1.05, 2, 3, 5], "pass"),
        ("cosine>=0.99", [1, 2, 3, 4], [-1, 2, 3, 5], "fail"),
        ("nan=equal", [1, 2, 3, np.nan], [1.005, 2, 3, np.nan], "pass"),
        ("nan=equal", [1, 2, 3, np.nan], [1.05, 2, 3, np.nan], "fail"),
        ("rtol=0.3", [1, 2, 3, 4], [1, 2, 3, np.nan], "fail"),
        # It refuses nothing.
        ("max_abs<=9", [1, 2, 3, 4], [1.05, 2, 3, 5], "not compared"),
    ],
)
def test_a_policy_in_place_of_the_check(
    terms: str, expect: list[float], got: list[float], verdict: str
) -> None:
    policy = replace(parse(terms), loosens=True)
    found = judge(Criteria("y", F32, 0.01, policy=policy), np.array(expect, "f4"), np.array(got, "f4"))
    assert (found.verdict.value, found.tolerance.loosened, found.tolerance.policy.loosens) == (
        verdict,
        0.01,
        True,
    )


@pytest.mark.parametrize(
    ("wrong", "terms", "verdict"),
    [
        (1, "ppm<=500", "pass"),
        (2, "ppm<=500", "fail"),
        (2, "top1=1, ppm<=1000", "pass"),
        # Zeros are off by 2000 at most, their mean everywhere by 1000.
        (1, "off_by<=9000", "not compared"),
        (1, "off_by<=500", "pass"),
    ],
)
def test_a_tolerance_for_all_beside_a_policy_that_compares(wrong: int, terms: str, verdict: str) -> None:
    expect = np.arange(1, 2001, dtype="i4")
    got = expect.copy()
    got[:wrong] += 3
    criteria = Criteria("labels", DType("Int32"), 1e9, policy=parse(terms), loosened=0.0)
    assert judge(criteria, expect, got).verdict.value == verdict
    # Unless that was asked for, the tolerance alone counts.
    if verdict == "pass" and "ppm" not in terms:
        assert judge(criteria._replace(loosened=None), expect, got).verdict is Verdict.NOT_COMPARED
    watch = ImpostorWatch({"labels": 1e9}, {"labels": parse(terms)})
    watch.add("labels", expect)
    assert bool(watch.impostors()) is (verdict == "not compared")


def test_loosening_asks_for_the_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "p.mge"
    assert main(["pack", str(model(tmp_path / "m.mge")), "-d", "[[1,2,3]]", "-o", str(packed), "-q"]) == 0
    argv = ["pack", str(packed), "-d", "[[3,2,1]]", "--maxerr", "0.1", "-o", str(packed), "-q"]
    assert main(argv) == 2
    assert (
        "has a tolerance of 0.0001, and 0.1 would let more through; pass --loosen" in capsys.readouterr().err
    )
    assert main([*argv, "--loosen"]) == 0
    assert "LOOSENED: the tolerance of 'y' was 0.0001 and is 0.1" in capsys.readouterr().err
    assert main([str(packed)]) == 0
    shown = capsys.readouterr().out
    assert "pass LOOSENED" in shown
    assert "LOOSENED: the tolerance was 0.0001" in shown
    assert main(["pack", str(packed), "-d", "[[3,2,1]]", "--maxerr", "0.01", "-o", str(packed), "-q"]) == 0


def test_nan_that_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [
        "pack",
        str(model(tmp_path / "m.mge")),
        "-d",
        str(tmp_path / "x.npy"),
        "-o",
        str(tmp_path / "p.mge"),
    ]
    np.save(tmp_path / "x.npy", np.array([[1, np.nan, 3]], "f4"))
    assert main([*argv, "--check", "y: nan=equal"]) == 2
    assert "--loosen" in capsys.readouterr().err
    assert main([*argv, "--check", "y: nan=equal", "--loosen"]) == 0
    assert main([str(tmp_path / "p.mge")]) == 0
    assert "pass LOOSENED" in capsys.readouterr().out
    bundle = loadrun.load(tmp_path / "p.mge")
    case = bundle.testcases[0]
    # Without one, MegEngine's check would pass as well.
    finite = {"x": np.array([[1, 2, 3]], "f4"), "y:expect": np.array([[2, 4, 6]], "f4")}
    bundle.testcases = [Testcase(finite, case.dtypes)]
    (result,) = loadrun.run(bundle)
    assert (result.verdict, result.outputs[0].tolerance.loosened) == (Verdict.PASS, None)
    bundle.testcases = [Testcase({**case.arrays, "y:expect": np.array([[2, 4, 6]], "f4")}, case.dtypes)]
    assert loadrun.run(bundle)[0].verdict is Verdict.FAIL


def test_policy_at_a_run(tmp_path: Path) -> None:
    packed = tmp_path / "p.mge"
    assert main(["pack", str(model(tmp_path / "m.mge")), "-d", "[[1,2,3]]", "-o", str(packed), "-q"]) == 0
    bundle = loadrun.load(packed)
    near = {**bundle.testcases[0].arrays, "y:expect": np.array([[2, 4, 6.00001]], "f4")}
    loadrun.save(bundle, packed, testcases=[Testcase(near, bundle.testcases[0].dtypes)])
    assert main([str(packed), "-q"]) == 0
    assert main([str(packed), "-q", "--check", "y: exact"]) == 1
    assert main([str(packed), "-q", "--check", "z: exact"]) == 2


def test_impostors() -> None:
    """Zeros, the mean and the other testcase are all within 0.1 of these values, and none of them of the others."""
    watch = ImpostorWatch({"small": 0.1, "large": 0.1, "ids": 0.0})
    for values in ([0.01, 0.02, 0.05], [0.03, -0.04, 0.0]):
        watch.add("small", np.array(values, "f4"))
        watch.add("large", np.array(values, "f4") * 100)
        watch.add("ids", np.array([7, 7, 7], "i4"))
    assert watch.warnings() == [
        "the check of 'ids' cannot fail on these testcases: another testcase's output would pass as well "
        "(tolerance 0)",
        "the check of 'small' cannot fail on these testcases: zeros, the mean everywhere and another testcase's "
        "output would pass as well (tolerance 0.1)",
    ]


def test_softmax_over_many_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Probabilities of 1/20000 are below the tolerance, so a net of negated weights would pass."""
    rng = np.random.default_rng(0)
    rows = 1 + rng.random((2, 20_000), dtype="f4")
    probabilities = rows / rows.sum(1, keepdims=True)
    g = Graph()
    (x,) = g.add(
        "Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1, 20_000), "x")], names=["x"]
    )
    g.outputs = g.add("Elemwise", Elemwise(mode=ElemwiseMode.ABS), inputs=[x], names=["prob"])
    bundle = Bundle(g)
    made = embed(bundle, [capture(bundle, {"x": row[None]}) for row in probabilities], 1e-4, warn=print)
    loadrun.save(made, tmp_path / "p.mge")
    assert main([str(tmp_path / "p.mge")]) == 0
    assert "the check of 'prob' cannot fail on these testcases: zeros, the mean" in capsys.readouterr().out
    # The default follows their scale: the largest is 1e-4, and rounding at that scale 1e-11.
    made = embed(bundle, [capture(bundle, {"x": row[None]}) for row in probabilities], warn=print)
    assert made.checks[0].maxerr == pytest.approx(1e-8)
    loadrun.save(made, tmp_path / "scaled.mge")
    assert main([str(tmp_path / "scaled.mge"), "--strict", "weak"]) == 0


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            np.array([[1e300, 1, 2]]),
            "input 'x': 1 numbers are beyond the range of Float32 and become infinity",
        ),
        (np.array([[16777217, 1, 2]]), "input 'x': 1 whole numbers have more digits than Float32 holds"),
        (np.array([[np.nan, 1, 2]], "f4"), "input 'x' holds NaN or infinity"),
    ],
)
def test_data_that_deserves_a_word(
    value: np.ndarray, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", value)
    argv = [
        "pack",
        str(model(tmp_path / "m.mge")),
        "-d",
        str(tmp_path / "x.npy"),
        "-o",
        str(tmp_path / "p.mge"),
    ]
    assert main(argv) == 0
    assert said in capsys.readouterr().err


def test_output_of_one_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    g = Graph()
    (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (2,), "x")], names=["x"])
    g.outputs = g.add("Elemwise", Elemwise(mode=ElemwiseMode.SUB), inputs=[x, x], names=["y"])
    loadrun.save(g, tmp_path / "m.mge")
    for data, said in (("[3,4]", True), ("[3,3]", False)):
        assert main(["pack", str(tmp_path / "m.mge"), "-d", data, "-o", str(tmp_path / "p.mge")]) == 0
        assert ("output 'y' is 0 everywhere" in capsys.readouterr().err) is said


def test_hidden_nan_of_a_weight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RELU of NaN is 0 in MegEngine."""
    g = Graph()
    (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (2,), "x")], names=["x"])
    data = np.array([np.nan, 2], "f4")
    (w,) = g.add(
        "SharedDeviceTensor", tensors=[StoredTensor(F32, (2,), "w", data.view(np.uint8))], names=["w"]
    )
    (t,) = g.add("Elemwise", Elemwise(mode=ElemwiseMode.MUL), inputs=[x, w])
    g.outputs = g.add("Elemwise", Elemwise(mode=ElemwiseMode.RELU), inputs=[t], names=["y"])
    loadrun.save(g, tmp_path / "m.mge")
    assert main(["pack", str(tmp_path / "m.mge"), "-d", "[3,4]", "-o", str(tmp_path / "p.mge")]) == 0
    assert "weight 'w' holds NaN or infinity; a later operator hides that" in capsys.readouterr().err


def test_impostors_are_measured_by_the_files_own_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ONNX's rule has the limit 1, which is no tolerance of 1."""
    model, out = "fixtures/onnx/convnet/model.onnx", tmp_path / "packed.mge"
    assert main(["pack", model, "-d", "#randn(0,1)", "-o", str(out), "-q"]) == 0
    assert "cannot fail" not in capsys.readouterr().err
    measure = check_errors(loadrun.load(out))["y"]
    assert measure is not None
    truth = np.array([[1.0, -2.0, 3.0, 4.0]], "f4")
    # |e - g| / (1e-7 + 1e-3 |e|), the largest of all.
    assert measure(truth, truth) == 0
    assert measure(truth, truth * np.float32(1.0005)) == pytest.approx(0.5, rel=1e-2)
    assert measure(truth, np.zeros_like(truth)) == pytest.approx(1000, rel=1e-3)
    packed = loadrun.load("fixtures/nets/layout_dense_nchw64.mge")
    (other,) = check_errors(packed).values()
    assert other is not None
    (expect,) = packed.testcases[0].expects.values()
    # The check compares it with a value of another layout.
    assert np.isnan(other(expect, expect))
    watch = ImpostorWatch({"y": 1.0}, errors={"y": measure})
    watch.add("y", truth)
    assert watch.warnings() == []
    watch = ImpostorWatch({"y": 1000.0}, errors={"y": measure})
    watch.add("y", truth)
    assert "zeros" in watch.warnings()[0]
    watch = ImpostorWatch({"y": 1000.0}, errors={"y": None})
    watch.add("y", truth)
    assert watch.warnings() == [], "what cannot be measured is not judged"


@pytest.mark.parametrize("jobs", [[], ["-j", "2"]])
def test_weak_checks_are_told_and_may_fail(
    jobs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tiny.mge"
    cases = [{"x": np.array([[1e-6, 2e-6, 3e-6]], "f4") * k} for k in (1, 2, 3)]
    bundle = Bundle(unary())
    loadrun.save(embed(bundle, [capture(bundle, case) for case in cases], 1e-4, warn=lambda _: None), path)
    assert main([str(path), "-q", *jobs]) == 0
    assert "cannot fail on these testcases: zeros" in capsys.readouterr().out
    report = tmp_path / "r.json"
    assert main([str(path), "-q", "--strict", "weak", "--json", str(report), *jobs]) == 3
    assert "cannot fail on these testcases: zeros" in capsys.readouterr().out
    assert json.loads(report.read_text())["files"][0]["verdict"] == "not compared"


@pytest.mark.parametrize("asked", [True, False])
def test_a_new_check_whose_tolerance_is_there_for_its_policy(asked: bool, tmp_path: Path) -> None:
    packed = str(tmp_path / "p.mge")
    argv = ["pack", str(model(tmp_path / "m.mge")), "-d", "[[1,2,3]]", "-o", packed, "-q"]
    argv += ["--maxerr", "y=1e9", "--check", "y: ppm<=500", *(["--loosen"] if asked else [])]
    assert main(argv) == 0
    assert main([packed, "-q"]) == (0 if asked else 3)
    bundle = loadrun.load(packed)
    bundle.testcases[0].arrays["y:expect"] = np.array([[2, 4, 6.01]], "f4")
    # One of three is beyond the usual 1e-4.
    assert loadrun.run(bundle)[0].verdict is Verdict.FAIL
