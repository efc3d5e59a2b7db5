"""Names and limits of the hub, as ``megengine.hub.const`` has them."""

__all__ = [
    "DEFAULT_BRANCH_NAME",
    "DEFAULT_CACHE_DIR",
    "DEFAULT_GIT_HOST",
    "DEFAULT_PROTOCOL",
    "ENV_MGE_HOME",
    "ENV_XDG_CACHE_HOME",
    "HTTP_READ_TIMEOUT",
    "HUBCONF",
    "HUBDEPENDENCY",
]

DEFAULT_BRANCH_NAME = "master"
DEFAULT_CACHE_DIR = "~/.cache"
DEFAULT_GIT_HOST = "github.com"
DEFAULT_PROTOCOL = "HTTPS"
ENV_MGE_HOME = "MGE_HOME"
ENV_XDG_CACHE_HOME = "XDG_CACHE_HOME"
HTTP_READ_TIMEOUT = 120
HUBCONF = "hubconf.py"
HUBDEPENDENCY = "dependencies"
