"""Names of MegEngine's that are not here: importing one works, calling it or inheriting from it ends in one sentence.

Published model code imports names for training that it never calls, so the names stay where MegEngine has them. So do
names that are here in other files.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any, NoReturn

from ..base.errors import UnsupportedError

__all__ = ["absent"]

_ANY = "*"
_TRAINING = "loadrun runs networks, it does not train them"
_MIXED = "loadrun computes in the dtypes that a network has; cast its tensors with astype"
_DATA = "loadrun loads and transforms no data sets; give it arrays, for instance with --input"
_PROCESSES = "loadrun runs in one process; run it once, or start several processes yourself"
_GRAPHS = "loadrun edits no graphs; change the code that is traced, or read the dump with loadrun.load"
_OPERATORS = "loadrun applies operators through loadrun.megengine.functional alone"
_SETTINGS = "loadrun computes with numpy, where there is nothing to set; leave the line out"
_STATISTICS = "loadrun counts the sizes and operations of dumps; see loadrun info --help"
_TOOLS = "loadrun has no such tool"
_CONVERTERS = "loadrun quantizes tensors: x.astype(dtype), and back x.astype('float32')"
_DTYPES = "quantized dtypes are numpy's, with metadata: dtype.itemsize, dtype.metadata"
_VENDORS = "it runs only inside its vendor's runtime; loadrun reads dumps that hold it and does not run it"
_HUB = "loadrun.megengine.hub.load downloads a repository and runs its hubconf.py, nothing else"
_NO_GPU = "there is no GPU; the CPU computes"
_MEMORY = "memory of devices is not counted; loadrun.engines.program.MemoryMeter measures a run"
_TABLE = (
    (
        _TRAINING,
        "autodiff autodiff.grad_manager core.autodiff core.autodiff.grad",
        "AttachSpec Function Grad GradKey GradManager GradManagerGroup get_backwarding_grad_manager "
        "get_grad_managers",
    ),
    (
        _TRAINING,
        "optimizer optimizer.adadelta optimizer.adagrad optimizer.adam optimizer.adamw optimizer.clip_grad "
        "optimizer.lamb optimizer.lr_scheduler optimizer.multi_step_lr optimizer.optimizer optimizer.sgd",
        "Adadelta Adagrad Adam AdamW LAMB LAMBFp16 LRScheduler MultiStepLR Optimizer SGD clip_grad_norm "
        "clip_grad_value",
    ),
    (_TRAINING, "functional.inplace", "_inplace_add_"),
    (
        _MIXED,
        "amp amp.autocast amp.convert_format amp.grad_scaler core.tensor.amp",
        "GradScaler autocast convert_module_format convert_tensor_format enabled high_prec_dtype low_prec_dtype",
    ),
    (
        _DATA,
        "data data.collator data.dataloader data.sampler data.dataset data.dataset.meta_dataset "
        "data.dataset.vision data.dataset.vision.cifar data.dataset.vision.cityscapes data.dataset.vision.coco "
        "data.dataset.vision.folder data.dataset.vision.imagenet data.dataset.vision.meta_vision "
        "data.dataset.vision.mnist data.dataset.vision.objects365 data.dataset.vision.utils "
        "data.dataset.vision.voc data.transform data.transform.meta_transform data.transform.vision "
        "data.transform.vision.functional data.transform.vision.transform",
        "ArrayDataset BrightnessTransform CIFAR10 CIFAR100 COCO CenterCrop Cityscapes Collator ColorJitter Compose "
        "ConcatDataset ContrastTransform DataLoader Dataset GaussianNoise HueTransform ImageFolder ImageNet "
        "Infinite Lighting MNIST MapDataset MapSampler Normalize Objects365 Pad PascalVOC PseudoTransform "
        "RandomCrop RandomHorizontalFlip RandomResize RandomResizedCrop RandomSampler RandomVerticalFlip "
        "ReplacementSampler Resize Sampler SaturationTransform SequentialSampler ShortestEdgeResize StreamDataset "
        "StreamSampler ToMode TorchTransformCompose Transform VisionDataset VisionTransform WorkerInfo flip "
        "get_worker_info pad resize to_bgr to_gray",
    ),
    (
        _PROCESSES,
        "distributed distributed.functional distributed.group distributed.helper distributed.launcher "
        "distributed.server functional.distributed",
        "Client Group Server WORLD all_gather all_reduce_max all_reduce_min all_reduce_sum all_to_all bcast_list_ "
        "broadcast collective_comm gather get_backend get_client get_device_count_by_fork get_rank get_world_size "
        "group_barrier init_process_group is_distributed launcher make_allreduce_cb new_group override_backend "
        "reduce_scatter_sum reduce_sum remote_recv remote_send scatter synchronized",
    ),
    (
        _GRAPHS,
        "core.tensor.megbrain_graph core.tensor.utils tools.network_visualize traced_module utils.comp_graph_tools "
        "utils.network utils.network_node",
        _ANY,
    ),
    (
        _OPERATORS,
        "core._imperative_rt core._imperative_rt.core2 core._imperative_rt.ops core.ops core.ops.builtin",
        _ANY,
    ),
    (_OPERATORS, "functional.elemwise", "Elemwise"),
    (_SETTINGS, "core", "get_option set_option"),
    (_SETTINGS, "config core._config core._wrap core.options dtr", _ANY),
    (_SETTINGS, "core._trace_option", "set_symbolic_shape use_symbolic_shape"),
    (_SETTINGS, "jit.tracing", "set_symbolic_shape"),
    (
        _SETTINGS,
        "functional.debug_param",
        "get_conv_execution_strategy get_execution_strategy set_conv_execution_strategy set_execution_strategy",
    ),
    (
        _VENDORS,
        "functional.external",
        "atlas_runtime_opr cambricon_runtime_opr extern_opr_subgraph magicmind_runtime_opr tensorrt_runtime_opr",
    ),
    (
        _CONVERTERS,
        "core.tensor.dtype",
        "convert_from_qint1 convert_from_qint32 convert_from_qint4 convert_from_qint8 convert_from_quint4 "
        "convert_from_quint8 convert_to_qint1 convert_to_qint32 convert_to_qint4 convert_to_qint8 convert_to_quint4 "
        "convert_to_quint8",
    ),
    (_SETTINGS, "logger", "replace_mgb_log_level set_mgb_log_level"),
    (
        _DTYPES,
        "core.tensor.dtype",
        "get_dtype_bit is_bfloat16 is_differentible_dtype is_dtype_equal is_lowbit",
    ),
    (_STATISTICS, "utils.module_stats", _ANY),
    (
        _TOOLS,
        "tools utils.bn_fusion utils.module_utils utils.naming",
        "AutoNaming fold_weight_bias fuse_conv_bn_relu_module fuse_linear_bn_relu_module get_expand_structure "
        "set_expand_structure set_module_mode_safe",
    ),
    (_HUB, "hub.const hub.exceptions hub.fetcher hub.tools", _ANY),
    (
        _NO_GPU,
        "device",
        "get_cuda_compute_capability get_cuda_device_property get_cuda_driver_version get_cuda_version "
        "get_cudnn_version get_tensorrt_version is_atlas_available is_cambricon_available is_rocm_available "
        "what_is_xpu",
    ),
    (
        _MEMORY,
        "device",
        "coalesce_free_memory get_allocated_memory get_max_allocated_memory get_max_reserved_memory "
        "get_mem_status_bytes get_reserved_memory reset_max_memory_stats set_prealloc_config",
    ),
)
"""Why names are absent, the modules in MegEngine from which each of them can be imported, and the names."""

_ROWS = [(why, modules.split(), names.split()) for why, modules, names in _TABLE]
_HOMES = {
    f"{package}.{name}".lstrip("."): home
    for home, package, names in (
        ("..base.logger", "", "logger"),
        ("..layers.math", "functional", "math"),
        ("..layers.random", "", "random"),
        ("..layers.tensor", "functional", "tensor"),
        ("..layers.vision", "functional", "vision"),
        ("..tensors.quantized_dtypes", "core.tensor", "dtype"),
        (".functional.utils", "functional", "metric"),
        (".jit", "jit", "tracing"),
        (".quantization.fake_quant", "quantization", "utils"),
        (".quantization.quantize", "quantization", "qconfig"),
        (
            ".module.basic",
            "module",
            "concat dropout elemwise identity padding pixel_shuffle quant_dequant sequential sliding_window",
        ),
        (".module.fused", "module", "batch_matmul_activation conv_bn conv_transpose_bn linear_bn"),
        (".module.linear", "module", "embedding"),
        (".module.normalization", "module", "batchnorm lrn"),
        (".module.pooling", "module", "adaptive_pooling deformable_psroi_pooling"),
        (".module.qat.fused", "module.qat", "conv_bn conv_transpose_bn linear_bn"),
        (
            ".module.qat.layers",
            "module.qat",
            "batch_matmul_activation concat conv elemwise linear quant_dequant",
        ),
        (
            ".module.quantized.layers",
            "module.quantized",
            "batch_matmul_activation concat conv conv_bn conv_transpose_bn elemwise linear linear_bn module "
            "quant_dequant",
        ),
    )
    for name in names.split()
}
"""The files that hold what is in other modules of MegEngine's."""
_MODULES = {module for _, modules, _ in _ROWS for module in modules} | {
    "core.tensor",
    "module.qat",
    "module.quantized",
    *_HOMES,
}


def absent(module: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module, which gives the names that the table lists for it.

    Args:
        module: the module's full name.

    >>> from loadrun.megengine.optimizer import SGD
    >>> SGD([], lr=0.1)
    Traceback (most recent call last):
    loadrun.base.errors.UnsupportedError: SGD: loadrun runs networks, it does not train them; MegEngine has it
    """
    path = _inner(module)

    def find(name: str) -> Any:
        if f"{path}.{name}" in _MODULES and not _is_listed(path, name):
            return import_module(f"{module}.{name}")
        why = None if name.startswith("__") else _why(path, name)
        if why is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return _stand_in(module, name, why)

    return find


def _inner(module: str) -> str:
    """Return a module's name inside MegEngine."""
    return module.removeprefix(f"{__package__}.")


def _why(path: str, name: str) -> str | None:
    listed = (why for why, modules, names in _ROWS if path in modules and (name in names or _ANY in names))
    return next(listed, None)


def _is_listed(path: str, name: str) -> bool:
    """Return whether a name is in the table by itself; it then comes before a module that is called the same."""
    return any(path in modules and name in names for _, modules, names in _ROWS)


def _stand_in(module: str, name: str, why: str) -> Any:
    """Return the class that stands for a function, a class or a value."""
    sentence = f"{name}: {why}; MegEngine has it"
    body = {"__absent__": sentence, "__doc__": f"{sentence}.", "__module__": module}
    return _Absent(name, (), body)


class _Absent(ABCMeta):
    """The class of classes that stand for names: whatever is done with them ends in their sentence.

    It is an `ABCMeta`, so that inheriting from one and from a `Module` ends in it as well.
    """

    __absent__: str

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any], **kwargs: Any) -> _Absent:
        # Not in __init_subclass__: ABCs would remember the class that was half made.
        for base in bases:
            if isinstance(base, _Absent):
                raise UnsupportedError(base.__absent__)
        return super().__new__(mcs, name, bases, body, **kwargs)

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(cls.__absent__)

    def __bool__(cls) -> bool:
        raise UnsupportedError(cls.__absent__)

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(f"{name} of {cls.__absent__}")


class _AbsentModule(ModuleType):
    """A module of the table, whose settings cannot be set."""

    def __setattr__(self, name: str, value: Any) -> None:
        path = _inner(self.__name__)
        if isinstance(value, ModuleType) and _is_listed(path, name):
            return
        why = None if name.startswith("__") or isinstance(value, ModuleType) else _why(path, name)
        if why is not None:
            raise UnsupportedError(f"{name}: {why}; MegEngine has it")
        super().__setattr__(name, value)


class _Finder(MetaPathFinder, Loader):
    """Finds the modules of the table that have no file."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        inner = _inner(name)
        if inner == name or inner not in _MODULES:
            return None
        return spec_from_loader(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        path = _inner(module.__name__)
        names = [n for _, modules, names in _ROWS if path in modules for n in names if n != _ANY]
        if path in _HOMES:
            found = vars(import_module(_HOMES[path], __package__))
            vars(module).update((n, thing) for n, thing in found.items() if not n.startswith("__"))
            names += found.get("__all__") or [n for n in found if not n.startswith("_")]
        vars(module).update(__getattr__=absent(module.__name__), __all__=names)


# At the end of the path: files come first.
sys.meta_path.append(_Finder())
