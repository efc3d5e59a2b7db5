"""What a graph holds for: values that follow from sizes, and that something was decided by while it was made."""

from __future__ import annotations

from ..build import emit as e
from ..build.layers.sizes import refused_where
from ..graph import params as P
from ..graph.dtypes import Array
from ..tensors import Tensor
from ..tensors.access import session_of
from ..tensors.convert import TracedInt
from .values import Value

__all__ = ["Required"]

_NEQ = P.ElemwiseMultiTypeMode.NEQ


class Required:
    """The values that a graph was made with, where sizes decide them."""

    def __init__(self) -> None:
        self._values: dict[tuple[int, bytes], tuple[Value, Array]] = {}
        self._broken: list[int] = []

    def decide(self, condition: bool) -> None:
        """Remember which way a comparison of symbolic sizes goes."""
        self._broken.append(1 - condition if condition else condition + 0)

    def add(self, value: Value, taken: Array) -> None:
        """Remember what a value was taken for."""
        self._values[id(value), taken.tobytes()] = value, taken

    def held(self, results: list[tuple[str, Value]]) -> list[tuple[str, Value]]:
        """Let outputs, by name, refuse sizes at which a value is another one."""
        values = (_differs(value.stored, taken) for value, taken in self._values.values())
        broken = sum([*self._broken, *(v for v in values if v is not None)])
        if not isinstance(broken, TracedInt):
            return results
        what = "requires sizes at which the same branches are taken"
        return [(name, Value(v.kind, refused_where(v.stored, broken, what))) for name, v in results]


def _differs(x: Tensor, taken: Array) -> TracedInt | None:
    """Return the number of entries that are others, None where it is known."""
    session = session_of(x)
    if session is None or not x.size:
        return None
    x = e.cast(x, "int32") if e.is_bool(x) else x
    count = e.summed(e.cast(e.compare(_NEQ, e.flat(x), e.like(taken.reshape(-1), x)), "int32"), [0], True)
    return TracedInt(0, (lambda t, _: t, count, 0), session)
