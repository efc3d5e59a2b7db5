"""Parts of a model without effect in its testcases: dead channels, saturated outputs, useless inputs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ..engines.reference import ReferenceEngine
from ..graph import Opr
from ..graph.dtypes import Array
from ..graph.params import ConvBias, Convolution, Format
from ..ops.catalog import types
from ..ops.op import Trait
from ..testcase import Bundle, Testcase
from .audit_mutants import Weight

_SATURATED = 0.5
"""Share of an output's elements at its bounds from which on it is reported."""
_FEW = 8
"""Minimum elements for a statement on their distribution."""
_PACKED = types(Trait.PACKED)
"""Plain convolutions of two spatial axes, with bias or without."""


def equal_testcases(cases: Sequence[Testcase]) -> Iterator[str]:
    """Name the testcases that have the inputs of an earlier one."""
    first: dict[tuple[object, ...], int] = {}
    same: dict[int, list[int]] = {}
    for i, case in enumerate(cases):
        key = tuple((n, a.shape, a.tobytes()) for n, a in sorted(case.inputs.items()))
        if key in first:
            same.setdefault(first[key], []).append(i)
        else:
            first[key] = i
    for i, others in same.items():
        what = f"testcase {others[0]} has" if len(others) == 1 else f"testcases {_listed(others)} have"
        yield f"{what} the inputs of testcase {i}"


def lifeless_inputs(cases: Sequence[Testcase]) -> Iterator[str]:
    """Name inputs that hold one number in all testcases; a single number, such as a sampling rate, only if it is 0."""
    for name in cases[0].inputs:
        values = [case.arrays[name] for case in cases if name in case.arrays and case.arrays[name].size]
        if not values or values[0].dtype.kind not in "biuf":
            continue
        first = values[0].reshape(-1)[0].item()
        if all((v == first).all() for v in values) and (not first or any(v.size > 1 for v in values)):
            yield f"input {name!r} is {first:g} everywhere in every testcase"


def only_testcase(cases: Sequence[Testcase]) -> Iterator[str]:
    """Say that a file has a single testcase."""
    if len(cases) == 1:
        yield "there is only one testcase, so that nothing shows whether outputs follow other inputs"


def saturated_outputs(values: Mapping[str, Sequence[Array]]) -> Iterator[str]:
    """Name the outputs that hold one number in all testcases, or whose elements are at their bounds.

    Args:
        values: by output name what it is in each testcase.
    """
    for name, arrays in values.items():
        flat = np.concatenate([a.reshape(-1) for a in arrays]) if arrays else np.zeros(0)
        if flat.size < 2 or flat.dtype.kind not in "iubf":
            continue
        low, high = flat.min(), flat.max()
        if low == high:
            yield f"output {name!r} is {low.item():g} everywhere in every testcase"
        elif flat.dtype.kind == "f" and flat.size >= _FEW and np.isfinite([low, high]).all():
            near = 1e-6 * (float(high) - float(low))
            at = [float(np.mean(np.abs(flat.astype(np.float64) - float(b)) <= near)) for b in (low, high)]
            if sum(at) > _SATURATED:
                bounds = " and ".join(
                    f"{b.item():g}" for b, share in zip((low, high), at, strict=True) if share > 0.05
                )
                yield f"{100 * sum(at):.0f} % of output {name!r} are at {bounds}"


class Walk:
    """Statistics of a model's operators in testcases, as far as an audit asks.

    Args:
        bundle: the model.
        cases: the testcases.

    Raises:
        EngineError: the model does not run on the reference engine.
    """

    def __init__(self, bundle: Bundle, cases: Iterable[Testcase]) -> None:
        engine = ReferenceEngine(bundle.graph, list(bundle.outputs.values()))
        self._alive: dict[int, Array] = {}
        self._oprs: dict[int, Opr] = {}
        self._shapes: dict[int, set[tuple[int, ...]]] = {}
        for case in cases:
            feeds = {n: a for n, a in case.inputs.items() if n in engine.inputs}
            for opr, outs in engine.walk(feeds):
                for var, value in zip(opr.outputs, outs, strict=True):
                    self._shapes.setdefault(id(var), set()).add(value.shape)
                if opr.inputs and outs:
                    self._look(opr, outs[0])

    def _look(self, opr: Opr, value: Array) -> None:
        """Note which channels have a number other than 0."""
        if value.ndim < 2 or value.shape[1] < 2 or value.dtype.kind not in "iuf" or not value.size:
            return
        var = opr.outputs[0]
        zero = var.dtype.zero_point if var.dtype is not None and var.dtype.is_asymmetric else 0
        now = (value != zero).any(axis=tuple(i for i in range(value.ndim) if i != 1))
        before = self._alive.get(id(var))
        self._alive[id(var)] = now if before is None or before.shape != now.shape else before | now
        self._oprs[id(var)] = opr

    def dead_channels(self) -> Iterator[str]:
        """Name the operators that give channels (axis 1) which are 0 in every testcase, where they begin."""
        for number, channels in self._alive.items():
            dead = int(channels.size - np.count_nonzero(channels))
            opr = self._oprs[number]
            before = (self._alive.get(id(v)) for v in opr.inputs)
            if dead and not any(b is not None and not b.all() for b in before):
                said = f"{dead} of {channels.size} channels of operator {opr.id} {opr.title}"
                yield f"{said} are 0 in every testcase"

    def only_padding(self, weight: Weight, element: int) -> bool:
        """Return whether an element of a kernel meets only padding, because the inputs are so small."""
        tensor, reader = weight.opr.tensors[weight.place], weight.reader
        param = next((p for p in reader.params if isinstance(p, (Convolution, ConvBias))), None)
        shape = tensor.shape or ()
        if param is None or len(shape) < 4 or param.format != Format.NCHW or not reader.inputs:
            return False
        sizes = self._shapes.get(id(reader.inputs[0]), ())
        results = self._shapes.get(id(reader.outputs[0]), ())
        if reader.type not in _PACKED or not sizes:
            return False
        at = np.unravel_index(element, shape)[-2:]
        steps = ((param.pad_h, param.stride_h, param.dilate_h), (param.pad_w, param.stride_w, param.dilate_w))
        for axis, (pad, stride, dilate) in enumerate(steps):
            first = int(at[axis]) * dilate - pad
            most, last = max(s[2 + axis] for s in sizes), max(s[2 + axis] for s in results)
            if not any(0 <= first + i * stride < most for i in range(last)):
                return True
        return False


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown if len(numbers) <= 8 else f"{shown}, ... ({len(numbers)} in all)"
