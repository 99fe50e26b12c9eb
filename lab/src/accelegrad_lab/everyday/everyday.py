"""`accelegrad bench --everyday`: estimators with all their defaults beside the specialists."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from accelegrad.errors import real_number
from accelegrad_lab.engine.line_file import LineFile
from accelegrad_lab.engine.runner import Progress
from accelegrad_lab.engine.worker import SolverError, TimeLimitError
from accelegrad_lab.everyday.cases import COLD, Case, cases
from accelegrad_lab.everyday.peers import OURS
from accelegrad_lab.everyday.results import ColdFit, Measured, Results, line_of
from accelegrad_lab.everyday.runs import Workers, cold, measure

RESULTS = "results.jsonl"
TIME_LIMIT, QUICK_LIMIT = 60.0, 10.0


@dataclass(frozen=True)
class EverydayRequest:
    """What the user asked for: `accelegrad bench --help` says what each option means."""

    out: Path
    only: Sequence[str] = ()
    quick: bool = False
    time_limit: float | None = None
    cold: bool = True
    resume: bool = False
    progress: bool = True

    @property
    def limit(self) -> float:
        """The seconds that one fit may take."""
        usual = QUICK_LIMIT if self.quick else TIME_LIMIT
        given = usual if self.time_limit is None else self.time_limit
        return real_number("time_limit", given, above=0)

    @property
    def settings(self) -> dict[str, Any]:
        """What decides numbers."""
        return {"time_limit": self.limit, "clock": "wall, default threads; CPU, one thread"}


class EverydayReport(NamedTuple):
    """Where the page is, and whether the run was interrupted."""

    page: Path
    interrupted: bool


def bench_everyday(request: EverydayRequest) -> EverydayReport:
    """Run what is missing, and write the report, after an interruption too."""
    from accelegrad_lab.everyday.report import write_everyday_report

    begun = time.perf_counter()
    chosen = cases(request.only, quick=request.quick)
    settings = request.settings
    file = LineFile(request.out / RESULTS, Results)
    found = file.begin(settings, resume=request.resume)
    progress = Progress(len(chosen), shown=request.progress)
    interrupted = False
    try:
        with Workers() as workers:
            for case in chosen:
                progress.part(case.key)
                if case.key not in found.cases:
                    _run(case, workers, request.limit, file, found)
                if request.cold and case.key in COLD:
                    _run_cold(case, request.limit, file, found)
                progress.part_done()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.close()
    if not found.cases:
        if interrupted:
            raise KeyboardInterrupt
        raise ValueError("nothing was measured: the data of these cases are not there.")
    seconds = time.perf_counter() - begun
    page = write_everyday_report(found, request, seconds, interrupted=interrupted)
    return EverydayReport(page, interrupted)


def _run(
    case: Case, workers: Workers, limit: float, file: LineFile[Results], found: Results
) -> None:
    """Measure a case and keep it."""
    size, records = measure(case, workers, limit)
    measured = Measured(case.key, *case, size.words, size.alpha, size.floor)
    found.cases[case.key] = measured
    found.records[case.key] = {record.solver: record for record in records}
    file.add("case", line_of(measured, records))


def _run_cold(case: Case, limit: float, file: LineFile[Results], found: Results) -> None:
    """Measure a first fit of ours, and of the peer that it is compared with."""
    for solver in (OURS, *list(found.records[case.key])[1:2]):
        if (case.key, solver) in found.cold:
            continue
        try:
            sample = cold(case, solver, limit)
        except (SolverError, TimeLimitError):
            continue
        fit = ColdFit(case.key, solver, sample.cpu, sample.wall)
        found.cold[case.key, solver] = fit
        file.add("cold", asdict(fit))
