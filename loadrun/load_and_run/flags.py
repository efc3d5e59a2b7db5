"""The flags of load_and_run 1.13.0, what each does here, and the parser of its command line.

Parsing follows gflags: one dash or two, dashes or underscores inside a name, ``--name=value`` or ``--name value``,
``--name`` and ``--noname`` for switches; the last occurrence counts.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..base.errors import UsageError
from ..base.files import contents
from ..passes.options import LAYOUTS, OPTIMIZATIONS

_TRUE, _FALSE = ("1", "t", "true", "y", "yes"), ("0", "f", "false", "n", "no")
_DEPTH = 8


class Flag(NamedTuple):
    """One flag.

    Attributes:
        name: its name, with underscores.
        kind: bool, int, float or str.
        default: its default value.
        group: a key of `GROUPS`.
        what: what it does here; for a flag without effect, why.
        works: whether it has an effect here.
        says: what load_and_run prints when the flag is used, "" if nothing.
    """

    name: str
    kind: type
    default: bool | int | float | str
    group: str
    what: str
    works: bool = True
    says: str = ""


_OPTIMIZATION = {
    "optimize_for_inference": "optimize for inference",
    "enable_fuse_preprocess": "fuse-preprocess",
    "fuse_grain": "fuse-grain",
    "enable_fuse_conv_bias_nonlinearity": "fuse conv+bias+nonlinearity",
    "enable_fuse_conv_bias_with_z": "fuse conv+bias+z",
    "enable_ioc16": "ioc16",
}
GROUPS = {
    "run": "Runs",
    "data": "Data",
    "device": "Device and threads",
    "dump": "Values of variables",
    "watch": "Checks, profiles, information",
    "layout": "Layouts: the graph is optimized, then run and checked",
    "optimize": "Other optimizations: the graph is optimized, then run and checked",
    "runtime": "MegEngine runtime settings",
    "algorithm": "Algorithm selection",
    "model": "Model files",
    "other": "Custom operators",
    "flags": "Flags about flags",
}


_NOT_GIVEN: dict[type, bool | int | float | str] = {bool: False, int: -1, float: 0.0, str: ""}


def _on(name: str, group: str, what: str, says: str = "", kind: type = bool) -> Flag:
    return Flag(name, kind, _NOT_GIVEN[kind], group, what, True, says)


def _off(name: str, group: str, why: str, says: str = "", kind: type = bool) -> Flag:
    return Flag(name, kind, _NOT_GIVEN[kind], group, why, False, says)


_NO_DEVICE = "models run in numpy on the CPU"
_ONE_ALGORITHM = "each operator has a single algorithm per shape, so there is nothing to tune"

FLAGS: tuple[Flag, ...] = (
    Flag("iter", int, 10, "run", "number of timed runs after the warm-up"),
    Flag("warmup_iter", int, 1, "run", "number of warm-up runs"),
    Flag("thread", int, 1, "run", "run this many copies of the model in parallel"),
    _off("mdl", "run", "MegEngine dumps are always run this way"),
    _off("lite", "run", "plain dumps run the same way; MegEngine Lite's packed models cannot be read"),
    _off("fitting", "run", "there are no device options to tune"),
    _off("dump_fitting_model", "run", "there is no tuning, so there is no result to save", kind=str),
    _on(
        "input",
        "data",
        "data for a file without testcases: `NAME:SOURCE;NAME:SOURCE`, or one file for a single input",
        kind=str,
    ),
    _on(
        "batch_size",
        "data",
        "repeat or cut the data along axis 0 to this size",
        "force set batch size to {}",
        int,
    ),
    _on("cpu", "device", "the CPU, as always", "using cpu device"),
    _on("cpu_default", "device", "the CPU, as always", "using cpu default device"),
    _off("cuda", "device", _NO_DEVICE),
    _on(
        "multithread",
        "device",
        "use this many threads (0: one)",
        "using multithread(threads number:{}) device",
        int,
    ),
    _on(
        "multithread_default",
        "device",
        "use this many threads (0: one)",
        "using multithread default device",
        int,
    ),
    _on("multi_thread_core_ids", "device", "pin the process to these cores, one for each thread", kind=str),
    _on("io_dump", "dump", "print every variable of every run to a file", "enable text io dump", str),
    _on("io_dump_stdout", "dump", "... to standard output", "enable text io dump to stdout"),
    _on("io_dump_stderr", "dump", "... to standard error", "enable text io dump to stderr"),
    _on(
        "bin_io_dump", "dump", "write each variable to its own file in a folder", "enable binary io dump", str
    ),
    _on(
        "bin_out_dump", "dump", "write the outputs of every run to a folder", "enable binary output dump", str
    ),
    _off("copy_to_host", "dump", "outputs are already in host memory"),
    _on(
        "profile",
        "watch",
        "write the time of each operator in the last run, as JSON",
        "enable profiling",
        str,
    ),
    _on("profile_host", "watch", "the same, as host and device are one", "enable profiling for host", str),
    _on("model_info", "watch", "print inputs and outputs as a table", "enable display model information"),
    _on(
        "check_var_value",
        "watch",
        "compare a variable with its value in the first run, moving to another one every INTERVAL runs",
        "enable variable value check",
        str,
    ),
    _on("range", "watch", "fail if an absolute value is not below this", "enable number range check", float),
    _on(
        "get_static_mem_info",
        "watch",
        "write memory use over time to a folder",
        "enable get static memeory information",
        str,
    ),
    _on(
        "disable_assert_throw",
        "watch",
        "report a failed check, but go on and exit with 0",
        "disable assert throw",
    ),
    _on("verbose", "watch", "print every operator that is executed", "enable verbose"),
    _off("check_dispatch", "watch", "there is no kernel dispatcher to check", "enable cpu dispatch check"),
    _off("wait_gdb", "watch", "there is no C++ code to debug"),
    *(
        _on(name, "layout", what, f"enable {name.removeprefix('enable_')} optimization")
        for name, what in LAYOUTS.items()
    ),
    _off(
        "layout_transform",
        "layout",
        "there is no device to time layouts on; the graph stays as it is",
        "using global layout transform optimization",
        str,
    ),
    _on("layout_transform_dump", "layout", "with --layout_transform: write the (unchanged) graph", kind=str),
    *(
        _on(name, "optimize", what, f"enable {_OPTIMIZATION[name]} optimization")
        for name, what in OPTIMIZATIONS.items()
    ),
    _off(
        "enable_jit", "optimize", "there is no compiler; results are the same without", "enable JIT (level 1)"
    ),
    _off("tensorrt", "optimize", _NO_DEVICE, "using tensorRT"),
    _off("tensorrt_cache", "optimize", _NO_DEVICE, "use tensorrt cache: {}", str),
    _off(
        "weight_preprocess",
        "runtime",
        "weights are always transformed only once",
        "enable weight-preprocess optimization",
    ),
    _off(
        "share_param_mem",
        "runtime",
        "weights are always read in place from the file",
        "enable share model memory",
    ),
    _off(
        "const_shape",
        "runtime",
        "shape arithmetic always runs once per set of input shapes",
        "enable const var shape",
    ),
    _off(
        "fake_first",
        "runtime",
        "no set-up run is needed before the first one",
        "enable fake-first optimization",
    ),
    _off(
        "no_sanity_check",
        "runtime",
        "operators cannot overwrite values that others read",
        "disable var sanity check optimization",
    ),
    _off("record_comp_seq", "runtime", "there is no device to record for", "set record_comp_seq_level to 1"),
    _off(
        "record_comp_seq2",
        "runtime",
        "there is no device to record for; checks are made, although load_and_run omits them",
        "set record_comp_seq_level to 2",
    ),
    _off("disable_mem_opt", "runtime", "memory is not planned in advance", "disable memory optimization"),
    _off(
        "workspace_limit",
        "runtime",
        "kernels choose their workspace themselves",
        "set workspace limit to {}",
        int,
    ),
    _off("fast_run", "algorithm", _ONE_ALGORITHM, "enable fast-run strategy for algo profile"),
    _off("full_run", "algorithm", _ONE_ALGORITHM, "enable full-run strategy for algo profile"),
    _on(
        "reproducible",
        "algorithm",
        "fail unless every run gives the same bits as the first",
        "enable reproducible strategy for algo profile",
    ),
    _on(
        "binary_equal_between_batch",
        "algorithm",
        "the same as --reproducible; also says whether the items of the batch, run one by one, give the same bits",
        "enable reproducible strategy for algo profile",
    ),
    _off("fast_run_shared_batch_size", "algorithm", _ONE_ALGORITHM, "set shared shared batch", int),
    _off("fast_run_algo_policy", "algorithm", f"{_ONE_ALGORITHM}; no cache is written", kind=str),
    _on(
        "model_dump",
        "model",
        "write the graph that was run (with optimizations, without testcases)",
        kind=str,
    ),
    _off("packed_model_dump", "model", "MegEngine Lite's packed models are not written", kind=str),
    _off("pack_info_json", "model", "MegEngine Lite's packed models are not written", kind=str),
    _off("pack_cache", "model", "MegEngine Lite's packed models are not written", kind=str),
    _off("pack_info_cryption", "model", "MegEngine Lite's packed models are not written", kind=str),
    _off("pack_model_cryption", "model", "MegEngine Lite's packed models are not written", kind=str),
    _off(
        "c_opr_lib",
        "other",
        "operators from C libraries are not supported, so the library is not loaded",
        kind=str,
    ),
    _off("c_opr_lib_with_param", "other", "operators from C libraries are not supported"),
    _off("c_opr_init_interface", "other", "operators from C libraries are not supported", kind=str),
    _on("flagfile", "flags", "read flags from files, one per line", kind=str),
    _on("fromenv", "flags", "read these flags from the environment (FLAGS_name)", kind=str),
    _on("tryfromenv", "flags", "the same, for those that are set", kind=str),
    _on("undefok", "flags", "ignore these flags if they are unknown", kind=str),
    _on("help", "flags", "print all flags and exit"),
    _on("helpfull", "flags", "the same as --help"),
    _on("helpshort", "flags", "the same as --help"),
    _on("version", "flags", "print the version and exit"),
)

_BY_NAME = {f.name: f for f in FLAGS}


@dataclass
class ParsedFlags:
    """A parsed command line.

    Attributes:
        files: the arguments that are not flags.
        values: values of the flags on the command line by name, in the order of their last occurrence.
    """

    files: list[str] = field(default_factory=list)
    values: dict[str, bool | int | float | str] = field(default_factory=dict)

    def on(self, name: str) -> bool:
        """Return whether a switch is on."""
        return bool(self.values.get(name, False))

    def text(self, name: str) -> str:
        """Return the value of a string flag, "" by default."""
        return str(self.values.get(name, ""))

    def number(self, name: str) -> int:
        """Return the value of an integer flag, or its default."""
        return int(self.values.get(name, _BY_NAME[name].default))


def parse(args: Sequence[str]) -> ParsedFlags:
    """Parse a command line.

    Raises:
        UsageError: a flag is unknown, or its value is not of the flag's kind.

    >>> found = parse(["model.mge", "-iter", "3", "--warmup-iter=0", "--fast_run"])
    >>> found.files, found.values
    (['model.mge'], {'iter': 3, 'warmup_iter': 0, 'fast_run': True})
    """
    parsed = ParsedFlags()
    _read_arguments(list(args), parsed, 0)
    return parsed


def _read_arguments(args: list[str], parsed: ParsedFlags, depth: int) -> None:
    if depth > _DEPTH:
        raise UsageError(f"flag files include each other more than {_DEPTH} levels deep")
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
        # The last occurrence determines the order as well.
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
        raise UsageError(f"--{flag.name} takes true or false, found {text!r}")
    convert: Callable[[str], int | float | str] = flag.kind
    try:
        value = convert(text)
        # The C++ tool takes NaN and infinity, and then finds nothing out of range.
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
        return value
    except ValueError:
        kind = "a whole number" if flag.kind is int else "a number"
        raise UsageError(f"--{flag.name} takes {kind}, found {text!r}") from None


def _follow(flag: Flag, value: str, parsed: ParsedFlags, depth: int) -> None:
    """Parse the flags that a flag refers to."""
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
