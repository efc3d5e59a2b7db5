"""`BatchMatMulActivation` with fake quantization."""

from .. import batch_matmul_activation as Float
from .module import QATWeighted


class BatchMatMulActivation(QATWeighted, Float.BatchMatMulActivation):
    """`BatchMatMulActivation` with fake quantization."""
