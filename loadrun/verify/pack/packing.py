"""Packing: a model and input data become a self-verifying file, one testcase in memory at a time."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from typing import BinaryIO

from ...base.errors import EngineError, InputError, UsageError
from ...compare import compare, passes
from ...compare.impostors import ImpostorWatch
from ...compare.judging import Criteria, policy_for
from ...compare.policy import Policy, require_compared
from ...compare.record import packed_policies
from ...compare.tolerances import MAXERR, default_maxerr, magnitude
from ...dump import save
from ...dump.options import DumpOptions, DumpResult
from ...dump.record import provenances
from ...dump.writer import MAX_BYTES
from ...graph import Graph
from ...graph.dtypes import Array
from ...passes.checks import compared
from ...passes.constants import bare, subgraph
from ...passes.loadable import unavailable
from ...runner import check_errors
from ...testcase import EXPECT, Bundle, FileFacts, ModelSource, Testcase
from .capture import (
    Recorder,
    Warn,
    checked,
    expect_input,
    largest,
    nonfinite_weights,
    provenance,
    tolerances,
    warn_hidden,
    warn_nonfinite,
)
from .noise import ToleranceChange
from .options import PackOptions

_AHEAD = 2**26
"""Bytes of testcases that are held to learn how large the numbers of an output are."""


class Packer:
    """Packs input data into a file; testcases that the model's file has are kept unless they are replaced.

    Args:
        bundle: the model, perhaps with testcases.
        options: tolerances, engine and the like; what says where model and data come from is not looked at.
        recorder: makes what captures testcases of the model, in place of running it on the engine.
        reasons: why the outputs have these tolerances, for the record.
        finish: changes the graph, checks included, before it is written; ground truth is what the model computed
            before.
        data: inputs for whose sizes the file is made, where these are of one size; by default those of the testcases.
        warn: called with what deserves a look.

    Raises:
        UsageError: what is requested does not fit the model or the testcases that it has.
    """

    def __init__(
        self,
        bundle: Bundle,
        options: PackOptions | None = None,
        *,
        recorder: Callable[[Bundle], Recorder] | None = None,
        reasons: Mapping[str, str] | None = None,
        finish: Callable[[Graph], Graph] | None = None,
        data: Sequence[Mapping[str, Array]] = (),
        warn: Warn,
    ) -> None:
        self.options = options = options or PackOptions()
        self.finish = finish
        self.reasons = dict(reasons or {})
        self.loosened: dict[str, float] = {}
        self.source = bundle = bundle.lasting(data, open_sizes=options.open_sizes)
        kept = bundle.record if isinstance(bundle.record, Mapping) else {}
        self._proven = {"not_proven": kept["not_proven"]} if "not_proven" in kept else {}
        self.warn = warn
        self.kept = 0 if options.replace else len(bundle.testcases)
        self.extends = bool(self.kept and bundle.checks)
        if self.extends and options.no_assert:
            raise UsageError(
                "the file's testcases have checks; add --replace to drop them, or leave out --no-assert"
            )
        self.model = subgraph(bundle.graph, bundle.graph.outputs)[0] if self.extends else bare(bundle)
        if options.no_assert and not Bundle(self.model).inputs:
            raise UsageError("the model has no inputs, so without checks there is nothing to pack")
        names = list(Bundle(self.model).outputs)
        self.policies = self._policies(options.policies, names)
        if not isinstance(options.maxerr, Mapping):
            names = names or [""]
        tolerances(options.maxerr, names)
        make = recorder or (lambda model: Recorder(model, options.engine, seed=options.seed))
        alone = Bundle(self.model, source=ModelSource(refuses=bundle.source.refuses))
        if bundle.source.sized is not None:
            alone.source.sized = partial(_alone, bundle, alone, lru_cache(16)(lambda b: Bundle(bare(b))))
        self.recorder = None if options.no_assert else make(alone)
        self.about = {
            "provenance": self.recorder.provenance if self.recorder else provenance("none", options.seed)
        }
        self._whence: dict[str, object] = {}
        self.watch = ImpostorWatch({}, self.policies)

    def _policies(self, requested: Mapping[str, Policy], names: list[str]) -> dict[str, Policy]:
        """Return the policy of every output that has one: the caller's, else what the file's record says."""
        kept, loosened = packed_policies(self.source.record) if self.extends else ({}, {})
        self.loosened.update(loosened)
        require_compared(requested, names, [] if self.options.no_assert else names)
        if requested and self.options.no_assert:
            raise UsageError("policies apply to outputs with a check, and --no-assert packs none")
        for policy in requested.values():
            if policy.nan_equal and not self.options.loosen:
                raise UsageError(
                    "nan=equal accepts values that MegEngine's check rejects; pass --loosen if that is intended"
                )
        source = self.source.file if self.extends and self.options.loosen else None
        if source is not None:
            # A rule of the file for single elements is none of its error graph, which gives one number.
            asked = [n for n in names if (p := policy_for(requested, n)).text and p.leaves_elements]
            terms = {n: source.terms(n) for n in asked}
            requested = {
                **requested,
                **{n: policy_for(requested, n).in_place(t) for n, t in terms.items() if t},
            }
        policies = {n: policy_for({**kept, **requested}, n) for n in names}
        return {n: p for n, p in policies.items() if p.text}

    def pack(
        self,
        inputs: Iterable[Mapping[str, Array]],
        target: str | os.PathLike[str] | BinaryIO,
        *,
        expected: Iterable[Mapping[str, Array]] = (),
        whence: Mapping[str, object] | None = None,
        seen: Callable[[int, Testcase], None] | None = None,
        where: Callable[[int], str] | None = None,
        inspect: Callable[[str], None] | None = None,
    ) -> DumpResult:
        """Capture and write testcases as they come.

        Args:
            inputs: arrays by input name, a testcase each.
            target: see `loadrun.save`.
            expected: values by output name that the model must give, a mapping for each of `inputs`; what it computes
                itself is expected of the others.
            whence: where these values come from, for the record.
            seen: called with the number and content of every testcase that is written.
            where: says for a message where the inputs of that number come from.
            inspect: see `loadrun.save`.

        Raises:
            UsageError: there is to be no record, which policies stand in.
            LoadRunError: a testcase failed; the message says which one. The target is as it was.
        """
        if not self.options.record and (self.policies or self.loosened):
            what = "the policies of its outputs" if self.policies else "which tolerances were loosened"
            raise UsageError(f"the record says {what}, which --no-record leaves out; drop that option")
        self._whence = dict(whence or {})
        captured = self._captured(inputs, expected, where)
        return self._written(self._numbered(chain(self._old(), captured), seen), target, inspect)

    def _written(
        self,
        cases: Iterator[Testcase],
        target: str | os.PathLike[str] | BinaryIO,
        inspect: Callable[[str], None] | None,
    ) -> DumpResult:
        """Write the graph, with checks as the first testcases want them, and all testcases."""
        first = next(cases, None)
        if first is None:
            raise InputError("there is no input data to pack")
        cases, scales = self._scales(chain([first], cases))
        graph = self._graph(first, scales)
        made_of = graph
        if self.finish is not None:
            graph = self.finish(graph)
        if (text := unavailable(graph)) is not None:
            self.warn(text)
        policy: dict[str, dict[str, object]] = {}
        for check in Bundle(graph).checks:
            policy[check.name] = {"maxerr": check.maxerr, "verbose": check.verbose}
            self.watch.maxerr[check.name] = check.maxerr
            if check.name in self.reasons:
                policy[check.name]["reason"] = self.reasons[check.name]
            if check.name in self.policies:
                policy[check.name]["check"] = self.policies[check.name].text
            if check.name in self.loosened:
                policy[check.name]["loosened"] = self.loosened[check.name]
        bundle = Bundle(graph, facts=FileFacts(is_container=True))
        file = self._file_options(graph)
        self.watch.errors.update(check_errors(bundle))
        if self.options.record:
            bundle.record = {"record": 1, **self.about, "policy": policy, **self._proven}
        else:
            graph.input_order, graph.fixed_shapes, graph.integers = (), {}, ()
        return save(
            bundle,
            target,
            file,
            testcases=self._fitting(cases, graph),
            inspect=inspect,
            made_of=made_of,
        )

    def _file_options(self, graph: Graph) -> DumpOptions:
        """Return how the file is written: in the format that can hold its weights, where none is requested."""
        file = self.options.file
        size = graph.stored_bytes
        large = size > MAX_BYTES and file.dump_format is None
        if not large or file.format_of(graph) == "FBS":
            return file
        self.warn(
            f"the weights take {size} bytes, but FBS_V2 allows {MAX_BYTES}, so the file is written as FBS (version 1)"
        )
        return replace(file, dump_format="FBS")

    def _old(self) -> Iterator[Testcase]:
        """Yield the testcases of the file with what its record says of them."""
        whence = provenances(self.source.record)
        for i in range(self.kept):
            case = self.source.testcases[i]
            case = replace(case, provenance=next(whence, {}))
            if self.extends or self.recorder is None:
                yield case
            else:
                yield self.recorder.capture(case.inputs)

    def _captured(
        self,
        inputs: Iterable[Mapping[str, Array]],
        expected: Iterable[Mapping[str, Array]],
        where: Callable[[int], str] | None,
    ) -> Iterator[Testcase]:
        known = {v.name or "": v.owner.tensors[0] for v in Bundle(self.model).inputs}
        unused = {v.name or "" for v in self.source.inputs} - set(known)
        for name in sorted(unused):
            self.warn(f"nothing is computed from the input {name!r}, so it is omitted")
        truths = iter(expected)
        weights = nonfinite_weights(self.model) if self.recorder is not None else []
        count = 0
        for i, arrays in enumerate(inputs):
            count += 1
            arrays = {n: a for n, a in arrays.items() if n not in unused}
            if self.recorder is None:
                if self.source.source.refuses is not None:
                    self.source.source.refuses(arrays)
                values = {n: arrays[n] if n in arrays else t.value() for n, t in known.items()}
                yield Testcase(values, {n: t.dtype for n, t in known.items()})
                continue
            place = partial(_place, self.kept + i, i, where)
            try:
                case = self.recorder.capture(arrays)
            except (EngineError, InputError) as e:
                raise type(e)(f"{place()}{e}") from e
            if expected:
                case = self._given(case, next(truths, None), place)
            warn_nonfinite(case, self.warn, place)
            warn_hidden(case, weights, self.warn, place)
            yield self._as_expected(case) if self.extends else case
        if next(truths, None) is not None:
            raise UsageError(
                f"there are expected values for more testcases than the data makes, which are {count}; those that the "
                "file has keep their values: loadrun accept, or --replace with their data, makes new ones"
            )

    def _limits(self) -> Mapping[str, float]:
        """Return what was requested as tolerances, by output name."""
        wanted = {} if self.options.maxerr is None else self.options.maxerr
        return wanted if isinstance(wanted, Mapping) else {"": wanted}

    def _limit(self, name: str, value: Array) -> float:
        """Return the tolerance that a new check of an output gets."""
        exact = [name] if value.dtype.kind in "iub" else []
        coarse = {name: 4e-3} if value.dtype.name == "float16" else None
        limits = {n: x for n, x in self._limits().items() if n in ("", name)}
        return tolerances(limits, [name], exact=exact, coarse=coarse, scales={name: magnitude(value)})[name]

    def _given(self, case: Testcase, truth: Mapping[str, Array] | None, place: Callable[[], str]) -> Testcase:
        """Make a testcase expect the user's values; where the model computes others, that is said."""
        if truth is None:
            raise InputError(f"{place()}there is no expected value for it; pass one for each testcase")
        arrays, supplied = dict(case.arrays), []
        for name, value in truth.items():
            computed = arrays[name + EXPECT]
            if value.dtype != computed.dtype and not (value.dtype.kind == computed.dtype.kind == "f"):
                raise InputError(
                    f"{place()}the expected value of {name!r} is {value.dtype}, but the output is {computed.dtype}"
                )
            comparison = compare(value, computed)
            if not passes(comparison.max_error, self._limit(name, value)):
                why = comparison.explain().replace("\n", "; ")
                self.warn(f"{place()}the model does not compute the expected value of {name!r}: {why}")
            arrays[name + EXPECT] = value
            supplied.append(name)
        return Testcase(arrays, case.dtypes, {**case.provenance, "given": sorted(supplied), **self._whence})

    def _as_expected(self, case: Testcase) -> Testcase:
        """Convert new values to the form that the existing checks expect."""
        dtypes = dict(case.dtypes)
        arrays = dict(case.arrays)
        for check in Bundle(self.model).checks:
            var = expect_input(check)
            value = arrays.pop(check.name + EXPECT)
            dtype = dtypes.pop(check.name + EXPECT)
            want = var.owner.tensors[0].dtype
            if dtype != want and not (dtype.is_float and want.is_float):
                raise UsageError(
                    f"the check of {check.name!r} expects {want}, but the model computes {dtype}; --replace makes new "
                    "checks"
                )
            arrays[var.name or ""], dtypes[var.name or ""] = value.astype(want.np, copy=False), want
        return replace(case, arrays=arrays, dtypes=dtypes)

    def _graph(self, first: Testcase, scales: Mapping[str, float]) -> Graph:
        if self.recorder is None:
            return self.model
        if not self.extends:
            return self._with_checks(first, scales)
        ToleranceChange(self.model, self.options, self.loosened, self.warn).apply()
        return self.model

    def _scales(self, cases: Iterator[Testcase]) -> tuple[Iterator[Testcase], dict[str, float]]:
        """Return the testcases and the largest number of every output, of as many testcases as it takes to know."""
        wanted = self.options.maxerr
        if self.recorder is None or self.extends or isinstance(wanted, float | int) or "" in (wanted or {}):
            return cases, {}
        waiting: list[Testcase] = []
        scales: dict[str, float] = {}
        size = 0
        for case in cases:
            waiting.append(case)
            scales = largest([case], scales)
            size += sum(a.nbytes for a in case.arrays.values())
            if size > _AHEAD or all(s and default_maxerr(s) == MAXERR for s in scales.values()):
                break
        return chain(waiting, self._within(scales, cases)), scales

    def _within(self, scales: Mapping[str, float], cases: Iterable[Testcase]) -> Iterator[Testcase]:
        """Yield testcases; warn of those whose numbers are too large for a tolerance that goes by smaller ones."""
        told: set[str] = set()
        for case in cases:
            for name, most in largest([case]).items():
                known = scales.get(name, 0.0)
                if name not in told and default_maxerr(known) * 10 < default_maxerr(max(most, known)):
                    told.add(name)
                    self.warn(
                        f"the tolerance of {name!r} follows its scale in the first testcases, {known:.2g}, and a "
                        f"later one expects {most:.2g}: rounding may fail it elsewhere; give a tolerance (--maxerr)"
                    )
            yield case

    def _with_checks(self, first: Testcase, scales: Mapping[str, float]) -> Graph:
        """Copy the model with a check for each output of the first testcase."""
        limits = self._limits()
        # MegEngine sees a tolerance that lets through all that the policy does.
        covering = {n: p.covering for n, p in self.policies.items()}
        asked = {n: limit for n, limit in covering.items() if limit is not None and math.isfinite(limit)}
        graph = checked(
            self.model,
            first,
            {**asked, **limits},
            silent=bool(self.options.silent),
            warn=self.warn,
            scales=scales,
        )
        for check in Bundle(graph).checks if self.options.loosen else ():
            usual = Criteria(check.name, compared(check)[0].owner.tensors[0].dtype, check.maxerr).default
            if check.name in self.policies and check.name in limits and check.maxerr > usual:
                self.loosened.setdefault(check.name, usual)
        return graph

    def _fitting(self, cases: Iterable[Testcase], graph: Graph) -> Iterator[Testcase]:
        """Yield the testcases without the values that nothing checks."""
        names = [v.name or "" for v in graph.inputs]
        checked_names = {v.name or "" for v in graph.inputs if (v.name or "").endswith(EXPECT)}
        for i, case in enumerate(cases):
            for name in checked_names:
                if name not in case.arrays:
                    raise InputError(
                        f"testcase {i} has no value for the output {name[: -len(EXPECT)]!r}, which the first one has; "
                        "pack it into a separate file"
                    )
                if not case.arrays[name].size:
                    raise InputError(
                        f"testcase {i}: output {name[: -len(EXPECT)]!r} has no elements, which a MegEngine testcase "
                        "cannot represent; pack it into a separate file, where the output gets no check"
                    )
            yield replace(case, arrays={n: case.arrays[n] for n in names})

    def _numbered(
        self, cases: Iterable[Testcase], seen: Callable[[int, Testcase], None] | None
    ) -> Iterator[Testcase]:
        for i, case in enumerate(cases):
            if seen is not None:
                seen(i, case)
            yield case
            for name, value in case.expects.items():
                self.watch.add(name, value)
        for text in self.watch.warnings():
            self.warn(text)


def _place(number: int, index: int, where: Callable[[int], str] | None) -> str:
    """Return what stands before a sentence about a testcase."""
    return f"testcase {number} ({where(index)}): " if where is not None else f"testcase {number}: "


def _alone(
    source: Bundle, alone: Bundle, prepare: Callable[[Bundle], Bundle], arrays: Mapping[str, Array]
) -> Bundle:
    """Make the model at the sizes of some data: what is true there, whatever the written graph makes of them."""
    sized = source.for_data(arrays)
    return alone if sized is source else prepare(sized)
