"""PyTorch as an engine: it runs programs that `torch.export` wrote, and nothing else."""

from collections.abc import Sequence

from ..base.errors import UsageError
from ..engines import Engine, FileEngine, Setup
from ..graph import Graph, Var
from ..testcase import SourceFile


def make_engine(graph: Graph, targets: Sequence[Var], setup: Setup) -> Engine:
    """Refuse a graph.

    Raises:
        UsageError: always.
    """
    check_argument(setup.argument)
    raise UsageError(
        "the engine torch runs .pt2 files of torch.export and no other models; use reference, onnxruntime or openvino"
    )


def open_file(source: SourceFile, setup: Setup) -> FileEngine:
    """PyTorch for an exported program as it is."""
    check_argument(setup.argument)
    from .torch_program import TorchProgram  # optional

    return TorchProgram(source, profile=setup.profile)


def check_argument(argument: str) -> None:
    """Check that the engine gets no argument.

    Raises:
        UsageError: it does.
    """
    if argument:
        raise UsageError(
            f"the engine torch takes nothing after a colon, found {argument!r}; it computes on the CPU. "
            "onnxruntime:CUDA and other execution providers compute on a GPU"
        )
