"""Testcases and bundles: a graph together with inputs to feed and values that its checks expect."""

from .bundles.bundle import Bundle, FileFacts, ModelSource, SourceFile
from .bundles.cases import EXPECT, FileValue, LazyTestcases, Testcase, spread
from .bundles.checks import FORWARDING, Check, checks_of

__all__ = ["Bundle", "FileFacts", "ModelSource", "SourceFile"]
__all__ += ["EXPECT", "FileValue", "LazyTestcases", "Testcase", "spread"]
__all__ += ["FORWARDING", "Check", "checks_of"]
