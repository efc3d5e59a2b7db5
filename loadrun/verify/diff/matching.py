"""Which variables of two graphs stand for the same value."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from ...graph import Graph, Opr, Var, params as P
from ...graph.composite import Composite
from ...ops.elemwise.table import ROWS


@dataclass(eq=False)
class Matching:
    """Pairs of variables, by the ids of the first graph's.

    Attributes:
        pairs: id in the first graph -> variable of the second one.
        how: id in the first graph -> "name", "structure", "place" or "value".
        taken: ids of the second graph's variables that have a partner.
        alike: whether both graphs come from files of one format, so that equal models have equal operators.
        named: whether both have most names in common, as a model and its conversion have.
    """

    pairs: dict[int, Var] = field(default_factory=dict)
    how: dict[int, str] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    alike: bool = True
    named: bool = False

    def add(self, a: Var, b: Var, how: str) -> bool:
        """Pair two variables, if neither has a partner yet."""
        if a.id in self.pairs or b.id in self.taken:
            return False
        self.pairs[a.id] = b
        self.how[a.id] = how
        self.taken.add(b.id)
        return True

    def part(self, a: Var) -> tuple[Var, str]:
        """Undo a pair; returns the partner, and how it was matched."""
        partner = self.pairs.pop(a.id)
        self.taken.discard(partner.id)
        return partner, self.how.pop(a.id)

    def part_all(self, numbers: Iterable[int]) -> None:
        """Undo the pairs of variables, by the ids of the first graph's."""
        for number in numbers:
            self.taken.discard(self.pairs.pop(number).id)
            del self.how[number]

    def replace(self, a: Var, b: Var, how: str) -> None:
        """Pair two variables, whatever partners they had."""
        self.part_all([i for i, v in self.pairs.items() if i == a.id or v is b])
        self.add(a, b, how)
        pair_constants(self, a.owner, b.owner)

    def add_all(self, a: Opr, b: Opr, how: str) -> None:
        """Pair the outputs of two operators."""
        for x, y in zip(a.outputs, b.outputs, strict=False):
            self.add(x, y, how)

    def counts(self) -> dict[str, int]:
        """How many pairs were found in which way."""
        return dict(Counter(self.how.values()))


def match(a: Graph, b: Graph, *, ordered: bool = True) -> Matching:
    """Pair the variables of two graphs: by names, by structure, and by their place between matched ones.

    Inputs match by name, constants by content, or else as operands of matched operators. Where both graphs have most
    names in common, as a file and its conversion have, values of one name are one value. An operator matches one of
    the same type and parameters on matched inputs; where there is none, the one whose output has the same name, or the
    only other reader of the same inputs. Outputs match by name or by order, and from them the walk goes backwards.

    Args:
        a: the graph under suspicion, without checks (`loadrun.passes.constants.bare`).
        b: the graph that it is compared with.
        ordered: whether outputs of other names stand for each other in order, which the last values of what can be
            expressed of a model do not.

    >>> import loadrun
    >>> from loadrun.passes.constants import bare
    >>> graph = bare(loadrun.load("fixtures/nets/mlp.mge"))
    >>> found = match(graph, graph)
    >>> len(found.pairs) == len([*graph.vars()]), found.pairs[graph.outputs[0].id] is graph.outputs[0]
    (True, True)
    """
    m = Matching(alike=a.header.magic.startswith("ONNX") == b.header.magic.startswith("ONNX"))
    _inputs(m, a, b)
    _constants(m, a, b)
    m.named = _have_names_in_common(a, b)
    if m.named:
        # The first value by an output's name may be an inner one, before a cast that optimization put there.
        _outputs(m, a, b, ordered)
        _provenance(m, a, b)
    _forward(m, a, b)
    _outputs(m, a, b, ordered)
    _backward(m, a)
    return m


def extend(m: Matching, a: Graph, b: Graph) -> None:
    """Pair what operators of one type compute from pairs that were found otherwise since."""
    _forward(m, a, b, same_type=True)
    _backward(m, a)


def _inputs(m: Matching, a: Graph, b: Graph) -> None:
    names = {v.name: v for v in b.inputs}
    for var in a.inputs:
        if var.name in names:
            m.add(var, names[var.name], "name")


def _have_names_in_common(a: Graph, b: Graph) -> bool:
    """Return whether most named values of the graph with fewer names have their name in the other one.

    Names with numbers in them can be equal by chance, in a model that was built again; not most of them.
    """
    one, other = _unique_names(a), _unique_names(b)
    # A model of another format has names in common only where it was made of this one; a broken one has few left.
    share = 2 if (a.header.magic.startswith("ONNX") == b.header.magic.startswith("ONNX")) else 8
    return share * len(one.keys() & other.keys()) > min(len(one), len(other))


def _provenance(m: Matching, a: Graph, b: Graph) -> None:
    """Pair values by name, and the constants that are at the same places of operators of one type.

    An operator of another type under the name is still what the user calls so.
    """
    names = _unique_names(b)
    for name, var in _unique_names(a).items():
        if name in names and m.add(var, names[name], "name"):
            pair_constants(m, var.owner, names[name].owner)
            if kind_of(var.owner) == kind_of(names[name].owner):
                m.add_all(var.owner, names[name].owner, "name")


def pair_constants(m: Matching, a: Opr, b: Opr) -> None:
    """Pair the constants that two matched operators of one type read at the same places.

    Where the other operator is folded into the first one, they are those of the operator before it.
    """
    if kind_of(a) != kind_of(b) and a.inputs and b.inputs:
        before = b.inputs[0].owner
        if before.inputs and m.pairs.get(a.inputs[0].id) is before.inputs[0]:
            b = before
    if kind_of(a) == kind_of(b):
        for x, y in zip(a.inputs, b.inputs, strict=False):
            if is_constant(x) and is_constant(y):
                m.add(x, y, "structure")


def _constant_digests(graph: Graph) -> list[tuple[Var, str]]:
    """Constants with digests of their content."""
    digests = []
    for opr in graph.oprs:
        if opr.type == "Host2DeviceCopy":
            continue
        for var, tensor in zip(opr.outputs, opr.tensors, strict=False):
            if tensor.data is not None:
                digest = blake2b(f"{tensor.dtype} {tensor.shape}".encode(), digest_size=16)
                digest.update(np.ascontiguousarray(tensor.data).data)
                digests.append((var, digest.hexdigest()))
    return digests


def _constants(m: Matching, a: Graph, b: Graph) -> None:
    """Constants of equal content: first those that also have one name, then in order."""
    known: dict[Hashable, list[Var]] = defaultdict(list)
    left, right = _constant_digests(a), _constant_digests(b)
    for var, digest in right:
        known[digest, var.name].append(var)
    rest = [(var, d) for var, d in left if not first_of(m, var, known[d, var.name], "name")]
    known.clear()
    for var, digest in right:
        known[digest].append(var)
    for var, digest in rest:
        first_of(m, var, known[digest], "structure")


def first_of(m: Matching, var: Var, candidates: Iterable[Var], how: str) -> bool:
    """Pair a variable with the first candidate that has no partner; returns whether there is one."""
    return any(m.add(var, other, how) for other in candidates if other.id not in m.taken)


def is_cast(opr: Opr) -> bool:
    """Return whether an operator converts the type of its input."""
    return kind_of(opr) in ("TypeCvtV2", "Cast")


def kind_of(opr: Opr) -> str:
    """Return an operator's type, or the node that it is where the graph is made of nodes of another format."""
    return opr.title if any(isinstance(p, Composite) for p in opr.params) else opr.type


def are_alike(one: Opr, other: Opr) -> bool:
    """Return whether two operators have one name, in MegEngine's words or in ONNX's."""
    return one.title == other.title or _node_of(one) == _node_of(other)


def _node_of(opr: Opr) -> str:
    row = ROWS[opr.get(P.Elemwise).mode] if opr.type == "Elemwise" else None
    return opr.title if row is None else row.onnx or opr.title


def is_constant(var: Var) -> bool:
    """Return whether a variable is stored in the file."""
    return bool(var.owner.tensors) and var.owner.type != "Host2DeviceCopy"


def operators_before(oprs: Iterable[Opr], passes: Callable[[Var], bool]) -> tuple[Opr, ...]:
    """List the operators that others are computed from, in order, as far back as the values between them pass."""
    passed: dict[int, Opr] = {}
    todo = [*oprs]
    while todo:
        for var in todo.pop().inputs:
            if passes(var) and var.owner.id not in passed:
                passed[var.owner.id] = var.owner
                todo.append(var.owner)
    return tuple(passed[i] for i in sorted(passed))


def _facts(opr: Opr) -> Hashable:
    return opr.type, repr(opr.params), opr.output_dtype, len(opr.inputs), len(opr.outputs)


def _forward(m: Matching, a: Graph, b: Graph, *, same_type: bool = False) -> None:
    """Operators on matched inputs, in execution order."""
    names = _unique_names(b)
    ends = {id(v.owner) for v in (*a.outputs, *b.outputs)}
    readers: dict[Hashable, list[Opr]] = defaultdict(list)
    for opr in b.oprs:
        if opr.inputs:
            readers[_key(opr, [None if _is_loose(m, v) else v.id for v in opr.inputs])].append(opr)
    for opr in a.oprs:
        if not opr.inputs or (opr.outputs and opr.outputs[0].id in m.pairs):
            continue
        other = _partner_of(m, opr, readers[_key(opr, [_partner(m, v) for v in opr.inputs])], names)
        if other is None or (same_type and kind_of(other[0]) != kind_of(opr)):
            continue
        if other[0].title != opr.title and id(other[0]) in ends and id(opr) not in ends:
            # Fusion left fewer operators there, which brought the walk to the end too early.
            continue
        pair_constants(m, opr, other[0])
        m.add_all(opr, other[0], other[1])


def _key(opr: Opr, inputs: list[int | None]) -> Hashable:
    """Return the ids of what an operator reads, sorted where their order makes no difference."""
    if opr.title.upper() in ("ADD", "MUL", "MAX", "MIN"):
        inputs.sort(key=lambda i: -2 if i is None else i)
    return tuple(inputs)


def _is_loose(m: Matching, var: Var) -> bool:
    """Return whether a constant of the other graph has no partner of the same content, so any may stand for it."""
    return is_constant(var) and var.id not in m.taken


def _partner(m: Matching, var: Var) -> int | None:
    """Return the id of the variable's partner, None for a loose constant, -1 for what has none."""
    if var.id in m.pairs:
        return m.pairs[var.id].id
    return None if is_constant(var) else -1


def _partner_of(m: Matching, opr: Opr, there: list[Opr], names: dict[str, Var]) -> tuple[Opr, str] | None:
    """Find the operator of the other graph that computes the same, and how that is known."""
    free = [o for o in there if o.outputs and o.outputs[0].id not in m.taken]
    alike = [o for o in free if _facts(o) == _facts(opr)]
    name = opr.outputs[0].name if opr.outputs else None
    by_name = names.get(name or "")
    for o in alike:
        if name and o.outputs[0].name == name:
            return o, "name"
    if by_name is not None and by_name.id not in m.taken and not any(o.outputs[0].name for o in alike):
        return by_name.owner, "name"
    if alike:
        return alike[0], "structure"
    if by_name is not None and by_name.id not in m.taken:
        return by_name.owner, "name"
    if len(free) != 1 or len(there) != 1 or is_cast(opr) != is_cast(free[0]):
        return None
    return free[0], "place"


def _unique_names(graph: Graph) -> dict[str, Var]:
    """Map names to what operators compute, where no other variable has that name."""
    counts = Counter(v.name for v in graph.vars() if v.name)
    return {v.name: v for o in graph.oprs if o.inputs for v in o.outputs if v.name and counts[v.name] == 1}


def _outputs(m: Matching, a: Graph, b: Graph, ordered: bool) -> None:
    names = {v.name: v for v in b.outputs if v.name}
    for var in a.outputs:
        if var.name in names and m.add(var, names[var.name], "name"):
            pair_constants(m, var.owner, names[var.name].owner)
    inner = _unique_names(b).keys()
    if ordered and len(a.outputs) == len(b.outputs):
        for x, y in zip(a.outputs, b.outputs, strict=True):
            # Where operators stop, the outputs are inner values of the other.
            if x.name not in inner:
                m.add(x, y, "place")


def _backward(m: Matching, a: Graph) -> None:
    """Pair the inputs of matched operators of one kind, from the outputs on."""
    for opr in reversed(a.oprs):
        other = next((m.pairs[v.id].owner for v in opr.outputs if v.id in m.pairs), None)
        if other is None or opr.type != other.type or len(opr.inputs) != len(other.inputs):
            continue
        for x, y in zip(opr.inputs, other.inputs, strict=True):
            if x.owner.type == y.owner.type and x.index == y.index:
                m.add(x, y, "place")
