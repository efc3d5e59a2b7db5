"""Shared by the readers of both format versions: number variables, link operators, set output names."""

from collections.abc import Sequence
from functools import cache
from math import prod

import numpy as np

from ..graph import Graph, Metadata, Opr, StoredTensor, Var
from ..graph.dtypes import DType
from ..graph.params import Host2DeviceCopy
from ..ops.op import Op
from .flat import Table

MAX_NDIM = 7
_MAX_ELEMENTS = 2**56
"""No machine holds more; below it numpy's sizes in bytes cannot wrap."""


class GraphAssembler:
    """Collects operators in file order and gives their outputs running numbers."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.vars: list[Var] = []

    def link(self, t: Table, op: Op, inputs: Sequence[int]) -> list[Var]:
        """Return the operator's inputs by their numbers; each must belong to an earlier operator."""
        for number in inputs:
            if number >= len(self.vars):
                raise t.buf.error(
                    f"operator {op.name} reads variable {number}, but only {len(self.vars)} exist before it",
                    t.pos,
                )
        _check_arity(t, op, len(inputs))
        return [self.vars[i] for i in inputs]

    def append(self, t: Table, opr: Opr, n_outputs: int) -> None:
        """Add the operator with that many output variables."""
        # A parameter may give the number, so it is paid for like anything that is read.
        if 8 * n_outputs > t.buf.budget:
            raise t.buf.error(
                f"operator {opr.type} claims {n_outputs} outputs, more than the file can name", t.pos
            )
        t.buf.spend(8 * n_outputs, t.pos)
        opr.id = len(self.graph.oprs)
        for i in range(n_outputs):
            var = Var(len(self.vars), opr, i)
            opr.outputs.append(var)
            self.vars.append(var)
        self.graph.oprs.append(opr)

    def set_metadata(self, t: Table | None, *, options: int, user_info: int) -> None:
        """Read the metadata table, if there is one; the versions number two of its fields differently."""
        if t is not None:
            valid, modified = bool(t.scalar(0, "bool")), bool(t.scalar(1, "bool"))
            self.graph.metadata = Metadata(
                valid, modified, t.integer(options, "ulong"), t.raw_string(user_info)
            )

    def set_outputs(self, t: Table, pairs: Sequence[tuple[int, ...]]) -> None:
        """Resolve the output list: pairs of variable number and number in the dumping graph."""
        if not pairs:
            raise t.buf.error("the dump lists no outputs: it is damaged or was not finished", t.pos)
        for number, _ in pairs:
            if number >= len(self.vars):
                raise t.buf.error(
                    f"output variable {number} does not exist, there are {len(self.vars)}", t.pos
                )
        self.graph.outputs = [self.vars[n] for n, _ in pairs]
        self.graph.original_ids = [o for _, o in pairs]


def _check_arity(t: Table, op: Op, count: int) -> None:
    least, most = _arity(op.inputs)
    if count < least or (most is not None and count > most):
        want = f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
        noun = "input" if want == "1" else "inputs"
        raise t.buf.error(
            f"operator {op.name} takes {want} {noun} ({op.inputs or 'none'}), found {count}", t.pos
        )


@cache
def _arity(inputs: str) -> tuple[int, int | None]:
    """Return the smallest and the greatest number of inputs by their roles, None if any number goes."""
    roles = inputs.split()
    least = sum(not r.endswith(("?", "...")) for r in roles)
    return least, None if any(r.endswith("...") for r in roles) else len(roles)


def check_shape(t: Table, shape: tuple[int, ...] | None, what: str) -> tuple[int, ...] | None:
    """Refuse shapes with more axes or elements than there can be; no axes mean that the shape is open."""
    if not shape:
        return None
    if len(shape) > MAX_NDIM:
        raise t.buf.error(f"{what} has {len(shape)} axes, at most {MAX_NDIM} are possible", t.pos)
    if prod(shape if 0 not in shape else [n or 1 for n in shape]) > _MAX_ELEMENTS:
        raise t.buf.error(f"{what} has the shape {list(shape)}, which is too large for memory", t.pos)
    return shape


def comp_node(t: Table) -> str:
    """Return the text of a computing node table."""
    text = t.text(0)
    if text is None:
        raise t.buf.error("a computing node has no name", t.pos)
    return text


def take_blobs(t: Table, blobs: list[Table], *, required: bool) -> list[bytes]:
    """Read the blobs of an operator; FBS v1 requires their data."""
    contents = []
    for blob in blobs:
        view = blob.bytes_view(0)
        if view is None and required:
            raise t.buf.error("a blob has no data", blob.pos)
        contents.append(b"" if view is None else view.tobytes())
    return contents


def constant_or_input(t: Table, opr: Opr, op: Op) -> None:
    """Check the tensors of an operator and let its outputs take their names, shapes and dtypes."""
    if op.category == "io":
        if not opr.tensors or (not op.name.startswith("Multiple") and len(opr.tensors) != 1):
            want = "at least one tensor" if op.name.startswith("Multiple") else "one tensor"
            raise t.buf.error(f"operator {op.name} holds {want}, found {len(opr.tensors)}", t.pos)
        default = op.name != "Host2DeviceCopy" or opr.get(Host2DeviceCopy).dump_default_value
        for tensor in opr.tensors:
            if default and tensor.shape is not None and 0 in tensor.shape:
                # A value without elements is not told from none by its bytes.
                tensor.data = np.zeros(0, np.uint8)
            if op.name != "Host2DeviceCopy" and tensor.data is None:
                raise t.buf.error(f"operator {op.name} has a tensor without a value", t.pos)
    elif opr.tensors:
        raise t.buf.error(f"operator {op.name} holds no tensors, found {len(opr.tensors)}", t.pos)


def describe(var: Var, tensor: StoredTensor) -> None:
    """Let the output of a tensor-carrying operator know what the tensor says."""
    dtype: DType = tensor.dtype
    var.dtype, var.shape = dtype, tensor.shape
    var.name = tensor.name or var.name
