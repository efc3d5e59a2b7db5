"""loadrun: replay, verify, benchmark and explain models with embedded testcases."""

from typing import TYPE_CHECKING

from .base import __version__
from .base.registry import lazy

if TYPE_CHECKING:
    from .base.errors import EngineError, FormatError, InputError, LoadRunError, SpecError, UnsupportedError
    from .dump import load, load_all, loads, save
    from .dump.options import DumpOptions
    from .engines import register_engine
    from .graph import Graph
    from .inputs.feeds import ModelOptions
    from .onnx.converting import ConvertOptions, convert_file
    from .replay.options import ProfileOptions, RunOptions
    from .replay.profiling import profile_file
    from .replay.replaying import Replay, replay_files
    from .report.changes import CompareOptions, compare_reports
    from .report.history import report_history
    from .runner import Result, Runner, Verdict, random_inputs, run
    from .tensors import Parameter, Tensor, tensor
    from .testcase import Bundle, Testcase
    from .tracing import trace, trace_module
    from .verify.accepting import AcceptOptions, accept_files
    from .verify.against import check
    from .verify.audit import AuditOptions, audit_files
    from .verify.bench.files import BenchOptions, bench_files
    from .verify.blame_pass import BlamePassOptions, blame_pass
    from .verify.diff.files import DiffOptions, diff_files
    from .verify.pack.describing import describe_engine, describe_files
    from .verify.pack.files import pack_file
    from .verify.pack.options import PackOptions
    from .verify.pack.packing import Packer
    from .verify.pack.unpacking import UnpackOptions, unpack_file
    from .verify.pack.verifying import VerifyOptions, verify_files
    from .verify.reduce import ReduceOptions, reduce_file
    from .verify.saved import JudgeOptions, judge_results
    from .verify.share import ShareOptions, share_file

__all__ = [
    "AcceptOptions",
    "AuditOptions",
    "BenchOptions",
    "BlamePassOptions",
    "Bundle",
    "CompareOptions",
    "ConvertOptions",
    "DiffOptions",
    "DumpOptions",
    "EngineError",
    "FormatError",
    "Graph",
    "InputError",
    "JudgeOptions",
    "LoadRunError",
    "ModelOptions",
    "PackOptions",
    "Packer",
    "Parameter",
    "ProfileOptions",
    "ReduceOptions",
    "Replay",
    "Result",
    "RunOptions",
    "Runner",
    "ShareOptions",
    "SpecError",
    "Tensor",
    "Testcase",
    "UnpackOptions",
    "UnsupportedError",
    "Verdict",
    "VerifyOptions",
    "__version__",
    "accept_files",
    "audit_files",
    "bench_files",
    "blame_pass",
    "check",
    "compare_reports",
    "convert_file",
    "describe_engine",
    "describe_files",
    "diff_files",
    "judge_results",
    "load",
    "load_all",
    "loads",
    "pack_file",
    "profile_file",
    "random_inputs",
    "reduce_file",
    "register_engine",
    "replay_files",
    "report_history",
    "run",
    "save",
    "share_file",
    "tensor",
    "trace",
    "trace_module",
    "unpack_file",
    "verify_files",
]

# Where the names live; they are imported on first use, so that pytest's start, shell completion and
# worker processes pay for what they use alone.
_LATER = {
    "Bundle": "testcase",
    "EngineError": "base.errors",
    "FormatError": "base.errors",
    "Graph": "graph",
    "InputError": "base.errors",
    "LoadRunError": "base.errors",
    "Parameter": "tensors",
    "Result": "runner",
    "Runner": "runner",
    "SpecError": "base.errors",
    "Tensor": "tensors",
    "Testcase": "testcase",
    "UnsupportedError": "base.errors",
    "Verdict": "runner",
    "check": "verify.against",
    "load": "dump",
    "load_all": "dump",
    "loads": "dump",
    "random_inputs": "runner",
    "register_engine": "engines",
    "run": "runner",
    "save": "dump",
    "AcceptOptions": "verify.accepting",
    "AuditOptions": "verify.audit",
    "accept_files": "verify.accepting",
    "audit_files": "verify.audit",
    "BenchOptions": "verify.bench.files",
    "bench_files": "verify.bench.files",
    "CompareOptions": "report.changes",
    "compare_reports": "report.changes",
    "report_history": "report.history",
    "ConvertOptions": "onnx.converting",
    "convert_file": "onnx.converting",
    "ShareOptions": "verify.share",
    "share_file": "verify.share",
    "BlamePassOptions": "verify.blame_pass",
    "blame_pass": "verify.blame_pass",
    "ReduceOptions": "verify.reduce",
    "reduce_file": "verify.reduce",
    "DiffOptions": "verify.diff.files",
    "diff_files": "verify.diff.files",
    "DumpOptions": "dump.options",
    "JudgeOptions": "verify.saved",
    "judge_results": "verify.saved",
    "ModelOptions": "inputs.feeds",
    "PackOptions": "verify.pack.options",
    "Packer": "verify.pack.packing",
    "pack_file": "verify.pack.files",
    "ProfileOptions": "replay.options",
    "profile_file": "replay.profiling",
    "Replay": "replay.replaying",
    "RunOptions": "replay.options",
    "replay_files": "replay.replaying",
    "UnpackOptions": "verify.pack.unpacking",
    "unpack_file": "verify.pack.unpacking",
    "VerifyOptions": "verify.pack.verifying",
    "verify_files": "verify.pack.verifying",
    "describe_engine": "verify.pack.describing",
    "describe_files": "verify.pack.describing",
    "tensor": "tensors",
    "trace": "tracing",
    "trace_module": "tracing",
}
_PACKAGES = """
arrays base build compare dump engines graph inputs inputspec jit megengine onnx ops passes replay report runner
runtimes tensors testcase testing torch tracing verify
"""
__getattr__ = lazy(
    __name__, {n: f".{home}" for n, home in _LATER.items()} | dict.fromkeys(_PACKAGES.split(), ".")
)


def __dir__() -> list[str]:
    """List the names that are there, those included that are loaded on first use."""
    return sorted({*globals(), *_PACKAGES.split(), *_LATER} - {"lazy", "TYPE_CHECKING"})
