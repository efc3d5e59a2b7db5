"""Exporting a torch module: a functional graph of whole operators, decomposed only where nothing lowers them."""

import copy
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.fx.experimental._config

from ..base.errors import InputError, TraceError, UnsupportedError, UsageError
from ..base.registry import resolve
from .call import NO_COMPLEX, touches_complex
from .during_export import PaddedSequences, WritesToPlaces, any_number_of_steps
from .extra import quiet
from .left_out import Selection
from .modules import observes
from .registry import lowering_of
from .signature import Signature
from .sizes import is_size_operator, without_checks

_WAY_OUT = (
    "register a lowering with loadrun.torch.aten(name), write the module with other operators, or compute this part "
    "outside"
)


@dataclass(frozen=True)
class LoweringProblem:
    """An operator that cannot be lowered.

    Attributes:
        target: torch's name of it.
        why: the unsupported aspect, empty if there is no lowering at all.
        place: module path and source line.
    """

    target: str
    why: str
    place: str


def export(
    module: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
    follow_one: bool = False,
    selection: Selection | None = None,
) -> Any:
    """Export a module as a program without in-place operators.

    Args:
        module, args, kwargs, dynamic_shapes: what `torch.export.export` takes; a function of the other three gives
            the shapes.
        follow_one: whether a dynamic size may be 1 in the example, which torch else takes for fixed.
        selection: which operators are not to be decomposed.

    Raises:
        TraceError: torch cannot export it; the text is torch's own.
        UsageError: the shapes do not fit the example.
    """
    _register_caches()
    with quiet():
        if follow_one:
            program = _following_one(module, args, kwargs, dynamic_shapes, selection)
            if program is not None:
                return program
        try:
            shapes = _shapes(dynamic_shapes, module, args, kwargs)
            return functional(_exported(module, args, kwargs, shapes), selection)
        except UsageError:
            raise
        except Exception as error:
            raise not_exported(module, error) from error


def made_functional(program: Any, module: Any, selection: Selection | None) -> Any:
    """Do what `functional` does with a program that was exported before.

    Raises:
        TraceError: torch cannot; the text is torch's own.
    """
    try:
        with quiet():
            return functional(program, selection)
    except Exception as error:
        raise not_exported(module, error) from error


def not_exported(module: Any, error: Exception) -> TraceError:
    """Say that torch cannot export a module, in torch's first words."""
    where = getattr(module, "place", "")
    return TraceError(
        f"torch cannot export {_module_title(module)}: {_first_lines(error)}\n"
        + (f"  in {where}\n" if where else "")
        + f"  {_way_out(module, error)}"
    )


def _way_out(module: Any, error: Exception) -> str:
    """Say what may help."""
    if "which is not a known type" in str(error):
        return (
            "torch supports tensors, lists, tuples and dicts in results; return those, register the class with "
            "torch.utils._pytree.register_pytree_node or, if it is a cache of transformers, pass use_cache=False"
        )
    if re.search(r"torch\.classes|quantized nyi in meta|QuantizedMeta|quantization/", str(error)) or (
        isinstance(module, torch.nn.Module) and any(map(observes, module.modules()))
    ):
        return (
            "torch exports no quantized weights: trace the float module, or the prepared one; one prepared by "
            "prepare_qat after module.apply(torch.ao.quantization.disable_observer), whose rounding is recorded; or "
            "what convert_pt2e of torchao gives"
        )
    if decided_by_data(error):
        return (
            "what Python makes of a tensor's value (int(t), float(t), if t:) is not known while torch exports: compute "
            "with the tensor itself, take t.item() as an index, decide by torch.where or torch.cond"
        )
    return "a branch on a value needs torch.cond; a call that cannot be traced must move out of the module"


def decided_by_data(error: BaseException) -> bool:
    """Tell whether torch cannot export a module since Python looks at the value of a tensor."""
    return "data-dependent expression" in str(error)


def _register_caches() -> None:
    """Let torch find the tensors in the caches that models of transformers return."""
    if "transformers.cache_utils" in sys.modules:
        with suppress(ImportError, AttributeError, ValueError):
            # Optional; releases before 4.50 do not have it.
            resolve("transformers.integrations.executorch:register_dynamic_cache_export_support")()


def _exported(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any) -> Any:
    with any_number_of_steps(), PaddedSequences(), WritesToPlaces():
        return torch.export.export(module, args, dict(kwargs), dynamic_shapes=shapes, strict=False)


@any_number_of_steps()
def functional(program: Any, selection: Selection | None = None) -> Any:
    """Remove in-place operators from an exported program, and those that only their decompositions lower.

    Args:
        program: the program.
        selection: which operators are not to be decomposed.
    """
    if writes(program):
        program = program.run_decompositions({})
    if selection is None:
        return _decomposed(program, frozenset())
    kept = frozenset(name_of_target(n.target) for n in _nodes(program) if selection.whole(n))
    functional = _decomposed(program, kept)
    if selection.options.fallback:
        # An operator that is made of what has no lowering either keeps its own name.
        left = {str(n.meta.get("original_aten")) for n in _nodes(functional) if is_missing(n)}
        if left - {str(n.target) for n in _nodes(functional)}:
            return _decomposed(program, kept | left)
    return functional


def writes(program: Any) -> bool:
    """Return whether operators of a program write to tensors, such as its buffers."""
    return any(_writes(n) for n in _nodes(program))


def _writes(node: Any) -> bool:
    """Return whether a call writes to a tensor, so that the graph has to be made functional first."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target is torch.ops.aten.detach_.default:
        return False
    training = node.args[5:6] if "batch_norm.default" in str(node.target) else ()
    return node.target._schema.is_mutable or any(training) or "instance_norm" in str(node.target)


def _following_one(
    module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any, selection: Selection | None
) -> Any:
    """Export with a batch of one as a dynamic size; None if torch cannot."""
    leaves = [x for x in _leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.ndim]
    ones = {i for x in leaves for i in (0, 1) if i < x.ndim and x.shape[i] == 1}
    if not ones:
        return None
    config = torch.fx.experimental._config
    # A batch of one is in front; or after the steps, as in states that have the layers in front.
    more = _many(args, kwargs, min(ones))
    states = any(x.shape[:2] == (1, 1) for x in leaves[1:])
    if states and not _runs(module, *more):
        more = _many(args, kwargs, 0, 1)
    if 0 in ones and hasattr(config, "backed_size_oblivious"):
        with suppress(Exception):
            with config.patch(backed_size_oblivious=True):
                program = _exported(module, args, kwargs, _shapes(shapes, module, args, kwargs))
            program = functional(program, selection)
            if _holds(program, *more) or not _runs(module, *more):
                return program
    # The module tells one from many: then it is exported for many, if that holds for one as well.
    with suppress(Exception):
        program = functional(_exported(module, *more, _shapes(shapes, module, *more)), selection)
        if _holds(program, args, kwargs) and _agrees(program, module, args, kwargs):
            return program
    return None


def _leaves(value: Any) -> list[Any]:
    return [*torch.utils._pytree.tree_leaves(value)]


def _shapes(shapes: Any, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return shapes(module, args, kwargs) if callable(shapes) else shapes


def _many(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], axis: int, others: int | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Repeat a batch of one three times.

    Args:
        args, kwargs: the arguments.
        axis: the axis of the batch.
        others: that of all tensors but the first, `axis` by default.
    """
    first = next(x for x in _leaves((args, kwargs)) if isinstance(x, torch.Tensor))

    def repeated(leaf: Any) -> Any:
        at = axis if leaf is first or others is None else others
        if not isinstance(leaf, torch.Tensor) or leaf.ndim <= at or leaf.shape[at] != 1:
            return leaf
        return leaf.repeat_interleave(3, at)

    batch: tuple[tuple[Any, ...], dict[str, Any]] = torch.utils._pytree.tree_map(
        repeated, (args, dict(kwargs))
    )
    return batch


def _holds(program: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether the sizes of arguments are among those for which a program was exported."""
    leaves = _leaves((args, kwargs))
    try:
        Signature(program).check(leaves)
        guards_of(program)(*leaves)
    except (InputError, AssertionError, ZeroDivisionError):
        return False
    return True


def guards_of(program: Any) -> Callable[..., object]:
    """Return torch's own check of the leaves of a call's arguments; it raises what an assertion does."""
    guards: Callable[..., object] = getattr(program.module(), "_guards_fn", lambda *_: None)
    return guards


def _runs(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a module takes arguments."""
    try:
        _called_on_copies(module, args, kwargs)
    except Exception:
        return False
    return True


def _called_on_copies(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call with copies: a module may write to its arguments, as models of transformers do to their cache."""
    own_args, own_kwargs = torch.utils._pytree.tree_map(
        lambda x: x.clone() if isinstance(x, torch.Tensor) else x, (args, dict(kwargs))
    )
    return function(*own_args, **own_kwargs)


def _agrees(program: Any, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a program gives the shapes that the module gives."""
    pairs = (_leaves(_called_on_copies(f, args, kwargs)) for f in (program.module(), module))
    shapes = [[getattr(x, "shape", ()) for x in leaves] for leaves in pairs]
    return shapes[0] == shapes[1]


def callable_of(program: Any) -> Callable[..., Any]:
    """Make a module that runs a program, with buffers of its own where a run changes them."""
    with quiet():
        module: Callable[..., Any] = program.module()
        return copy.deepcopy(module) if changes_buffers(program) else module


def changes_buffers(program: Any) -> bool:
    """Whether a run of a program may change what the next one reads."""
    kinds = torch.export.graph_signature.OutputKind
    listed = any(s.kind == kinds.BUFFER_MUTATION for s in program.graph_signature.output_specs)
    return listed or (bool(program.graph_signature.buffers) and writes(program))


def _first_lines(error: Exception) -> str:
    if decided_by_data(error):
        return f"Python looks at the value of a tensor{_user_line(error)}"
    if isinstance(error, TraceError):
        return str(error)
    # Behind it are the stack of this process and switches of torch's own developers.
    own = str(error).partition("Original traceback")[0]
    text = re.sub(r"For more information, run with [^\n]*|Suggested fixes:.*", "", own, flags=re.DOTALL)
    return f"{type(error).__name__}: {' '.join(text.split()[:100])[:600]}"


def _user_line(error: Exception) -> str:
    """Name the line of the user's code in which an error came up, empty if it is not known."""
    own = tuple(os.path.dirname(m.__file__ or "") for m in (torch, sys.modules["loadrun"]))
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f for f in frames if not f.filename.startswith(own)]
    return f" in {lines[-1].filename}:{lines[-1].lineno}: {lines[-1].line}" if lines else ""


def _module_title(module: Any) -> str:
    kind = getattr(module, "_loadrun_name", None)
    return kind if kind is not None else f"the module {type(module).__name__}"


def _decomposed(program: Any, kept: frozenset[str]) -> Any:
    """Decompose the operators that have no lowering but that torch can express by others."""
    # What takes complex numbers is refused under its own name.
    kept |= {name_of_target(n.target) for n in _nodes(program) if touches_complex(n)}
    missing = {name_of_target(n.target) for n in _nodes(program) if is_missing(n)} - kept
    rules = _decompositions().items()
    table = {t: f for t, f in rules if not lowering_of(name_of_target(t)) and name_of_target(t) not in kept}
    # Views that torch composes of others are in no table: any run takes them apart.
    decomposed = program.run_decompositions(table) if missing else program
    for module in submodules(decomposed):
        without_checks(module.graph)
    return decomposed


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Return torch's own decompositions of its operators."""
    from torch._decomp import decomposition_table  # optional

    official = torch.export.default_decompositions()
    return {**decomposition_table, **{t: official[t] for t in official}}


def submodules(program: Any) -> Iterator[Any]:
    """Yield the program's graph module and those of its branches."""
    return _graphs_in(program.graph_module)


def _graphs_in(whole: torch.nn.Module) -> Iterator[Any]:
    return (module for module in whole.modules() if isinstance(module, torch.fx.GraphModule))


def _nodes(program: Any) -> Iterator[Any]:
    for module in submodules(program):
        for node in module.graph.nodes:
            if node.op == "call_function":
                yield node


def _called(node: Any) -> Iterator[Any]:
    """Yield the nodes of the graphs that a higher-order operator calls."""
    for arg in node.all_input_nodes:
        attribute = getattr(node.graph.owning_module, str(arg.target), None)
        if isinstance(attribute, torch.fx.GraphModule):
            for module in _graphs_in(attribute):
                yield from module.graph.nodes


def name_of_target(target: Any) -> str:
    """Return torch's name of an operator: ``aten.relu.default``."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"


WRAPPERS = set(
    """
    wrap_with_set_grad_enabled wrap_with_autocast invoke_subgraph wrap checkpoint
    tag_activation_checkpoint
    """.split()
)
"""Higher-order operators that only call a graph, whose arguments come last."""


_CHECKS = {"aten._linalg_check_errors.default", "aten._assert_async.msg", "aten._assert_scalar.default"}
"""Operators with effects that only raise errors."""


def is_control(node: Any) -> bool:
    """Return whether a node calls a higher-order operator that is followed here."""
    target = node.target
    if not isinstance(target, torch._ops.HigherOrderOperator):
        return False
    if target.name() == "with_effects":
        return name_of_target(node.args[1]) in _CHECKS
    return target.name() in ("cond", "while_loop", "scan") or target.name() in WRAPPERS


def is_missing(node: Any) -> bool:
    """Whether nothing lowers what a node calls."""
    if is_control(node) or is_size_operator(node.target):
        return False
    return touches_complex(node) or lowering_of(name_of_target(node.target)) is None


def unsupported(program: Any, left_out: Mapping[str, Any] | None = None) -> list[LoweringProblem]:
    """Every operator of a program that has no lowering.

    Args:
        program: the program.
        left_out: nodes that are not lowered, by name, with what they call.
    """
    problems: dict[tuple[Any, ...], LoweringProblem] = {}
    inside = {id(n) for node in (left_out or {}).values() for n in [node, *_called(node)]}
    for node in _nodes(program):
        if is_missing(node) and id(node) not in inside:
            # What a decomposition is made of tells a user less than the operator that was decomposed.
            target = name_of_target(node.meta.get("original_aten") or node.target)
            problem = LoweringProblem(target, NO_COMPLEX if touches_complex(node) else "", place_of(node))
            problems.setdefault((target, node.meta.get("stack_trace"), problem.place), problem)
    return list(problems.values())


_PACKAGES = tuple(str(folder) + os.sep for folder in (Path(torch.__file__).parent, Path(__file__).parents[1]))
"""The folders of torch and loadrun; a model may be in a folder of the same name."""


def place_of(node: Any) -> str:
    """Locate a node in the model: module path, and the innermost source line that is not torch's own."""
    stack = node.meta.get("nn_module_stack") or {}
    path, kind = "", ""
    for entry in stack.values():
        if isinstance(entry, tuple) and not str(entry[0]).startswith("_empty"):
            path, kind = str(entry[0]), str(entry[1]).rpartition(".")[2]
    where = f"{path or 'the module itself'} ({kind})" if kind else ""
    lines = re.findall(
        r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', node.meta.get("stack_trace") or ""
    )
    users = [f for f in lines if not f[0].startswith((*_PACKAGES, "torch/", "<"))]
    if not users:
        return where
    file, line, text = users[-1]
    return f"{where}{', ' if where else ''}{file}:{line}: {text.strip()}"


def refusal(module: Any, problems: list[LoweringProblem]) -> UnsupportedError:
    """Build the error that names every operator without a lowering."""
    counts = Counter((p.target, p.why) for p in problems)
    lines = []
    for (target, why), count in counts.items():
        lines.append(f"{target}{f' ({count} times)' if count > 1 else ''}{f': {why}' if why else ''}")
        places = [p.place for p in problems if (p.target, p.why) == (target, why) and p.place]
        lines += [f"    in {place}" for place in dict.fromkeys(places)]
    return UnsupportedError(
        f"{_module_title(module)} uses {len(counts)} operator{'s' * (len(counts) > 1)} that cannot be lowered to "
        "MegEngine's:\n  " + "\n  ".join(lines) + f"\n  what to do: {_WAY_OUT}"
    )
