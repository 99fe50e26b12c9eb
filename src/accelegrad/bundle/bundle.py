"""A bundle method for exact functions: past cuts form a model of the function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import ddot  # @ takes longer to begin

from accelegrad.bundle.cut_memory import FEWEST_CUTS, CutMemory, CutModel, Lowest, default_size
from accelegrad.bundle.quasi_newton import MOST_TRIALS, End, LastDigits, LineSearch, Pairs
from accelegrad.errors import NonFiniteError, Vector, whole_number
from accelegrad.geometry.nearest_point import Rows, lowest_of_quadratic
from accelegrad.linalg import UNIT, norm
from accelegrad.rules.base import (
    Array,
    Evaluated,
    KnownEvaluation,
    Oracle,
    Projection,
    Prox,
    State,
    Step,
    StepRule,
    check_radius,
)
from accelegrad.rules.distance import smallest_radius
from accelegrad.rules.distance_free import DistanceFreeAcceleGrad

# The recipe and its constants were measured on 35 functions, smooth and not, in 2 to 2000
# dimensions; `accelegrad bench --functions` compares methods on others.
#: The centre moves if the value falls by this share of what the model promises.
SERIOUS = 0.1
#: The largest growth factor of the step. Where the function is not finite, it is cut as much.
LARGEST_GROWTH = 10.0
#: It also grows by this factor after this many trials in a row without a miss: short steps all
#: succeed, and gain little (functions with kinks, mean calls to 1e-4 and 1e-6: 87 and 165 without,
#: 75 and 147 with on 16 functions; no difference on 26 others). Not with a set or a term, where
#: smooth functions take such steps as well (12 functions: 22 and 33 without, 26 and 42 with).
IN_A_ROW, GROWN = 3, 2.0
#: Trials that count as recent, and those among them that may miss on a smooth function. If all of
#: them miss, the step shrinks, at most to the last share (after each miss, to a tenth: 1.3 times as
#: many calls to 1e-6).
RECENT, MAY_MISS, LARGEST_CUT = 10, 2, 0.3
#: The function is not smooth if the curvature seen in the last steps (the median of some) is this
#: many times its smallest so far: at kinks it grows without end.
CURVATURE_STEPS, CURVATURE_GROWTH = 5, 10.0
#: AcceleGrad gets such a share of all calls that the whole takes at most this many times its calls
#: alone, if its gap falls as the inverse of the calls.
INSURED = 2.2
#: AcceleGrad's first steps, which search for a scale, wait as if it had had this many calls: most
#: functions are nearly solved by then (functions with kinks, calls to 1e-4: 50 without waiting, 40
#: with, and 40 without AcceleGrad). Not with a set or a term, where short steps are not lengthened.
UNINSURED = 10
#: The gap is estimated for a minimiser within this many times the distance travelled.
REACH = 2.0
#: Values do not resolve a fall that is a smaller share of the value.
ROUNDING_SHARE = 1e-13
#: If the model promises less than values resolve, the step is lengthened at most this often; if
#: trials are rough, it is shortened.
MOST_LENGTHENED = 4


NO_SEARCH = LineSearch()


class Counts(NamedTuple):
    """What a bundle counts."""

    calls: int = 0
    insured: int = 0  # of these, AcceleGrad's
    misses: int = 0  # the last trials in a row without a fall
    recent: int = 0  # bits of the last trials that missed; an uneven one takes several


class BundleState(NamedTuple):
    """The state of a bundle method. The cuts and the pairs grow in place."""

    iteration: int
    start: Vector
    center: Vector  # the best point
    value: float  # F there
    term: float  # the penalty's part of it
    gradient: Vector  # that of f there
    radius: float  # largest distance of a centre, or of the first trial, from the start
    step_size: float  # t
    estimated_gap: float  # according to the model
    curvature: list[float]  # inverse curvatures of the last steps, newest last
    flattest: float  # the largest median of these, since trials last missed for long
    counts: Counts
    search: LineSearch
    cuts: CutMemory
    pairs: Pairs
    insurance: Any  # AcceleGrad's state
    insured_value: float  # lowest value found by AcceleGrad; inf: it cannot continue
    last_digits: LastDigits = LastDigits()

    @property
    def smooth(self) -> bool:
        """Whether the function has looked smooth lately."""
        if self.counts.recent.bit_count() > MAY_MISS:
            return False
        known = len(self.curvature) == CURVATURE_STEPS
        return not known or CURVATURE_GROWTH * _median(self.curvature) >= self.flattest


class Recorder:
    """An oracle that keeps every cut, counts calls, and remembers the lowest value."""

    def __init__(self, oracle: Oracle, cuts: CutMemory) -> None:
        self._oracle, self._cuts = oracle, cuts
        self.calls = 0
        self.best: Evaluated | None = None

    def __call__(self, point: Array) -> Evaluated:
        """Evaluate at the point."""
        self.calls += 1
        evaluation = self._oracle(point)
        _ = evaluation.gradient  # it may be computed late, and its norm with it
        if not math.isfinite(evaluation.squared_norm):
            raise NonFiniteError("the gradient is not finite")
        self._cuts.take(evaluation)
        if self.best is None or evaluation.value < self.best.value:
            self.best = evaluation
        return evaluation


@dataclass(frozen=True)
class Bundle(StepRule):
    r"""A proximal bundle method with two metrics, insured by AcceleGrad.

    Every evaluation is a cut :math:`f(u) \ge f(x_i) + \langle g_i, u - x_i\rangle`. Around the best
    point c the highest of the kept cuts is a model of f. The trial point minimises the model plus
    :math:`\|u - c\|^2 / (2t)`: with :math:`e_i = f(c) - f(x_i) - \langle g_i, c - x_i\rangle`

    .. math::
        \lambda = \arg\min_{\lambda \in \Delta}\ \tfrac t2 \|g\|^2 + \textstyle\sum_i \lambda_i e_i,
        \quad g = \textstyle\sum_i \lambda_i g_i, \quad u = c - t g, \quad
        v = \textstyle\sum_i \lambda_i e_i + t \|g\|^2 .

    If the value falls by v/10 or more, u is the new centre; otherwise its cut improves the model.
    While the function behaves smoothly (few trials miss, and the curvature seen in gradients does
    not grow), steps are those of L-BFGS with a line search instead, at the same cost.

    If bundle steps might gain less than AcceleGrad would, its steps alternate with them, on the
    same cuts and best point. Its share is such that the whole takes at most about twice its calls.

    With a feasible set or a penalty, Newton's method on the dual finds the model's minimiser, with
    projections or proximal maps and no evaluation, and the steps of L-BFGS lead to the minimum of
    its quadratic model over the set. Where values show no more progress, such steps continue while
    they pay.

    Parameters
    ----------
    bundle_size : int, optional
        Number of cuts that are kept; by default the dimension plus 20, in at most 64 MB.
    initial_radius : float, optional
        The length of the first step; by default that of x0, or 1 if it is shorter.
    project, prox : callable, optional
        The projection onto a feasible set, and the proximal map of a penalty. `minimize` sets them.
    term : callable, optional
        The penalty's value. `minimize` sets it.
    rows : Rows, optional
        The rows and bounds that describe the set, if they do. `minimize` sets them.

    References
    ----------
    C. Lemarechal, C. Sagastizabal: Variable metric bundle methods, Math. Program. 76, 1997. The
    growth of t: K. C. Kiwiel, Math. Program. 46, 1990.
    """

    bundle_size: int | None = None
    initial_radius: float | None = None
    project: Projection | None = None
    prox: Prox | None = None
    term: Callable[[Array], float] | None = None
    rows: Rows | None = None

    title = "bundle method"
    can = frozenset({"values", "project", "prox", "term", "radius", "cuts"})

    def __post_init__(self) -> None:
        check_radius("initial_radius", self.initial_radius)
        if self.bundle_size is not None:
            whole_number("bundle_size", self.bundle_size, least=FEWEST_CUTS)

    @property
    def accelegrad(self) -> DistanceFreeAcceleGrad:
        """The rule that insures the bundle."""
        return DistanceFreeAcceleGrad(probe=True, project=self.project, prox=self.prox)

    @property
    def _plain(self) -> bool:
        return self.project is None and self.prox is None

    def init(self, x0: Array) -> BundleState:
        """Return the state before x0 is evaluated."""
        size = self.bundle_size or default_size(x0.size)
        return BundleState(
            *(0, x0, x0, math.inf, 0.0, np.zeros_like(x0), smallest_radius(x0), 1.0, math.inf),
            *([], 0.0, Counts(), NO_SEARCH, CutMemory(x0, size), Pairs()),
            *(self.accelegrad.init(x0), math.inf),
        )

    def output(self, state: State) -> Array:
        """Return the centre."""
        return state.center

    def step(self, state: State, oracle: Oracle) -> Step:
        """Evaluate at the next point."""
        recorder = Recorder(oracle, state.cuts)
        if state.iteration == 0:
            following, evaluation = self._begin(state, recorder)
        elif state.search.direction is not None or state.smooth:
            following, evaluation = self._search(state, recorder)
        elif self._owes(state):
            following, evaluation = self._insure(state, recorder)
        else:
            following, evaluation = self._follow_model(state, recorder)
        counts = following.counts
        counts = Counts(counts.calls + recorder.calls, *counts[1:])
        radius = state.radius
        if following.center is not state.center:
            radius = max(radius, norm(following.center - state.start))
        if state.iteration == 1:  # the first step's length is all that is known of the scale
            radius = max(radius, norm(evaluation.point - state.start))
        following = following._replace(iteration=state.iteration + 1, counts=counts, radius=radius)
        return Step(following, evaluation, 0.0)

    # -- the first evaluation, and the centre ------------------------------------------------------

    def _begin(self, state: BundleState, oracle: Recorder) -> tuple[BundleState, Evaluated]:
        at = oracle(state.start)
        length = math.sqrt(at.squared_norm)
        first = self.initial_radius or max(1.0, norm(state.start))
        step = first / length if length > 0.0 else first
        moved = state._replace(step_size=step, insured_value=at.value)
        return self._centred(moved, at, paired=False), at

    def _centred(
        self, state: BundleState, at: Evaluated, *, paired: bool, **changes: Any
    ) -> BundleState:
        """Return the state with another centre; `paired`: the step there shows curvature."""
        if paired:
            step, change = at.point - state.center, at.gradient - state.gradient
            state.pairs.add(step, change)
            square, growth = ddot(change, change), ddot(step, change)
            if square > 0.0 and growth > 0.0:
                curvature = [*state.curvature[1 - CURVATURE_STEPS :], growth / square]
                changes["curvature"] = curvature
                if len(curvature) == CURVATURE_STEPS:
                    changes["flattest"] = max(state.flattest, _median(curvature))
        changes |= {"center": at.point, "value": at.value}
        return state._replace(term=at.penalty, gradient=at.gradient, **changes)

    # -- steps of L-BFGS ---------------------------------------------------------------------------

    def _search(self, state: BundleState, oracle: Recorder) -> tuple[BundleState, Evaluated]:
        search = state.search
        if search.direction is None:
            search = self._new_search(state)
            if not (self._plain or search.start.slope < -ROUNDING_SHARE * abs(state.value)):
                state = state._replace(estimated_gap=0.0)  # no way leads down: a proof may succeed
        direction = search.direction
        assert direction is not None
        length = search.trial
        at, trial = _finite_trial(oracle, state.center, state.center + length * direction)
        if trial != 1.0:
            search = search._replace(trial=trial * search.trial)
        # A penalty is replaced by its chord, which lies above it and ends where it does.
        rise, term = search.rise or 0.0, at.penalty - state.term
        value = at.value - term + search.trial * rise
        end = End(search.trial, value, ddot(at.gradient, direction) + rise)
        # Where the function is not finite beyond, no longer step is to be had.
        if search.is_over(end) or (trial != 1.0 and search.fell(end)):
            counts, added = _noted(state.counts, misses=0), state.pairs.added
            found = self._centred(state, at, paired=True, search=NO_SEARCH, counts=counts)
            if not self._plain and found.pairs.added == added:
                # The gradient did not change: the quadratic model would repeat this step.
                steep = norm(found.gradient)
                gone = max(norm(found.center - state.center), state.step_size * steep)
                found = self._forgetting(found, LARGEST_GROWTH * gone)
            return found, at
        following = state
        if not search.fell(end):
            # More than may miss, once an earlier step has shown the scale: the first step is often
            # uneven on smooth functions. Without this: 38 and 62 calls to 1e-4 and 1e-6 on
            # functions with kinks, 36 and 59 with it.
            uneven = state.pairs.count > 0 and search.is_uneven(end)
            counts = _noted(state.counts, misses=MAY_MISS + 1 if uneven else 1)
            following = state._replace(counts=counts)
        search = search.after(end, at.gradient)
        if search.trials >= MOST_TRIALS or not following.smooth:
            return self._given_up(following, search), at
        return following._replace(search=search), at

    def _new_search(self, state: BundleState) -> LineSearch:
        if not self._plain:
            return self._search_in_set(state)
        direction, trial = state.pairs.direction(state.gradient), 1.0
        slope = ddot(state.gradient, direction)
        if not slope < 0.0:
            direction = -state.gradient
            slope = ddot(state.gradient, direction)
        if state.pairs.count == 0:
            trial = state.step_size
        return LineSearch.along(direction, state.value, slope, trial)

    def _search_in_set(self, state: BundleState) -> LineSearch:
        """Return a search towards the quadratic model's minimum, with a set or a term."""
        c, g, t = state.center, state.gradient, state.step_size
        point = self._lowest_of_quadratic(state, c, g)
        if point is not None:
            search = self._search_towards(state, point)
            if search.start.slope < 0.0:
                return search
        return self._search_towards(state, self._model(state.cuts).feasible(c - t * g, t))

    def _lowest_of_quadratic(self, state: BundleState, c: Vector, g: Vector) -> Vector | None:
        """Return where the quadratic model around c is lowest; None if it is not known."""
        if state.pairs.count == 0:
            return None
        rows = self.rows
        if rows is not None and not rows.quick and self.project is not None and self.prox is None:
            point = lowest_of_quadratic(rows, c, g, state.pairs.matrix())
            return None if point is None else self.project(point)
        return state.pairs.lowest(c, g, self._model(state.cuts).feasible)

    def _search_towards(self, state: BundleState, point: Vector) -> LineSearch:
        direction = point - state.center
        rise = 0.0 if self.term is None else float(self.term(point)) - state.term
        slope = ddot(state.gradient, direction) + rise
        return LineSearch.along(direction, state.value, slope, 1.0, rise)

    def _given_up(self, state: BundleState, search: LineSearch) -> BundleState:
        """End a search without success, at a point where the value fell, if any."""
        state = state._replace(search=NO_SEARCH)
        if search.low_gradient is None or search.direction is None:
            return state
        point = state.center + search.low.at * search.direction
        low = KnownEvaluation(point, search.low.value, search.low_gradient)
        found = self._centred(state, low, paired=True)
        if search.high.at < math.inf:
            return found
        # The value fell all along: the next search begins with a step as long as all of this one.
        return self._forgetting(found, norm(found.center - state.center))

    def _forgetting(self, state: BundleState, length: float) -> BundleState:
        """Begin anew, with a step of a certain length along the gradient."""
        steep = norm(state.gradient)
        return state._replace(step_size=length / steep if steep > 0.0 else 1.0, pairs=Pairs())

    # -- steps of the bundle -----------------------------------------------------------------------

    def _follow_model(self, state: BundleState, oracle: Recorder) -> tuple[BundleState, Evaluated]:
        """Evaluate where the model is lowest, near the centre."""
        trial, gap, t = self._worthwhile(state)
        if trial.is_rough:
            length = norm(trial.point - state.center)
            if length > UNIT * (norm(state.center) + state.radius):
                state = state._replace(step_size=t)
            return self._without_model(state, oracle)
        # If nothing seems to be left, the next cut may give a proof; with a set or a term a
        # quasi-Newton step is more likely to.
        news = self._plain and gap < state.estimated_gap
        state = state._replace(estimated_gap=gap)
        if not self._is_resolved(state, trial) and not news:
            return self._without_model(state._replace(step_size=t), oracle)
        added = state.cuts.added
        at, share = _finite_trial(oracle, state.center, trial.point)
        if share < 1.0:
            lower = at.value < state.value
            moved = self._centred(state, at, paired=False) if lower else state
            return moved._replace(step_size=share * t), at
        promise, fall = trial.promise, state.value - at.value
        # the minimum of the parabola through values and slope
        lowest = t * promise / (2.0 * (promise - fall)) if promise > fall else math.inf
        if fall >= SERIOUS * promise:
            counts = _noted(state.counts, misses=0)
            moved = self._centred(state, at, paired=True, counts=counts)
            all_fell = self._plain and moved.counts.recent & ((1 << IN_A_ROW) - 1) == 0
            longer = min(LARGEST_GROWTH * t, max(lowest, GROWN * t if all_fell else t))
            return moved._replace(step_size=longer), at
        moved = state._replace(step_size=t, counts=_noted(state.counts, misses=1))
        if state.cuts.added == added:
            # The model knew this cut: its promise is rounding.
            if not self._plain:
                return self._without_model(moved, oracle)
            if not self._is_far(state, trial.point):
                return moved._replace(step_size=t * LARGEST_GROWTH), at
        error = state.value - state.term - (at.value - at.penalty)
        error -= ddot(at.gradient, state.center - at.point)
        if error > promise and moved.counts.misses >= RECENT:
            shorter = max(LARGEST_CUT * t, min(lowest, t), min(t, state.flattest))
            counts = moved.counts._replace(misses=0)
            moved = moved._replace(step_size=shorter, counts=counts)
            if len(state.curvature) == CURVATURE_STEPS:
                # Steps of another length begin: what was seen from far away no longer counts.
                moved = moved._replace(flattest=_median(state.curvature))
        return moved, at

    def _without_model(self, state: BundleState, oracle: Recorder) -> tuple[BundleState, Evaluated]:
        """Do a step without the model: a quasi-Newton one with a set or a term, if it pays."""
        sequence = state.last_digits
        if self._plain:
            return self._insure(state, oracle)
        if sequence.pause > 0:
            waited = sequence._replace(pause=sequence.pause - 1)
            return self._insure(state._replace(last_digits=waited), oracle)
        point, gradient = sequence.point, sequence.gradient
        if point is None or gradient is None:
            point, gradient = state.center, state.gradient
            sequence = sequence._replace(point=point, gradient=gradient)
        lowest = self._lowest_of_quadratic(state, point, gradient)
        try:
            at = None if lowest is None else oracle(lowest)
        except NonFiniteError:
            at = None
        if at is None:
            return self._insure(state._replace(last_digits=sequence.given_up()), oracle)
        state.pairs.add(at.point - point, at.gradient - gradient)
        following = state._replace(last_digits=sequence.after(at))
        if at.value < state.value:
            following = self._centred(following, at, paired=False)
        return following, at

    def _worthwhile(self, state: BundleState) -> tuple[Lowest, float, float]:
        """Return a trial, the estimated gap and the step, longer if it promises too little."""
        center = KnownEvaluation(state.center, state.value, state.gradient, state.term)
        t = state.step_size
        for _ in range(MOST_LENGTHENED):
            trial = self._model(state.cuts).lowest(center, t)
            state.cuts.keep_weights(trial.weights)
            length = norm(trial.slope)
            gap = trial.error + self._reach(state, t * length) * length
            if trial.is_rough:
                t /= LARGEST_GROWTH
            elif self._is_resolved(state, trial) or self._is_far(state, trial.point):
                break
            elif gap <= ROUNDING_SHARE * abs(state.value):
                break  # nothing is left, and the products of slopes lack digits for longer steps
            else:
                t *= LARGEST_GROWTH
        return trial, gap, t

    def _is_resolved(self, state: BundleState, trial: Lowest) -> bool:
        return trial.promise > ROUNDING_SHARE * abs(state.value)

    def _model(self, cuts: CutMemory) -> CutModel:
        return CutModel(cuts, self.project, self.prox, self.term, self.rows)

    def _reach(self, state: BundleState, length: float) -> float:
        return REACH * max(norm(state.center - state.start), length)

    def _is_far(self, state: BundleState, point: Vector) -> bool:
        return norm(point - state.center) >= self._reach(state, 0.0)

    # -- AcceleGrad's steps ------------------------------------------------------------------------

    def _owes(self, state: BundleState) -> bool:
        """Return whether AcceleGrad gets the next step.

        With all the calls alone, its gap, if it falls as their inverse, should be no smaller than
        the present one. It counts as having had some from the start.
        """
        counts = state.counts
        gap = state.estimated_gap
        if gap == math.inf:
            return False
        behind = state.insured_value - state.value + gap
        waited = UNINSURED if self._plain else 0
        share = (waited + counts.insured) / counts.calls
        return bool(behind * INSURED * share < gap)

    def _insure(self, state: BundleState, oracle: Recorder) -> tuple[BundleState, Evaluated]:
        """Do a step of AcceleGrad; a lower value becomes the new centre."""
        if state.insured_value == math.inf:
            return state, oracle(state.center)
        try:
            step = self.accelegrad.step(state.insurance, oracle)
        except NonFiniteError:
            # It has left the domain, where it would end; the bundle continues without it.
            counts = state.counts._replace(insured=state.counts.insured + oracle.calls)
            return self._follow_model(state._replace(insured_value=math.inf, counts=counts), oracle)
        best = oracle.best
        assert best is not None
        counts = state.counts._replace(insured=state.counts.insured + oracle.calls)
        following = state._replace(
            insurance=step.state,
            insured_value=min(state.insured_value, best.value),
            counts=counts,
        )
        if best.value < state.value:
            following = self._centred(following, best, paired=False)
        return following, step.evaluation


def _median(numbers: list[float]) -> float:
    return sorted(numbers)[len(numbers) // 2]


def _noted(counts: Counts, *, misses: int) -> Counts:
    """Return the counts with another trial, which counts as this many misses."""
    recent = counts.recent << max(misses, 1) | ((1 << misses) - 1)
    recent &= (1 << RECENT) - 1
    in_a_row = counts.misses + misses if misses else 0
    return counts._replace(misses=in_a_row, recent=recent)


def _finite_trial(oracle: Recorder, start: Vector, end: Vector) -> tuple[Evaluated, float]:
    """Evaluate at the end, or nearer if the function is not finite; return the share too."""
    share = 1.0
    while True:
        try:
            return oracle(end if share == 1.0 else start + share * (end - start)), share
        except NonFiniteError:
            if share == 0.0:
                raise
            share /= LARGEST_GROWTH
