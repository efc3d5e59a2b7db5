"""MegEngine's functional API for inference: eager on tensors and arrays, recorded inside a traced function."""

from .tensor import *  # noqa: F403
