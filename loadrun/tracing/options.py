"""The options of a trace as one record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ..engines.recompute_config import DTRConfig, SublinearMemoryConfig
    from .config import GraphOptimizationConfig

__all__ = ["Mode", "TraceOptions"]

Mode = Literal["eager", "lazy", "never"]
"""When a recording computes: every operator at once, what is asked for, nothing."""


@dataclass(frozen=True)
class TraceOptions:
    """What `trace` was told; its docstring says what each option means.

    Attributes:
        exact: operators are computed as their definitions say, see `loadrun.graph.Graph`.
        live: tensors from outside are asked for their value in every call without Python code, and by every dump.

    Raises:
        ValueError: there is no such `opt_level`.

    >>> TraceOptions(symbolic=True).mode, TraceOptions(record_only=True).fixed
    ('lazy', True)
    """

    symbolic: bool = False
    capture_as_const: bool = False
    record_only: bool = False
    sublinear_memory_config: SublinearMemoryConfig | None = None
    dtr_config: DTRConfig | None = None
    profiling: bool = False
    opt_level: int = 2
    graph_opt_config: GraphOptimizationConfig | None = None
    symbolic_shape: bool = True
    without_host: bool = False
    imperative: bool = False
    live: bool = False
    exact: bool = False

    def __post_init__(self) -> None:
        if self.opt_level not in (0, 1, 2, 3):
            raise ValueError(f"opt_level must be 0, 1, 2 or 3, found {self.opt_level!r}")

    @property
    def fixed(self) -> bool:
        """Whether tensors from outside are constants of the graph."""
        return self.capture_as_const or self.record_only

    @property
    def mode(self) -> Mode:
        """When the first call computes."""
        return "never" if self.record_only else "lazy" if self.symbolic else "eager"
