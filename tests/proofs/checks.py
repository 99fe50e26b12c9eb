"""What has to be true of every result, whatever the case."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import re
import tempfile
import traceback
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import OptimizeResult

import accelegrad as ag
from proofs.candidates import Search, inside_set
from proofs.cases import Case, Data, bounded, drawn
from proofs.certificates import objection
from proofs.extended import EPS, LONG, LONG_EPS, LONG_IS_WIDE, MANY, SMALLEST
from proofs.functions import Function

Status = ag.Status
#: Checkpoints are flushed to disk; where there is a folder in memory that costs nothing.
FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None
#: How closely points meet equations, of the size of the terms
INSIDE_EQUATIONS = 1e-16
#: Of valid input nothing is refused but distances beyond what squares of float64 can hold.
REFUSED = re.compile(r"(diameter|initial_radius) must be between \S+ and \S+, but it is ")
#: What else a `StreamedModel` may say: some methods need rows in memory, and so do bounds without l2.
REFUSED_FOR_STREAMS = re.compile(
    "this method goes from row to row in random order|tol stops on the certified gap"
    "|the [a-z_]* loss is smoothed as far as the dual gap allows"
)
POINTS = ("x", "x_average", "x_last", "x_best")
COMPARED = (
    *(*POINTS, "fun", "jac", "lower_bound", "gap", "certified_radius", "nit", "nfev", "njev"),
    *("rows", "status", "success", "message", "n_restarts"),
)
TRACED = ("iteration", "value", "gap", "step", "calls")


class FindingError(AssertionError):
    """Something false: what kind of thing, and the numbers."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail


def require(fine: Any, kind: str, detail: str = "") -> None:
    if not fine:
        raise FindingError(kind, detail)


def check(seed: int) -> None:
    case = drawn(seed)
    try:
        inspect(case)
    except FindingError as finding:
        terms = [formula.name for formula in (case.chosen, case.penalty) if formula is not None]
        told = f"{finding.detail}\n{' '.join([*case.tags, *terms])}, {case.options}"
        raise FindingError(finding.kind, told) from finding


def inspect(case: Case) -> None:
    try:
        result = attempt(case)
    except FindingError as finding:
        if isinstance(finding.__cause__, ValueError) and _is_refused(case, finding.detail):
            return
        raise
    examine(case, result)
    if case.watch == "look":
        check_observers(case, result)
    elif case.watch == "resume":
        check_resumed(case, result)
    elif case.watch == "other data":
        check_other_data(case, result)


def _is_refused(case: Case, words: str) -> bool:
    """Tell whether an error is one that a case may end with."""
    streamed = isinstance(case.problem, Data) and case.problem.chunk > 0
    return bool(REFUSED.match(words) or (streamed and REFUSED_FOR_STREAMS.match(words)))


def attempt(case: Case, **more: Any) -> OptimizeResult:
    """Run a case; neither an exception nor a warning is right, for all cases are valid."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return case.run(**more)
        except _KilledError:
            raise
        except Exception as error:
            raise FindingError(raised_at(error), str(error)) from error


def raised_at(error: Exception) -> str:
    """Return what was raised, and by which function of the product."""
    where = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in where if "accelegrad" in frame.filename] or where
    return f"{type(error).__name__} in {Path(own[-1].filename).name}:{own[-1].name}"


# -- one result ------------------------------------------------------------------------------------


def examine(case: Case, result: OptimizeResult) -> None:
    check_points(case, result)
    if not case.exact:
        nothing = result.lower_bound == -math.inf and result.gap == math.inf
        proved = result.status in (Status.CONVERGED, Status.STATIONARY)
        require(nothing and not proved, "noise certified", str(result))
        return
    if math.isnan(result.fun):
        nothing = not result.success and result.lower_bound == -math.inf
        require(nothing, "success or bound without a value", str(result))
        return
    check_value(case, result)
    check_gap(case, result)
    rng = np.random.default_rng([11, case.seed])
    search = Search(case, float(result.certified_radius), rng, result)
    check_bound(search, result)
    check_status(search, result)
    check_evidence(search, result)
    given = () if case.data is None else (case.data.X, case.data.y)
    told = objection(result.certificate, result.gap, *given)
    require(not told, "the certificate is refused", told)


def check_points(case: Case, result: OptimizeResult) -> None:
    for name in POINTS:
        x = result.get(name)
        if x is None:
            continue
        if not np.isfinite(x).all():
            if result.status in (Status.NON_FINITE, Status.DIVERGING) and name != "x":
                continue
            raise FindingError("point not finite", f"{name} = {x}, {result.message}")
        if case.chosen is None or case.options.get("project_y") is False:
            continue
        excess = float(case.chosen.excess(np.asarray(x, dtype=np.longdouble), LONG))
        # A point between two others has their rounding, and the start may be far larger.
        size = 1 + float(abs(case.x0).max()) / (float(abs(x).max()) + 1e-300)
        told = f"{name} by {excess:.3g}, {case.chosen.name}"
        require(excess <= 64 * x.size * EPS * size, "point outside of the set", told)


def check_value(case: Case, result: OptimizeResult) -> None:
    known = case.at(LONG.array(result.x), LONG)
    allowed = value_rounding(case, result.x)
    off = float(abs(known.value - result.fun))
    told = (
        f"fun {result.fun!r}, f(x) {float(known.value)!r}, off by {off:.3g}, allowed {allowed:.3g}"
    )
    require(off <= allowed, "fun is not f(x)", told)


def value_rounding(case: Case, x: Any) -> float:
    """Return how far float64 may be off at a point."""
    wide = LONG.array(x)
    known = case.at(wide, LONG)
    if case.data is not None:
        allowed = case.data.objective.rounding(x)
    else:
        allowed = float(EPS * abs(known.value) + 1e3 * case.problem.eps * known.size + SMALLEST)
    if case.penalty is not None:
        penalty = abs(float(case.penalty.at(wide, LONG)))
        allowed += (8 * wide.size + 16) * EPS * (penalty + abs(float(known.value) - penalty))
        if case.penalty.name == "OwnRidge":  # it squares what may vanish
            allowed += case.penalty.arguments["l2"] * wide.size * SMALLEST
    return allowed


def check_gap(case: Case, result: OptimizeResult) -> None:
    bound, told = float(result.lower_bound), f"gap {result.gap!r}, fun {result.fun!r}"
    require(bound < math.inf, "bound not a number", f"{bound}")
    require(result.gap == result.fun - bound, "gap is not fun - lower_bound", f"{told} {bound!r}")
    if not result.success:
        return
    require(result.gap >= 0, "success below the bound", f"{told}, {result.message}")
    tol, rtol = case.options.get("tol"), case.options.get("rtol")
    if tol is None and rtol is None:
        return
    goal = max((tol or 0.0) * max(1.0, abs(result.fun)), (rtol or 0.0) * abs(result.fun))
    kind = f"success without the goal, {Status(result.status).name}"
    require(result.gap <= goal, kind, f"{told}, goal {goal:.3g}, {result.message}")


def check_bound(search: Search, result: OptimizeResult) -> None:
    """No point that is claimed to be bounded has a lower value, nor one by more than the gap.

    The gap holds though `fun` itself is rounded; how a user's function rounds is not known.
    """
    case, bound, gap = search.case, float(result.lower_bound), result.gap
    if bound == -math.inf:
        return
    at = case.at(LONG.array(result.x), LONG)
    for x in search.points():
        known = case.at(x, LONG)
        if known.value - long_slack(case, known.size) < bound:
            confirm(search, x, bound)
        if case.data is not None and 0 <= gap < math.inf:
            slack = long_slack(case, at.size + known.size) + EPS * abs(gap)
            excess = at.value - known.value - gap
            told = f"{gap!r}, but a point is lower by {float(excess):.3g} more: {x.tolist()}"
            require(excess <= slack, "false gap", told)


def long_slack(case: Case, size: Any) -> Any:
    """Return how far long doubles may be off."""
    if not LONG_IS_WIDE:
        return 1e-10 * size
    nuclear = case.penalty is not None and case.penalty.name == "NuclearNorm"
    count = case.problem.X.shape[0] if isinstance(case.problem, Data) else 0
    return (1e-13 if nuclear else (64 + count + case.x0.size) * LONG_EPS) * size


def confirm(search: Search, x: Any, bound: float) -> None:
    """Raise the finding if 60 digits say the same."""
    case, many = search.case, MANY.array(x)
    known = case.at(many, MANY)
    allowed = 0 * known.size
    if case.chosen is not None and case.chosen.has_equations:
        allowed = allowed + INSIDE_EQUATIONS * known.size
    if isinstance(case.problem, Function):  # the function that was given was rounded
        size = known.size
        if case.problem.plain:  # cuts are as far off as the values at their points, x0 the farthest
            size = size + case.at(MANY.array(case.x0), MANY).size
        allowed = allowed + 64 * case.problem.eps * size
        allowed = allowed + SMALLEST * (4 + abs(many).sum() + abs(case.x0).sum())
    if case.penalty is not None and case.penalty.name == "OwnRidge":
        allowed = allowed + 32 * EPS * abs(known.size)
    if known.value + allowed < bound and inside_set(case, many, MANY):
        false_by, size = float(bound - known.value), float(known.size + 1e-300)
        told = f"{bound!r}, but f(u) = {float(known.value)!r}, lower by {false_by:.3g}, of the"
        told += f" terms {false_by / size:.2g}, certified_radius {search.region.radius}"
        told += f", at u = {x.tolist()}"
        raise FindingError("false bound", told)


def check_status(search: Search, result: OptimizeResult) -> None:
    case, (known, point) = search.case, search.best()
    if result.status == Status.REGION_REFUTED:
        given = "diameter" in case.options and not bounded(case.chosen, case.x0.size)
        # Without project_y the set is taken to hold a minimiser, as the paper's ball is.
        assumed = given or case.options.get("project_y") is False
        require(assumed, "region refuted that nobody gave", result.message)
        lowest = min(result.fun, known.value)
        told = f"{result.message} bound {result.lower_bound}, lowest {float(lowest)}"
        require(lowest < result.lower_bound, "region refuted without a witness", told)
    if result.status == Status.STATIONARY:
        at = case.at(LONG.array(result.x), LONG)
        allowed = 1e-12 * at.size + value_rounding(case, result.x)
        told = f"f(x) = {float(at.value)!r}, but {float(known.value)!r} at {point.tolist()}"
        require(known.value >= at.value - allowed, "stationary, but no minimiser", told)
    require(result.status != Status.NOT_CONVEX, "a convex function refused", result.message)
    converged = result.status == Status.CONVERGED
    require(result.success or not converged, "converged without success", result.message)


def check_evidence(search: Search, result: OptimizeResult) -> None:
    """A run that met its goal did so over more than the start's last digits."""
    case = search.case
    radius, size = float(result.certified_radius), 1 + float(abs(case.x0).max())
    if result.status != Status.CONVERGED or radius > 1e-9 * size or "diameter" in case.options:
        return
    known, _ = search.best()
    least = result.fun - 2 * abs(result.gap) - value_rounding(case, result.x)
    told = f"certified_radius {radius}, fun {result.fun}, but {float(known.value)} elsewhere"
    require(known.value >= least, "converged on nothing", told)


# -- several runs ----------------------------------------------------------------------------------


class _KilledError(Exception):
    """What a callback raises to kill a run."""


def check_same(kind: str, told: str, one: OptimizeResult, other: OptimizeResult) -> None:
    pairs = {name: (one.get(name), other.get(name)) for name in COMPARED}
    if one.trace is not None and other.trace is not None:
        pairs |= {name: (one.trace[name], other.trace[name]) for name in TRACED}
    changed = [f"{name} {a} / {b}" for name, (a, b) in pairs.items() if not same(a, b)]
    require(not changed, kind, f"{told}: {', '.join(changed)}")


def same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def check_observers(case: Case, result: OptimizeResult) -> None:
    rng = np.random.default_rng([13, case.seed])
    seen_bounds: list[OptimizeResult] = []
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        observers: dict[str, Any] = {
            "trace": True,
            "callback": lambda intermediate_result: seen_bounds.append(intermediate_result),
            "progress": True,
            "checkpoint": Path(folder) / "run.agc",
        }
        share = rng.choice([0.5, 1.0])  # some of them, or all at once
        chosen = [name for name in observers if rng.random() < share] or ["trace"]
        more = {name: observers[name] for name in chosen}
        if "checkpoint" in more:
            more["checkpoint_every"] = int(rng.integers(1, 50))
        with contextlib.redirect_stderr(io.StringIO()):
            seen = attempt(case, **more)
    check_same("looking on changes the result", "+".join(chosen), result, seen)
    if case.exact:
        check_seen_bounds(case, result, seen_bounds)


def check_seen_bounds(case: Case, result: OptimizeResult, seen: list[OptimizeResult]) -> None:
    """What a callback is told on the way holds too: the highest bound for each radius."""
    highest: dict[float, OptimizeResult] = {}
    for known in seen:
        radius = float(known.certified_radius)
        if radius not in highest or known.lower_bound > highest[radius].lower_bound:
            highest[radius] = known
    for radius, known in list(highest.items())[-4:]:
        search = Search(case, radius, np.random.default_rng([29, case.seed]), result)
        check_bound(search, known)


def check_resumed(case: Case, result: OptimizeResult) -> None:
    """A run that was killed and resumed is the one that was not, bit for bit."""
    if result.nit < 2:
        return
    rng = np.random.default_rng([17, case.seed])
    stop, killed = int(rng.integers(1, result.nit)), rng.random() >= 0.5
    every = int(rng.integers(1, stop + 1)) if killed else stop
    how = f"{'killed by a callback' if killed else 'ended'} after {stop}, checkpoint_every={every}"
    calls = itertools.count(1)

    def kill(x: Any) -> None:
        if next(calls) == stop:
            raise _KilledError

    more: dict[str, Any] = {"trace": True, "checkpoint_every": every}
    whole = {**more, "callback": lambda x: None} if killed else more
    ended = {**more, "callback": kill} if killed else {**more, "max_iter": stop}
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        path = Path(folder) / "run.agc"
        uninterrupted = attempt(case, checkpoint=Path(folder) / "whole.agc", **whole)
        with contextlib.suppress(_KilledError):
            attempt(case, checkpoint=path, **ended)
        if uninterrupted.nit <= stop or not path.exists():  # it came to its end before
            return
        resumed = attempt(case, resume=path, checkpoint=path, **whole)
    check_same("resumed differs", how, uninterrupted, resumed)


def check_other_data(case: Case, result: OptimizeResult) -> None:
    data = case.data
    if data is None or result.nit < 2:
        return
    rng = np.random.default_rng([19, case.seed])
    X, keywords, n = data.X, dict(data.keywords), data.y.size
    what = "X" if rng.random() < 0.7 or n < 2 else "sample_weight"
    if what == "X":
        at = int(rng.integers(n)), int(rng.integers(X.shape[1]))
        X = X.tolil() if sp.issparse(X) else X.copy(order="K")
        X[at] = 2 * X[at] + 1
        X = sp.csr_array(X) if sp.issparse(X) else X
    else:
        weights = keywords.get("sample_weight", np.ones(n)).copy()
        weights[int(rng.integers(n))] += weights.max()
        keywords["sample_weight"] = weights
    other = replace(case, problem=replace(data, X=X, keywords=keywords))
    stop = int(rng.integers(1, result.nit))
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        path = Path(folder) / "run.agc"
        attempt(case, checkpoint=path, max_iter=stop)
        try:
            attempt(other, resume=path)
        except FindingError as finding:
            if isinstance(finding.__cause__, ag.CheckpointError):
                return
            raise
    told = f"{what} differs, and the checkpoint was accepted"
    raise FindingError("resumed with other data", told)
