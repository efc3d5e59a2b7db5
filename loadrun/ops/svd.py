"""Singular value decomposition."""

from __future__ import annotations

import numpy as np

from ..dtypes import Array

__all__ = ["decompose"]


def decompose(x: Array, full_matrices: bool, compute_uv: bool) -> tuple[Array, ...]:
    """u, s and vt of every matrix in a float32 stack, or s alone, largest singular value first.

    Pairs of singular vectors are determined up to a common sign, which may differ from MegEngine's.
    """
    if not compute_uv:
        return (np.linalg.svd(x, compute_uv=False),)
    return tuple(np.linalg.svd(x, full_matrices=full_matrices))
