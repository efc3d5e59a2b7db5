"""Words that select names: ``resnet and not (quant or v1)``."""

import ast
import re

from ..base.errors import UsageError, clean


def matches_words(text: str, name: str) -> bool:
    """Return whether a name has the words that pytest's ``-k`` would look for: ``and``, ``or``, ``not``, parentheses.

    Raises:
        UsageError: they make no sense.

    >>> [matches_words("resnet and not (quant or v1)", n) for n in ("a/ResNet18.mge", "resnet_quant.mge", "gpt.mge")]
    [True, False, False]
    """
    lower = name.lower()
    condition = re.sub(
        r"[^\s()]+", lambda m: m[0] if m[0] in ("and", "or", "not") else str(m[0].lower() in lower), text
    )
    try:
        return _holds(ast.parse(condition.strip(), mode="eval").body)
    except (SyntaxError, MemoryError, RecursionError):
        raise UsageError(
            f"-k takes words combined with and, or, not and parentheses, found {clean(text)!r}"
        ) from None


def _holds(node: ast.expr) -> bool:
    if isinstance(node, ast.BoolOp):
        return (all if isinstance(node.op, ast.And) else any)([_holds(v) for v in node.values])
    if isinstance(node, ast.UnaryOp):
        return not _holds(node.operand)
    if isinstance(node, ast.Constant):
        return bool(node.value)
    raise SyntaxError
