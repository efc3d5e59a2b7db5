"""Ground truth: running a model on data and making checks of what it computes."""

import os
import platform
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from ...base import __version__
from ...base.errors import EngineError, InputError, UsageError
from ...compare.tolerances import COARSE, MAXERR, default_maxerr, magnitude
from ...graph import Graph, Var
from ...graph.dtypes import Array, dtype_of
from ...ops.infer import infer_dtypes, infer_shapes
from ...passes.checks import add_check
from ...passes.constants import bare, subgraph
from ...runner import Runner, fit_inputs
from ...testcase import EXPECT, Bundle, Check, FileFacts, Testcase

Warn = Callable[[str], None]


def expect_input(check: Check) -> Var:
    """Return the graph input that holds a check's expected value."""
    var = check.expect
    while var.owner.type != "Host2DeviceCopy" and var.owner.inputs:
        var = var.owner.inputs[0]
    if var.owner.type != "Host2DeviceCopy":
        raise UsageError(
            f"the check of {check.name!r} has no input for the expected value; --replace makes new checks"
        )
    return var


def capture(
    model: Graph | Bundle, inputs: Mapping[str, Array], engine: str = "reference", *, seed: int = 0
) -> Testcase:
    """Run a model and keep what it computes as ground truth.

    Args:
        model: the model; checks that it has are not evaluated.
        inputs: arrays by input name, of the inputs' dtypes or safely convertible to them.
        engine: name of the engine.
        seed: seed of the model's random operators.

    Returns:
        the inputs, the outputs as expected values (``<name>:expect``), and where they come from.

    Raises:
        InputError: an input is missing, unknown, or of another dtype.
        EngineError: an operator failed.

    >>> import loadrun
    >>> case = capture(loadrun.load("fixtures/nets/mlp.mge"), {"data": np.zeros((2, 20), "f4")})
    >>> case.expects["out"].shape, case.provenance["engine"]
    ((2, 4), 'reference')
    """
    return Recorder(model, engine, seed=seed).capture(inputs)


def embed(
    model: Graph | Bundle,
    cases: Sequence[Testcase],
    maxerr: float | Mapping[str, float] | None = None,
    *,
    silent: bool = False,
    no_assert: bool = False,
    warn: Warn | None = None,
) -> Bundle:
    """Make a self-verifying bundle of a model and captured testcases, for `loadrun.save`.

    Args:
        model: the model; checks that it has are replaced.
        cases: what `capture` returned, at least one.
        maxerr: tolerance of the checks: one, or by output name, that of all others under the empty name. Others have
            1e-4, of their scale where that is small (`default_maxerr`); integers and booleans must be equal.
        silent: whether MegEngine keeps quiet about the errors that it finds.
        no_assert: embed inputs alone.
        warn: called with what deserves a look; default `warnings.warn`.

    Returns:
        a bundle of a new graph.

    Raises:
        UsageError: maxerr is negative or not finite, or names an output that the model does not have.
        InputError: no testcase is given, or one lacks a value.

    >>> import loadrun
    >>> model = loadrun.load("fixtures/nets/mlp.mge")
    >>> bundle = embed(model, [capture(model, {"data": np.ones((1, 20), "f4")})], maxerr={"out": 1e-5})
    >>> [(c.name, c.maxerr) for c in bundle.checks], loadrun.run(bundle)[0].verdict.value
    ([('out', 1e-05)], 'pass')
    """
    if not cases:
        raise InputError("a bundle needs at least one testcase")
    graph = bare(_bundle(model))
    if no_assert:
        plain = [Testcase(t.inputs, t.dtypes, t.provenance) for t in cases]
        return Bundle(graph, plain, facts=FileFacts(is_container=True))
    checked_graph = checked(graph, cases[0], maxerr, silent=silent, warn=warn, scales=largest(cases))
    names = [v.name or "" for v in checked_graph.inputs]
    kept = [_restrict(t, names) for t in cases]
    for case in kept:
        warn_nonfinite(case, warn)
    return Bundle(checked_graph, kept, facts=FileFacts(is_container=True))


class Recorder:
    """Captures testcases one after another; the model is prepared once.

    Args:
        model: the model; for one with checks the outputs are what the checks look at.
        engine: name of the engine.
        seed: seed of the model's random operators.
    """

    def __init__(self, model: Graph | Bundle, engine: str = "reference", *, seed: int = 0) -> None:
        self.bundle = _bundle(model)
        self.runner = Runner(self.bundle, engine, seed=seed)
        self.provenance = provenance(engine, seed)

    def capture(self, inputs: Mapping[str, Array]) -> Testcase:
        """Run the model on arrays by input name; see `capture`."""
        feeds = fit_inputs(self.bundle, inputs)
        known = {v.name or "": v.owner.tensors[0] for v in self.bundle.inputs}
        arrays: dict[str, Array] = {}
        for name, tensor in known.items():
            # A testcase holds every input, also one that the model has a default value for.
            arrays[name] = feeds[name] if name in feeds else tensor.value()
        dtypes = {n: t.dtype for n, t in known.items()}
        for out in self.runner.run(feeds).outputs:
            assert out.value is not None
            arrays[out.name + EXPECT], dtypes[out.name + EXPECT] = out.value, out.dtype
        self.provenance["runtime"] = self.runner.about.text
        return Testcase(arrays, dtypes, self.provenance)


def provenance(engine: str, seed: int) -> dict[str, object]:
    """Describe the source of expected values: engine, seed, versions and time (``SOURCE_DATE_EPOCH`` if set)."""
    now = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return {
        "engine": engine,
        "seed": seed,
        "loadrun": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
    }


def checked(
    model: Graph,
    first: Testcase,
    maxerr: float | Mapping[str, float] | None = None,
    *,
    silent: bool = False,
    warn: Warn | None = None,
    scales: Mapping[str, float] | None = None,
) -> Graph:
    """Copy a model without checks so that every output is checked.

    Args:
        model: the model.
        first: a captured testcase, for the shapes of outputs whose shapes do not follow from the inputs'.
        maxerr, silent, warn: see `embed`.
        scales: the largest number that is expected of every output, see `largest`; by default those of `first`.
    """
    warn = warn or partial(warnings.warn, stacklevel=3)
    graph, known = subgraph(model, model.outputs)
    outputs = {n: known[v.id] for n, v in Bundle(model).outputs.items()}
    infer_dtypes(graph.needed())
    shapes = _shapes(graph)
    exact = [n for n, v in outputs.items() if _exact(v)]
    scales = largest([first]) if scales is None else scales
    limits = tolerances(maxerr, list(outputs), exact=exact, coarse=coarse_limits(outputs), scales=scales)
    targets: list[Var] = []
    for name, var in outputs.items():
        value = first.arrays.get(name + EXPECT)
        if value is None:
            raise InputError(f"the testcase has no value for the output {name!r}")
        if not value.size:
            warn(f"output {name!r} has no elements, so it gets no check")
            targets.append(var)
            continue
        shape = shapes.get(var.id) or value.shape
        targets.append(add_check(graph, name, var, shape, maxerr=limits[name], verbose=not silent))
    graph.outputs = targets
    graph.header.original_ids, graph.header.output_alias = [], []
    return graph


def _shapes(graph: Graph) -> dict[int, tuple[int, ...]]:
    """Infer the shapes of variables from those of the inputs, whatever testcases will have."""
    try:
        return infer_shapes(graph, graph.needed()).shapes
    except EngineError:
        # Inputs of other shapes than the file says are nothing new to such a model.
        return {}


def largest(cases: Iterable[Testcase], known: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the largest magnitude that testcases expect of every output.

    For numbers that are no more than rounding, such as a difference of what should be equal, it is that whose tolerance
    is ten times the rounding: a tolerance by their own scale would let nothing through.

    Args:
        cases: the testcases.
        known: the magnitudes of earlier ones.

    >>> case = Testcase({"y:expect": np.float32([-3e-3, 1e-3, np.inf])}, {})
    >>> f"{largest([case])['y']:.3f}"
    '0.003'
    """
    scales = dict(known or {})
    for case in cases:
        rounding = case.provenance.get("reference_error")
        for name, value in case.expects.items():
            error = float(rounding.get(name, 0)) if isinstance(rounding, Mapping) else 0.0
            # The tolerance of this scale is ten times the error.
            beyond = min(10 * error / MAXERR, 1.0) if error <= MAXERR else 0.0
            scales[name] = max(scales.get(name, 0.0), magnitude(value), beyond)
    return scales


def limits_of(maxerr: float | Mapping[str, float] | None, names: Iterable[str]) -> dict[str, float]:
    """Return tolerances by name, that of all other outputs under the empty name.

    Args:
        maxerr: one, or by name; None for none.
        names: the outputs, for the message.

    Raises:
        UsageError: one is negative or not finite.
    """
    limits = dict(maxerr) if isinstance(maxerr, Mapping) else {} if maxerr is None else {"": maxerr}
    for name, value in limits.items():
        if not isinstance(value, (int, float, np.number)) or not 0 <= value <= 3.4e38:
            where = name or next(iter(names), "")
            raise UsageError(f"maxerr must be a finite number >= 0, found {value!r} for the output {where!r}")
    return limits


def tolerances(
    maxerr: float | Mapping[str, float] | None,
    names: Sequence[str],
    *,
    exact: Collection[str] = (),
    coarse: Mapping[str, float] | None = None,
    scales: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Choose the tolerance of every output.

    Args:
        maxerr: one, or by name; under the empty name that of all outputs which are not named; None for the default.
        names: the outputs.
        exact: those that must be equal unless they are named.
        coarse: what others have instead of `MAXERR`, whose dtype rounds more than that.
        scales: the largest magnitudes of outputs, for their defaults.

    Raises:
        UsageError: one is negative or not finite, or there is no such output.

    >>> tolerances({"a": 0.5}, ["a", "b"])
    {'a': 0.5, 'b': 0.0001}
    >>> tolerances({"": 0.01, "b": 1}, ["a", "b", "ids"], exact=["b", "ids"])
    {'a': 0.01, 'b': 1.0, 'ids': 0.0}
    """
    requested = limits_of(maxerr, names)
    for name in requested:
        if name and name not in names:
            shown = ", ".join(map(repr, names)) or "none"
            raise UsageError(f"maxerr names the output {name!r}; the outputs are {shown}")
    rest = requested.get("", MAXERR)
    defaults = {n: (coarse or {}).get(n, rest) if rest == MAXERR else rest for n in names}
    if "" not in requested:
        defaults = {n: default_maxerr((scales or {}).get(n, 1.0), plain) for n, plain in defaults.items()}
    return {
        n: float(requested[n] if n and n in requested else 0.0 if n in exact else defaults[n]) for n in names
    }


def coarse_limits(outputs: Mapping[str, Var]) -> dict[str, float]:
    """Return the tolerances of outputs that are of few bits, or computed in a dtype of few bits, as autocast does."""
    limits = {}
    for name, var in outputs.items():
        if known := [COARSE[d] for d in _computed_in(var) if d in COARSE]:
            limits[name] = max(known)
    return limits


def _computed_in(var: Var) -> set[str]:
    """List the dtypes of a variable and of all that operators compute for it; of stored ones nothing is rounded."""
    waiting, seen, names = [var], {var.id}, {var.dtype.name if var.dtype is not None else ""}
    while waiting:
        owner = waiting.pop().owner
        if owner.inputs:
            names.update(v.dtype.name for v in owner.outputs if v.dtype is not None)
        for v in owner.inputs:
            if v.id not in seen:
                seen.add(v.id)
                waiting.append(v)
    return names


def _exact(var: Var) -> bool:
    """Return whether values of an output are integers or booleans, not numbers that stand for others."""
    return var.dtype is not None and not var.dtype.is_quantized and var.dtype.np.kind in "iub"


def warn_nonfinite(case: Testcase, warn: Warn | None = None, where: Callable[[], str] = str) -> None:
    """Warn of expected values that no check can hold: NaN equals nothing, infinities have no difference.

    Also of inputs without elements, which a testcase can hold for loadrun alone.
    """
    warn = warn or partial(warnings.warn, stacklevel=3)
    for name, value in case.inputs.items():
        if not value.size:
            warn(f"{where()}input {name!r} has no elements; MegEngine cannot read such a testcase")
    for name, value in case.expects.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            what = "NaN" if np.isnan(value).any() else "infinity"
            warn(f"{where()}output {name!r} holds {what}, so its check fails")


def warn_hidden(case: Testcase, weights: Sequence[str], warn: Warn, where: Callable[[], str] = str) -> None:
    """Warn of data that says less than it seems to: NaN that does not reach an output, outputs of one value.

    Args:
        case: a captured testcase.
        weights: names of stored tensors that hold NaN or infinity.
        warn: called with each sentence.
        where: gives what stands before a sentence; it is called if there is one.
    """
    finite = all(np.isfinite(v).all() for v in case.expects.values() if v.dtype.kind == "f")
    for name, value in case.inputs.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            hidden = "; a later operator hides that" if finite and case.expects else ""
            others = "; other runtimes may make something else of it (docs/howto-engines.md)"
            warn(f"{where()}input {name!r} holds NaN or infinity{hidden}{others}")
    if finite and case.expects:
        for name in weights:
            warn(f"weight {name!r} holds NaN or infinity; a later operator hides that")
    if not any(_varied(v) for v in case.inputs.values()):
        return
    for name, value in case.expects.items():
        if (
            value.size > 1
            and value.dtype.kind in "iubf"
            and not _varied(value)
            and value.flat[0] == value.flat[0]
        ):
            warn(f"{where()}output {name!r} is {value.flat[0]:g} everywhere")


def _varied(value: Array) -> bool:
    """Return whether an array holds different numbers."""
    return bool(value.size) and bool((value != value.flat[0]).any())


def nonfinite_weights(model: Graph) -> list[str]:
    """Names of the stored tensors of a model that hold NaN or infinity."""
    names = []
    for opr in model.oprs:
        for i, tensor in enumerate(opr.tensors):
            stored = opr.type != "Host2DeviceCopy" and tensor.data is not None and tensor.dtype.is_float
            if stored and not _finite(tensor.value()):
                names.append(tensor.name or opr.outputs[min(i, len(opr.outputs) - 1)].label)
    return names


def _finite(value: Array) -> bool:
    """Tell whether all numbers are finite; where their sum is, they are, and a sum needs no second array."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(value.sum())) or bool(np.isfinite(value).all())


def _restrict(case: Testcase, names: Sequence[str]) -> Testcase:
    """Select the values for these graph inputs, in that order."""
    for name in names:
        if name not in case.arrays:
            raise InputError(f"the testcase has no value for {name!r}")
    arrays = {n: case.arrays[n] for n in names}
    return Testcase(arrays, {n: case.dtypes.get(n) or dtype_of(arrays[n]) for n in names}, case.provenance)


def _bundle(model: Graph | Bundle) -> Bundle:
    return model if isinstance(model, Bundle) else Bundle(model)
