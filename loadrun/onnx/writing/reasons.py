"""Why operators of MegEngine have no translation to ONNX."""

from ...ops.catalog import CATALOG

_RANDOM = """
UniformRNGV1 GaussianRNGV1 ExponentialRNG GammaRNG BetaRNG PoissonRNG PermutationRNG ShuffleRNG MultinomialRNG
"""
_REASONS = {
    "AssertEqual": "checks are not part of the model; what they expect becomes test data sets",
    "AddUpdate": "it changes a weight; ONNX's graphs do not keep state",
    "VirtualGrad": "it stands for gradients",
    "CorrelationForward": "ONNX has no correlation of two images",
    "NvOf": "it runs only on graphics processors",
    "RegionRestrictedConvolutionBackwardData": "ONNX's transposed convolutions have no regions",
    "SVD": "ONNX has no singular value decomposition",
    "MatrixInverse": "ONNX has no inverse of a matrix",
    **dict.fromkeys(_RANDOM.split(), "its random numbers are others in every run of another runtime"),
    **dict.fromkeys(
        ("ROIPooling", "DeformablePSROIPoolingForward"), "the pixels of its bins are decided by data"
    ),
}
_CATEGORIES = {
    "backward": "it computes gradients, which belong to training",
    "training": "it belongs to training",
    "vendor": "it runs only inside its vendor's runtime or a private plug-in",
    "control_flow": "MegEngine itself can neither dump nor load it",
}


def reason(name: str) -> str:
    """Explain why operators of a type cannot be written.

    >>> reason("SVD")
    'ONNX has no singular value decomposition'
    """
    op = CATALOG.get(name)
    why = _CATEGORIES.get(op.category) if op is not None else None
    return _REASONS.get(name) or why or "no composition of ONNX's operators is known for it"
