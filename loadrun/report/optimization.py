"""What `loadrun diff` and `--explain` say of an optimization."""

from collections.abc import Iterator, Mapping

from ..base.errors import LoadRunError, clean
from ..graph.dtypes import Array
from ..verify.blame_pass import BlamedPass, runtime_blame
from ..verify.diff import TOLERANCE, FileSide


def optimized(side: FileSide, feeds: Mapping[str, Array], tolerance: float | None) -> Iterator[str]:
    """Say which optimization of ONNX Runtime changes a file's outputs; nothing of other runtimes.

    Args:
        side: the file on the runtime.
        feeds: arrays by input name.
        tolerance: how far an output may be off, relative to its largest value; None for `TOLERANCE`.
    """
    if str(side).partition(":")[0] != "onnxruntime":
        return
    try:
        blamed = runtime_blame(side.source, feeds, TOLERANCE if tolerance is None else tolerance)
    except LoadRunError as e:
        yield f"which optimization it is cannot be told: {clean(str(e), 500)}"
        return
    if blamed is not None:
        yield from optimization(blamed)


def optimization(blame: BlamedPass) -> list[str]:
    """Describe an optimization that makes outputs diverge, with the commands that show and avoid it."""
    names = " and ".join(blame.names) or "its parts cannot be separated"
    level = f" at {blame.level}" if blame.level else ""
    d = blame.distance
    worst = "another number of elements, or the optimized model cannot run"
    if d is not None:
        off = f"{d.count} of {d.size} values exceed the tolerance"
        worst = f"{d.found:.9g} against {d.expected:.9g} at {list(d.index)}, {off}"
    lines = [f"to blame: {blame.of}{level}: {names} ({blame.runs} runs)"]
    lines.append(f"  output {clean(blame.output, 100)!r}: {worst}")
    commands = (("reproduce with", blame.command), ("avoid with", blame.without))
    return [*lines, *(f"  {what}: {clean(text, 500)}" for what, text in commands if text)]
