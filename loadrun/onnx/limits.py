"""Tolerances and policies of checks, for which ONNX has no place: in the metadata of a model and beside its data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.errors import FormatError
from ..base.files import contents
from ..base.schema import number
from ..compare.formula import Formula
from ..compare.recorded import packed_policies
from ..passes.checks import formula
from ..testcase import Bundle
from .messages import ModelProto

__all__ = ["FILE", "KEY", "limits_of", "read_limits", "record_of", "text_of"]

KEY = "loadrun:checks"
"""The key of the model's metadata."""
FILE = "checks.json"
"""The file in a folder of test data that says the same, for models that lost their metadata."""
_LARGEST = 1 << 24
_HALF = 1 + 2.0**-9
"""The rounding allowed in the error of a check that is computed in float16."""
Limits = Mapping[str, Mapping[str, Any]]


def limits_of(bundle: Bundle) -> dict[str, dict[str, object]]:
    """Collect the checks of a file beyond ONNX's rule, by output name.

    Each is a mapping of ``maxerr``, the tolerance of MegEngine's formula, ``check``, the text of its policy, and
    ``loosened``, the tolerance that it had before. Quantized values are compared as whole numbers, and a rule of ONNX's
    that was read is written again by itself: they have no ``maxerr``.

    >>> import loadrun
    >>> limits_of(loadrun.load("fixtures/nets/mlp.mge"))
    {'out': {'maxerr': 9.999999747378752e-06}}
    """
    policies, loosened = packed_policies(bundle.record)
    found: dict[str, dict[str, object]] = {}
    for check in bundle.checks:
        said: dict[str, object] = {}
        kind, dtype = formula(check), bundle.outputs[check.name].dtype
        quantized = dtype is not None and dtype.is_quantized
        if not quantized and not (kind is Formula.OTHER and check.maxerr >= 1):
            # NaN and negative tolerances let nothing pass; 0 is the closest that JSON can hold.
            said["maxerr"] = max(0.0, check.maxerr) * (_HALF if kind is Formula.NARROW else 1)
        if check.name in policies:
            said["check"] = policies[check.name].text
        if check.name in loosened:
            said["loosened"] = loosened[check.name]
        if said:
            found[check.name] = said
    return found


def text_of(limits: Limits) -> str:
    """Serialize limits to the text stored in a model or beside its data."""
    return json.dumps(limits, sort_keys=True)


def read_limits(
    model: ModelProto, folders: Sequence[Path], outputs: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Read the limits of outputs from a model's metadata, or from its data folders where it has none.

    Raises:
        FormatError: one of the texts is damaged.
    """
    texts = [(f"the metadata {KEY!r}", p.value) for p in model.properties if p.key == KEY]
    for folder in folders:
        if (folder / FILE).is_file():
            texts.append(
                (str(folder / FILE), contents(folder / FILE, "the checks").decode("utf-8", "replace"))
            )
    found: dict[str, dict[str, Any]] = {}
    for where, text in texts:
        for name, said in _parsed(where, text).items():
            if name in outputs:
                found.setdefault(name, said)
    return found


def _parsed(where: str, text: str) -> dict[str, dict[str, Any]]:
    """Parse a text into limits and check their types."""
    try:
        data = json.loads(text) if len(text) <= _LARGEST else None
    except (ValueError, RecursionError):
        data = None
    good = isinstance(data, dict) and all(isinstance(said, dict) and _fits(said) for said in data.values())
    if not good:
        raise FormatError(f"{where} is not a record of checks written by loadrun")
    return dict(data or {})


def _fits(said: Mapping[str, Any]) -> bool:
    try:
        numbers = [number(0.0, finite=False)(said.get(n, 0.0), n) for n in ("maxerr", "loosened")]
    except FormatError:
        return False
    return not any(map(math.isnan, numbers)) and isinstance(said.get("check", ""), str)


def record_of(limits: Limits) -> dict[str, object] | None:
    """Build the stand-in for a dump's record in a model's bundle; None if outputs have no policies."""
    kept = {n: said for n, said in limits.items() if "check" in said or "loosened" in said}
    return {"record": 1, "policy": kept} if kept else None
