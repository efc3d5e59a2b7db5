"""The reference engine: MegEngine's operators on numpy arrays.

Constant subgraphs are computed once, when the first run needs them. A value is dropped as soon as its last
reader ran, and a reader that is the last one may write its result into that value's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..dtypes import Array, DType, nbytes, round_bfloat16
from ..errors import EngineError, InputError, LoadRunError
from ..graph import Graph, Opr, Var
from ..ops.infer import describe, infer_dtypes, infer_shapes
from ..ops.registry import Call, Kernel, Shape, implementation
from .memory import memory_limit

__all__ = ["ReferenceEngine"]

Observer = Callable[[Opr, Sequence[Array]], None]


@dataclass(eq=False)
class _Step:
    kernel: Kernel
    call: Call
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    dying: tuple[int, ...]
    round_bf16: bool


class ReferenceEngine:
    """A graph compiled for repeated execution on numpy.

    Args:
        graph: the graph to execute.
        targets: the variables to compute, default the graph's outputs.
        seed: seed of the random operators; every run starts from it, so runs repeat.

    Raises:
        UnsupportedError: an operator that the targets need has no kernel.
        EngineError: dtypes that an operator cannot take.
    """

    name = "reference"

    def __init__(self, graph: Graph, targets: Iterable[Var] | None = None, *, seed: int = 0) -> None:
        self.graph = graph
        self.targets = list(graph.outputs if targets is None else targets)
        self.seed = seed
        self._oprs = graph.needed(self.targets)
        infer_dtypes(self._oprs)
        self._inputs = {
            o.outputs[0].name or "": o.outputs[0] for o in self._oprs if o.type == "Host2DeviceCopy"
        }
        self._constant = self._find_constants()
        self._steps = self._plan()
        self._values: dict[int, Array] | None = None
        self._checked: set[tuple[tuple[str, Shape], ...]] = set()

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that the targets depend on, by name."""
        return dict(self._inputs)

    def _find_constants(self) -> set[int]:
        """Ids of the variables that are the same in every run."""
        constant: set[int] = set()
        for opr in self._oprs:
            if opr.type == "Host2DeviceCopy" or implementation(opr.type).random:
                continue
            if all(v.id in constant for v in opr.inputs):
                constant.update(v.id for v in opr.outputs)
        return constant

    def _plan(self) -> list[_Step]:
        keep = {v.id for v in self.targets}
        last: dict[int, int] = {}
        for i, opr in enumerate(self._oprs):
            for v in (*opr.inputs, *opr.outputs):
                last[v.id] = i
        steps = []
        for i, opr in enumerate(self._oprs):
            if opr.type == "Host2DeviceCopy":
                continue
            ids = [v.id for v in (*opr.inputs, *opr.outputs)]
            dying = tuple(dict.fromkeys(v for v in ids if last[v] == i and v not in keep))
            outs = tuple(_typed(v) for v in opr.outputs)
            call = Call(
                opr,
                tuple(_typed(v) for v in opr.inputs),
                outs,
                tuple(v.id in self._constant for v in opr.inputs),
            )
            steps.append(
                _Step(
                    implementation(opr.type).kernel,
                    call,
                    tuple(v.id for v in opr.inputs),
                    tuple(v.id for v in opr.outputs),
                    dying,
                    any(d.name == "BFloat16" for d in outs),
                )
            )
        return steps

    def _fold(self) -> dict[int, Array]:
        """Compute the constant variables and keep those that non-constant operators (or the caller) read."""
        values: dict[int, Array] = {}
        steps = []
        for step in self._steps:
            if step.writes and step.writes[0] in self._constant:
                self._execute(step, values, {})
            else:
                steps.append(step)
        read = {v for step in steps for v in step.reads} | {v.id for v in self.targets}
        for step in steps:
            step.dying = tuple(v for v in step.dying if v not in self._constant)
        self._steps = steps
        kept = {v: a for v, a in values.items() if v in read}
        for array in kept.values():
            if array.flags.owndata:
                array.flags.writeable = False
        return kept

    def run(self, feeds: Mapping[str, Array], observe: Observer | None = None) -> list[Array]:
        """Execute once.

        Args:
            feeds: arrays by input name, in the inputs' storage dtype; shapes may differ from the file's.
            observe: called after every operator with the operator and its output arrays.

        Returns:
            the values of the targets, in order.

        Raises:
            InputError: an input is missing or has another dtype.
            EngineError: an operator failed.
        """
        values = self._feed(feeds)
        with np.errstate(all="ignore"):
            if self._values is None:
                self._values = self._fold()
            values.update(self._values)
            rng = np.random.default_rng(self.seed)
            # Live variables per piece of memory; fed and constant arrays are absent: never overwritten.
            owners: dict[int, int] = {}
            for step in self._steps:
                step.call.rng = rng
                self._execute(step, values, owners)
                if observe is not None:
                    observe(step.call.opr, [values[v] for v in step.writes])
                for v in step.dying:
                    gone = values.pop(v, None)
                    if gone is not None:
                        key = id(_root(gone))
                        if key in owners:
                            owners[key] -= 1
                            if not owners[key]:
                                del owners[key]
        return [values[v.id] for v in self.targets]

    def _feed(self, feeds: Mapping[str, Array]) -> dict[int, Array]:
        values: dict[int, Array] = {}
        for name, var in self._inputs.items():
            tensor = var.owner.tensors[0]
            if name in feeds:
                array = feeds[name]
                want = _typed(var).np
                if array.dtype != want:
                    raise InputError(
                        f"input {name!r} takes {var.dtype} ({want}), got an array of {array.dtype}"
                    )
                if array.ndim == 0:
                    array = array.reshape(1)
                values[var.id] = array
            elif tensor.data is not None:
                values[var.id] = tensor.value()
            else:
                raise InputError(
                    f"input {name!r} ({var.dtype} {_shape_text(tensor.shape)}) was not given; "
                    f"given: {', '.join(feeds) or 'none'}"
                )
        self._check_memory({n: values[v.id].shape for n, v in self._inputs.items()})
        return values

    def _check_memory(self, shapes: dict[str, Shape]) -> None:
        """Refuse shapes whose values cannot fit in memory, once for each set of input shapes."""
        key = tuple(shapes.items())
        if key in self._checked:
            return
        limit = memory_limit()
        known = infer_shapes(self.graph, self._oprs, shapes)
        for opr in self._oprs:
            for var in opr.outputs:
                shape = known.shapes.get(var.id)
                if shape is not None and nbytes(shape, _typed(var)) > limit:
                    size = nbytes(shape, _typed(var)) / 2**30
                    raise EngineError(
                        f"{describe(opr)} gives {var.dtype} {list(shape)}, {size:.1f} GiB, "
                        f"more than the {limit / 2**30:.1f} GiB of memory"
                    )
        self._checked.add(key)

    def _execute(self, step: _Step, values: dict[int, Array], owners: dict[int, int]) -> None:
        call = step.call
        args = [values[v] for v in step.reads]
        call.spare = [
            values[v]
            for v in step.dying
            if v in values and v in step.reads and owners.get(id(_root(values[v]))) == 1 and _whole(values[v])
        ]
        try:
            result = step.kernel(call, *args)
        except LoadRunError as e:
            raise type(e)(f"{describe(call.opr)}: {e}") from e
        except MemoryError as e:
            raise EngineError(
                f"{describe(call.opr)} ran out of memory; inputs: {_inputs_text(call, args)}"
            ) from e
        except Exception as e:
            raise EngineError(f"{describe(call.opr)} failed: {e}; inputs: {_inputs_text(call, args)}") from e
        finally:
            call.spare = []
        outs = result if isinstance(result, tuple) else (result,)
        for v, out, dtype in zip(step.writes, outs, call.outputs, strict=True):
            if out.dtype != dtype.np:
                raise EngineError(f"{describe(call.opr)} gave {out.dtype}, its dtype rule says {dtype}")
            if step.round_bf16 and dtype.name == "BFloat16":
                out = round_bfloat16(out)
            values[v] = out
            self._own(out, args, owners)

    @staticmethod
    def _own(out: Array, args: list[Array], owners: dict[int, int]) -> None:
        root = _root(out)
        key = id(root)
        if key in owners:
            owners[key] += 1
        elif isinstance(root, np.ndarray) and not any(_root(a) is root for a in args):
            owners[key] = 1


def _root(array: Array) -> object:
    """The object that owns an array's memory."""
    base: object = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return base


def _whole(array: Array) -> bool:
    return bool(array.flags.writeable and array.flags.c_contiguous)


def _typed(var: Var) -> DType:
    if var.dtype is None:
        raise EngineError(f"the dtype of {var.label!r} is unknown")
    return var.dtype


def _shape_text(shape: Shape | None) -> str:
    return "of any shape" if shape is None else str(list(shape))


def _inputs_text(call: Call, args: Sequence[Array]) -> str:
    return ", ".join(f"{d} {list(a.shape)}" for d, a in zip(call.inputs, args, strict=True)) or "none"
