"""An ONNX file for runtimes that run it without a translation, and the tolerances and policies stored with it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import FormatError
from ..base.files import contents
from ..base.registry import late
from ..base.schema import exactly, mapping, number, text
from ..base.seals import digest_of, require_digest, sealed, unsealed
from ..compare.metrics import Formula
from ..compare.record import packed_policies
from ..graph import Graph, params as P
from ..graph.dtypes import Array, DType
from ..layers import emit as e
from ..passes.checks import formula
from ..tensors import Tensor, apply1, const
from ..tensors.access import as_vector, dtype_of, stored_shape
from ..testcase import Bundle, FileValue, SourceFile
from .messages import MapProto, ModelProto, OptionalProto, SequenceProto, TensorProto, TypeProto, parse
from .tensors import STRING, ExternalData, array, texts
from .types import dtype_of_kind, tensor_in
from .wire import field_bytes

with late(__name__):
    import json


RTOL, ATOL = 1e-3, 1e-7
BRAIN_RTOL = 2.0**-6
_BFLOAT16 = 16
_M, _T = P.ElemwiseMode, P.ElemwiseMultiTypeMode


def check(expect: Tensor, get: Tensor, kind: int, maxerr: float | None = None) -> Tensor:
    """Build an AssertEqual that passes if no difference exceeds the tolerance.

    By ONNX's rule equal infinities agree, and so does NaN with NaN. Values of different shapes do not.

    Args:
        expect: the expected value.
        get: what the graph computes.
        kind: ONNX's type of it; bfloat16 is compared with two of its last places.
        maxerr: the tolerance of MegEngine's formula, for a model that was a dump with such a check; None for ONNX's.
    """
    param = P.AssertEqual(maxerr=1.0 if maxerr is None else maxerr, verbose=False)
    try:
        np.broadcast_shapes(stored_shape(expect), stored_shape(get))
    except ValueError:
        # No formula can take them together.
        return apply1("AssertEqual", param, inputs=[expect, get, as_vector(const(1e30))], scalar=False)
    # MegEngine's operator wants its three inputs of one dtype; what that rounds is far below the tolerance.
    a, b = (e.as_float(as_vector(v)) for v in (expect, get))
    number = partial(const, dtype=dtype_of(a))
    difference = e.elem(_M.ABS, e.elem(_M.SUB, a, b))
    if maxerr is not None:
        least = e.elem(_M.MIN, e.elem(_M.ABS, a), e.elem(_M.ABS, b))
        ratio = e.elem(_M.TRUE_DIV, difference, e.elem(_M.MAX, least, number(1.0)))
        return apply1("AssertEqual", param, inputs=[a, b, _largest(expect, ratio)], scalar=False)
    rtol = BRAIN_RTOL if kind == _BFLOAT16 else RTOL
    same = e.elem(_M.OR, e.compare(_T.EQ, a, b), e.elem(_M.AND, e.is_nan(a), e.is_nan(b)))
    allowed = e.elem(_M.ADD, e.elem(_M.MUL, number(rtol), e.elem(_M.ABS, a)), number(ATOL))
    worst = _largest(expect, e.where(same, number(0.0), e.elem(_M.TRUE_DIV, difference, allowed)))
    sizes = [apply1("GetVarShapeV1", P.OptionalAxisV1(), inputs=[v], scalar=False) for v in (a, b)]
    other = e.logical_not(e.compare(_T.EQ, *sizes))
    shaped = as_vector(e.reduce(e.cast(other, dtype_of(a)), P.ReduceMode.MAX, [0]))
    err = e.elem(_M.ADD, worst, e.elem(_M.MUL, shaped, number(1e30)))
    return apply1("AssertEqual", param, inputs=[a, b, err], scalar=False)


def _largest(expect: Tensor, ratio: Tensor) -> Tensor:
    """Build the largest of some errors; 0 where the expected value has no elements, which have no largest one."""
    if 0 in stored_shape(expect):
        return as_vector(const(0.0, dtype_of(ratio)))
    largest = P.Reduce(mode=P.ReduceMode.MAX)
    return apply1("ReduceV2", largest, inputs=[ratio, as_vector(const(1))], scalar=False)


def parsed(data: memoryview, kind: TypeProto | None, folder: Path) -> FileValue:
    """Parse the value in the bytes of a test data file.

    Args:
        data: the bytes.
        kind: the type that the model declares.
        folder: where data outside the file is.

    Raises:
        FormatError: the bytes are no such value.
        UnsupportedTensorTypeError: it holds complex numbers.
    """
    external = ExternalData(folder)
    if kind is not None and kind.sequence is not None:
        return _items(parse(SequenceProto, data), external)
    if kind is not None and kind.map is not None:
        return _map(parse(MapProto, data), external)
    if kind is not None and kind.optional is not None:
        # ONNX's own tests also store a present element without the wrapping message.
        try:
            return _optional(parse(OptionalProto, data), external)
        except FormatError:
            return parsed(data, kind.optional.of, folder)
    return tensor_value(parse(TensorProto, data), external)


def tensor_value(proto: TensorProto, external: ExternalData) -> Array:
    """Return the value of a tensor, including text."""
    return texts(proto) if proto.data_type == STRING else np.array(array(proto, external))


def _items(proto: SequenceProto, external: ExternalData) -> list[FileValue]:
    values: list[FileValue] = [tensor_value(t, external) for t in proto.tensors]
    values += [_items(s, external) for s in proto.sequences]
    values += [_map(m, external) for m in proto.maps]
    return values + [_optional(o, external) for o in proto.optionals]


def _map(proto: MapProto, external: ExternalData) -> dict[object, object]:
    keys: list[object] = [k for row in proto.keys for k in row.tolist()]
    keys += [bytes(t).decode("utf-8", "replace") for t in proto.texts]
    values = _items(proto.values, external) if proto.values is not None else []
    if len(keys) != len(values):
        raise FormatError(f"a map has {len(keys)} keys and {len(values)} values")
    return dict(zip(keys, values, strict=True))


def _optional(proto: OptionalProto, external: ExternalData) -> FileValue:
    if proto.tensor is not None:
        return tensor_value(proto.tensor, external)
    if proto.sequence is not None:
        return _items(proto.sequence, external)
    if proto.map is not None:
        return _map(proto.map, external)
    return _optional(proto.optional, external) if proto.optional is not None else None


def file_dtype(kind: TypeProto | None) -> DType | None:
    """Return the element type of a declared value or of those in a sequence; None if it has none."""
    tensor = tensor_in(kind)
    if tensor is None or not tensor.elem:
        return None
    try:
        dtype = dtype_of_kind(tensor.elem)
        dtype.np  # noqa: B018
    except (FormatError, KeyError):
        return None
    return dtype


@dataclass(eq=False)
class OnnxFile(SourceFile):
    """An ONNX model, whose outputs are compared by the rule of ONNX's backend tests.

    Attributes:
        tolerances: those of outputs compared by MegEngine's formula instead of ONNX's rule, by name.
        metadata: the model's own, without the limits of its outputs.
    """

    format = "onnx"
    tolerances: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

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
        stored = model.graph.stored
        inputs = [i.name for i in model.graph.inputs if i.name not in stored]
        tensor_names = frozenset(n for node in model.graph.nodes for n in node.outputs if n)
        return cls(
            location,
            graph,
            inputs,
            outputs,
            scalars,
            len(model.graph.nodes),
            constants,
            tensor_names,
            tolerances=tolerances,
            metadata={p.key: p.value for p in model.properties if not p.key.startswith("loadrun:")},
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

    def terms(self, name: str) -> str:
        """Return the rule of ONNX's backend tests, empty for outputs that are compared by MegEngine's formula."""
        if name in self.tolerances:
            return ""
        return f"rtol={self._rtol(name):g}, atol={ATOL:g}, nan=equal"

    def _rtol(self, name: str) -> float:
        return BRAIN_RTOL if self.outputs.get(name) == DType("BFloat16") else RTOL

    def error(self, name: str, expect: Array, get: Array) -> float | None:
        """Compute the error by the rule of ONNX's backend tests, as graphs made from such files do."""
        if name in self.tolerances:
            return None
        return rule_error(expect, get, self._rtol(name))


def rule_error(expect: Array, get: Array, rtol: float = RTOL) -> float:
    """Compute the largest ``|expect - get| / (ATOL + rtol |expect|)``; at most 1 passes ONNX's backend tests.

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
        ratio = difference / (ATOL + rtol * np.abs(e))
        same = (expect == get) | ((expect != expect) & (get != get))
        return float(np.where(same, 0.0, ratio).max())


def accepted_file(model: Path) -> Path:
    """Return the file beside a model that records who accepted new expected values."""
    return model.with_name(f"{model.stem}.accepted.json")


def read_accepted(model: Path) -> list[object]:
    """Return the events of acceptance recorded beside a model, oldest first.

    Raises:
        FormatError: the record is damaged.
    """
    path = accepted_file(model)
    if not path.is_file():
        return []

    try:
        events = json.loads(bytes(contents(path, "the record")))
    except (ValueError, RecursionError):
        events = None
    if not isinstance(events, list):
        raise FormatError(
            "it is not a record of accepted values written by loadrun; remove it, or restore it",
            path=str(path),
        )
    return events


KEY = "loadrun:checks"
"""The key of the model's metadata."""
PROMISE = "loadrun:promise"
"""The key of the digest of that text: where the text is lost, that of the data must have it."""
NOT_PROVEN = "loadrun:not_proven"
"""The key under which stands what was not compared when the model was written, a line each."""
FILE = "checks.json"
"""The file in a folder of test data that says the same, for models that lost their metadata."""
_LARGEST = 1 << 24
_HALF = 1 + 2.0**-9
"""The rounding allowed in the error of a check that is computed in float16."""
_METADATA = f"the metadata {KEY!r}"
Limits = Mapping[str, Mapping[str, Any]]


def limits_of(bundle: Bundle) -> dict[str, dict[str, object]]:
    """Collect the checks of a file beyond ONNX's rule, by output name.

    Each is a mapping of ``maxerr``, the tolerance of MegEngine's formula, ``check``, the text of its policy, and
    ``loosened``, the tolerance that it had before. Quantized values are compared as integers, and a rule of ONNX's
    that was read is written again by itself: they have no ``maxerr``.

    >>> import loadrun
    >>> limits_of(loadrun.load("fixtures/nets/mlp.mge"))
    {'out': {'maxerr': 9.999999747378752e-06}}
    """
    policies, loosened = packed_policies(bundle.record)
    limits: dict[str, dict[str, object]] = {}
    outputs = bundle.outputs
    for check in bundle.checks:
        said: dict[str, object] = {}
        kind, dtype = formula(check), outputs[check.name].dtype
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


def metadata_of(limits: Limits) -> dict[str, str]:
    """Return the metadata that store limits in a model; the text is also what stands beside its data."""
    text = json.dumps(limits, sort_keys=True)
    return {KEY: sealed(text), PROMISE: digest_of(text.encode())}


def read_limits(
    model: ModelProto, folders: Sequence[Path], outputs: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Read the limits of outputs from a model's metadata, or from its data folders where it has none.

    Raises:
        FormatError: one of the texts is damaged, or the one that the model promises is missing.
    """
    promises = [p.value for p in model.properties if p.key == PROMISE]
    texts = [(_METADATA, p.value.encode("utf-8", "replace")) for p in model.properties if p.key == KEY]
    for folder in folders:
        if (folder / FILE).is_file():
            texts.append((str(folder / FILE), bytes(contents(folder / FILE, "the checks"))))
    limits: dict[str, dict[str, Any]] = {}
    digests = set()
    for where, said in texts:
        stored, digest = _parsed(where, said)
        if digest is not None and where == _METADATA and promises != [digest]:
            raise FormatError(
                f"{where} has a digest that {PROMISE!r} there does not promise; restore the model"
            )
        digests.add(digest)
        limits = {**{n: limit for n, limit in stored.items() if n in outputs}, **limits}
    if not digests.issuperset(promises):
        raise FormatError(
            f"the checks that the metadata {PROMISE!r} of the ONNX model promise are neither in {_METADATA} nor in a "
            f"{FILE} of the data sets, so that what outputs must fulfil is not known: restore the model, or convert it "
            "anew"
        )
    return limits


_POSITIVE = number(0.0, finite=False)


def _limit(value: object, where: str) -> float:
    if math.isnan(limit := _POSITIVE(value, where)):
        raise FormatError(f"{where} is NaN")
    return limit


_LIMITS = mapping(exactly({}, {"maxerr": _limit, "check": text, "loosened": _limit}))


def _parsed(where: str, text: bytes) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Parse a text into limits and its digest."""
    plain, digest = unsealed(text)
    try:
        if len(plain) > _LARGEST:
            raise FormatError(f"it has {len(plain)} bytes")
        limits = _LIMITS(json.loads(plain), "it")
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{where} is not a record of checks written by loadrun: {e}") from None
    require_digest(plain, digest, where)
    return limits, digest


def record_of(limits: Limits, accepted: Sequence[object] = ()) -> dict[str, object] | None:
    """Build the stand-in for a dump's record in a model's bundle; None if there is nothing to tell.

    Args:
        limits: what outputs must fulfil, of which policies are kept.
        accepted: who accepted new expected values (`read_accepted`).
    """
    kept = {n: said for n, said in limits.items() if "check" in said or "loosened" in said}
    record = {**({"policy": kept} if kept else {}), **({"accepted": accepted} if accepted else {})}
    return {"record": 1, **record} if record else None
