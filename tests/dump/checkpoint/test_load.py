"""Checkpoints that real MegEngine wrote, read to the arrays that it reads from them itself."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import sys
import zipfile
from collections import OrderedDict, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadrun import Tensor
from loadrun.base.errors import FormatError
from loadrun.dump.checkpoint import load_checkpoint, save_checkpoint
from loadrun.megengine.quantization.fake_quant import QuantMode, create_qparams
from tests.support.cases import WHOLE, fewer

FOLDER = Path(__file__).resolve().parents[3] / "fixtures/checkpoints"
INDEX: dict[str, Any] = json.loads((FOLDER / "index.json").read_text())
EXPECTED = dict(np.load(FOLDER / "expected.npz", allow_pickle=False))
KINDS = {c.__name__: c for c in (dict, OrderedDict, defaultdict)}


def same(found: Any, about: dict[str, Any], where: str) -> None:
    if "tensor" in about:
        same(found, about["tensor"], where)
    elif "array" in about:
        expected = EXPECTED[about["array"]]
        expected = expected.astype(expected.dtype.newbyteorder("="))
        mark = {"name": "BFloat16"} if "bfloat16" in about["array"] else about["mark"]
        assert dict(found.dtype.metadata or {}).get("mgb_dtype") == mark, where
        assert (found.shape, found.dtype.str) == (expected.shape, expected.dtype.str), where
        np.testing.assert_array_equal(np.asarray(found), expected, err_msg=where)
    elif "dict" in about:
        assert type(found) is KINDS[about["class"]], where
        assert list(found) == [k for k, _ in about["dict"]]
        for k, inner in about["dict"]:
            same(found[k], inner, f"{where}.{k}")
    elif "list" in about or "tuple" in about:
        kind = next(iter(about))
        assert type(found).__name__ == kind
        assert len(found) == len(about[kind])
        for i, inner in enumerate(about[kind]):
            same(found[i], inner, f"{where}.{i}")
    elif "bytes" in about:
        assert found == bytes(about["bytes"])
    elif "set" in about or "frozenset" in about:
        kind = next(iter(about))
        assert type(found).__name__ == kind
        assert sorted(found) == about[kind]
    else:
        assert found == about["value"]
        assert type(found) is type(about["value"])


@pytest.mark.parametrize("name", INDEX)
def test_as_megengine_reads_it(name: str) -> None:
    same(load_checkpoint(FOLDER / name), INDEX[name], name)


@pytest.mark.parametrize("name", INDEX)
def test_truncated(name: str) -> None:
    data = (FOLDER / name).read_bytes()
    for n in range(0, len(data), 1 if WHOLE else 19):
        with pytest.raises(FormatError):
            load_checkpoint(data[:n])


@pytest.mark.parametrize("name", ["training.pkl", "tensors_protocol_2.pkl", "module.pkl", "protocol_0.pkl"])
def test_flipped_bits(name: str) -> None:
    data = bytearray((FOLDER / name).read_bytes())
    rng = random.Random(1)
    for _ in range(fewer(800)):
        at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        data[at] ^= bit
        with suppress(FormatError):
            load_checkpoint(bytes(data))
        data[at] ^= bit


@pytest.mark.parametrize("protocol", range(6))
def test_random_opcodes(protocol: int) -> None:
    """Pickles cut to pieces and put together anew."""
    data = (FOLDER / f"protocol_{protocol}.pkl").read_bytes()
    rng = random.Random(protocol)
    for _ in range(fewer(600)):
        pieces = [data[a : a + rng.randrange(40)] for a in (rng.randrange(len(data)) for _ in range(6))]
        with suppress(FormatError):
            load_checkpoint(data[: rng.randrange(len(data))] + b"".join(pieces) + b".")


class Touch:
    """Leaves a mark when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_code_is_never_run(protocol: int, tmp_path: Path) -> None:
    data = pickle.dumps({"w": np.ones(3), "x": Touch(tmp_path / "mark")}, protocol)
    with pytest.raises(
        FormatError, match=r"refuses to call (posix|nt)\.mkdir: .*megengine\.save.*at byte \d+"
    ):
        load_checkpoint(data)
    assert not (tmp_path / "mark").exists()
    pickle.loads(data)
    assert (tmp_path / "mark").exists(), "the pickle would have left its mark"


def test_offset_is_that_of_the_name() -> None:
    data = b"\x80\x02}X\x01\x00\x00\x00acos\nsystem\n(X\x01\x00\x00\x00xtRs."
    with pytest.raises(FormatError) as caught:
        load_checkpoint(data)
    assert caught.value.offset == data.index(b"cos\n")


def test_path_is_in_the_message(tmp_path: Path) -> None:
    (tmp_path / "bad.pkl").write_bytes(b"\x80\x04")
    with pytest.raises(FormatError, match=r"bad\.pkl: the pickle ends before its STOP"):
        load_checkpoint(tmp_path / "bad.pkl")


class Plain:
    """An object of a class that no checkpoint holds."""

    def __init__(self) -> None:
        self.weight = np.ones(3)


def test_objects_of_other_classes_are_named() -> None:
    with pytest.raises(FormatError, match=r"refuses to give an object of [\w.]*Plain"):
        load_checkpoint(pickle.dumps({"a": Plain()}))
    with pytest.raises(FormatError, match=r"refuses to give posix\.system"):
        load_checkpoint(b"cposix\nsystem\n.")


def test_old_tensor_of_release_1_1() -> None:
    """Releases up to 1.1 gave a tensor its data as state."""
    body = pickle.dumps(np.array([1, 2, 3], np.int8), 4)[2:-1]
    body = body[9:] if body[:1] == b"\x95" else body
    head = b"\x80\x04\x8c\x10megengine.tensor\x8c\x06Tensor\x93)\x81}("
    state = b"\x8c\x04data" + body + b"\x8c\x06device\x8c\x05xpux0\x8c\x05dtypeNub."
    found = load_checkpoint(head + state)
    assert found.dtype == np.int8
    assert found.tolist() == [1, 2, 3]


def test_open_file_and_arrays_are_writable() -> None:
    found = load_checkpoint(io.BytesIO((FOLDER / "state_dict.pkl").read_bytes()))
    value = found["block.conv.weight"]
    value += 1
    assert value.flags.aligned
    np.testing.assert_array_equal(value, EXPECTED["state_dict.pkl/block.conv.weight"] + 1)


def test_sharing_is_kept() -> None:
    found = load_checkpoint(FOLDER / "tensors.pkl")
    assert found["tensor"] is found["again"]


def test_written_by_this_numpy() -> None:
    """Whatever numpy runs the tests, its own pickles are read."""
    value = {"w": np.arange(6.0, dtype="f4").reshape(2, 3), "s": np.float64(2), "b": np.bool_(True)}
    for protocol in range(2, 6):
        found = load_checkpoint(pickle.dumps(value, protocol))
        np.testing.assert_array_equal(found["w"], value["w"])
        assert found["s"] == 2
        assert found["s"].dtype == np.float64
        assert bool(found["b"]) is True


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x09.", "unsupported pickle protocol: 9"),
        (b"S'abc'\n.", "written by Python 2"),
        (b"Pabc\n.", "persistent ids are refused"),
        (b"\x82\x01.", "extension code"),
        (b"\x80\x05\x97.", "outside the pickle"),
        (b"(icollections\nOrderedDict\n.", "Python 2's classes"),
        (b"\x80\x04N.N.", "2 bytes follow the pickle"),
        (b"N0.", "takes a value"),
        (b"NN.", "leaves values on the stack"),
        (b"\xff.", "0xff is not an opcode"),
        (b"X\xff\xff\xff\x7fabc.", "expected 2147483647 bytes .* but only 4 remain"),
        (b"}]Ns.", "a key is neither"),
        (b"}G\x3f\xf0\0\0\0\0\0\0Ns.", "a key is neither"),
        (b"h\x07.", "the memo has no entry 7"),
        (b"]q\x00h\x00a.", "contains itself"),
        (b")b.", "is empty where"),
        (b"Ix\n.", "damaged: invalid literal"),
        (b"cbuiltins\neval\n(V1\ntR.", r"refuses to call builtins\.eval"),
        (b"c__builtin__\neval\n(V1\ntR.", r"refuses to call __builtin__\.eval"),
        (b"cnumpy\nndarray\n((I9\ntt\x81.", r"refuses to make an object of numpy\.ndarray"),
        (b"cnumpy\nload\n(Vx\ntR.", r"refuses to call numpy\.load"),
        (b"ccollections\ndefaultdict\n(cos\nsystem\ntR.", r"refuses to use as a factory os\.system"),
        (b"cnumpy\ndtype\n(VO\ntR.", "dtype 'O' is refused"),
        (b"cnumpy\ndtype\n(VV999999999\ntR.", "dtype 'V999999999' is refused"),
        (b"}}b.", "attributes are given to something of type dict"),
        (b"cfunctools\npartial\n(cos\nsystem\ntR.", r"refuses to call functools\.partial"),
        (b"cbuiltins\nbytearray\n(I99999999999\ntR.", "may be made of bytes only"),
    ],
)
def test_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        load_checkpoint(data)


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("net/data.pkl", r"this is a PyTorch file; convert it where PyTorch is installed: numpy\.savez"),
        ("weights.npy", r"this is a zip archive; .* numpy\.savez by dict\(numpy\.load\(file\)\)"),
    ],
)
def test_archives_are_refused(member: str, message: str) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(member, b"x")
        archive.writestr("more", b"data.pkl")
    with pytest.raises(FormatError, match=message):
        load_checkpoint(file.getvalue())


def test_nothing_is_opened_or_imported() -> None:
    data = (FOLDER / "module.pkl").read_bytes()
    load_checkpoint(data)
    seen: list[str] = []
    watching = [True]

    def audit(event: str, args: tuple[object, ...]) -> None:
        if watching[0] and event in ("open", "import", "exec", "compile", "pickle.find_class"):
            seen.append(f"{event} {args[:1]!r}")

    sys.addaudithook(audit)
    load_checkpoint(data)
    watching[0] = False
    assert seen == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the platform has no named pipes")
@pytest.mark.parametrize("what", ["pipe", "device"])
def test_pipes_and_devices_are_refused_at_once(what: str, tmp_path: Path) -> None:
    path = tmp_path / "p" if what == "pipe" else Path("/dev/zero")
    if what == "pipe":
        os.mkfifo(path)
    with pytest.raises(OSError, match=f"a checkpoint must be a regular file, not a {what}"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"zero_point", b"zero_paint", "attributes of megengine.quantization.utils.QParams are not mode"),
        (b"QuantMode\n", b"QuantMood\n", "is neither a mode, a dtype"),
        (b"quint8", b"quint9", None),
        (b"QParams\n", b"QPorams\n", None),
    ],
)
def test_parameters_of_quantization_are_plain(old: bytes, new: bytes, said: str | None) -> None:
    """They are rebuilt of what is known alone; an object of another class is not looked at."""
    x = Tensor([1.0])
    x.qparams.update(create_qparams(QuantMode.ASYMMERTIC, "quint8", Tensor(0.5), Tensor(3.0)))
    f = io.BytesIO()
    save_checkpoint(x, f)
    assert old in f.getvalue()
    changed = f.getvalue().replace(old, new)
    if said is None:
        assert load_checkpoint(changed).tolist() == [1.0]
        return
    with pytest.raises(FormatError, match=said):
        load_checkpoint(changed)
