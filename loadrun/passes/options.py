"""The options of `optimize_for_inference`, by the names that MegEngine's ``trace.dump`` has for them.

The bits are those of MegEngine's ``OptimizeForInferenceOptions::serialize``, which dumps keep in their metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ..base.errors import UsageError


class Layout(IntEnum):
    """Layout of convolutions; the numbers are those in dumps."""

    DEFAULT = 0
    NCHW4 = 1
    NHWCD4 = 2
    NCHW88 = 3
    NCHW44 = 4
    NCHW44_DOT = 5
    NCHW32 = 6
    CHWN4 = 7
    NCHW64 = 8


_LAYOUTS = {
    "enable_nchw4": Layout.NCHW4,
    "enable_hwcd4": Layout.NHWCD4,
    "enable_nchw88": Layout.NCHW88,
    "enable_nchw44": Layout.NCHW44,
    "enable_nchw44_dot": Layout.NCHW44_DOT,
    "enable_nchw32": Layout.NCHW32,
    "enable_chwn4": Layout.CHWN4,
    "enable_nchw64": Layout.NCHW64,
}
_SWITCHES = {
    "enable_io16xc32": "f16_io_f32_comp",
    "enable_ioc16": "f16_io_comp",
    "enable_fuse_conv_bias_nonlinearity": "fuse_conv_bias_nonlinearity",
    "enable_fuse_conv_bias_with_z": "fuse_conv_bias_with_z",
    "enable_weight_preprocess": "weight_preprocess",
    "enable_fuse_preprocess": "fuse_preprocess",
    "enable_fuse_grain": "fuse_grain",
}
FLAGS = {
    "enable_io16xc32": "float16 between operators, accumulation in float32",
    "enable_ioc16": "float16 throughout",
    "enable_fuse_conv_bias_nonlinearity": "fuse convolution, bias and activation",
    "enable_fuse_conv_bias_with_z": "fuse convolution, bias, activation and residual sum",
    "enable_weight_preprocess": "tell the runtime to transform weights in advance",
    "enable_fuse_preprocess": "fuse the conversion of 8-bit images",
    "enable_fuse_grain": "fuse means and global pooling (the default of `loadrun pack`)",
    "enable_nchw4": "NCHW4, a layout for 8-bit convolutions on GPUs",
    "enable_hwcd4": "NHWCD4, a layout for OpenCL images",
    "enable_nchw88": "NCHW88, a layout for x86 with AVX",
    "enable_nchw44": "NCHW44, a layout for ARM",
    "enable_nchw44_dot": "NCHW44_DOT, a layout for ARM with dot products",
    "enable_nchw32": "NCHW32, a layout for tensor cores",
    "enable_chwn4": "CHWN4, a layout for tensor cores, batch innermost",
    "enable_nchw64": "NCHW64, a layout for 4-bit tensor cores",
}
"""The keywords of `InferenceOptions.of`, and what each does."""
_ORDER = ("nchw4", "chwn4", "nchw44", "nchw88", "nchw32", "nchw64", "nhwcd4", "nchw44_dot")
LAYOUTS = {f"enable_{name}": FLAGS[f"enable_{name.replace('nhwcd4', 'hwcd4')}"] for name in _ORDER}
"""The layouts by load_and_run's flags, in the order in which it applies them: the last one wins."""
OPTIMIZATIONS = {
    "optimize_for_inference": "fold constants, fuse and simplify",
    "enable_fuse_preprocess": FLAGS["enable_fuse_preprocess"],
    "fuse_grain": FLAGS["enable_fuse_grain"],
    "enable_fuse_conv_bias_nonlinearity": FLAGS["enable_fuse_conv_bias_nonlinearity"],
    "enable_fuse_conv_bias_with_z": FLAGS["enable_fuse_conv_bias_with_z"],
    "enable_ioc16": FLAGS["enable_ioc16"],
}
"""Other optimizations of load_and_run, by its flags."""
_BITS = tuple(_SWITCHES.values())


@dataclass(frozen=True)
class InferenceOptions:
    """Chosen optimizations.

    Attributes:
        f16_io_f32_comp: values between operators are float16, sums inside them float32.
        f16_io_comp: everything is float16.
        fuse_conv_bias_nonlinearity: convolution, bias and activation become one ConvBias.
        fuse_conv_bias_with_z: a residual sum becomes the fourth input of a ConvBias.
        weight_preprocess: a hint to the runtime alone.
        fuse_preprocess: conversions and padding of 8-bit images in front become one operator.
        fuse_grain: means and global pooling written in small operators become large ones.
        layout: layout of convolutions.

    >>> InferenceOptions.of(enable_nchw44=True).bits == 64 | 4 << 32
    True
    """

    f16_io_f32_comp: bool = False
    f16_io_comp: bool = False
    fuse_conv_bias_nonlinearity: bool = False
    fuse_conv_bias_with_z: bool = False
    weight_preprocess: bool = False
    fuse_preprocess: bool = False
    fuse_grain: bool = True
    layout: Layout = Layout.DEFAULT

    @classmethod
    def of(cls, **flags: object) -> InferenceOptions:
        """Return the options that keywords of MegEngine's ``trace.dump`` stand for, such as ``enable_nchw44``.

        Names without ``enable_``, with ``use_`` instead of it and those of MegEngine's C++ options
        (``f16_io_comp``, ``nhwcd4``) mean the same.

        Raises:
            UsageError: an unknown keyword, or two layouts at once.
        """
        switches: dict[str, bool] = {}
        layout, chosen = Layout.DEFAULT, ""
        for name, value in flags.items():
            plain = name.removeprefix("enable_").removeprefix("use_")
            key = "enable_" + {"nhwcd4": "hwcd4", "weight_winograd": "weight_preprocess"}.get(plain, plain)
            if key in _LAYOUTS:
                if value and layout not in (Layout.DEFAULT, _LAYOUTS[key]):
                    raise UsageError(f"{chosen} and {name} both choose a layout; a dump has only one")
                if value:
                    layout, chosen = _LAYOUTS[key], name
            elif key in _SWITCHES or plain in _BITS:
                switches[_SWITCHES.get(key, plain)] = bool(value)
            else:
                raise UsageError(f"unknown options: {name}; expected some of {', '.join(FLAGS)}")
        return cls(**switches, layout=layout)

    @property
    def bits(self) -> int:
        """The number that is in the metadata of a dump (`Metadata.optimize_options`)."""
        low = sum(getattr(self, name) << i for i, name in enumerate(_BITS))
        return low | int(self.layout) << 32
