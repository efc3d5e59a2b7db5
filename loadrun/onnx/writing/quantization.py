"""FakeQuant, TQT and LSQ: composed, since they round halves away from zero and keep float values."""

from ...graph import Opr
from ...graph.params import LSQ, TQT, FakeQuant
from .writer import OnnxWriter, translation


@translation("FakeQuant")
def fake_quant(w: OnnxWriter, opr: Opr) -> str:
    """Compute ``(clamp(round(x / scale) + zero_point) - zero_point) * scale``."""
    p = opr.get(FakeQuant)
    x, scale, zero = (w.name(v) for v in opr.inputs)
    q = w.op("Add", w.round_away(w.op("Div", x, scale)), zero)
    q = w.clip(q, float(p.qmin), float(p.qmax))
    return w.op("Mul", w.op("Sub", q, zero), scale)


@translation("TQT")
def tqt(w: OnnxWriter, opr: Opr) -> str:
    """Fake-quantize with step ``2 ** scale``."""
    p = opr.get(TQT)
    x, scale = (w.name(v) for v in opr.inputs)
    step = w.op("Pow", w.f32(2), scale)
    q = w.clip(w.round_away(w.op("Div", x, step)), float(p.qmin), float(p.qmax))
    return w.op("Mul", q, step)


@translation("LSQ")
def lsq(w: OnnxWriter, opr: Opr) -> str:
    """Compute ``(round(clamp(x / scale + zero_point)) - zero_point) * scale``."""
    p = opr.get(LSQ)
    x, scale, zero = (w.name(v) for v in opr.inputs[:3])
    q = w.clip(w.op("Add", w.op("Div", x, scale), zero), float(p.qmin), float(p.qmax))
    return w.op("Mul", w.op("Sub", w.round_away(q), zero), scale)
