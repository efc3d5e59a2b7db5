"""Fuzzing what comes from outside: dumps, checkpoints, ONNX models, input files, expressions, specifications, lists,
command lines.

    python -m tests.attacks.fuzz [--seconds 60] [--seed 0] [--save DIR] [KIND ...]

Mutants keep the structure of what they are made of: offsets and fields of a dump, opcodes of a pickle, headers of
arrays and chunks of images, words of expressions and specifications. Each must be taken or refused with a
`LoadRunError`, in bounded time. What was not is written to ``--save`` and, once it is fixed, kept in
``tests/data/fuzz``, from which the suite tries it again.
"""

from __future__ import annotations

import argparse
import io
import json
import pickle
import pickletools
import random
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from loadrun.base.errors import LoadRunError
from loadrun.base.limits import memory_limited
from loadrun.dump import load
from loadrun.dump.checkpoint import load_checkpoint, save_checkpoint
from loadrun.graph import Graph, StoredTensor, Var
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Host2DeviceCopy
from loadrun.inputs.lists import count_cases
from loadrun.inputs.loading import load_cases
from loadrun.inputs.transform import TransformExpression
from tests.attacks.bending import bent, bent_message, words
from tests.attacks.commands import command, take_command
from tests.attacks.execute import run
from tests.attacks.input_attacks import chunk, png
from tests.attacks.mutate import Seed, examine
from tests.support.fixture_files import FIXTURES

__all__ = ["KEPT", "KINDS", "Kind", "fuzz", "judge"]

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests" / "data" / "fuzz"
SLOW = 5.0
MEMORY = 8 << 30
"""Seconds of processor time in which every mutant must be done with."""
DUMPS = (
    "nets/mlp.mge",
    "nets/mlp.v1.mge",
    "ops/format/mgbs_testcases_old.mge",
    "ops/format/v2_output_alias.mge",
)


class Kind:
    """Something to fuzz.

    Args:
        mutant: makes one.
        take: uses it, which must succeed or raise a `LoadRunError`.
        suffix: of the files that hold mutants.
    """

    def __init__(
        self, mutant: Callable[[random.Random], bytes], take: Callable[[bytes], object], suffix: str
    ) -> None:
        self.mutant = mutant
        self.take = take
        self.suffix = suffix


def inputs() -> list[Var]:
    """An image, a vector of bytes and a matrix without a shape."""
    graph = Graph()
    for name, dtype, shape in (
        ("image", "Float32", (1, 3, 4, 5)),
        ("n", "Uint8", (4,)),
        ("m", "Int32", None),
    ):
        tensor = StoredTensor(DType(dtype), shape, name)
        graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[tensor], names=[name])
    return graph.inputs


INPUTS = inputs()


# Dumps and checkpoints


_SEEDS: dict[str, list[Seed]] = {}


def dump(rng: random.Random, *, meaning: bool) -> bytes:
    key = f"dump {meaning}"
    if key not in _SEEDS:
        _SEEDS[key] = [Seed((FIXTURES / n).read_bytes(), meaning=meaning) for n in DUMPS]
    return rng.choice(_SEEDS[key]).mutant(rng)


def checkpoints() -> list[bytes]:
    state = {
        "a": np.arange(6, dtype="f4").reshape(2, 3),
        "q": np.zeros(3, np.dtype("i1", metadata={"mgb_dtype": {"name": "QuantizedS8", "scale": 0.5}})),
        "z": np.zeros(
            3,
            np.dtype(
                "u1", metadata={"mgb_dtype": {"name": "Quantized8Asymm", "scale": 0.5, "zero_point": 3}}
            ),
        ),
        "n": [1, 2.5, None, True, "text", (b"bytes", {"k": 2**40})],
    }
    file = io.BytesIO()
    save_checkpoint(state, file)
    return [file.getvalue(), *(pickle.dumps(state["n"], protocol=p) for p in range(6))]


CHECKPOINTS = checkpoints()


def checkpoint(rng: random.Random) -> bytes:
    """Opcodes doubled, moved, left out or replaced by others; now and then bytes as they come."""
    data = rng.choice(CHECKPOINTS)
    if rng.random() < 0.3:
        return bent(rng, data)
    starts = [at for _, _, at in pickletools.genops(data) if at is not None]
    ops = [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, action = rng.randrange(len(ops)), rng.randrange(4)
        if action == 0:
            ops.insert(at, rng.choice(ops))
        elif action == 1:
            del ops[at]
        elif action == 2:
            ops[at] = bent(rng, ops[at])
        else:
            ops[at] = bytes([ord(rng.choice(pickletools.opcodes).code)]) + ops[at][1:]
        if not ops:
            break
    return b"".join(ops)


def take_checkpoint(data: bytes) -> None:
    load_checkpoint(data)
    load_checkpoint(data, tensors=False)


# Files of input data


def files() -> list[tuple[str, bytes]]:
    image = np.arange(60, dtype="f4").reshape(1, 3, 4, 5)
    npy, npz, packed = (io.BytesIO() for _ in range(3))
    np.save(npy, image)
    np.savez(npz, image=image, n=np.arange(4, dtype="u1"), m=np.eye(2))
    np.savez_compressed(packed, image=image)
    listed = {"image": {"shape": [1, 3, 4, 5], "type": "float32", "raw": image.reshape(-1).tolist()}}
    found = [
        ("a.npy", npy.getvalue()),
        ("a.npz", npz.getvalue()),
        ("a.npz", packed.getvalue()),
        ("a.json", json.dumps(listed).encode()),
        ("a.ppm", b"P6\n# by hand\n2 1\n255\n" + bytes([1, 2, 3, 40, 50, 60])),
    ]
    rows = b"".join(b"\0" + bytes(range(15)) for _ in range(4))
    found.append(("a.png", png(5, 4, chunk(b"IDAT", zlib.compress(rows)))))
    if find_spec("cv2") is not None:
        import cv2

        pixels = np.arange(60, dtype="u1").reshape(4, 5, 3)
        for suffix in (".jpg", ".bmp", ".tiff", ".webp"):
            found.append((f"a{suffix}", cv2.imencode(suffix, pixels)[1].tobytes()))
    return found


FILES = files()


def data_file(rng: random.Random) -> bytes:
    """A name, a line end and the bytes of a file."""
    name, data = rng.choice(FILES)
    if name == "a.npy" and rng.random() < 0.5:
        text = data[10 : data.index(b"\n")].decode("latin1")
        more = [
            "'descr'",
            "'shape'",
            "(",
            ")",
            ",",
            "9" * 20,
            "-1",
            "0",
            "None",
            "'<f4'",
            "'|O'",
            "True",
            "[",
            "{",
        ]
        head = words(rng, text, more).encode("latin1", "replace")
        data = data[:8] + struct.pack("<H", len(head) % 65536) + head + data[data.index(b"\n") :]
    elif name == "a.npz" and rng.random() < 0.5:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", rng.choice((0, 8, 12, 14))) as z:
            z.writestr(rng.choice(("image.npy", "n.npy", " ", "../n", "image")), bent(rng, FILES[0][1]))
        data = file.getvalue()
    else:
        data = bent(rng, data)
    return name.encode() + b"\n" + data


def take_data_file(data: bytes) -> None:
    name, _, content = data.partition(b"\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name.decode()
        path.write_bytes(content)
        specs = (
            f"image:{path};n:#ones;m:[1]",
            f"n:{path};image:#ones;m:[1]",
            f"m:{path};image:#ones;n:#ones",
        )
        some(lambda spec: list(load_cases(spec, INPUTS, warn=lambda text: None)), specs)


# Texts


def some(take: Callable[[Any], object], values: Iterable[Any]) -> None:
    """Use each value; refused where all are."""
    refused: LoadRunError | None = None
    taken = False
    for value in values:
        try:
            take(value)
            taken = True
        except LoadRunError as e:
            refused = e
    if refused is not None and not taken:
        raise refused


EXPRESSIONS = [
    "data.astype('float32') / 255 - np.array([0.5, 0.4])[0]",
    "np.concatenate([data, data[::-1]], axis=0).transpose(1, 0)[:2]",
    "np.where(data > data.mean(axis=1, keepdims=True), data, -data).clip(0, 9)",
    "np.pad(data, ((1, 1), (0, 2)), mode='edge') @ np.ones((5, 3))",
    "(data if data.sum() > 3 else np.zeros_like(data)) ** 2 // 3 % 5 << 1",
    "np.stack([(lambda x, k=2: x * k)(row) for i, row in enumerate(data) if i < max(2, len(data))]) + sum(range(3))",
]
EXPRESSION_WORDS = [
    *(
        "data",
        "np",
        ".",
        "(",
        ")",
        "[",
        "]",
        ",",
        ":",
        "...",
        "None",
        "True",
        "-1",
        "0",
        "1e9",
        "2**62",
        "'int64'",
        "lambda x:",
        "for x in",
        "range",
    ),
    *(
        "shape",
        "dtype",
        "T",
        "size",
        "reshape",
        "repeat",
        "tile",
        "axis",
        "arange",
        "linspace",
        "broadcast_to",
    ),
    *(
        "sum",
        "sort",
        "take",
        "dot",
        "full",
        "eye",
        "percentile",
        "squeeze",
        "**",
        "//",
        "@",
        "if",
        "else",
        "not",
    ),
    *("lambda", "for", "__class__", "open", "1j", "99999999999999999999", "np.int8", "np.nan", "astype", "é"),
]
SPECS = [
    "image:#rand(0,255,1,...);n:[1,2,3,4];m:{2,2}",
    "image:a.png;n:a.npz!n;m:'b;c.npy'",
    "#randn(0,1,seed=7)",
    "image : #randint(0, 10, 1, 3, 4, 5) ; n:#full(3) ; m:[[1,2],[3,4]]",
    "@list.txt",
]
SPEC_WORDS = [
    *(
        "image",
        "n",
        "m",
        ":",
        ";",
        "::",
        ",",
        "#",
        "@",
        "!",
        "'",
        '"',
        "''",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "...",
    ),
    *("#rand", "#randn", "#randint", "#zeros", "#full", "seed", "=", "1e308", "-1", "0", "2147483647", "nan"),
    *(
        "99999999999999999999999",
        "a.npz",
        "a.json",
        "C:\\",
        "[1].npy",
        "\0",
        "\x1b",
        "\u202e",
        "\udcff",
        "é",
        " ",
    ),
]


def expression(rng: random.Random) -> bytes:
    return words(rng, rng.choice(EXPRESSIONS), EXPRESSION_WORDS).encode()


def take_expression(data: bytes) -> None:
    apply = TransformExpression(data.decode())
    some(apply, (np.arange(6, dtype="u1").reshape(2, 3), np.eye(3), np.array([True, False])))


def specification(rng: random.Random) -> bytes:
    return words(rng, rng.choice(SPECS), SPEC_WORDS).encode("utf-8", "surrogateescape")


def take_specification(data: bytes) -> None:
    list(load_cases(data.decode("utf-8", "surrogateescape"), INPUTS, warn=lambda text: None))


def list_file(rng: random.Random) -> bytes:
    """A few lines, some of which take in the list itself or another one."""
    good = (
        "image:#ones;n:[1,2,3,4];m:[1]",
        "m:{2,2};n:#zeros;image:#rand(0,1)",
        *("# a comment", "", "@a.txt", "@b.txt"),
    )
    lines = [rng.choice(good) for _ in range(4)]
    more = ["\n", "\r", "\ufeff", "@a.txt", "@/dev/null", "@.", " ", *SPEC_WORDS]
    text = words(rng, "\n".join(lines), more)
    data = text.encode("utf-8", "surrogateescape")
    return bent(rng, data) if rng.random() < 0.2 else data


def take_list_file(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, other in (
            ("a.txt", b"@b.txt\n" * 3),
            ("b.txt", b"m:[1];n:#ones;image:#ones\n"),
            ("list.txt", data),
        ):
            (Path(folder) / name).write_bytes(other)
        count_cases(f"@{folder}/list.txt")
        list(load_cases(f"@{folder}/list.txt", INPUTS, warn=lambda text: None))


# ONNX


_ONNX: list[bytes] = []


def onnx_model(rng: random.Random) -> bytes:
    if not _ONNX:
        from loadrun.onnx import export

        for name in ("mlp.mge", "scalars.mge"):
            with tempfile.TemporaryDirectory() as folder:
                export(load(FIXTURES / "nets" / name), f=f"{folder}/m.onnx")
                _ONNX.append((Path(folder) / "m.onnx").read_bytes())
    data = rng.choice(_ONNX)
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = bent_message(rng, data)
    return data


def take_onnx(data: bytes) -> None:
    from loadrun.onnx import load_model

    load_model(memoryview(data))


KINDS: dict[str, Kind] = {
    "dump": Kind(lambda rng: dump(rng, meaning=False), examine, ".mge"),
    "run": Kind(lambda rng: dump(rng, meaning=True), run, ".mge"),
    "checkpoint": Kind(checkpoint, take_checkpoint, ".pkl"),
    "file": Kind(data_file, take_data_file, ".data"),
    "expression": Kind(expression, take_expression, ".txt"),
    "specification": Kind(specification, take_specification, ".txt"),
    "onnx": Kind(onnx_model, take_onnx, ".onnx"),
    "list": Kind(list_file, take_list_file, ".txt"),
    "command": Kind(command, take_command, ".json"),
}


def judge(kind: str, data: bytes) -> str:
    """How one input ends: "taken" or "refused"; a fault says what was raised and where, or how long it took."""
    start = time.process_time()
    end = "taken"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = KINDS[kind].take(data)
        if found in ("refused", "error"):
            end = "refused"
    except LoadRunError:
        end = "refused"
    except Exception as e:
        place = traceback.extract_tb(e.__traceback__)[-1]
        return f"{type(e).__name__} at {Path(place.filename).name}:{place.lineno}: {str(e)[:3000]}"
    seconds = time.process_time() - start
    return end if seconds < SLOW else f"{seconds:.1f} seconds"


def fuzz(
    kind: str, rng: random.Random, go_on: Callable[[int], bool], save: Path | None = None
) -> tuple[Counter[str], dict[str, bytes]]:
    """Try mutants as long as `go_on` says of their number; how they ended, and the first of each fault."""
    ends: Counter[str] = Counter()
    faults: dict[str, bytes] = {}
    while go_on(sum(ends.values())):
        data = KINDS[kind].mutant(rng)
        end = judge(kind, data)
        ends[end if end in ("taken", "refused") else "fault"] += 1
        place = end.partition(": ")[0]
        if end not in ("taken", "refused") and place not in faults:
            faults[place] = data
            print(f"{kind}: {end}", flush=True)
            if save is not None:
                save.mkdir(parents=True, exist_ok=True)
                (save / f"{kind}_{len(faults)}{KINDS[kind].suffix}").write_bytes(data)
    return ends, faults


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--seconds", type=float, default=60, help="for each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, default=Path("faults"), help="folder for what ends in a fault")
    args = parser.parse_args()
    found = False
    for kind in args.kinds or KINDS:
        end = time.monotonic() + args.seconds
        rng = random.Random(f"{kind} {args.seed}")
        # As the command's --max-memory: a mutant may be a graph whose values are large.
        with memory_limited(MEMORY):
            ends, faults = fuzz(kind, rng, lambda _, end=end: time.monotonic() < end, args.save)  # type: ignore[misc]
        print(f"{kind}: {sum(ends.values())} tried, {dict(ends)}", flush=True)
        found |= bool(faults)
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
