"""Scenarios: `loadrun pack --state --steps`, and what replays such files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun import trace
from loadrun.base.errors import FormatError, InputError
from loadrun.cli import main
from loadrun.compare.record import STEPS_MAGIC
from loadrun.graph.dtypes import Array, encode
from loadrun.passes.constants import bare
from loadrun.runner import Result, Runner, Verdict
from loadrun.testcase import Bundle, Testcase
from loadrun.verify.accepting import AcceptOptions, accept_files
from loadrun.verify.audit import AuditOptions, audit_files
from loadrun.verify.bench.files import BenchOptions, bench_files
from loadrun.verify.diff.files import diff_files
from loadrun.verify.pack.files import FilePacker, pack_file
from loadrun.verify.pack.scenario import Feedback, capture_steps
from loadrun.verify.pack.unpacking import unpack_file
from loadrun.verify.reduce import FailureOptions, ReduceOptions, reduce_file
from loadrun.verify.share import share_file

WORDS, WIDTH, PLACES, STEPS = 11, 6, 16, 5
IDS = [3, 1, 4, 1, 5]


@dataclass(frozen=True)
class Decoder:
    """One layer of attention over a growing cache, as numpy in float64 computes it."""

    words: Array
    places: Array
    keys: Array
    values: Array

    @classmethod
    def drawn(cls) -> Decoder:
        rng = np.random.default_rng(7)
        return cls(
            *(
                rng.normal(size=s).astype("f4")
                for s in ((WORDS, WIDTH), (PLACES, WIDTH), (WIDTH,) * 2, (WIDTH,) * 2)
            )
        )

    def __call__(self, ids: Array, position: Array, past: Array, seen: Array) -> tuple[Array, Array, Array]:
        x = (ids[:, None] == np.arange(WORDS)).astype(self.words.dtype) @ self.words
        x = x + (position[:, None] == np.arange(PLACES)).astype(self.words.dtype) @ self.places
        past, seen = np.concatenate([past, x @ self.keys], 0), np.concatenate([seen, x @ self.values], 0)
        scores = x @ past.T / WIDTH**0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        found = (weights / weights.sum(-1, keepdims=True)) @ seen
        return found @ self.words.T, past, seen

    def exact(self) -> Decoder:
        return Decoder(*(a.astype("f8") for a in (self.words, self.places, self.keys, self.values)))

    def logits(self, ids: list[int]) -> list[Array]:
        """The logits of every step, beginning with a cache of one row of zeros."""
        past = seen = np.zeros((1, WIDTH))
        found = []
        for k, word in enumerate(ids):
            logits, past, seen = self.exact()(np.array([word]), np.array([k]), past, seen)
            found.append(logits)
        return found


def written(decoder: Decoder, path: Path) -> Path:
    """Write the decoder as a dump."""

    @trace(symbolic=True, capture_as_const=True)
    def step(ids: Array, position: Array, past: Array, seen: Array) -> dict[str, Array]:
        logits, keys, values = decoder(ids, position, past, seen)
        return {"logits": logits, "present": keys, "now_seen": values}

    cache = np.zeros((2, WIDTH), "f4")
    step(np.array([3], "i4"), np.array([0], "i4"), cache, cache)
    step.dump(path, arg_names=["ids", "position", "past", "seen"])
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(Decoder.drawn(), tmp_path_factory.mktemp("decoder") / "decoder.mge")


CACHES = ("--state", "past=present", "--state", "seen=now_seen")
DATA = f"ids:{IDS};position:#full(k,1);past:#zeros(1,...);seen:#zeros(1,...)"


def pack(model: Path, out: Path, data: str = DATA, *more: str, steps: int = STEPS) -> int:
    return main(["pack", str(model), "-d", data, "-o", str(out), *CACHES, "--steps", str(steps), "-q", *more])


@pytest.fixture(scope="module")
def packed(model: Path) -> Path:
    out = model.parent / "scenario.mge"
    assert pack(model, out) == 0
    return out


def test_expected_values_are_those_of_numpy(packed: Path) -> None:
    case = loadrun.load(packed).testcases[0]
    found = [case.arrays["logits:expect"], *(s["logits:expect"] for s in case.steps)]
    for value, exact in zip(found, Decoder.drawn().logits(IDS), strict=True):
        np.testing.assert_allclose(value, exact, rtol=1e-4, atol=1e-5)
    # No step but the first holds what feeds it.
    names = ["ids", "logits:expect", "now_seen:expect", "position", "present:expect"]
    assert [sorted(s) for s in case.steps] == [names] * (STEPS - 1)
    assert [s["present:expect"].shape for s in case.steps] == [(k, WIDTH) for k in range(3, STEPS + 2)]
    assert [s["ids"].tolist() for s in case.steps] == [[i] for i in IDS[1:]]
    assert [s["position"].tolist() for s in case.steps] == [[1], [2], [3], [4]]


@pytest.mark.parametrize("engine", ["reference", "float64", "onnxruntime"])
def test_every_engine_passes_every_step(packed: Path, engine: str) -> None:
    if engine == "onnxruntime":
        pytest.importorskip(engine)
    (result,) = loadrun.run(packed, engine=engine)
    assert result.verdict is Verdict.PASS
    names = [f"logits@{k}" for k in range(STEPS)]
    assert [o.name for o in result.outputs if o.name.startswith("logits")] == names
    assert {o.step for o in result.outputs if o.verdict is Verdict.PASS} == set(range(STEPS))


def faulty(packed: Path, name: str, change: Callable[[Array], None]) -> Bundle:
    """The file with another stored tensor of the shape of one of the decoder's."""
    bundle = loadrun.load(packed)
    wanted = getattr(Decoder.drawn(), name)
    for opr in bundle.graph.oprs:
        for tensor in opr.tensors:
            if (
                tensor.data is not None
                and tensor.shape == wanted.shape
                and np.array_equal(tensor.value(), wanted)
            ):
                value = wanted.copy()
                change(value)
                tensor.data = encode(value, tensor.dtype)
                return bundle
    raise AssertionError(name)


def test_a_fault_in_a_position_fails_from_its_step_on(packed: Path) -> None:
    def change(places: Array) -> None:
        places[2] += 0.5

    (result,) = Runner(faulty(packed, "places", change)).replay()
    logits = [o.verdict.value for o in result.outputs if o.output == "logits"]
    assert result.verdict is Verdict.FAIL
    assert logits[:3] == ["pass", "pass", "fail"]


def test_a_fault_that_only_the_cache_carries_fails(packed: Path) -> None:
    """The cache is wrong after every step, by the step's own row and by those before."""
    (result,) = Runner(faulty(packed, "keys", lambda keys: keys.__imul__(1.01))).replay()
    assert {o.name for o in result.outputs if o.verdict is Verdict.FAIL} >= {
        f"present@{k}" for k in range(STEPS)
    }


def test_large_states_are_expected_after_some_steps() -> None:
    """A state of 40 bytes in 7 steps: what may be kept is kept at even distances, and always at the end."""
    feedback = Feedback({"h": "new"}, {})

    def run(inputs: Mapping[str, Array]) -> Testcase:
        new = inputs["h"] + np.float32(1)
        return Testcase({**inputs, "new:expect": new, "y:expect": new[:1]})

    for most, places in ((280, [1, 2, 3, 4, 5, 6]), (140, [2, 4, 6]), (100, [3, 6]), (1, [6])):
        inputs = iter([{"h": np.zeros(10, "f4")}] + [{}] * 6)
        case = capture_steps(inputs, feedback, (run, run), 7, most)
        assert [k for k, s in enumerate(case.steps, 1) if "new:expect" in s] == places
        assert [float(s["y:expect"][0]) for s in case.steps] == [2, 3, 4, 5, 6, 7]
        assert all(
            s["new:expect"].tolist() == [k] * 10 for k, s in enumerate(case.steps, 2) if k - 1 in places
        )


def test_unpack_and_pack_again_keep_all_steps(packed: Path, wrong: Path, tmp_path: Path) -> None:
    folder, again = tmp_path / "folder", tmp_path / "again.mge"
    assert main(["convert", str(packed), "-o", str(folder) + "/"]) == 0
    stored = np.load(folder / "0" / "step3" / "logits.expect.npy")
    np.testing.assert_allclose(stored, Decoder.drawn().logits(IDS)[3], rtol=1e-4, atol=1e-5)
    assert main(["pack", str(folder), "-o", str(again), "-q"]) == 0
    one, other = (loadrun.load(p).testcases[0] for p in (packed, again))
    assert one.states == other.states
    for a, b in zip(one.each_step, other.each_step, strict=True):
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[n], b[n]) for n in a)
    # Values that are given stay, whatever the model computes.
    expects = [
        np.load(folder / "0" / f"{p}logits.expect.npy") for p in ("", *(f"step{k}/" for k in range(1, STEPS)))
    ]
    (folder / "model.mge").unlink()
    loadrun.save(bare(loadrun.load(wrong)), folder / "model.mge")
    told: list[str] = []
    FilePacker(folder, warn=told.append).pack(tmp_path / "third.mge")
    assert any("step 2: the model does not compute the expected value of 'logits'" in text for text in told)
    third = loadrun.load(tmp_path / "third.mge")
    for step, expect in zip(third.testcases[0].each_step, expects, strict=True):
        assert np.array_equal(step["logits:expect"], expect)
    assert [r.verdict for r in loadrun.run(third)] == [Verdict.FAIL]


def test_unpacked_testcases_of_different_kinds_are_told(packed: Path, model: Path, tmp_path: Path) -> None:
    assert pack(packed, tmp_path / "two.mge", DATA.replace(str(IDS), str(IDS[:3])), steps=3) == 0
    unpack_file(tmp_path / "two.mge", tmp_path / "folder")
    with pytest.raises(InputError, match="testcases of different numbers of steps or other states"):
        pack_file(tmp_path / "folder", tmp_path / "again.mge")


def test_audit_finds_what_the_steps_of_a_scenario_catch(packed: Path, tmp_path: Path) -> None:
    (found,) = (a for _, a in audit_files([packed], AuditOptions(mutants=40)).files)
    assert found.testcases == 1
    assert {s.output: s.reason for s in found.scores} == dict.fromkeys(("logits", "present", "now_seen"))
    # Each expected value is wrong in one step; ids, position and both caches are moved in one.
    assert all(s.caught["expected values"] == 1 for s in found.scores)
    assert found.whole.caught["inputs moved by one"] == 4
    # Words 0, 2, 6 to 10 and places 5 to 15 are used in no step, but all words make logits.
    silent = [text for text in found.findings if "places" in text or "16x6" in text]
    assert len(silent) == 1
    assert found.whole.value is not None
    assert 0 < found.whole.value < 1


def test_bench_runs_all_steps(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[tuple[int, int]] = []
    kept = Runner.run

    def run(self: Runner, inputs: Mapping[str, Array]) -> Result:
        fed.append((int(inputs["position"][0]), len(inputs["past"])))
        return kept(self, inputs)

    monkeypatch.setattr(Runner, "run", run)
    found = bench_files([packed], BenchOptions(min_time=0, min_passes=2))
    assert found.exit_code == 0
    assert fed[-STEPS:] == [(k, k + 1) for k in range(STEPS)]
    (one,) = found.measurements
    # Of attention alone 2 products of WIDTH times the rows of the cache a step, 2 flops each.
    attention = sum(2 * 2 * WIDTH * rows for rows in range(2, STEPS + 2))
    rest = STEPS * 2 * (WORDS * WIDTH + PLACES * WIDTH + 2 * WIDTH * WIDTH + WIDTH * WORDS)
    assert one.flops is not None
    assert attention + rest <= one.flops < 1.5 * (attention + rest)
    refused = bench_files([packed], BenchOptions(min_time=0, batch=(2,)))
    assert ["scenario, whose steps cannot change size" in f.message for f in refused.failures] == [True]


def test_recurrent_states_are_judged_after_every_step(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    w, u = rng.normal(size=(4, 4)).astype("f4"), rng.normal(size=(3, 4)).astype("f4")

    @trace(symbolic=True, capture_as_const=True)
    def cell(x: Array, h: Array) -> dict[str, Array]:
        new = np.tanh(x @ u + h @ w)
        return {"new": new, "y": new.sum(axis=1)}

    cell(np.zeros((1, 3), "f4"), np.zeros((1, 4), "f4"))
    cell.dump(tmp_path / "cell.mge", arg_names=["x", "h"])
    xs = rng.normal(size=(6, 1, 3)).astype("f4")
    np.save(tmp_path / "xs.npy", xs)
    out = tmp_path / "rnn.mge"
    data = f"x:{tmp_path}/xs.npy;h:#zeros"
    argv = [
        "pack",
        str(tmp_path / "cell.mge"),
        "-d",
        data,
        "-o",
        str(out),
        "--state",
        "h=new",
        "--steps",
        "6",
    ]
    assert main([*argv, "-q"]) == 0
    case, h = loadrun.load(out).testcases[0], np.zeros((1, 4))
    for x, step in zip(xs, [case.arrays, *case.steps], strict=True):
        h = np.tanh(x.astype("f8") @ u + h @ w)
        np.testing.assert_allclose(step["new:expect"], h, atol=1e-5)
        np.testing.assert_allclose(step["y:expect"], h.sum(1), atol=1e-5)
    (result,) = loadrun.run(out)
    assert [o.name for o in result.outputs] == [f"{n}@{k}" for k in range(6) for n in ("new", "y")]


def test_inputs_may_grow_from_step_to_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sum of a window that widens, added up: 1, 1 + 2, 1 + 2 + 3."""

    @trace(symbolic=True, capture_as_const=True)
    def total(window: Array, before: Array) -> dict[str, Array]:
        return {"after": before + window.sum(axis=1)}

    total(np.ones((1, 1), "f4"), np.zeros(1, "f4"))
    total.dump(tmp_path / "total.mge", arg_names=["window", "before"])
    argv = [
        "pack",
        str(tmp_path / "total.mge"),
        "-d",
        "window:#ones(1,k+1);before:#zeros",
        "--state",
        "before=after",
    ]
    capsys.readouterr()
    assert main([*argv, "--steps", "3", "-o", str(tmp_path / "grown.mge"), "-q"]) == 0
    assert "warning" not in capsys.readouterr().err
    steps = loadrun.load(tmp_path / "grown.mge").testcases[0].each_step
    assert [s["after:expect"].tolist() for s in steps] == [[1], [3], [6]]


def test_the_largest_element_becomes_data_of_the_file(model: Path, tmp_path: Path) -> None:
    data = DATA.replace(str(IDS), "[3]")
    assert pack(model, tmp_path / "greedy.mge", data, "--state", "ids=argmax(logits)") == 0
    decoder, ids = Decoder.drawn(), [3]
    for _ in range(STEPS - 1):
        ids.append(int(decoder.logits(ids)[-1].argmax()))
    case = loadrun.load(tmp_path / "greedy.mge").testcases[0]
    assert [int(s["ids"][0]) for s in case.steps] == ids[1:]
    assert "ids" not in case.states


def test_a_near_tie_is_no_flake(model: Path, tmp_path: Path) -> None:
    """Two words with all but equal scores swap; the ids of the file are fed all the same."""
    tie = Decoder.drawn()
    top = int(tie.logits(IDS)[2].argmax())
    other = (top + 1) % WORDS
    tie.words[other] = tie.words[top] * np.float32(1 + 2e-7)
    written(tie, tmp_path / "tie.mge")
    terms = "logits: top1=1, near_tie<=0.001"
    assert pack(tmp_path / "tie.mge", tmp_path / "tied.mge", DATA, "--check", terms) == 0
    bundle = loadrun.load(tmp_path / "tied.mge")
    for opr in bundle.graph.oprs:
        for tensor in opr.tensors:
            if tensor.data is not None and tensor.shape == tie.words.shape:
                value = tensor.value().copy()
                value[[other, top]] = value[[top, other]]
                tensor.data = encode(value, tensor.dtype)
    (result,) = Runner(bundle).replay()
    assert result.verdict is Verdict.PASS, result


def test_one_specification_for_each_step(model: Path, packed: Path, tmp_path: Path) -> None:
    lines = [
        f"ids:[{i}];position:[{k}]" + (";past:#zeros(1,...);seen:#zeros(1,...)" if not k else "")
        for k, i in enumerate(IDS)
    ]
    (tmp_path / "steps.txt").write_text("\n".join(lines))
    assert pack(model, tmp_path / "listed.mge", f"@{tmp_path}/steps.txt") == 0
    a, b = (loadrun.load(p).testcases[0] for p in (packed, tmp_path / "listed.mge"))
    for one, other in zip(a.steps, b.steps, strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[n], other[n]) for n in one)


def test_a_file_that_is_written_again_keeps_its_steps(packed: Path, tmp_path: Path) -> None:
    loadrun.save(loadrun.load(packed), tmp_path / "again.mge")
    again = loadrun.load(tmp_path / "again.mge")
    assert again.facts.scenarios == {0: STEPS - 1}
    assert [r.verdict for r in loadrun.run(again)] == [Verdict.PASS]
    assert main([str(tmp_path / "again.mge")]) == 0
    # Without --replace a further scenario stands beside the first.
    assert pack(packed, tmp_path / "two.mge", DATA.replace("[3", "[9")) == 0
    two = loadrun.load(tmp_path / "two.mge")
    assert two.facts.scenarios == {0: STEPS - 1, 1: STEPS - 1}
    assert [int(c.arrays["ids"][0]) for c in two.testcases] == [3, 9]


def test_info_says_how_many_steps(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(packed)]) == 0
    assert f"1 testcase (of {STEPS} steps)\n" in capsys.readouterr().out
    assert main(["info", str(packed), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["steps"] == {"0": STEPS}


def test_reports_say_the_step(packed: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    argv = [str(packed), "--json", str(report), "--junit", str(tmp_path / "r.xml"), "-j", "2"]
    assert main(argv) == 0
    (file,) = json.loads(report.read_text())["files"]
    (case,) = file["testcases"]
    assert [(o["name"], o["step"]) for o in case["outputs"]][:1] == [("logits@0", 0)]
    assert (tmp_path / "r.xml").read_text().count("logits@") == STEPS


def damaged(packed: Path, at: int) -> Iterator[bytes]:
    data = bytearray(packed.read_bytes())
    start = data.index(STEPS_MAGIC)
    data[start + at] ^= 0xFF
    yield bytes(data)
    yield bytes(data[: start + at])


@pytest.mark.parametrize("at", [9, 17, 30, 200])
def test_damaged_steps_are_refused(packed: Path, at: int) -> None:
    for data in damaged(packed, at):
        with pytest.raises(FormatError):
            loadrun.loads(data)


def test_a_changed_step_is_seen(packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = packed.read_bytes()
    value = loadrun.load(packed).testcases[0].steps[1]["logits:expect"].tobytes()
    at = data.rindex(value)
    (tmp_path / "changed.mge").write_bytes(data[:at] + b"\x00\x00\x80\x3f" + data[at + 4 :])
    assert main([str(tmp_path / "changed.mge")]) == 1
    assert "testcase 0: its later steps have changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--state", "pst=present"], "there is no input 'pst'; the inputs are ids, position, past, seen"),
        (["--state", "ids=logit"], "there is no output 'logit'; the outputs are logits, present, now_seen"),
        (["--state", "past=now_seen"], "the input 'past' is fed twice"),
        (["--state", "ids"], "a state must be INPUT=OUTPUT"),
        (["--no-assert"], "a scenario without checks would test nothing; drop --no-assert"),
        (["-d", DATA], "--steps 5 takes one specification or 5, found 2"),
        (
            ["--state", "position=argmax(present)"],
            "testcase 0 (ids:[3, 1, 4, 1, 5];position:#full(0,1);past:#zeros(1,...);seen:#zeros(1,...)): step 0: the "
            "input 'position' has shape [1], but there are 2 largest elements of 'present'",
        ),
        (["--steps", "1"], "a scenario needs both --state and --steps, of at least 2"),
    ],
)
def test_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert pack(model, tmp_path / "no.mge", DATA, *more) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "no.mge").exists()


def test_commands_that_would_lose_the_steps_refuse(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(packed), str(tmp_path / "x.onnx")]) == 2
    assert "testcase 0 is a scenario of 5 steps" in capsys.readouterr().err


def test_onnxruntime_runs_more_sizes_of_a_cache_than_it_keeps_models(packed: Path) -> None:
    pytest.importorskip("onnxruntime")
    runner = Runner(packed, "onnxruntime")
    exact = Decoder.drawn().exact()
    for rows in (3, 1, 7, 2, 12, 30, 4, 5, 6, 8, 3):
        past = np.linspace(-1, 1, rows * WIDTH, dtype="f4").reshape(rows, WIDTH)
        feeds = {
            "ids": np.array([2], "i4"),
            "position": np.array([1], "i4"),
            "past": past,
            "seen": past[::-1],
        }
        found = runner.run(feeds)
        expected = exact(feeds["ids"], feeds["position"], past.astype("f8"), past[::-1].astype("f8"))
        np.testing.assert_allclose(found["logits"], expected[0], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found["present"], expected[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("engine", ["onnxruntime", "onnxruntime:translated", "reference"])
def test_a_scenario_on_the_onnx_file_that_it_was_packed_from(tmp_path: Path, engine: str) -> None:
    """The state halves and takes in the input: 1, 1.5, 1.75 for ones."""
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    half = onnx.numpy_helper.from_array(np.array([0.5], "f4"), "half")
    nodes = [
        onnx.helper.make_node("Mul", ["h", "half"], ["kept"]),
        onnx.helper.make_node("Add", ["kept", "x"], ["new"]),
    ]
    ends = [onnx.helper.make_tensor_value_info(n, 1, [1, 2]) for n in ("x", "h", "new")]
    graph = onnx.helper.make_graph(nodes, "g", ends[:2], ends[2:], [half])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    argv = ["pack", str(tmp_path / "m.onnx"), "-d", "x:#ones;h:#zeros", "--state", "h=new", "--steps", "3"]
    assert main([*argv, "-o", str(tmp_path / "s.mge"), "-q"]) == 0
    bundle = loadrun.load(tmp_path / "m.onnx", test_data=tmp_path / "s.mge", native=True)
    (result,) = Runner(bundle, engine).replay()
    assert result.verdict is Verdict.PASS
    assert [float(result[f"new@{k}"][0, 0]) for k in range(3)] == [1.0, 1.5, 1.75]
    run = [str(tmp_path / "m.onnx"), "--input", str(tmp_path / "s.mge"), "--engine", engine, "-q"]
    assert main(run) == 0
    half.CopyFrom(onnx.numpy_helper.from_array(np.array([0.51], "f4"), "half"))
    model.graph.initializer[0].CopyFrom(half)
    onnx.save(model, tmp_path / "m.onnx")
    assert main(run) == 1


@pytest.fixture(scope="module")
def wrong(packed: Path) -> Path:
    """A file whose position 2 is wrong."""

    def change(places: Array) -> None:
        places[2] += 0.5

    bundle = faulty(packed, "places", change)
    out = packed.parent / "wrong.mge"
    loadrun.save(bundle, out)
    return out


def test_diff_names_the_first_step_that_differs(packed: Path, wrong: Path, tmp_path: Path) -> None:
    found = diff_files(wrong, packed)
    assert (found.agree, found.ran_on) == (False, "testcase 0, step 2")
    same = diff_files(packed)
    assert (same.agree, same.ran_on) == (True, f"testcase 0, steps 0 to {STEPS - 1}")
    # Results of a run are compared step by step, too.
    saved = tmp_path / "results.zip"
    assert main([str(packed), "--output", str(saved), "-q"]) == 0
    assert diff_files(packed, saved).ran_on == f"testcase 0, steps 0 to {STEPS - 1}"
    found = diff_files(wrong, saved)
    assert (found.agree, found.ran_on) == (False, "testcase 0, step 2")


def test_reduce_takes_the_first_step_that_fails(packed: Path, wrong: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.mge"
    reduced = reduce_file(wrong, out, ReduceOptions(against=str(packed)))
    assert reduced.operators < reduced.total
    (result,) = loadrun.run(out)
    assert result.verdict is Verdict.FAIL
    places = [a for a in loadrun.load(out).testcases[0].arrays.values() if a.dtype.kind == "i"]
    assert all(a.tolist() == [2] for a in places)


def test_share_takes_a_step(packed: Path, tmp_path: Path) -> None:
    """Rounding of float32 fails a tolerance of 1e-9, in a step at the latest in which the cache is not zeros."""
    out = tmp_path / "shared.mge"
    shared = share_file(packed, out, FailureOptions(against="float64", maxerr=1e-9))
    assert shared.reason == "values differ"
    bundle = loadrun.load(out)
    assert not bundle.facts.scenarios
    assert [r.verdict for r in loadrun.run(bundle)] == [Verdict.FAIL]


def test_accept_renews_the_steps_that_fail(packed: Path, wrong: Path, tmp_path: Path) -> None:
    file = tmp_path / "accepted.mge"
    file.write_bytes(wrong.read_bytes())
    (one,) = accept_files([file], AcceptOptions(reason="positions moved"))
    assert one.failure is None
    assert one.written
    # The step with the wrong position, and those that attend to it in the cache.
    places = {v.output for v in one.values}
    assert {"logits@2", "present@4", "now_seen@4"} <= places
    assert not places & {"logits@0", "logits@1"}
    assert [r.verdict for r in loadrun.run(file)] == [Verdict.PASS]
    assert main([str(file)]) == 0
    moved = Decoder.drawn()
    moved.places[2] += 0.5
    case, before = (loadrun.load(p).testcases[0] for p in (file, packed))
    for k, (arrays, exact) in enumerate(zip([case.arrays, *case.steps], moved.logits(IDS), strict=True)):
        np.testing.assert_allclose(arrays["logits:expect"], exact, rtol=1e-4, atol=1e-5)
        assert arrays.keys() == [before.arrays, *before.steps][k].keys()


@pytest.mark.parametrize("version", ["FBS", "FBS_V2"])
def test_convert_to_mge_keeps_the_steps(packed: Path, tmp_path: Path, version: str) -> None:
    out = tmp_path / "other.mge"
    assert main(["convert", str(packed), str(out), "--format", version]) == 0
    again = loadrun.load(out)
    assert again.facts.scenarios == {0: STEPS - 1}
    for arrays, exact in zip(
        [again.testcases[0].arrays, *again.testcases[0].steps], Decoder.drawn().logits(IDS), strict=True
    ):
        np.testing.assert_allclose(arrays["logits:expect"], exact, rtol=1e-4, atol=1e-5)
    assert [r.verdict for r in loadrun.run(again)] == [Verdict.PASS]
