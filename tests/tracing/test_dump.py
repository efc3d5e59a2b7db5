"""`trace.dump`: every parameter, and misuse. Files are read back; numbers are computed by hand."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import loadrun
from loadrun.dump.checkpoint import load_checkpoint
from loadrun.megengine.functional import dropout
from loadrun.megengine.random import RNG, normal, uniform
from loadrun.tensors import Tensor, tensor
from loadrun.tracing import TraceError, trace

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
W = tensor(np.array([1, 10, 100], np.float32))


def weighted(x: Tensor) -> Tensor:
    return (x * W).sum(axis=1)


def traced(function: Any = weighted, *args: Any, **kwargs: Any) -> trace:
    t: trace = trace(function, symbolic=True, capture_as_const=True)
    t(*(args or (tensor(X),)), **kwargs)
    return t


def dumped(t: trace, **options: Any) -> loadrun.Bundle:
    file = io.BytesIO()
    t.dump(file, **options)
    return loadrun.loads(file.getvalue())


def outputs(bundle: loadrun.Bundle, **feeds: Any) -> dict[str, list[Any]]:
    found = loadrun.Runner(bundle).run({k: np.asarray(v, np.float32) for k, v in feeds.items()}).outputs
    return {o.name: o.value.tolist() for o in found if o.value is not None}


def test_names_and_counts(tmp_path: Path) -> None:
    result = traced().dump(tmp_path / "f.mge", arg_names=["x"], output_names="y", keep_param_name=True)
    assert (result.inputs, result.outputs) == (["x"], ["y"])
    assert result[4] == ["x"]
    assert result.tot_bytes == (tmp_path / "f.mge").stat().st_size
    assert outputs(loadrun.load(tmp_path / "f.mge"), x=[[1, 2, 3]]) == {"y": [321]}


def test_automatic_names_are_megengine_s() -> None:
    bundle = dumped(traced(lambda a, b: a + b, tensor([2]), tensor([4])), optimize_for_inference=False)
    assert [v.name for v in bundle.inputs] == ["arg_0", "arg_1"]
    assert list(bundle.outputs) == ["ADD"]
    assert len(bundle.graph.oprs) == 3


def test_example_and_arrays_as_input_data(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("loadrun.tracing.dumping._log.info", told.append)
    bundle = dumped(traced(), arg_names=["x"], output_names="y", input_data=["example", X * 2, {"x": X * 3}])
    assert [c.arrays["x"].tolist() for c in bundle.testcases] == [(X * k).tolist() for k in (1, 2, 3)]
    assert [c.expects["y"].tolist() for c in bundle.testcases] == [[321 * k, 654 * k] for k in (1, 2, 3)]
    assert not told
    dumped(traced())
    assert [t.partition(";")[0] for t in told] == ["no input_data, so the file has no testcases"]


def test_keyword_tensors_are_inputs_by_their_name() -> None:
    t = traced(lambda x, *, bias, factor: x * factor + bias, tensor(X), bias=tensor([1.0]), factor=3)
    bundle = dumped(t, arg_names="x", output_names=["y"])
    assert [v.name for v in bundle.inputs] == ["x", "bias"]
    assert outputs(bundle, x=[[2]], bias=[5]) == {"y": [[11]]}


def test_dict_outputs_keep_their_keys() -> None:
    t = traced(lambda x: {"sum": x.sum(axis=1), "parts": [x + 1, x], "same": x.sum(axis=1)})
    bundle = dumped(t, arg_names=["x"])
    want = {"sum": [3], "parts.0": [[2, 3]], "parts.1": [[1, 2]], "same": [3]}
    assert outputs(bundle, x=[[1, 2]]) == want


def test_outputs_that_repeat_or_pass_an_input_on() -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return y, x, y, W

    bundle = dumped(traced(f), arg_names=["x"], output_names=["a", "b", "c", "d"], input_data="#rand(0,1)")
    assert [r.verdict.value for r in loadrun.run(bundle)] == ["pass"]
    assert [c.name for c in bundle.checks] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("format", ["FBS_V2", "FBS"])
def test_input_data_becomes_testcases_with_checks(format: str) -> None:
    bundle = dumped(
        traced(),
        arg_names=["x"],
        output_names=["y"],
        dump_format=format,
        input_data=["x:[[1,2,3]]", "#rand(0,1,5,...)"],
        maxerr=1e-6,
        silent=True,
    )
    first, second = bundle.testcases
    assert first.expects["y"].tolist() == [321]
    assert second.inputs["x"].shape == (5, 3)
    assert [(c.maxerr, c.verbose) for c in bundle.checks] == [(pytest.approx(1e-6), False)]
    assert [r.verdict.value for r in loadrun.run(bundle)] == ["pass", "pass"]


def test_pictures_are_resized_transformed_and_repeated(tmp_path: Path) -> None:
    image = np.zeros((4, 8, 3), np.uint8)
    image[:, :, 0] = 200
    cv2.imwrite(str(tmp_path / "i.png"), image)
    t = traced(lambda x: x.sum(axis=(2, 3)), tensor(np.zeros((1, 3, 2, 2), np.float32)))
    bundle = dumped(
        t,
        arg_names=["data"],
        output_names=["s"],
        input_data=f'data:"{tmp_path}/i.png"',
        resize_input=True,
        input_transform="data.astype('float32') / 100",
        repeat=3,
    )
    assert bundle.testcases[0].expects["s"].tolist() == [[8, 0, 0]] * 3


def test_no_assert_embeds_inputs_alone() -> None:
    bundle = dumped(traced(), arg_names=["x"], input_data="#ones", no_assert=True)
    assert not bundle.checks
    assert bundle.testcases[0].inputs["x"].tolist() == [[1, 1, 1]] * 2


def test_append_puts_dumps_one_behind_another(tmp_path: Path) -> None:
    path = str(tmp_path / "two.mge")
    traced().dump(path, output_names=["first"])
    traced(lambda x: x + 1).dump(path, output_names=["second"], append=True)
    assert [list(b.outputs) for b in loadrun.load_all(path)] == [["first"], ["second"]]


def test_user_info_and_metadata() -> None:
    info = {"trained": [1, 2], "by": "us"}
    metadata = dumped(traced(), user_info=info).graph.header.metadata
    assert metadata is not None
    assert metadata.user_info is not None
    assert pickle.loads(metadata.user_info) == info
    assert dumped(traced(), enable_metadata=False).graph.header.metadata is None


def test_tensors_in_user_info_are_megengines() -> None:
    metadata = dumped(traced(), user_info={"mean": Tensor([1.0, 2.0])}).graph.header.metadata
    assert metadata is not None
    assert b"megengine" in (metadata.user_info or b"")
    assert b"loadrun" not in (metadata.user_info or b"")
    held = load_checkpoint(metadata.user_info or b"")
    np.testing.assert_array_equal(held["mean"].numpy(), np.float32([1, 2]))


def test_names_that_are_kept() -> None:
    def f(x: Tensor) -> Tensor:
        return ((x * 2) + 1) * x

    t = traced(f)
    plain = {"dump_format": "FBS", "optimize_for_inference": False}
    all_names, outs, none = (
        {v.name for v in dumped(t, keep_var_name=k, **plain).graph.vars()} for k in (2, 1, 0)
    )
    assert {"ADD", "MUL[0]", "MUL[1]", "arg_0"} <= all_names
    assert "MUL[1]" in outs
    assert "ADD" not in outs
    assert none <= {"arg_0", None, ""}
    named = dumped(t, keep_opr_name=True, keep_opr_priority=True).graph.oprs
    assert any(o.name for o in named)
    assert any(o.dumped.priority for o in named)


def test_strip_info(tmp_path: Path) -> None:
    path = tmp_path / "strip.json"
    traced().dump(io.BytesIO(), strip_info_file=str(path))
    assert "MUL" in json.loads(path.read_text())["elemwise_modes"]
    traced(loadrun.megengine.functional.exp).dump(io.BytesIO(), strip_info_file=str(path), append_json=True)
    assert {"MUL", "EXP"} <= set(json.loads(path.read_text())["elemwise_modes"])
    # MegEngine looks at it where there is such a file.
    assert traced().dump(io.BytesIO(), append_json=True).nr_opr > 0


def test_optimization_flags_change_the_graph_and_stand_in_the_metadata() -> None:
    bundle = dumped(traced(), arg_names=["x"], output_names=["y"], enable_ioc16=True)
    assert bundle.graph.header.metadata is not None
    assert bundle.graph.header.metadata.optimize_options & 2
    (value,) = outputs(bundle, x=[[1, 2, 3]]).values()
    assert value == [321]
    assert bundle.outputs["y"].owner.inputs[0].dtype is None or "16" in str(bundle.graph)
    plain = dumped(traced(), optimize_for_inference=False, enable_ioc16=True).graph.header.metadata
    assert plain is not None
    assert plain.optimize_options == 0


def test_ground_truth_is_what_was_traced_so_that_a_lossy_pass_shows() -> None:
    # Next to 1, float16 has steps of 2 ** -10: 1.0004 becomes 1.
    data = {"input_data": "x:[[1.0004,0.25,3]]", "arg_names": ["x"], "output_names": ["y"]}
    with pytest.warns(UserWarning, match="the written file fails its checks: y of testcase 0"):
        bundle = dumped(traced(lambda x: x - 1), **data, enable_ioc16=True, maxerr=1e-5)
    (result,) = loadrun.run(bundle)
    assert result.verdict.value == "fail"
    assert result.outputs[0].error == float(np.float16(0.0004))
    bundle = dumped(traced(lambda x: x - 1), **data, enable_ioc16=True, maxerr=1e-2)
    assert loadrun.run(bundle)[0].verdict.value == "pass"


def test_versions_and_older_runtimes() -> None:
    t = traced(lambda x: x * 2)
    assert dumped(t, model_version=3).graph.header.model_version == 3
    assert dumped(t, dump_format="FBS", compat_older_version=" 8.14 ").graph.header.magic == "MGBS"
    root = traced(lambda x: loadrun.megengine.functional.sqrt(x))
    kept = dumped(root, no_change_graph=True).graph
    assert any(o.title == "SQRT" for o in kept.oprs)
    rewritten = dumped(root, no_change_graph=False).graph
    assert not any(o.title == "SQRT" for o in rewritten.oprs)


@pytest.mark.parametrize("level", [0, 2])
def test_what_megengine_would_leave_out_while_loading_is_left_out(level: int) -> None:
    fixed = tensor(np.ones((2, 2), np.float32))

    def f(x: Tensor) -> list[Tensor]:
        y = loadrun.megengine.functional.broadcast_to(x + 1, x.shape)
        z = loadrun.megengine.functional.broadcast_to(y * 2, y.shape)
        w = loadrun.megengine.functional.broadcast_to(fixed, (2, 2)) + z.reshape(z.shape)
        return [w, z, loadrun.megengine.functional.broadcast_to(x, y.shape)]

    t = trace(f, symbolic=True, capture_as_const=True, opt_level=level)
    x = np.zeros((2, 2), np.float32)
    f_x = [v.numpy() for v in t(tensor(x))]
    graph = dumped(t, optimize_for_inference=False).graph
    kinds = [o.type for o in graph.oprs]
    # MegEngine knows that x and y have one shape, but not that x + 1 and y * 2 have it.
    assert kinds.count("Broadcast") == 2
    assert kinds.count("ReshapeV1") == 0
    for got, want in zip(f_x, (3, 2, 0), strict=True):
        np.testing.assert_array_equal(got, np.full((2, 2), want))


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"arg_names": ["a", "b"]},
            ValueError,
            r"wrong number of arg_names, should be 1 values: found 2 \('a', 'b'\)",
        ),
        (
            {"output_names": ["a", "b"]},
            ValueError,
            "wrong number of output_names, should be 1 values: found 2",
        ),
        ({"input_data": []}, AssertionError, "testcases can not be empty"),
        ({"input_data": ["#rand(0"]}, ValueError, r"#rand\(0"),
        ({"input_data": ["z:#ones"]}, ValueError, "z"),
        ({"dump_format": "ONNX"}, ValueError, "format 'ONNX' is unknown; expected FBS_V2 or FBS"),
        (
            {"compat_older_version": "8.12", "dump_format": "FBS"},
            AssertionError,
            "only support 8.14 currently",
        ),
        ({"compat_older_version": "8.14"}, AssertionError, "only works when dump_format is FBS, found None"),
        (
            {"compat_older_version": "8.14", "dump_format": "FBS", "no_change_graph": True},
            AssertionError,
            "which no_change_graph forbids",
        ),
        (
            {"enable_nchw99": True},
            ValueError,
            "unknown options: enable_nchw99; expected some of enable_io16xc32",
        ),
        ({"maxerr": -1.0, "input_data": "#ones"}, ValueError, "maxerr must be a finite number >= 0"),
        (
            {"maxerr": "1e-3", "input_data": "#ones"},
            ValueError,
            "maxerr must be a finite number >= 0, found '1e-3'",
        ),
        ({"keep_var_name": 7}, ValueError, "keep_var_name must be 0, 1 or 2, found 7"),
    ],
)
def test_misuse(options: dict[str, Any], kind: type[Exception], message: str, tmp_path: Path) -> None:
    path = tmp_path / "f.mge"
    with pytest.raises(kind, match=message):
        traced().dump(path, **options)
    assert not path.exists()


def test_data_for_an_argument_that_no_output_depends_on(tmp_path: Path) -> None:
    f = trace(lambda a, b: a * 2, symbolic=True, capture_as_const=True)
    f(loadrun.tensor([1.0]), loadrun.tensor([2.0]))
    with pytest.raises(ValueError, match="no output depends on mask, so the dump has no such input"):
        f.dump(tmp_path / "f.mge", arg_names=["x", "mask"], input_data=["x:#ones;mask:#ones"])
    # MegEngine as well takes data for the input alone that is left.
    assert f.dump(tmp_path / "f.mge", arg_names=["x", "mask"], input_data=["x:#ones"]).testcases == 1


def test_what_cannot_be_dumped(tmp_path: Path) -> None:
    path = tmp_path / "f.mge"
    with pytest.raises(ValueError, match="has not been called yet"):
        trace(weighted, capture_as_const=True).dump(path)
    free = trace(weighted)
    free(tensor(X))
    with pytest.raises(ValueError, match="you must specify capture_as_const=True at __init__ to use dump"):
        free.dump(path)
    nothing = traced(lambda x: None)
    with pytest.raises(ValueError, match="the traced function without return values cannot be dumped"):
        nothing.dump(path)
    with pytest.raises(TypeError, match=r"cannot specify output_names when output is already in dict.*: y"):
        traced(lambda x: {"y": x * 2}).dump(path, output_names=["z"])
    with pytest.raises(ValueError, match="two inputs cannot have the same name: x"):
        traced(lambda a, *, x: a + x, tensor(X), x=tensor(X)).dump(path, arg_names="x")
    with pytest.raises(TraceError):
        nothing.dump(path)
    assert not path.exists()


def test_training_mode_is_refused_and_randomness_warned_of(tmp_path: Path) -> None:
    norm, dropout = loadrun.megengine.module.BatchNorm2d(3), loadrun.megengine.module.Dropout(0.5)
    x = tensor(np.ones((1, 3, 2, 2), np.float32))
    with pytest.raises(TraceError, match=r"BatchNorm in training mode, maybe you forget to do model\.eval"):
        traced(norm, x).dump(tmp_path / "f.mge")
    with pytest.warns(UserWarning, match=r"draws random numbers \(Dropout\).*was \.eval\(\) forgotten"):
        traced(dropout, x).dump(tmp_path / "f.mge")
    norm.eval()
    assert loadrun.run(dumped(traced(norm, x), input_data="#rand(0,1)"))[0].verdict.value == "pass"


def test_a_failing_testcase_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f.mge"
    path.write_bytes(b"old")
    with pytest.raises(loadrun.LoadRunError, match="missing"):
        traced().dump(path, arg_names=["x"], input_data=["#ones", "x:missing.npy"])
    assert path.read_bytes() == b"old"


def test_what_megengine_takes_for_its_input_is_left_out() -> None:
    functions = [
        lambda x: x + 0,
        lambda x: 1 * x,
        lambda x: x**1.0,
    ]
    for f in functions:
        t = trace(f, symbolic=True, capture_as_const=True, opt_level=0)
        t(tensor(X))
        bundle = dumped(t, arg_names=["x"], output_names=["y"], optimize_for_inference=False)
        assert [o.type for o in bundle.graph.oprs] == ["Host2DeviceCopy", "Identity"]
        assert outputs(bundle, x=X) == {"y": X.tolist()}
    for level, sums in ((0, 1), (1, 0)):
        t = trace(lambda x: (-x + 0) * 1.5, symbolic=True, capture_as_const=True, opt_level=level)
        t(tensor(X))
        kinds = [o.title for o in dumped(t, optimize_for_inference=False).graph.oprs]
        assert (kinds.count("ADD"), kinds.count("MUL")) == (sums, 1)


def test_level_0_is_kept_in_a_dump() -> None:
    exp, log = loadrun.megengine.functional.exp, loadrun.megengine.functional.log
    # The numbers that real MegEngine gives for these dumps. It would simplify the first, so that max(v, v)
    # stands between.
    for f, want, guard in (
        (lambda x: log(exp(x)), [-np.inf, np.inf, 1.0], True),
        (lambda x: log(exp(x) * exp(x)), [-np.inf, np.inf, 2.0], False),
        (lambda x: (x / 0) - (x / 0), [np.nan] * 3, False),
    ):
        x = np.array([-500, 500, 1], np.float32)
        t = trace(f, symbolic=True, capture_as_const=True, opt_level=0)
        np.testing.assert_allclose(t(tensor(x)).numpy(), want, rtol=1e-6)
        for optimize in (False, True):
            bundle = dumped(t, arg_names=["x"], output_names=["y"], optimize_for_inference=optimize)
            np.testing.assert_allclose(outputs(bundle, x=x)["y"], want, rtol=1e-6)
            assert not guard or "MAX" in [o.title for o in bundle.graph.oprs]


def test_a_shape_that_no_input_changes_is_asked_for_in_vain() -> None:
    def f(x: Tensor) -> Tensor:
        y = loadrun.megengine.functional.broadcast_to(x.sum(), (2, 3))
        return (y * 2).reshape(2, 3) + x

    kinds = [o.type for o in dumped(traced(f), optimize_for_inference=False).graph.oprs]
    assert (kinds.count("Broadcast"), kinds.count("ReshapeV1")) == (1, 0)


def test_random_data_follows_numpy_s_seed_as_in_megengine(tmp_path: Path) -> None:
    """The numbers are those that MegEngine 1.13.0 packs."""
    double = trace(lambda x: x * 2, symbolic=True, capture_as_const=True)
    double(tensor(np.zeros((2, 3), "f4")))

    def drawn(**options: Any) -> list[float]:
        double.dump(tmp_path / "m.mge", input_data=["#rand(0,1)"], **options)
        values = loadrun.load(tmp_path / "m.mge").testcases[0].inputs["arg_0"]
        return [float(v) for v in values.reshape(-1)[:3]]

    np.random.seed(0)
    assert drawn() == [0.54881352186203, 0.7151893377304077, 0.6027633547782898]
    assert drawn() == [0.4375872015953064, 0.891772985458374, 0.9636627435684204]
    assert drawn(seed=7) == drawn(seed=7) != drawn(seed=8)


def test_outputs_that_depend_on_no_input_have_testcases(tmp_path: Path) -> None:
    fixed = trace(lambda x: tensor([1.0, 2.0]) * 2, symbolic=True, capture_as_const=True)
    fixed(tensor([0.0]))
    with pytest.warns(UserWarning, match="no output depends on an input|cannot fail"):
        fixed.dump(tmp_path / "m.mge", input_data=["#rand(0,1)", "#rand(0,1)"])
    bundle = loadrun.load(tmp_path / "m.mge")
    assert [next(iter(c.expects.values())).tolist() for c in bundle.testcases] == [[2, 4], [2, 4]]


@pytest.mark.filterwarnings("ignore:the graph draws random numbers")
@pytest.mark.parametrize("symbolic", [True, False])
def test_a_dump_repeats_the_draw_that_was_traced(symbolic: bool, tmp_path: Path) -> None:
    def noisy(x):
        return {"y": x + normal(size=(2, 3)) + dropout(uniform(size=(2, 3)), 0.5)}

    traced = trace(noisy, symbolic=symbolic, capture_as_const=True)
    x = loadrun.tensor(np.zeros((2, 3), np.float32))
    first, second = (traced(x)["y"].numpy() for _ in range(2))
    traced.dump(tmp_path / "m.mge", input_data="example")
    (case,) = loadrun.load(tmp_path / "m.mge").testcases
    np.testing.assert_allclose(case.arrays["y:expect"], first, rtol=1e-6)
    assert not np.array_equal(first, second)


@pytest.mark.filterwarnings("ignore:the graph draws random numbers")
def test_a_generator_with_other_parameters_than_the_defaults(tmp_path: Path) -> None:
    traced = trace(
        lambda x: x + RNG(seed=3).normal(10, 0.5, size=(50, 50)), symbolic=True, capture_as_const=True
    )
    traced(loadrun.tensor(np.zeros((50, 50), np.float32)))
    traced.dump(tmp_path / "m.mge", input_data="example")
    (case,) = loadrun.load(tmp_path / "m.mge").testcases
    (drawn,) = (v for n, v in case.arrays.items() if n.endswith(":expect"))
    # Ten and seven standard errors of 2,500 numbers.
    assert abs(drawn.mean() - 10) < 0.1
    assert abs(drawn.std() - 0.5) < 0.05


@pytest.mark.filterwarnings("ignore:a traced")
@pytest.mark.parametrize(
    "function",
    [lambda x: np.array([x.sum(), x.mean()]), lambda x: np.ascontiguousarray(x.T), lambda x: float(x.sum())],
)
def test_results_that_numpy_made_are_named_as_the_cause(function: Any, tmp_path: Path) -> None:
    traced = trace(function, symbolic=True, capture_as_const=True)
    traced(np.ones((2, 3), np.float32))
    with pytest.raises(ValueError, match=r"np\.array of a list, np\.ascontiguousarray.*like=x"):
        traced.dump(tmp_path / "m.mge")


@pytest.mark.filterwarnings("ignore:a traced")
def test_an_output_that_is_no_part_of_the_graph_is_called_by_its_name(tmp_path: Path) -> None:
    traced = trace(lambda x: {"y": x * 2, "ends": np.array([x.min(), x.max()])}, capture_as_const=True)
    traced(np.ones((2, 3), np.float32))
    with pytest.warns(UserWarning, match="the graph does not have the function's output 'ends'"):
        traced.dump(tmp_path / "m.mge", input_data=["#rand(0,1)"])
