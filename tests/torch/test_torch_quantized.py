"""Quantized modules, and tensors that are no arrays of numbers: recorded as torch computes them, or refused."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.ao import quantization  # noqa: E402
from torch.ao.quantization import quantize_fx  # noqa: E402

import loadrun  # noqa: E402
import loadrun.torch  # noqa: E402
from loadrun.base.errors import EngineError, InputError, TraceError  # noqa: E402

nan, inf = float("nan"), float("inf")
HALVES = torch.arange(-400, 400) * 0.05
VALUES = torch.cat([torch.tensor([nan, inf, -inf, 1e30, -1e30, -0.0]), HALVES])
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def test_differences_of_32_bits_wrap_around(tmp_path):
    zeros = (5, 2**24 + 1, 2**31 - 1, -(2**31))

    def run(x):
        return [torch.quantize_per_tensor(x, 1.0, zero, torch.qint32).dequantize() for zero in zeros]

    x = torch.tensor([0, 1, -1, 1e9, -1e9, 3e9, -3e9, nan, inf, -inf, 0.5, 1.5])
    traced = loadrun.torch.trace(run, x)
    for got, want in zip(traced(x), run(x), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    traced.dump(tmp_path / "m.mge", input_data=["example"])
    assert loadrun.run(tmp_path / "m.mge")[0].verdict.value == "pass"


@pytest.mark.parametrize(("low", "high"), [(-128, 127), (0, 255)])
@pytest.mark.parametrize(("scale", "zero"), [(0.1, 3), (0.5, 1)])
def test_fake_quantization_of_every_number_is_torchs(scale, zero, low, high, tmp_path):
    scales, zeros = torch.tensor([scale, 2 * scale]), torch.tensor([zero, 0], dtype=torch.int32)

    def run(x):
        both = torch.stack([x, x], 1)
        return (
            torch.fake_quantize_per_tensor_affine(x, scale, zero, low, high),
            torch.fake_quantize_per_channel_affine(both, scales, zeros, 1, low, high),
        )

    traced = loadrun.torch.trace(run, VALUES)
    for got, want in zip(traced(VALUES), run(VALUES), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    traced.dump(tmp_path / "m.mge", input_data=["example"])
    assert loadrun.run(tmp_path / "m.mge")[0].verdict.value == "pass"


def test_quantization_adds_the_zero_point_before_it_rounds():
    def run(x):
        return torch.quantize_per_tensor(x, 0.25, 127, torch.quint8).dequantize()

    x = torch.cat([torch.tensor([nan, inf, -inf]), torch.arange(-40, 40) * 0.125])
    torch.testing.assert_close(loadrun.torch.trace(run, x)(x), run(x), rtol=0, atol=0)


@pytest.mark.parametrize(("scale", "zero"), [(0.1, 3), (0.0078431, 7), (0.017, 100), (0.3, -5)])
def test_ties_are_rounded_by_the_arithmetic_of_each_function(scale, zero):
    """Once per sum in instructions for bytes; by an inverse in the scale's precision elsewhere."""
    import torch.ao.quantization.fx._decomposed

    own = torch.ops.quantized_decomposed
    scales, zeros = torch.full((4,), scale, dtype=torch.float64), torch.full((4,), zero)

    def run(x):
        return (
            *(torch.quantize_per_tensor(x, scale, zero, t).dequantize() for t in (torch.qint8, torch.qint32)),
            own.quantize_per_tensor(x, scale, zero, -128, 127, torch.int8),
            own.quantize_per_tensor.tensor(x, scales[0], zeros[0], -128, 127, torch.int8),
            *(
                own.quantize_per_channel(x.reshape(4, -1), s, zeros, 0, -128, 127, torch.int8)
                for s in (scales, scales.float())
            ),
        )

    ties = ((torch.arange(-128, 128) + 0.5 - zero).double() * scale).float()
    x = torch.cat([ties, ties.nextafter(torch.tensor(inf)), ties.nextafter(torch.tensor(-inf))])
    for got, want in zip(loadrun.torch.trace(run, x, check=False)(x), run(x), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_products_of_bytes_are_exact():
    a, b = (torch.randint(-128, 128, s, dtype=torch.int8) for s in ((32, 16), (16, 8)))
    torch.testing.assert_close(loadrun.torch.trace(torch._int_mm, (a, b))(a, b), torch._int_mm(a, b))


def not_arrays():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "nested": torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged),
            "layout": torch.eye(3).to_sparse(),
            "dequantize": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
            "meta": torch.ones(3, device="meta"),
            "MaskedTensor": torch.masked.masked_tensor(torch.ones(3), torch.tensor([True, False, True])),
        }


@pytest.mark.parametrize("what", ["nested", "layout", "dequantize", "meta", "MaskedTensor"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_arguments_that_are_no_arrays_are_refused(what, dynamic, tmp_path):
    x = not_arrays()[what]
    with pytest.raises(InputError, match=f"argument 0 is .*{what}"):
        loadrun.torch.trace(lambda x: x * 2, x, dynamic_shapes=dynamic)
    with pytest.raises(InputError, match=f"argument 'y' is .*{what}"):
        loadrun.torch.save(lambda y: y * 2, tmp_path / "m.pt2", (), {"y": x}, dynamic_shapes=dynamic)


def test_quantized_results_are_refused(tmp_path):
    def run(x):
        return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)

    with pytest.raises(EngineError, match=r"result is a quantized tensor .*dequantize"):
        loadrun.torch.trace(run, torch.ones(3))
    with pytest.raises(EngineError, match=r"result is a quantized tensor .*dequantize"):
        loadrun.torch.save(run, tmp_path / "m.pt2", torch.ones(3))


def test_a_program_that_torch_cannot_write_is_refused_without_its_traceback(tmp_path):
    def run(x):
        return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize()

    with pytest.raises(TraceError, match=r"KeyError: torch.quint8; a .mge file may hold it") as caught:
        loadrun.torch.save(run, tmp_path / "m.pt2", torch.ones(3))
    assert "Traceback" not in str(caught.value)


def test_prepared_modules_are_traced_without_their_observers(tmp_path):
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU()).eval()
    x = torch.rand(1, 1, 5, 5)
    expected = module(x).detach().numpy()
    config = quantization.get_default_qconfig("x86")
    eager = quantization.prepare(torch.nn.Sequential(quantization.QuantStub(), module).eval())
    eager.qconfig = config
    eager = quantization.prepare(eager)
    graph = quantize_fx.prepare_fx(module, quantization.QConfigMapping().set_global(config), (x,))
    for prepared in (eager, graph):
        prepared(x)
        before = {k: v.clone() for k, v in prepared.state_dict().items()}
        traced = loadrun.torch.trace(prepared, (x,), dynamic_shapes=True)
        np.testing.assert_allclose(traced(x).numpy(), expected, atol=1e-6)
        traced.dump(tmp_path / "m.mge", input_data=["#rand(0,9)"])
        loadrun.torch.save(prepared, tmp_path / "m.pt2", (x,))
        assert [r.verdict.value for f in ("m.mge", "m.pt2") for r in loadrun.run(tmp_path / f)] == [
            "pass"
        ] * 2
        assert all(torch.equal(v, before[k]) for k, v in prepared.state_dict().items())


def test_modules_prepared_for_training_are_traced_with_their_rounding():
    x = torch.rand(4, 3)
    module = torch.nn.Sequential(torch.nn.Linear(3, 2)).train()
    module.qconfig = quantization.get_default_qat_qconfig("x86")
    prepared = quantization.prepare_qat(module)
    prepared(x)
    prepared.eval().apply(quantization.disable_observer)
    traced = loadrun.torch.trace(prepared, (x,))
    assert not traced.notes
    np.testing.assert_allclose(traced(x).numpy(), prepared(x).detach().numpy(), atol=1e-6)


def test_modules_that_find_scales_say_how_they_are_traced():
    with pytest.raises(TraceError, match="disable_observer"):
        loadrun.torch.trace(torch.ao.quantization.FakeQuantize().eval(), torch.ones(3))
    with pytest.raises(TraceError, match="trace the float module"):
        loadrun.torch.trace(
            torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.LSTM(3, 2))),
            torch.ones(1, 1, 3),
        )


def test_a_program_of_operators_that_torch_itself_cannot_rewrite_is_refused(tmp_path):
    def run(x):
        return torch.sparse.mm(torch.eye(3).to_sparse(), x)

    loadrun.torch.save(run, tmp_path / "m.pt2", torch.ones(3, 3))
    with pytest.raises(TraceError, match="_to_sparse"):
        loadrun.run(tmp_path / "m.pt2")
