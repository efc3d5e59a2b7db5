"""As much of JSON Schema as docs/report.schema.json uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

KNOWN = {"$schema", "$id", "$defs", "$ref", "title", "description", "type", "required", "properties"}
KNOWN |= {"items", "enum", "const", "anyOf", "minimum", "additionalProperties"}
TYPES: dict[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def faults(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], at: str = "$") -> Iterator[str]:
    """Where a value is not as the schema says."""
    assert set(schema) <= KNOWN, f"{at}: this validator does not know {set(schema) - KNOWN}"
    if "$ref" in schema:
        yield from faults(value, resolved(schema["$ref"], root), root, at)
    if "anyOf" in schema and all(list(faults(value, s, root, at)) for s in schema["anyOf"]):
        yield f"{at}: {value!r} is none of the allowed"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(is_a(value, kind) for kind in kinds):
        yield f"{at}: {value!r} is no {' or '.join(kinds)}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is not listed"
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r} is not {schema['const']!r}"
    if "minimum" in schema and is_a(value, "number") and value < schema["minimum"]:
        yield f"{at}: {value!r} is too small"
    if isinstance(value, dict):
        yield from (f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in value)
        for name, inner in value.items():
            if name in schema.get("properties", {}):
                yield from faults(inner, schema["properties"][name], root, f"{at}.{name}")
            elif "additionalProperties" in schema:
                yield from faults(inner, schema["additionalProperties"], root, f"{at}.{name}")
    if isinstance(value, list) and "items" in schema:
        for i, inner in enumerate(value):
            yield from faults(inner, schema["items"], root, f"{at}[{i}]")


def resolved(pointer: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference within the schema names."""
    found = root
    for part in pointer.removeprefix("#/").split("/"):
        found = found[part]
    return found


def is_a(value: Any, kind: str) -> bool:
    """Whether a value is of a type of JSON."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "number":
        return number
    return number and float(value).is_integer() if kind == "integer" else isinstance(value, TYPES[kind])


def undescribed(
    value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], at: str = "$"
) -> Iterator[str]:
    """Fields that the schema does not name."""
    if "$ref" in schema:
        schema = resolved(schema["$ref"], root)
    for choice in schema.get("anyOf", ()):
        if not list(faults(value, choice, root)):
            yield from undescribed(value, choice, root, at)
    known = schema.get("properties", {})
    if isinstance(value, dict) and known:
        yield from (f"{at}.{name}" for name in value if name not in known)
        for name in value.keys() & known.keys():
            yield from undescribed(value[name], known[name], root, f"{at}.{name}")
    if isinstance(value, list) and "items" in schema:
        for i, inner in enumerate(value):
            yield from undescribed(inner, schema["items"], root, f"{at}[{i}]")
