"""What surrounds the lowerings: dumps, dynamic sizes, errors, trace_module, custom operators."""

import io
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import loadrun  # noqa: E402
import loadrun.torch  # noqa: E402
from loadrun.base.errors import (  # noqa: E402
    EngineError,
    InputError,
    TraceError,
    TraceWarning,
    UnsupportedError,
    UsageError,
)
from loadrun.tracing import trace_module  # noqa: E402

nn = torch.nn


class Net(nn.Module):
    """The example of torch.jit.trace_module's documentation."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3)

    def forward(self, x):
        return self.conv(x)

    def weighted_kernel_sum(self, weight):
        return weight * self.conv.weight


def dumped(traced, **options):
    file = io.BytesIO()
    result = traced.dump(file, **options)
    return result, loadrun.loads(file.getvalue())


def test_all_sizes_of_arguments_without_names_may_differ():
    class Net(nn.Module):
        def forward(self, *parts, scale=None):
            return torch.cat(parts, 1) * scale

    example = (torch.rand(2, 3), torch.rand(2, 4))
    traced = loadrun.torch.trace(Net(), example, {"scale": torch.rand(2, 1)}, dynamic_shapes=True)
    one, two, scale = torch.rand(5, 3), torch.rand(5, 4), torch.rand(5, 1)
    np.testing.assert_array_equal(
        traced(one, two, scale=scale).numpy(), (torch.cat([one, two], 1) * scale).numpy()
    )


def test_dump_holds_torchs_results_at_other_sizes():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    ).eval()
    traced = loadrun.torch.trace(net, torch.rand(2, 3, 8, 8), dynamic_shapes=True)
    x = np.random.default_rng(0).random((5, 3, 9, 7)).astype("f4")
    with pytest.warns(UserWarning, match="has shape"):
        _, bundle = dumped(
            traced,
            arg_names=["image"],
            output_names=["score"],
            input_data=["#rand(0,1)", "image:#rand(0,1,5,3,9,7)"],
        )
    assert [r.verdict.value for r in loadrun.run(bundle)] == ["pass", "pass"]
    case = bundle.testcases[1]
    with torch.no_grad():
        want = net(torch.from_numpy(np.array(case.inputs["image"]))).numpy()
    np.testing.assert_array_equal(case.expects["score"], want)
    assert list(traced.differences) == ["output"]
    assert 0 < traced.differences["output"] < 1e-6 or traced.differences["output"] == 0
    with torch.no_grad():
        np.testing.assert_allclose(traced(x), net(torch.from_numpy(x)), rtol=1e-5, atol=1e-6)


def test_truth_is_torch_and_not_the_graph(monkeypatch):
    """A lowering that errs is found out by the file itself."""
    monkeypatch.setattr("loadrun.torch.registry._YOURS", {})

    @loadrun.torch.aten("aten.erfinv.default")
    def wrong(call, x):
        return x * 2

    function, example = lambda x: torch.erfinv(x), torch.tensor([0.1, 0.5])
    with pytest.raises(TraceError, match="the graph differs from torch for the example: output"):
        loadrun.torch.trace(function, example)
    with pytest.warns(TraceWarning, match="the graph differs from torch"):
        traced = loadrun.torch.trace(function, example, check=False)
    assert traced.differences["output"] > 0.1
    with pytest.warns(UserWarning, match="the written file fails its checks: output of testcase 0"):
        _, bundle = dumped(traced, input_data="#rand(0.4,0.5)")
    assert loadrun.run(bundle)[0].verdict.value == "fail"


def test_zeros_in_place_of_small_numbers_are_found(monkeypatch):
    """No tolerance was given, so errors go by the size of the output."""
    monkeypatch.setattr("loadrun.torch.registry._YOURS", {})

    @loadrun.torch.aten("aten.erfinv.default")
    def wrong(call, x):
        return x * 0

    example = torch.tensor([0.1, 0.5])
    with pytest.raises(TraceError, match="the graph differs from torch for the example: output"):
        loadrun.torch.trace(lambda x: torch.erfinv(x) * 1e-4, example)
    # What is left of terms that cancel is rounding, which torch's own values are as well.
    loadrun.torch.trace(lambda x: (x - x.mean()).sum(), torch.rand(1000))


class Mixed(nn.Module):
    """Two layers in a type of few bits, and a result in float32."""

    def __init__(self, dtype):
        super().__init__()
        self.one, self.two, self.dtype = nn.Linear(64, 64), nn.Linear(64, 64), dtype

    def forward(self, x):
        with torch.autocast("cpu", dtype=self.dtype):
            y = self.two(torch.relu(self.one(x)))
        return torch.sigmoid(y.float()) * 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("suffix", ["mge", "pt2"])
def test_a_tolerance_follows_the_dtype_that_is_computed_in(dtype, suffix, tmp_path):
    torch.manual_seed(0)
    net, path = Mixed(dtype).eval(), tmp_path / f"net.{suffix}"
    # torch itself is further from float64 than float32's tolerance.
    x = torch.randn(4, 64)
    wide = torch.sigmoid(net.two.double()(torch.relu(net.one.double()(x.double())))) * 3
    far = float((net.float()(x) - wide).detach().abs().max())
    assert far > 2e-4
    loadrun.torch.save(net, path, (x,))
    (check,) = loadrun.load(path).checks
    assert check.maxerr == pytest.approx({torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype])
    assert [r.verdict.value for r in loadrun.run(path)] == ["pass"]


def test_weights_have_their_names():
    net = nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 40)).eval()
    _, bundle = dumped(loadrun.torch.trace(net, torch.rand(1, 40)))
    found = {t.name: t for opr in bundle.graph.oprs for t in opr.tensors if t.name}
    assert {"0.weight", "2.weight", "0.bias"} <= set(found)
    np.testing.assert_array_equal(found["0.weight"].value(), net[0].weight.detach().numpy())


def test_a_batch_of_one_is_dynamic():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)).eval()
    traced = loadrun.trace(net)
    x = torch.rand(4, 1, 4, 4)
    traced(x[:1])
    with torch.no_grad():
        np.testing.assert_allclose(traced(x), net(x), rtol=1e-5, atol=1e-6)


def test_fixed_sizes_are_refused_at_other_sizes():
    traced = loadrun.torch.trace(nn.ReLU(), torch.rand(2, 3))
    with pytest.raises(InputError, match=r"'input' has the shape \[4, 3\].*\[2, 3\].*dynamic_shapes"):
        traced(torch.rand(4, 3))

    def odd(x):
        return x.reshape(x.shape[0], -1) if x.shape[0] > 2 else x

    large = {0: torch.export.Dim("n", min=3)}
    traced = loadrun.torch.trace(odd, torch.rand(5, 3), dynamic_shapes=(large,))
    with pytest.raises(InputError, match="is not valid for these sizes"):
        traced(torch.rand(2, 3))


def test_a_decision_by_size_gets_a_trace_of_its_own():
    def odd(x):
        return x * 2 if x.shape[0] > 2 else x.sum(1)

    traced = loadrun.torch.trace(odd, torch.rand(5, 3), dynamic_shapes=True)
    for shape in ((2, 3), (6, 3), (2, 4), (1, 3), (9, 1)):
        x = torch.rand(shape)
        torch.testing.assert_close(traced(x), odd(x))
    assert 1 <= len(traced.others) <= 2
    with pytest.raises(InputError, match="float64"):
        traced(torch.rand(2, 3).double())
    product = loadrun.torch.trace(torch.matmul, (torch.rand(2, 3), torch.rand(3, 4)), dynamic_shapes=True)
    with pytest.raises(InputError, match="is not valid for these sizes"):
        product(torch.rand(2, 5), torch.rand(4, 4))
    assert product.others == []


def test_a_size_of_one_among_those_that_the_caller_allows():
    def squeezed(x):
        return x.squeeze(0) * 2

    batch = {0: torch.export.Dim("batch", max=7)}
    traced = loadrun.torch.trace(squeezed, torch.rand(5, 3), dynamic_shapes=(batch,))
    for n in (4, 1, 7):
        x = torch.rand(n, 3)
        torch.testing.assert_close(traced(x), squeezed(x))
    assert len(traced.others) == 1
    with pytest.raises(InputError):
        traced(torch.rand(9, 3))


def test_a_size_that_an_operator_must_know_is_fixed_and_said():
    for net in (nn.GRU(4, 5, batch_first=True).eval(), nn.LSTM(4, 5, proj_size=3, batch_first=True).eval()):
        traced = loadrun.torch.trace(net, torch.rand(2, 3, 4), dynamic_shapes=True)
        assert traced.notes == [
            "the graph is valid for one size of input axis 1; calls at other sizes trace separate graphs"
        ]
        for shape in ((2, 3, 4), (5, 3, 4), (2, 7, 4)):
            x = torch.rand(shape)
            torch.testing.assert_close(traced(x)[0], net(x)[0])
        assert len(traced.others) == 1


@pytest.mark.parametrize("kind", [nn.LSTM, nn.RNN])
@pytest.mark.parametrize("first", [True, False])
def test_layers_of_any_number_of_steps(kind, first, tmp_path):
    net = kind(4, 5, 2, batch_first=first, bidirectional=True).eval()
    traced = loadrun.torch.trace(net, torch.rand(3, 6, 4), dynamic_shapes=True)
    traced.dump(tmp_path / "m.mge", arg_names=["x"])
    dump = loadrun.Runner(tmp_path / "m.mge")
    for shape in ((3, 6, 4), (2, 9, 4), (1, 1, 4)):
        x = torch.rand(shape)
        want = net(x)[0].detach()
        torch.testing.assert_close(traced(x)[0].detach(), want)
        np.testing.assert_allclose(dump.run({"x": x.numpy()}).outputs[0].value, want.numpy(), atol=1e-5)
    assert traced.others == []


def test_dims_by_name():
    batch = torch.export.Dim("batch", min=2, max=64)
    traced = loadrun.torch.trace(
        lambda x, y: x @ y, (torch.rand(3, 4), torch.rand(4, 2)), dynamic_shapes=({0: batch}, None)
    )
    assert traced(torch.rand(7, 4), torch.rand(4, 2)).shape == (7, 2)
    with pytest.raises(InputError, match=r"'y' has the shape"):
        traced(torch.rand(7, 4), torch.rand(4, 3))


def test_keyword_arguments_and_constants():
    def scaled(x, factor=2, *, shift=None):
        return x * factor if shift is None else x * factor + shift

    x = torch.arange(3.0)
    traced = loadrun.torch.trace(scaled, (x, 3), {"shift": torch.ones(3)})
    np.testing.assert_array_equal(traced(x, 3, shift=torch.zeros(3)), [0, 3, 6])
    with pytest.raises(InputError, match="constant of the graph"):
        traced(x, 4, shift=torch.zeros(3))
    with pytest.raises(InputError, match=r".shift. is a tensor of torch.float32"):
        traced(x, 3)
    _, bundle = dumped(traced, arg_names=["a", "b"], input_data="a:[1,2,3];b:[1,1,1]")
    np.testing.assert_array_equal(bundle.testcases[0].expects["output"], [4, 7, 10])


def test_wide_dtypes_are_kept():
    traced = loadrun.torch.trace(lambda x, i: (x + 1e9, i + 1), (torch.rand(2).double(), torch.arange(3)))
    assert traced.notes == []
    a, b = traced(torch.tensor([0.125, 0.25]).double(), torch.tensor([1, 2, 2**40]))
    assert (a.dtype, b.dtype) == (torch.float64, torch.int64)
    assert (a.tolist(), b.tolist()) == ([1000000000.125, 1000000000.25], [2, 3, 2**40 + 1])


def test_all_unsupported_operators_at_once():
    class Deep(nn.Module):
        def forward(self, x):
            return torch.fft.fft(x).real + torch.linalg.eigvals(x).real

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Deep()

        def forward(self, x):
            return self.inner(x) + torch.special.airy_ai(x)

    with pytest.raises(UnsupportedError) as found:
        loadrun.torch.trace(Outer(), torch.rand(3, 3))
    text = str(found.value)
    for name in ("fft", "linalg_eig", "special_airy_ai"):
        assert name in text
    assert "inner (Deep)" in text
    assert re.search(
        r"test_torch_trace\.py:\d+: return self\.inner\(x\) \+ torch\.special\.airy_ai\(x\)", text
    )
    assert "what to do" in text


def test_refused_arguments_are_collected():
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 3), nn.Dropout(0.2))
    with pytest.raises(
        UnsupportedError, match=r"(?s)aten.dropout.default.*eval.*in 0 \(Dropout\).*in 2 \(Dropout\)"
    ):
        loadrun.torch.trace(net, torch.rand(2, 3))


def test_batch_norm_in_training_is_warned_of():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    with pytest.warns(TraceWarning, match=r"changes its buffers 1\.running_mean.*eval"):
        traced = loadrun.torch.trace(net, torch.linspace(0, 1, 12).reshape(4, 3) ** 2)
    assert max(traced.differences.values()) < 1e-5


@pytest.mark.filterwarnings("ignore:.*changes its buffers")
@pytest.mark.parametrize("seed", range(8))
def test_small_numbers_beside_a_bias_are_told_by_rounding(seed):
    """Differences of 1e-4 are what is left of sums with a bias, whose last digits decide."""
    torch.manual_seed(seed)
    traced = loadrun.torch.trace(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), torch.rand(4, 3))
    assert not any("differs" in note for note in traced.notes)


def test_torch_cannot_export():
    def branch(x):
        return x + 1 if x.sum() > 0 else x

    with pytest.raises(TraceError, match=r"torch cannot export the function .*branch"):
        loadrun.torch.trace(branch, torch.rand(3))


def test_custom_operators():
    library = torch.library.Library("loadrun_test", "DEF")
    library.define("tripled(Tensor x) -> Tensor")
    library.impl("tripled", lambda x: x * 3, "CompositeExplicitAutograd")
    torch.library.register_fake("loadrun_test::tripled", lambda x: torch.empty_like(x), lib=library)

    def model(x):
        return torch.ops.loadrun_test.tripled(x) + 1

    with pytest.raises(UnsupportedError, match=r"loadrun_test\.tripled\.default"):
        loadrun.torch.trace(model, torch.rand(2))

    @loadrun.torch.aten("loadrun_test.tripled.default")
    def tripled(call, x):
        return x * 3

    traced = loadrun.torch.trace(model, torch.rand(2))
    np.testing.assert_array_equal(traced(torch.tensor([1.0, 2.0])), [4, 7])


def test_documented_example_of_trace_module(tmp_path):
    n = Net()
    example_weight = torch.rand(1, 1, 3, 3)
    example_forward_input = torch.rand(1, 1, 3, 3)
    module = loadrun.trace(n.forward, example_forward_input)
    module = loadrun.trace(n, example_forward_input)
    torch.testing.assert_close(module(example_forward_input), n(example_forward_input).detach())
    inputs = {"forward": example_forward_input, "weighted_kernel_sum": example_weight}
    module = trace_module(n, inputs)
    torch.testing.assert_close(module(example_forward_input), n(example_forward_input).detach())
    torch.testing.assert_close(
        module.weighted_kernel_sum(example_weight), n.weighted_kernel_sum(example_weight).detach()
    )
    module.save(tmp_path / "net.mge", "forward", input_data="#rand(0,1)")
    assert loadrun.run(loadrun.load(tmp_path / "net.mge"))[0].verdict.value == "pass"


def test_check_inputs_and_keywords():
    class Sized(nn.Module):
        def forward(self, x, y):
            return x * y

    args = {"x": torch.rand(2, 3), "y": torch.rand(2, 3)}
    more = [{"forward": {"x": torch.rand(5, 3), "y": torch.rand(5, 3)}}]
    found = trace_module(Sized(), {"forward": args}, check_inputs=more, example_inputs_is_kwarg=True)
    assert found(x=torch.ones(4, 3), y=torch.ones(4, 3)).shape == (4, 3)

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 0

        def forward(self, x):
            self.n += 1
            return x * self.n

    with pytest.raises(TraceError, match=r"(?s)forward: output 'output' differs by .* changes its state"):
        trace_module(Counter(), {"forward": torch.ones(3)})

    class Listed(nn.Module):
        def forward(self, x):
            return [x + 1]

    with pytest.raises(TraceError, match="returns a list"):
        trace_module(Listed(), {"forward": torch.ones(3)})
    assert trace_module(Listed(), {"forward": torch.ones(3)}, strict=False)(torch.ones(3))[0].tolist() == [
        2,
        2,
        2,
    ]
    with pytest.raises(UsageError, match="has no method 'backwards'"):
        trace_module(Listed(), {"backwards": torch.ones(3)})


def test_importing_loadrun_imports_no_torch():
    code = "import sys, loadrun.tracing, loadrun.torch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import loadrun.torch\n"
        "try: loadrun.torch.trace(len, ())\n"
        "except loadrun.LoadRunError as e: print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install '/path/to/loadrun[torch]'" in done.stdout


def test_grouped_products():
    """Rows of each group with a matrix of its own; groups are empty in one call and full in another."""

    def experts(x, w, counts):
        return torch._grouped_mm(x, w, counts.cumsum(0).to(torch.int32))

    x, w = torch.randn(16, 8).bfloat16(), torch.randn(3, 8, 16).bfloat16()
    traced = loadrun.torch.trace(experts, (x, w, torch.tensor([0, 16, 0])))
    for counts in ([0, 16, 0], [5, 0, 11], [4, 4, 8], [16, 0, 0]):
        want = [part.double() @ m.double() for part, m in zip(x.split(counts), w, strict=True)]
        got = traced(x, w, torch.tensor(counts)).double()
        np.testing.assert_allclose(got, torch.cat(want), rtol=0.01, atol=0.05)
    # Pairs of matrices, groups of what is summed, groups of columns.
    ends, stack = torch.tensor([8, 16], dtype=torch.int32), torch.randn(2, 16, 8).bfloat16()
    for a, b, want in (
        (stack, stack.mT.contiguous(), stack.float() @ stack.float().mT),
        (x.mT, x, torch.stack([x[:8].float().mT @ x[:8].float(), x[8:].float().mT @ x[8:].float()])),
        (
            stack,
            x.mT,
            torch.cat([stack[0].float() @ x[:8].float().mT, stack[1].float() @ x[8:].float().mT], 1),
        ),
    ):
        given = (a, b) if b.ndim == 3 else (a, b, ends)
        got = loadrun.torch.trace(torch._grouped_mm, given)(*given)
        np.testing.assert_allclose(got.float(), want, rtol=0.01, atol=0.05)


def test_places_in_a_folder_called_torch():
    """The model's own line is named, wherever it lies, not torch's."""
    from types import SimpleNamespace

    from loadrun.torch.exporting import place_of

    trace = (
        '  File "/home/me/torch/model.py", line 7, in forward\n    return self.head(x)\n'
        f'  File "{torch.__file__}", line 9, in call\n    return inner(x)\n'
    )
    node = SimpleNamespace(meta={"stack_trace": trace})
    assert place_of(node) == "/home/me/torch/model.py:7: return self.head(x)"


ASKS = {
    "squeeze": (lambda x: x.squeeze(), (0, 1)),
    "squeeze of one axis": (lambda x: x.squeeze(-1) * 2, (1,)),
    "a branch": (lambda x: x * 2 if x.shape[0] == 1 else x * 3, (0,)),
    "a stretched row": (
        lambda x: nn.functional.interpolate(
            x[None], size=(2 * x.shape[1],), mode="linear", align_corners=True
        ),
        (),
    ),
    "a mean": (lambda x: x.mean(0), ()),
    "a sum": (lambda x: x + torch.ones(x.shape[0], 1), ()),
}
"""Functions of a matrix, and which axes may not be 1 in a dump, since torch gives something else there."""


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize("example", [torch.arange(20.0).reshape(5, 4), torch.zeros(5, 4)])
def test_sizes_of_one(name, example, tmp_path):
    function, refused = ASKS[name]
    traced = loadrun.torch.trace(function, example, dynamic_shapes=True)
    traced.dump(tmp_path / "m.mge", arg_names=["x"])
    dump = loadrun.Runner(tmp_path / "m.mge")
    for shape in ((5, 4), (7, 3), (2, 2), (1, 4), (5, 1)):
        x = torch.rand(shape)
        if any(shape[axis] == 1 for axis in refused):
            torch.testing.assert_close(traced(x), function(x))
            with pytest.raises(EngineError, match="cannot reshape"):
                dump.run({"x": x.numpy()})
            continue
        want = function(x)
        torch.testing.assert_close(traced(x), want, equal_nan=True)
        np.testing.assert_allclose(dump.run({"x": x.numpy()}).outputs[0].value, want.numpy(), rtol=1e-5)


def test_what_the_example_does_not_show_is_found_at_another_size(monkeypatch):
    monkeypatch.setattr("loadrun.torch.registry._YOURS", {})

    @loadrun.torch.aten("aten.erfinv.default")
    def wrong(call, x):
        return x * 2

    with pytest.raises(TraceError, match=r"the graph differs from torch for sizes of \[6\]: output"):
        loadrun.torch.trace(lambda x: torch.erfinv(x), torch.zeros(5), dynamic_shapes=True)


class ConvNext(nn.Module):
    """The block of convnext: a normalization of the last axis between permutations."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.norm, self.wide = nn.LayerNorm(4), nn.Linear(4, 8)

    def forward(self, x):
        return torch.nn.functional.gelu(self.wide(self.norm(self.conv(x).permute(0, 2, 3, 1)))).mean((1, 2))


OF_ONE = {
    "LSTM": (nn.LSTM(4, 5, batch_first=True), (1, 6, 4), (3, 6, 4)),
    "LSTM, steps first": (nn.LSTM(4, 5), (6, 1, 4), (6, 3, 4)),
    "GRUCell": (nn.GRUCell(4, 5), (1, 4), (3, 4)),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (1, 5, 8), (3, 7, 8)),
    "convnext": (ConvNext(), (1, 4, 8, 8), (3, 4, 9, 7)),
    "cross entropy": (lambda x: torch.nn.functional.cross_entropy(x, x * 2), (1, 5), (3, 5)),
}


@pytest.mark.parametrize("name", OF_ONE)
def test_a_batch_of_one_stays_free(name):
    function, one, many = OF_ONE[name]
    function = function.eval() if isinstance(function, nn.Module) else function
    traced = loadrun.torch.trace(function, torch.rand(one), dynamic_shapes=True)
    for size in (one, many):
        x = torch.rand(size)
        found, want = (torch.utils._pytree.tree_leaves(f(x)) for f in (traced, function))
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a.detach(), b.detach(), 1e-4, 1e-5)


def test_a_state_is_followed_beside_a_batch_of_one():
    net = nn.LSTM(4, 5, batch_first=True)
    traced = loadrun.torch.trace(
        net, (torch.rand(1, 6, 4), (torch.rand(1, 1, 5), torch.rand(1, 1, 5))), dynamic_shapes=True
    )
    x, state = torch.rand(3, 6, 4), (torch.rand(1, 3, 5), torch.rand(1, 3, 5))
    np.testing.assert_allclose(traced(x, state)[0], net(x, state)[0].detach(), 1e-4, 1e-5)


def test_a_squeezed_batch_of_one_is_traced_for_one():
    traced = loadrun.torch.trace(lambda x: x.squeeze(0) * 2, torch.ones(1, 3), dynamic_shapes=True)
    assert traced(torch.ones(1, 5)).tolist() == [2.0] * 5
    assert traced(torch.ones(2, 5)).tolist() == [[2.0] * 5] * 2


def test_arguments_in_another_form():
    def function(x, states, named=None):
        return x + states[0] * states[1] + named["a"] - named["b"]

    x, a, b = torch.rand(3, 2)
    want = (x + a * b + a - b).tolist()
    traced = loadrun.torch.trace(function, [x, (a, b), {"a": a, "b": b}])
    assert traced(x, [a, b], {"b": b, "a": a}).tolist() == want
    assert traced(named={"a": a, "b": b}, states=(a, b), x=x).tolist() == want
    with pytest.raises(InputError, match=r"expected \(\*, \(\*, \*\), .*, found \(\*, \[\*, \*, \*\]"):
        traced(x, [a, b, b], {"a": a, "b": b})
    with pytest.raises(InputError, match="differ in structure"):
        traced(x, a, {"a": a, "b": b})


def test_loops_that_no_data_end_are_unrolled():
    from torch._higher_order_ops.scan import scan

    def steps(x):
        total, before = scan(lambda c, row: (c * 0.5 + row, c * 1), torch.zeros_like(x[0]), x)
        return torch.while_loop(
            lambda i, a: i < 3, lambda i, a: (i + 1, a * 2 + i), (torch.tensor(0), total)
        )[1], before

    x = torch.arange(12.0).reshape(4, 3)
    for got, want in zip(loadrun.torch.trace(steps, (x,))(x), steps(x), strict=True):
        torch.testing.assert_close(got, want)

    def until(x):
        return torch.while_loop(lambda a: a.sum() < 50, lambda a: (a * 2,), (x,))[0]

    with pytest.raises(UnsupportedError, match="data or dynamic sizes decide when this loop ends"):
        loadrun.torch.trace(until, (x,))


def test_numbers_are_constants_of_their_type():
    whole = torch.tensor([1, 2, 3])
    doubled = loadrun.torch.trace(lambda x, n: x * n, (whole, 2))
    for other in (2.0, True, 3):
        with pytest.raises(InputError, match="it was 2 when the module was traced"):
            doubled(whole, other)
    divided = loadrun.torch.trace(lambda x, n: x / n, (torch.ones(2), 0.0))
    with pytest.raises(InputError, match=r"is -0\.0"):
        divided(torch.ones(2), -0.0)
    unknown = loadrun.torch.trace(lambda x, n: x if n != n else -x, (torch.ones(2), float("nan")))
    assert unknown(torch.ones(2), float("nan")).tolist() == [1, 1]


def test_sizes_of_arguments_behind_two_stars_may_differ(tmp_path):
    class Net(nn.Module):
        def forward(self, x, **more):
            return x - 2 * more["z"] - more["a"]

    def example(n):
        return (torch.rand(n, 4),), {"z": torch.rand(n, 4), "a": torch.rand(n, 4)}

    args, named = example(3)
    traced = loadrun.torch.trace(Net(), args, named, dynamic_shapes=True)
    args, named = example(5)
    torch.testing.assert_close(traced(*args, a=named["a"], z=named["z"]), Net()(*args, **named))
    assert traced.others == []
    loadrun.torch.save(Net(), tmp_path / "net.pt2", *example(3), dynamic_shapes=True)
    assert [r.verdict.value for r in loadrun.run(tmp_path / "net.pt2")] == ["pass"]


def test_arguments_that_the_module_writes_to_are_said():
    with pytest.warns(TraceWarning, match="writes to its arguments x"):
        traced = loadrun.torch.trace(lambda x: x.add_(1) * 2, torch.zeros(3))
    x = torch.ones(3)
    assert traced(x).tolist() == [4, 4, 4]
    assert x.tolist() == [1, 1, 1]
    assert "the graph leaves them as they are" in traced.notes[0]


def test_what_torch_logs_is_not_shown(capfd, tmp_path):
    with pytest.raises(TraceError) as caught:
        loadrun.torch.save(lambda x: x[: int(x[0, 0])].reshape(2, -1), tmp_path / "m.pt2", torch.ones(3, 4))
    assert len(str(caught.value)) < 800
    assert capfd.readouterr().err == ""


def test_quantized_weights_are_said_to_need_the_prepared_module():
    quantization = torch.ao.quantization
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 3)), {nn.Linear})
    with pytest.raises(TraceError, match="prepared by prepare_qat"):
        loadrun.torch.trace(converted, torch.rand(2, 4))


def test_arguments_of_wrong_kinds(tmp_path):
    net, x, odd = torch.nn.ReLU(), torch.ones(2), np.zeros(3)
    file = str(tmp_path / "net")
    for call, why in (
        (lambda: loadrun.torch.trace(net, (x,), opt_level=-1), "opt_level must be 0, 1, 2 or 3, found -1"),
        (lambda: loadrun.torch.trace(net, np.array(["a"])), "torch has no tensors of <U1"),
        (
            lambda: loadrun.torch.save(net, file + ".pt2", (x,), input_data={1: x}),
            "differ in structure.* and 1",
        ),
        (lambda: loadrun.trace_module(odd, {"forward": x}), "ndarray has no method 'forward'"),
        (lambda: loadrun.trace_module(net, np.zeros(())), "inputs maps method names to example inputs"),
        (lambda: loadrun.trace_module(net, {"forward": x}, check_inputs=odd), "check_inputs must be a list"),
        (lambda: loadrun.tensor([1.0], name=odd), "name of a tensor must be a text or None"),
    ):
        with pytest.raises(loadrun.LoadRunError, match=why):
            call()
