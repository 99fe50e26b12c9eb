"""One harness for all benchmarks: cases one after the other, every solver in fresh processes.

Each run is kept as a line of JSON, so that an interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelegrad.errors import real_number
from accelegrad_lab.bench.cases import SUITES, Case, chosen_cases, solvers_of
from accelegrad_lab.bench.report import Problem, Record, Results, write_bench_report
from accelegrad_lab.engine import worker
from accelegrad_lab.engine.fit import Rung, Sample
from accelegrad_lab.engine.tasks import LineFile, Progress
from accelegrad_lab.peers import PEERS, SOLVERS

CLOCK = "wall, default threads; CPU, one thread"  # results by other clocks do not belong together
STALLED = 10  # longer and longer runs in turn without progress: a solver is given up; chosen
CUTOFF, LEAST_LIMIT = 10.0, 2.0  # times our longest run, or so many seconds, may others take
REPEATS, ENOUGH = 9, 0.5  # a run with defaults is repeated so often, or so many seconds


@dataclass(frozen=True)
class BenchRequest:
    """What the user asked for: `accelegrad bench --help` says what each option means."""

    out: Path
    suite: str = SOLVERS
    only: Sequence[str] = ()
    solvers: Sequence[str] = ()
    quick: bool = False
    shapes: int = 0
    seed: int = 0
    time_limit: float | None = None
    resume: bool = False
    progress: bool = True

    @property
    def limit(self) -> float:
        """The seconds that one run may take."""
        usual, quick = SUITES[self.suite].limits
        given = (quick if self.quick else usual) if self.time_limit is None else self.time_limit
        return real_number("time_limit", given, above=0)


def bench(request: BenchRequest) -> tuple[Path, bool]:
    """Run what is missing, and write the report, after an interruption too.

    Return where the page is, and whether the run was interrupted.
    """
    begun = time.perf_counter()
    cases = chosen_cases(request)
    if request.solvers and cases:  # an unknown name is an error before any work
        solvers_of(cases[0], SUITES[request.suite].open(cases[0]), request.solvers)
    settings = {"suite": request.suite, "time_limit": request.limit, "clock": CLOCK}
    file = LineFile(request.out / "results.jsonl")
    results = Results(SUITES[request.suite])
    records = results.records
    for kind, content in file.begin(settings, resume=request.resume):
        results.take(kind, content)
    progress = Progress(len(cases), shown=request.progress)
    interrupted = False
    try:
        with worker.Pair() as together, worker.Pair() as apart:
            for case in cases:
                progress.part(case.key)
                known = results.problems.get(case.key)
                if known is None:
                    known = results.problems[case.key] = _known(request, case)
                    file.add("problem", known._asdict())
                missing = [name for name in known.solvers if (case.key, name) not in records]
                progress.begin(len(known.solvers), done=len(known.solvers) - len(missing))
                for name in missing:  # ours is the first one
                    pair = apart if PEERS[name].apart else together
                    limit = _limit(request, records.get((case.key, SUITES[case.suite].ours)))
                    record = measure(pair, case, name, known, limit)
                    records[case.key, name] = record
                    file.add("record", record.to_json())
                    progress.advance()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.close()
    if not results.records:
        if interrupted:
            raise KeyboardInterrupt
        raise ValueError("nothing was measured: the data of these cases are not there.")
    seconds = time.perf_counter() - begun
    page = write_bench_report(results, request.out, request.limit, seconds, interrupted=interrupted)
    return page, interrupted


def _known(request: BenchRequest, case: Case) -> Problem:
    """Return what is known of a problem before anybody solves it."""
    problem = SUITES[case.suite].open(case)
    names = solvers_of(case, problem, request.solvers)
    value, lower = problem.minimum()
    return Problem(
        case.key, case.group, case.data, case.goal, problem.words, problem.start, problem.floor,
        value, lower, names,
    )  # fmt: skip


def _limit(request: BenchRequest, ours: Record | None) -> float:
    """Return the seconds of a run; others get less where our longest one was much faster."""
    if ours is None:
        return request.limit
    slowest = max((rung.seconds for rung in ours.rungs), default=math.inf)
    return min(request.limit, max(LEAST_LIMIT, CUTOFF * slowest))


def measure(pair: worker.Pair, case: Case, name: str, known: Problem, limit: float) -> Record:
    """Run a solver on a problem until the finest accuracy is reached or the time is up."""
    rungs: list[Rung] = []
    call = cold_call if PEERS[name].cold else pair.call
    try:
        status = _climb(call, case, name, known, limit, rungs)
    except worker.TimeLimitError:
        status = "time limit"
    except worker.SolverError as error:
        status = f"failed: {error}"
    return Record(case.key, name, tuple(rungs), status)


def _climb(
    call: Callable[..., tuple[Sample, Sample]],
    case: Case,
    name: str,
    known: Problem,
    limit: float,
    rungs: list[Rung],
) -> str:
    """Add one run after the other to `rungs`; return why that ended."""
    suite, peer = SUITES[case.suite], PEERS[name]
    finest = suite.accuracies[-1]
    for setting in suite.settings(peer):
        steps = setting >= 1 and bool(rungs)  # so many take about so much longer
        if steps and rungs[-1].seconds * setting > limit * rungs[-1].setting:
            return "time limit"
        wall, cpu = call(_sample, case, name, setting, limit, limit=limit)
        if max((one.seconds for one in wall.rungs), default=0.0) > limit:
            return "time limit"
        times = {str(one.setting): one.seconds for one in cpu.rungs}
        found = [one._replace(cpu=times.get(str(one.setting), math.inf)) for one in wall.rungs]
        rungs += found
        proved = suite.proves and peer.own
        if any(known.reached(one, finest, known.minimum, proved=proved) for one in found):
            return "reached"
        if wall.ended:
            return wall.ended
        values = [one.value for one in rungs]
        if len(values) > STALLED and min(values[-STALLED:]) >= min(values[:-STALLED]):
            return "stalled"
    return "ended"


def cold_call(function: Callable[..., Any], *arguments: Any, limit: float) -> tuple[Any, Any]:
    """Call in a new process with an empty cache of compiled code, without anything before."""
    with tempfile.TemporaryDirectory() as folder, worker.environment(NUMBA_CACHE_DIR=folder):
        process = worker.Worker(one_thread=False)
        try:
            answer = process.call(function, *arguments, False, limit=limit)
            return answer, answer
        finally:
            process.end()


# -- in the process --------------------------------------------------------------------------------

_OPEN: dict[Case, Any] = {}  # the last problem
_WARM: set[tuple[str, str, str]] = set()  # what was run before: solvers in groups, for a goal


def _sample(
    begun: Callable[[], None], case: Case, name: str, setting: float, limit: float, cpu: bool
) -> Sample:
    if case not in _OPEN:
        _OPEN.clear()
        _OPEN[case] = SUITES[case.suite].open(case)
    problem, peer = _OPEN[case], PEERS[name]
    kind = name, case.group, case.goal
    if kind not in _WARM and not peer.cold:
        with contextlib.suppress(ValueError, ArithmeticError):
            problem.warm_up(peer, setting)
        _WARM.add(kind)
    repeats = (REPEATS, ENOUGH) if math.isnan(setting) else (3, 0.1)
    timing = worker.Timing(begun, cpu, *((1, 0.0) if peer.cold else repeats))
    found: Sample = problem.sample(peer, setting, timing, limit)
    return found
