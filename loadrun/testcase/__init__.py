"""Testcases and bundles: a graph together with inputs to feed and values that its checks expect."""

from .bundle import Bundle, FileFacts, ModelSource, NamedRuntime, SourceFile
from .cases import EXPECT, FileValue, LazyTestcases, Testcase, spread
from .checks import FORWARDING, Check, checks_of

__all__ = ["Bundle", "FileFacts", "ModelSource", "NamedRuntime", "SourceFile"]
__all__ += ["EXPECT", "FileValue", "LazyTestcases", "Testcase", "spread"]
__all__ += ["FORWARDING", "Check", "checks_of"]
