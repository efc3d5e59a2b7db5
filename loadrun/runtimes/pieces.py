"""One way through a graph for a runtime that does not know all operators, and the interface of runtimes to it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..base.errors import UsageError
from ..base.extras import install
from ..graph import Opr, Var
from ..graph.dtypes import Array

# One way through a graph for a runtime that does not know all operators: pieces for it, islands between them.
#
# Operators get levels: those of the runtime even ones, the others odd ones, each the lowest that its inputs
# allow. All operators of a level are one piece; there are as few of them as the graph allows.


@dataclass(eq=False)
class Piece:
    """Operators that are executed together.

    Attributes:
        native: whether the runtime executes them, not the reference engine.
        oprs: the operators, in execution order.
        inputs: what they read of other pieces and of the graph's inputs.
        outputs: what others need of them.
    """

    native: bool
    oprs: list[Opr] = field(default_factory=list)
    inputs: list[Var] = field(default_factory=list)
    outputs: list[Var] = field(default_factory=list)


def divide(
    oprs: Sequence[Opr], targets: Sequence[Var], foreign: Collection[int], constants: Collection[int]
) -> list[Piece]:
    """Divide a graph.

    Args:
        oprs: the operators that are executed, in execution order: neither inputs nor constants.
        targets: the variables that are wanted.
        foreign: ids of the operators that the runtime cannot run.
        constants: ids of variables that are constants.

    Returns:
        the pieces in execution order.

    >>> import loadrun
    >>> graph = loadrun.load("fixtures/nets/mlp.mge").graph
    >>> oprs = [o for o in graph.oprs if o.inputs]
    >>> [p.native for p in divide(oprs, graph.outputs, (), ())]
    [True]
    """
    level: dict[int, int] = {}
    maker: dict[int, Opr] = {}
    pieces: dict[int, Piece] = {}
    for opr in oprs:
        native = opr.id not in foreign
        depth = 0 if native else -1
        for var in opr.inputs:
            producer = maker.get(var.id)
            if producer is not None and var.id not in constants:
                same = (producer.id not in foreign) == native
                depth = max(depth, level[producer.id] + (not same))
        level[opr.id] = depth
        maker.update((v.id, opr) for v in opr.outputs)
        pieces.setdefault(depth, Piece(native)).oprs.append(opr)
    _connect(pieces, level, maker, targets, constants)
    return [pieces[n] for n in sorted(pieces) if pieces[n].outputs]


def _connect(
    pieces: Mapping[int, Piece],
    level: Mapping[int, int],
    maker: Mapping[int, Opr],
    targets: Sequence[Var],
    constants: Collection[int],
) -> None:
    """Find what goes from piece to piece."""
    wanted = {v.id: v for v in targets}
    for number, piece in pieces.items():
        read = {v.id: v for o in piece.oprs for v in o.inputs if v.id not in constants}
        piece.inputs = [v for i, v in read.items() if i not in maker or level[maker[i].id] != number]
        wanted.update((v.id, v) for v in piece.inputs)
    for number, piece in pieces.items():
        outputs = [v for o in piece.oprs for v in o.outputs]
        piece.outputs = [v for v in outputs if v.id in wanted and v.id not in constants]
        assert all(level[v.owner.id] == number for v in outputs)


class NotTaken(Exception):
    """A runtime does not take a model; the message is its own."""


class RuntimeSession(Protocol):
    """A model that was loaded."""

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """Execute: arrays in the order of the model's inputs, results in the order of its outputs.

        Raises:
            EngineError: the runtime failed.
            NotTaken: it finds only now that it has no kernel.
        """
        ...


class Runtime(Protocol):
    """Loads ONNX models.

    Attributes:
        name: the engine's name.
        version: the runtime's version.
        provider: what of it executes.
        arithmetic: in what float32 operators are computed.
        opset: version of ONNX's operators that models are written in.
    """

    name: str
    version: str
    provider: str
    arithmetic: str
    opset: int

    def load(self, model: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> RuntimeSession:
        """Load a model.

        Args:
            model: a serialized ModelProto.
            inputs, outputs: the names of its inputs and outputs.

        Raises:
            NotTaken: the runtime cannot run it.
        """
        ...


def missing(package: str, extra: str, why: Exception | None = None) -> UsageError:
    """Make the error for a runtime that is not installed."""
    said = f" ({why})" if why is not None and not isinstance(why, ModuleNotFoundError) else ""
    return UsageError(f"the engine {extra} needs the package {package}: {install(extra)}{said}")
