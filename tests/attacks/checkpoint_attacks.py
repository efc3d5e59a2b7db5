"""Attacks on the reader of checkpoints: pickles that run, unfold, nest or ask for the impossible.

Every one is a function `cNN_name` that returns the bytes of a file; the decorator says how reading it must end and how
many bytes of memory per byte of the file, and seconds, it may take. `run_checkpoint.py` runs one in a limited child.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

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
    end: str, text: str = "", *, factor: int = 20, seconds: float = 5.0
) -> Callable[[Callable[[], bytes]], Callable[[], bytes]]:
    """Register an attack."""

    def register(make: Callable[[], bytes]) -> Callable[[], bytes]:
        ATTACKS[make.__name__] = Attack(make, end, text, factor, seconds)
        return make

    return register


DTYPE = b"cnumpy\ndtype\n(X\x02\0\0\0f4\x89\x88tR(K\x03X\x01\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
DRAFT = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\x01btR"


def blob(size: int) -> bytes:
    """A BINBYTES of zeros."""
    return b"B" + struct.pack("<I", size) + bytes(size)


def array(shape: bytes, data: bytes) -> bytes:
    """An array of float32 of that pickled shape and contents."""
    return DRAFT + b"(K\x01" + shape + DTYPE + b"\x89" + data + b"tb"


@attack("refused", "refuses to call os.system")
def c01_system() -> bytes:
    """The oldest one."""
    return b"cos\nsystem\n(Vtouch /tmp/x\ntR."


@attack("refused", "refuses to call builtins.exec")
def c02_stack_global() -> bytes:
    """The name put together on the stack, behind a dict of weights."""
    return (
        b"\x80\x04}(\x8c\x01w"
        + array(b"K\x01\x85", blob(4))
        + b"\x8c\x01x\x8c\x08builtins\x8c\x04exec\x93\x8c\x01a\x85Ru."
    )


@attack("refused", "refuses to call numpy.core.multiarray.fromfile")
def c03_a_function_of_numpy() -> bytes:
    """Everything in numpy that is not on the list is refused as well."""
    return b"cnumpy.core.multiarray\nfromfile\n(V/etc/passwd\ntR."


@attack("refused", "refuses to call _codecs.decode")
def c04_a_codec() -> bytes:
    """Only encode, to latin1, is known."""
    return b"c_codecs\ndecode\n(C\x00Vrot13\ntR."


@attack("refused", "may turn a latin1 string to bytes only")
def c05_a_codec_that_unfolds() -> bytes:
    """zlib by way of encode."""
    return b"c_codecs\nencode\n(Vx\nVzlib_codec\ntR."


@attack("refused", "refuses to make an object of builtins.type")
def c06_new_object() -> bytes:
    """NEWOBJ of a builtin."""
    return b"cbuiltins\ntype\n(Vx\n)}t\x81."


@attack("refused", "refuses to give an object of __main__.Anything")
def c07_attributes() -> bytes:
    """BUILD on an object of a class of its own: held, never made."""
    return b"c__main__\nAnything\n)\x81}X\x09\0\0\0__class__cos\nsystem\nsb."


@attack("refused", "containers and numbers take none")
def c08_attributes_of_a_container() -> bytes:
    """BUILD on an OrderedDict."""
    return b"ccollections\nOrderedDict\n)R}X\x01\0\0\0aNsb."


@attack("refused", "'str' object is not callable")
def c09_calling_a_string() -> bytes:
    """REDUCE of what is not a name."""
    return b"Vos.system\n(Vx\ntR."


@attack("refused", "starts from an array of shape (0,)")
def c10_reconstruct_huge() -> bytes:
    """numpy's own unpickler would allocate this."""
    return b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85C\x01btR."


@attack("refused", "bytes, found 4")
def c11_shape_beyond_the_data() -> bytes:
    """A shape of 2^62 elements over four bytes."""
    return array(b"\x8a\x08" + struct.pack("<q", 2**62) + b"\x85", blob(4)) + b"."


@attack("refused", "takes 0 bytes, found 0")
def c12_empty_but_endless() -> bytes:
    """No elements, yet a product of axes that no array can have."""
    return array(b"(K\0J\xff\xff\xff\x7fJ\xff\xff\xff\x7fJ\xff\xff\xff\x7ft", b"C\0") + b"."


@attack("refused", "at most 32 numbers")
def c13_forty_axes() -> bytes:
    """More axes than numpy has."""
    return array(b"(" + b"K\x01" * 40 + b"t", blob(4)) + b"."


@attack("refused", "an array of Python objects is refused")
def c14_object_array() -> bytes:
    """An array whose contents are a list."""
    return array(b"K\x01\x85", b"]") + b"."


@attack("refused", "dtype 'V4294967295' is refused")
def c15_dtype_of_4_gigabytes() -> bytes:
    """One element of a void dtype."""
    return b"cnumpy\ndtype\n(VV4294967295\ntR."


@attack("refused", "expands to more than four times its size")
def c16_one_blob_a_thousand_arrays() -> bytes:
    """4 MB remembered and made the contents of 2000 arrays."""
    return (
        b"("
        + blob(4 << 20)
        + b"q\x07"
        + array(b"J" + struct.pack("<i", 1 << 20) + b"\x85", b"h\x07") * 2000
        + b"t."
    )


@attack("refused", "expands to more than four times its size")
def c17_one_string_encoded_again_and_again() -> bytes:
    """_codecs.encode of the same 4 MB string, 2000 times."""
    text = (
        b"X" + struct.pack("<I", 4 << 20) + b"x" * (4 << 20) + b"q\x05Vlatin1\nq\x06c_codecs\nencode\nq\x07"
    )
    return b"(" + text + b"h\x07(h\x05h\x06tR" * 2000 + b"t."


@attack("refused", "nests deeper than 100 levels", factor=250)
def c18_deep_tuples() -> bytes:
    """400,000 tuples within each other, whose hash or repr would overflow the C stack."""
    return b")" + b"\x85" * 400_000 + b"."


@attack("refused", "a key is neither", factor=250)
def c19_deep_key() -> bytes:
    """The same as a key."""
    return b"})" + b"\x85" * 400_000 + b"Ns."


@attack("refused", "takes more than 1000000 steps", factor=300)
def c20_many_small_objects() -> bytes:
    """Three million empty sets of one byte each."""
    return b"(" + b"\x8f" * 3_000_000 + b"t."


@attack("loaded", factor=100)
def c21_billion_laughs() -> bytes:
    """Ten lists of ten of the next, eighty levels deep: read once each, never unfolded."""
    out = b"]q\0"
    for i in range(80):
        out += b"](" + (b"h" + bytes([i])) * 10 + b"eq" + bytes([i + 1])
    return b"(" + out + b"t."


@attack("refused", "shares its objects too often", factor=60, seconds=20)
def c22_shared_modules() -> bytes:
    """Pairs of modules that both hold the next pair: 2^60 names in the state dict."""
    keys = b"X\x08\0\0\0trainingNX\x0e\0\0\0_forward_hooksNX\x01\0\0\0ah\x01X\x01\0\0\0bh\x02"
    out = b"Nq\x01q\x02"
    for _ in range(60):
        net = b"c__main__\nNet\n)\x81}(" + keys + b"ub"
        out += net + net + b"q\x020q\x01"
    return b"(" + out + b"t."


@attack("refused", "contains itself")
def c23_cycle() -> bytes:
    """A list within itself."""
    return b"]q\0h\0a."


@attack("refused", "within themselves")
def c24_module_in_itself() -> bytes:
    """A module that is its own child's child."""
    keys = b"X\x08\0\0\0trainingNX\x0e\0\0\0_forward_hooksN"
    inner = b"c__main__\nNet\n)\x81}(" + keys + b"X\x01\0\0\0bh\0ub"
    return b"c__main__\nNet\n)\x81q\0}(" + keys + b"X\x01\0\0\0a" + inner + b"ub."


@attack("refused", "a key is neither a string nor a small whole number")
def c25_keys_of_one_hash() -> bytes:
    """100,000 integers that hash alike: multiples of 2^61 - 1."""
    keys = b"".join(b"\x8a\x0a" + ((2**61 - 1) * i).to_bytes(10, "little") + b"N" for i in range(1, 100_000))
    return b"}(" + keys + b"u."


@attack("refused", "a line has no end within")
def c26_long_number() -> bytes:
    """A decimal number of two million digits, whose conversion is quadratic."""
    return b"I" + b"9" * 2_000_000 + b"\n."


@attack("refused", "an integer takes more than 255 bytes")
def c27_long_long() -> bytes:
    """The same in binary."""
    return b"\x8b" + struct.pack("<i", 2_000_000) + b"\x7f" * 2_000_000 + b"."


@attack("refused", "BINUNICODE8 exceeds system's maximum size")
def c28_string_of_all_bytes() -> bytes:
    """BINUNICODE8 with the largest length."""
    return b"\x8d" + b"\xff" * 8 + b"abc."


@attack("refused", "a frame of 9223372036854775807 bytes")
def c29_frame() -> bytes:
    """A frame beyond the file."""
    return b"\x80\x04\x95" + struct.pack("<Q", 2**63 - 1) + b"N."


@attack("refused", "the memo has no place 4294967295")
def c30_memo_far_out() -> bytes:
    """A memo index near 2^32: a table would be 32 GB."""
    return b"Nr\xff\xff\xff\xffj\xff\xff\xff\xff0."


@attack("refused", "expands to more than four times its size", factor=60)
def c31_pairs_again_and_again() -> bytes:
    """An OrderedDict of the same 30,000 pairs, 20,000 times."""
    pairs = b"](" + b"".join(b"M" + struct.pack("<H", i) + b"N\x86" for i in range(30_000)) + b"e\x85q\x01"
    return b"(" + pairs + b"ccollections\nOrderedDict\nq\x02" + b"h\x02h\x01R" * 20_000 + b"t."


@attack("refused", "persistent ids are refused")
def c32_persistent_id() -> bytes:
    """As PyTorch writes storages."""
    return b"\x80\x02(X\x07\0\0\0storageNtQ."


@attack("refused", "this is a zip archive")
def c33_zip() -> bytes:
    """The magic of an archive, which is not looked into."""
    return b"PK\x03\x04" + bytes(100)


@attack("refused", "refuses to give an object of megengine.fake.run")
def c38_a_call_of_megengine() -> bytes:
    """Calls within MegEngine are held as records and never given out."""
    return b"cmegengine.fake\nrun\n(Vx\ntR."


@attack("refused", "attributes are given to something the name os.system")
def c39_attributes_of_a_name() -> bytes:
    """BUILD on what a name stands for."""
    return b"cos\nsystem\n}X\x08\0\0\0__call__Nsb."


@attack("refused", "a key is neither")
def c40_a_name_as_a_key() -> bytes:
    """A name would bring its own hash."""
    return b"}cos\nsystem\nNs."


@attack("refused", "a key is neither")
def c41_a_frozenset_of_tuples() -> bytes:
    """Tuples from the memo as elements."""
    return b"\x80\x04N\x85\x94(h\0h\0\x91\x86."


@attack("refused", "a key is neither")
def c42_elements_that_a_call_made() -> bytes:
    """An array as an element of a set."""
    return b"\x80\x04\x8f(" + array(b"K\x01\x85", blob(4)) + b"\x90."


@attack("refused", "refuses to make an object of builtins.object")
def c43_new_object_with_names() -> bytes:
    """NEWOBJ_EX of a builtin."""
    return b"\x80\x04cbuiltins\nobject\n)}X\x01\0\0\0aNs\x92."


@attack("refused", "damaged")
def c44_items_of_a_record() -> bytes:
    """SETITEM of an object of a class of its own."""
    return b"c__main__\nNet\n)\x81X\x01\0\0\0aNs."


@attack("refused", "a key is neither")
def c45_deep_by_the_memo() -> bytes:
    """Tuples within each other, each put away and fetched again, as a key."""
    return b"})" + b"q\x00h\x00\x86" * 200 + b"Ns."


@attack("refused", "expected 1099511627776 bytes here, but only 4 remain")
def c46_buffer_of_a_terabyte() -> bytes:
    """BYTEARRAY8, for which Python's unpickler takes the memory first."""
    return b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"abc."


@attack("refused", "refuses to give an object of __main__.A", factor=60)
def c47_deep_objects() -> bytes:
    """300,000 objects, each made with the one before."""
    return b"c__main__\nA\nq\0" + b"h\0" * 299_999 + b"N" + b"\x85\x81" * 300_000 + b"."


@attack("refused", "arguments of type str, expected a tuple")
def c48_a_string_as_arguments() -> bytes:
    """Each character would be one, anew for every call."""
    text = b"X" + struct.pack("<I", 4 << 20) + b"x" * (4 << 20) + b"q\x05"
    return b"(" + text + b"cmegengine.fake\nrun\nq\x06h\x05R" * 2000 + b"t."


TENSOR = b"cmegengine.tensor\nTensor\nq\x08"


@attack("refused", "expands to more than four times its size")
def c49_one_array_a_thousand_tensors() -> bytes:
    """Each tensor would copy the 4 MB."""
    held = array(b"J" + struct.pack("<i", 1 << 20) + b"\x85", blob(4 << 20)) + b"\x85q\x07"
    return b"(" + held + TENSOR + b"h\x07\x81" + b"h\x08h\x07\x81" * 1000 + b"t."


@attack("loaded")
def c50_one_tensor_in_many_modules() -> bytes:
    """Modules that share a tensor of 4 MB share it in their state dict as well."""
    held = TENSOR + array(b"J" + struct.pack("<i", 1 << 20) + b"\x85", blob(4 << 20)) + b"\x85\x81q\x07"
    keys = b"X\x08\0\0\0trainingNX\x0e\0\0\0_forward_hooksN"
    net = b"c__main__\nNet\n)\x81}(" + keys
    inner = b"".join(b"Vm%d\n" % i + net + b"Va\nh\x07ub" for i in range(1000))
    return net + b"Va\n" + held + inner + b"ub."
