"""What makes a model's results differ without any fault: random operators, and an export in training mode."""

from collections.abc import Iterable

from ..base.errors import clean
from ..graph import Opr
from ..graph.composite import Composite
from ..ops.catalog import draws


def cautions(oprs: Iterable[Opr]) -> list[str]:
    """Name the operators that draw random numbers, and those that are in training mode.

    Args:
        oprs: the operators that outputs depend on.
    """
    training, drawing = [], []
    for opr in oprs:
        if _trains(opr):
            training.append(opr)
        elif draws(opr) and (opr.called != "Dropout" or opr.type == "Dropout"):
            # ONNX's own Dropout draws only in training mode.
            drawing.append(opr)
    said = []
    if training:
        said.append(
            f"the model was exported in training mode ({_named(training)}): its results change from run to run or with "
            "the batch; export it after model.eval()"
        )
    if drawing:
        said.append(
            f"the model draws random numbers ({_named(drawing)}): other runtimes and other seeds give other results"
        )
    return said


def _trains(opr: Opr) -> bool:
    """Return whether an operator of ONNX is asked for what it does while a net is trained."""
    params = opr.params[0] if opr.params else None
    if not isinstance(params, Composite):
        return False
    if opr.called == "BatchNormalization":
        return bool(params.attributes.get("training_mode"))
    if opr.called != "Dropout" or len(opr.inputs) < len(("x", "ratio", "training")):
        return False
    stored = opr.inputs[-1].owner.tensors
    return bool(stored and stored[0].data is not None and stored[0].value().any())


def _named(oprs: list[Opr]) -> str:
    first = f"{clean(oprs[0].title, 60)} {clean(oprs[0].name or '', 60)}".strip()
    return f"{first} and {len(oprs) - 1} more" if len(oprs) > 1 else first
