"""An ONNX file for runtimes that run it without a translation, and the tolerances and policies stored with it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import FormatError
from ..base.files import contents
from ..base.schema import number
from ..compare.metrics import Formula
from ..compare.recorded import packed_policies
from ..graph import Graph
from ..graph.dtypes import Array, DType
from ..passes.checks import formula
from ..testcase import Bundle, FileValue
from .checks import ATOL, BRAIN_RTOL, RTOL
from .messages import ModelProto, TypeProto, ValueInfoProto
from .tensors import kind_name
from .wire import field_bytes

__all__ = [
    "FILE",
    "KEY",
    "OnnxFile",
    "file_dtype",
    "limits_of",
    "read_limits",
    "record_of",
    "rule_error",
    "text_of",
]

_NAMES = {
    "float": "Float32",
    "double": "Float64",
    "bfloat16": "BFloat16",
    **{f"float8{n}": f"Float8{n.upper()}" for n in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0")},
    "float4e2m1": "Float4E2M1",
}


def file_dtype(kind: TypeProto | None) -> DType | None:
    """Return the element type of a declared value or of those in a sequence; None if it has none."""
    while kind is not None and kind.tensor is None:
        inner = kind.sequence or kind.optional
        kind = inner.of if inner is not None else None
    if kind is None or kind.tensor is None or not kind.tensor.elem:
        return None
    name = kind_name(kind.tensor.elem)
    try:
        dtype = DType(_NAMES.get(name, name.capitalize()))
        dtype.np  # noqa: B018
    except KeyError:
        return None
    return dtype


@dataclass(eq=False)
class OnnxFile:
    """See `loadrun.testcase.SourceFile`.

    Attributes:
        tolerances: those of outputs compared by MegEngine's formula instead of ONNX's rule, by name.
    """

    location: str | bytes
    graph: Graph
    inputs: Sequence[str]
    outputs: Mapping[str, DType | None]
    constants: Mapping[str, FileValue]
    scalars: frozenset[str]
    nodes: int
    tensors: frozenset[str] = frozenset()
    folder: str | None = None
    tolerances: Mapping[str, float] = field(default_factory=dict)
    format: str = field(default="onnx", init=False)

    @classmethod
    def of(
        cls,
        model: ModelProto,
        location: str | bytes,
        graph: Graph,
        constants: Mapping[str, FileValue],
        tolerances: Mapping[str, float],
    ) -> OnnxFile:
        """Build the file's record from a model that was read."""
        assert model.graph is not None
        outputs = {o.name: file_dtype(o.type) for o in model.graph.outputs}
        tensors = {i.name: i.type.tensor for i in model.graph.inputs if i.type is not None}
        shapes = {n: t.shape for n, t in tensors.items() if t is not None}
        scalars = frozenset(n for n, s in shapes.items() if s is not None and not s.dims)
        stored = {t.name for t in model.graph.initializers}
        inputs = [i.name for i in model.graph.inputs if i.name not in stored]
        tensor_names = frozenset(n for node in model.graph.nodes for n in node.outputs if n)
        nodes = len(model.graph.nodes)
        return cls(
            location, graph, inputs, outputs, constants, scalars, nodes, tensor_names, tolerances=tolerances
        )

    def asking(self, names: Sequence[str]) -> OnnxFile:
        """See `loadrun.testcase.SourceFile.asking`.

        Protobuf merges a message that comes twice, so further outputs are appended to the file as a graph of nothing
        else: no byte of the file changes.
        """
        where, folder = self.location, self.folder
        if isinstance(where, str):
            data, folder = bytes(contents(where, "a model")), os.path.dirname(os.path.abspath(where))
        else:
            data = where
        more = [n for n in dict.fromkeys(names) if n not in self.outputs]
        added = b"".join(field_bytes(12, field_bytes(1, n.encode())) for n in more)
        outputs = {**self.outputs, **dict.fromkeys(more)}
        return replace(self, location=data + field_bytes(7, added), outputs=outputs, folder=folder)

    def maxerr(self, name: str) -> float:
        """Return the largest `error` allowed, or 1 (MegEngine's measure) without a tolerance."""
        return self.tolerances.get(name, 1.0)

    def error(self, name: str, expect: Array, get: Array) -> float | None:
        """Compute the error by the rule of ONNX's backend tests, as graphs made from such files do."""
        if name in self.tolerances:
            return None
        dtype = self.outputs.get(name)
        return rule_error(expect, get, BRAIN_RTOL if dtype == DType("BFloat16") else RTOL)


def rule_error(expect: Array, get: Array, rtol: float = RTOL, atol: float = ATOL) -> float:
    """Compute the largest ``|expect - get| / (atol + rtol |expect|)``; at most 1 passes ONNX's backend tests.

    Equal infinities agree, and so does NaN with NaN. NaN where dtypes or shapes differ. Text agrees where it is equal.

    >>> rule_error(np.array([1.0, np.inf]), np.array([1.002, np.inf])) > 1
    True
    """
    text = expect.dtype.kind == get.dtype.kind == "U"
    if expect.shape != get.shape or not (text or expect.dtype == get.dtype):
        return float("nan")
    if not expect.size:
        return 0.0
    if text:
        return 0.0 if bool((expect == get).all()) else float("inf")
    with np.errstate(all="ignore"):
        e = expect.astype(np.float64)
        difference = np.abs(get.astype(np.float64) - e)
        ratio = difference / (atol + rtol * np.abs(e))
        same = (expect == get) | ((expect != expect) & (get != get))
        return float(np.where(same, 0.0, ratio).max())


def declared(infos: list[ValueInfoProto]) -> dict[str, TypeProto | None]:
    """Map names to declared types."""
    return {i.name: i.type for i in infos}


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
    limits: dict[str, dict[str, object]] = {}
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
            limits[check.name] = said
    return limits


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
    limits: dict[str, dict[str, Any]] = {}
    for where, text in texts:
        for name, said in _parsed(where, text).items():
            if name in outputs:
                limits.setdefault(name, said)
    return limits


def _parsed(where: str, text: str) -> dict[str, dict[str, Any]]:
    """Parse a text into limits and check their types."""
    try:
        data = json.loads(text) if len(text) <= _LARGEST else None
    except (ValueError, RecursionError):
        data = None
    good = isinstance(data, dict) and all(isinstance(said, dict) and _fits(said) for said in data.values())
    if not good:
        raise FormatError(f"{where} is no record of checks as loadrun writes it")
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
