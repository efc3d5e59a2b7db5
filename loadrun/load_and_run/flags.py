"""The flags of load_and_run 1.13.0, what becomes of each here, and how a command line is read.

A command line is read as there (gflags): one dash or two, dashes or underscores inside a name, ``--name=value`` or
``--name value``, ``--name`` and ``--noname`` for switches, the last one counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..base.errors import UsageError
from ..base.files import contents

__all__ = ["FLAGS", "GROUPS", "LAYOUTS", "OPTIMIZE", "Flag", "ParsedFlags", "by_name", "parse"]

_TRUE, _FALSE = ("1", "t", "true", "y", "yes"), ("0", "f", "false", "n", "no")
_DEPTH = 8


class Flag(NamedTuple):
    """One flag.

    Attributes:
        name: its name, with underscores.
        kind: bool, int, float or str.
        default: its value when it is not given.
        group: a heading of `GROUPS`.
        what: what it does here; for a flag that does nothing, why.
        works: whether it does something here.
        says: what load_and_run prints when it is given, "" where it prints nothing.
    """

    name: str
    kind: type
    default: bool | int | float | str
    group: str
    what: str
    works: bool = True
    says: str = ""


GROUPS = {
    "run": "What runs, and how often",
    "data": "Data",
    "device": "Device and threads",
    "dump": "Values of variables",
    "watch": "Checks, profiles, information",
    "layout": "Layouts: the graph is optimized, then run and checked",
    "optimize": "Other optimizations: the graph is optimized, then run and checked",
    "runtime": "Switches of MegEngine's runtime",
    "algorithm": "Choice of algorithms",
    "model": "Model files",
    "other": "Operators of others",
    "flags": "Flags about flags",
}


_NOT_GIVEN: dict[type, bool | int | float | str] = {bool: False, int: -1, float: 0.0, str: ""}


def _on(name: str, group: str, what: str, says: str = "", kind: type = bool) -> Flag:
    return Flag(name, kind, _NOT_GIVEN[kind], group, what, True, says)


def _off(name: str, group: str, why: str, says: str = "", kind: type = bool) -> Flag:
    return Flag(name, kind, _NOT_GIVEN[kind], group, why, False, says)


_NO_DEVICE = "the one engine here is numpy on the CPU"
_ONE_ALGORITHM = "there is one algorithm for each operator and shape, so there is nothing to try out"

FLAGS: tuple[Flag, ...] = (
    Flag("iter", int, 10, "run", "run the testcase that often after the warm-up"),
    Flag("warmup_iter", int, 1, "run", "run it that often before"),
    Flag("thread", int, 1, "run", "run that many copies of the model side by side"),
    _off("mdl", "run", "dumps of MegEngine are what is run in any case"),
    _off("lite", "run", "a plain dump runs the same way; MegEngine Lite's own packed models cannot be read"),
    _off("fitting", "run", "there are no device options among which the best could be sought"),
    _off("dump_fitting_model", "run", "nothing is sought, so there is nothing to keep", kind=str),
    _on(
        "input",
        "data",
        "data for a file without testcases: `NAME:SOURCE;NAME:SOURCE`, or one file for a single input",
        kind=str,
    ),
    _on(
        "batch_size",
        "data",
        "repeat or cut the data along axis 0 to that many",
        "force set batch size to {}",
        int,
    ),
    _on("cpu", "device", "the CPU, as always", "using cpu device"),
    _on("cpu_default", "device", "the CPU, as always", "using cpu default device"),
    _off("cuda", "device", _NO_DEVICE),
    _on(
        "multithread",
        "device",
        "use that many threads (0: one)",
        "using multithread(threads number:{}) device",
        int,
    ),
    _on(
        "multithread_default",
        "device",
        "use that many threads (0: one)",
        "using multithread default device",
        int,
    ),
    _on(
        "multi_thread_core_ids",
        "device",
        "keep the process on these processors, one for each thread",
        kind=str,
    ),
    _on("io_dump", "dump", "print every variable of every run to a file", "enable text io dump", str),
    _on("io_dump_stdout", "dump", "... to standard output", "enable text io dump to stdout"),
    _on("io_dump_stderr", "dump", "... to standard error", "enable text io dump to stderr"),
    _on(
        "bin_io_dump",
        "dump",
        "write every variable to a file of its own in a folder",
        "enable binary io dump",
        str,
    ),
    _on(
        "bin_out_dump", "dump", "write the outputs of every run to a folder", "enable binary output dump", str
    ),
    _off("copy_to_host", "dump", "outputs are in the host's memory already"),
    _on(
        "profile",
        "watch",
        "write the time of each operator in the last run, as JSON",
        "enable profiling",
        str,
    ),
    _on("profile_host", "watch", "the same: host and device are one", "enable profiling for host", str),
    _on("model_info", "watch", "print inputs and outputs as a table", "enable display model information"),
    _on(
        "check_var_value",
        "watch",
        "compare a variable with its value in the first run, another one every INTERVAL runs",
        "enable variable value check",
        str,
    ),
    _on(
        "range",
        "watch",
        "fail when the absolute value of a number is not smaller",
        "enable number range check",
        float,
    ),
    _on(
        "get_static_mem_info",
        "watch",
        "write when which memory is needed to a folder",
        "enable get static memeory information",
        str,
    ),
    _on(
        "disable_assert_throw",
        "watch",
        "a failed check is told, and the run goes on and ends with 0",
        "disable assert throw",
    ),
    _on("verbose", "watch", "tell every operator that is executed", "enable verbose"),
    _off(
        "check_dispatch", "watch", "there is no dispatcher of kernels to check", "enable cpu dispatch check"
    ),
    _off("wait_gdb", "watch", "nothing waits: there is no C++ code of a model's to step through"),
    *(
        _on(f"enable_{name}", "layout", f"convolutions in {text}", f"enable {name} optimization")
        for name, text in (
            ("nchw4", "NCHW4"),
            ("chwn4", "CHWN4"),
            ("nchw44", "NCHW44"),
            ("nchw88", "NCHW88"),
            ("nchw32", "NCHW32"),
            ("nchw64", "NCHW64"),
            ("nhwcd4", "NHWCD4"),
            ("nchw44_dot", "NCHW44 for dot products"),
        )
    ),
    _off(
        "layout_transform",
        "layout",
        "no device whose layouts could be timed; the graph stays as it is",
        "using global layout transform optimization",
        str,
    ),
    _on(
        "layout_transform_dump",
        "layout",
        "with --layout_transform: write the graph, which is unchanged",
        kind=str,
    ),
    _on(
        "optimize_for_inference",
        "optimize",
        "fuse what `optimize_for_inference` fuses",
        "enable optimize for inference optimization",
    ),
    _on(
        "enable_fuse_preprocess",
        "optimize",
        "one operator for the conversion of images",
        "enable fuse-preprocess optimization",
    ),
    _on(
        "fuse_grain",
        "optimize",
        "means and global pooling become one operator each",
        "enable fuse-grain optimization",
    ),
    _on(
        "enable_fuse_conv_bias_nonlinearity",
        "optimize",
        "convolution, bias and activation become one operator",
        "enable fuse conv+bias+nonlinearity optimization",
    ),
    _on(
        "enable_fuse_conv_bias_with_z",
        "optimize",
        "... with a residual sum",
        "enable fuse conv+bias+z optimization",
    ),
    _on("enable_ioc16", "optimize", "everything in float16", "enable ioc16 optimization"),
    _off(
        "enable_jit", "optimize", "nothing is compiled; results are the same without", "enable JIT (level 1)"
    ),
    _off("tensorrt", "optimize", _NO_DEVICE, "using tensorRT"),
    _off("tensorrt_cache", "optimize", _NO_DEVICE, "use tensorrt cache: {}", str),
    _off(
        "weight_preprocess",
        "runtime",
        "weights are transformed once in any case",
        "enable weight-preprocess optimization",
    ),
    _off(
        "share_param_mem",
        "runtime",
        "weights are read where they lie in the file in any case",
        "enable share model memory",
    ),
    _off(
        "const_shape",
        "runtime",
        "shape arithmetic is done once for each set of input shapes in any case",
        "enable const var shape",
    ),
    _off(
        "fake_first",
        "runtime",
        "the first run computes: nothing has to be set up by a run without",
        "enable fake-first optimization",
    ),
    _off(
        "no_sanity_check",
        "runtime",
        "operators cannot change values that others read",
        "disable var sanity check optimization",
    ),
    _off("record_comp_seq", "runtime", "nothing is recorded for a device", "set record_comp_seq_level to 1"),
    _off(
        "record_comp_seq2",
        "runtime",
        "nothing is recorded for a device; checks are made, where load_and_run leaves them out",
        "set record_comp_seq_level to 2",
    ),
    _off("disable_mem_opt", "runtime", "memory is not planned beforehand", "disable memory optimization"),
    _off(
        "workspace_limit",
        "runtime",
        "kernels choose small scratch memory by themselves",
        "set workspace limit to {}",
        int,
    ),
    _off("fast_run", "algorithm", _ONE_ALGORITHM, "enable fast-run strategy for algo profile"),
    _off("full_run", "algorithm", _ONE_ALGORITHM, "enable full-run strategy for algo profile"),
    _on(
        "reproducible",
        "algorithm",
        "each run must give the same bits as the first",
        "enable reproducible strategy for algo profile",
    ),
    _on(
        "binary_equal_between_batch",
        "algorithm",
        "the same as --reproducible; tells besides whether the batch's items, run one by one, give the same bits",
        "enable reproducible strategy for algo profile",
    ),
    _off("fast_run_shared_batch_size", "algorithm", _ONE_ALGORITHM, "set shared shared batch", int),
    _off("fast_run_algo_policy", "algorithm", f"{_ONE_ALGORITHM}; no cache is written", kind=str),
    _on(
        "model_dump", "model", "write the graph that was run, optimized if asked, without testcases", kind=str
    ),
    _off("packed_model_dump", "model", "MegEngine Lite's packed models are not written", kind=str),
    _off("pack_info_json", "model", "MegEngine Lite's packed models are not written", kind=str),
    _off("pack_cache", "model", "MegEngine Lite's packed models are not written", kind=str),
    _off("pack_info_cryption", "model", "MegEngine Lite's packed models are not written", kind=str),
    _off("pack_model_cryption", "model", "MegEngine Lite's packed models are not written", kind=str),
    _off(
        "c_opr_lib",
        "other",
        "operators of C libraries are not run, so a library that is there is not loaded",
        kind=str,
    ),
    _off("c_opr_lib_with_param", "other", "operators of C libraries are not run"),
    _off("c_opr_init_interface", "other", "operators of C libraries are not run", kind=str),
    _on("flagfile", "flags", "read flags from files, one a line", kind=str),
    _on("fromenv", "flags", "take these flags from the environment (FLAGS_name)", kind=str),
    _on("tryfromenv", "flags", "... those that are there", kind=str),
    _on("undefok", "flags", "these flags may be unknown", kind=str),
    _on("help", "flags", "print all flags and leave"),
    _on("helpfull", "flags", "the same"),
    _on("helpshort", "flags", "the same"),
    _on("version", "flags", "print the version and leave"),
)

LAYOUTS = tuple(f.name for f in FLAGS if f.group == "layout" and f.name.startswith("enable_"))
"""Flags that choose a layout, in the order in which load_and_run applies them: the last one given counts."""
OPTIMIZE = tuple(f.name for f in FLAGS if f.group == "optimize" and f.works)
_BY_NAME = {f.name: f for f in FLAGS}


def by_name(name: str) -> Flag:
    """Return the flag of a name, dashes or underscores.

    Raises:
        KeyError: there is none.
    """
    return _BY_NAME[name.replace("-", "_")]


@dataclass
class ParsedFlags:
    """A command line that was read.

    Attributes:
        files: what is not a flag.
        values: values of flags that were given, by name, in the order in which they were given.
    """

    files: list[str] = field(default_factory=list)
    values: dict[str, bool | int | float | str] = field(default_factory=dict)

    def on(self, name: str) -> bool:
        """Tell whether a switch is on."""
        return bool(self.values.get(name, False))

    def text(self, name: str) -> str:
        """Return the value of a flag that takes text, "" by default."""
        return str(self.values.get(name, ""))

    def number(self, name: str) -> int:
        """Return the value of a flag that takes a whole number, or its default."""
        return int(self.values.get(name, _BY_NAME[name].default))


def parse(args: Sequence[str]) -> ParsedFlags:
    """Read a command line.

    Raises:
        UsageError: an unknown flag, or a value that is none.

    >>> found = parse(["model.mge", "-iter", "3", "--warmup-iter=0", "--fast_run"])
    >>> found.files, found.values
    (['model.mge'], {'iter': 3, 'warmup_iter': 0, 'fast_run': True})
    """
    parsed = ParsedFlags()
    _read_arguments(list(args), parsed, 0)
    return parsed


def _read_arguments(args: list[str], parsed: ParsedFlags, depth: int) -> None:
    if depth > _DEPTH:
        raise UsageError(f"files of flags name each other more than {_DEPTH} times")
    unknown: list[str] = []
    at = 0
    while at < len(args):
        text = args[at]
        at += 1
        if text == "--":
            parsed.files += args[at:]
            break
        if not text.startswith("-") or text == "-":
            parsed.files.append(text)
            continue
        name, equals, value = text.lstrip("-").partition("=")
        flag, negated = _flag(name)
        if flag is None:
            unknown.append(name)
            continue
        if not equals and flag.kind is not bool:
            if at == len(args):
                raise UsageError(f"--{name} is missing its value ({flag.what})")
            value = args[at]
            at += 1
        known = value if equals or flag.kind is not bool else "false" if negated else "true"
        # Given again, a flag counts from there.
        parsed.values.pop(flag.name, None)
        parsed.values[flag.name] = _value(flag, known)
        _follow(flag, known, parsed, depth)
    fine = {n.strip().replace("-", "_") for n in parsed.text("undefok").split(",")}
    bad = next((n for n in unknown if n.replace("-", "_") not in fine), None)
    if bad is not None:
        raise UsageError(f"unknown command line flag {bad!r}; `load_and_run --help` lists them")


def _flag(name: str) -> tuple[Flag | None, bool]:
    plain = name.replace("-", "_")
    if plain in _BY_NAME:
        return _BY_NAME[plain], False
    rest = _BY_NAME.get(plain.removeprefix("no").removeprefix("_"))
    if plain.startswith("no") and rest is not None and rest.kind is bool:
        return rest, True
    return None, False


def _value(flag: Flag, text: str) -> bool | int | float | str:
    if flag.kind is bool:
        if text.lower() in (*_TRUE, *_FALSE):
            return text.lower() in _TRUE
        raise UsageError(f"--{flag.name} is a switch: true or false, found {text!r}")
    convert: Callable[[str], int | float | str] = flag.kind
    try:
        return convert(text)
    except ValueError:
        kind = "a whole number" if flag.kind is int else "a number"
        raise UsageError(f"--{flag.name} takes {kind}, found {text!r}") from None


def _follow(flag: Flag, value: str, parsed: ParsedFlags, depth: int) -> None:
    """Read the flags that a flag stands for."""
    if flag.name == "flagfile":
        for name in value.split(","):
            try:
                lines = contents(name, "a flagfile").decode("utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as e:
                raise UsageError(f"--flagfile {name}: {getattr(e, 'strerror', None) or e}") from None
            flags = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
            _read_arguments([f if f.startswith("-") else f"--{f}" for f in flags], parsed, depth + 1)
    elif flag.name in ("fromenv", "tryfromenv"):
        for name in filter(None, value.split(",")):
            known, _ = _flag(name)
            if known is None:
                raise UsageError(f"unknown command line flag {name!r} (via --fromenv or --tryfromenv)")
            setting = os.environ.get(f"FLAGS_{known.name}")
            if setting is not None:
                _read_arguments([f"--{known.name}={setting}"], parsed, depth + 1)
            elif flag.name == "fromenv":
                raise UsageError(f"--fromenv {name}: FLAGS_{known.name} is not in the environment")
