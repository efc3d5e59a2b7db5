"""Write loadrun/onnx/schemas.txt: what ONNX's schemas, and ONNX Runtime's of com.microsoft, say of nodes.

Usage: ``python scripts/onnx_schemas.py``. Needs the packages onnx and onnxruntime.

A line holds, with tabs between them: domain, operator, first version (``-`` before it where the operator is deprecated
from there on), inputs, the most outputs, type constraints, attributes. An input is its constraint, with ``?`` where
it may be left out, ``*`` where it repeats with one type, ``+`` where each may have another. A constraint lists ONNX's
numbers of element types, ``s``, ``o`` and ``m`` for sequences, optional values and maps. An attribute is its name and
the number of its kind, with ``!`` where it is required.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.capi import _pybind_state

TABLE = Path(__file__).parent.parent / "loadrun" / "onnx" / "schemas.txt"
_CONTAINERS = {"seq": "s", "sequence": "s", "optional": "o", "map": "m", "sparse_tensor": "p"}


def types(allowed: list[str]) -> str:
    """The allowed types as numbers and letters."""
    found: set[str] = set()
    for text in allowed:
        tensor = re.fullmatch(r"tensor\((\w+)\)", text)
        if tensor:
            found.add(str(onnx.TensorProto.DataType.Value(tensor[1].upper())))
        else:
            found.add(_CONTAINERS[text.split("(")[0]])
    return " ".join(sorted(found, key=lambda t: (not t.isdigit(), t.rjust(2))))


def kind(option: Any, homogeneous: bool) -> str:
    """The mark of an input."""
    name = str(option).rsplit(".", 1)[-1]
    return {"Single": "", "Optional": "?", "Variadic": "*" if homogeneous else "+"}[name]


def line(schema: Any) -> str:
    """The line of one version of an operator."""
    constraints = {c.type_param_str: types(list(c.allowed_type_strs)) for c in schema.type_constraints}
    inputs = []
    for one in schema.inputs:
        text = getattr(one, "type_str", None) or one.typeStr
        if text not in constraints:
            constraints[text] = types([text])
        homogeneous = one.is_homogeneous if hasattr(one, "is_homogeneous") else one.isHomogeneous
        inputs.append(text + kind(one.option, homogeneous))
    read = {text.rstrip("?*+") for text in inputs}
    attributes = [
        f"{n}:{int(a.type.value if hasattr(a.type, 'value') else a.type)}{'!' if a.required else ''}"
        for n, a in sorted(schema.attributes.items())
    ]
    return "\t".join(
        (
            schema.domain,
            schema.name,
            f"{'-' if schema.deprecated else ''}{schema.since_version}",
            ",".join(inputs),
            str(min(schema.max_output, 2**31 - 1)),
            ",".join(f"{n}={t}" for n, t in constraints.items() if n in read),
            ",".join(attributes),
        )
    )


def main() -> None:
    """Write the table."""
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain != "ai.onnx.preview"]
    schemas += [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == "ai.onnx.preview"]
    schemas += [s for s in _pybind_state.get_all_operator_schema() if s.domain == "com.microsoft"]
    rows = sorted(schemas, key=lambda s: (s.domain, s.name, s.since_version))
    TABLE.write_text("".join(line(s) + "\n" for s in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
