"""Runs of the benchmark: the ladder of settings of one solver on one problem, and what it reached.

A solver is run from scratch with more and more iterations allowed; its time to an accuracy is that
of the fastest run that reached it. Ours is asked for tolerances instead, and counts only where its
own certificate says that the accuracy is reached, and that is true. Values are computed here,
outside of the clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from accelegrad.models.linear_model import LinearModel
from accelegrad_lab.bench.problems import Problem
from accelegrad_lab.bench.worker import BenchWorker, Fit
from accelegrad_lab.engine.peers import SOLVERS, Answer, Parameters, Solver, iterations, value_at
from accelegrad_lab.engine.worker import SolverError, TimeLimitError

ACCURACIES = (1e-2, 1e-3, 1e-4, 1e-6)
JUDGED = 1e-3  # the accuracy that the sentences of the summary speak of
STALLED = 10  # runs in turn, each 1.5 times as long, without progress: a solver is given up
CUTOFF = 5.0  # times our longest run: so long may a run of another take ...
LEAST_LIMIT = 1.0  # ... or so many seconds, if that is more
RETRIES = 8  # of ours for one accuracy, when the tolerance turned out to be too loose
TUNING = 10.0  # times the limit of a run: so long may a search for parameters take


class Rung(NamedTuple):
    """One run: what was asked for, the seconds, the value measured, and what it proves itself.

    `seconds` is wall time with default threads, `cpu` CPU time with one.
    """

    setting: float
    seconds: float
    value: float
    own_value: float = math.nan
    own_gap: float = math.inf
    cpu: float = math.inf


@dataclass(frozen=True)
class Record:
    """All runs of a solver on a problem."""

    problem: str
    solver: str
    rungs: tuple[Rung, ...]
    status: str  # "reached", "converged", "time limit", "stalled", "failed: ..." or "ended"
    limit: float  # seconds that one run was allowed
    warm_up: float = 0.0
    tuning: float = 0.0
    tuned: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values; what is not finite is None."""
        plain = asdict(self)
        plain["rungs"] = [[v if math.isfinite(v) else None for v in rung] for rung in self.rungs]
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Record:
        """Return what `to_json` gave."""
        missing = (math.nan, math.inf, math.inf, math.nan, math.inf, math.inf)
        rungs = tuple(
            Rung(*(m if v is None else v for v, m in zip(rung, missing, strict=True)))
            for rung in plain["rungs"]
        )
        return cls(**{**plain, "rungs": rungs})


class Yardstick(NamedTuple):
    """What accuracies are relative to: P(0) - P*, or P* itself."""

    start: float  # P(0)
    relative: str = "start"

    def size(self, value: float, gap: float = 0.0) -> float:
        """Return the unit for a value with a gap of at most `gap`: never more than the true one."""
        if self.relative == "start":
            return max(self.start - value, 0.0)
        return max(value - gap, 0.0)


def measure(worker: BenchWorker, name: str, bench: Bench) -> Record:
    """Run a solver on a problem until the finest accuracy is reached or the time is up."""
    solver, limit = SOLVERS[name], bench.limit_of(SOLVERS[name])
    found = Record(bench.problem.key, name, (), "", limit)
    tuned: Parameters = {}
    rungs: list[Rung] = []
    try:
        found = replace(found, warm_up=worker.warm_up(name, bench.problem))
        if solver.tune is not None:
            tuned, seconds = worker.tune(name, bench.problem, TUNING * limit)
            words = ", ".join(f"{key}={value}" for key, value in tuned.items()) or "the defaults"
            found = replace(found, tuning=seconds, tuned=words)
        status = _climb(partial(worker.fit, name, bench.problem), solver, bench, tuned, rungs)
    except TimeLimitError:
        status = "time limit"
    except SolverError as error:
        status = f"failed: {error}"
    return replace(found, rungs=tuple(rungs), status=status)


def _climb(
    fit: Callable[[float, Parameters, float], Fit],
    solver: Solver,
    bench: Bench,
    tuned: Parameters,
    rungs: list[Rung],
) -> str:
    """Add one run after the other to `rungs`; return why that ended."""
    limit, settings = bench.limit_of(solver), _settings(solver, bench.yardstick)
    setting = next(settings)
    while True:
        if solver.steady and rungs and rungs[-1].seconds * setting > limit * rungs[-1].setting:
            return "time limit"  # so long would it take
        done = fit(setting, tuned, limit)
        answer = done.answer
        value = value_at(bench.model, answer.x)
        rungs.append(Rung(setting, done.seconds, value, answer.value, answer.gap, done.cpu))
        status = _verdict(solver, answer, rungs, bench)
        if status:
            return status
        try:
            setting = settings.send(answer)
        except StopIteration:
            return "ended"


@dataclass(frozen=True, eq=False)
class Bench:
    """A problem on the bench, with what is known of its minimum."""

    problem: Problem
    model: LinearModel
    minimum: float
    yardstick: Yardstick
    limit: float
    ours: float = 0.0  # the seconds that ours took to the accuracy that is judged, if known
    slowest: float = math.inf  # the seconds of our longest run, once that is known

    def limit_of(self, solver: Solver) -> float:
        """Return the seconds that one run of a solver may take.

        A solver far slower than ours is not waited for, unless the question is how much slower.
        """
        if solver.patient:
            return max(self.limit, solver.patient * self.ours)
        return min(self.limit, max(LEAST_LIMIT, CUTOFF * self.slowest))

    @property
    def finest(self) -> float:
        """The value that has to be reached for the finest accuracy."""
        return self.minimum + ACCURACIES[-1] * self.yardstick.size(self.minimum)


def _verdict(solver: Solver, answer: Answer, rungs: list[Rung], bench: Bench) -> str:
    """Return why a ladder ends here, or nothing."""
    last = rungs[-1]
    if solver.certified:
        told = tells(last.own_value, last.own_gap, ACCURACIES[-1], bench.yardstick)
        return "reached" if told else ""
    if last.value <= bench.finest:
        return "reached"
    if solver.direct or (answer.converged and solver.ladder is iterations):
        return "converged"
    return "stalled" if _stalled([rung.value for rung in rungs]) else ""


def _stalled(values: list[float]) -> bool:
    """Tell whether the last runs, each longer than the one before, were of no use at all."""
    return len(values) > STALLED and min(values[-STALLED:]) >= min(values[:-STALLED])


def _settings(solver: Solver, yardstick: Yardstick) -> Generator[float, Answer, None]:
    """Yield settings; each is answered by what the run with it gave."""
    if solver.certified:
        yield from _tolerances(solver, yardstick)
        return
    yield from solver.ladder()


def _tolerances(solver: Solver, yardstick: Yardstick) -> Generator[float, Answer, None]:
    """Yield for each accuracy the tolerance that a user would ask for.

    `minimize` stops at a gap of tol max(1, |P|), an estimator at tol P: at first nothing is known,
    and tol is the accuracy itself, or the loosest that is asked for; then the run before tells the
    unit. While that has hardly begun to fall from P(0), the tolerance is lowered by ten at most.
    """
    unit, last = 1.0, math.inf
    answer: Answer | None = None
    for accuracy in ACCURACIES:
        for _ in range(RETRIES):
            setting = min(accuracy * unit, solver.loosest)
            if setting >= last and answer and _told(answer, accuracy, yardstick):
                break  # the run before has settled it, and was no stricter
            answer, last = (yield setting), setting
            size = yardstick.size(answer.value, answer.gap)
            unit = max(size / solver.unit(answer.value, yardstick.start), unit / 10)
            if answer.converged:
                return  # it did not get there
            if _told(answer, accuracy, yardstick):
                break


def _told(answer: Answer, accuracy: float, yardstick: Yardstick) -> bool:
    return tells(answer.value, answer.gap, accuracy, yardstick)


def tells(value: float, gap: float, accuracy: float, yardstick: Yardstick) -> bool:
    """Tell whether a certificate proves an accuracy by itself."""
    return gap <= accuracy * yardstick.size(value, gap) * (1 + 1e-9)


def seconds_to(
    record: Record, accuracy: float, minimum: float, yardstick: Yardstick, *, cpu: bool = False
) -> float:
    """Return the seconds of the fastest run that reached an accuracy; inf where none did."""
    target = minimum + accuracy * yardstick.size(minimum)
    return min(
        (
            rung.cpu if cpu else rung.seconds
            for rung in record.rungs
            if rung.value <= target
            and (
                not SOLVERS[record.solver].certified
                or tells(rung.own_value, rung.own_gap, accuracy, yardstick)
            )
        ),
        default=math.inf,
    )
