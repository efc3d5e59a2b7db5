"""Options of MegEngine's ``trace.dump``, and the record that writing a dump returns."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TextIO

from ..base.errors import LoadRunError, UsageError
from ..base.files import contents
from ..base.registry import late
from ..base.writing import replacing
from ..graph import Graph, Header, Metadata, Opr
from ..graph.params import Elemwise
from ..ops.catalog import CATALOG, types
from ..ops.infer import infer_dtypes
from ..ops.op import Trait
from ..passes.constants import subgraph
from ..passes.older import for_older
from ..testcase import Bundle

with late(__name__):
    import pickle

    from .checkpoint import emit

FORMATS = ("FBS_V2", "FBS")
_MODULES = "loadrun.megengine.module"
"""Where the classes of modules are, which may be in a dump's ``user_info``."""
_FIRST = -(2**31)
"""The priority that MegEngine gives inputs and constants."""
_NO_WORKSPACE = types(Trait.NO_WORKSPACE)


@dataclass(frozen=True)
class DumpOptions:
    """How a graph is written. None keeps what the graph says.

    Attributes:
        dump_format: format version.
        model_version: version number of FBS_V2 files, at least 2.
        no_change_graph: False rewrites newer operators for older runtimes, see `loadrun.passes.older.for_older`.
            MegEngine's default is False, and its rewriting of CLIP, SIGN, ISINF and affine GroupNorm is wrong in
            1.13.0.
        compat_older_version: write FBS with this release's header and ids, and rewrite newer operators.
        keep_var_name: keep variable names: of none (0), of the outputs (1), or of all (2). FBS_V2 files have all of
            them with 1, too; inputs have names in any case.
        keep_opr_name: keep the names of operators.
        keep_param_name: keep the names of weights.
        keep_opr_priority: keep the priorities of operators.
        user_info: text to store as metadata. In Python, anything that can be pickled, which is how MegEngine stores it;
            tensors and modules are stored as MegEngine's, bytes as they are.
        enable_metadata: store metadata (the default).
        strip_info_file: write the operators, dtypes and modes in use to a JSON file. In Python, an open file will do.
        append_json: add to that JSON file instead of replacing it.
        append: append the dump to the file.
        narrow: store 64-bit numbers in 32 bits in a .mge file even where that changes values; the record says so.
            Without it such a file is refused.

    >>> DumpOptions(dump_format="FBS", keep_var_name=0).keep_opr_name is None
    True
    """

    dump_format: str | None = None
    model_version: int | None = None
    no_change_graph: bool | None = None
    compat_older_version: str | None = None
    keep_var_name: int | None = None
    keep_opr_name: bool | None = None
    keep_param_name: bool | None = None
    keep_opr_priority: bool | None = None
    user_info: object = None
    enable_metadata: bool | None = None
    strip_info_file: str | os.PathLike[str] | TextIO | None = None
    append_json: bool = False
    append: bool = False
    narrow: bool = False

    def __post_init__(self) -> None:
        if self.dump_format not in (None, *FORMATS):
            raise UsageError(f"format {self.dump_format!r} is unknown; expected {' or '.join(FORMATS)}")
        if self.keep_var_name not in (None, 0, 1, 2):
            raise UsageError(f"keep_var_name must be 0, 1 or 2, found {self.keep_var_name!r}")
        if self.model_version is not None and not 2 <= self.model_version < 2**32:
            raise UsageError(
                f"model_version must be at least 2, found {self.model_version}: MegEngine 1.13 cannot read version 1"
            )
        if self.compat_older_version not in (None, "8.14"):
            raise UsageError(f"compat_older_version must be 8.14, found {self.compat_older_version!r}")
        if self.compat_older_version and self.dump_format == "FBS_V2":
            raise UsageError("compat_older_version needs the format FBS")
        if self.compat_older_version and self.no_change_graph:
            raise UsageError("compat_older_version rewrites newer operators, which no_change_graph forbids")

    def format_of(self, graph: Graph) -> str:
        """Return the format in which a graph is written."""
        return self.dump_format or ("FBS" if self.compat_older_version else graph.header.format)

    def apply(self, graph: Graph) -> Graph:
        """Return the graph as it is to be written: itself, or a copy that follows the options.

        Args:
            graph: the graph.
        """
        unchanged = DumpOptions(
            self.dump_format,
            no_change_graph=self.no_change_graph or None,
            strip_info_file=self.strip_info_file,
            append_json=self.append_json,
            append=self.append,
            narrow=self.narrow,
        )
        if self == unchanged:
            return graph
        if self.no_change_graph is False or self.compat_older_version:
            copy = for_older(graph, self.format_of(graph))
        else:
            copy, _ = subgraph(graph, graph.outputs, everything=True)
        if self.keep_opr_name is not None:
            for opr in copy.oprs:
                name = opr.name or (opr.outputs[0].name if len(opr.outputs) == 1 else None)
                opr.name = name if self.keep_opr_name else None
        if self.keep_param_name is not None:
            for opr in _weights(copy):
                for tensor, var in zip(opr.tensors, opr.outputs, strict=False):
                    tensor.name = tensor.name or var.name if self.keep_param_name else None
        if self.keep_opr_priority is not None:
            for opr in copy.oprs:
                kept = opr.dumped.priority or (_FIRST if opr.tensors else opr.id)
                opr.dumped = opr.dumped._replace(priority=kept if self.keep_opr_priority else 0)
        self._names(copy)
        self._metadata(copy.header)
        if self.model_version is not None:
            copy.header.model_version = self.model_version
        if self.compat_older_version:
            copy.header.magic = "MGBS"
        return copy

    def _names(self, graph: Graph) -> None:
        if self.keep_var_name is None:
            return
        old = self.format_of(graph) == "FBS"
        keep = {id(v) for v in (*graph.outputs, *Bundle(graph).outputs.values())}
        for var in graph.vars():
            if self.keep_var_name == 0 or (old and self.keep_var_name == 1 and id(var) not in keep):
                if var.owner.type != "Host2DeviceCopy":
                    var.name = None
            else:
                var.name = var.label
        graph.header.has_middle_tensors = self.keep_var_name > 0
        if self.keep_var_name == 0 and not old:
            # Of version 1 the writer takes names that inputs have on their tensors anyway.
            graph.header.magic = "mgv2"

    def _metadata(self, header: Header) -> None:
        if self.enable_metadata is False:
            header.metadata = None
        elif self.enable_metadata and header.metadata is None:
            header.metadata = Metadata(is_valid=True)
        if self.user_info is not None:
            if header.metadata is None and self.enable_metadata is False:
                raise UsageError("user_info is part of the metadata, which enable_metadata=False leaves out")
            raw = self.user_info
            data = raw if isinstance(raw, bytes) else information(raw)
            header.metadata = replace(header.metadata or Metadata(), is_valid=True, user_info=data)


def information(value: object) -> bytes:
    """Return ``user_info`` as a dump keeps it: a pickle in MegEngine's terms where these suffice."""

    def name_of(kind: type) -> tuple[str, str] | None:
        # A class that exists has been imported.
        modules = sys.modules.get(_MODULES)
        return ("megengine.module", kind.__name__) if getattr(modules, kind.__name__, None) is kind else None

    try:
        return emit.pickled(value, name_of)
    except UsageError:
        return pickle.dumps(value, protocol=4)


class DumpResult(NamedTuple):
    """Counts of what was written; MegEngine's ``trace.dump`` returns the same in the same order.

    Attributes:
        nr_opr: operators of the graph.
        tot_bytes: bytes of the whole, testcases included.
        tensor_value_bytes: bytes of the graph's stored tensors.
        content_hash: the hash in a version 1 file, 0 in FBS_V2.
        inputs: names of the graph inputs, sorted.
        outputs: names of the outputs.
        params: names of the stored tensors that have one.
        testcases: how many testcases were written.
    """

    nr_opr: int
    tot_bytes: int
    tensor_value_bytes: int
    content_hash: int
    inputs: list[str]
    outputs: list[str]
    params: list[str]
    testcases: int


def summary(graph: Graph, total: int, content_hash: int, testcases: int) -> DumpResult:
    """Sum up what writing a graph gave."""
    weights = [t for o in _weights(graph) for t in o.tensors]
    return DumpResult(
        nr_opr=len(graph.oprs),
        tot_bytes=total,
        tensor_value_bytes=graph.stored_bytes,
        content_hash=content_hash,
        inputs=[v.name or "" for v in graph.inputs],
        outputs=_output_names(graph),
        params=[t.name for t in weights if t.name],
        testcases=testcases,
    )


def _output_names(graph: Graph) -> list[str]:
    """Names of the outputs, ``unnamed0`` and so on where the file keeps none."""
    bundle = Bundle(graph)
    checked = {c.name for c in bundle.checks}
    outputs = bundle.outputs.items()
    return [n if n in checked or v.name else f"unnamed{i}" for i, (n, v) in enumerate(outputs)]


def strip_info(graph: Graph) -> dict[str, list[str]]:
    """Keep what a runtime needs to execute the graph, for building one that has nothing else.

    >>> import loadrun
    >>> strip_info(loadrun.load("fixtures/nets/lstm_2_both.mge").graph)["elemwise_modes"]
    ['ABS', 'ADD', 'MAX', 'MIN', 'SUB', 'TRUE_DIV']
    """
    oprs = graph.needed()
    try:
        infer_dtypes(oprs)
    except LoadRunError as e:
        raise UsageError(f"strip_info_file needs the dtypes of all variables: {e}") from e
    types = {CATALOG[o.type].class_name for o in oprs}
    dtypes = {v.dtype.name for o in oprs for v in o.outputs if v.dtype is not None}
    if any(o.type not in _NO_WORKSPACE for o in oprs):
        # Workspaces, which no file mentions, are bytes.
        dtypes.add("Byte")
    modes = {o.get(Elemwise).mode.name for o in oprs if o.type == "Elemwise"}
    return {"opr_types": sorted(types), "dtypes": sorted(dtypes), "elemwise_modes": sorted(modes)}


def update_strip_info(
    graph: Graph, target: str | os.PathLike[str] | TextIO, content_hash: int, *, append: bool
) -> None:
    """Write `strip_info` to a JSON file, or add it to the lists that the file has.

    Args:
        graph: the graph.
        target: the file, or an open one that can be read, written and rewound.
        content_hash: the hash of the dump.
        append: whether the lists of the file are extended.

    Raises:
        UsageError: the file to be extended holds something else.
    """
    path = Path(target) if isinstance(target, (str, os.PathLike)) else None
    lists = strip_info(graph)
    existing = ""
    if append and not isinstance(target, (str, os.PathLike)):
        target.seek(0)
        existing = target.read()
    elif append and path is not None and path.exists():
        existing = contents(path, "a strip info file").decode()
    if existing:
        try:
            old = json.loads(existing)
            lists = {
                key: [*old.get(key, []), *(x for x in new if x not in old.get(key, []))]
                for key, new in lists.items()
            }
        except (ValueError, TypeError, AttributeError, RecursionError) as e:
            raise UsageError(
                f"{path or 'the open file'} is not a strip info file, so it cannot be extended: {e}"
            ) from None
    info = {**lists, "hash": content_hash}
    if isinstance(target, (str, os.PathLike)):
        with replacing(target) as f:
            f.write(json.dumps(info).encode())
    else:
        target.seek(0)
        target.truncate()
        target.write(json.dumps(info))


def _weights(graph: Graph) -> Iterator[Opr]:
    return (o for o in graph.oprs if o.tensors and o.type != "Host2DeviceCopy")
