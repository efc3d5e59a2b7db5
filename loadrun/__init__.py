"""loadrun: replay, verify, benchmark and explain models with embedded testcases."""

from .base import __version__
from .base.registry import exported

_PACKAGES = """
arrays base compare dump engines graph inputs inputspec jit layers megengine onnx ops passes replay report runner
runtimes tensors testcase testing torch tracing verify
"""

# On first use, so that pytest's start and worker processes pay for what they use alone.
with exported(__name__, _PACKAGES) as _exported:  # `as` tells type checkers that a name is exported
    from .base.errors import (
        EngineError as EngineError,
        FormatError as FormatError,
        InputError as InputError,
        LoadRunError as LoadRunError,
        SpecError as SpecError,
        UnsupportedError as UnsupportedError,
    )
    from .compare.policy import JudgeOptions as JudgeOptions
    from .dump import load as load, load_all as load_all, loads as loads, save as save
    from .dump.options import DumpOptions as DumpOptions
    from .engines import register_engine as register_engine
    from .graph import Graph as Graph
    from .inputs.feeds import ModelOptions as ModelOptions
    from .onnx.converting import ConvertOptions as ConvertOptions, convert_file as convert_file
    from .replay.options import ProfileOptions as ProfileOptions, RunOptions as RunOptions
    from .replay.profiling import profile_file as profile_file
    from .replay.replaying import Replay as Replay, replay_files as replay_files
    from .report.changes import CompareOptions as CompareOptions, compare_reports as compare_reports
    from .report.history import report_history as report_history
    from .runner import (
        Result as Result,
        Runner as Runner,
        Verdict as Verdict,
        random_inputs as random_inputs,
        run as run,
    )
    from .tensors import Parameter as Parameter, Tensor as Tensor, tensor as tensor
    from .testcase import Bundle as Bundle, Testcase as Testcase
    from .tracing import trace as trace, trace_module as trace_module
    from .verify.accepting import AcceptOptions as AcceptOptions, accept_files as accept_files
    from .verify.against import check as check
    from .verify.audit import AuditOptions as AuditOptions, audit_files as audit_files
    from .verify.bench.files import BenchOptions as BenchOptions, bench_files as bench_files
    from .verify.blame_pass import BlamePassOptions as BlamePassOptions, blame_pass as blame_pass
    from .verify.describe import describe_engine as describe_engine, describe_files as describe_files
    from .verify.diff.files import diff_files as diff_files
    from .verify.diff.runs import DiffOptions as DiffOptions
    from .verify.pack.files import pack_file as pack_file
    from .verify.pack.options import PackOptions as PackOptions
    from .verify.pack.packing import Packer as Packer
    from .verify.pack.unpacking import UnpackOptions as UnpackOptions, unpack_file as unpack_file
    from .verify.reduce import (
        FailureOptions as FailureOptions,
        ReduceOptions as ReduceOptions,
        reduce_file as reduce_file,
    )
    from .verify.saved import judge_results as judge_results
    from .verify.share import share_file as share_file

__all__ = ["__version__", *_exported]
__getattr__, __dir__ = _exported.find, _exported.listed
