"""`trace` and `trace_module` with torch.jit's parameters in torch's order, of modules, scripts and programs."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

import loadrun  # noqa: E402
import loadrun.jit  # noqa: E402
import loadrun.onnx  # noqa: E402
import loadrun.torch  # noqa: E402
from loadrun.base.errors import InputError, LoadRunError, TraceError, UsageError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
A, W = torch.rand(1, 1, 3, 3), torch.rand(1, 1, 3, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3)

    def forward(self, x):
        return self.conv(x)

    def weighted_kernel_sum(self, weight):
        return weight * self.conv.weight


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n += 1
        return x * self.n


def test_the_third_position_is_optimize():
    with pytest.raises(TraceError, match="changes its state"):
        loadrun.trace_module(Counter(), {"forward": A}, None, True)
    loadrun.trace_module(Counter(), {"forward": A}, None, False)
    unit = torch.jit.CompilationUnit()
    net = Net()
    inputs = {"forward": {"x": A}}
    made = loadrun.jit.trace_module(net, inputs, None, True, None, 1e-5, True, False, None, unit, True, True)
    torch.testing.assert_close(made(A), net(A).detach())
    trace = loadrun.jit.trace(
        net, A, None, True, [A, torch.rand(2, 1, 5, 5)], 1e-4, True, False, None, unit, None, True
    )
    torch.testing.assert_close(trace(A), net(A).detach())


def test_names_and_nested_examples_as_torch_has_them():
    net = Net()
    trace = loadrun.jit.trace(func=net, example_inputs=(A,), _force_outplace=False, check_inputs=[(A,)])
    torch.testing.assert_close(trace(A), net(A).detach())
    pair = loadrun.jit.trace(lambda p: p[0] - p[1], ((A, 2 * A),))
    torch.testing.assert_close(pair((3 * A, A)), 2 * A)
    named = loadrun.jit.trace(lambda d: d["a"] - d["b"], ({"a": A, "b": 2 * A},))
    torch.testing.assert_close(named({"a": 3 * A, "b": A}), 2 * A)
    with pytest.raises(TypeError, match="found example_inputs; example inputs are for torch modules"):
        loadrun.jit.trace(func=lambda x: x, example_inputs=1)


def test_checks_run_at_their_own_sizes():
    net, other = Net(), torch.rand(4, 1, 7, 9)
    made = loadrun.trace_module(net, {"forward": A}, check_inputs=[{"forward": other}])
    for x in (A, other, torch.rand(2, 1, 8, 8)):
        torch.testing.assert_close(made(x), net(x).detach())

    class Sized(nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] < 5 else x * 3

    made = loadrun.trace_module(
        Sized(), {"forward": torch.ones(3)}, check_inputs=[{"forward": torch.ones(7)}]
    )
    assert (made(torch.ones(4))[0], made(torch.ones(6))[0]) == (2, 3)


def test_it_has_what_the_module_has(tmp_path):
    net = Net()
    made = loadrun.trace_module(net, {"forward": A, "weighted_kernel_sum": W})
    trace = loadrun.trace(net, A)
    for one in (made, trace):
        assert one.conv is net.conv
        assert one.conv.weight is net.conv.weight
        assert list(one.state_dict()) == ["conv.weight", "conv.bias"]
        assert [n for n, _ in one.named_parameters()] == ["conv.weight", "conv.bias"]
        assert list(one.children()) == [net.conv]
        assert one.training
        assert one.eval() is one
        assert not one.training
        assert one.to("cpu") is one
        assert one.train() is one
        assert "conv2d" in one.code
        with pytest.raises(AttributeError, match="neither a traced method nor a submodule"):
            one.nothing  # noqa: B018
        with pytest.raises(UsageError, match="trace it again"):
            one.half()
        with pytest.raises(UsageError, match="trace it again"):
            one.to(torch.float64)
    assert "Convolution" in str(made.graph)
    trace.save(tmp_path / "net.mge")
    (found,) = loadrun.run(tmp_path / "net.mge", {"x": A.numpy()})
    torch.testing.assert_close(torch.from_numpy(found.outputs[0].value), net(A).detach())
    torch.testing.assert_close(trace.forward(A), net(A).detach())


def test_scripts_and_programs():
    net = Net()
    script, program = torch.jit.script(net), torch.export.export(net, (A,))
    for source in (script, torch.jit.trace(net, A), program):
        torch.testing.assert_close(loadrun.trace_module(source, {"forward": A})(A), net(A).detach())
        torch.testing.assert_close(loadrun.trace(source, A)(A), net(A).detach())
        torch.testing.assert_close(loadrun.torch.trace(source, A)(A), net(A).detach())
    torch.testing.assert_close(loadrun.torch.trace(program)(A), net(A).detach())

    @torch.jit.script
    def less(x, y):
        return x - 2 * y

    # One tensor as both arguments is two arguments.
    trace = loadrun.torch.trace(less, (A, A))
    torch.testing.assert_close(trace(A, W), A - 2 * W)

    @torch.jit.script
    def loops(x):
        for _ in range(int(x.sum())):
            x = x + 1
        return x

    said = r"while_loop: data or dynamic sizes decide when this loop ends.*\n.*: for _ in range\(int"
    with pytest.raises(LoadRunError, match=said):
        loadrun.torch.trace(loops, A)


def test_scripts_from_files(tmp_path):
    """Their parameters are plain tensors, and a frozen one has neither parameters nor a mode."""
    net = Net().eval()
    for script in (torch.jit.script(net), torch.jit.trace(net, A), torch.jit.freeze(torch.jit.script(net))):
        script.save(tmp_path / "net.pt")
        loaded = torch.jit.load(tmp_path / "net.pt")
        torch.testing.assert_close(loadrun.torch.trace(loaded, A)(A), net(A).detach())
        loadrun.onnx.export(loaded, A, tmp_path / "net.onnx")
        (result,) = loadrun.run(tmp_path / "net.onnx")
        (value,) = (torch.as_tensor(o.value) for o in result.outputs)
        torch.testing.assert_close(value, net(A).detach())


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x)

    @torch.jit.export
    def scaled(self, x, by: int):
        return self.linear(x) * by


def test_methods_of_scripts(tmp_path):
    net, x = Scaled().eval(), torch.arange(6.0).reshape(2, 3)
    torch.jit.script(net).save(tmp_path / "net.pt")
    for script in (torch.jit.script(net), torch.jit.load(tmp_path / "net.pt")):
        traced = loadrun.trace_module(script, {"forward": x, "scaled": (x, 3)})
        torch.testing.assert_close(traced(x), net(x).detach())
        torch.testing.assert_close(traced.scaled(x, 3), 3 * net(x).detach())


def test_calls_in_another_form():
    def f(x, y, k=2.0):
        return x - y * k

    trace = loadrun.torch.trace(f, [A], {"y": W})
    for args, kwargs in (((A, W), {}), ((), {"x": A, "y": W}), ((A,), {"y": W})):
        torch.testing.assert_close(trace(*args, **kwargs), f(A, W))
    with pytest.raises(InputError):
        trace(A, W, 3.0)


@pytest.mark.parametrize("tolerance", [-1.0, float("nan"), "x"])
def test_a_tolerance_is_a_number_from_zero_on(tolerance):
    with pytest.raises(UsageError, match="check_tolerance"):
        loadrun.trace_module(Net(), {"forward": A}, check_tolerance=tolerance)


@pytest.mark.parametrize(
    "call",
    [
        lambda: loadrun.trace_module(3, {"forward": A}),
        lambda: loadrun.trace_module(Net(), A),
        lambda: loadrun.trace_module(Net(), {}),
        lambda: loadrun.trace_module(Net(), {"nosuch": A}),
        lambda: loadrun.trace_module(Net(), {"forward": A}, check_inputs=3),
        lambda: loadrun.trace_module(Net(), {"forward": A}, check_inputs=[3]),
        lambda: loadrun.trace_module(Net(), {"weighted_kernel_sum": W})(A),
        lambda: loadrun.trace(Net(), A, nosuch=3),
        lambda: loadrun.torch.trace(3, A),
        lambda: loadrun.torch.trace(Net(), ("a",)),
        lambda: loadrun.trace(Net(), A)(),
        lambda: loadrun.trace(Net(), A)(A, A),
        lambda: loadrun.trace(Net(), A)("s"),
        lambda: loadrun.trace(Net(), A)(torch.rand(2)),
    ],
)
def test_misuse_is_a_loadrun_error(call):
    with pytest.raises(LoadRunError):
        call()


def test_torch_prints_no_graph(capsys):
    with pytest.raises(TraceError, match=r"torch\.cond"):
        loadrun.trace(lambda x: x * 2 if x.sum() > 0 else x, A)
    assert capsys.readouterr() == ("", "")


def test_trace_is_a_class():
    assert issubclass(type("Mine", (loadrun.trace,), {}), loadrun.trace)


def test_a_module_that_changes_its_dtype_is_told_from_one_that_fails(tmp_path):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.scale * x

    for net in (Scaled(), nn.Linear(3, 2)):
        traced = loadrun.torch.trace(net.eval(), x := torch.rand(2, 3))
        assert traced.float() is traced
        net.double()
        with pytest.raises(LoadRunError, match="is float64, but it was float32 when the module was traced"):
            traced.dump(tmp_path / "net.mge", input_data=[x])
    assert (double := loadrun.torch.trace(net, x.double())).double() is double
