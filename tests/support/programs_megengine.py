"""Random programs of `loadrun.megengine.functional` and Tensor methods."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

import loadrun.megengine.functional as F
import loadrun.megengine.module as M
from loadrun.tensors import Tensor, tensor
from tests.support.programs import LIMIT, Program, Writer

FLOATS = ("float32", "float16")
UNARY = (
    "F.relu({a})",
    "F.sigmoid({a})",
    "F.tanh({a})",
    "F.exp(F.minimum({a}, 3))",
    "F.abs({a})",
    "-{a}",
    "+{a}",
    "abs({a})",
    "F.floor({a})",
    "F.round({a})",
    "F.ceil({a})",
    "F.sqrt(F.abs({a}))",
    "{a} ** 2",
    "F.square({a})",
    "F.hswish({a})",
    "F.silu({a})",
    "F.gelu({a})",
    "F.log1p(F.abs({a}))",
    "F.sign({a})",
    "F.clip({a}, 0, 2)",
    "F.leaky_relu({a}, 0.1)",
    "F.softplus({a})",
    "F.hsigmoid({a})",
    "F.logsigmoid({a})",
    "F.cos({a})",
    "F.isnan({a})",
    "F.logical_not({a} > 0)",
    "1 / (F.abs({a}) + 1)",
    "{a}.astype({t!r})",
    "F.copy({a})",
    "{a}.detach()",
    "({a} * 0 + 1)",
    "({a} - {a})",
    "{a} + 0",
    "{a} * 1",
    "{a}.to('cpu0')",
    "F.expand_dims({a}, 0)",
    "F.full_like({a}, 2)",
    "F.zeros_like({a})",
    "F.ones({a}.shape)",
    "F.zeros({a}.shape[-1:], dtype={t!r})",
    "F.arange({a}.shape[0]) + {a}.shape[-1]",
    "F.linspace(0, 1, {a}.shape[0])",
    "{a} * {a}.shape[0]",
    "{a} / {a}.size",
    "{a} + {a}.ndim",
    "tensor({a}.shape)",
    "F.concat([tensor({a}.shape[0]).reshape(1), tensor([1, 2])])",
)
BINARY = (
    "{a} + {b}",
    "{a} - {b}",
    "{a} * {b}",
    "{a} / (F.abs({b}) + 1)",
    "{a} // (F.abs({b}) + 1)",
    "{a} % (F.abs({b}) + 1)",
    "F.maximum({a}, {b})",
    "F.minimum({a}, {b})",
    "{a} < {b}",
    "{a} >= {b}",
    "{a} == {b}",
    "{a} != {b}",
    "F.where({a} > 0, {a}, {b})",
    "F.atan2({a}, {b})",
    "F.logaddexp({a}, {b})",
    "F.concat([{a}, {b}], axis={k})",
    "F.concat([{a}, {b}, {a}])",
    "F.stack([{a}, {b}], axis={k})",
    "F.matmul({a}, {b})",
    "F.matmul({a}, {b}, transpose_b=True)",
    "{a} @ {b}.T",
    "F.dot({a}.reshape(-1), {b}.reshape(-1))",
    "F.broadcast_to({a}, {b}.shape)",
    "{a}.reshape({b}.shape)",
    "{a} + {b}.mean()",
    "{a} * {b}.shape[0]",
    "({a} > 0) & ({b} > 0)",
    "({a} > 0) | ({b} < 0)",
    "{a} ** F.minimum(F.abs({b}), 2)",
)
WITH_NUMBER = (
    "{a} + {n}",
    "{n} - {a}",
    "{a} * {n}",
    "{n} / (F.abs({a}) + 1)",
    "{a} > {n}",
    "F.maximum({a}, {n})",
    "{a} + np.float32({n})",
    "{a} * np.int32({i})",
    "{a} + np.array([{n}, {i}], 'float32').sum()",
    "{a} + np.ones((1, 1), 'float32')",
    "np.float32({n}) * {a}",
    "{a} + tensor({n})",
    "F.full({a}.shape, {n})",
)
AXES = (
    "{a}.sum(axis={k}, keepdims={h})",
    "{a}.mean(axis={k}, keepdims={h})",
    "{a}.max(axis={k}, keepdims={h})",
    "F.min({a}, axis={k}, keepdims={h})",
    "F.prod(F.clip({a}, 0, 1), axis={k}, keepdims={h})",
    "F.sum({a})",
    "{a}.mean()",
    "F.max({a})",
    "F.argmax({a}, axis={k})",
    "F.argmin({a}, axis={k}, keepdims={h})",
    "F.var({a}, axis={k}, keepdims={h})",
    "F.std({a} * 1.0, axis={k})",
    "F.norm({a}, axis={k})",
    "F.normalize({a}, axis={k})",
    "F.softmax({a}, axis={k})",
    "F.logsumexp({a}, axis={k}, keepdims={h})",
    "F.logsoftmax({a}, axis={k})",
    "F.cumsum({a}, axis={k})",
    "F.sort({a})[0]",
    "F.argsort({a})",
    "F.topk({a}, 1)[0]",
    "F.topk({a}, 2, descending=True)[{j}]",
    "F.squeeze(F.expand_dims({a}, {k}), {k})",
    "F.expand_dims({a}, {k})",
    "F.flatten({a}, {j})",
    "F.flatten({a})",
    "{a}.reshape({a}.shape[0], -1)",
    "{a}.reshape(-1, {a}.shape[-1])",
    "{a}.reshape(-1)",
    "{a}.reshape(*{a}.shape[1:], {a}.shape[0])",
    "{a}.reshape({a}.shape[0] * {a}.shape[1], *{a}.shape[2:])",
    "{a}.transpose()",
    "{a}.T",
    "F.transpose({a}, (1, 0))",
    "F.swapaxes({a}, 0, {k})",
    "F.tile({a}, ({s},) + (1,) * ({a}.ndim - 1))",
    "F.repeat({a}, 2, axis={k})",
    "F.roll({a}, 1, {k})",
    "F.split({a}, [1], axis={k})[1]",
    "F.split({a}, {a}.shape[0], axis=0)[-1]",
    "F.broadcast_to({a}, (2,) + tuple({a}.shape))",
    "F.nn.pad({a}, [(1, 0)] + [(0, 0)] * ({a}.ndim - 1))",
    "F.one_hot(F.argmax({a}, axis={k}), {a}.shape[{k}])",
    "F.gather({a}, {k}, F.zeros({a}.shape, dtype='int32'))",
    "F.stack([{a}[i] * i for i in range({a}.shape[0])])",
    "sum({a})",
    "F.cond_take({a} > 0, {a})[{j}]",
    "F.sum({a} > 0)",
    "F.diag({a})",
    "F.meshgrid({a}.reshape(-1), {a}.reshape(-1))[0]",
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
    ":, {i}",
    ":, 1:",
    "0, ..., -1",
    "[0]",
    "[0, 0]",
    ":, [0, 1]",
    "{a} > 0",
    "{a}.shape[0] // 2",
    ":{a}.shape[0] - 1",
    "{a}.shape[0] // 2:",
    "-{a}.shape[0]:",
    "np.array([0, -1])",
    "tensor([0])",
    "tensor(0)",
    "tensor([[0], [0]])",
    "0:0",
    "5:",
    "-100:2",
    "F.argmax({a}.reshape(-1)) % {a}.shape[0]",
    "True",
    ":, None, 0",
    "[0], None",
    "..., [0], [0]",
)
NETS = (
    "conv({a}.reshape(1, 1, 1, -1))",
    "F.conv2d({a}.reshape({a}.shape[0], 1, 1, -1), kernel)",
    "net(F.broadcast_to({a}.astype('float32').sum() / 9, (2, 3, 4, 4)))",
    "F.max_pool2d({a}.reshape({a}.shape[0], 1, -1, 1).astype('float32'), (2, 1))",
    "F.avg_pool2d({a}.reshape(1, {a}.shape[0], -1, 1), (2, 1), (1, 1), (1, 0))",
    "F.adaptive_avg_pool2d({a}.reshape(1, 1, -1, {a}.shape[-1]), (2, 2))",
    "F.nn.interpolate({a}.reshape(1, 1, -1, {a}.shape[-1]), scale_factor=2)",
    "linear({a}[..., :3].astype('float32'))",
    "norm({a}[..., :3].astype('float32'))",
    "F.linear({a}[..., :3], weight)",
    "F.conv1d({a}.reshape(1, 1, -1), kernel[0])",
)


def namespace() -> dict[str, Any]:
    """What programs may use: modules with fixed weights, constants and the packages."""
    values = np.random.default_rng(0)

    def some(*shape: int) -> Tensor:
        return tensor(values.standard_normal(shape).astype(np.float32) / 2)

    conv = M.Conv2d(1, 2, (1, 3), padding=(0, 1))
    net = M.Sequential(M.Conv2d(3, 4, 3, padding=1), M.BatchNorm2d(4), M.ReLU(), M.MaxPool2d(2))
    linear, norm = M.Linear(3, 4), M.LayerNorm(3)
    for module in (conv, net, linear, norm):
        module.eval()
        for p in module.parameters():
            p[...] = some(*p.shape)
    return {
        "F": F,
        "np": np,
        "tensor": tensor,
        "conv": conv,
        "net": net,
        "linear": linear,
        "norm": norm,
        "kernel": some(2, 1, 1, 2),
        "weight": some(4, 3),
        "cap": some(3),
    }


def sane(value: Any) -> bool:
    if not isinstance(value, Tensor):
        return not isinstance(value, (list, tuple)) or all(map(sane, value))
    data = value.numpy()
    if data.size > 2000 or data.ndim > 6:
        return False
    return data.dtype.kind == "b" or not data.size or bool(np.abs(data.astype(np.float64)).max() < LIMIT)


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _filled(w: Writer, text: str) -> str | None:
    a, b = w.one(is_tensor), w.one(is_tensor)
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
        t=w.pick("float32", "float16", "int32", "uint8", "int8", "bool", "int16"),
    )


def _expression(w: Writer) -> str | None:
    return _filled(w, w.pick(*w.pick(UNARY, BINARY, BINARY, WITH_NUMBER, AXES, AXES, NETS)))


def _indexed(w: Writer) -> str | None:
    return _filled(w, "{a}[" + w.pick(*INDEX) + "]")


def _assigned(w: Writer) -> str | None:
    index = w.pick(*INDEX)
    value = w.pick("{n}", "{b}", "{b}.mean()", "{a}[" + index + "] * 2", "0", "np.float32({n})")
    return _filled(w, "{a}[" + index + "] = " + value)


def _in_place(w: Writer) -> str | None:
    return _filled(w, "{a} " + w.pick("+=", "-=", "*=") + w.pick(" {b}", " {n}", " {a}", " {a}.shape[0]"))


def _loop(w: Writer) -> str | None:
    step = _filled(w, w.pick("{b} * i", "{b} + i", "F.relu({b} - i)", "{b}[0] + i"))
    target = w.one(is_tensor)
    if step is None or target is None:
        return None
    many = w.pick("range(2)", "range(3)", f"range({target}.shape[0])", f"reversed(range({target}.ndim))")
    return f"for i in {many}: {target} = {target} + {step}"


def _read(w: Writer) -> str | None:
    return _filled(
        w,
        w.pick(
            "{new} = {b} + {a}.numpy()",
            "{new} = {b} * float({a}.reshape(-1)[0].item())",
            "{new} = {b} + 1 if {a}.sum().item() > 0 else {b} - 1",
            "{new} = tensor({a}.numpy())",
            "{new} = {a}.tolist() and {a} + 1",
        ).replace("{new}", w.fresh()),
    )


def _excluded(w: Writer) -> str | None:
    return _filled(w, "with exclude_from_trace(): {new} = tensor({a}.numpy() * 2) + {b}").replace(  # type: ignore[union-attr]
        "{new}", w.fresh()
    )


def statement(w: Writer, *, host: bool = False) -> str | None:
    """One random statement; `host` allows reading values."""
    kinds: list[tuple[Callable[[Writer], str | None], int, bool]] = [
        (_expression, 12, True),
        (_indexed, 4, True),
        (_assigned, 3, False),
        (_in_place, 2, False),
        (_loop, 1, False),
    ]
    kind, _, new = w.random.choices(kinds, [k[1] for k in kinds])[0]
    if host and w.size(0, 7) == 0:
        kind, new = _read, False
    found = kind(w)
    return f"{w.fresh()} = {found}" if new and found is not None else found


SHAPES = ((2, 3), (1, 3), (3, 4), (2, 3, 4), (3,), (2, 1, 3), (4, 4), (1, 1), (2, 3, 2, 2))


def draw_inputs(random: Random) -> list[tuple[tuple[int, ...], str]]:
    """Shapes and dtypes of arguments; the first axis is the batch."""
    many = random.randint(1, 3)
    batch = random.choice((1, 2, 3))
    found = []
    for _ in range(many):
        shape = random.choice(SHAPES)
        if random.random() < 0.7:
            shape = (batch, *shape[1:])
        if random.random() < 0.05:
            shape = ()
        kind = random.choice(("float32",) * 5 + ("float16", "int32", "uint8", "int8", "bool"))
        found.append((shape, kind))
    return found


def arrays(
    inputs: list[tuple[tuple[int, ...], str]], seed: int, batch: int | None = None
) -> list[np.ndarray]:
    """Values for the arguments; another size of the first axis where `batch` is given."""
    values = np.random.default_rng(seed)
    made = []
    first = next((s[0] for s, _ in inputs if s), 1)
    for shape, kind in inputs:
        if batch is not None and shape and shape[0] == first:
            shape = (batch, *shape[1:])
        data = values.uniform(-3, 3, shape)
        if kind in ("int32", "uint8", "int8"):
            data = np.round(np.abs(data) if kind == "uint8" else data)
        made.append(np.asarray(data > 0 if kind == "bool" else data, kind))
    return made


def draw(random: Random, *, host: bool = False, steps: int | None = None) -> tuple[Program, list[Any]]:
    """A program and the shapes and dtypes of its arguments."""
    inputs = draw_inputs(random)
    names = [f"x{i}" for i in range(len(inputs))]
    space = namespace()
    w = Writer(random, space, {n: tensor(a) for n, a in zip(names, arrays(inputs, 0), strict=True)})
    wanted = steps or random.randint(2, 10)
    for _ in range(4 * wanted):
        line = statement(w, host=host)
        if line is not None:
            w.add(line, sane)
        if len(w.lines) >= wanted:
            break
    return Program(w.lines, _returned(w), names, space), inputs


def _returned(w: Writer) -> str:
    many = w.size(1, 4)
    found = [w.one(is_tensor) for _ in range(many)]
    last = [n for n in w.values if is_tensor(w.values[n])][-1]
    parts = [str(n) for n in found] + [last]
    if w.size(0, 12) == 0:
        parts.append("cap")
    form = w.pick("one", "tuple", "list", "dict", "nested")
    if form == "one":
        return last
    if form == "dict":
        return "{" + ", ".join(f"'o{i}': {n}" for i, n in enumerate(parts)) + "}"
    if form == "nested":
        return "{" + f"'a': [{parts[0]}, ({parts[-1]},)], 'b': {{'c': {', '.join(parts[1:2])}}}" + "}"
    return ("[" if form == "list" else "(") + ", ".join(parts) + ("]" if form == "list" else ",)")
