"""What ONNX's schemas say of a node: its inputs, their types, its attributes and the versions of its operator.

`schemas.txt` has them, a line for each version of an operator; `scripts/onnx_schemas.py` writes it.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..base.files import contents
from ..graph.dtypes import DType
from .messages import AttributeProto
from .types import kind_of_dtype

_KINDS = dict(
    enumerate(("a float", "an integer", "text", "a tensor", "a graph", "floats", "integers", "texts"), 1)
)


class Schema(NamedTuple):
    """One version of an operator.

    Attributes:
        since: the first version of the domain.
        deprecated: whether the operator ends with it.
        inputs: pairs of a type constraint and "", "?" (may be left out), "*" or "+" (repeats, of one type or any).
        outputs: the most outputs.
        types: allowed types by constraint: numbers of element types, "s", "o", "m" for containers.
        attributes: the kind of each attribute, as a number, with "!" where it is required.
    """

    since: int
    deprecated: bool
    inputs: tuple[tuple[str, str], ...]
    outputs: int
    types: Mapping[str, frozenset[str]]
    attributes: Mapping[str, str]


@cache
def _table() -> str:
    return "\n" + bytes(contents(Path(__file__).with_name("schemas.txt"), "the schemas")).decode()


@cache
def versions_of(domain: str, op: str) -> tuple[Schema, ...]:
    """Return the versions of an operator, the oldest first; none if the table does not have it.

    >>> [s.since for s in versions_of("", "Clip")]
    [1, 6, 11, 12, 13]
    """
    table, head = _table(), f"\n{domain}\t{op}\t"
    versions = []
    at = table.find(head)
    while at >= 0:
        versions.append(_parsed(table[at + len(head) : table.index("\n", at + 1)]))
        at = table.find(head, at + 1)
    return tuple(versions)


def _parsed(line: str) -> Schema:
    since, inputs, outputs, types, attributes = line.split("\t")
    pairs = [(t.rstrip("?*+"), t[len(t.rstrip("?*+")) :]) for t in inputs.split(",") if t]
    constraints = dict(c.split("=") for c in types.split(",") if c)
    return Schema(
        abs(int(since)),
        since.startswith("-"),
        tuple(pairs),
        int(outputs),
        {n: frozenset(t.split()) for n, t in constraints.items()},
        dict(a.split(":") for a in attributes.split(",") if a),
    )


def check(
    domain: str,
    op: str,
    opset: int,
    inputs: Sequence[DType | None],
    outputs: int,
    attributes: Mapping[str, AttributeProto],
) -> None:
    """Check a node against the schema of its operator; one that the table does not have is not checked.

    Args:
        domain, op, opset: the operator and the version of its domain that the model imports.
        inputs: the types of the inputs, None for those left out.
        outputs: how many outputs the node names.
        attributes: its attributes.

    Raises:
        ValueError: it contradicts the schema; the text says how, in words that follow the node's name.
    """
    versions = versions_of(domain, op)
    if not versions:
        return
    where = domain or "ai.onnx"
    # Runtimes go on running what newer versions advise against.
    schema = next((s for s in reversed(versions) if s.since <= opset and not s.deprecated), None)
    if schema is None:
        raise ValueError(
            f"{op} is new in version {versions[0].since} of {where}, and the model imports version {opset}"
        )
    for problem in (
        *_attribute_problems(schema, attributes),
        *_count_problems(schema, inputs, outputs),
        *_type_problems(schema, inputs),
    ):
        raise ValueError(f"{problem}, in version {opset} of {where}")


def _attribute_problems(schema: Schema, attributes: Mapping[str, AttributeProto]) -> Iterator[str]:
    for name, attribute in attributes.items():
        kind = schema.attributes.get(name)
        if kind is None:
            others = ", ".join(schema.attributes) or "none"
            yield f"it has the attribute {name!r}, which its operator does not have ({others})"
        elif attribute.type not in (0, int(kind.rstrip("!"))) and not _is_empty(attribute):
            was = _KINDS.get(attribute.type, f"of type {attribute.type}")
            yield f"its attribute {name} is {was}, expected {_KINDS.get(int(kind.rstrip('!')), kind)}"
    for name, kind in schema.attributes.items():
        if kind.endswith("!") and name not in attributes:
            yield f"its attribute {name} is missing"


def _is_empty(attribute: AttributeProto) -> bool:
    """Return whether an attribute is a list without entries, whose type says nothing."""
    rows = (*attribute.ints, *attribute.floats)
    return attribute.type in (6, 7, 8) and not attribute.strings and not any(map(len, rows))


def _count_problems(schema: Schema, inputs: Sequence[DType | None], outputs: int) -> Iterator[str]:
    repeats = bool(schema.inputs) and schema.inputs[-1][1] in ("*", "+")
    if len(inputs) > len(schema.inputs) and not repeats:
        yield f"it has {len(inputs)} inputs, but its operator takes {len(schema.inputs)}"
    for i, (_, mark) in enumerate(schema.inputs):
        if mark == "" and (i >= len(inputs) or inputs[i] is None):
            yield f"its input {i} is missing"
    if outputs > schema.outputs:
        yield f"it has {outputs} outputs, but its operator gives {schema.outputs}"


def _type_problems(schema: Schema, inputs: Sequence[DType | None]) -> Iterator[str]:
    bound: dict[str, DType] = {}
    for i, dtype in enumerate(inputs):
        constraint, mark = schema.inputs[min(i, len(schema.inputs) - 1)]
        if dtype is None:
            continue
        allowed = schema.types[constraint]
        if dtype.name == "Object":
            if not allowed & {"s", "o", "m"}:
                yield f"its input {i} is a sequence, map or optional value, expected a tensor"
            continue
        if str(kind_of_dtype(dtype)) not in allowed:
            yield f"its input {i} is {dtype.spelling}, which its operator does not take"
        elif mark != "+" and bound.setdefault(constraint, dtype) != dtype:
            yield f"its input {i} is {dtype.spelling}, but another one of the same type {bound[constraint].spelling}"
