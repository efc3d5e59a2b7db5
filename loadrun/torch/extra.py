"""The torch package, imported when it is needed."""

from typing import Any

from ..base.errors import UsageError
from ..base.extras import install


def need_torch() -> Any:
    """Import and return the torch package.

    Raises:
        UsageError: it is not installed, or older than 2.5.
    """
    try:
        import torch  # optional

        version = torch.__version__
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"tracing a PyTorch module needs the package torch (2.5 or later): {install('torch')}"
        ) from error
    numbers = tuple(int(n) for n in version.split("+")[0].split(".")[:2])
    if numbers < (2, 5):
        raise UsageError(f"torch {version} is installed; tracing PyTorch modules needs 2.5 or later")
    return torch
