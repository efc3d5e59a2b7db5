"""Checkpoints under the name of ``megengine.serialization``; ``megengine.load`` and ``megengine.save`` are these two.

`loadrun.load` and `loadrun.save` read and write dumps, so that checkpoints are read and written by
`loadrun.megengine.load` and `loadrun.megengine.save`.
"""

from typing import Any

from ..dump.checkpoint import load_checkpoint, save_checkpoint


def load(f: Any, map_location: Any = None, pickle_module: Any = None) -> Any:
    """Read a checkpoint without running anything; see `loadrun.megengine.load`.

    Args:
        f: a path, an open binary file, or bytes.
        map_location: on which device tensors go.
        pickle_module: accepted for MegEngine's sake; pickles are never run.
    """
    return load_checkpoint(f, map_location)


def save(obj: Any, f: Any, pickle_module: Any = None, pickle_protocol: int = 4) -> None:
    """Write a checkpoint that MegEngine reads; see `loadrun.megengine.save`.

    Args:
        obj: a module, whose state dict is written, or containers of tensors and arrays.
        f: a path or an open binary file.
        pickle_module, pickle_protocol: accepted for MegEngine's sake; files have protocol 4.
    """
    save_checkpoint(obj, f)
