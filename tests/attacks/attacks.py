"""The attacks: files that lie, unfold, overflow or ask for the impossible.

Every one is a function `aNN_name` that returns the bytes of a file. Its decorator says how reading it must end
(``refused`` with a `FormatError` that holds the text, or ``loaded``) and how much memory, in bytes of the file,
and time it may take. `run.py` runs one in a child whose memory is limited to just that.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass

from loadrun.dump.writer import dump_bytes
from loadrun.graph import Graph, Header, Metadata, StoredTensor
from loadrun.graph.params import AssertEqual, CondExecMerge, Elemwise, Empty, Host2DeviceCopy
from tests.attacks.attack_files import F32, V2, constant, container, good, small

__all__ = ["ATTACKS", "Attack"]


@dataclass(frozen=True)
class Attack:
    """What an attack is and how it must end."""

    make: Callable[[], bytes]
    end: str
    text: str
    factor: int
    seconds: float


ATTACKS: dict[str, Attack] = {}


def attack(
    end: str, text: str = "", *, factor: int = 40, seconds: float = 5.0
) -> Callable[[Callable[[], bytes]], Callable[[], bytes]]:
    """Register an attack."""

    def register(make: Callable[[], bytes]) -> Callable[[], bytes]:
        ATTACKS[make.__name__] = Attack(make, end, text, factor, seconds)
        return make

    return register


@attack("refused", "the tensor area claims 4611686018427387904 bytes")
def a01_petabyte_area() -> bytes:
    """A v1 header that announces 4 EiB of tensors."""
    return b"MGBC" + bytes(12) + struct.pack("<Q", 2**62) + good("FBS")[24:]


@attack("refused", "the tensor area claims 18446744073709551615 bytes")
def a02_area_that_wraps() -> bytes:
    """24 + area wraps to 23 in 64-bit arithmetic."""
    return b"MGBC" + bytes(12) + struct.pack("<Q", 2**64 - 1) + good("FBS")[24:]


@attack("refused", "the model claims 4294967299 bytes")
def a03_model_larger_than_the_file() -> bytes:
    """A size prefix of 4 GiB."""
    return b"\xff\xff\xff\xff" + good()[4:]


@attack("refused", "claims 4294967295 testcases, but the file ends after 0")
def a04_testcases_that_are_not_there() -> bytes:
    """A container header with the largest count."""
    return container(good(), count=2**32 - 1)


@attack("refused", "expands beyond its size")
def a05_aliased_tensors() -> bytes:
    """One 4 MB vector is the value of 20,000 tensors."""
    f = V2()
    data = f.e.bytes_vector(bytes(4 << 20))
    shared = [f.held(f.tensor([1 << 20], data=data)) for _ in range(20_000)]
    return f.finish(shared)


@attack("refused", "expands beyond its size")
def a06_one_operator_a_million_times() -> bytes:
    """A vector of offsets that all lead to the same operator."""
    f = V2()
    one = f.held(f.tensor([1], data=f.e.bytes_vector(bytes(4))))
    return f.finish([one] * 1_000_000)


@attack("refused", "expands beyond its size", factor=80)
def a07_shared_inputs() -> bytes:
    """10,000 operators read the same list of 500,000 variables."""
    f = V2()
    first = f.held(f.tensor([4], name=f.e.string("x")), "Host2DeviceCopy", Host2DeviceCopy())
    inputs = f.e.numbers([0] * 500_000)
    more = [f.operator("VirtualDep", (7, "offset", inputs, 0)) for _ in range(10_000)]
    return f.finish([first, *more])


@attack("loaded", factor=60, seconds=20)
def a08_one_long_name_for_all() -> bytes:
    """50,000 operators are called by the same string of 1 MB."""
    f = V2()
    name = f.e.string(b"n" * 1_000_000)
    data = f.e.bytes_vector(bytes(4))
    tensor = f.tensor([1], data=data)
    held = f.e.offsets([tensor])
    shared = [
        f.operator("SharedDeviceTensor", (11, "offset", held, 0), (2, "offset", name, 0))
        for _ in range(50_000)
    ]
    return f.finish(shared, (4, "offset", f.outputs([0]), 0))


@attack("refused", "which is too large for memory")
def a09_shape_that_wraps() -> bytes:
    """65536^4 elements are 0 in 64-bit arithmetic, as many as the tensor has bytes."""
    f = V2()
    return f.finish([f.held(f.tensor([65536] * 4, data=f.e.bytes_vector(b"")))])


@attack("refused", "which is too large for memory")
def a10_input_of_all_axes() -> bytes:
    """A graph input of the largest shape that the format can say."""
    f = V2()
    tensor = f.tensor([2**32 - 1] * 7, name=f.e.string("x"))
    return f.finish([f.held(tensor, "Host2DeviceCopy", Host2DeviceCopy())])


@attack("refused", "which is too large for memory")
def a11_empty_tensor_of_all_axes() -> bytes:
    """No elements, yet numpy cannot make an array of that shape."""
    f = V2()
    return f.finish([f.held(f.tensor([0] + [2**32 - 1] * 6, data=f.e.bytes_vector(b"")))])


@attack("refused", "has 8 axes, at most 7 are possible")
def a12_too_many_axes() -> bytes:
    """A shape of eight axes, one more than MegEngine's fixed array holds."""
    f = V2()
    return f.finish([f.held(f.tensor([1] * 8, data=f.e.bytes_vector(bytes(4))))])


@attack("refused", "operator CondExecMerge claims 4294967295 outputs, more than the file can name")
def a13_four_billion_outputs() -> bytes:
    """A parameter gives the number of an operator's outputs."""
    f = V2()
    data = f.e.bytes_vector(bytes(4))
    branch = f.held(f.tensor([1], data=data))
    inputs = f.e.numbers([0, 0])
    merge = f.operator("CondExecMerge", (7, "offset", inputs, 0), param=CondExecMerge(nr_output=2**32 - 1))
    return f.finish([branch, merge])


@attack("refused", "lists the outputs [1, 1, 1, 1, ...]")
def a14_outputs_that_do_not_count() -> bytes:
    """An explicit list of outputs that repeats one number."""
    f = V2()
    x = f.held(f.tensor([4], name=f.e.string("x")), "Host2DeviceCopy", Host2DeviceCopy())
    inputs, outputs = f.e.numbers([0]), f.e.numbers([1] * 9)
    return f.finish(
        [x, f.operator("Identity", (7, "offset", inputs, 0), (8, "offset", outputs, 0), param=Empty())]
    )


@attack("loaded", factor=300, seconds=20)
def a15_every_output_behind_a_long_chain() -> bytes:
    """20,000 outputs, each behind the same 20,000 copies: 4e8 steps for whoever walks back from each."""
    graph = small()
    for _ in range(20_000):
        graph.add("Identity", inputs=graph.oprs[-1].outputs)
    graph.outputs = [graph.oprs[-1].outputs[0]] * 20_000
    graph.header.has_middle_tensors = False
    return dump_bytes(graph)


@attack("loaded", factor=300, seconds=20)
def a16_checks_of_one_name() -> bytes:
    """10,000 checks of the same output: every one needs a name of its own."""
    graph = Graph(header=Header(has_middle_tensors=False))
    held = [constant(0.0)]
    (x,) = graph.add("SharedDeviceTensor", tensors=held)
    (e,) = graph.add("Identity", inputs=[x])
    e.owner.name = "y:expect"
    for _ in range(10_000):
        graph.outputs += graph.add("AssertEqual", AssertEqual(), inputs=[e, x, x])
    return dump_bytes(graph)


@attack("refused", "two graph inputs share the name 'x'", factor=300, seconds=20)
def a17_inputs_of_one_name() -> bytes:
    """30,000 inputs called x."""
    graph = Graph(header=Header(has_middle_tensors=False))
    for _ in range(30_000):
        graph.outputs = graph.add(
            "Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1,), "x")]
        )
    return dump_bytes(graph)


@attack("refused", "operator with type id 81985529216486895")
def a18_unknown_operator() -> bytes:
    """An operator of a newer or private build."""
    f = V2()
    name = f.e.string("FancyNewOpr")
    fields = [(1, "ulong", 0x0123456789ABCDEF, 0), (0, "offset", name, 0), (12, "uint", 2, 0)]
    return f.finish([f.e.table(15, fields)])


@attack("refused", "has opr_version 3, expected 1 or 2")
def a19_newer_operator_version() -> bytes:
    """An operator version that no release has."""
    f = V2()
    return f.finish([f.e.table(15, [(1, "ulong", 1, 0), (12, "uint", 3, 0)])])


@attack("loaded", "model version 3 is newer than 2")
def a20_newer_model_version() -> bytes:
    """MegEngine only warns of it."""
    graph = small()
    graph.header.model_version = 3
    return dump_bytes(graph)


@attack("loaded", "written by MegEngine 2.0.0")
def a21_newer_release() -> bytes:
    """MegEngine only warns of it."""
    graph = small()
    graph.header.mge_version = 200000
    return dump_bytes(graph)


class _Touch:
    def __reduce__(self) -> tuple[object, ...]:
        return __import__, ("attack_was_executed",)


@attack("loaded")
def a22_pickle_in_the_metadata() -> bytes:
    """user_info is a pickle by design; loading it would import a module that does not exist."""
    graph = small()
    graph.header.metadata = Metadata(is_valid=True, user_info=pickle.dumps(_Touch()))
    return dump_bytes(graph)


@attack("loaded")
def a23_names_that_are_paths() -> bytes:
    """Names are never opened, whatever they look like."""
    graph = small()
    graph.oprs[0].tensors[0].name = graph.oprs[0].outputs[0].name = "../../../../etc/passwd"
    graph.oprs[1].outputs[0].name = "file:///etc/passwd\0.npy"
    return dump_bytes(graph)


@attack("loaded", factor=400, seconds=20)
def a24_thousands_of_appended_dumps() -> bytes:
    """Every dump is small; reading all of them stays linear."""
    return good() * 3000


@attack("loaded")
def a25_container_headers_behind_a_dump() -> bytes:
    """What follows the first dump looks like one file after another and is none."""
    return good() + (b"mgbtest0" + struct.pack("<I", 1)) * 100_000


@attack("refused", "expected a MegEngine dump")
def a26_container_in_a_container() -> bytes:
    """A container holds dumps, not containers."""
    return container(container(container(good())))


@attack("refused", "expected a MegEngine dump, found a Python pickle")
def a27_pickle_by_another_name() -> bytes:
    """A pickle called .mge."""
    return pickle.dumps({"a": _Touch()}, protocol=4)


@attack("refused", "it looks like an ONNX model")
def a28_onnx_by_another_name() -> bytes:
    """An ONNX model called .mge."""
    return b"\x08\x07\x12\x07pytorch\x1a\x031.9:" + bytes(200)


@attack("refused", "expands beyond its size", factor=80)
def a29_shared_records() -> bytes:
    """20,000 operators share one list of 20,000 additional records."""
    f = V2()
    x = f.held(f.tensor([4], name=f.e.string("x")), "Host2DeviceCopy", Host2DeviceCopy())
    inputs = f.e.numbers([0])
    members = f.e.offsets([f.e.param(Elemwise())] * 20_000)
    tags = f.e.bytes_vector(bytes([Elemwise.code]) * 20_000)
    more = [
        f.operator(
            "Elemwise",
            (7, "offset", inputs, 0),
            (5, "offset", tags, 0),
            (6, "offset", members, 0),
            param=Elemwise(),
        )
        for _ in range(20_000)
    ]
    return f.finish([x, *more])


@attack("refused", "expands beyond its size")
def a30_shared_blobs() -> bytes:
    """10,000 operators carry the same blob of 1 MB."""
    f = V2()
    x = f.held(f.tensor([4], name=f.e.string("x")), "Host2DeviceCopy", Host2DeviceCopy())
    inputs = f.e.numbers([0])
    blob = f.e.offsets([f.e.table(1, [(0, "offset", f.e.bytes_vector(bytes(1 << 20)), 0)])])
    more = [
        f.operator("CustomOpNode", (7, "offset", inputs, 0), (14, "offset", blob, 0)) for _ in range(10_000)
    ]
    return f.finish([x, *more])


@attack("loaded", factor=100, seconds=20)
def a31_fifty_thousand_operators() -> bytes:
    """Not an attack but the largest honest file: time and memory stay in proportion."""
    graph = small()
    for _ in range(50_000):
        graph.add("Elemwise", Elemwise(), inputs=graph.oprs[-1].outputs)
    graph.outputs = graph.oprs[-1].outputs
    return dump_bytes(graph)
