"""The input DSL: text such as ``data:cat.jpg;mask:#rand(0,1,1,...)`` parsed to frozen values, and back.

A specification is a list of parts separated by ``;``. A part is ``name:source``; the name may be left out when
the model has a single input. Sources are

==================== =====================================================================================
``cat.jpg``          a file: image, .npy, .npz or .json; ``file.npz!key`` picks one array of it
``#rand(lo,hi)``     uniform numbers; ``#randn(mean,std)``, ``#randint(lo,hi)`` (hi excluded), ``#zeros``,
                     ``#ones`` and ``#full(v)`` likewise; more arguments give the shape, a last ``...`` stands
                     for the rest of the input's own shape; ``seed=7`` as the last argument fixes the stream
``{1,3,224,224}``    uniform numbers in [0, 1) of that shape
``[[1,2],[3,4]]``    the values themselves
``@list.txt``        a file with one specification a line (the whole specification, not a part)
==================== =====================================================================================

Blanks around names, separators and numbers do not matter. Names and paths may stand in single or double quotes,
in which a doubled quote stands for itself; outside quotes ``::`` is a literal colon, and ``C:\\x`` is a path.
Parsing touches no file. What stands here beyond MegEngine's ``trace.dump(input_data=...)`` is an error there.
"""

from .caret import point
from .grammar import parse
from .values import FILLS, MAX_SEED, Generated, InputPart, InputSpec, ListFile, PathSource, Source, Values

__all__ = [
    "FILLS",
    "MAX_SEED",
    "Generated",
    "InputPart",
    "InputSpec",
    "ListFile",
    "PathSource",
    "Source",
    "Values",
    "parse",
    "point",
]
