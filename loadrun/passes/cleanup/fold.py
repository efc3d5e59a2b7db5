"""Constant folding: what follows from constants alone is computed once and stored.

MegEngine's ParamFuse pass. What follows from weights that a program may exchange (SharedDeviceTensor) is stored as
such a weight, the rest as an ImmutableTensor.
"""

from __future__ import annotations

from ...graph import Graph, Opr, StoredTensor, TensorFormat, Var
from ...graph.dtypes import encode
from ...graph.params import RelayoutFormat, RelayoutMode
from ..constants import is_pure
from ..rewriter import Rewriter

_IMAGES = {
    RelayoutMode.NCHW_NHWCD4I: 2,
    RelayoutMode.INTER_WEIGHT_DENSEI: 3,
    RelayoutMode.INTER_WEIGHT_DENSEI_DOT: 3,
    RelayoutMode.INTER_WEIGHT_GROUPI: 4,
    RelayoutMode.INTER_WEIGHT_GROUPI_DOT: 4,
    RelayoutMode.INTER_WEIGHT_CHANI: 1,
}
"""The axis at which a row of an image begins, by the mode that makes the image."""
_GROWTH = 1 << 20
"""How many bytes a folded value may be larger than all constants that it comes from."""


def fold_constants(graph: Graph) -> Graph:
    """Replace operators on constants by their values, where that is not much larger than the constants.

    Random operators and operators with effects are never computed in advance. Results are the same bits: the kernels
    that fold are those that would run.

    >>> import loadrun
    >>> graph = loadrun.load("fixtures/nets/layout_float_unoptimized.mge").graph
    >>> len(fold_constants(graph).oprs) <= len(graph.oprs)
    True
    """
    r = Rewriter(graph)
    folder = _Folder(r)
    for opr in r.oprs:
        operands = [r.var(v) for v in opr.inputs]
        if is_pure(opr) and all(map(r.constant, operands)) and not r.checking(opr):
            r.copy(opr)
        else:
            r.copy(opr, [folder.input(v) for v in opr.inputs])
    for old in graph.outputs:
        new = folder.input(old)
        if new is not r.var(old):
            r.replace(old, new)
    return r.finish()


class _Folder:
    def __init__(self, rewriter: Rewriter) -> None:
        self.r = rewriter
        self.folded: dict[int, Var] = {}

    def input(self, old: Var) -> Var:
        """Return what stands for a variable of the old graph: a stored value, unless it is part of a check."""
        new = self.r.var(old)
        return new if self.r.checking(old.owner) else self(new)

    def __call__(self, var: Var) -> Var:
        """Return the stored value of a computed constant, any other variable itself."""
        if self.r.stored(var) or not self.r.constant(var):
            return var
        if var.id not in self.folded:
            self.folded[var.id] = self._fold(var)
        return self.folded[var.id]

    def _fold(self, var: Var) -> Var:
        value = self.r.value(var)
        if value is None or not value.size or not value.ndim:
            return var
        size, param = self._sources(var.owner)
        if value.nbytes > size + _GROWTH:
            return var
        image = (
            _IMAGES.get(var.owner.get(RelayoutFormat).mode) if var.owner.type == "RelayoutFormatV1" else None
        )
        if image is not None:
            dtype = self.r.dtype(var)
            form = TensorFormat(kind=2, align_axis=image)
            tensor = StoredTensor(dtype, value.shape, None, encode(value, dtype), format=form)
            return self.r.add("SharedDeviceTensorWithFormat", tensors=[tensor])[0]
        return self.r.put(value, self.r.dtype(var), param=param)

    def _sources(self, opr: Opr) -> tuple[int, bool]:
        """Return the bytes of the constants behind an operator's value, and whether any is an exchangeable weight."""
        size, param = 0, False
        seen: set[int] = set()
        stack = [opr]
        while stack:
            at = stack.pop()
            if id(at) in seen:
                continue
            seen.add(id(at))
            if at.tensors:
                size += sum(t.data.nbytes for t in at.tensors if t.data is not None)
                param |= at.type != "ImmutableTensor"
            # MegEngine does not infer such values statically and stores them as weights.
            param |= at.type == "RelayoutFormatV1"
            stack.extend(v.owner for v in at.inputs)
        return size, param
