"""The catalog against the facts of MegEngine's registry, and what follows from its lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadrun.ops.catalog import CATALOG
from loadrun.ops.formulas import FORMULAS
from loadrun.ops.op import Op, Trait, unversioned_id
from loadrun.ops.registry import implementation

REGISTRY = json.loads((Path(__file__).parent.parent / "data" / "registry.json").read_text())
FACTS: dict[str, dict[str, Any]] = {row["name"]: row for row in REGISTRY["operators"]}


KNOWN = {
    "class": 185,
    "type_ids": 186,
    "category": 186,
    "inputs": 186,
    "params": 186,
    "outputs": 186,
    "scratch": 103,
}
"""Of how many operators the registry tells what."""


def differing(fact: str, declared: Any) -> dict[str, Any]:
    """List the operators for which the registry says something else: what it says and what is declared."""
    pairs = {n: (row[fact], declared(CATALOG[n])) for n, row in FACTS.items() if row.get(fact) is not None}
    assert len(pairs) == KNOWN[fact]
    return {n: pair for n, pair in pairs.items() if pair[0] != pair[1]}


def test_operators() -> None:
    """Composite operators are those of other frameworks, which no dump holds."""
    assert set(FACTS) == {n for n, op in CATALOG.items() if op.category != "composite"}


def test_class_names() -> None:
    """What a loaded graph, MegEngine's messages and ``strip_info_file`` call them."""
    assert differing("class", lambda op: op.class_name) == {}


def test_type_ids() -> None:
    def declared(op: Op) -> dict[str, Any]:
        v2 = [1, str(op.id_mgbs)] if op.id_v2 is None else [2, str(op.id_v2)]
        return {"v1": str(op.id_v1), "v2": v2}

    assert differing("type_ids", declared) == {}


def test_categories_inputs_and_records() -> None:
    # Like the transposed convolutions it is run, unlike what is called backward.
    transposed = {"RegionRestrictedConvolutionBackwardData": ("backward", "inference")}
    assert differing("category", lambda op: op.category) == transposed
    assert differing("inputs", lambda op: op.inputs) == {}
    assert differing("params", lambda op: [kind.code for kind in op.params]) == {}


def test_outputs() -> None:
    """Numbers; words stand for what a function counts, or for operators of unknown content."""
    odd = differing("outputs", lambda op: op.outputs)
    counted = {n for n, (_, declared) in odd.items() if callable(declared)}
    assert {n for n in odd if n not in counted} == {"opr::Loop", "InputMaker", "CounterProvider"}
    assert not any(isinstance(odd[n][0], int) for n in counted)


def test_scratch_memory() -> None:
    assert differing("scratch", lambda op: Trait.NO_WORKSPACE not in op.traits) == {}


def test_releases() -> None:
    later = {n for n, row in FACTS.items() if row.get("not_in_1_13_0")}
    assert {n for n, op in CATALOG.items() if Trait.LATER in op.traits} == later


def test_retired_names() -> None:
    """A name of a release before 1.8 has the id of the operator that it loads as."""
    for name, loads_as in REGISTRY["retired"].items():
        found = [op.name for op in CATALOG.values() if op.id_mgbs == unversioned_id(name)]
        assert found == [loads_as] * (loads_as is not None)


@pytest.mark.parametrize("op", CATALOG.values(), ids=lambda op: op.name)
def test_declarations_agree(op: Op) -> None:
    """A family holds a kernel, a formula exists, and traits go together."""
    if op.family:
        assert implementation(op.name).name == op.name
    else:
        assert op.category in ("backward", "vendor", "control_flow", "training"), (
            "what has no kernel says why"
        )
    if op.wide:
        assert callable(FORMULAS[op.name])
        assert Trait.MOVES not in op.traits, "a formula, or the kernel itself"
    t = op.traits
    assert Trait.CONTIGUOUS not in t or Trait.VIEW in t
    assert sum(kind in t for kind in (Trait.VIEW, Trait.IN_PLACE, Trait.INTO_FIRST)) <= 1
    assert sum(kind in t for kind in (Trait.CONSTANT, Trait.EFFECTS, Trait.RANDOM)) <= 1
    assert all(i < len(op.inputs.split()) for i in op.float32_inputs)
