"""functional.nn, vision and quantized where MegEngine 1.13 has no answer to record: newer functions, its crashes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
from loadrun import Tensor
from loadrun.megengine import tensor
from loadrun.megengine.core.tensor.dtype import (
    QuantDtypeMeta,
    bfloat16,
    create_quantized_dtype,
    get_scale,
    get_zero_point,
    is_quantize,
    qint8,
    qint32,
    quint8,
)
from loadrun.megengine.quantization import (
    QParams,
    QuantMode,
    create_qparams,
    fake_quant_bias,
    fake_quant_tensor,
)
from loadrun.megengine.quantization.fake_quant import LSQParams

RNG = np.random.RandomState(0)


def rand(*shape: int) -> Any:
    return RNG.uniform(-2, 2, shape).astype(np.float32)


def test_conv1d_in_groups() -> None:
    """Groups are separate convolutions of their channels."""
    x, w = rand(2, 4, 7), rand(2, 3, 2, 3)
    parts = [F.conv1d(x[:, 2 * g : 2 * g + 2], w[g], stride=2).numpy() for g in range(2)]
    np.testing.assert_allclose(
        F.conv1d(x, w, stride=2, groups=2).numpy(), np.concatenate(parts, 1), rtol=1e-5
    )


def test_conv_transpose2d_in_groups_with_output_padding() -> None:
    x, w = rand(2, 4, 3, 3), rand(2, 2, 3, 3, 3)
    options: dict[str, Any] = {"stride": 2, "padding": 1, "output_padding": 1}
    parts = [F.conv_transpose2d(x[:, 2 * g : 2 * g + 2], w[g], **options).numpy() for g in range(2)]
    whole = F.conv_transpose2d(x, w, groups=2, **options).numpy()
    assert whole.shape == (2, 6, 6, 6)
    np.testing.assert_allclose(whole, np.concatenate(parts, 1), rtol=1e-5)


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 5)])
def test_batch_norm_of_fewer_axes(shape: tuple[int, ...]) -> None:
    x, mean, var = rand(*shape), rand(1, 3, 1, 1), np.abs(rand(1, 3, 1, 1))
    per = (1, 3) + (1,) * (len(shape) - 2)
    want = (x - mean.reshape(per)) / np.sqrt(var.reshape(per) + 1e-5)
    np.testing.assert_allclose(F.batch_norm(x, mean, var).numpy(), want, rtol=1e-4, atol=1e-5)
    axes = tuple(i for i in range(len(shape)) if i != 1)
    want = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    np.testing.assert_allclose(F.batch_norm(x, training=True).numpy(), want, rtol=1e-4, atol=1e-5)


def test_logsumexp_beside_an_axis_of_one() -> None:
    x = rand(2, 1, 3)
    np.testing.assert_allclose(F.logsumexp(x, 2).numpy(), np.log(np.exp(x).sum(2)), rtol=1e-5)


def test_dropout_in_training() -> None:
    y = F.dropout(np.ones((100, 100), np.float32), 0.25).numpy()
    assert {*np.unique(y).tolist()} == {0.0, float(np.float32(1 / 0.75))}
    assert abs((y == 0).mean() - 0.25) < 0.03
    assert F.dropout(tensor(1.0), 0.5).shape == ()


def test_one_hot_of_a_scalar() -> None:
    assert F.one_hot(tensor(2), 4).tolist() == [0, 0, 1, 0]


def test_max_pool_of_half_precision() -> None:
    x = rand(1, 2, 4, 4).astype(np.float16)
    want = x.reshape(1, 2, 2, 2, 2, 2).max((3, 5))
    np.testing.assert_array_equal(F.max_pool2d(x, 2).numpy(), want)


def test_arrays_and_lists_are_taken() -> None:
    x, w = rand(1, 2, 4, 4), rand(3, 2, 3, 3)
    np.testing.assert_array_equal(F.conv2d(x, w).numpy(), F.conv2d(tensor(x), tensor(w)).numpy())
    assert F.relu([-1, 2]).tolist() == [0, 2]


def test_errors_tell_what_is_wrong() -> None:
    x, w = rand(1, 2, 4, 4), rand(3, 2, 3, 3)
    with pytest.raises(ValueError, match="padding must be one number or 2, found 3"):
        F.conv2d(x, w, padding=(1, 2, 3))
    with pytest.raises(RuntimeError, match="padding must not be negative"):
        F.conv2d(x, w, padding=-1)
    with pytest.raises(RuntimeError, match="average_count_exclude_padding; found 'mean'"):
        F.avg_pool2d(x, 2, mode="mean")
    with pytest.raises(AssertionError, match="cross_correlation"):
        F.conv2d(x, w, conv_mode="convolution")
    with pytest.raises(RuntimeError, match="3 axes of an input of 2"):
        F.pad([[1.0]], ((1, 1),) * 3)


def test_attention_with_bool_masks() -> None:
    """True leaves a key out, as minus infinity does."""
    q, k, w = rand(2, 3, 4), rand(2, 5, 4), rand(64)
    skip = np.zeros((3, 5), bool)
    skip[:, 3:] = True
    gone = np.where(skip, -np.inf, 0).astype(np.float32)
    kwargs: dict[str, Any] = {"training": False, "need_weights": True}
    a = F.nn.multi_head_attention(q, k, k, 4, 2, 0.0, 0.0, w, attn_mask=tensor(skip), **kwargs)
    b = F.nn.multi_head_attention(q, k, k, 4, 2, 0.0, 0.0, w, attn_mask=tensor(gone), **kwargs)
    pads = np.tile(skip[:1], (2, 1))
    c = F.nn.multi_head_attention(q, k, k, 4, 2, 0.0, 0.0, w, key_padding_mask=tensor(pads), **kwargs)
    for x in (a, c):
        np.testing.assert_array_equal(x[0].numpy(), b[0].numpy())
    assert b[1] is not None
    assert not b[1].numpy()[..., 3:].any()


def test_assert_equal() -> None:
    x = tensor([1.0, 100.0])
    assert F.utils._assert_equal(x, tensor([1.0, 100.005])).tolist() == [1.0, 100.0]
    with pytest.raises(RuntimeError, match=r"largest error is 0\.1"):
        F.utils._assert_equal(x, tensor([1.1, 100.0]))
    with pytest.raises(RuntimeError, match="largest error is nan"):
        F.utils._assert_equal(x, tensor([np.nan, 100.0]))
    with pytest.raises(RuntimeError, match="shapes differ"):
        F.utils._assert_equal(x, tensor([1.0]))


def test_assert_equal_is_recorded() -> None:
    traced = loadrun.tracing.trace(symbolic=True, capture_as_const=True)(
        lambda x: F.utils._assert_equal(tensor([1.0, 2.0]), x * 2)
    )
    traced(tensor([0.5, 1.0]))
    file = io.BytesIO()
    traced.dump(file, arg_names=["x"], output_names=["y"])
    file.seek(0)
    types = [o.type for o in loadrun.loads(file.read()).graph.oprs]
    assert "AssertEqual" in types


def test_quantized_transposed_convolution_with_bias_and_groups() -> None:
    x = np.array([4, -2], np.int8).reshape(1, 2, 1, 1)
    w = np.array([3, 5], np.int8).reshape(2, 1, 1, 1, 1)
    inputs = Tensor(x, qint8(0.5)), Tensor(w, qint8(0.5))
    bias = Tensor(np.array([8, -8]).reshape(1, 2, 1, 1), qint32(0.25))
    y = F.quantized.conv_transpose2d(*inputs, bias, qint8(1.0), groups=2)
    # (4 * 3 + 8) / 4 and (-2 * 5 - 8) / 4, ties away from zero
    assert y.numpy().ravel().tolist() == [5, -5]
    plain = F.quantized.conv_transpose2d(*inputs, groups=2)
    assert get_scale(plain.dtype) == 0.25
    assert plain.numpy().ravel().tolist() == [12, -10]


def test_tensors_carry_their_quantization() -> None:
    x = tensor([1.2, -0.7]).astype(quint8(0.5, 128))
    assert is_quantize(x.dtype)
    assert (get_scale(x.numpy().dtype), get_zero_point(x.numpy().dtype)) == (0.5, 128)
    assert x.tolist() == [130, 127]
    # As MegEngine 1.13.0 gives it, which keeps the scale as float32.
    assert get_scale(x.astype(qint8(0.1)).dtype) == 0.10000000149011612
    assert x.astype("float32").tolist() == [1.0, -0.5]
    assert Tensor([4], qint8(0.5)).astype("float32").tolist() == [2.0]
    assert tensor([1.0], dtype="bfloat16").numpy().dtype.metadata == bfloat16.metadata


def test_quantized_dtypes_are_checked() -> None:
    meta = QuantDtypeMeta("mine", "QuantizedS8", "int8", -3, 3)
    assert not meta.is_unsigned
    assert get_scale(create_quantized_dtype(meta, 0.5, None)) == 0.5
    with pytest.raises(ValueError, match="symmetric"):
        create_quantized_dtype(meta, 0.5, 1)
    with pytest.raises(ValueError, match="no type"):
        create_quantized_dtype(QuantDtypeMeta("mine", None, "int8", -3, 3), 0.5, None)
    with pytest.raises(TypeError, match="not a quantized"):
        get_scale(np.dtype("int8"))
    with pytest.raises(TypeError, match="zero point"):
        get_zero_point(qint8(0.5))


def test_parameters_of_quantized_values() -> None:
    x, w = tensor([1.0]), tensor([1.0])
    assert x.qparams.scale is None
    assert fake_quant_bias(None, x, w) is None
    bias = tensor([0.3])
    assert fake_quant_bias(bias, x, w) is bias
    q = create_qparams(QuantMode.SYMMERTIC, "qint8", tensor([0.5]))
    x.qparams.update(q)
    w.qparams.update(q)
    found = fake_quant_bias(bias, x, w)
    assert found.tolist() == [0.25]
    assert found.qparams.dtype_meta.name == "qint32"
    one = QParams(QuantMode.SYMMERTIC, q.dtype_meta, 0.5, None)
    assert one == QParams(QuantMode.SYMMERTIC, q.dtype_meta, 0.5, None)
    assert one != QParams(QuantMode.ASYMMERTIC, q.dtype_meta, 0.5, None)
    assert one != LSQParams(QuantMode.SYMMERTIC, q.dtype_meta, 0.5, None, 1.0)
    assert "scale=0.5" in repr(one)
    with pytest.raises(AssertionError, match="QuantMode"):
        create_qparams("symmetric")  # type: ignore[arg-type]
    asymmetric = create_qparams(QuantMode.ASYMMERTIC, "quint8", 0.5, 10)
    # (round(-9 / 0.5) + 10) is clamped to 0
    assert fake_quant_tensor([-9.0, 0.3], asymmetric).tolist() == [-5.0, 0.5]


def test_dumps_run_at_other_batch_sizes() -> None:
    """Shapes that functions compute with follow the batch."""

    w = rand(4, 4, 2, 2)

    def net(x: Tensor) -> Tensor:
        x = F.conv_transpose2d(x, w, stride=2, output_padding=1)
        x = F.nn.pixel_shuffle(x, 2)
        x = F.vision.interpolate(x, scale_factor=1.5, align_corners=True)
        return F.nn.adaptive_avg_pool2d(x, 2)

    traced = loadrun.tracing.trace(symbolic=True, capture_as_const=True)(net)
    x = rand(3, 4, 4, 4)
    traced(tensor(x[:1]))
    file = io.BytesIO()
    traced.dump(file, arg_names=["x"], output_names=["y"])
    (result,) = loadrun.run(loadrun.loads(file.getvalue()), {"x": x})
    want = np.concatenate([net(tensor(x[i : i + 1])).numpy() for i in range(3)])
    np.testing.assert_allclose(result["y"], want, rtol=1e-5)
