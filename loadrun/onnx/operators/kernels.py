"""Kernels of the reference engine that definitions call, each with a counterpart where definitions are recorded."""

from ...arrays.names import kernel
from ...graph import dtypes
from ...ops.elemwise import formulas
from ...ops.numeric import parallel, special
from ...ops.typecvt import exactly as _exactly

broadcast_shapes = kernel(special.broadcast_shapes)
exactly = kernel(_exactly)
int_matmul = kernel(special.int_matmul)
matrix_product = kernel(parallel.matmul)
round_bfloat16 = kernel(dtypes.round_bfloat16)
rounded = kernel(special.rounded)


@kernel
def erf(x: dtypes.Array) -> dtypes.Array:
    """Compute the error function."""
    return formulas.erf(x) if x.dtype == "float64" else special.erf(x)


@kernel
def gelu(x: dtypes.Array) -> dtypes.Array:
    """Multiply by the normal distribution function."""
    return formulas.gelu(x) if x.dtype == "float64" else special.gelu(x)


def halved(x: dtypes.Array, kind: dtypes.DType | None) -> dtypes.Array:
    """Return what a type of 16 bits leaves of floats; those of other types as they are."""
    return rounded(x, kind) if kind is not None and kind.name in ("Float16", "BFloat16") else x
