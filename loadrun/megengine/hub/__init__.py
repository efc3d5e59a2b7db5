"""Models from repositories, and pretrained weights, as ``megengine.hub`` has them.

`load`, `list`, `help` and `import_module` run the file ``hubconf.py`` of a folder, or of a repository, which is
downloaded when it is not there yet: they trust whoever wrote it. Nothing else in loadrun runs code that it is pointed
to.
"""

from ..absent import absent
from .hub import help, import_module, list, load, load_serialized_obj_from_url, pretrained

__all__ = ["help", "import_module", "list", "load", "load_serialized_obj_from_url", "pretrained"]

__getattr__ = absent(__name__)
