"""How large a model is and what it computes: parameters, operations and activations of its modules.

Source of semantics: MegEngine ``utils/module_stats.py``; an operation is a multiplication with its addition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from tabulate import tabulate

from ...base.logger import get_logger
from ...tensors import Tensor
from ...tensors.access import stored
from ...tensors.quantized_dtypes import get_dtype_bit
from .adaptive_pooling import _AdaptivePoolNd
from .batch_matmul_activation import BatchMatMulActivation
from .batchnorm import _BatchNorm
from .conv_base import _ConvNd
from .costs import disable_receptive_field, get_op_stats, receptive_fields
from .linear import Linear
from .module import Module
from .normalization import GroupNorm, InstanceNorm, LayerNorm
from .paths import set_module_mode_safe
from .pooling import _PoolNd

__all__ = [
    "dict2table",
    "get_activation_stats",
    "get_param_stats",
    "hook_modules",
    "module_stats",
    "print_activations_stats",
    "print_op_stats",
    "print_param_stats",
    "print_summary",
    "register_hook_module",
    "sizeof_fmt",
    "stats_details",
    "sum_activations_stats",
    "sum_op_stats",
    "sum_param_stats",
    "summed",
    "total_stats",
]

Row = dict[str, Any]
logger = get_logger(__name__)
hook_modules: list[type[Any]] = [
    _ConvNd,
    Linear,
    BatchMatMulActivation,
    _BatchNorm,
    LayerNorm,
    GroupNorm,
    InstanceNorm,
    _PoolNd,
    _AdaptivePoolNd,
]
"""The classes of modules that `module_stats` looks at, with their subclasses."""


def register_hook_module(module: Any) -> None:
    """Let `module_stats` look at the modules of another class, or of several in a list.

    Raises:
        TypeError: it is not a class of modules.
    """
    for kind in module if isinstance(module, (tuple, list)) else (module,):
        if not (isinstance(kind, type) and issubclass(kind, Module)):
            raise TypeError(f"expected a class of modules or a list of them, found {kind!r}")
        hook_modules.append(kind)


def dict2table(list_of_dict: Sequence[Row], header: Sequence[str]) -> list[list[Any]]:
    """Return rows of a table, the header first.

    >>> dict2table([{"a": 1}, {"b": 2}], ["a", "b"])
    [['a', 'b'], [1, ''], ['', 2]]
    """
    return [list(header), *([d.get(h, "") for h in header] for d in list_of_dict)]


def sizeof_fmt(num: float, suffix: str = "B") -> str:
    """Return a number in a readable unit: bytes in powers of 1024, everything else in powers of 1000.

    >>> sizeof_fmt(1536), sizeof_fmt(2500000, suffix="OPs")
    ('1.500 KiB', '2.500 MOPs')
    """
    step = 1024.0 if suffix == "B" else 1000.0
    units = [u + "i" if u and suffix == "B" else u for u in ("", *"KMGTPEZY")]
    for unit in units[:-1]:
        if abs(num) < step:
            return f"{num:3.3f} {unit}{suffix}"
        num /= step
    return f"{num:3.3f} {units[-1]}{suffix}"


def _shares(rows: list[Row], key: str, bar: str, length: int) -> int:
    """Give rows their share of the sum and a bar; returns the sum."""
    total, most = sum(int(r[key]) for r in rows), max((r[key] for r in rows), default=0)
    for row in rows:
        row["ratio"] = row[key] / total if total else 0.0
        row["percentage"] = f"{row['ratio'] * 100:.2f}%"
        row[bar] = "#" * (int(row[key] / most * length) if most else 0)
    return total


def _accumulated(rows: list[Row], key: str, name: str, suffix: str) -> None:
    so_far = 0
    for row in rows:
        so_far += int(row[key])
        row[name] = sizeof_fmt(so_far, suffix=suffix)


def sum_op_stats(flops: list[Row], bar_length_max: int = 20) -> tuple[int, list[Row]]:
    """Add shares, running sums and a row of the total to what `get_op_stats` gave; returns the total and the rows."""
    _accumulated(flops, "flops_num", "flops_cum", "OPs")
    total = _shares(flops, "flops_num", "bar", bar_length_max)
    for row in flops:
        row["flops"] = sizeof_fmt(row["flops_num"], suffix="OPs")
    size = sum(s[1] if len(s) > 1 else 0 for d in flops for s in d["output_shapes"])
    flops.append({"name": "total", "flops": sizeof_fmt(total, suffix="OPs"), "output_shapes": size})
    return total, flops


def _print(title: str, rows: Sequence[Row], header: Sequence[str]) -> None:
    logger.info("%s: \n%s", title, tabulate(dict2table(rows, header)))


def print_op_stats(flops: Sequence[Row]) -> None:
    """Log the table of operations."""
    header = [
        "name",
        "class_name",
        "input_shapes",
        "output_shapes",
        "flops",
        "flops_cum",
        "percentage",
        "bar",
    ]
    if receptive_fields():
        header[4:4] = ["receptive_field", "stride"]
    _print("flops stats", flops, header)


def _moments(x: Any) -> Row:
    value = stored(Tensor(x).astype(np.float32))
    return {"mean": f"{value.mean():.3g}", "std": f"{value.std():.3g}"}


def _bits(x: Any) -> tuple[np.dtype[Any], int]:
    dtype = np.dtype(x.dtype)
    return dtype, int(get_dtype_bit(dtype.name))


def get_param_stats(param: Any) -> Row:
    """Return dtype, shape, mean, standard deviation and size in bytes of a parameter."""
    dtype, bits = _bits(param)
    count = int(np.prod(param.shape))
    row = {"dtype": dtype, "shape": param.shape, **_moments(param)}
    return row | {"param_dim": count, "nbits": bits, "size": count * bits // 8}


def sum_param_stats(params: list[Row], bar_length_max: int = 20) -> tuple[int, int, list[Row]]:
    """Add shares, running sums and a row of the total to what `get_param_stats` gave.

    Returns:
        how many numbers, how many bytes, the rows.
    """
    dims = sum(int(d["param_dim"]) for d in params)
    total = _fill_size_bars(params, bar_length_max)
    params.append({"name": "total", "param_dim": dims, "size": sizeof_fmt(total)})
    return dims, total, params


def _fill_size_bars(rows: list[Row], bar_length_max: int) -> int:
    _accumulated(rows, "size", "size_cum", "B")
    total = _shares(rows, "size", "size_bar", bar_length_max)
    for row in rows:
        row["size"] = sizeof_fmt(row["size"])
    return total


def print_param_stats(params: Sequence[Row]) -> None:
    """Log the table of parameters."""
    names = ["name", "dtype", "shape", "mean", "std", "param_dim", "nbits", "size", "size_cum", "percentage"]
    _print("param stats", params, [*names, "size_bar"])


def get_activation_stats(output: Any, has_input: bool = False) -> Row:
    """Return dtype, shape and size in bytes of what a module gave; with real inputs mean and standard deviation."""
    dtype, bits = _bits(output)
    count = int(np.prod(output.shape))
    row: Row = {
        "dtype": dtype,
        "shape": output.shape,
        "act_dim": count,
        "nbits": bits,
        "size": count * bits // 8,
    }
    return row | _moments(output) if has_input else row


def sum_activations_stats(activations: list[Row], bar_length_max: int = 20) -> tuple[int, int, list[Row]]:
    """Add shares, running sums and a row of the total to what `get_activation_stats` gave.

    Returns:
        how many numbers, how many bytes, the rows.
    """
    dims = sum(int(d["act_dim"]) for d in activations)
    total = _fill_size_bars(activations, bar_length_max)
    activations.append({"name": "total", "act_dim": dims, "size": sizeof_fmt(total)})
    return dims, total, activations


def print_activations_stats(activations: Sequence[Row], has_input: bool = False) -> None:
    """Log the table of activations."""
    moments = ["mean", "std"] if has_input else []
    names = ["name", "class_name", "dtype", "shape", *moments, "nbits", "act_dim", "size", "size_cum"]
    _print("activations stats", activations, [*names, "percentage", "size_bar"])


def print_summary(**kwargs: Any) -> None:
    """Log a table of two columns."""
    logger.info("summary\n%s", tabulate([["item", "value"], *map(list, kwargs.items())]))


class total_stats(NamedTuple):
    """Sums over a model: bytes and numbers of its parameters, operations, bytes and numbers of activations."""

    param_size: int
    param_dims: int
    flops: int
    act_size: int
    act_dims: int


class stats_details(NamedTuple):
    """Rows of a model's parameters, operations and activations, the last of each the total."""

    params: list[Row]
    flops: list[Row]
    activations: list[Row]


def module_stats(
    model: Module,
    inputs: Any = None,
    input_shapes: Any = None,
    cal_params: bool = True,
    cal_flops: bool = True,
    cal_activations: bool = True,
    logging_to_stdout: bool = True,
    bar_length_max: int = 20,
) -> tuple[total_stats, stats_details] | None:
    """Run a model once and count parameters, operations and activations of its modules.

    Args:
        model: the model.
        inputs: what to run it on: ndarrays, numbers, and containers of them.
        input_shapes: a shape or a list of shapes, to run it on zeros.
        cal_params, cal_flops, cal_activations: what to count.
        logging_to_stdout: log the tables too, not the sums alone.
        bar_length_max: length of the longest bar.

    Returns:
        sums and rows; None, with a logged error, where there is nothing to run on.

    >>> import loadrun.megengine.module as M
    >>> logger.setLevel("ERROR")
    >>> found = module_stats(M.Linear(3, 2), input_shapes=(4, 3))
    >>> found[0].flops, found[0].param_dims, found[0].act_size
    (26, 8, 32)
    """
    has_inputs = inputs is not None
    if inputs is not None:
        args = _loaded(inputs if isinstance(inputs, (tuple, list)) else [inputs])
    elif input_shapes:
        shapes = input_shapes if isinstance(input_shapes[0], tuple) else [input_shapes]
        args = [Tensor(np.zeros(shape, np.float32)) for shape in shapes]
    else:
        logger.error("module_stats needs inputs or input_shapes to run the model on")
        return None
    disable_receptive_field()
    watch = _RunStatistics(cal_params, cal_flops, cal_activations, has_inputs)
    with set_module_mode_safe(model, training=False), watch.of(model):
        model(*args)
    return _summed(watch, logging_to_stdout, bar_length_max)


def _loaded(x: Any) -> Any:
    """Return inputs with tensors in the place of ndarrays and numbers; numbers become float32."""
    if isinstance(x, np.ndarray):
        return Tensor(x)
    if isinstance(x, Mapping):
        return {k: _loaded(v) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_loaded(v) for v in x))
    if isinstance(x, Sequence) and not isinstance(x, Tensor):
        return [_loaded(v) for v in x]
    return Tensor(x, dtype=np.float32)


class _RunStatistics:
    """Figures of a model's modules in one run."""

    def __init__(self, params: bool, flops: bool, activations: bool, has_inputs: bool) -> None:
        self.wanted = (params, flops, activations)
        self.has_inputs = has_inputs
        self.params: list[Row] = []
        self.flops: list[Row] = []
        self.activations: list[Row] = []
        self._seen: set[Tensor] = set()
        self._names: dict[Module, str] = {}

    @contextmanager
    def of(self, model: Module) -> Iterator[None]:
        """Inside, look at what the modules do; parameters that are taken from a module count as well."""
        hooks = []
        for name, module in model.named_modules():
            if isinstance(module, Module) and isinstance(module, tuple(hook_modules)):
                self._names[module] = name
                hooks.append(module.register_forward_hook(self._called))
        plain = Module.__getattribute__
        taken: list[tuple[Module, str]] = []

        def noted(module: object, item: str) -> Any:
            if item in ("weight", "bias") and isinstance(module, Module):
                taken.append((module, item))
            return plain(module, item)

        Module.__getattribute__ = noted  # type: ignore[method-assign]
        try:
            yield
        finally:
            Module.__getattribute__ = plain  # type: ignore[method-assign]
            for hook in hooks:
                hook.remove()
        for module, item in taken:
            if module in self._names:
                self._parameter(module, item)

    def _called(self, module: Module, inputs: Any, outputs: Any) -> None:
        about = {"name": self._names[module], "class_name": type(module).__name__}
        params, flops, activations = self.wanted
        if flops:
            row = get_op_stats(module, inputs, outputs)
            if row is not None:
                self.flops.append(row | about)
        if params:
            self._parameter(module, "weight")
            self._parameter(module, "bias")
        if activations:
            first = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
            self.activations.append(get_activation_stats(first, self.has_inputs) | about)

    def _parameter(self, module: Module, item: str) -> None:
        tensor = getattr(module, item, None)
        if isinstance(tensor, Tensor) and tensor not in self._seen:
            self._seen.add(tensor)
            self.params.append(get_param_stats(tensor) | {"name": f"{self._names[module]}-{item[0]}"})


def _summed(watch: _RunStatistics, log: bool, length: int) -> tuple[total_stats, stats_details]:
    rows = stats_details(watch.params, watch.flops, watch.activations)
    return summed(rows, watch.wanted, log, length, watch.has_inputs, {"#params": len(watch.params)})


def summed(
    rows: stats_details,
    wanted: tuple[bool, bool, bool],
    log: bool,
    length: int,
    has_inputs: bool,
    about: dict[str, Any],
) -> tuple[total_stats, stats_details]:
    """Add totals to rows and log them.

    Args:
        rows: what was found.
        wanted: whether parameters, operations and activations count.
        log: log the tables too, not the sums alone.
        length: length of the longest bar.
        has_inputs: whether activations have means.
        about: what the table of sums begins with.
    """
    wants_params, wants_flops, wants_activations = wanted
    dims = size = flops = act_dims = act_size = 0
    if wants_params:
        dims, size, _ = sum_param_stats(rows.params, length)
        about |= {"total_param_dims": sizeof_fmt(dims, suffix=""), "total_param_size": sizeof_fmt(size)}
        if log:
            print_param_stats(rows.params)
    if wants_flops:
        flops, _ = sum_op_stats(rows.flops, length)
        about["total_flops"] = sizeof_fmt(flops, suffix="OPs")
        if log:
            print_op_stats(rows.flops)
    if wants_activations:
        act_dims, act_size, _ = sum_activations_stats(rows.activations, length)
        about |= {"total_act_dims": sizeof_fmt(act_dims, suffix=""), "total_act_size": sizeof_fmt(act_size)}
        if log:
            print_activations_stats(rows.activations, has_inputs)
    if wants_flops and wants_params and size:
        about["flops/param_size"] = f"{flops / size:3.3f}"
    print_summary(**about)
    return total_stats(size, dims, flops, act_size, act_dims), rows
