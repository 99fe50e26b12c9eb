"""The bundle method of `accelegrad.bundle.bundle`, transcribed: slow, with plain lists and loops.

The model's lowest point comes from Clarabel, L-BFGS's direction from a full matrix. Constants are
the package's, and so are AcceleGrad's steps, which have a transcription of their own. Functions are
finite everywhere here.
"""

from math import inf, sqrt

import clarabel
import numpy as np
import scipy.sparse as sp

from accelegrad.bundle import bundle, cut_memory, quasi_newton
from accelegrad.geometry.nearest_point import ADDED
from accelegrad.rules.base import KnownEvaluation
from accelegrad.rules.distance_free import DistanceFreeAcceleGrad

#: What Clarabel calls zero, relative to weights that add up to 1
NO_WEIGHT = 1e-6
EPS = np.finfo(float).eps


class Run:
    """A run; `points` are those that were evaluated, in order, `kinds` says by which steps."""

    def __init__(self, fun, x0, steps, box=None, size=None):
        self.fun, self.x0, self.box = fun, x0, box
        self.points, self.kinds = [], []
        self.cuts = []  # of (slope, value at x0, when it was added)
        self.weights = []  # in the last combination
        self.added = 0
        self.size = size or cut_memory.default_size(x0.size)
        self.pairs, self.curvature, self.flattest = [], [], 0.0
        self.misses, self.recent = 0, []
        self.gap = inf
        self.calls_insured = 0
        project = None if box is None else (lambda x: np.clip(x, *box))
        self.accelegrad = DistanceFreeAcceleGrad(probe=True, project=project)
        self.insurance = self.accelegrad.init(x0)
        self._begin()
        while len(self.points) < steps:
            if self._owes():
                self._insure()
            elif self._smooth():
                self._search()
            else:
                self._follow_model()

    def evaluate(self, x, kind):
        value, gradient = self.fun(x)
        self.points.append(x)
        self.kinds.append(kind)
        size = abs(value) + np.linalg.norm(gradient) * np.linalg.norm(x - self.x0)
        level = value - gradient @ (x - self.x0) - EPS * size
        if self.cuts and self._same(gradient, level, size):
            return value, gradient
        if len(self.cuts) == self.size:
            self._forget()
        self._add(gradient, level)
        return value, gradient

    def _same(self, slope, level, size):
        """Whether a cut is the newest one again, up to rounding of its level."""
        newest = self.cuts[-1]
        return (newest[0] == slope).all() and abs(newest[1] - level) <= 8 * EPS * size

    def _add(self, slope, level):
        self.added += 1
        self.cuts.append((slope, level, self.added))
        self.weights.append(0.0)

    def _forget(self):
        """Keep the cuts with the largest weights, then the newest, and the sum of all."""
        weights = np.array(self.weights)
        count = int(cut_memory.KEPT_SHARE * self.size) - 1
        ranked = sorted(range(self.size), key=lambda i: (weights[i], self.cuts[i][2]))
        before, kept = self.cuts, sorted(ranked[-count:])
        self.cuts, self.weights = [before[i] for i in kept], [weights[i] for i in kept]
        if weights.any():
            shares = weights / weights.sum()
            self._add(
                *(sum(w * cut[k] for w, cut in zip(shares, before, strict=True)) for k in (0, 1))
            )

    def _begin(self):
        self.center = self.x0
        self.value, self.gradient = self.evaluate(self.x0, "start")
        self.t = max(1.0, np.linalg.norm(self.x0)) / np.linalg.norm(self.gradient)
        self.insured_value = self.value

    def _centre(self, x, value, gradient, *, paired):
        s, y = x - self.center, gradient - self.gradient
        if paired:
            least = quasi_newton.LEAST_CURVATURE * np.linalg.norm(s) * np.linalg.norm(y)
            if s @ y > least > 0:
                self.pairs = [*self.pairs, (s, y)][-quasi_newton.MOST_PAIRS :]
            if s @ y > 0:
                self.curvature.append((s @ y) / (y @ y))
            newest = self.curvature[-bundle.CURVATURE_STEPS :]
            if len(newest) == bundle.CURVATURE_STEPS:
                self.flattest = max(self.flattest, float(np.median(newest)))
        self.center, self.value, self.gradient = x, value, gradient

    def _note(self, missed, counts=1):
        self.misses = self.misses + counts if missed else 0
        self.recent = [*self.recent, *(counts * [missed])][-bundle.RECENT :]

    def _smooth(self):
        newest = self.curvature[-bundle.CURVATURE_STEPS :]
        grown = (
            len(newest) == bundle.CURVATURE_STEPS
            and bundle.CURVATURE_GROWTH * np.median(newest) < self.flattest
        )
        return sum(self.recent) <= bundle.MAY_MISS and not grown

    # -- L-BFGS ------------------------------------------------------------------------------------

    def _direction(self):
        """Towards the quadratic model's minimum, by BFGS's full matrices."""
        eye = np.eye(self.x0.size)
        H = eye
        if self.pairs:
            s, y = self.pairs[-1]
            H = (s @ y) / (y @ y) * eye
        for s, y in self.pairs:
            V = eye - np.outer(y, s) / (s @ y)
            H = V.T @ H @ V + np.outer(s, s) / (s @ y)
        if self.box is None:
            return -H @ self.gradient
        if not self.pairs:
            return np.clip(self.center - self.t * self.gradient, *self.box) - self.center
        return lowest_in_box(np.linalg.inv(H), self.gradient, self.center, self.box)

    def _search(self):
        """Search along a line for a lower value and a flatter slope."""
        p, start = self._direction(), (0.0, self.value, None)
        a = 1.0 if self.pairs or self.box else self.t
        s0 = self.gradient @ p
        low, high = start, None
        for _ in range(quasi_newton.MOST_TRIALS):
            value, gradient = self.evaluate(self.center + a * p, "search")
            fell = self._fell(value, gradient @ p, a, s0)
            if fell and (self.box or gradient @ p >= quasi_newton.STEEP * s0):
                pairs = self.pairs
                self._centre(self.center + a * p, value, gradient, paired=True)
                self._note(missed=False)
                if self.box and self.pairs is pairs:
                    # The gradient did not change: the model would repeat this step.
                    gone = max(np.linalg.norm(a * p), self.t * np.linalg.norm(self.gradient))
                    self._forget_pairs(bundle.LARGEST_GROWTH * gone)
                return
            before = low
            if fell:
                low = (a, value, gradient)
            else:
                high = (a, value, gradient)
                uneven = self.pairs and self._uneven(value, gradient @ p, a, s0)
                self._note(missed=True, counts=bundle.MAY_MISS + 1 if uneven else 1)
            if not self._smooth():
                break
            a = self._beyond(before, low, p) if high is None else self._between(low, high, p)
        if low is not start:
            self._centre(self.center + low[0] * p, *low[1:], paired=True)
            if high is None:  # the value fell all along: the next search begins with as long a step
                self._forget_pairs(low[0] * np.linalg.norm(p))

    def _forget_pairs(self, length):
        """The next search begins with a step of this length along the gradient."""
        self.t, self.pairs = length / np.linalg.norm(self.gradient), []

    def _fell(self, value, slope, a, s0):
        """Armijo's condition, or Hager and Zhang's where values are the same but for rounding."""
        return value <= self.value + quasi_newton.FALL * a * s0 or (
            value <= self.value and slope <= (2 * quasi_newton.FALL - 1) * s0
        )

    def _uneven(self, value, slope, a, s0):
        """Whether the first cut's error at the trial is much more than that of the trial's here."""
        first, second = value - self.value - a * s0, self.value - value + a * slope
        return first - second > quasi_newton.UNEVEN * (first + second)

    def _slope(self, end, p):
        return (self.gradient if end[2] is None else end[2]) @ p

    def _beyond(self, before, low, p):
        """Where the slope would be zero if it went on as from `before` to `low`."""
        a, s = low[0], self._slope(low, p)
        flatter = s - self._slope(before, p)
        guess = a - s * (a - before[0]) / flatter if flatter > 0 else inf
        shortest, longest = quasi_newton.PROLONGED
        return min(max(guess, shortest * a), longest * a)

    def _between(self, low, high, p):
        """The lowest point of the cubic (Nocedal, Wright: Numerical Optimization, 3.59)."""
        (a, fa, _), (b, fb, _) = low, high
        sa, sb = self._slope(low, p), self._slope(high, p)
        d1 = sa + sb - 3 * (fa - fb) / (a - b)
        d2 = sqrt(max(d1 * d1 - sa * sb, 0.0))
        trial = b - (b - a) * (sb + d2 - d1) / (sb - sa + 2 * d2)
        margin = quasi_newton.INNER_SHARE * (b - a)
        return min(max(trial, a + margin), b - margin)

    # -- the model ---------------------------------------------------------------------------------

    def _lowest(self, t):
        """Return the model's lowest point near the centre, its promise and the estimated gap."""
        slopes = np.array([cut[0] for cut in self.cuts])
        levels = np.array([cut[1] for cut in self.cuts])
        errors = self.value - levels - slopes @ (self.center - self.x0)
        shorter, unit = t, t * np.sum(slopes[errors.argmin()] ** 2)
        for _ in range(15):  # shorter = t (1 - promise / (ADDED unit))
            point, weights = nearest_lowest(slopes, errors, self.center, shorter, self.box)
            promise = float((errors + slopes @ (self.center - point)).min())
            used, shorter = shorter, t * (1 - promise / (ADDED * unit))
        self.weights = list(np.where(weights > NO_WEIGHT, weights, 0.0))
        step = self.center - point
        slope = step / used
        length = np.linalg.norm(slope)
        far = max(self._reach(), bundle.REACH * t * length)
        return point, promise, promise - slope @ step + far * length

    def _distance(self, point):
        return np.linalg.norm(point - self.center)

    def _reach(self):
        """Roughly how far a minimiser is."""
        return bundle.REACH * np.linalg.norm(self.center - self.x0)

    def _follow_model(self):
        t, least = self.t, bundle.ROUNDING_SHARE * abs(self.value)
        for _ in range(bundle.MOST_LENGTHENED):
            point, promise, gap = self._lowest(t)
            if promise > least or self._distance(point) >= self._reach():
                break
            t *= bundle.LARGEST_GROWTH
        before, self.gap = self.gap, gap
        news = self.box is None and gap < before
        if not (promise > least or news):
            self.t = t
            self._insure()
            return
        added = self.added
        value, gradient = self.evaluate(point, "model")
        fall = self.value - value
        lowest = t * promise / (2 * (promise - fall)) if promise > fall else inf
        if fall >= bundle.SERIOUS * promise:
            self.t = min(bundle.LARGEST_GROWTH * t, max(t, lowest))
            self._centre(point, value, gradient, paired=True)
            self._note(missed=False)
            if self.box is None and not any(self.recent[-bundle.IN_A_ROW :]):
                self.t = max(self.t, bundle.GROWN * t)
            return
        self._note(missed=True)
        if self.added == added and self._distance(point) < self._reach():
            self.t = t * bundle.LARGEST_GROWTH
            return
        error = self.value - value - gradient @ (self.center - point)
        if error > promise and self.misses >= bundle.RECENT:
            self.misses = 0
            self.t = max(bundle.LARGEST_CUT * t, min(lowest, t), min(t, self.flattest))
            newest = self.curvature[-bundle.CURVATURE_STEPS :]
            if len(newest) == bundle.CURVATURE_STEPS:
                self.flattest = float(np.median(newest))

    # -- AcceleGrad --------------------------------------------------------------------------------

    def _owes(self):
        calls = len(self.points)
        if self.gap == inf:
            return False
        if self._smooth():
            return False
        behind = self.insured_value - self.value + self.gap
        its = self.calls_insured + (bundle.UNINSURED if self.box is None else 0)
        return behind * bundle.INSURED * its / calls < self.gap

    def _insure(self):
        found = []

        def oracle(x):
            found.append(KnownEvaluation(x, *self.evaluate(x, "insurance")))
            return found[-1]

        self.insurance = self.accelegrad.step(self.insurance, oracle).state
        self.calls_insured += len(found)
        best = min(found, key=lambda at: at.value)
        self.insured_value = min(self.insured_value, best.value)
        if best.value < self.value:
            self._centre(*best[:3], paired=False)


def nearest_lowest(slopes, errors, center, t, box=None):
    """Minimise max_i(g_i w - e_i) + ||w||^2 / (2 t) by Clarabel; return center + w and the weights.

    In units in which the steepest slope and t are 1.
    """
    n, d = slopes.shape
    steep = np.linalg.norm(slopes, axis=1).max()
    unit = t * steep
    P = sp.block_diag([sp.eye(d), sp.csc_matrix((1, 1))], format="csc")
    rows, right = [np.c_[slopes / steep, -np.ones(n)]], [errors / (unit * steep)]
    if box is not None:
        sides = np.c_[np.eye(d), np.zeros(d)]
        rows += [sides, -sides]
        right += [(box[1] - center) / unit, (center - box[0]) / unit]
    solution = solved(P, np.append(np.zeros(d), 1.0), np.vstack(rows), np.concatenate(right))
    return center + unit * np.array(solution.x)[:d], np.array(solution.z)[:n]


def lowest_in_box(B, gradient, center, box):
    """Return the offset z in the box where <g, z> + <z, B z> / 2 is lowest, by Clarabel."""
    sides = np.eye(center.size)
    right = np.concatenate([box[1] - center, center - box[0]])
    unit = np.abs(B).max()
    return np.array(solved(B / unit, gradient / unit, np.vstack([sides, -sides]), right).x)


def solved(P, q, A, b):
    """Minimise <q, x> + <x, P x> / 2 with A x <= b."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    cones = [clarabel.NonnegativeConeT(len(b))]
    P, A = sp.csc_matrix(np.triu(P) if isinstance(P, np.ndarray) else P), sp.csc_matrix(A)
    return clarabel.DefaultSolver(P, q, A, b, cones, settings).solve()
