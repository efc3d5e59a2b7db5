"""A graph as an image: operators in blocks, shapes on edges, blamed operators in red."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from ..base.errors import clean
from ..graph import Opr, Var, readers_of
from ..ops.catalog import CATALOG
from ..testcase import Bundle
from ..verify.describe import inferred
from .layered import GraphLayout, Point, layered
from .page import FOOT, HEAD
from .text import shape_text

_MOST = 40
"""Boxes of one block; more are split into blocks of their own."""
_FLAT = 400
"""Operators that one image without blocks shows."""
_LABEL, _CHAR, _ROW = 26, 6.6, 34
_AROUND = 60
"""Operators around a blamed one that are drawn."""
_STYLE = """<style>
svg.graph { font: 11px system-ui, sans-serif; background: #fff; } svg.graph text { fill: #1c2128; }
.graph .box rect { fill: #eef3f8; stroke: #8aa0b5; } .graph .block rect { fill: #e3ecdf; stroke: #6d9160; }
.graph .port rect { fill: #fff; stroke: #b5bdc6; stroke-dasharray: 3 2; }
.graph .blamed rect { fill: #ffe1e0; stroke: #c0262d; stroke-width: 2; }
.graph path { fill: none; stroke: #9aa7b4; }
.graph .size { fill: #5b6673; font-size: 9px; }
</style>"""

Shapes = Mapping[int, Sequence[int]]


@dataclass(eq=False)
class _Block:
    """Operators and blocks that are drawn together.

    Attributes:
        number: what links name it by.
        oprs: the ids of all operators in it, those of inner blocks included.
    """

    label: str
    members: list[Opr | _Block]
    number: int = 0
    oprs: frozenset[int] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        numbers = (m.oprs if isinstance(m, _Block) else (m.id,) for m in self.members)
        self.oprs = frozenset(i for part in numbers for i in part)


@dataclass(frozen=True)
class _Box:
    label: str
    kind: str
    title: str
    link: int | None = None


def flat_svg(
    oprs: Sequence[Opr],
    shapes: Shapes,
    outputs: Iterable[Var],
    blamed: Collection[int] = (),
    *,
    alone: bool = True,
) -> str:
    """Draw a graph as one image; of more than 400 operators, the outermost blocks.

    Args:
        oprs: the operators, in execution order.
        shapes: the shapes that are known, by variable id.
        outputs: the model's outputs.
        blamed: ids of operators to mark.
        alone: whether it is a file of its own, with its colours; a page has them in its style.
    """
    drawn = _drawn(oprs)
    block = _Block("", [*drawn]) if len(drawn) <= _FLAT else _blocks(drawn)
    return _svg(block, shapes, {v.id: v for v in outputs}, blamed, _STYLE if alone else "")


def graph_file(bundle: Bundle, *, page: bool) -> str:
    """Draw the graph of a model, as an SVG file or an HTML page.

    >>> import loadrun
    >>> graph_file(loadrun.load("fixtures/nets/mlp.mge"), page=False).startswith("<svg ")
    True
    """
    oprs = bundle.graph.needed(bundle.outputs.values())
    known, problems = inferred(bundle, oprs)
    if not page:
        return flat_svg(oprs, known.shapes, bundle.outputs.values())
    said = "".join(f"<p class=warning>{escape(clean(p, 500))}</p>" for p in problems)
    head = HEAD.replace("loadrun report", escape(clean(bundle.path, 200)))
    return f"{head}{said}{blocks_html(oprs, known.shapes, bundle.outputs.values())}{FOOT}"


def blocks_html(
    oprs: Sequence[Opr], shapes: Shapes, outputs: Iterable[Var], blamed: Collection[int] = ()
) -> str:
    """Draw a graph as blocks that fold, each with an image of what is in it; see `flat_svg`."""
    return _folded(_blocks(_drawn(oprs)), shapes, {v.id: v for v in outputs}, blamed, first=True)


def neighbourhood(oprs: Sequence[Opr], blamed: Collection[int], steps: int = 3) -> list[Opr]:
    """List the operators around the blamed ones, in execution order; those nearest to them, where there are many."""
    read_by = readers_of(oprs)
    chosen = {o.id: o for o in oprs if o.id in blamed}
    edge = list(chosen.values())
    for _ in range(steps):
        near = [v.owner for o in edge for v in o.inputs]
        near += [o for e in edge for v in e.outputs for o in read_by.get(v.id, ())]
        edge = [o for o in {o.id: o for o in near}.values() if o.id not in chosen and not _is_io(o)]
        edge = edge[: _AROUND - len(chosen)]
        chosen |= {o.id: o for o in edge}
    return sorted(chosen.values(), key=lambda o: o.id)


def _is_io(opr: Opr) -> bool:
    return CATALOG[opr.type].category == "io" if opr.type in CATALOG else False


def _drawn(oprs: Sequence[Opr]) -> list[Opr]:
    return [o for o in oprs if not _is_io(o)]


# Blocks


def _scopes(oprs: Sequence[Opr]) -> dict[int, tuple[str, ...]]:
    """Return the module path of every operator: by its name, by its weights' names, else that of what it reads."""
    scope_of: dict[int, tuple[str, ...]] = {}
    for opr in oprs:
        constants = (v for v in opr.inputs if v.owner.tensors and v.owner.type != "Host2DeviceCopy")
        weights = (v.owner.tensors[v.index].name for v in constants)
        paths = (tuple((n or "").replace("/", ".").strip(".").split("."))[:-1] for n in (opr.name, *weights))
        before = (scope_of[v.owner.id] for v in opr.inputs if v.owner.id in scope_of)
        scope_of[opr.id] = next((p for p in paths if p), next(before, ()))
    return scope_of


def _blocks(oprs: Sequence[Opr]) -> _Block:
    """Group operators by module; groups of one are no blocks, and large ones are split."""
    scopes = _scopes(oprs)
    numbers = iter(range(1, 10 * len(oprs) + 10))

    def grouped(label: str, part: Sequence[Opr], depth: int) -> _Block:
        groups: dict[str, list[Opr]] = {}
        for opr in part:
            scope = scopes[opr.id]
            groups.setdefault(scope[depth] if len(scope) > depth else f"\0{opr.id}", []).append(opr)
        if len(groups) == 1 and len(part) > 1:
            (name,) = groups
            return grouped(f"{label}.{name}".strip("."), part, depth + 1)
        members: list[Opr | _Block] = []
        for name, inside in groups.items():
            deeper = f"{label}.{name}".strip(".")
            members.append(inside[0] if len(inside) == 1 else grouped(deeper, inside, depth + 1))
        return _Block(label, split(members), next(numbers))

    def split(members: list[Opr | _Block]) -> list[Opr | _Block]:
        while len(members) > _MOST:
            parts = [members[i : i + _MOST] for i in range(0, len(members), _MOST)]
            members = [_Block(_range(p), p, next(numbers)) for p in parts]
        return members

    return grouped("", oprs, 0)


def _range(members: Sequence[Opr | _Block]) -> str:
    ids = [i for m in members for i in (m.oprs if isinstance(m, _Block) else (m.id,))]
    return f"operators {min(ids)} to {max(ids)}"


def _folded(
    block: _Block, shapes: Shapes, outputs: Mapping[int, Var], blamed: Collection[int], first: bool = False
) -> str:
    """Draw a block and those in it; the outermost one is open, one that is alone in it, and those to blame."""
    marked = not block.oprs.isdisjoint(blamed)
    inner = [m for m in block.members if isinstance(m, _Block)]
    count = f"{len(block.oprs)} operator{'s' * (len(block.oprs) != 1)}"
    label = escape(clean(block.label or "graph", 120))
    picture = f'<div class=scroll id="b{block.number}">{_svg(block, shapes, outputs, blamed)}</div>'
    inside = "\n".join(_folded(m, shapes, outputs, blamed, first and len(inner) == 1) for m in inner)
    return (
        f"<details{' open' if first or marked else ''}><summary{' class=blamed' if marked and not first else ''}>"
        f"<b>{label}</b>: {count}</summary>{picture}{inside}</details>"
    )


# Images


def _svg(
    block: _Block, shapes: Shapes, outputs: Mapping[int, Var], blamed: Collection[int], style: str = ""
) -> str:
    """Draw the members of a block, with what they read from outside above and what is read outside below."""
    owner = {i: m for m in block.members for i in (m.oprs if isinstance(m, _Block) else (m.id,))}
    boxes: list[_Box] = []
    place: dict[int, int] = {}
    edges: dict[tuple[int, int], list[Var]] = {}
    ports: dict[int, int] = {}
    for var in _from_outside(block.members, block.oprs):
        ports[var.id] = len(boxes)
        boxes.append(_Box(clean(var.label, 40), "port", f"{var.label}: {_shape(var, shapes)}"))
    for member in block.members:
        place[id(member)] = len(boxes)
        boxes.append(_box(member, shapes, blamed))
    for opr in _oprs(block.members):
        target = place[id(owner[opr.id])]
        for var in opr.inputs:
            source = place[id(owner[var.owner.id])] if var.owner.id in owner else ports.get(var.id)
            if source is not None and source != target:
                carried = edges.setdefault((source, target), [])
                carried += [var] if var not in carried else []
    for opr in _oprs(block.members):
        for var in opr.outputs:
            if var.id in outputs:
                edges[place[id(owner[opr.id])], len(boxes)] = [var]
                boxes.append(_Box(clean(var.label, 40), "port", f"output {var.label}: {_shape(var, shapes)}"))
    widths = [_CHAR * len(_short(b.label)) + 16 for b in boxes]
    return _rendered(boxes, widths, layered(widths, [*edges]), [*edges.values()], shapes, style)


def _rendered(
    boxes: Sequence[_Box],
    widths: Sequence[float],
    layout: GraphLayout,
    carried: Sequence[Sequence[Var]],
    shapes: Shapes,
    style: str,
) -> str:
    wide, high = layout.width + 80, layout.height + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" viewBox="-4 -4 {wide:.0f} {high:.0f}" '
        f'width="{wide:.0f}" height="{high:.0f}" role="img" aria-label="graph">{style}'
    ]
    told: set[tuple[int, ...]] = set()
    for line, variables in zip(layout.edges, carried, strict=True):
        # Where several read one value, its shape stands once.
        key = tuple(v.id for v in variables)
        said = [""] if key in told else [_shape(v, shapes) for v in variables]
        told.add(key)
        (x, y) = line[0] if len(line) == 2 else line[1]
        parts.append(
            f'<path d="{_curve(line)}"><title>{escape(", ".join(map(_named, variables)))}</title></path>'
        )
        middle = ((x + line[-1][0]) / 2, (y + line[-1][1]) / 2) if len(line) == 2 else (x, y)
        more = f" +{len(said) - 1}" if len(said) > 1 else ""
        if said[0]:
            place = f'x="{middle[0] + 3:.1f}" y="{middle[1] + 3:.1f}"'
            parts.append(f'<text class="size" {place}>{said[0]}{more}</text>')
    for box, wide, (x, y) in zip(boxes, widths, layout.boxes, strict=True):
        drawn = (
            f'<g class="{box.kind}"><title>{escape(clean(box.title, 600))}</title><rect x="{x:.1f}" y="{y:.1f}" '
            f'width="{wide:.1f}" height="{_ROW}" rx="4"/><text x="{x + wide / 2:.1f}" y="{y + 21:.1f}" '
            f'text-anchor="middle">{escape(_short(box.label))}</text></g>'
        )
        parts.append(drawn if box.link is None else f'<a href="#b{box.link}">{drawn}</a>')
    return "\n".join([*parts, "</svg>"])


def _curve(line: Sequence[Point]) -> str:
    """Return a smooth path through points: vertical where it meets a box."""
    (x, y), *rest = line
    commands = [f"M{x:.1f},{y:.1f}"]
    for to_x, to_y in rest:
        half = (y + to_y) / 2
        commands.append(f"C{x:.1f},{half:.1f} {to_x:.1f},{half:.1f} {to_x:.1f},{to_y:.1f}")
        x, y = to_x, to_y
    return " ".join(commands)


def _box(member: Opr | _Block, shapes: Shapes, blamed: Collection[int]) -> _Box:
    if isinstance(member, _Block):
        mark = "" if member.oprs.isdisjoint(blamed) else " blamed"
        count = len(member.oprs)
        return _Box(
            f"{member.label.rpartition('.')[2]} ({count})",
            f"block{mark}",
            f"{member.label}: {count} operators",
            member.number or None,
        )
    gives = ", ".join(_shape(v, shapes) for v in member.outputs[:4])
    params = " ".join(r for r in map(repr, member.params) if not r.endswith("()"))
    number = member.id if member.number is None else member.number
    title = f"operator {number} {member.name or ''}: {member.type} {params} gives {gives}"
    return _Box(member.title, f"box{' blamed' if member.id in blamed else ''}", title)


def _from_outside(members: Iterable[Opr | _Block], inside: Collection[int]) -> list[Var]:
    """List the variables that members read from elsewhere; constants are no part of the image."""
    sources = {
        v.id: v
        for o in _oprs(members)
        for v in o.inputs
        if v.owner.id not in inside and (not _is_io(v.owner) or v.owner.type == "Host2DeviceCopy")
    }
    return list(sources.values())


def _oprs(members: Iterable[Opr | _Block]) -> Iterator[Opr]:
    for member in members:
        if isinstance(member, _Block):
            yield from _oprs(member.members)
        else:
            yield member


def _shape(var: Var, shapes: Shapes) -> str:
    shape = shapes.get(var.id, var.shape)
    return shape_text(None if shape is None else tuple(shape))


def _named(var: Var) -> str:
    return clean(var.label, 80)


def _short(label: str) -> str:
    return label if len(label) <= _LABEL else f"{label[: _LABEL - 9]}...{label[-6:]}"
