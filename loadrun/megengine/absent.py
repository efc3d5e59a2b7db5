"""Names that code written for MegEngine imports and that mean nothing here: they are there, and refuse to be called."""

from __future__ import annotations

import re
import sys
from abc import ABCMeta
from collections.abc import Callable
from typing import Any, NamedTuple

from ..base.errors import UnsupportedError

__all__ = ["listed", "refusing", "stand_in"]

_TRAINING = "loadrun runs networks, it does not train them; leave this part of the script out"
_PROCESSES = "loadrun runs in one process; run it once, or start several processes yourself"
_EXCHANGE = "loadrun runs in one process, so there is nothing to exchange; leave the call out"
_NO_GPU = "there is no GPU; the CPU computes"
_NO_METER = "memory of devices is not counted; loadrun.engines.program.MemoryMeter measures a run"
_ARCHIVES = "loadrun downloads and unpacks no datasets; give the samples to ArrayDataset, or write a Dataset"
_MODULE_GRAPHS = (
    "loadrun has no graphs of modules; trace and dump the module, and edit the dump with "
    "loadrun.megengine.utils.network.Network"
)
_VENDORS = "it runs only inside its vendor's runtime; loadrun reads dumps that hold it and does not run it"
_TABLE = (
    (
        "optimizer",
        _TRAINING,
        "Optimizer Adadelta(Optimizer) Adagrad(Optimizer) Adam(Optimizer) AdamW(Optimizer) LAMB(Optimizer) "
        "LAMBFp16(LAMB) SGD(Optimizer) LRScheduler MultiStepLR(LRScheduler) clip_grad_norm() clip_grad_value()",
    ),
    ("amp", _TRAINING, "GradScaler"),
    ("autodiff", _TRAINING, "GradManager"),
    ("autodiff.grad_manager", _TRAINING, "GradManager get_backwarding_grad_manager()"),
    ("core.autodiff.grad", _TRAINING, "Grad GradKey get_grad_managers()"),
    ("module.module", _TRAINING, "zero_grad()"),
    (
        "traced_module",
        _MODULE_GRAPHS,
        "TracedModule trace_module() register_as_builtin() register_supported_type() wrap() optimize() "
        "enable_expr_checker() disable_default_checker()",
    ),
    (
        "distributed",
        _PROCESSES,
        "Client Group Server launcher bcast_list_() get_client() init_process_group() make_allreduce_cb() "
        "new_group() override_backend()",
    ),
    (
        "distributed.functional",
        _EXCHANGE,
        "all_gather() all_reduce_max() all_reduce_min() all_reduce_sum() all_to_all() broadcast() "
        "collective_comm() gather() reduce_scatter_sum() reduce_sum() remote_recv() remote_send() scatter()",
    ),
    (
        "functional.external",
        _VENDORS,
        "extern_opr_subgraph() tensorrt_runtime_opr() cambricon_runtime_opr() atlas_runtime_opr() "
        "magicmind_runtime_opr()",
    ),
    (
        "device",
        _NO_GPU,
        "get_cuda_compute_capability() get_cuda_device_property() get_cuda_version() get_cuda_driver_version() "
        "get_cudnn_version() get_tensorrt_version()",
    ),
    (
        "device",
        _NO_METER,
        "get_allocated_memory() get_reserved_memory() get_max_allocated_memory() get_max_reserved_memory() "
        "get_mem_status_bytes()",
    ),
    (
        "data.dataset.vision",
        _ARCHIVES,
        "CIFAR10(VisionDataset) CIFAR100(VisionDataset) COCO(VisionDataset) Cityscapes(VisionDataset) "
        "ImageFolder(VisionDataset) ImageNet(VisionDataset) MNIST(VisionDataset) Objects365(VisionDataset) "
        "PascalVOC(VisionDataset)",
    ),
)
"""Modules of MegEngine's, why their names are absent, and the names: functions with (), classes with what they
inherit from."""


class _Absent(NamedTuple):
    why: str
    function: bool
    base: str


_ABSENT = {
    (module, name): _Absent(why, brackets == "()", brackets.strip("()"))
    for module, why, names in _TABLE
    for name, brackets in re.findall(r"(\w+)(\(\w*\))?", names)
}


def refusing(module: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module: it gives the stand-ins that the table here lists for it.

    Args:
        module: the module's full name.

    >>> from loadrun.megengine.optimizer import SGD, Optimizer
    >>> issubclass(SGD, Optimizer)
    True
    >>> SGD([], lr=0.1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    loadrun.base.errors.UnsupportedError: SGD: loadrun runs networks, it does not train them; ...
    """
    own = _own(module)
    whys = [why for listed, why, _ in _TABLE if listed == own]

    def find(name: str) -> Any:
        if (own, name) not in _ABSENT:
            raise AttributeError(f"{module} has no {name}: {whys[0].partition(';')[0]}")
        placeholder = stand_in(module, name)
        setattr(sys.modules[module], name, placeholder)
        return placeholder

    return find


def listed(module: str) -> list[str]:
    """Return the absent names of a module, for its ``__all__``.

    Args:
        module: the module's full name.
    """
    return [name for own, name in _ABSENT if own == _own(module)]


def stand_in(module: str, name: str) -> Any:
    """Return the function that refuses to be called, or the class that refuses to be made, which stands for a name.

    Classes may be inherited from and named in annotations.

    Args:
        module: the full name of the module that has it.
        name: a name that the table lists.
    """
    why, function, base = _ABSENT[_own(module), name]
    refuse = _function(name, why)
    if function:
        return refuse
    bases = (getattr(sys.modules[module], base),) if base else ()
    body = {
        "__new__": refuse,
        "__absent__": why,
        "__doc__": f"Refuses to be made: {why}.",
        "__module__": module,
    }
    return _AbsentClass(name, bases, body)


class _AbsentClass(ABCMeta):
    """The class of classes that refuse to be made, whose attributes are refused as well."""

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(
            f"{cls.__name__}.{name}: {vars(cls).get('__absent__', 'there is no such attribute')}"
        )


def _own(module: str) -> str:
    """Return a module's name inside MegEngine."""
    return module.removeprefix(f"{__package__}.")


def _function(name: str, why: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(f"{name}: {why}")

    refuse.__name__ = refuse.__qualname__ = name
    vars(refuse)["__absent__"] = why
    refuse.__doc__ = f"Refuse: {why}."
    return refuse
