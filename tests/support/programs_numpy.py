"""Random programs of plain numpy: functions, methods, views, and writing through them."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from tests.support.programs import LIMIT, Program, Writer
from tests.support.programs_megengine import SHAPES

DTYPES = ("float32", "float64", "float32", "float16", "int32", "int64", "uint8", "int8", "bool")
UNARY = (
    "np.sqrt(np.abs({a}))",
    "np.exp(np.minimum({a}, 3))",
    "np.tanh({a})",
    "np.log1p(np.abs({a}))",
    "-{a}",
    "+{a}",
    "np.abs({a})",
    "np.floor({a})",
    "np.rint({a})",
    "np.sign({a})",
    "np.square({a})",
    "{a} ** 2",
    "np.logical_not({a})",
    "~({a} > 0)",
    "np.isnan({a})",
    "np.clip({a}, -1, 2)",
    "{a}.clip(0, None)",
    "np.where({a} > 0, {a}, 0)",
    "{a}.astype({t!r})",
    "{a}.copy()",
    "np.zeros_like({a})",
    "np.ones_like({a})",
    "np.full_like({a}, 3)",
    "np.zeros({a}.shape, like={a})",
    "np.arange({a}.shape[0], like={a}) * {a}.shape[-1]",
    "np.array([{a}, {a} + 1], like={a})",
    "{a} / {a}.size",
    "{a} * {a}.shape[0]",
    "{a} - {a}",
    "{a} + {a}.ndim",
    "np.sin({a})",
    "np.reciprocal(np.abs({a}) + 1.5)",
    "np.float32(1.5) * {a}",
    "{a} + np.float64(0.5)",
    "{a} + np.int8(2)",
    "np.nan_to_num({a})",
    "np.round({a} * 1.0, 1)",
    "np.maximum({a}, 0)",
    "np.hypot({a}, 1)",
    "np.outer({a}.ravel()[:3], [1, 2])",
    "np.positive({a}).real",
)
BINARY = (
    "{a} + {b}",
    "{a} - {b}",
    "{a} * {b}",
    "{a} / (np.abs({b}) + 1)",
    "{a} // (np.abs({b}) + 1)",
    "{a} % (np.abs({b}) + 1)",
    "np.maximum({a}, {b})",
    "np.fmin({a}, {b})",
    "{a} < {b}",
    "{a} >= {b}",
    "{a} == {b}",
    "({a} > 0) & ({b} > 0)",
    "({a} > 0) ^ ({b} > 0)",
    "np.logical_or({a}, {b})",
    "np.where({a} > {b}, {a}, {b})",
    "np.where({a} > 0, {b}, {n})",
    "np.concatenate([{a}, {b}], axis={k})",
    "np.stack([{a}, {b}], axis={k})",
    "np.vstack([{a}, {b}])",
    "np.hstack([{a}, {b}])",
    "{a} @ {b}.T",
    "np.matmul({a}, np.swapaxes({b}, -1, -2))",
    "np.dot({a}, {b}.T)",
    "np.einsum('ij,kj->ik', {a}, {b})",
    "np.einsum('i...,i...->...', {a}, {b})",
    "np.tensordot({a}, {b}, axes=([0], [0]))",
    "np.arctan2({a}, {b})",
    "np.logaddexp({a}, {b})",
    "np.divmod({a}, np.abs({b}) + 1)[{j}]",
    "np.add({a}, {b}, where=({b} > 0), out=np.zeros({b}.shape, like={b}))",
    "np.subtract.outer({a}.ravel()[:2], {b}.ravel()[:2])",
    "np.searchsorted(np.sort({a}.ravel()), {b})",
    "np.array([{a}.sum(), {b}.sum()], like={a})",
)
WITH_NUMBER = (
    "{a} + {n}",
    "{n} - {a}",
    "{a} * {n}",
    "{n} / (np.abs({a}) + 1)",
    "{a} > {n}",
    "np.maximum({a}, {n})",
    "np.power(np.abs({a}), 0.5)",
    "np.add({a}, {n}, dtype='float32')",
    "{a} << 1",
    "{a} & 3",
)
AXES = (
    "{a}.sum(axis={k}, keepdims={h})",
    "np.mean({a}, {k}, keepdims={h})",
    "{a}.max({k})",
    "np.min({a}, axis={k}, keepdims={h})",
    "{a}.std(axis={k})",
    "np.var({a}, axis={k}, ddof=0)",
    "np.prod(np.clip({a}, -1, 1), axis={k})",
    "np.any({a} > 0, axis={k})",
    "({a} > 0).all()",
    "np.argmax({a}, axis={k})",
    "np.cumsum({a}, axis={k})",
    "np.sort({a}, axis={k})",
    "np.argsort({a}, axis={k}, kind='stable')",
    "np.median({a}, axis={k})",
    "np.percentile({a}, 30, axis={k})",
    "np.diff({a}, axis={k})",
    "np.flip({a}, {k})",
    "np.roll({a}, 1, axis={k})",
    "np.roll({a}, 2)",
    "np.repeat({a}, 2, axis={k})",
    "np.tile({a}, {s})",
    "np.take({a}, [0, -1], axis={k})",
    "np.take_along_axis({a}, np.argsort({a}, axis={k}), axis={k})",
    "np.pad({a}, 1)",
    "np.pad({a}, ((1, 0),) + ((0, 0),) * ({a}.ndim - 1), mode='edge')",
    "np.expand_dims({a}, {k})",
    "np.split({a}, [1], axis={k})[{j}]",
    "np.array_split({a}, 2)[{j}]",
    "np.linalg.norm({a}, axis={k})",
    "np.count_nonzero({a} > 0, axis={k})",
    "np.ptp({a}, axis={k})",
    "np.average({a}, axis={k})",
    "np.triu({a})",
    "np.trace({a})",
    "np.meshgrid({a}.ravel()[:3], {a}.ravel()[:2])[{j}]",
    "np.maximum.reduce({a}, axis={k})",
    "np.add.accumulate({a}, axis={k})",
    "np.stack([{a}[i] * i for i in range({a}.shape[0])])",
    "sum({a})",
    "np.nonzero({a} > 0)[0]",
    "{a}[{a} > 0]",
    "np.compress([True], {a}, axis={k})",
    "np.select([{a} > 1, {a} > 0], [{a}, 0 * {a}], 2)",
    "np.ndim({a}) + {a}",
)
VIEWS = (
    "{a}.T",
    "{a}.ravel()",
    "{a}.reshape(-1)",
    "{a}.reshape({a}.shape[0], -1)",
    "{a}.reshape(-1, {a}.shape[-1])",
    "{a}.reshape({a}.shape[::-1])",
    "np.transpose({a})",
    "np.swapaxes({a}, 0, {k})",
    "np.moveaxis({a}, 0, {k})",
    "{a}[None]",
    "{a}[..., None]",
    "{a}[...]",
    "{a}.view()",
    "np.atleast_2d({a})",
    "{a}.diagonal()",
    "np.broadcast_to({a}, (2,) + {a}.shape)",
    "{a}.flatten()",
)
INDEX = (
    "{i}",
    "{i}:",
    ":{i}",
    "{i}:{j}",
    "::2",
    "1::2",
    "::-1",
    "...",
    "None",
    "..., None",
    "..., 0",
    "..., ::-1",
    ":, {i}",
    ":, 1:",
    "0, ..., -1",
    "[0]",
    "[0, 0]",
    ":, [0, 1]",
    "{a} > 0",
    "{a}.shape[0] // 2",
    ":{a}.shape[0] - 1",
    "np.array([0, -1])",
    "0:0",
    "-100:2",
    "np.argmax({a}) % {a}.shape[0]",
    "..., [0], [0]",
    "[0], None",
    "-2::-1",
)


def sane(value: Any) -> bool:
    if not isinstance(value, (np.ndarray, np.generic)):
        return isinstance(value, (bool, int, float))
    data = np.asarray(value)
    if data.size > 2000 or data.ndim > 6 or data.dtype.kind not in "biuf":
        return False
    limit = 100 if data.dtype.itemsize == 1 else LIMIT
    return data.dtype.kind == "b" or not data.size or bool(np.abs(data.astype(np.float64)).max() < limit)


def is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic))


def _filled(w: Writer, text: str, *, new: str = "") -> str | None:
    a, b = w.one(is_array), w.one(is_array)
    if a is None or b is None:
        return None
    rank = max(1, w.values[a].ndim)
    return text.format(
        a=a,
        b=b,
        n=w.number(),
        i=w.size(-2, 2),
        j=w.size(0, 1),
        k=w.size(-rank, rank - 1),
        h=w.pick(True, False),
        s=w.size(1, 3),
        t=w.pick("float32", "float64", "int32", "uint8", "bool", "float16"),
        new=new,
    )


def statement(w: Writer) -> str | None:
    """One random statement."""
    kind = w.random.choices(
        ("new", "index", "view", "assign", "in place", "loop", "out"), (12, 4, 5, 5, 4, 1, 1)
    )[0]
    index = w.pick(*INDEX)
    if kind == "new":
        return _filled(
            w, "{new} = " + w.pick(*w.pick(UNARY, BINARY, BINARY, WITH_NUMBER, AXES, AXES)), new=w.fresh()
        )
    if kind == "index":
        return _filled(w, "{new} = {a}[" + index + "]", new=w.fresh())
    if kind == "view":
        return _filled(w, "{new} = " + w.pick(*VIEWS), new=w.fresh())
    if kind == "assign":
        value = w.pick(
            "{n}", "{b}", "{b}.mean()", "{a}[" + index + "] * 2", "0", "np.float32({n})", "-{a}[::-1]"
        )
        return _filled(w, "{a}[" + index + "] = " + value)
    if kind == "in place":
        target = w.pick("{a}", "{a}", "{a}[" + index + "]")
        return _filled(
            w, target + w.pick(" += ", " -= ", " *= ", " |= ") + w.pick("{b}", "{n}", "{a}", "{a}.shape[0]")
        )
    if kind == "out":
        return _filled(
            w, w.pick("np.add({a}, {b}, out={a})", "np.negative({a}, out={a})", "np.copyto({a}, {b})")
        )
    return _filled(w, w.pick("for i in range({a}.shape[0]): {a}[i] = {a}[i] + i", "for r in {a}: r += {n}"))


def draw(random: Random, *, steps: int | None = None) -> tuple[Program, list[Any]]:
    """A program and the shapes and dtypes of its arguments."""
    batch = random.choice((1, 2, 3))
    inputs = []
    for _ in range(random.randint(1, 3)):
        shape = random.choice(SHAPES)
        if random.random() < 0.7:
            shape = (batch, *shape[1:])
        inputs.append((shape, random.choice(DTYPES)))
    names = [f"x{i}" for i in range(len(inputs))]
    space = {"np": np}
    w = Writer(random, space, dict(zip(names, arrays(inputs, 0), strict=True)))
    wanted = steps or random.randint(2, 10)
    for _ in range(4 * wanted):
        line = statement(w)
        if line is not None:
            w.add(line, sane)
        if len(w.lines) >= wanted:
            break
    found = [w.one(is_array) for _ in range(w.size(1, 4))]
    last = [n for n in w.values if is_array(w.values[n])][-1]
    parts = [str(n) for n in found] + [last]
    form = w.pick("one", "tuple", "dict")
    if form == "one":
        returned = last
    elif form == "dict":
        returned = "{" + ", ".join(f"'o{i}': {n}" for i, n in enumerate(parts)) + "}"
    else:
        returned = "(" + ", ".join(parts) + ",)"
    return Program(w.lines, returned, names, space), inputs


def arrays(inputs: list[Any], seed: int, batch: int | None = None) -> list[np.ndarray]:
    """Values for the arguments; another size of the first axis where `batch` is given."""
    values = np.random.default_rng(seed)
    made = []
    first = inputs[0][0][0]
    for shape, kind in inputs:
        if batch is not None and shape[0] == first:
            shape = (batch, *shape[1:])
        data = values.uniform(-3, 3, shape)
        if kind in ("int32", "int64", "uint8", "int8"):
            data = np.round(np.abs(data) if kind == "uint8" else data)
        made.append(np.asarray(data > 0 if kind == "bool" else data, kind))
    return made
