"""Which flags exclude each other: where load_and_run aborts, there is an error here."""

import os

from ..base.errors import UsageError
from .flags import ParsedFlags
from .plugins import interval

_DUMPS = ("io_dump", "bin_io_dump", "bin_out_dump", "io_dump_stdout", "io_dump_stderr")
_NOT_LITE = {
    "range": "the range check",
    "check_dispatch": "the dispatch check",
    "check_var_value": "the value check",
    "disable_assert_throw": "--disable_assert_throw",
    "get_static_mem_info": "--get_static_mem_info",
    "io_dump_stdout": "--io_dump_stdout",
    "io_dump_stderr": "--io_dump_stderr",
    "bin_out_dump": "--bin_out_dump",
}


def check_together(flags: ParsedFlags) -> None:
    """Refuse what load_and_run refuses, before anything is run.

    Raises:
        UsageError: flags that have no sense together, or a value that has none.
    """
    _counts(flags)
    _threads(flags)
    _algorithms(flags)
    dumps = [n for n in _DUMPS if flags.values.get(n)]
    if len(dumps) > 1:
        raise UsageError(
            f"give one of {', '.join(f'--{n}' for n in dumps)}: load_and_run honours only one of them"
        )
    if flags.on("record_comp_seq2") and (flags.on("fake_first") or not flags.on("no_sanity_check")):
        raise UsageError("--record_comp_seq2 needs --no_sanity_check and excludes --fake_first")
    target = flags.text("layout_transform")
    if target not in ("", "cpu", "cuda"):
        raise UsageError(f"--layout_transform takes cpu or cuda, found {target!r}")
    if flags.text("check_var_value"):
        interval(flags.text("check_var_value"))
    library = flags.text("c_opr_lib")
    if library and not os.path.exists(library):
        raise UsageError(f"--c_opr_lib {library}: there is no such file")
    if flags.on("lite"):
        wrong = next((n for n in _NOT_LITE if flags.values.get(n)), None)
        if wrong is not None:
            raise UsageError(f"--lite excludes {_NOT_LITE[wrong]}, as in the C++ tool")


def _counts(flags: ParsedFlags) -> None:
    for name in ("iter", "warmup_iter"):
        if flags.number(name) < 0:
            raise UsageError(f"--{name} takes a number of at least 0, found {flags.number(name)}")
    if flags.number("thread") < 1:
        raise UsageError(f"--thread takes a number of at least 1, found {flags.number('thread')}")
    if "batch_size" in flags.values and flags.number("batch_size") == 0:
        raise UsageError("--batch_size takes a number of at least 1, found 0")


def _threads(flags: ParsedFlags) -> None:
    many, plain = flags.number("multithread"), flags.number("multithread_default")
    if many >= 0 and plain >= 0:
        raise UsageError("--multithread and --multithread_default exclude each other")
    cores = flags.text("multi_thread_core_ids")
    if not cores:
        return
    if many < 0 and plain < 0:
        raise UsageError("--multi_thread_core_ids needs --multithread or --multithread_default")
    names = cores.split(",")
    if not all(n.strip().isdigit() for n in names):
        raise UsageError(f"--multi_thread_core_ids takes core numbers such as 0,1, found {cores!r}")
    if len(names) != max(many, plain):
        raise UsageError(
            f"--multi_thread_core_ids names {len(names)} cores for {max(many, plain)} threads; "
            "the numbers must agree"
        )


def _algorithms(flags: ParsedFlags) -> None:
    trying = flags.on("fast_run") or flags.on("full_run")
    if flags.on("fast_run") and flags.on("full_run"):
        raise UsageError("--fast_run and --full_run exclude each other")
    cache = flags.text("fast_run_algo_policy")
    if flags.number("fast_run_shared_batch_size") > 0 and not (trying or cache):
        raise UsageError(
            "--fast_run_shared_batch_size needs --fast_run, --full_run or --fast_run_algo_policy"
        )
    if cache and not os.path.exists(cache) and not trying:
        raise UsageError(
            f"--fast_run_algo_policy {cache}: there is no such file; create it with --fast_run or --full_run"
        )
