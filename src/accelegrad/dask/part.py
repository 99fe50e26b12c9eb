"""What workers hold and compute: some of the rows, as a linear model, and what is known at points.

A part is a `LinearModel` without an l2 term, whose rows have the shares that they have among all
rows: the sum over all parts is the whole. The functions below are tasks: they take a part and what
it knows at points, and return sums that can be added, as long as w or a number, or what is asked
for of a few rows.

Margins stay here: a part keeps those of the last points. What is gone, because a worker was lost or
memory was needed, is computed again from the point itself, so that a task gives the same wherever
it runs.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.gram import Matrix
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.models.losses import Loss
from accelegrad.models.multinomial import ClassesPoint, MultinomialModel
from accelegrad.models.rounding import largest_entries
from accelegrad.models.row_blocks import RowNumbers
from accelegrad.models.row_curvature import curved_rows
from accelegrad.models.sampled_rows import TakenRows, once
from accelegrad.norms import norm
from accelegrad.proofs.fenchel import DataSums, SlopeSums
from accelegrad.proofs.multinomial_dual import Balance, DistributionSums, ShiftedRows
from accelegrad.solvers.classes import ClassesLine

#: Where arrays begin that NumPy makes: at multiples of this many bytes.
ALIGNMENT = 16
#: How many points' margins and slopes a part keeps: two of a step, the best one, and these of a
#: smoothed loss.
KEPT_POINTS = 6
#: From how many rows of a part quantiles of the targets are estimated.
SOME_ROWS = 1000


class Where(NamedTuple):
    """A point, as tasks are told of it: the name under which parts keep what they know there.

    It comes before the point itself, and both become what a part knows there. `between` are the
    names of two points and t, where margins are those at p + t (q - p).
    """

    name: str
    by: Loss | int  # the loss, or the number of classes
    between: tuple[str, str, float] | None = None


class Part:
    """Some of the rows."""

    def __init__(self, rows: LinearModel, first: int) -> None:
        self.rows, self.first = rows, first
        self._models: dict[Loss | int, Any] = {rows.loss: rows}
        self._points: OrderedDict[tuple[str, Loss | int], Any] = OrderedDict()
        self._columns: tuple[Any, LinearModel] | None = None
        self._lock = threading.Lock()  # a worker may have several threads

    def __reduce__(self) -> Any:
        """Return what makes it again elsewhere; what is known at points stays behind."""
        rows = self.rows
        return _made, (rows.X, rows.y, rows.shares, rows.loss, rows.fit_intercept, self.first)

    def __sizeof__(self) -> int:
        return sum(int(array.nbytes) for array in _arrays(self.rows))

    def model(self, by: Loss | int) -> Any:
        """Return these rows by a loss, or as a multinomial model: targets are classes' numbers."""
        with self._lock:
            if by not in self._models:
                if len(self._models) > 2:  # of smoothed losses, the present one is enough
                    self._models = {self.rows.loss: self.rows}
                self._models[by] = (
                    MultinomialModel.of(self.rows, self.rows.y.astype(np.intp), by)
                    if isinstance(by, int)
                    else self.rows.with_loss(by)
                )
            return self._models[by]

    def at(self, where: Where, w: Vector) -> Any:
        """Return what is known at a point, w: a pass over the rows at most."""
        model, place = self.model(where.by), (where.name, where.by)
        with self._lock:
            known, margins = self._points.get(place), self._margins(where)
        if known is None:
            with np.errstate(over="ignore", invalid="ignore"):
                known = (
                    model.at(w)
                    if margins is None or isinstance(where.by, int)
                    else ModelPoint.of_margins(model, w, margins)
                )
        with self._lock:
            self._points[place] = known
            self._points.move_to_end(place)
            while len(self._points) > KEPT_POINTS:
                self._points.popitem(last=False)
        return known

    def _margins(self, where: Where) -> Vector | None:
        """Return the margins at a point where they are known, by whatever loss."""
        for (name, _), known in self._points.items():
            if name == where.name:
                margins: Vector = known.margins
                return margins
        if where.between is None:
            return None
        p, q, t = where.between
        start, end = (self._margins(Where(name, where.by)) for name in (p, q))
        return None if start is None or end is None else start + t * (end - start)

    def of_columns(self, columns: Any) -> LinearModel:
        """Return some columns of these rows, kept until others are asked for; None: all."""
        if columns is None:
            return self.rows
        with self._lock:
            if self._columns is None or not np.array_equal(self._columns[0], columns):
                self._columns = columns, self.rows.of_columns(columns, 0.0)
            return self._columns[1]


def _made(X: Any, y: Vector, shares: Vector, loss: Loss, fit_intercept: bool, first: int) -> Part:
    """Return a part of rows that are known to be sound."""
    return Part(sound_rows(X, y, shares, loss, fit_intercept), first)


def _arrays(rows: LinearModel) -> list[Any]:
    X = rows.X
    stored = (X,) if isinstance(X, np.ndarray) else (X.data, X.indices, X.indptr)
    return [*stored, rows.y, rows.shares]


def aligned(given: Any) -> Any:
    """Return arrays, or tuples of them, that begin where arrays do that NumPy makes.

    Arrays that came over the network begin anywhere, and sums over them are rounded by where they
    begin: the same run would not give the same bits twice. They are copied; all else is returned.
    """
    if isinstance(given, np.ndarray):
        return given if given.ctypes.data % ALIGNMENT == 0 else given.copy()
    if isinstance(given, tuple):
        parts = [aligned(part) for part in given]
        return type(given)(*parts) if hasattr(given, "_fields") else tuple(parts)
    return given


def on_part(task: Callable[..., Any], part: Any, *arguments: Any) -> Any:
    """Return what a task gives for a part: all of them run through here."""
    rest = map(aligned, arguments)
    given = [part.at(some, next(rest)) if isinstance(some, Where) else some for some in rest]
    return task(part, *given)


def sound_rows(X: Any, y: Vector, shares: Vector, loss: Loss, fit_intercept: bool) -> LinearModel:
    """Return rows that are known to be sound as a model without an l2 term."""
    y, shares = aligned(y), aligned(shares)
    if isinstance(X, np.ndarray):
        X = aligned(X)
    else:
        X = type(X)((aligned(X.data), X.indices, X.indptr), shape=X.shape, copy=False)
    any_rows = LinearModel(np.zeros((1, X.shape[1])), np.ones(1), fit_intercept=fit_intercept)
    any_rows.loss = loss
    return any_rows._of_data(X, y, shares, shares, 0.0)


def add(one: Any, other: Any) -> Any:
    """Return the sum of what two parts gave: numbers, arrays, sums, or tuples of them."""
    if isinstance(one, tuple):
        parts = [add(*pair) for pair in zip(one, other, strict=True)]
        return type(one)(*parts) if hasattr(one, "_fields") else tuple(parts)
    return one + other


def total(*parts: Any) -> Any:
    """Return the sum of what several parts gave, in their order."""
    return reduce(add, parts)


# -- tasks: sums ---------------------------------------------------------------------------------


class PointSums(NamedTuple):
    """What the rows of a part add to what is known at a point."""

    loss: float
    squared_slopes: float
    curved: int
    mean: float  # of the slopes, by their shares
    mean_size: float  # of their absolute values
    plain_loss: float  # of a smoothed loss, the mean of the one that it stands for
    gradient: Vector  # of the loss; empty where it was not asked for


def sums_at(part: Part, at: ModelPoint, gradient: bool) -> PointSums:  # noqa: ARG001
    """Return the sums at a point."""
    model, theta, loss = at.model, at.derivatives, at.model.loss
    with np.errstate(over="ignore", invalid="ignore"):
        weighted = model.shares * theta
        return PointSums(
            at.mean_loss,
            float(weighted @ theta),
            int(np.count_nonzero(curved_rows(loss, theta, model.y))),
            float(weighted.sum()),
            float(np.abs(weighted).sum()),
            float(model.shares @ loss.plain.value(at.margins, model.y)) if loss.smoothing else 0.0,
            # A copy: clients whose workers are threads of theirs get results themselves, and add
            # the l2 term in place.
            at.gradient.copy() if gradient else np.zeros(0),
        )


def slope_between(part: Part, p: ModelPoint, q: ModelPoint, t: float) -> float:  # noqa: ARG001
    """Return the derivative of the mean loss at p + t (q - p) by t."""
    return p.model.slope_between(p, q, t)


def batch_sums(part: Part, w: Vector, loss: Loss, rows: RowNumbers) -> tuple[float, Vector]:
    """Return sum_i p_i l(m_i) over some rows of the part, by their numbers in it, and its slope."""
    if rows.size == 0:
        return 0.0, np.zeros(w.size)
    value, gradient = part.model(loss).batch_value_and_gradient(w, rows)
    scale = rows.size / part.rows.n_samples
    return scale * value, scale * gradient


def squares(part: Part) -> Vector:
    """Return sum_i p_i x_ij^2 for each column."""
    with np.errstate(over="ignore"):
        return part.rows.column_squares()


def data_sums(part: Part) -> DataSums:
    """Return what bounds the size of a minimiser."""
    share = float(part.rows.shares.sum())
    one = DataSums.of(part.rows)
    sizes = (one.size, one.target_size, one.weight_above, one.weight_below)
    return DataSums(share, one.rows, *sizes)


def losses_of_constants(part: Part, loss: Loss, predictions: list[float]) -> Vector:
    """Return the mean losses where all margins are the same number, for several of these."""
    model, zeros = part.rows, np.zeros(part.rows.n_samples)
    with np.errstate(over="ignore"):
        return np.array([model.shares @ loss.value(zeros + b, model.y) for b in predictions])


def target_sums(part: Part) -> tuple[float, Vector, Vector]:
    """Return sum_i p_i y_i, and targets and shares of some rows, evenly spread."""
    model = part.rows
    some = np.unique(np.linspace(0, model.n_samples - 1, SOME_ROWS).astype(np.intp))
    return float(model.shares @ model.y), model.y[some], model.shares[some]


# -- tasks: the dual -----------------------------------------------------------------------------


class Mixture(NamedTuple):
    """Slopes at a point with all margins shifted by each of `shifts`, and mixed by `shares`.

    Or, with `caution`, those at another point as the second derivatives at the point foretell them.
    Those above 0 are then multiplied by `up`, those below by `down`.
    """

    caution: float | None = None
    shifts: tuple[float, ...] = (0.0,)
    shares: tuple[float, ...] = (1.0,)
    up: float = 1.0
    down: float = 1.0

    def of(self, at: ModelPoint, other: ModelPoint) -> Vector:
        """Return the slopes of a part's rows."""
        theta = at.derivatives if self.caution is None else at.slopes_at(other, self.caution)
        if self.shifts != (0.0,):
            parts = [at.model.slopes(at.margins + shift) for shift in self.shifts]
            theta = np.array(self.shares) @ np.array(parts)
        if self.up == self.down == 1.0:
            return theta
        return np.where(theta > 0.0, theta * self.up, theta * self.down)


def shifted_means(part: Part, at: ModelPoint, shifts: Vector) -> Vector:  # noqa: ARG001
    """Return the mean slopes with all margins shifted, for several shifts."""
    means = [at.model.shares @ at.model.slopes(at.margins + shift) for shift in shifts]
    return np.array(means)


def largest_margin(part: Part, at: ModelPoint) -> float:  # noqa: ARG001
    """Return the largest size of a margin or a target."""
    return float(np.abs(at.margins).max() + np.abs(at.model.y).max())


@dataclass(frozen=True, slots=True)
class LevelSums:
    """What slopes of a part's rows add to a bound, apart from their combination of the rows."""

    slopes: SlopeSums  # of no columns
    before: float  # the norm of the slopes, by the rows' shares
    after: float  # that of those with changes

    def __add__(self, other: LevelSums) -> LevelSums:
        """Return the sums over the rows of both."""
        before = math.hypot(self.before, other.before)
        return LevelSums(self.slopes + other.slopes, before, math.hypot(self.after, other.after))


def slope_sums(
    part: Part,
    at: ModelPoint,
    other: ModelPoint,
    slopes: Mixture,
    loss: Loss,
    combined: bool,
    changed: tuple[RowNumbers, Vector] | None,
) -> tuple[LevelSums, Vector]:
    """Return the sums of slopes, with those of some rows changed, and their combination of rows.

    The combination is empty where it was not asked for: then there is no pass over the rows.
    """
    theta, model, none = slopes.of(at, other), part.model(loss), np.zeros(0)
    roots = np.sqrt(model.shares)
    before = after = norm(roots * theta)
    if changed is not None and changed[0].size:
        theta = theta.copy()
        theta[changed[0]] = changed[1]
        after = norm(roots * theta)
    sums = SlopeSums.of(model, theta, combination=np.zeros(model.n_features))
    height = SlopeSums(sums.level, sums.level_error, sums.mean, sums.mean_error, none, none)
    combination = model.combination(theta)[: model.n_features] if combined else none
    return LevelSums(height, before, after), combination


def side_means(part: Part, at: ModelPoint, other: ModelPoint, slopes: Mixture) -> Vector:
    """Return what the slopes above 0 and those below add to the mean of their sizes."""
    theta, shares = slopes.of(at, other), part.rows.shares
    return np.array([shares @ np.maximum(theta, 0.0), shares @ np.maximum(-theta, 0.0)])


# -- tasks: several classes ----------------------------------------------------------------------


def classes_sums(part: Part, at: ClassesPoint) -> tuple[float, Vector]:  # noqa: ARG001
    """Return the mean loss and its gradient."""
    return at.value, at.gradient.copy()


def classes_means(part: Part, at: ClassesPoint) -> tuple[Vector, Matrix]:
    """Return the rows' curvature for each class, and the sum of the rows by it."""
    weights = at.distributions * (1.0 - at.distributions) * part.rows.shares[:, None]
    return weights.sum(axis=0), part.rows.products.backward(weights)


def classes_slope(part: Part, p: ClassesPoint, q: ClassesPoint, t: float) -> tuple[float, float]:
    """Return the first and the second derivative of the mean loss at p + t (q - p) by t."""
    change, shares = q.margins - p.margins, part.rows.shares
    own = change[np.arange(len(change)), part.rows.y.astype(np.intp)]
    return ClassesLine(p.margins, change, shares, -float(shares @ own), 0.0).derivatives(t)


def classes_shifted(part: Part, at: ClassesPoint, shift: Vector) -> tuple[Vector, Matrix]:
    """Return the mean distribution with margins shifted, and the mean of its products."""
    shifted = ShiftedRows(part.rows.shares, at.margins, shift)
    return shifted.mean, shifted.products


def classes_distributions(part: Part, at: ClassesPoint, balance: Balance) -> DistributionSums:
    """Return the sums of balanced distributions, which give a bound."""
    return DistributionSums.of(part.model(at.margins.shape[1]), balance.of(at.margins))


def classes_shares(part: Part, n_classes: int) -> Vector:
    """Return the share of each class's rows."""
    places = part.rows.y.astype(np.intp)
    return np.bincount(places, part.rows.shares, n_classes).astype(np.float64)


# -- tasks: curvature, and what is asked for of rows ---------------------------------------------


def curvature_sums(part: Part, at: ModelPoint, caution: float) -> tuple[float, int]:  # noqa: ARG001
    """Return the sum of the rows' curvature p_i l'' at a point, and how many have any."""
    weights = at.curvatures(caution)
    return float(np.sum(weights)), int(np.count_nonzero(weights))


def _drawn(
    at: ModelPoint, caution: float, places: Vector | None
) -> tuple[RowNumbers | None, Vector]:
    """Return rows and their weights: at places in the running sum of weights, or all with weight.

    The places are those from where this part begins; the weight of a drawn row is left to be 1.
    """
    weights = at.curvatures(caution)
    if places is None:
        weighty = np.flatnonzero(weights)
        if weighty.size == weights.size:
            return None, weights
        return weighty, weights[weighty]
    chosen = np.searchsorted(np.cumsum(weights), places, side="right")
    # Rounding may put a place behind the last row that has weight.
    last = int(np.flatnonzero(weights)[-1]) if places.size else 0
    return np.minimum(chosen, last), np.ones(places.size)


def gram_drawn(
    part: Part, at: ModelPoint, caution: float, columns: Any, places: Vector | None
) -> Matrix:
    """Return what the rows drawn from the part add to a Gram matrix of some columns; None: all."""
    return part.of_columns(columns)._gram(*_drawn(at, caution, places))


def gram_sum(part: Part, columns: Any) -> Matrix:
    """Return sum_i p_i a_i a_i' of some columns; None: of all."""
    model = part.of_columns(columns)
    return model._gram(None, model.shares)


def gram_of_rows(part: Part, at: ModelPoint, rows: RowNumbers) -> Matrix:
    """Return sum_k p_k l''_k a_k a_k' over some rows."""
    return part.rows._gram(rows, at.curvatures()[rows])


def entries_of_columns(part: Part, columns: Any) -> int:
    """Return how many entries some columns have."""
    return part.of_columns(columns).storage.entries


class DrawnRows(NamedTuple):
    """Rows that were drawn, by their numbers among all, with their weights, each row once."""

    numbers: RowNumbers
    weights: Vector
    rows: TakenRows


def drawn_rows(
    part: Part, by: ModelPoint, caution: float, at: ModelPoint, places: Vector | None
) -> DrawnRows:
    """Return the rows that were drawn by their curvature, and what a point knows of them."""
    numbers, weights = drawn_numbers(part, by, caution, places)
    if numbers.size:
        numbers, weights = once(numbers, weights)
    return DrawnRows(numbers, weights, part.rows.taken(numbers - part.first, at))


def drawn_numbers(
    part: Part, at: ModelPoint, caution: float, places: Vector | None
) -> tuple[Any, Vector]:
    """Return the numbers, among all rows, of those drawn, and their weights."""
    numbers, weights = _drawn(at, caution, places)
    if numbers is None:
        numbers = np.arange(part.rows.n_samples)
    return numbers + part.first, weights


def taken(part: Part, rows: RowNumbers) -> TakenRows:
    """Return some rows, by their numbers in the part."""
    return part.rows.taken(rows)


def taken_at(part: Part, at: ModelPoint, rows: RowNumbers) -> TakenRows:
    """Return some rows, by their numbers in the part, and what a point knows of them."""
    return part.rows.taken(rows, at)


def targets_of(part: Part) -> tuple[Vector, Vector]:
    """Return targets and shares of all rows."""
    return part.rows.y, part.rows.shares


def on_rows(part: Part, function: Callable[[Any, Vector], Any]) -> Any:
    """Return what a function says of the rows and their shares."""
    return function(part.rows.X, part.rows.shares)


def fingerprint(part: Part) -> str:
    """Return a text that differs for different contents."""
    digest = hashlib.blake2b(f"{part.rows.X.shape}".encode())
    for array in _arrays(part.rows):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def largest_entries_of(part: Part, columns: Any) -> Vector:
    """Return the largest absolute value of some columns."""
    return largest_entries(part.rows.X, columns)
