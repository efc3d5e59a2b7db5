"""Functions of one tensor, element by element: transcendental ones and activations."""

from typing import Any

from ...arrays.names import kernel, np
from ...graph.dtypes import Array
from . import kernels, operator
from .activations import gelu, sigmoid
from .common import like_first, one_of, refuse_unless
from .kernels import exactly

CONTRIB = "com.microsoft"


def finite(name: str, value: float) -> float:
    """Return an attribute that must be a number."""
    refuse_unless(bool(np.isfinite(value)), f"its {name} is {value:g}, expected a finite number")
    return value


# Transcendental


def _function(ufunc: np.ufunc) -> Any:  # noqa: ANN401
    def function(x: Array) -> Array:
        return ufunc(x)

    return function


for _name in ("Ceil", "Exp", "Floor", "Log", "Sqrt", "Tanh"):
    operator(_name, pointwise=True)(_function(getattr(np, _name.lower())))
for _name in ("Cos", "Cosh", "Sin", "Sinh", "Tan"):
    operator(_name, since=9 if _name.endswith("h") else 7, pointwise=True)(
        _function(getattr(np, _name.lower()))
    )
for _name in ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh"):
    operator(_name, since=9 if _name.endswith("h") else 7, pointwise=True)(
        _function(getattr(np, f"arc{_name[1:]}"))
    )


operator("Erf", since=9, pointwise=True)(lambda x: kernels.erf(x))
operator("Reciprocal", pointwise=True)(lambda x: 1 / x)

# Activations


operator("Sigmoid", pointwise=True)(sigmoid)


operator("Relu", pointwise=True)(lambda x: np.maximum(x, x.dtype.type(0)))


@operator("Softplus", pointwise=True)
@kernel
def softplus(x: Array) -> Array:
    """Compute log(1 + exp(x)) without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


operator("HardSwish", since=14, pointwise=True)(lambda x: x * (np.clip(x + 3, 0, 6) / 6))


@kernel
def scaled_elu(x: Array, alpha: float, gamma: float = 1, steepness: float = 1) -> Array:
    """Compute gamma * x above 0, else gamma * alpha * (exp(steepness * x) - 1)."""
    return gamma * np.maximum(x, 0) + gamma * alpha * np.expm1(steepness * np.minimum(x, 0))


operator("Elu", pointwise=True)(lambda x, *, alpha=1.0: scaled_elu(x, finite("alpha", alpha)))


@operator("Celu", since=12, pointwise=True)
def celu(x: Array, *, alpha: float = 1.0) -> Array:
    """Compute x above 0, else alpha * (exp(x / alpha) - 1)."""
    return scaled_elu(x, alpha, steepness=1 / alpha if alpha else np.inf)


@operator("Selu", pointwise=True)
def selu_1(x: Array, *, alpha: float = 1.6732, gamma: float = 1.0507) -> Array:
    """Compute gamma * ELU."""
    return scaled_elu(x, finite("alpha", alpha), finite("gamma", gamma))


@operator("Selu", since=6, pointwise=True)
def selu(x: Array, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Array:
    """Compute gamma * ELU."""
    return scaled_elu(x, finite("alpha", alpha), finite("gamma", gamma))


@operator("LeakyRelu", pointwise=True)
def leaky_relu(x: Array, *, alpha: float = 0.01) -> Array:
    """Multiply negative numbers by alpha."""
    y = x * finite("alpha", alpha)
    return np.maximum(x, y) if 0 <= alpha <= 1 else np.where(x < 0, y, x)


@operator("PRelu", since=7, pointwise=True)
def prelu(x: Array, slope: Array) -> Array:
    """Multiply negative numbers by a slope, which broadcasts."""
    return np.where(x < 0, x * slope, x)


@operator("PRelu", shape=lambda x, slope: x.shape)
def prelu_1(x: Array, slope: Array) -> Array:
    """Multiply negative numbers by one slope or one for each channel."""
    if slope.ndim == 1 and x.ndim > 2 and slope.size != 1:
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return prelu(x, slope)


@operator("ThresholdedRelu", since=10, pointwise=True)
def thresholded_relu(x: Array, *, alpha: float = 1.0) -> Array:
    """Replace numbers up to alpha by 0."""
    return np.where(x > alpha, x, x.dtype.type(0))


@operator("HardSigmoid", pointwise=True)
def hard_sigmoid(x: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """Compute clip(alpha * x + beta, 0, 1)."""
    return np.clip(alpha * x + beta, 0, 1)


operator("Softsign", pointwise=True)(lambda x: x / (1 + np.abs(x)))


@operator("Shrink", since=9, pointwise=True)
def shrink(x: Array, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    """Move numbers beyond lambd toward 0 by the bias, and replace others by 0."""
    wide = x if x.dtype.kind == "f" else x.astype(np.float64)
    y = np.where(wide < -lambd, wide + bias, np.where(wide > lambd, wide - bias, wide.dtype.type(0)))
    return exactly(y, x.dtype)


operator("Mish", since=18, pointwise=True)(lambda x: x * np.tanh(softplus(x)))


@operator("Swish", since=24, pointwise=True)
def swish(x: Array, *, alpha: float = 1.0) -> Array:
    """Compute x * sigmoid(alpha * x)."""
    return x * sigmoid(x if alpha == 1 else alpha * x)


operator("QuickGelu", domain=CONTRIB, pointwise=True)(lambda x, *, alpha=1.702: swish(x, alpha=alpha))
operator("SwiGLU", since=28, pointwise=True)(lambda gate, x, *, alpha=1.0: swish(gate, alpha=alpha) * x)


@operator("Gelu", since=20, pointwise=True)
def gelu_20(x: Array, *, approximate: str = "none") -> Array:
    """Multiply by the normal distribution function, exact or approximated by a hyperbolic tangent."""
    return gelu(x, tanh=one_of("approximate", approximate, "none", "tanh") == "tanh")


operator("Gelu", domain=CONTRIB, pointwise=True)(lambda x: gelu(x))
operator("BiasGelu", domain=CONTRIB, pointwise=True)(lambda x, bias: gelu(x + bias))


@operator("FastGelu", domain=CONTRIB, pointwise=True)
def fast_gelu(x: Array, bias: Array | None = None) -> Array:
    """Compute GELU by a hyperbolic tangent, of a sum if there is a bias."""
    return gelu(x if bias is None else x + bias, tanh=True)


# Operators that ONNX has dropped, as ONNX Runtime still runs them


operator("Affine", pointwise=True)(lambda x, *, alpha=1.0, beta=0.0: alpha * x + beta)
operator("Scale", pointwise=True)(lambda x, *, scale=1.0: scale * x)
operator("ScaledTanh", pointwise=True)(lambda x, *, alpha, beta: alpha * np.tanh(beta * x))
operator("ParametricSoftplus", pointwise=True)(lambda x, *, alpha, beta: alpha * softplus(beta * x))


@operator("ImageScaler", shape=like_first)
def image_scaler(x: Array, *, bias: list[float] | None = None, scale: float = 1.0) -> Array:
    """Scale all channels and add a number to each."""
    added = np.array(bias or [], x.dtype)
    fits = x.ndim == 4 and len(added) == x.shape[1]
    refuse_unless(fits, f"{len(added)} numbers for the channels of {list(x.shape)}")
    return scale * x + added.reshape(-1, 1, 1)


@operator("Crop", views=True)
def crop(x: Array, *, border: list[int] | None = None, scale: list[int] | None = None) -> Array:
    """Cut borders off images: on the left, at the top, on the right, below; or a size behind the first two."""
    border = border or []
    fits = x.ndim == 4 and len(border) == 4 and (scale is None or len(scale) == 2)
    refuse_unless(fits, f"borders {border} of {x.ndim} axes")
    left, top, right, bottom = border
    height, width = x.shape[2:]
    below, beyond = (height - bottom, width - right) if scale is None else (top + scale[0], left + scale[1])
    inside = min(border) >= 0 and top <= below <= height and left <= beyond <= width
    refuse_unless(inside, f"it has {[top, left]} to {[below, beyond]} of {[height, width]} elements")
    return x[:, :, top:below, left:beyond]
