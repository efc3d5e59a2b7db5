"""What a dump's checks ask of outputs beyond ONNX's rule, in a model's metadata and beside its data."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.errors import FormatError
from ..base.files import contents
from ..base.registry import late
from ..base.schema import exactly, mapping, number, text
from ..base.seals import digest_of, require_digest, sealed, unsealed
from ..compare.metrics import Formula
from ..compare.record import packed_policies
from ..passes.checks import formula
from ..testcase import Bundle
from .messages import ModelProto

with late(__name__):
    import json

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
