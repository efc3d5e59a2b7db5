"""Pretrained weights as MegEngine's hub finds them (``hub/hub.py``), from a folder instead of the network.

``hub.pretrained(url)`` is the decorator that published model code puts on its constructors. It is kept as it is; the
weights are read from the file that MegEngine would have downloaded them to, and without unpickling code.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from . import load_checkpoint


def load_serialized_obj_from_url(url: str, model_dir: str | os.PathLike[str] | None = None) -> Any:  # noqa: ANN401 - a checkpoint holds anything
    """Return the checkpoint that MegEngine keeps for `url`.

    Args:
        url: where it was published; only its name matters here.
        model_dir: the folder; by default ``$MGE_HOME/serialized``, as MegEngine has it (MGE_HOME is
            ``$XDG_CACHE_HOME/megengine``, which is ``~/.cache/megengine`` if nothing is set).

    Returns:
        what `loadrun.megengine.load` gives.

    Raises:
        FileNotFoundError: it is not there; nothing is ever downloaded.
        FormatError: it is not a checkpoint.

    Source of semantics: MegEngine ``hub/hub.py``.

    >>> load_serialized_obj_from_url("https://host/net.pkl", "folder")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: no folder/..._net.pkl: loadrun downloads nothing; put https://host/net.pkl there, ...
    """
    folder = _serialized() if model_dir is None else Path(model_dir)
    digest = hashlib.sha256(url.encode()).hexdigest()[:6]
    path = folder / f"{digest}_{os.path.basename(urlparse(url).path)}"
    if not path.exists():
        raise FileNotFoundError(
            f"no {path}: loadrun downloads nothing; put {url} there, or load its state dict into the net: "
            "net.load_state_dict(loadrun.megengine.load(file))"
        )
    return load_checkpoint(path)


def pretrained(url: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a function that builds a module the parameter ``pretrained``: whether to load the weights of `url`.

    >>> import loadrun.megengine.module as M
    >>> @pretrained("https://host/linear.pkl")
    ... def linear(width=2):
    ...     return M.Linear(width, 1)
    >>> linear(width=3).weight.shape
    (1, 3)
    """

    def decorate(build: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(build)
        def model(pretrained: bool = False, **kwargs: Any) -> object:
            net = build(**kwargs)
            if pretrained:
                net.load_state_dict(load_serialized_obj_from_url(url))
            return net

        return model

    return decorate


def _serialized() -> Path:
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    home = os.getenv("MGE_HOME", os.path.join(cache, "megengine"))
    return Path(os.path.expanduser(home)) / "serialized"
