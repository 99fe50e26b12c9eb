"""What workers hold and compute: some of the rows, as a linear model, and what is known at points.

A part is a `LinearModel` without an l2 term, whose rows have the shares that they have among all
rows: the sum over all parts is the whole. Its functions below are tasks; each returns sums that can
be added, as long as w or a number, or what is asked for of a few rows.

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
from accelegrad.models.multinomial import ClassesPoint, MultinomialModel, softmax
from accelegrad.models.rounding import largest_entries
from accelegrad.models.row_blocks import RowNumbers
from accelegrad.models.row_curvature import curved_rows
from accelegrad.models.sampled_rows import TakenRows, once
from accelegrad.models.squares import column_squares
from accelegrad.norms import norm
from accelegrad.proofs.fenchel import DataSums, SlopeSums
from accelegrad.proofs.multinomial_dual import Balance, DistributionSums
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

    `between` are the names of two points and t, where margins are those at p + t (q - p).
    """

    name: str
    between: tuple[str, str, float] | None = None


class Part:
    """Some of the rows.

    Parameters
    ----------
    rows : LinearModel
        The rows, without an l2 term; their shares are those among the rows of all parts.
    first : int
        The number of the first row among all.
    """

    def __init__(self, rows: LinearModel, first: int) -> None:
        self.rows, self.first = rows, first
        self._models = {rows.loss: rows}
        self._points: OrderedDict[tuple[str, Loss], ModelPoint] = OrderedDict()
        self._classes: PartClasses | None = None
        self._columns: tuple[Any, LinearModel] | None = None
        self._lock = threading.Lock()  # a worker may have several threads

    def __reduce__(self) -> Any:
        """Return what makes it again elsewhere; what is known at points stays behind."""
        rows = self.rows
        return _made, (rows.X, rows.y, rows.shares, rows.loss, rows.fit_intercept, self.first)

    def __sizeof__(self) -> int:
        X = self.rows.X
        arrays = (X,) if isinstance(X, np.ndarray) else (X.data, X.indices, X.indptr)
        return sum(int(array.nbytes) for array in (*arrays, self.rows.y, self.rows.shares))

    def model(self, loss: Loss) -> LinearModel:
        """Return these rows by a loss."""
        with self._lock:
            if loss not in self._models:
                if len(self._models) > 2:  # of smoothed losses, the present one is enough
                    self._models = {self.rows.loss: self.rows}
                self._models[loss] = self.rows.with_loss(loss)
            return self._models[loss]

    def at(self, where: Where, w: Vector, loss: Loss) -> ModelPoint:
        """Return what is known at a point, w, by a loss: a pass over the rows at most."""
        model = self.model(loss)
        with self._lock:
            known = self._points.get((where.name, loss))
            if known is None:
                margins = self._margins(where)
                if margins is not None:
                    known = ModelPoint.of_margins(model, w, margins)
        if known is None:
            with np.errstate(over="ignore", invalid="ignore"):
                known = ModelPoint(model, w)
        with self._lock:
            self._points[where.name, loss] = known
            self._points.move_to_end((where.name, loss))
            while len(self._points) > KEPT_POINTS:
                self._points.popitem(last=False)
        return known

    def _margins(self, where: Where) -> Vector | None:
        """Return the margins at a point where they are known, by whatever loss."""
        for (name, _), known in self._points.items():
            if name == where.name:
                return known.margins
        if where.between is None:
            return None
        p, q, t = where.between
        start, end = self._margins(Where(p)), self._margins(Where(q))
        return None if start is None or end is None else start + t * (end - start)

    def of_columns(self, columns: Any) -> LinearModel:
        """Return some columns of these rows, kept until others are asked for; None: all."""
        if columns is None:
            return self.rows
        with self._lock:
            if self._columns is None or not np.array_equal(self._columns[0], columns):
                self._columns = columns, self.rows.of_columns(columns, 0.0)
            return self._columns[1]

    def classes(self, n_classes: int) -> PartClasses:
        """Return these rows as a multinomial model, whose classes are their targets."""
        with self._lock:
            if self._classes is None or self._classes.n_classes != n_classes:
                self._classes = PartClasses(self.rows, n_classes)
            return self._classes


class PartClasses(MultinomialModel):
    """Rows of a part as a multinomial model without an l2 term, and what is known at points."""

    def __init__(self, rows: LinearModel, n_classes: int) -> None:
        self.rows, self.n_classes, self.l2 = rows, n_classes, 0.0
        self.classes = rows.y.astype(np.intp)
        self.n_samples, self.n_features = rows.n_samples, rows.n_features
        self.n_weights = n_classes * self.n_features
        self.n_parameters = self.n_weights + n_classes * rows.fit_intercept
        self._points: OrderedDict[str, ClassesPoint] = OrderedDict()
        self._changes: OrderedDict[str, Matrix] = OrderedDict()

    def shares_of(self, rows: Any) -> Vector:
        """Return what each of these rows counts among all."""
        shares = self.rows.shares
        return shares if rows is None else shares[rows] * (self.n_samples / rows.size)

    def known(self, where: Where, x: Vector) -> ClassesPoint:
        """Return what is known at a point: a pass over the rows at most."""
        found: ClassesPoint = _kept(self._points, where.name, lambda: self.at(x))
        return found

    def change(self, where: Where, direction: Vector) -> Matrix:
        """Return how the margins change along a direction: a pass over the rows at most."""
        found: Matrix = _kept(self._changes, where.name, lambda: self.margins(None, direction))
        return found


def _kept(kept: OrderedDict[str, Any], name: str, compute: Callable[[], Any]) -> Any:
    """Return what is kept under a name, or compute it and keep it in the place of the oldest."""
    found = kept.get(name)
    if found is None:
        found = kept[name] = compute()
        while len(kept) > 2:
            kept.popitem(last=False)
    return found


def _made(X: Any, y: Vector, shares: Vector, loss: Loss, fit_intercept: bool, first: int) -> Part:
    """Return a part of rows that are known to be sound."""
    return Part(sound_rows(X, y, shares, loss, fit_intercept), first)


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
    return task(part, *map(aligned, arguments))


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


def sums_at(part: Part, where: Where, w: Vector, loss: Loss, gradient: bool) -> PointSums:
    """Return the sums at a point: a pass over the rows, and none if margins are known."""
    at = part.at(where, w, loss)
    model, theta = at.model, at.derivatives
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


def slope_between(
    part: Part, p: Where, at_p: Vector, q: Where, at_q: Vector, t: float, loss: Loss
) -> float:
    """Return the derivative of the mean loss at p + t (q - p) by t."""
    start, end = part.at(p, at_p, loss), part.at(q, at_q, loss)
    change = end.margins - start.margins
    slopes = start.model.slopes(start.margins + t * change)
    return float(start.model.shares @ (slopes * change))


def batch_sums(part: Part, w: Vector, loss: Loss, rows: RowNumbers) -> tuple[float, Vector]:
    """Return sum_i p_i l(m_i) over some rows of the part, by their numbers in it, and its slope."""
    model = part.model(loss)
    if rows.size == 0:
        return 0.0, np.zeros(w.size)
    value, gradient = model.batch_value_and_gradient(w, rows)
    scale = rows.size / model.n_samples
    return scale * value, scale * gradient


def squares(part: Part) -> Vector:
    """Return sum_i p_i x_ij^2 for each column."""
    with np.errstate(over="ignore"):
        return column_squares(part.rows.X, part.rows.shares)


def data_sums(part: Part) -> DataSums:
    """Return what bounds the size of a minimiser."""
    model = part.rows
    sums = DataSums.of(model)
    return DataSums(
        float(model.shares.sum()),
        sums.rows,
        *(sums.size, sums.target_size, sums.weight_above, sums.weight_below),
    )


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


def positive_share(part: Part) -> float:
    """Return the sum of the shares of rows with targets above 0."""
    return float(part.rows.shares @ (part.rows.y > 0.0))


def gram_sum(
    part: Part, curvature: Curvature | None, w: Any, columns: Any, places: Vector | None
) -> Matrix:
    """Return what the rows drawn from the part add to a Gram matrix of some columns; None: all."""
    model = part.of_columns(columns)
    if curvature is None:
        return model._gram(None, model.shares)
    numbers, weights = _drawn(part, curvature, w, places)
    return model._gram(numbers, weights)


def gram_of_rows(part: Part, where: Where, w: Vector, loss: Loss, rows: RowNumbers) -> Matrix:
    """Return sum_k p_k l''_k a_k a_k' over some rows."""
    curvatures = part.at(where, w, loss).curvatures()
    return part.rows._gram(rows, curvatures[rows])


def entries_of_columns(part: Part, columns: Any) -> int:
    """Return how many entries some columns have."""
    return part.of_columns(columns).storage.entries


# -- tasks: the dual -----------------------------------------------------------------------------


class Slopes(NamedTuple):
    """Which slope each row is to have for a bound.

    Those of a loss at a point, with all margins shifted by each of `shifts` and mixed by `mixture`;
    slopes above 0 are multiplied by `up`, those below by `down`.
    """

    where: Where
    loss: Loss
    shifts: tuple[float, ...] = (0.0,)
    mixture: tuple[float, ...] = (1.0,)
    up: float = 1.0
    down: float = 1.0

    def of(self, part: Part, w: Vector) -> Vector:
        """Return the slopes of a part's rows."""
        at = part.at(self.where, w, self.loss)
        theta = at.derivatives
        if self.shifts != (0.0,):
            parts = [at.model.slopes(at.margins + shift) for shift in self.shifts]
            theta = np.array(self.mixture) @ np.array(parts)
        if self.up == self.down == 1.0:
            return theta
        return np.where(theta > 0.0, theta * self.up, theta * self.down)


def shifted_means(part: Part, slopes: Slopes, w: Vector, shifts: Vector) -> Vector:
    """Return the mean slopes with all margins shifted, for several shifts."""
    at = part.at(slopes.where, w, slopes.loss)
    means = [at.model.shares @ at.model.slopes(at.margins + shift) for shift in shifts]
    return np.array(means)


def largest_margin(part: Part, where: Where, w: Vector, loss: Loss) -> float:
    """Return the largest size of a margin or a target."""
    at = part.at(where, w, loss)
    return float(np.abs(at.margins).max() + np.abs(at.model.y).max())


@dataclass(frozen=True, slots=True)
class LevelSums:
    """The sums of slopes without their combination of the rows."""

    slopes: SlopeSums  # of no columns
    before: float  # the norm of the slopes at the point, by the rows' shares
    after: float  # that of those with changes

    def __add__(self, other: LevelSums) -> LevelSums:
        """Return the sums over the rows of both."""
        before = math.hypot(self.before, other.before)
        return LevelSums(self.slopes + other.slopes, before, math.hypot(self.after, other.after))


def level_sums(
    part: Part, slopes: Slopes, w: Vector, loss: Loss, changed: tuple[RowNumbers, Vector] | None
) -> LevelSums:
    """Return level and mean of slopes, with those of some rows changed: no pass over the rows."""
    theta, model = slopes.of(part, w), part.model(loss)
    roots = np.sqrt(model.shares)
    before = after = norm(roots * theta)
    if changed is not None and changed[0].size:
        theta = theta.copy()
        theta[changed[0]] = changed[1]
        after = norm(roots * theta)
    return _levels(model, theta, before, after)


def _levels(model: LinearModel, theta: Vector, before: float, after: float) -> LevelSums:
    sums = SlopeSums.of(model, theta, combination=np.zeros(model.n_features))
    none = np.zeros(0)
    height = SlopeSums(sums.level, sums.level_error, sums.mean, sums.mean_error, none, none)
    return LevelSums(height, before, after)


def slope_sums(part: Part, slopes: Slopes, w: Vector, loss: Loss) -> tuple[LevelSums, Vector]:
    """Return the sums of slopes, and their combination of the rows."""
    theta, model = slopes.of(part, w), part.model(loss)
    size = norm(np.sqrt(model.shares) * theta)
    return _levels(model, theta, size, size), model.combination(theta)[: model.n_features]


def side_means(part: Part, slopes: Slopes, w: Vector) -> Vector:
    """Return what the slopes above 0 and those below add to the mean of their sizes."""
    theta, shares = slopes.of(part, w), part.rows.shares
    return np.array([shares @ np.maximum(theta, 0.0), shares @ np.maximum(-theta, 0.0)])


# -- tasks: several classes ----------------------------------------------------------------------


def classes_sums(part: Part, n_classes: int, where: Where, x: Vector) -> tuple[float, Vector]:
    """Return the mean loss and its gradient."""
    at = part.classes(n_classes).known(where, x)
    return at.value, at.gradient.copy()


def classes_means(part: Part, n_classes: int, where: Where, x: Vector) -> tuple[Vector, Matrix]:
    """Return the rows' curvature for each class, and the sum of the rows by it."""
    model = part.classes(n_classes)
    s = model.known(where, x).distributions
    weights = s * (1.0 - s) * model.rows.shares[:, None]
    return weights.sum(axis=0), model.rows.products.backward(weights).T


def classes_product(
    part: Part, n_classes: int, where: Where, x: Vector, direction: Vector
) -> Vector:
    """Return the second derivatives times a direction."""
    model = part.classes(n_classes)
    s = model.known(where, x).distributions
    slopes = model.margins(None, direction)
    slopes *= s
    slopes -= s * slopes.sum(axis=1)[:, None]
    slopes *= model.rows.shares[:, None]
    return model.combined(None, slopes, np.zeros((model.n_classes, model.n_features)))


def classes_slope(
    part: Part, n_classes: int, where: Where, x: Vector, line: Where, direction: Vector, t: float
) -> tuple[float, float]:
    """Return the first and the second derivative of the mean loss along a direction, at t."""
    model = part.classes(n_classes)
    at, change = model.known(where, x), model.change(line, direction)
    own = change[np.arange(model.n_samples), model.classes]
    fall = float(model.rows.shares @ own)
    return ClassesLine(at.margins, change, model.rows.shares, -fall, 0.0).derivatives(t)


def classes_shifted(
    part: Part, n_classes: int, where: Where, x: Vector, shift: Vector
) -> tuple[Vector, Matrix]:
    """Return the mean distribution with margins shifted, and the mean of its products."""
    model = part.classes(n_classes)
    s, _ = softmax(model.known(where, x).margins + shift)
    shares = model.rows.shares
    return shares @ s, s.T @ (shares[:, None] * s)


def classes_distributions(
    part: Part, n_classes: int, where: Where, x: Vector, balance: Balance
) -> DistributionSums:
    """Return the sums of balanced distributions, which give a bound."""
    model = part.classes(n_classes)
    return DistributionSums.of(model, balance.of(model.known(where, x).margins))


def classes_shares(part: Part, n_classes: int) -> Vector:
    """Return the share of each class's rows."""
    model = part.classes(n_classes)
    return np.bincount(model.classes, model.rows.shares, n_classes).astype(np.float64)


# -- tasks: what is asked for of rows ------------------------------------------------------------


class Curvature(NamedTuple):
    """The weights by which rows are drawn: p_i l'' at a point."""

    where: Where
    loss: Loss
    caution: float

    def of(self, part: Part, w: Vector) -> Vector:
        """Return those of a part's rows; w is the point."""
        return part.at(self.where, w, self.loss).curvatures(self.caution)


def curvature_sums(part: Part, curvature: Curvature, w: Vector) -> tuple[float, int]:
    """Return the sum of the weights, and how many rows have any."""
    weights = curvature.of(part, w)
    return float(np.sum(weights)), int(np.count_nonzero(weights))


def _drawn(
    part: Part, curvature: Curvature, w: Vector, places: Vector | None
) -> tuple[RowNumbers | None, Vector]:
    """Return rows and their weights: at places in the running sum of weights, or all with weight.

    The places are those from where this part begins; the weight of a drawn row is left to be 1.
    """
    weights = curvature.of(part, w)
    if places is None:
        weighty = np.flatnonzero(weights)
        if weighty.size == weights.size:
            return None, weights
        return weighty, weights[weighty]
    chosen = np.searchsorted(np.cumsum(weights), places, side="right")
    # Rounding may put a place behind the last row that has weight.
    last = int(np.flatnonzero(weights)[-1]) if places.size else 0
    return np.minimum(chosen, last), np.ones(places.size)


class DrawnRows(NamedTuple):
    """Rows that were drawn, by their numbers among all, with their weights, each row once."""

    numbers: RowNumbers
    weights: Vector
    rows: TakenRows


def drawn_rows(
    part: Part,
    curvature: Curvature,
    v: Vector,
    where: Where,
    w: Vector,
    loss: Loss,
    places: Vector | None,
) -> DrawnRows:
    """Return the rows that were drawn by their curvature at v, and what a point w knows of them."""
    numbers, weights = _drawn(part, curvature, v, places)
    if numbers is None:
        numbers = np.arange(part.rows.n_samples)
    if numbers.size:
        numbers, weights = once(numbers, weights)
    rows = part.rows.taken(numbers, part.at(where, w, loss))
    return DrawnRows(numbers + part.first, weights, rows)


def drawn_numbers(
    part: Part, curvature: Curvature, w: Vector, places: Vector | None
) -> tuple[Any, Vector]:
    """Return the numbers, among all rows, of those drawn, and their weights."""
    numbers, weights = _drawn(part, curvature, w, places)
    if numbers is None:
        numbers = np.arange(part.rows.n_samples)
    return numbers + part.first, weights


def taken(
    part: Part, where: Where | None, w: Vector | None, loss: Loss, rows: RowNumbers
) -> TakenRows:
    """Return some rows, by their numbers in the part, and what a point knows of them."""
    if where is None:
        return part.rows.taken(rows)
    assert w is not None
    return part.rows.taken(rows, part.at(where, w, loss))


def margins_at(part: Part, where: Where, w: Vector, loss: Loss) -> Vector:
    """Return all margins."""
    return part.at(where, w, loss).margins


def targets_of(part: Part) -> tuple[Vector, Vector]:
    """Return targets and shares of all rows."""
    return part.rows.y, part.rows.shares


def on_rows(part: Part, function: Callable[[Any, Vector], Any]) -> Any:
    """Return what a function says of the rows and their shares."""
    return function(part.rows.X, part.rows.shares)


def product(part: Part, w: Matrix) -> Matrix:
    """Return X w."""
    return part.rows.products.forward(w)


def transposed_product(part: Part, theta: Matrix) -> Matrix:
    """Return X' theta."""
    return part.rows.products.backward(theta)


def fingerprint(part: Part) -> str:
    """Return a text that differs for different contents."""
    X = part.rows.X
    arrays = (X,) if isinstance(X, np.ndarray) else (X.data, X.indices, X.indptr)
    digest = hashlib.blake2b(f"{X.shape}".encode())
    for array in (*arrays, part.rows.y, part.rows.shares):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def largest_entries_of(part: Part, columns: Any) -> Vector:
    """Return the largest absolute value of some columns."""
    return largest_entries(part.rows.X, columns)
