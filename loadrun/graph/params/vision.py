"""Parameter records of image operators and layout conversions."""

from . import enums as E
from ._record import F32, I32, U32, Bool, Record


class WarpPerspective(Record, code=13):
    imode: E.InterpolationMode = E.InterpolationMode.LINEAR
    bmode: E.BorderMode = E.BorderMode.REPLICATE
    format: E.Format = E.Format.NCHW
    border_val: F32 = 0.0


class SpatialTfGridGenerator(Record, code=14):
    mode: E.SpatialTfGridGeneratorMode = E.SpatialTfGridGeneratorMode.AFFINE


class SpatialTfSampler(Record, code=15):
    mode: E.SpatialTfSamplerMode = E.SpatialTfSamplerMode.BILINEAR


class Flip(Record, code=34):
    vertical: Bool = False
    horizontal: Bool = False


class Rotate(Record, code=35):
    clockwise: Bool = True


class ROICopy(Record, code=36):
    row_from: U32 = 0
    row_to: U32 = 0
    col_from: U32 = 0
    col_to: U32 = 0


class CvtColor(Record, code=37):
    mode: E.CvtColorMode = E.CvtColorMode.RGB2GRAY


class WarpAffine(Record, code=38):
    imode: E.InterpolationMode = E.InterpolationMode.LINEAR
    border_mode: E.BorderMode = E.BorderMode.REPLICATE
    border_val: F32 = 0.0
    format: E.Format = E.Format.NHWC


class GaussianBlur(Record, code=39):
    border_mode: E.BorderMode = E.BorderMode.REPLICATE
    kernel_height: U32 = 0
    kernel_width: U32 = 0
    sigma_x: F32 = 0.0
    sigma_y: F32 = 0.0


class Resize(Record, code=40):
    imode: E.InterpolationMode = E.InterpolationMode.LINEAR
    format: E.Format = E.Format.NHWC


class RelayoutFormat(Record, code=45):
    mode: E.RelayoutMode = E.RelayoutMode.NHWC_NHWCD4
    oc: U32 = 0
    group: U32 = 1


class Remap(Record, code=68):
    imode: E.InterpolationMode = E.InterpolationMode.LINEAR
    border_type: E.BorderMode = E.BorderMode.REPLICATE
    format: E.Format = E.Format.NHWC
    scalar: F32 = 0.0


class NMSKeep(Record, code=69):
    iou_thresh: F32 = 0.0
    max_output: U32 = 0


class NvOf(Record, code=71):
    precision: U32 = 1


class DctChannelSelect(Record, code=72):
    format: E.Format = E.Format.NCHW
    fastImpl: E.DctFastImpl = E.DctFastImpl.NONE
    dct_block_size: I32 = 8


class Resize3D(Record, code=96):
    imode: E.InterpolationMode = E.InterpolationMode.LINEAR
    format: E.Convolution3DFormat = E.Convolution3DFormat.NDHWC
    align_corners: Bool = False
