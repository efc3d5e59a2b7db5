"""What is written is read again: any graph, in every format; every fixture, byte for byte the second time."""

from __future__ import annotations

from pathlib import Path
from struct import unpack_from

import pytest
from hypothesis import HealthCheck, given, settings

from loadrun.dump import load_all, loads
from loadrun.dump.flat import Buffer
from loadrun.dump.writer import dump_bytes
from loadrun.graph import Graph
from loadrun.testing.strategies import graphs
from tests.support.cases import check_all, fewer, in_groups, kind_of_file, some_of
from tests.support.dump_graphs import plain
from tests.support.fixture_files import FIXTURES, fixture_names


def kept(graph: Graph, fmt: str) -> list[object]:
    """What a graph made in memory and its file have in common."""
    wanted = plain(graph)
    ops = []
    for o in wanted["oprs"]:
        tensors = o["tensors"]
        if fmt == "FBS" and "WithFormat" not in o["type"]:
            tensors = [t[:5] for t in tensors]
        elif fmt != "FBS":
            tensors = [(*t[:5], t[5] if t[5] and t[5].kind > 1 else None) for t in tensors]
        ops.append(
            {**{k: o[k] for k in ("type", "params", "inputs", "name", "output_dtype")}, "tensors": tensors}
        )
        ops[-1].update({k: o[k] for k in ("comp_node", "priority")}, outputs=[v[:2] for v in o["outputs"]])
        if not tensors:
            ops[-1]["blobs"] = o["blobs"]
    return [ops, *(wanted[k] for k in ("outputs", "original_ids"))]


@pytest.mark.parametrize(("fmt", "magic"), [("FBS_V2", ""), ("FBS", "MGBC"), ("FBS", "MGBS")])
@settings(max_examples=fewer(40, 2), deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=graphs())
def test_any_graph(fmt: str, magic: str, graph: Graph) -> None:
    graph.header.magic = magic
    data = dump_bytes(graph, format=fmt)
    bundle = loads(data)
    first = bundle.graph
    assert bundle.facts.size == len(data)
    assert kept(first, fmt) == kept(graph, fmt)
    assert (first.header.format, first.header.magic) == (fmt, magic or "mgv2")
    if graph.header.metadata is not None and graph.header.metadata.user_info is not None:
        assert first.header.metadata == graph.header.metadata
    again = dump_bytes(first)
    assert plain(loads(again).graph) == plain(first)
    assert dump_bytes(loads(again).graph) == again


@pytest.mark.parametrize(
    "names", in_groups(some_of(fixture_names(), 8, kind_of_file), lambda name: Path(name).parent.as_posix())
)
def test_fixtures(names: list[str]) -> None:
    """Nothing that a file of real MegEngine says is lost, and writing is stable."""
    check_all(names, round_trip)


def parameters(data: bytes | memoryview) -> int:
    """How many of its tensors a dump says are shared parameters."""
    header = {b"MGBC": 24, b"MGBS": 16}.get(bytes(data[:4]))
    start = 4 if header is None else header + unpack_from("<Q", data, header - 8)[0] + 4
    slot, identifier = (6, b"mgv2") if header is None else (2, b"mgb1")
    return Buffer(memoryview(data)[start:], start, identifier).root().integer(slot, "uint")


def round_trip(name: str) -> None:
    for bundle in load_all(FIXTURES / name):
        data = dump_bytes(bundle.graph)
        assert bundle.facts.model is not None
        # Some that loadrun itself wrote count none.
        assert parameters(bundle.facts.model) in (parameters(data), 0)
        again = loads(data).graph
        assert plain(again) == plain(bundle.graph)
        assert dump_bytes(again) == data
