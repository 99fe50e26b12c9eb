"""`accelegrad bench`: this package's default against the solvers that users would pick instead."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from accelegrad.errors import nearest, real_number, whole_number
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.losses import plain_loss_name
from accelegrad_lab.bench.problems import (
    STRENGTHS,
    SUITE_LOSSES,
    DataSet,
    Problem,
    problems_of,
    sources,
)
from accelegrad_lab.bench.report import write_bench_report
from accelegrad_lab.bench.results import Measured, ResultFile, Results, Suite
from accelegrad_lab.bench.runs import (
    JUDGED,
    Bench,
    Record,
    Yardstick,
    measure,
    seconds_to,
)
from accelegrad_lab.bench.worker import BenchWorker
from accelegrad_lab.engine.minimum import find_minimum
from accelegrad_lab.engine.peers import BENCHED, HUBER_EPSILON, OURS, SOLVERS, huber_scale
from accelegrad_lab.engine.runner import Progress

RESULTS = "results.jsonl"
CLOCK = "wall, default threads; CPU, one thread"
TIME_LIMIT, QUICK_LIMIT = 4.0, 0.5
ROWS = 100_000
RELATIVE = ("start", "minimum")
MINIMUM_SECONDS = 30.0  # for the search for one minimum


@dataclass(frozen=True)
class BenchRequest:
    """What the user asked for: `accelegrad bench --help` says what each option means."""

    out: Path
    sets: Sequence[str] = ()
    losses: Sequence[str] = tuple(SUITE_LOSSES)
    strengths: Sequence[float] = STRENGTHS
    solvers: Sequence[str] = ()
    time_limit: float | None = None
    rows: int = ROWS
    relative: str = "start"
    quick: bool = False
    resume: bool = False
    progress: bool = True

    @property
    def limit(self) -> float:
        """The seconds that one run may take."""
        usual = QUICK_LIMIT if self.quick else TIME_LIMIT
        return usual if self.time_limit is None else float(self.time_limit)

    @property
    def settings(self) -> dict[str, float | str]:
        """What decides numbers: results with other settings do not belong together."""
        return {
            "time_limit": self.limit,
            "rows": self.rows,
            "relative": self.relative,
            "clock": CLOCK,
        }


class BenchReport(NamedTuple):
    """Where the page is, and whether the run was interrupted."""

    page: Path
    interrupted: bool


def bench(request: BenchRequest) -> BenchReport:
    """Run what is missing, and write the report, after an interruption too."""
    begun = time.perf_counter()
    request = replace(request, losses=tuple(map(plain_loss_name, request.losses)))
    _check(request)
    chosen = sources(request.sets, quick=request.quick)
    file = ResultFile(request.out / RESULTS)
    results = file.begin(request.settings, resume=request.resume)
    progress = Progress(len(chosen), shown=request.progress)
    interrupted = False
    try:
        with BenchWorker() as together, BenchWorker() as apart:
            run = _Run(request, file, results, together, apart, progress)
            for name, source in chosen.items():
                if name not in results.done:
                    progress.part(name)
                    run.data_set(source(request.rows))
                    file.add_done(name)
                progress.part_done()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.close()
    suite = Suite.of(results, request.relative)
    if not suite.problems:
        if interrupted:
            raise KeyboardInterrupt
        raise ValueError("nothing was measured: no set is suitable for these losses and strengths.")
    seconds = time.perf_counter() - begun
    page = write_bench_report(suite, request, seconds, interrupted=interrupted)
    return BenchReport(page, interrupted)


def _check(request: BenchRequest) -> None:
    for kind, names, valid in (
        ("loss", request.losses, SUITE_LOSSES),
        ("solver", request.solvers, BENCHED),
        ("yardstick", [request.relative], RELATIVE),
    ):
        for name in names:
            if name not in valid:
                raise ValueError(f"there is no {kind} {name!r}: {nearest(name, valid)}")
    for strength in request.strengths:
        real_number("l2", strength, least=0)
    real_number("time_limit", request.limit, above=0)
    whole_number("rows", request.rows, least=0)


@dataclass(frozen=True)
class _Run:
    """The running benchmark."""

    request: BenchRequest
    file: ResultFile
    results: Results
    together: BenchWorker
    apart: BenchWorker
    progress: Progress

    def data_set(self, data: DataSet) -> None:
        """Run everything on one set."""
        wanted = list(problems_of(data, self.request.losses, self.request.strengths))
        runs = [
            (problem, name) for problem in wanted for name in self._solvers(problem.model(data))
        ]
        done = sum((problem.key, name) in self.results.records for problem, name in runs)
        self.progress.begin(len(runs), done=done)
        for worker in (self.together, self.apart):
            worker.load(data)
        for problem in wanted:
            self._problem(problem, data)

    def _solvers(self, model: LinearModel) -> list[str]:
        """Return who takes part; ours comes first, as patience with others depends on its time."""
        return [
            name
            for name in BENCHED
            if (name == OURS or self._wanted(name)) and not SOLVERS[name].reason_against(model)
        ]

    def _wanted(self, name: str) -> bool:
        """Tell whether a solver was asked for."""
        if self.request.solvers:
            return name in self.request.solvers
        return not (self.request.quick and SOLVERS[name].apart)

    def _problem(self, problem: Problem, data: DataSet) -> None:
        records = self.results.records
        names = self._solvers(problem.model(data))
        if all((problem.key, name) in records for name in names):
            return
        known = self._known(problem, data)
        problem = replace(problem, options=known.options)
        yardstick = Yardstick(known.start, self.request.relative)
        model = problem.model(data)
        one = Bench(problem, model, known.minimum, yardstick, self.request.limit)
        for name in names:
            if (problem.key, name) not in records:
                worker = self.apart if SOLVERS[name].apart else self.together
                records[problem.key, name] = measure(worker, name, one)
                self.file.add_record(records[problem.key, name])
                self.progress.advance()
            if name == OURS:
                one = _with_our_times(one, records[problem.key, name])

    def _known(self, problem: Problem, data: DataSet) -> Measured:
        """Return a problem with its minimum, which is looked for at first."""
        known = self.results.problems.get(problem.key)
        if known is not None:
            return known
        options: dict[str, float] = {}
        if problem.loss == "huber":
            options["delta"] = HUBER_EPSILON * huber_scale(data.X, data.y, problem.strength)
        model = replace(problem, options=options).model(data)
        minimum = find_minimum(model, MINIMUM_SECONDS)
        known = Measured(
            key=problem.key,
            data=problem.data,
            loss=problem.loss,
            strength=problem.strength,
            rows=model.n_samples,
            columns=model.n_features,
            words=data.words,
            start=model.value(np.zeros(model.n_features)),
            minimum=minimum.value,
            lower=minimum.lower,
            seconds=minimum.seconds,
            options=options,
        )
        self.results.problems[problem.key] = known
        self.file.add_problem(known)
        return known


def _with_our_times(one: Bench, record: Record) -> Bench:
    """Return a problem with what the limits of others depend on."""
    took = seconds_to(record, JUDGED, one.minimum, one.yardstick)
    slowest = max((rung.seconds for rung in record.rungs), default=math.inf)
    if record.status == "time limit":
        slowest = math.inf
    return replace(one, ours=took if math.isfinite(took) else 0.0, slowest=slowest)
