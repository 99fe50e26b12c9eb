"""Runs of everyday fits: ours and the peers' take turns.

A first fit of each warms up and is judged; then all are fitted in turn, some times, and the least
time of each counts: wall time in a process with the default number of threads, as people run, and
CPU time in another one with one thread. Objectives are computed outside of the clock.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from accelegrad_lab.engine.minimum import is_sparse
from accelegrad_lab.engine.timing import compilations
from accelegrad_lab.engine.worker import Clock, SolverError, TimeLimitError, Worker
from accelegrad_lab.everyday.cases import Case
from accelegrad_lab.everyday.goals import GOALS, Contest
from accelegrad_lab.everyday.peers import OURS, PEERS
from accelegrad_lab.everyday.rows import Rows, rows_of

TOL = 1e-3  # the estimators' default
REFERENCE_TOL = 1e-6  # of one more fit of ours, not timed, that looks for the minimum
REPEATS, ENOUGH = 9, 0.5  # fits of each that are timed, or the seconds after which one has enough
LONG = 1.0  # seconds: a first fit that took longer, and compiled nothing, counts too
CUTOFF, LEAST_LIMIT = 10.0, 5.0  # times our time, or so many seconds, may a fit of a peer take
COMPILING = 120.0  # seconds that a first fit may take that compiles something


class Sample(NamedTuple):
    """One fit: its times, and what it found."""

    cpu: float  # on one thread; of a first fit in a new process, on the default number
    wall: float  # on the default number of threads
    compiled: bool
    value: float  # of the objective, measured by us; NaN where that is not done
    objective: float = math.nan  # its own word
    gap: float = math.inf
    certified: bool = False


@dataclass
class Record:
    """The fits of one solver in one case."""

    case: str
    solver: str
    status: str = "done"  # or "time limit", "failed: ..."
    cpu: float = math.inf  # the least
    wall: float = math.inf
    fits: int = 0
    value: float = math.nan
    objective: float = math.nan
    gap: float = math.inf
    certified: bool = False

    def add(self, sample: Sample) -> None:
        """Count the times of a fit."""
        self.cpu, self.wall = min(self.cpu, sample.cpu), min(self.wall, sample.wall)
        self.fits += 1

    def to_json(self) -> dict[str, Any]:
        """Return plain values; what is not finite is None."""
        return {
            name: None if isinstance(one, float) and not math.isfinite(one) else one
            for name, one in asdict(self).items()
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Record:
        """Return what `to_json` gave: what is missing has its default."""
        return cls(**{name: one for name, one in plain.items() if one is not None})


class Size(NamedTuple):
    """What is known of a case before anybody fits."""

    words: str
    alpha: float
    floor: float
    solvers: tuple[str, ...]


class Pair(NamedTuple):
    """Two processes for the same fits."""

    default: Worker  # with the default number of threads
    single: Worker

    @classmethod
    def new(cls) -> Pair:
        """Return processes that are started when needed."""
        return cls(Worker(one_thread=False), Worker(one_thread=True))


@dataclass
class Workers:
    """The processes: a pair for all, and one for peers that compile for long, used by ``with``."""

    together: Pair = field(default_factory=lambda: Pair.new())
    apart: Pair = field(default_factory=lambda: Pair.new())

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (*self.together, *self.apart):
            worker.end()

    def of(self, solver: str) -> Pair:
        """Return the processes of a solver."""
        return self.apart if solver in PEERS and PEERS[solver].apart else self.together


def measure(case: Case, workers: Workers, limit: float) -> tuple[Size, list[Record]]:
    """Fit ours and all peers; `limit` is for the seconds of one fit."""
    size = Size(*workers.together.default.call(_size, case))
    records = {name: Record(case.key, name) for name in size.solvers}
    allowed, timed = limit, []
    for name, record in records.items():
        sample = _first(workers, case, record, allowed)
        if name == OURS and sample is not None:
            allowed = min(limit, max(LEAST_LIMIT, CUTOFF * sample.wall))
        if sample is not None:
            timed.append(record)
    if not GOALS[case.goal].path and records[OURS].status == "done":
        records["reference"] = _reference(workers, case, allowed)
    _take_turns(workers, case, timed, limit)
    return size, list(records.values())


def _first(workers: Workers, case: Case, record: Record, limit: float) -> Sample | None:
    """Fit once or, where something was compiled, again; keep what was found."""
    compiles = record.solver == OURS or PEERS[record.solver].apart
    patience = max(limit, COMPILING) if compiles else limit
    try:
        for _ in range(3):
            sample = _sample(workers, case, record.solver, patience, judged=True)
            if not sample.compiled:
                break
        if sample.wall > limit:
            raise TimeLimitError
    except TimeLimitError:
        record.status = "time limit"
        return None
    except SolverError as error:
        record.status = f"failed: {error}"
        return None
    record.value, record.objective = sample.value, sample.objective
    record.gap, record.certified = sample.gap, sample.certified
    if sample.wall > LONG and not sample.compiled:
        record.add(sample)
    return sample


def _take_turns(workers: Workers, case: Case, records: list[Record], limit: float) -> None:
    """Time the fits that are still wanted, one of each in turn."""
    spent = dict.fromkeys((record.solver for record in records), 0.0)
    for _ in range(REPEATS):
        for record in records:
            if record.fits and spent[record.solver] + record.fits * record.wall > ENOUGH:
                continue
            with contextlib.suppress(TimeLimitError, SolverError):
                sample = _sample(workers, case, record.solver, limit, judged=False)
                record.add(sample)
                spent[record.solver] += sample.wall


def _reference(workers: Workers, case: Case, limit: float) -> Record:
    """Return a stricter fit of ours, whose value is the best known if it is the lowest."""
    record = Record(case.key, "reference")
    try:
        sample = Sample(*workers.together.default.call(_strict, case, limit=limit))
    except (TimeLimitError, SolverError) as error:
        record.status = f"failed: {error}"
        return record
    record.value, record.objective, record.gap = sample.value, sample.objective, sample.gap
    record.certified = sample.certified
    return record


def _sample(workers: Workers, case: Case, solver: str, limit: float, *, judged: bool) -> Sample:
    pair = workers.of(solver)
    sample = Sample(*pair.default.call(_fit, case, solver, judged, limit=limit))
    if sample.wall > limit:
        raise TimeLimitError(f"more than {limit:g} s")
    patience = limit * (os.cpu_count() or 1)  # one thread may need so many times as long
    single = Sample(*pair.single.call(_fit, case, solver, False, limit=patience))
    return sample._replace(cpu=single.cpu, compiled=sample.compiled or single.compiled)


def cold(case: Case, solver: str, limit: float) -> Sample:
    """Return a first fit, in a new process and with an empty cache of compiled code."""
    with tempfile.TemporaryDirectory() as folder, _environment(NUMBA_CACHE_DIR=folder):
        worker = Worker(one_thread=False)
        try:
            return Sample(*worker.call(_fit, case, solver, False, limit=limit))
        finally:
            worker.end()


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Have variables for the processes that are started within the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# -- in the process --------------------------------------------------------------------------------

_ROWS: dict[str, Rows] = {}
_CONTESTS: dict[Case, Contest] = {}
_COLUMNS: dict[str, Any] = {}


def _contest(case: Case) -> Contest:
    """Return a case on its rows; only the last ones are kept."""
    if case.data not in _ROWS:
        _ROWS.clear()
        _COLUMNS.clear()
        _ROWS[case.data] = rows_of(case.data)
    if case not in _CONTESTS:
        _CONTESTS.clear()
        _CONTESTS[case] = Contest(GOALS[case.goal], _ROWS[case.data])
    return _CONTESTS[case]


def _size(begun: Clock, case: Case) -> Size:  # noqa: ARG001
    contest = _contest(case)
    names = [OURS, *(name for name, peer in PEERS.items() if peer.takes_part(contest))]
    floor = 0.0 if contest.goal.path else contest.floor
    return Size(contest.rows.words, contest.alpha, floor, tuple(names))


def _rows_for(solver: str, contest: Contest, data: str) -> tuple[Any, Any]:
    """Return rows in the format that a solver wants."""
    X, y = contest.rows
    if solver in PEERS and PEERS[solver].by_columns and is_sparse(X):
        X = _COLUMNS.setdefault(data, X.tocsc())
    return X, y


def _fit(begun: Clock, case: Case, solver: str, judged: bool) -> Sample:
    contest = _contest(case)
    estimator = contest.ours() if solver == OURS else PEERS[solver].make(contest)
    X, y = _rows_for(solver, contest, case.data)
    return _timed(begun, contest, estimator, X, y, judged=judged)


def _strict(begun: Clock, case: Case) -> Sample:
    contest = _contest(case)
    return _timed(begun, contest, contest.ours(REFERENCE_TOL), *contest.rows, judged=True)


def _timed(
    begun: Clock, contest: Contest, estimator: Any, X: Any, y: Any, *, judged: bool
) -> Sample:
    with warnings.catch_warnings(record=True) as said, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        with compilations() as compiled:
            begun()
            wall, cpu = time.perf_counter(), time.process_time()
            fitted = estimator.fit(X, y)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    value = math.nan
    if judged and hasattr(fitted, "coef_"):
        value = 0.0 if contest.goal.path else contest.value(fitted)
    own: tuple[float, float, bool] = (math.nan, math.inf, False)
    if hasattr(fitted, "gap_"):
        everywhere = math.isinf(fitted.certified_radius_)
        missed = any("missed tol" in str(one.message) for one in said)
        certified = bool(fitted.converged_) and everywhere and not missed
        own = float(fitted.objective_), float(fitted.gap_), certified
    return Sample(cpu, wall, bool(compiled), value, *own)
