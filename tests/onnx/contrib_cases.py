"""Nodes of com.microsoft's operators, which ONNX Runtime has kernels for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["CASES", "RNG", "Case", "f", "u8", "z"]

RNG = np.random.default_rng(7)


@dataclass(frozen=True)
class Case:
    """A node: its operator, inputs (None where left out), and attributes.

    Attributes:
        stored: numbers of the inputs that the model stores.
        outputs: which outputs are asked for.
        quanta: by how many whole numbers quantized outputs may differ: runtimes sum in another order.
    """

    op: str
    inputs: list[np.ndarray | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    stored: tuple[int, ...] = ()
    outputs: tuple[int, ...] = (0,)
    atol: float = 5e-6
    quanta: int = 0
    domain: str = "com.microsoft"
    opset: int = 18


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def half(*shape: int) -> np.ndarray:
    return f(*shape).astype(np.float16)


def u8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def narrow(*shape: int) -> np.ndarray:
    """Weights of 7 bits: products of larger ones saturate in ONNX Runtime on processors without VNNI."""
    return RNG.integers(-64, 64, shape).astype(np.int8)


def ints(high: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, high, shape).astype(np.int32)


def s(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def z(value: int, dtype: type = np.uint8) -> np.ndarray:
    return np.array(value, dtype)


def long(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def positions(*shape: int) -> np.ndarray:
    """Angles of rotary positions."""
    return RNG.uniform(-1, 1, shape).astype(np.float32)


MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
CASES = {
    "matmul_plain": Case("FusedMatMul", [f(2, 3, 4), f(2, 4, 5)], {"alpha": 0.5}),
    "matmul_turned": Case("FusedMatMul", [f(2, 4, 3), f(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": -2.0}),
    "matmul_batch": Case("FusedMatMul", [f(4, 2, 3), f(2, 3, 5)], {"transBatchA": 1, "transA": 0}),
    "matmul_old": Case("TransposeMatMul", [f(4, 3), f(4, 5)], {"transA": 1}),
    "gemm_relu": Case("FusedGemm", [f(3, 4), f(4, 5), f(5)], {"activation": "Relu"}),
    "gemm_leaky": Case(
        "FusedGemm",
        [f(3, 4), f(5, 4), f(3, 1)],
        {"activation": "LeakyRelu", "activation_alpha": 0.2, "transB": 1, "beta": 0.5},
    ),
    "conv_relu": Case(
        "FusedConv", [f(1, 3, 6, 6), f(4, 3, 3, 3), f(4)], {"activation": "Relu", "pads": [1, 1, 1, 1]}
    ),
    "conv_clip": Case(
        "FusedConv",
        [f(1, 4, 6, 6), f(4, 1, 3, 3), f(4)],
        {"activation": "Clip", "activation_params": [-0.5, 0.5], "group": 4},
    ),
    "conv_sum": Case(
        "FusedConv", [f(1, 3, 6, 6), f(4, 3, 3, 3), f(4), f(1, 4, 4, 4)], {"activation": "Relu"}
    ),
    "conv_leaky": Case(
        "FusedConv",
        [f(1, 3, 6, 6), f(4, 3, 1, 1)],
        {"activation": "LeakyRelu", "activation_params": [0.3], "strides": [2, 2]},
    ),
    "conv_hard": Case(
        "FusedConv",
        [f(1, 3, 6, 6), f(4, 3, 1, 1), f(4)],
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
    ),
    "gelu": Case("Gelu", [f(2, 7)]),
    "fast_gelu": Case("FastGelu", [f(2, 7)]),
    "fast_gelu_bias": Case("FastGelu", [f(2, 7), f(7)]),
    "bias_gelu": Case("BiasGelu", [f(2, 7), f(7)]),
    "quick_gelu": Case("QuickGelu", [f(2, 7)], {"alpha": 1.5}),
    "quick_gelu_default": Case("QuickGelu", [f(2, 7)]),
    "skip_norm": Case("SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8)]),
    "skip_norm_half": Case(
        "SkipLayerNormalization",
        [half(2, 3, 8), half(2, 3, 8), half(8), half(8), half(8)],
        outputs=(0, 3),
        atol=1e-8,
    ),
    "skip_rms_half": Case(
        "SkipSimplifiedLayerNormalization",
        [half(2, 3, 8), half(2, 3, 8), half(8), half(8)],
        outputs=(0, 3),
        atol=1e-8,
    ),
    "skip_norm_bias": Case(
        "SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)], {"epsilon": 1e-3}
    ),
    "skip_norm_sum": Case(
        "SkipLayerNormalization", [f(2, 3, 8), f(3, 8), f(8), None, f(8)], outputs=(0, 1, 2, 3)
    ),
    "skip_rms": Case(
        "SkipSimplifiedLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8)], outputs=(0, 3)
    ),
    **{
        f"dropped_{op}_{len(attributes)}": Case(op, [x], attributes, domain="", opset=7)
        for op, x, attributes in (
            ("ImageScaler", f(2, 3, 2, 2), {"scale": 0.5, "bias": [1.0, 2.0, -1.0]}),
            ("Crop", f(1, 2, 5, 6), {"border": [1, 0, 2, 1]}),
            ("Crop", f(1, 2, 5, 6), {"border": [1, 0, 2, 1], "scale": [3, 2]}),
            ("Affine", f(2, 3), {"alpha": 2.0, "beta": 3.0}),
            ("Scale", f(2, 3), {"scale": 3.0}),
            ("ScaledTanh", f(2, 3), {"alpha": 2.0, "beta": 3.0}),
            ("ParametricSoftplus", f(2, 3), {"alpha": 2.0, "beta": 3.0}),
        )
    },
    "saved_statistics": Case(
        "BatchNormalization",
        [f(2, 3, 4), *(f(3) for _ in "sbm"), u8(3).astype(np.float32)],
        {"momentum": 0.7},
        outputs=(0, 1, 2, 3, 4),
        domain="",
        opset=9,
    ),
    "rms": Case("SimplifiedLayerNormalization", [f(2, 3, 8), f(8)], {"epsilon": 1e-3}, domain=""),
    "rms_axis": Case("SimplifiedLayerNormalization", [f(2, 3, 8), f(3, 8)], {"axis": 1}, domain=""),
    "embed": Case(
        "EmbedLayerNormalization",
        [ints(9, 2, 4), ints(2, 2, 4), f(9, 8), f(6, 8), f(2, 8), f(8), f(8), MASK],
        {"epsilon": 1e-5},
        outputs=(0, 1, 2),
    ),
    "embed_first_segment": Case(
        "EmbedLayerNormalization",
        [ints(9, 2, 4), None, f(9, 8), f(6, 8), f(2, 8), f(8), f(8)],
        outputs=(0, 1),
    ),
    "embed_positions": Case(
        "EmbedLayerNormalization",
        [ints(9, 2, 4), None, f(9, 8), f(6, 8), None, f(8), f(8), None, ints(6, 2, 4)],
        outputs=(0, 1),
    ),
    "attention": Case("Attention", [f(2, 4, 8), f(8, 24), f(24)], {"num_heads": 2}),
    "attention_causal": Case(
        "Attention", [f(2, 4, 8), f(8, 24), f(24), MASK], {"num_heads": 2, "unidirectional": 1}
    ),
    "attention_mask": Case("Attention", [f(2, 4, 8), f(8, 24), f(24), MASK], {"num_heads": 2, "scale": 0.3}),
    "attention_lengths": Case(
        "Attention", [f(2, 4, 8), f(8, 24), f(24), np.array([4, 2], np.int32)], {"num_heads": 2}
    ),
    "attention_mask_3d": Case("Attention", [f(2, 4, 8), f(8, 24), f(24), ints(2, 2, 4, 4)], {"num_heads": 2}),
    "attention_sizes": Case(
        "Attention", [f(2, 4, 8), f(8, 20), f(20)], {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]}
    ),
    "attention_bias": Case(
        "Attention", [f(2, 4, 8), f(8, 24), f(24), None, None, f(1, 2, 4, 4)], {"num_heads": 2}
    ),
    "attention_past": Case(
        "Attention",
        [f(2, 3, 8), f(8, 24), f(24), None, f(2, 2, 2, 5, 4)],
        {"num_heads": 2, "unidirectional": 1},
        outputs=(0, 1),
    ),
    "heads_plain": Case("MultiHeadAttention", [f(2, 3, 8), f(2, 5, 8), f(2, 5, 8)], {"num_heads": 2}),
    "heads_bias": Case(
        "MultiHeadAttention", [f(2, 3, 8), f(2, 5, 8), f(2, 5, 12), f(28)], {"num_heads": 2, "scale": 0.4}
    ),
    "heads_mask": Case(
        "MultiHeadAttention", [f(2, 4, 8), f(2, 4, 8), f(2, 4, 8), None, MASK], {"num_heads": 2}
    ),
    "heads_added": Case(
        "MultiHeadAttention",
        [f(2, 3, 8), f(2, 5, 8), f(2, 5, 8), None, None, f(1, 2, 3, 5)],
        {"num_heads": 2},
    ),
    "heads_past": Case(
        "MultiHeadAttention",
        [f(2, 1, 8), f(2, 1, 8), f(2, 1, 8), None, None, None, f(2, 2, 4, 4), f(2, 2, 4, 4)],
        {"num_heads": 2},
        outputs=(0, 1, 2),
    ),
    "heads_causal": Case(
        "MultiHeadAttention", [f(2, 4, 8), f(2, 4, 8), f(2, 4, 8)], {"num_heads": 2, "unidirectional": 1}
    ),
    "heads_causal_long": Case(
        "MultiHeadAttention", [f(2, 5, 8), f(2, 3, 8), f(2, 3, 8)], {"num_heads": 2, "unidirectional": 1}
    ),
    "attention_starts": Case(
        "Attention", [f(2, 4, 8), f(8, 24), f(24), np.array([4, 3, 1, 0], np.int32)], {"num_heads": 2}
    ),
    "gemm_hard": Case(
        "FusedGemm",
        [f(3, 4), f(4, 5), f(5)],
        {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
    ),
    "heads_crossed": Case("MultiHeadAttention", [f(2, 3, 8), f(2, 2, 5, 4), f(2, 2, 5, 4)], {"num_heads": 2}),
    "heads_crossed_bias": Case(
        "MultiHeadAttention", [f(2, 3, 8), f(2, 2, 5, 4), f(2, 2, 5, 4), f(24)], {"num_heads": 2}
    ),
    "heads_sums": Case(
        "MultiHeadAttention",
        [f(2, 3, 8), f(2, 5, 8), f(2, 5, 8), None, np.array([4, 2, 0, 3, 6, 0, 5, 10], np.int32)],
        {"num_heads": 2},
    ),
    "heads_all_masked": Case(
        "MultiHeadAttention",
        [*(f(2, 3, 8) for _ in range(3)), None, np.zeros((2, 3), np.int32), f(2, 2, 3, 3)],
        {"num_heads": 2},
    ),
    "attention_all_masked": Case(
        "Attention",
        [f(2, 4, 8), f(8, 24), f(24), np.array([0, 4], np.int32), None, f(2, 2, 4, 4)],
        {"num_heads": 2, "unidirectional": 1},
    ),
    "group_prompt": Case(
        "GroupQueryAttention",
        [
            *(f(2, 4, 32), f(2, 4, 16), f(2, 4, 16), None, None),
            *(np.array([3, 3], np.int32), np.array(4, np.int32)),
        ],
        {"num_heads": 4, "kv_num_heads": 2},
        outputs=(0, 1, 2),
    ),
    "group_packed": Case(
        "GroupQueryAttention",
        [
            *(f(2, 4, 64), None, None, None, None),
            *(np.array([3, 3], np.int32), np.array(4, np.int32)),
        ],
        {"num_heads": 4, "kv_num_heads": 2},
        outputs=(0, 1, 2),
    ),
    "group_rotary": Case(
        "GroupQueryAttention",
        [
            *(f(2, 1, 64), f(2, 1, 32), f(2, 1, 32), f(2, 2, 5, 16), f(2, 2, 5, 16)),
            *(np.array([5, 5], np.int32), np.array(6, np.int32), positions(9, 8), positions(9, 8)),
        ],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
        outputs=(0, 1, 2),
    ),
    "group_window": Case(
        "GroupQueryAttention",
        [
            *(f(1, 6, 32), f(1, 6, 16), f(1, 6, 16), None, None),
            *(np.array([5], np.int32), np.array(6, np.int32)),
        ],
        {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 3, "softcap": 2.0},
        outputs=(0, 1, 2),
    ),
    "group_padded_prompt": Case(
        "GroupQueryAttention",
        [
            *(f(3, 4, 256), None, None, None, None),
            *(np.array([3, 1, 0], np.int32), np.array(4, np.int32), positions(9, 8), positions(9, 8)),
        ],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": 2},
        outputs=(0, 1, 2),
    ),
    "group_short": Case(
        "GroupQueryAttention",
        [
            *(f(3, 1, 32), f(3, 1, 16), f(3, 1, 16), f(3, 1, 5, 16), f(3, 1, 5, 16)),
            *(np.array([5, 2, 0], np.int32), np.array(6, np.int32), positions(9, 8), positions(9, 8)),
        ],
        {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1, "rotary_interleaved": 1},
        outputs=(0, 1, 2),
    ),
    "group_capacity": Case(
        "GroupQueryAttention",
        [
            *(f(1, 3, 32), f(1, 3, 16), f(1, 3, 16), f(1, 1, 8, 16), f(1, 1, 8, 16)),
            *(np.array([5], np.int32), np.array(6, np.int32), positions(9, 8), positions(9, 8)),
            *(np.array([[7, 0, 2]]), f(1, 2, 3, 6), f(2)),
        ],
        {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1, "scale": 0.3},
        outputs=(0, 1, 2),
    ),
    "group_first_place": Case(
        "GroupQueryAttention",
        [
            *(f(2, 3, 32), f(2, 3, 16), f(2, 3, 16), f(2, 1, 5, 16), f(2, 1, 5, 16)),
            *(np.array([2, 2], np.int32), np.array(3, np.int32), positions(9, 8), positions(9, 8)),
            np.array([[4, 0, 2], [1, 1, 1]]),
        ],
        {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1, "smooth_softmax": 1, "softcap": 3.0},
        outputs=(0, 1, 2),
    ),
    "group_both_ways": Case(
        "GroupQueryAttention",
        [
            *(f(2, 3, 32), f(2, 3, 16), f(2, 3, 16), None, None),
            *(np.array([2, 1], np.int32), np.array(3, np.int32)),
        ],
        {"num_heads": 2, "kv_num_heads": 1, "causal": 0},
        outputs=(0, 1, 2),
    ),
    "rotary_half": Case(
        "RotaryEmbedding",
        [half(2, 3, 16), long(1), positions(9, 4).astype(np.float16), positions(9, 4).astype(np.float16)],
        {"num_heads": 2},
        atol=1e-8,
    ),
    "rotary": Case(
        "RotaryEmbedding", [f(2, 3, 16), long(1), positions(9, 4), positions(9, 4)], {"num_heads": 2}
    ),
    "rotary_each": Case(
        "RotaryEmbedding",
        [f(2, 2, 3, 8), np.array([[0, 2, 1], [4, 4, 5]]), positions(9, 4), positions(9, 4)],
        {"interleaved": 1},
    ),
    "rotary_part": Case(
        "RotaryEmbedding",
        [f(2, 3, 16), long(0), positions(9, 2), positions(9, 2)],
        {"num_heads": 2, "rotary_embedding_dim": 4},
    ),
    "dynamic_matmul": Case(
        "DynamicQuantizeMatMul", [f(3, 8), u8(8, 5), s(0.02), z(120), f(5)], stored=(1, 2, 3, 4), atol=2e-5
    ),
    "dynamic_matmul_columns": Case(
        "DynamicQuantizeMatMul",
        [f(2, 3, 8), narrow(8, 5), np.abs(f(5)) / 50, i8(5) // 9],
        stored=(1, 2, 3),
        atol=5e-5,
    ),
    "integer_to_float": Case(
        "MatMulIntegerToFloat",
        [u8(3, 8), u8(8, 5), s(0.1), s(0.02), z(128), z(117), f(5)],
        stored=(1, 2, 3, 4, 5, 6),
        atol=1e-4,
    ),
    "integer_to_float_columns": Case(
        "MatMulIntegerToFloat",
        [u8(3, 8), narrow(8, 5), s(0.1), np.abs(f(5)) / 50, z(3), i8(5) // 9],
        stored=(1, 3, 5),
        atol=1e-4,
    ),
    "bits_4": Case(
        "MatMulNBits",
        [f(3, 64), u8(5, 2, 16), np.abs(f(10)) / 10],
        {"K": 64, "N": 5, "bits": 4, "block_size": 32},
        stored=(1, 2),
        atol=1e-4,
    ),
    "bits_4_zero": Case(
        "MatMulNBits",
        [f(2, 3, 40), u8(5, 3, 8), np.abs(f(15)) / 10, u8(10), None, f(5)],
        {"K": 40, "N": 5, "bits": 4, "block_size": 16},
        stored=(1, 2, 3, 5),
        atol=1e-4,
    ),
    "bits_8_half": Case(
        "MatMulNBits",
        [half(3, 64), u8(5, 2, 32), np.abs(half(10)), None, None, half(5)],
        {"K": 64, "N": 5, "bits": 8, "block_size": 32},
        stored=(1, 2, 5),
        atol=1e-8,
    ),
    "bits_2": Case(
        "MatMulNBits",
        [f(3, 40), u8(5, 3, 4), np.abs(f(15)) / 2, u8(5)],
        {"K": 40, "N": 5, "bits": 2, "block_size": 16},
        stored=(1, 2, 3),
        atol=1e-4,
    ),
    "bits_4_group_index": Case(
        "MatMulNBits",
        [
            np.eye(64, dtype=np.float32),
            u8(5, 2, 16),
            np.abs(f(10)) / 10,
            None,
            np.arange(64, dtype=np.int32) % 2,
        ],
        {"K": 64, "N": 5, "bits": 4, "block_size": 32},
        stored=(1, 2, 4),
        atol=1e-4,
    ),
    "bits_8": Case(
        "MatMulNBits",
        [f(3, 64), u8(5, 2, 32), np.abs(f(10)) / 100],
        {"K": 64, "N": 5, "bits": 8, "block_size": 32},
        stored=(1, 2),
        atol=1e-4,
    ),
    "gather_block_quantized": Case(
        "GatherBlockQuantized",
        [u8(6, 16), np.array([[0, 5], [2, -1]], np.int64), np.abs(f(6, 2))],
        {"bits": 4, "block_size": 16, "gather_axis": 0, "quantize_axis": 1},
        stored=(0, 2),
    ),
    "gather_block_quarters": Case(
        "GatherBlockQuantized",
        [u8(6, 8), np.array([[0, 5], [2, -1]], np.int64), np.abs(f(6, 2)), u8(6, 1)],
        {"bits": 2, "block_size": 16, "gather_axis": 0, "quantize_axis": 1},
        stored=(0, 2, 3),
    ),
    "q_add": Case(
        "QLinearAdd", [u8(2, 5), s(0.1), z(120), u8(2, 5), s(0.07), z(9), s(0.15), z(100)], quanta=1
    ),
    "q_add_broadcast": Case(
        "QLinearAdd",
        [i8(2, 5), s(0.1), z(-3, np.int8), i8(5), s(0.07), z(4, np.int8), s(0.15), z(10, np.int8)],
        quanta=1,
    ),
    "q_mul": Case(
        "QLinearMul", [u8(2, 5), s(0.1), z(120), u8(2, 1), s(0.07), z(9), s(0.9), z(100)], quanta=1
    ),
    "q_where": Case(
        "QLinearWhere",
        [RNG.random((2, 5)) > 0.5, u8(2, 5), s(0.1), z(120), u8(2, 5), s(0.07), z(9), s(0.15), z(100)],
        stored=(2, 3, 5, 6, 7, 8),
        quanta=1,
    ),
    "q_concat": Case(
        "QLinearConcat",
        [s(0.1), z(100), u8(2, 3), s(0.1), z(100), u8(2, 4), s(0.3), z(20)],
        {"axis": 1},
        stored=(0, 1, 3, 4, 6, 7),
        quanta=1,
    ),
    "q_sigmoid": Case(
        "QLinearSigmoid", [u8(64), s(0.05), z(128), s(1 / 256), z(0)], stored=(1, 2, 3, 4), quanta=1
    ),
    "q_leaky": Case(
        "QLinearLeakyRelu",
        [i8(64), s(0.05), z(3, np.int8), s(0.04), z(-20, np.int8)],
        {"alpha": 0.2},
        stored=(1, 2, 3, 4),
        quanta=1,
    ),
    "q_softmax": Case(
        "QLinearSoftmax",
        [u8(2, 10), s(0.05), z(128), s(1 / 256), z(0)],
        {"axis": -1, "opset": 13},
        stored=(1, 2, 3, 4),
    ),
    "q_softmax_flat": Case(
        "QLinearSoftmax",
        [u8(2, 3, 4), s(0.03), z(128), s(1 / 256), z(0)],
        {"axis": 1, "opset": 12},
        stored=(1, 2, 3, 4),
    ),
    "q_softmax_coarse": Case(
        "QLinearSoftmax",
        [i8(3, 4, 6), s(0.5), i8(), s(0.175), i8()],
        {"axis": 1, "opset": 13},
        stored=(1, 2, 3, 4),
    ),
    "q_softmax_old": Case(
        "QLinearSoftmax", [u8(3, 4, 6), s(0.02), z(3), s(1 / 250), z(0)], {"opset": 11}, stored=(1, 2, 3, 4)
    ),
    "q_global": Case("QLinearGlobalAveragePool", [u8(2, 3, 4, 5), s(0.05), z(128), s(0.02), z(90)]),
    "q_global_last": Case(
        "QLinearGlobalAveragePool",
        [u8(2, 4, 5, 3), s(0.05), z(128), s(0.02), z(90)],
        {"channels_last": 1},
    ),
    "q_average": Case(
        "QLinearAveragePool",
        [u8(1, 3, 6, 6), s(0.05), z(128), s(0.04), z(110)],
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]},
    ),
    **{
        f"q_average_beyond_{k}": Case(
            "QLinearAveragePool",
            [u8(1, 3, 13, 6 if k == 3 else 13), s(0.05), z(128), s(0.04), z(110)],
            {
                "kernel_shape": [k, k],
                "pads": [1] * 4,
                "strides": [2, 2],
                "ceil_mode": 1,
                "count_include_pad": 1,
            },
        )
        for k in (3, 12)
    },
    "q_average_last": Case(
        "QLinearAveragePool",
        [u8(1, 6, 6, 3), s(0.05), z(128), s(0.04), z(110)],
        {
            "kernel_shape": [3, 3],
            "pads": [1, 1, 1, 1],
            "strides": [2, 2],
            "channels_last": 1,
            "count_include_pad": 1,
        },
    ),
    "q_conv_last": Case(
        "QLinearConv",
        [u8(1, 6, 6, 3), s(0.05), z(128), u8(4, 3, 3, 3), s(0.02), z(120), s(0.3), z(110)],
        {"channels_last": 1, "pads": [1, 1, 1, 1]},
        stored=(1, 2, 3, 4, 5, 6, 7),
        quanta=1,
    ),
    "q_gemm": Case(
        "QGemm",
        [u8(3, 8), s(0.05), z(128), u8(8, 5), s(0.02), z(120), ints(200, 5), s(0.1), z(110)],
        {"alpha": 1.0},
        stored=(3,),
        quanta=1,
    ),
    "q_gemm_float": Case(
        "QGemm",
        [u8(3, 8), s(0.05), z(128), narrow(5, 8), np.abs(f(5)) / 50, i8(5) // 9, ints(200, 5)],
        {"transB": 1, "alpha": 0.5},
        stored=(3,),
    ),
    "q_attention": Case(
        "QAttention",
        [u8(2, 4, 8), u8(8, 24), f(24), s(0.02), s(0.01), MASK, z(128), z(120)],
        {"num_heads": 2},
        stored=(1, 2, 4, 7),
    ),
    "q_attention_causal": Case(
        "QAttention",
        [u8(2, 4, 8), narrow(8, 24), f(24), s(0.02), np.abs(f(24)) / 90, None, z(128), z(0, np.int8)],
        {"num_heads": 2, "unidirectional": 1},
        stored=(1, 2, 4),
        atol=1e-5,
    ),
    "q_embed": Case(
        "QEmbedLayerNormalization",
        [
            *(ints(9, 2, 4), ints(2, 2, 4), u8(9, 8), u8(6, 8), u8(2, 8), u8(8), u8(8), MASK),
            *(s(0.02), s(0.03), s(0.01), s(0.02), s(0.01), z(120), z(128), z(99), z(3), z(140)),
        ],
        {"epsilon": 1e-5},
        outputs=(0, 1),
    ),
    "quantize": Case("QuantizeLinear", [f(3, 7), s(0.02), z(3)], stored=(1, 2)),
    "quantize_16": Case("QuantizeLinear", [f(3, 7), s(0.02), z(300, np.uint16)], stored=(1, 2)),
    "quantize_axis": Case("QuantizeLinear", [f(3, 7), np.abs(f(3)) / 9, i8(3)], {"axis": 0}, stored=(1, 2)),
    "dequantize": Case("DequantizeLinear", [u8(3, 7), s(0.02), z(3)], stored=(1, 2)),
    "dequantize_wide": Case("DequantizeLinear", [ints(999, 3, 7), s(0.02), z(0, np.int32)], stored=(1, 2)),
    "dynamic_lstm": Case(
        "DynamicQuantizeLSTM",
        [
            *(f(4, 2, 6), u8(1, 6, 20), u8(1, 5, 20), f(1, 40), None, f(1, 2, 5), f(1, 2, 5), None),
            *(np.array([0.01], np.float32), np.array([120], np.uint8)),
            *(np.array([0.01], np.float32), np.array([128], np.uint8)),
        ],
        {"hidden_size": 5},
        stored=(1, 2, 3, 8, 9, 10, 11),
        outputs=(0, 1, 2),
    ),
    "dynamic_lstm_both": Case(
        "DynamicQuantizeLSTM",
        [
            *(f(4, 2, 6), narrow(2, 6, 20), narrow(2, 5, 20), f(2, 40), None, None, None, None),
            *(np.abs(f(2, 20)) / 90, np.zeros((2, 20), np.int8)),
            *(np.abs(f(2, 20)) / 90, np.zeros((2, 20), np.int8)),
        ],
        {"hidden_size": 5, "direction": "bidirectional"},
        stored=(1, 2, 3, 8, 9, 10, 11),
        outputs=(0, 1, 2),
    ),
    "pool_last": Case(
        "NhwcMaxPool",
        [u8(1, 6, 6, 3)],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "grid": Case("GridSample", [f(1, 2, 4, 5), f(1, 3, 3, 2)]),
    "grid_border": Case(
        "GridSample",
        [f(1, 2, 4, 5), f(1, 3, 3, 2)],
        {"mode": "bicubic", "padding_mode": "border", "align_corners": 1},
        atol=1e-5,
    ),
    "grid_nearest": Case(
        "GridSample", [f(1, 2, 4, 5), f(1, 3, 3, 2)], {"mode": "nearest", "padding_mode": "reflection"}
    ),
    "inverse": Case("Inverse", [f(2, 4, 4) + 3 * np.eye(4, dtype=np.float32)], atol=1e-5),
    "inverse_flat": Case("Inverse", [f(3, 3) + 3 * np.eye(3, dtype=np.float32)], atol=1e-5),
    "pad": Case("Pad", [f(2, 3), long(1, 0, 0, 2), np.array([9.0], np.float32)], stored=(1, 2)),
    "pad_edge": Case("Pad", [f(2, 3), long(1, 0, 0, 2)], {"mode": "edge"}, stored=(1,)),
    "unique": Case("Unique", [np.array([2, 1, 1, 3, 4, 3, 2], np.float32)], outputs=(0, 1, 2)),
    "expand": Case("ExpandDims", [f(2, 3), np.array(-1, np.int32)], stored=(1,)),
    "expand_front": Case("ExpandDims", [f(2, 3), np.array(1, np.int32)], stored=(1,)),
    "triangle": Case("Trilu", [f(2, 4, 4), np.array(1, np.int64)], {"upper": 0}, stored=(1,)),
    "triangle_upper": Case("Trilu", [f(3, 5)]),
    "crop": Case(
        "CropAndResize",
        [
            f(2, 3, 5, 6),
            np.array([[0.1, 0.2, 0.8, 0.9], [-0.2, 0, 1.3, 0.5], [0.7, 0.1, 0.2, 0.6]], np.float32),
            np.array([0, 1, 1], np.int32),
            np.array([4, 3], np.int32),
        ],
        {"extrapolation_value": 7.0},
        stored=(3,),
    ),
    "crop_nearest": Case(
        "CropAndResize",
        [
            f(2, 3, 5, 6),
            np.array([[0.1, 0.2, 0.8, 0.9], [-0.2, 0, 1.3, 0.5]], np.float32),
            np.array([1, 0], np.int32),
            np.array([4, 1], np.int32),
        ],
        {"mode": "nearest"},
        stored=(3,),
    ),
    "no_repeats": Case(
        "NGramRepeatBlock",
        [np.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4]], np.int64), f(2, 7)],
        {"ngram_size": 3},
    ),
    "no_repeats_short": Case("NGramRepeatBlock", [np.array([[1, 2]], np.int64), f(1, 7)], {"ngram_size": 3}),
    "gather_nd": Case("GatherND", [f(3, 4), np.array([[0, 1], [2, 3]], np.int64)]),
    "gather_nd_rows": Case("GatherND", [f(3, 4), np.array([[2], [0]], np.int32)]),
    "range": Case("Range", [s(1), s(6), s(1.5)], stored=(0, 1, 2)),
    "range_default": Case("Range", [s(1), s(6)], stored=(0, 1)),
    "distance": Case("CDist", [f(3, 4), f(5, 4)], {"metric": "euclidean"}, atol=1e-5),
    "distance_square": Case("CDist", [f(3, 4), f(5, 4)], {"metric": "sqeuclidean"}, atol=1e-5),
    "matmul_16": Case(
        "MatMulInteger16",
        [RNG.integers(-999, 999, (2, 3)).astype(np.int16), RNG.integers(-999, 999, (3, 4)).astype(np.int16)],
    ),
    "unfold": Case("UnfoldTensor", [f(2, 7)], {"dim": 1, "size": 3, "step": 2}),
    "add_one": Case("QLinearAdd", [u8(1), s(0.02), z(120), u8(1), s(0.03), z(9), s(0.04), z(128)]),
    "mul_one": Case("QLinearMul", [u8(1), s(0.02), z(120), u8(1), s(0.03), z(9), s(0.04), z(128)]),
    # The last step is beyond every sequence, and no sequence ends where another one does.
    "dynamic_lstm_lengths": Case(
        "DynamicQuantizeLSTM",
        [
            np.concatenate([f(4, 3, 6), 9 * f(1, 3, 6)]),
            *(narrow(2, 6, 20), narrow(2, 5, 20), f(2, 40), np.array([4, 1, 2], np.int32)),
            *(4 * f(2, 3, 5), f(2, 3, 5), None),
            *(np.abs(f(2, 20)) / 90, np.zeros((2, 20), np.int8)),
            *(np.abs(f(2, 20)) / 90, np.zeros((2, 20), np.int8)),
        ],
        {"hidden_size": 5, "direction": "bidirectional"},
        stored=(1, 2, 3, 8, 9, 10, 11),
        outputs=(0, 1, 2),
    ),
    # Queries that see no key.
    **{
        f"unseen_{op}": Case(
            op,
            [f(1, 3, 4), f(*(4, 12) if op == "Attention" else (1, 3, 4)), f(*shape), *gap, mask],
            {"num_heads": 1, "mask_filter_value": -np.inf},
        )
        for op, shape, gap, mask in (
            ("Attention", (12,), [], np.array([[0, 0, 0]], np.int32)),
            (
                "MultiHeadAttention",
                (1, 3, 4),
                [None],
                np.array([[[0, 1, 1], [0, 0, 0], [1, 0, 0]]], np.int32),
            ),
        )
    },
}
