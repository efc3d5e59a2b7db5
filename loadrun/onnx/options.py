"""The options of an export that say how: checked before anything is traced."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from ..base.errors import UsageError
from ..graph import Graph

E = TypeVar("E", bound=IntEnum)
Target = str | os.PathLike[str] | BinaryIO | None


class TrainingMode(IntEnum):
    """Values of `training`."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(IntEnum):
    """Values of `operator_export_type`."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def option(name: str, kind: type[E], choice: object) -> E:
    """Return a member of `kind` by what was given: one of torch's of the same number, or a number.

    Raises:
        UsageError: there is no such member.

    >>> option("training", TrainingMode, 2).name
    'TRAINING'
    """
    value = getattr(choice, "value", choice)
    if isinstance(value, bool) or not isinstance(value, int) or value not in {int(k) for k in kind}:
        names = ", ".join(k.name for k in kind)
        raise UsageError(f"{name} must be one of {kind.__name__}: {names}; found {choice!r}")
    return kind(value)


@dataclass(frozen=True)
class ExportOptions:
    """What decides how a model becomes a graph.

    Attributes:
        training: the mode in which a module is traced.
        kind: what happens to operators that ONNX does not have.
        folding: whether what follows from constants alone is computed.
        optimize: whether the graph is simplified.
        input_names: names for the inputs, which `axes` may use.
        axes, shapes: sizes that may differ, as `dynamic_axes` and `dynamic_shapes` say it.
        table: functions that write operators of torch, by operator.
        weights: whether a torch module's parameters stay as they are, under their names: nothing is computed from them
            in advance.
        own_nodes: whether nothing is asked for that would change the nodes of an ONNX file, but for another opset.
        opset: the version of ONNX's operators that is asked for.
    """

    training: TrainingMode = TrainingMode.EVAL
    kind: OperatorExportTypes = OperatorExportTypes.ONNX
    folding: bool = True
    optimize: bool = True
    input_names: tuple[str, ...] = ()
    axes: Any = None
    shapes: Any = None
    table: Mapping[Any, Any] = field(default_factory=dict)
    weights: bool = False
    own_nodes: bool = False
    opset: int | None = None

    def keeps_nodes(self, graph: Graph) -> bool:
        """Return whether the nodes of the file that a graph was made of are written as they are."""
        return self.own_nodes and (self.opset is None or graph.header.magic == f"ONNX opset {self.opset}")

    @property
    def fallback(self) -> bool:
        """Whether operators that ONNX does not have go out in another domain."""
        return self.kind is not OperatorExportTypes.ONNX


def check_names(kind: str, value: object) -> tuple[str, ...]:
    """Return the names of inputs or outputs.

    Raises:
        UsageError: they are no list of texts.
    """
    if value is None:
        return ()
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise UsageError(f"{kind}_names must be a list of names, found {type(value).__name__} {value!r:.60}")
    names = tuple(value)
    if odd := [n for n in names if n is not None and not isinstance(n, str)]:
        raise UsageError(f"{kind}_names must be a list of names, found {odd[0]!r:.60} in it")
    return tuple(n or "" for n in names)


def check_target(f: object, external: bool, report: bool) -> None:
    """Refuse a target that cannot be written.

    Raises:
        UsageError: it is neither a path nor a file, or no path where one is needed.
    """
    path = isinstance(f, (str, os.PathLike))
    if f is not None and not path and not hasattr(f, "write"):
        raise UsageError(f"f must be a path or an open binary file, found {type(f).__name__}")
    if external and not path:
        raise UsageError("external_data=True needs a path: the weights are written next to it")
    if report and not path:
        raise UsageError("report=True needs a path to write next to; Exported.report has the text")
    if isinstance(f, (str, os.PathLike)) and not Path(f).parent.is_dir():
        raise UsageError(f"the folder of {os.fspath(f)} does not exist")


def check_opsets(opsets: object) -> dict[str, int]:
    """Return the versions of other domains.

    Raises:
        UsageError: they are no versions.
    """
    if opsets is not None and not isinstance(opsets, Mapping):
        raise UsageError(
            f"custom_opsets must be a dict from domains to versions, found {type(opsets).__name__}"
        )
    for domain, version in (opsets or {}).items():
        if domain in ("", "ai.onnx"):
            raise UsageError(
                "custom_opsets applies to other domains; pass ONNX's own version as opset_version"
            )
        if not isinstance(version, int) or version < 1:
            raise UsageError(f"the version of domain {domain!r} must be a positive number, found {version!r}")
    return dict(opsets or {})
