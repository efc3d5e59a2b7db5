"""Exported programs as files: what torch would run as code is refused beforehand, testcases beside the program."""

import ast
import io
import json
import keyword
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch

from ..base.archives import DAMAGE
from ..base.errors import FormatError
from ..base.schema import anything, exactly, integer, items, mapping, number, text
from ..base.seals import require_digest, sealed, unsealed
from ..base.writing import replacing, temporary
from ..graph.dtypes import Array
from ..testcase import EXPECT, SourceFile

# `torch.export.load` gives expressions of sizes to a parser that evaluates Python, unpickles example inputs
# and objects, loads compiled libraries, takes any function of torch for an operator, and writes names of the
# file, and conditions on sizes, into Python that it runs.

_MOST, _MOST_TEXT, _TIMES = 64 << 20, 4 << 20, 16
"""Bytes that a file may unfold to, those of them that may be JSON, and how many times its size."""
_LONGEST, _STEEPEST = 4096, 16
"""Characters of an expression, and its greatest power."""
_CALLS = frozenset(
    re.findall(
        r"\w+",
        """
        Symbol Integer Float Rational Add Mul Pow Max Min Mod PythonMod FloorDiv CeilDiv CleanDiv ModularIndexing
        Where Piecewise Eq Ne Lt Le Gt Ge Equality Unequality StrictLessThan StrictGreaterThan LessThan GreaterThan
        And Or Not Abs floor ceiling sqrt ToFloat TruncToInt TruncToFloat RoundToInt RoundDecimal CeilToInt
        FloorToInt IntTrueDiv FloatTrueDiv PowByNatural FloatPow LShift RShift Identity
        IsNonOverlappingAndDenseIndicator
        """,
    )
)
"""What torch and sympy write in expressions of sizes."""
_STEEP = frozenset(("Pow", "PowByNatural", "FloatPow", "LShift", "RShift"))
_PARTS = tuple(
    getattr(ast, name)
    for name in """
    Expression Call keyword Name Load Constant Tuple BinOp UnaryOp Compare operator unaryop cmpop
    """.split()
)
_GUARD_PARTS = (*_PARTS, ast.Subscript, ast.BoolOp, ast.boolop)
_BUILTINS = frozenset(("min", "max", "abs", "round", "int", "float"))
_METHODS = frozenset(("size", "stride", "storage_offset", "item"))
_OF_SIZES = frozenset(("sym_float", "sym_int", "sym_max", "sym_min", "sym_not", "sym_ite", "_sym_sqrt"))
_FREE = frozenset(("as_string", "as_strings", "expr_str", "guards_code", "in_spec", "out_spec", "target"))
"""Keys of texts that are checked on their own, or that torch quotes."""
_OPERATOR = re.compile(
    r"torch\.ops\.\w+\.\w+(\.\w+)?|torch\.sym_\w+|torch\._sym_\w+|math\.trunc|torch\._C\._set_grad_enabled"
    r"|torch\.amp\.autocast_mode\._(enter|exit)_autocast"
    r"|torch\._functorch\.predispatch\.(_(add|remove)_batch_dim|_vmap_(in|de)crement_nesting|lazy_load_decompositions)"
    r"|_operator\.(eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|mod|pow|truediv|and_|or_|lshift|rshift|getitem)"
)
_ENVIRONMENT = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_lock = Lock()


def read_program(file: str | io.BytesIO) -> Any:
    """Read an exported program, of which no code runs while it is read.

    Raises:
        FormatError: it holds what could run: objects, compiled code, expressions that are more than arithmetic,
            functions that are no operators; it unfolds to more than its size allows; or it is damaged.
    """
    checked = io.BytesIO()
    try:
        _copy_checked(file, checked)
    except FormatError:
        raise
    except DAMAGE as e:
        raise FormatError("the archive is damaged or not complete") from e
    checked.seek(0)
    try:
        with _weights_only():
            program = torch.export.load(checked)
            # Torch writes its code now, and finds what it cannot write.
            program.module()
    except Exception as e:
        # What `torch.load` raises is known by its name: importing it would import what unpickles.
        if type(e).__name__ == "UnpicklingError":
            raise FormatError("it holds Python objects that are no tensors, which are not loaded") from e
        raise FormatError(
            "torch cannot read the program: it is damaged, or was written by another version than "
            f"{torch.__version__}"
        ) from e
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if isinstance(node.target, torch._ops.OpOverload):
                _check_arguments(node)
    return program


def _copy_checked(file: str | io.BytesIO, target: io.BytesIO) -> None:
    """Write an archive of what was looked at: torch's own reader might find other files in the bytes."""
    with zipfile.ZipFile(file) as archive:
        size = file.getbuffer().nbytes if isinstance(file, io.BytesIO) else os.path.getsize(file)
        infos = archive.infolist()
        texts = [i for i in infos if i.filename.endswith(".json")]
        for parts, most, what in ((infos, _MOST, ""), (texts, _MOST_TEXT, " of JSON")):
            if sum(i.file_size for i in parts) > (limit := max(most, _TIMES * size)):
                raise FormatError(f"the archive of {size} bytes unfolds to more than {limit}{what}")
        if len({i.filename.lower() for i in infos}) != len(infos):
            raise FormatError("two files in the archive have the same name")
        with zipfile.ZipFile(target, "w") as copy:
            for info in infos:
                content = archive.read(info)
                _check_file(info.filename, content)
                copy.writestr(info.filename, content)


@contextmanager
def _weights_only() -> Iterator[None]:
    """Let torch unpickle tensors alone."""
    with _lock:
        before = os.environ.get(_ENVIRONMENT)
        os.environ[_ENVIRONMENT] = "1"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_ENVIRONMENT]
            else:
                os.environ[_ENVIRONMENT] = before


def _check_file(name: str, content: bytes) -> None:
    if "aotinductor/" in name or name.endswith((".so", ".dll", ".dylib")):
        raise FormatError(
            f"it holds compiled code ({name}), which is not loaded; save the program without it"
        )
    if name.endswith(".json"):
        try:
            data = json.loads(content)
        except RecursionError:
            raise FormatError(f"{name} is nested too deeply") from None
        except ValueError as e:
            raise FormatError(f"{name} in it is damaged: it is no JSON") from e
        _check_data(data, named=not name.endswith("loadrun/testcases.json"))


def _check_data(data: object, named: bool) -> None:
    waiting = [data]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            waiting += (value for key, value in part.items() if key != "metadata" or not _is_plain(value))
            if named:
                _check_names(part)
            if isinstance(part.get("expr_str"), str):
                _check_expression(part["expr_str"])
            if "inputs" in part and isinstance(part.get("target"), str):
                _check_operator(part["target"])
                if not _is_plain(part.get("metadata", {})):
                    raise FormatError(f"the metadata of {part['target']} are not texts")
            if isinstance(part.get("as_operator"), str):
                _check_operator(part["as_operator"])
            path = part.get("path_name")
            if isinstance(path, str) and path.startswith(("custom_obj_", "opaque_obj_")):
                raise FormatError(f"it holds a Python object ({path}), which is not loaded")


def _is_plain(metadata: object) -> bool:
    """Tell whether it is texts about a node, such as the lines it comes from, not a value that is called metadata."""
    return (
        isinstance(metadata, dict)
        and "name" not in metadata
        and all(isinstance(v, str) for v in metadata.values())
    )


def _check_names(part: dict[str, Any]) -> None:
    """Refuse names that would be more than names in Python that torch writes."""
    for key, value in part.items():
        texts = [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, str)]
        if key in ("name", "as_name", "forward_arg_names"):
            # Arguments of an operator that are told by their place need no name.
            wrong = [t for t in texts if not _is_name(t) and (t or "arg" not in part)]
        elif key == "guards_code":
            wrong = [t for t in texts if not _is_expression(t, _guarding)]
        elif key == "in_spec":
            wrong = [t for t in texts if not _is_structure(t)]
        else:
            wrong = [t for t in texts if key not in _FREE and re.search(r"[\"'\\\x00-\x1f]", t)]
        if wrong:
            raise FormatError(f"its {key} {wrong[0][:80]!r} would be run as Python")


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _is_structure(text: str) -> bool:
    """Tell whether a structure of arguments has words as keywords; torch reads it with the same JSON parser."""
    try:
        _, tree = json.loads(text)
        keywords = [
            json.loads(t["context"]) for t in tree["children_spec"][1:2] if t["type"] == "builtins.dict"
        ]
        return all(isinstance(w, str) and _is_name(w) for words in keywords for w in words)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def _check_operator(target: str) -> None:
    if not _OPERATOR.fullmatch(target) or target.startswith("torch.ops.aten.from_file"):
        raise FormatError(f"it calls {target[:80]!r}, which is no operator of a program")


def _check_arguments(node: torch.fx.Node) -> None:
    """Refuse numbers, texts and lists that an operator does not take; torch looks at them when it runs it."""
    formal = node.target._schema.arguments
    placed = {a.name: value for a, value in zip(formal, node.args, strict=False) if not a.kwarg_only}
    if len(placed) < len(node.args):
        raise FormatError(f"{node.target} gets {len(node.args)} arguments by place, but takes {len(placed)}")
    for name in node.kwargs:
        if name in placed:
            raise FormatError(f"{node.target} gets {name} twice, by place and by name")
    values = {**placed, **node.kwargs}
    for argument in formal:
        if argument.name not in values and not argument.has_default_value():
            raise FormatError(f"{node.target} lacks its argument {argument.name}")
        if argument.name in values and not _fits(values[argument.name], argument.type):
            shown = repr(values[argument.name])
            raise FormatError(f"{node.target} gets {shown:.80} for {argument.name}, expected {argument.type}")
    # Arguments that stand in a file by name go to their places, as torch itself writes them.
    places = takewhile(lambda a: a.name in values and not a.kwarg_only, formal)
    node.args = tuple(values.pop(a.name) for a in places)
    node.kwargs = values


def _fits(value: object, kind: Any) -> bool:
    if kind.kind() == "OptionalType":
        return value is None or _fits(value, kind.getElementType())
    if kind.kind() == "ListType":
        parts = value if isinstance(value, (list, tuple)) else [value]
        return all(_fits(v, kind.getElementType()) for v in parts)
    types = _TYPES.get(kind.kind())
    return types is None or isinstance(value, (torch.fx.Node, *types))


_TYPES: dict[str, tuple[type, ...]] = {
    "TensorType": (int, float, complex),
    "IntType": (int, torch.SymInt, torch.dtype, torch.layout, torch.memory_format),
    "SymIntType": (int, torch.SymInt),
    "FloatType": (int, float, torch.SymInt, torch.SymFloat),
    "BoolType": (int, torch.SymBool),
    "NumberType": (int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool),
    "StringType": (str,),
}


def _check_expression(text: str) -> None:
    """Refuse an expression of sizes that is more than arithmetic, or that takes long to evaluate."""
    if not _is_expression(text, _allowed):
        raise FormatError(f"the size {text[:80]!r} is no arithmetic of sizes")


def _is_expression(text: str, allowed: Callable[[ast.AST], bool]) -> bool:
    try:
        return len(text) <= _LONGEST and all(map(allowed, ast.walk(ast.parse(text.strip(), mode="eval"))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _guarding(node: ast.AST) -> bool:
    """Tell whether a part of a condition is arithmetic of sizes of arguments, such as ``L['x'].size()[0] <= 8``."""
    if isinstance(node, ast.Attribute):
        of = node.value.id if isinstance(node.value, ast.Name) else ""
        return (
            node.attr in _METHODS
            or (of == "math" and not node.attr.startswith("_"))
            or (of == "torch" and node.attr in _OF_SIZES)
        )
    if isinstance(node, ast.Call) and (
        isinstance(node.func, ast.Attribute) or getattr(node.func, "id", "") in _BUILTINS
    ):
        return True
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        # It goes into a text in double quotes.
        return re.search(r"[\"'\\\x00-\x1f]", node.value) is None
    return isinstance(node, _GUARD_PARTS) and (
        isinstance(node, (ast.Subscript, ast.BoolOp, ast.boolop)) or _allowed(node)
    )


def _allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        return name in _CALLS and (name not in _STEEP or _flat(node.args[0], node.args[-1]))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift, ast.RShift)):
        return _flat(node.left, node.right)
    if isinstance(node, ast.Constant):
        plain = isinstance(node.value, (bool, float)) or (
            isinstance(node.value, int) and abs(node.value) < 2**64
        )
        return plain or (
            isinstance(node.value, str) and re.fullmatch(r"\w{1,64}|[\d.eE+-]{1,64}", node.value) is not None
        )
    return isinstance(node, _PARTS)


def _flat(base: ast.expr, power: ast.expr) -> bool:
    """Tell whether a power is of a size, not of a number, by a small number, not by a power."""
    names = {n.id for n in ast.walk(base) if isinstance(n, ast.Name)}
    return bool(names - _CALLS or "Symbol" in names) and all(_small(n) for n in ast.walk(power))


def _small(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) and abs(node.value) <= _STEEPEST
    if isinstance(node, ast.Name):
        return node.id == "Integer"
    return isinstance(node, (ast.UnaryOp, ast.unaryop, ast.Call, ast.Load))


_PLACE, _FORMAT = "loadrun/", 1
"""Not below ``extra/``: torch reads files there as text."""
_PROMISE = "loadrun/testcases.json "
"""What the archive's comment begins with, which promises testcases; the digest of their index comes next."""


def accept(
    source: SourceFile, values: Mapping[int, Mapping[str, Array]], event: Mapping[str, object]
) -> None:
    """Replace expected values in an archive, and record it there.

    Args:
        source: the program.
        values: the new values in torch's types, by testcase and output name.
        event: who accepted them, when and why.
    """
    path = str(source.location)
    kept = read_cases(path)
    assert kept is not None
    cases = [
        {**case, **{n + EXPECT: v for n, v in values.get(i, {}).items()}} for i, case in enumerate(kept.cases)
    ]
    with temporary() as file:
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(file, "w") as new:
            for info in old.infolist():
                if f"/{_PLACE}" not in info.filename:
                    new.writestr(info, old.read(info))
        append_cases(file, cases, {"maxerr": kept.limits, "accepted": [*kept.accepted, event]})
        file.seek(0)
        with replacing(path) as target:
            shutil.copyfileobj(file, target)


def append_cases(file: Any, values: Sequence[Mapping[str, Array]], about: Mapping[str, object]) -> None:
    """Append testcases to the records of a program's archive, and what is said about them."""
    with zipfile.ZipFile(file, "a") as archive:
        root = next(n for n in archive.namelist() if n.endswith("archive_format"))
        place = root[: -len("archive_format")] + _PLACE
        listed: list[dict[str, str]] = []
        for i, case in enumerate(values):
            listed.append({})
            for k, (name, value) in enumerate(case.items()):
                listed[-1][name] = f"{i}.{k}.npy"
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, value, allow_pickle=False)
                archive.writestr(f"{place}{i}.{k}.npy", buffer.getbuffer())
        index = sealed(json.dumps({"format": _FORMAT, **about, "testcases": listed}))
        archive.writestr(f"{place}testcases.json", index)
        _, digest = unsealed(index.encode())
        archive.comment = f"{_PROMISE}{digest}".encode()


_TESTCASES = exactly(
    {"format": integer(_FORMAT, _FORMAT), "testcases": items(mapping(text)), "maxerr": mapping(number(0.0))},
    {"accepted": items(mapping(anything))},
)


class RecordedCases(NamedTuple):
    """What was saved with a program: testcases, tolerances, and who accepted new expected values."""

    cases: list[dict[str, Array]]
    limits: dict[str, float]
    accepted: list[object]


def read_cases(file: Any) -> RecordedCases | None:
    """Read the testcases and tolerances of an archive, or None if there are none.

    Raises:
        FormatError: they are damaged.
    """
    with zipfile.ZipFile(file) as archive:
        names = [n for n in archive.namelist() if n.endswith(f"{_PLACE}testcases.json")]
        promised = archive.comment.startswith(_PROMISE.encode())
        if not names:
            if promised:
                raise FormatError("the testcases that the archive promises are missing: restore the file")
            return None
        place = names[0][: -len("testcases.json")]
        try:
            index, digest = unsealed(archive.read(names[0]))
            about = _TESTCASES(json.loads(index), "testcases.json")
            files = [f for listed in about["testcases"] for f in listed.values()]
            if len({*files}) != len(files):
                raise FormatError("testcases.json: a file is the value of two names")
            cases = []
            for listed in about["testcases"]:
                data = {n: io.BytesIO(archive.read(place + f)) for n, f in listed.items()}
                cases.append({n: np.lib.format.read_array(f, allow_pickle=False) for n, f in data.items()})
            require_digest(index, digest, "testcases.json")
            if promised and archive.comment != f"{_PROMISE}{digest}".encode():
                raise FormatError("testcases.json does not have the digest that the archive promises")
            return RecordedCases(cases, about["maxerr"], about.get("accepted", []))
        except (KeyError, TypeError, ValueError, RecursionError) as e:
            why = str(e) if isinstance(e, FormatError) else f"{type(e).__name__}: {e}"
            raise FormatError(f"the testcases in it are damaged: {why}") from e
