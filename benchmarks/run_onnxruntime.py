"""One round of ONNX Runtime: run_onnxruntime.py MODEL ITERATIONS WARMUP THREADS; prints a JSON line.

The graph is translated for the shapes of its first testcase: as much of ONNX as the benchmark models need.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from timing import timed

import loadrun
from loadrun.graph import Opr, Var
from loadrun.graph import params as P
from loadrun.ops.infer import Inference, infer_dtypes, infer_shapes

BINARY = {"ADD": "Add", "MUL": "Mul", "SUB": "Sub", "MAX": "Max", "MIN": "Min", "TRUE_DIV": "Div"}
UNARY = {"RELU": "Relu", "SIGMOID": "Sigmoid", "GELU": "Gelu", "ABS": "Abs", "TANH": "Tanh"}


class Translation:
    """ONNX nodes for operators whose shapes are known."""

    def __init__(self, known: Inference) -> None:
        self.known = known
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: np.ndarray, name: str | None = None) -> str:
        name = name or f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        output = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def shape(self, var: Var) -> list[int]:
        return list(self.known.shapes[var.id])

    def add(self, o: Opr) -> None:
        ins, out = [str(v.id) for v in o.inputs], str(o.outputs[0].id)
        if o.tensors:
            for v, t in zip(o.outputs, o.tensors, strict=True):
                self.constant(t.value(), str(v.id))
        elif all(v.id in self.known.values for v in o.outputs):
            for v in o.outputs:
                self.constant(self.known.values[v.id], str(v.id))
        elif o.type == "Elemwise":
            self.elemwise(o.title, ins, out)
        elif o.type in ("ReshapeV1", "AxisAddRemove"):
            self.node("Reshape", [ins[0], self.constant(np.array(self.shape(o.outputs[0]), np.int64))], out)
        elif o.type == "ConvolutionV2":
            self.convolution(o, ins, out)
        elif o.type == "PoolingV1":
            p = o.get(P.Pooling)
            kind = {P.PoolingMode.MAX: "MaxPool"}.get(p.mode, "AveragePool")
            more = {} if kind == "MaxPool" else {"count_include_pad": int(p.mode == P.PoolingMode.AVERAGE)}
            size = {"kernel_shape": [p.window_h, p.window_w], "strides": [p.stride_h, p.stride_w]}
            self.node(kind, ins, out, pads=[p.pad_h, p.pad_w] * 2, **size, **more)
        elif o.type in ("MatrixMulV2", "BatchedMatrixMulV2"):
            p2, perm = o.get(P.MatrixMul), [0, 2, 1] if o.type.startswith("B") else [1, 0]
            a, b = ins
            a = self.node("Transpose", [a], perm=perm) if p2.transposeA else a
            b = self.node("Transpose", [b], perm=perm) if p2.transposeB else b
            self.node("MatMul", [a, b], out)
        elif o.type == "Dimshuffle":
            self.node("Transpose", ins, out, perm=list(o.get(P.Dimshuffle).pattern))
        elif o.type == "LayerNorm":
            n = o.get(P.LayerNorm)
            self.node("LayerNormalization", ins, out, axis=-n.normalized_dim, epsilon=n.eps)
        elif o.type == "Softmax":
            self.node("Softmax", ins, out, axis=o.get(P.Softmax).axis)
        elif o.type == "IndexingMultiAxisVec":
            self.node("Gather", ins, out, axis=0)
        else:
            raise SystemExit(f"{o.type} is not translated")

    def elemwise(self, mode: str, ins: list[str], out: str) -> None:
        if mode in BINARY:
            self.node(BINARY[mode], ins, out)
        elif mode in UNARY:
            self.node(UNARY[mode], ins, out)
        elif mode == "FUSE_ADD_RELU":
            self.node("Relu", [self.node("Add", ins)], out)
        elif mode == "FUSE_MUL_ADD3":
            self.node("Add", [self.node("Mul", ins[:2]), ins[2]], out)
        else:
            raise SystemExit(f"Elemwise {mode} is not translated")

    def convolution(self, o: Opr, ins: list[str], out: str) -> None:
        p, w = o.get(P.Convolution), self.shape(o.inputs[1])
        groups = w[0] if len(w) == 5 else 1
        if groups > 1 or len(w) == 5:
            flat = self.constant(np.array([w[0] * w[1], *w[2:]], np.int64))
            ins = [ins[0], self.node("Reshape", [ins[1], flat])]
        self.node(
            "Conv",
            ins,
            out,
            group=groups,
            pads=[p.pad_h, p.pad_w] * 2,
            strides=[p.stride_h, p.stride_w],
            dilations=[p.dilate_h, p.dilate_w],
        )


def main() -> None:
    """Translate, check against the testcase, time."""
    path, iterations, warmup, threads = sys.argv[1], *map(int, sys.argv[2:5])
    bundle = loadrun.load(path)
    testcase = bundle.testcases[0]
    outputs = bundle.outputs
    oprs = bundle.graph.needed(outputs.values())
    infer_dtypes(oprs)
    feeds = testcase.inputs
    known = infer_shapes(bundle.graph, oprs, {n: a.shape for n, a in feeds.items()})
    work = Translation(known)
    names = {v.name: str(v.id) for v in bundle.inputs}
    for o in oprs:
        if o.type != "Host2DeviceCopy":
            work.add(o)
    types = {np.dtype("f4"): TensorProto.FLOAT, np.dtype("i4"): TensorProto.INT32}
    graph = helper.make_graph(
        work.nodes,
        "benchmark",
        [helper.make_tensor_value_info(names[n], types[a.dtype], a.shape) for n, a in feeds.items()],
        [
            helper.make_tensor_value_info(str(v.id), TensorProto.FLOAT, known.shapes[v.id])
            for v in outputs.values()
        ],
        work.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    fed = {names[n]: a for n, a in feeds.items()}
    times = timed(lambda: session.run(None, fed), iterations, warmup)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = session.run(None, fed)
    errors = [
        float(loadrun.compare.assert_equal_error(testcase.expects[n], a))
        for n, a in zip(outputs, found, strict=True)
    ]
    print(json.dumps({**times, "peak_mib": peak, "max_error": max(errors)}))


if __name__ == "__main__":
    main()
