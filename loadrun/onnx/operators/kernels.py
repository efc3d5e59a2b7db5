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
