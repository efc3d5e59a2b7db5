"""What each broken rule is called: the messages of ``tests/golden/format_errors.txt``, word for word.

The offsets are left out there, since they depend on how the flatbuffers package lays tables out; that every
message names one is checked here.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from loadrun.base.errors import FormatError
from loadrun.dump import loads
from loadrun.dump.writer import dump_bytes
from loadrun.graph import Graph, Header, StoredTensor
from loadrun.graph.params import AxisAddRemove, CondExecMerge, Convolution, Elemwise, Host2DeviceCopy
from tests.attacks.attack_files import F32, V1, V2, constant, container, good, small

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "format_errors.txt"
CASES: dict[str, Callable[[], bytes]] = {}


def case(make: Callable[[], bytes]) -> Callable[[], bytes]:
    CASES[make.__name__] = make
    return make


def parts() -> tuple[V2, int, int]:
    """A builder, a graph input, and the list [0] of operator inputs."""
    f = V2()
    x = f.held(f.tensor([4], name=f.e.string("x")), "Host2DeviceCopy", Host2DeviceCopy())
    inputs = f.e.numbers([0])
    assert inputs is not None
    return f, x, inputs


@case
def empty() -> bytes:
    return b""


@case
def text_file() -> bytes:
    return b"hello world, this is text"


@case
def onnx_model() -> bytes:
    return b"\x08\x07\x12\x07pytorch\x1a\x031.9:" + bytes(200)


@case
def numpy_array() -> bytes:
    return b"\x93NUMPY\x01\x00" + bytes(60)


@case
def lfs_pointer() -> bytes:
    return b"version https://git-lfs.github.com/spec/v1\n"


@case
def python_pickle() -> bytes:
    return b"\x80\x04K\x01."


@case
def truncated_v2() -> bytes:
    return good()[:200]


@case
def truncated_v1_values() -> bytes:
    return b"MGBC" + bytes(12) + struct.pack("<Q", 1000) + bytes(10)


@case
def truncated_v1_graph() -> bytes:
    return good("FBS")[:-1]


@case
def truncated_v1_header() -> bytes:
    return b"MGBC" + bytes(12)


@case
def truncated_container() -> bytes:
    return b"mgbtest0\1"


@case
def missing_testcases() -> bytes:
    return container(good(), good(), count=3)


@case
def foreign_testcase() -> bytes:
    return container(good(), b"MGBX" + bytes(30))


@case
def not_the_identifier() -> bytes:
    data = good("FBS")
    return data.replace(b"mgb1", b"mgb9")


@case
def root_outside() -> bytes:
    return good()[:4] + struct.pack("<I", 2**20) + good()[8:]


@case
def vtable_outside() -> bytes:
    data = bytearray(good())
    (root,) = struct.unpack_from("<I", data, 4)
    struct.pack_into("<i", data, 4 + root, -(2**20))
    return bytes(data)


@case
def shared_operators() -> bytes:
    f, x, _ = parts()
    return f.finish([x, x])


@case
def unknown_operator() -> bytes:
    f = V2()
    name = f.e.string("FancyNewOpr")
    return f.finish([f.e.table(15, [(1, "ulong", 123, 0), (0, "offset", name, 0), (12, "uint", 2, 0)])])


@case
def newer_operator_version() -> bytes:
    f = V2()
    name = f.e.string("Elemwise")
    return f.finish([f.e.table(15, [(1, "ulong", 123, 0), (0, "offset", name, 0), (12, "uint", 9, 0)])])


@case
def retired_operator() -> bytes:
    f = V1()
    return f.finish([f.operator("", mgbs=8055901896344484584)], magic=b"MGBS")


@case
def missing_record() -> bytes:
    f, x, inputs = parts()
    return f.finish([x, f.operator("Elemwise", (7, "offset", inputs, 0))])


@case
def wrong_record() -> bytes:
    f, x, inputs = parts()
    return f.finish([x, f.operator("Elemwise", (7, "offset", inputs, 0), param=Convolution())])


@case
def unknown_enum_value() -> bytes:
    f, x, inputs = parts()
    fields = [(0, "uint", 200, 0)]
    param = f.e.table(1, fields)
    opr = f.operator(
        "AxisAddRemove", (7, "offset", inputs, 0), (4, "offset", param, 0), (3, "ubyte", Elemwise.code, 0)
    )
    return f.finish([x, opr])


@case
def input_that_does_not_exist() -> bytes:
    f, x, _ = parts()
    return f.finish([x, f.operator("Elemwise", (7, "offset", f.e.numbers([1]), 0), param=Elemwise())])


@case
def too_few_inputs() -> bytes:
    f, x, _ = parts()
    return f.finish([x, f.operator("Elemwise", param=Elemwise())])


@case
def too_many_inputs() -> bytes:
    f, x, _ = parts()
    inputs = f.e.numbers([0, 0, 0])
    return f.finish([x, f.operator("AxisAddRemove", (7, "offset", inputs, 0), param=AxisAddRemove())])


@case
def wrong_output_numbers() -> bytes:
    f, x, inputs = parts()
    lists = (7, "offset", inputs, 0), (8, "offset", f.e.numbers([7]), 0)
    return f.finish([x, f.operator("Elemwise", *lists, param=Elemwise())])


@case
def output_that_does_not_exist() -> bytes:
    f, x, _ = parts()
    return f.finish([x], (4, "offset", f.outputs([5]), 0))


@case
def no_outputs() -> bytes:
    f, x, _ = parts()
    return f.finish([x])


@case
def v1_no_outputs() -> bytes:
    f = V1()
    return f.finish([f.held(f.tensor([1], 4))], bytes(4))


@case
def value_of_the_wrong_size() -> bytes:
    f = V2()
    return f.finish([f.held(f.tensor([3, 5], data=f.e.bytes_vector(bytes(59)), name=f.e.string("w")))])


@case
def value_without_shape() -> bytes:
    f = V2()
    return f.finish([f.held(f.tensor([], data=f.e.bytes_vector(bytes(4))))])


@case
def constant_without_value() -> bytes:
    f = V2()
    return f.finish([f.held(f.tensor([3]))])


@case
def no_tensor() -> bytes:
    f = V2()
    return f.finish([f.operator("SharedDeviceTensor")])


@case
def tensor_in_an_operator_that_holds_none() -> bytes:
    f, x, inputs = parts()
    held = f.e.offsets([f.tensor([1], data=f.e.bytes_vector(bytes(4)))])
    return f.finish(
        [x, f.operator("Elemwise", (7, "offset", inputs, 0), (11, "offset", held, 0), param=Elemwise())]
    )


@case
def holder_of_nothing() -> bytes:
    f = V2()
    return f.finish([f.operator("MultipleDeviceTensorHolder")])


@case
def two_tensors_where_one_belongs() -> bytes:
    f = V2()
    data = f.e.bytes_vector(bytes(4))
    held = f.e.offsets([f.tensor([1], data=data), f.tensor([1], data=data)])
    return f.finish([f.operator("SharedDeviceTensor", (11, "offset", held, 0))])


@case
def tensor_without_dtype() -> bytes:
    f = V2()
    node = f.e.table(1, [(0, "offset", f.e.string("xpux:0"), 0)])
    return f.finish([f.held(f.e.table(7, [(2, "offset", node, 0)]))])


@case
def tensor_without_computing_node() -> bytes:
    f = V2()
    return f.finish([f.held(f.e.table(7, [(3, "offset", f.e.table(3, []), 0)]))])


@case
def more_outputs_than_bytes() -> bytes:
    f, x, _ = parts()
    param = CondExecMerge(nr_output=2**32 - 1)
    return f.finish([x, f.operator("CondExecMerge", (7, "offset", f.e.numbers([0, 0]), 0), param=param)])


@case
def too_many_axes() -> bytes:
    f = V2()
    return f.finish([f.held(f.tensor([1] * 8, data=f.e.bytes_vector(bytes(4))))])


@case
def impossible_shape() -> bytes:
    f = V2()
    return f.finish([f.held(f.tensor([65536] * 4, data=f.e.bytes_vector(bytes(4))))])


@case
def unknown_dtype() -> bytes:
    f, x, inputs = parts()
    dtype = f.e.table(3, [(0, "byte", 77, 0)])
    return f.finish(
        [x, f.operator("Elemwise", (7, "offset", inputs, 0), (10, "offset", dtype, 0), param=Elemwise())]
    )


@case
def quantized_without_scale() -> bytes:
    f, x, inputs = parts()
    dtype = f.e.table(3, [(0, "byte", 13, 0)])
    return f.finish(
        [x, f.operator("Elemwise", (7, "offset", inputs, 0), (10, "offset", dtype, 0), param=Elemwise())]
    )


@case
def too_few_middle_tensors() -> bytes:
    f, x, inputs = parts()
    y = f.operator("Elemwise", (7, "offset", inputs, 0), param=Elemwise())
    middle = f.e.offsets([f.e.table(6, [(0, "offset", f.e.string("x"), 0)])])
    return f.finish([x, y], (3, "offset", middle, 0), (4, "offset", f.outputs([1]), 0))


@case
def middle_tensor_without_name() -> bytes:
    f, x, _ = parts()
    middle = f.e.offsets([f.e.table(6, [])])
    return f.finish([x], (3, "offset", middle, 0), (4, "offset", f.outputs([0]), 0))


@case
def alias_of_nothing() -> bytes:
    graph = small()
    graph.header.original_ids, graph.header.output_alias = [5], [(6, "other")]
    return dump_bytes(graph)


@case
def unknown_tensor_format() -> bytes:
    f = V2()
    e = f.e
    node = e.table(1, [(0, "offset", e.string("xpux:0"), 0)])
    form, dtype = e.table(0, []), e.table(3, [])
    fields = [(2, "offset", node, 0), (3, "offset", dtype, 0), (5, "offset", form, 0), (4, "ubyte", 9, 0)]
    return f.finish([f.held(e.table(7, fields))])


@case
def computing_node_without_name() -> bytes:
    f = V2()
    e = f.e
    fields = [(2, "offset", e.table(1, []), 0), (3, "offset", e.table(3, []), 0)]
    return f.finish([f.held(e.table(7, fields))])


@case
def v1_hash_of_zero() -> bytes:
    return V1().finish([], hash=0)


@case
def v1_tensor_without_dtype() -> bytes:
    f = V1()
    return f.finish([f.held(f.tensor([1], 4, dtype=False))], bytes(4))


@case
def v1_tensor_without_computing_node() -> bytes:
    f = V1()
    return f.finish([f.held(f.tensor([1], 4, node=False))], bytes(4))


@case
def v1_values_that_are_used_up() -> bytes:
    f = V1()
    return f.finish([f.held(f.tensor([1], 4)), f.held(f.tensor([1], 4))], bytes(6))


@case
def v1_value_too_small() -> bytes:
    f = V1()
    return f.finish([f.held(f.tensor([2, 2], 12))], bytes(12))


@case
def v1_value_without_shape() -> bytes:
    f = V1()
    return f.finish([f.held(f.tensor(None, 4))], bytes(4))


@case
def v1_blob_without_data() -> bytes:
    f = V1()
    blobs = f.e.offsets([f.e.table(1, [])])
    x = f.held(f.tensor([1], 4))
    return f.finish(
        [x, f.operator("VirtualDep", (3, "offset", f.e.numbers([0]), 0), (9, "offset", blobs, 0))], bytes(4)
    )


@case
def v1_operator_listed_twice() -> bytes:
    f = V1()
    x = f.held(f.tensor([1], 4))
    return f.finish([x, x], bytes(4))


@case
def v1_short_tensor_format() -> bytes:
    f = V1()
    blob = f.e.offsets([f.e.table(1, [(0, "offset", f.e.bytes_vector(b"\1"), 0)])])
    held = f.e.offsets([f.tensor([1], 4)])
    return f.finish(
        [f.operator("SharedDeviceTensorWithFormat", (7, "offset", held, 0), (9, "offset", blob, 0))], bytes(4)
    )


@case
def v1_unknown_tensor_format() -> bytes:
    f = V1()
    blob = f.e.offsets([f.e.table(1, [(0, "offset", f.e.bytes_vector(b"\7\0\0\0"), 0)])])
    held = f.e.offsets([f.tensor([1], 4)])
    return f.finish(
        [f.operator("SharedDeviceTensorWithFormat", (7, "offset", held, 0), (9, "offset", blob, 0))], bytes(4)
    )


@case
def equal_input_names() -> bytes:
    graph = Graph(header=Header(has_middle_tensors=False))
    for _ in range(2):
        graph.outputs += graph.add(
            "Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1,), "x")]
        )
    return dump_bytes(graph)


@case
def foreign_values() -> bytes:
    graph = Graph()
    for _ in range(2):
        graph.outputs += graph.add("SharedDeviceTensor", tensors=[constant(1.0)])
    return container(good(), dump_bytes(graph))


@case
def values_that_are_computed() -> bytes:
    return container(good(), good())


@case
def values_that_are_fed() -> bytes:
    graph = small()
    graph.outputs = graph.oprs[0].outputs
    return container(good(), dump_bytes(graph))


def message(data: bytes) -> str:
    with pytest.raises(FormatError) as e:
        list(loads(data).testcases)
    return str(e.value)


def normal(text: str) -> str:
    """Without places and sizes that depend on the flatbuffers package."""
    text = re.sub(r" \(at byte \d+\)$", "", text.removeprefix("<bytes>: "))
    return re.sub(r"claims \d+ bytes, but \d+ are left", "claims N bytes, but M are left", text)


def golden() -> dict[str, str]:
    blocks = GOLDEN.read_text().strip().split("\n\n")
    return {name: text.strip() for name, _, text in (b.partition("\n") for b in blocks)}


@pytest.mark.parametrize("name", CASES)
def test_message(name: str) -> None:
    assert normal(message(CASES[name]())) == golden()[name]


def test_messages_name_file_and_place() -> None:
    without = [
        n for n in CASES if not re.search(r"^<bytes>: .* \(at byte \d+\)$", message(CASES[n]()), re.DOTALL)
    ]
    assert without == ["empty", "equal_input_names"]


def test_golden_file_is_complete() -> None:
    if os.environ.get("LOADRUN_GOLDEN"):
        GOLDEN.write_text(
            "\n\n".join(f"{n}\n    {normal(message(make()))}" for n, make in CASES.items()) + "\n"
        )
    assert sorted(golden()) == sorted(CASES)
