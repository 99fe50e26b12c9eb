"""`accelegrad bench --functions`: our methods and those of others on the suite of functions."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from accelegrad.errors import nearest, real_number, whole_number
from accelegrad.extras import require
from accelegrad_lab.engine.runner import Progress
from accelegrad_lab.engine.worker import one_thread
from accelegrad_lab.functions.methods import METHODS
from accelegrad_lab.functions.minima import Minimum, minima, write_minima
from accelegrad_lab.functions.problem import Case, Function
from accelegrad_lab.functions.runs import Limits, Record, measure
from accelegrad_lab.functions.suite import SUITE
from accelegrad_lab.report.tables import put

RESULTS = "results.jsonl"
USUAL, QUICK = Limits(5000, 5.0), Limits(500, 0.5)
WARM_UP = Limits(30, 5.0)  # of a method's first run, which may compile or import
WARM_UP_FUNCTION = "valley"
QUICK_SUITE = (
    "logistic",
    "quadratic-ill-conditioned",
    "log-sum-exp",
    "max-linear",
    "enclosing-ball",
    "absolute-regression",
    "max-and-distance",
    "total-variation",
    "largest-eigenvalue",
    "nonnegative-least-squares",
    "matrix-game",
    "lasso",
)


@dataclass(frozen=True)
class FunctionsRequest:
    """What the user asked for.

    Parameters
    ----------
    out : Path
        A folder for the page, the tables, the figures and the results.
    only : sequence of str
        Names of functions; by default all, and with `quick` twelve small ones.
    methods : sequence of str
        Methods; by default all that are installed.
    quick : bool
        Twelve functions, 500 calls and half a second a run.
    max_calls : int
        The most calls of one run.
    time_limit : float
        The most seconds of one run.
    resume : bool
        Go on with the results that are there.
    progress : bool
        Whether to show progress bars.
    """

    out: Path
    only: Sequence[str] = ()
    methods: Sequence[str] = ()
    quick: bool = False
    max_calls: int | None = None
    time_limit: float | None = None
    resume: bool = False
    progress: bool = True

    @property
    def limits(self) -> Limits:
        """When a run ends."""
        usual = QUICK if self.quick else USUAL
        calls = usual.calls if self.max_calls is None else self.max_calls
        seconds = usual.seconds if self.time_limit is None else self.time_limit
        return Limits(
            whole_number("max_calls", calls, least=1),
            real_number("time_limit", seconds, above=0),
        )

    @property
    def cases(self) -> list[Case]:
        """The functions asked for."""
        wanted = self.only or (QUICK_SUITE if self.quick else tuple(SUITE))
        return [SUITE[known("function", name, SUITE)] for name in wanted]

    @property
    def method_names(self) -> list[str]:
        """The methods asked for, in the table's order."""
        wanted = {known("method", name, METHODS) for name in self.methods or METHODS}
        return [name for name in METHODS if name in wanted]


def known(kind: str, name: str, valid: Any) -> str:
    """Return a name, or say which ones there are."""
    if name not in valid:
        raise ValueError(f"there is no {kind} {name!r}: {nearest(name, valid)}")
    return name


class FunctionsReport(NamedTuple):
    """Where the page is, and whether the run was interrupted."""

    page: Path
    interrupted: bool


@dataclass
class Comparison:
    """What was measured: records by function and method, and why others took no part."""

    cases: dict[str, Case] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    records: dict[tuple[str, str], Record] = field(default_factory=dict)

    @property
    def methods(self) -> list[str]:
        """The methods that took part somewhere, in the table's order."""
        seen = {method for _, method in self.records}
        return [name for name in METHODS if name in seen]

    def minimum(self, name: str) -> Minimum:
        """Return a function's minimum."""
        return minima()[name]


def compare_functions(request: FunctionsRequest) -> FunctionsReport:
    """Run what is missing, and write the report, after an interruption too."""
    from accelegrad_lab.functions.report import write_functions_report

    begun = time.perf_counter()
    cases, methods, limits = request.cases, request.method_names, request.limits
    file = request.out / RESULTS
    found = Comparison(records=_begin(file, limits, resume=request.resume))
    progress = Progress(len(cases), shown=request.progress)
    interrupted = False
    try:
        with file.open("a", encoding="utf-8") as lines:
            for name in methods:
                _warm_up(name)
            for case in cases:
                progress.part(case.name)
                _run_case(case, methods, limits, found, lines, progress)
                progress.part_done()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.close()
    if not found.records:
        if interrupted:
            raise KeyboardInterrupt
        raise ValueError("nothing was measured: none of these methods can take these functions.")
    seconds = time.perf_counter() - begun
    page = write_functions_report(found, request, seconds, interrupted=interrupted)
    return FunctionsReport(page, interrupted)


def _run_case(
    case: Case,
    methods: Sequence[str],
    limits: Limits,
    found: Comparison,
    lines: Any,
    progress: Progress,
) -> None:
    """Run all methods on one function."""
    function = case.build()
    wanted = [name for name in methods if not METHODS[name].against(function)]
    missing = [name for name in wanted if (case.name, name) not in found.records]
    found.cases[case.name], found.sizes[case.name] = case, function.x0.size
    progress.begin(len(wanted), done=len(wanted) - len(missing))
    for name in missing:
        record = measure((case.name, name), function, minima()[case.name], limits)
        found.records[case.name, name] = record
        lines.write(json.dumps(record.to_json(), allow_nan=False) + "\n")
        lines.flush()
        progress.advance()


def _warm_up(name: str) -> None:
    """Run a method for a moment: what it imports and compiles is not in its times."""
    function: Function = SUITE[WARM_UP_FUNCTION].build()
    if not METHODS[name].against(function):
        measure((WARM_UP_FUNCTION, name), function, minima()[WARM_UP_FUNCTION], WARM_UP)


def _begin(file: Path, limits: Limits, *, resume: bool) -> dict[tuple[str, str], Record]:
    """Begin a file of results, or return those that are there with the same limits."""
    clock = "wall, default threads; CPU, one thread"
    head = json.dumps({"calls": limits.calls, "seconds": limits.seconds, "clock": clock})
    if not (resume and file.exists()):
        put(file, head + "\n")
        return {}
    first, *lines = file.read_text(encoding="utf-8").splitlines()
    if first != head:
        raise ValueError(f"{file} was measured with other limits ({first}); leave --resume out.")
    records = [Record.from_json(json.loads(line)) for line in lines]
    return {(one.function, one.method): one for one in records}


def renew_minima(request: FunctionsRequest) -> list[str]:
    """Find the minima of the functions anew; return a line for each."""
    require("--minima", "bench", "cvxpy", "clarabel", distribution="accelegrad-lab")
    lines = []
    progress = Progress(len(request.cases), shown=request.progress)
    with one_thread():
        for case in request.cases:
            progress.part(case.name)
            one = write_minima([case])[case.name]
            lines.append(f"{case.name}: {one.value:.15g}, to {one.error:.0e} ({one.ways})")
            progress.part_done()
    progress.close()
    return lines
