"""Testcases and bundles: a graph together with inputs to feed and values that its checks expect."""

from .bundles.bundle import FORWARDING, Bundle, Check, FileFacts, ModelSource, SourceFile, checks_of
from .bundles.cases import EXPECT, FileValue, LazyTestcases, Testcase, spread

__all__ = ["Bundle", "FileFacts", "ModelSource", "SourceFile"]
__all__ += ["EXPECT", "FileValue", "LazyTestcases", "Testcase", "spread"]
__all__ += ["FORWARDING", "Check", "checks_of"]
