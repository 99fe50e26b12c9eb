"""How `minimize` chooses a method: the first row of `TABLE` whose condition holds decides.

A condition is a tuple of facts, by their names in `Request`, that must all hold. docs/methods.md
shows the table; `accelegrad.catalogue` describes the methods.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from accelegrad import kernels
from accelegrad.catalogue import AUTO, BUNDLE, DUAL, INTERIOR, METHODS, NEWTON, PROXIMAL
from accelegrad.errors import Vector, nearest
from accelegrad.geometry.penalties import Penalty
from accelegrad.geometry.sets import FeasibleSet, WholeSpace
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.scaling import unevenness
from accelegrad.proofs.fenchel import Terms
from accelegrad.rules import Rule
from accelegrad.solvers.curvature import FACTOR_PRODUCT, Costs
from accelegrad.solvers.interior_point import has_one_kink
from accelegrad.solvers.row_oracle import RowRule

#: Up to this ratio of column sizes, methods that do not scale columns work well.
LARGEST_RATIO = 300.0
#: Up to this many rows per column, dual ascent beats learning the curvature from gradients: for
#: smooth losses of labels; for the logistic loss (its steps take logarithms) and losses of numbers
#: (thousands of epochs with n = d); and for losses with kinks, which have no curvature (hinge,
#: certified 1e-3: 0.1 of Newton's time with n = d, 0.5 with n = 5 d).
MOST_ROWS, MOST_ROWS_SLOW, MOST_ROWS_KINKS = 1.5, 0.75, 5.0
#: With any number of rows it does so up to this ratio of the largest curvature of a row's loss to n
#: times the l2 term: 0.35 to 0.8 of Newton's time for ratios up to 2, up to 1.6 at 8. For the hinge
#: loss the ratio is that of a row's squared norm: 0.3 to 1 up to 1.8, up to 1.6 from 3 on.
MOST_UNEVEN_DUAL = 2.0
#: The largest estimated time of an interior-point step, and the largest number of rows (it stores a
#: dozen numbers for each): beyond, the smoothed loss is faster (measured on eight data sets).
MOST_STEP_SECONDS, MOST_SHORT_ROWS = 3e-3, 1 << 18
#: An interior-point step may take a second for dense rows if there are at most `FEW_DENSE_ROWS`
#: rows per column, and more than `MORE_LABELS` (labels) or `MOST_ROWS_SLOW` (numbers). Samples of
#: so few rows say little, and dual ascent takes thousands of epochs; but labels of at most 2 d rows
#: are mostly separable, which it finds in some hundreds of epochs (measured on dense random rows).
MORE_LABELS, FEW_DENSE_ROWS = 2.0, 10.0


# -- requests --------------------------------------------------------------------------------------


class Space(NamedTuple):
    """Start, set and penalty, in the user's or the rule's coordinates."""

    start: Vector
    feasible_set: FeasibleSet | None = None
    penalty: Penalty | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a set other than the whole space."""
        return self.feasible_set is not None and not isinstance(self.feasible_set, WholeSpace)

    def scaled(self, change: Any) -> Space:
        """Return the space in the coordinates v of x = T v."""
        return Space(
            change.invert(self.start),
            change.scaled_set(self.feasible_set, self.start.size),
            change.scaled_penalty(self.penalty),
        )


ANYWHERE = Space(np.zeros(0))


@dataclass(frozen=True)
class Request:
    """The arguments of `minimize`, and the facts derived from them for `TABLE`.

    Facts that depend on the data are computed only when a condition needs them.
    """

    model: LinearModel | None = None
    space: Space = ANYWHERE
    method: Any = AUTO
    parameters: Mapping[str, Any] = field(default_factory=dict)  # diameter, those of single methods
    project_y: bool | None = None
    scale: Any = AUTO
    restart: Any = None
    minibatches: bool = False  # `batch_size` is given
    exact_values: bool = True  # or values of the same rows, which can be compared

    @property
    def asked_for(self) -> bool:
        """Whether a method was given, as a rule object or by name."""
        return not (isinstance(self.method, str) and self.method == AUTO)

    @property
    def exact_function(self) -> bool:
        """Whether a function with exact values is minimised, not a `LinearModel`."""
        return self.model is None and self.exact_values

    @property
    def diameter_given(self) -> bool:
        """Whether the diameter is a number."""
        return is_given(self.parameters.get("diameter"))

    @property
    def options_given(self) -> bool:
        """Whether `restart` or a parameter of single methods is given."""
        given = not self.parameters.keys() <= {"diameter", "bundle_size"}
        return given or self.restart is not None or self.project_y is not None

    @property
    def nothing_given(self) -> bool:
        """Whether nothing is given that is meant for other methods."""
        return not (self.diameter_given or self.options_given)

    @property
    def scale_given(self) -> bool:
        """Whether `scale` is "columns" or an array."""
        return is_given(self.scale)

    @property
    def constrained(self) -> bool:
        """Whether there is a penalty, or a feasible set other than the whole space."""
        return self.space.penalty is not None or self.space.is_limited

    @property
    def rows_alone(self) -> bool:
        """Whether it is a `LinearModel`, and nothing is given that is meant for other methods."""
        if self.model is None or self.minibatches or self.scale_given:
            return False
        return self.nothing_given

    @cached_property
    def terms(self) -> Terms | None:
        """Penalty and bounds of a `LinearModel`; None for other penalties."""
        return Terms.of(self._model, self.space.penalty, self.space.feasible_set)

    @cached_property
    def separate_terms(self) -> bool:
        """Whether each weight of a `LinearModel` has its own term or limits, which bound it."""
        model, terms = self._model, self.terms
        if terms is None or not (terms.hold_each_weight(model.loss) and model.has_columns):
            return False
        return not terms.has_only_signs or bool(model.dual_with(terms).is_there)

    @property
    def something_given(self) -> bool:
        """Whether something is given that methods for sums over rows do not take."""
        return bool(self.given)

    @property
    def given(self) -> str:
        """What is given that methods for sums over rows do not take, for the reason; or ""."""
        reasons = {
            "there is a constraint or a penalty": self.constrained,
            "it is accelerated where the function is smooth, and safe": self.model is None,
            "a diameter is given": self.diameter_given,
            "batch_size asks for plain stochastic steps": self.minibatches,
            "it is what the other options are meant for": self.options_given,
            "scaled coordinates are asked for": self.scale_given,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    @property
    def no_dual_bound(self) -> bool:
        """Whether no lower bound from the model's dual becomes tight."""
        return not self._model.has_dual_bound

    @cached_property
    def cheap_curvature(self) -> bool:
        """Whether second derivatives are cheap enough, relative to gradients, to be useful."""
        return Costs.of(self._model).least > 0

    @property
    def few_rows_with_one_kink(self) -> bool:
        """Whether losses have one kink, and steps with the curvature of all rows are cheap."""
        model = self._model
        if not has_one_kink(model.loss) or model.in_memory is None or self.space.is_limited:
            return False
        if not (self.separate_terms if self.constrained else model.l2 > 0.0):
            return False  # nothing bounds the weights
        n, d = model.n_samples, model.n_parameters
        # With n < d, rounding mattered too early in 9 of 60 fits with an l1 term (columns of 1e-4
        # to 1e4).
        if n > MOST_SHORT_ROWS or (self.constrained and n < d):
            return False
        storage = model.storage._replace(pairs_per_row=math.inf)
        seconds = n * storage.gram_seconds_per_row(d) + FACTOR_PRODUCT * d**3 / 3
        more = MORE_LABELS if model.loss.classification else MOST_ROWS_SLOW
        few = storage.dense and more * d < n <= FEW_DENSE_ROWS * d
        return seconds <= (1.0 if few else MOST_STEP_SECONDS)

    @property
    def uneven_columns(self) -> bool:
        """Whether column sizes differ by more than `LARGEST_RATIO`, and may be scaled."""
        needed = self.scale is not None and not self.cheap_curvature
        return needed and self.unevenness > LARGEST_RATIO

    @property
    def small_dual(self) -> bool:
        """Whether the dual can be climbed row by row, and has few coordinates."""
        model, loss = self._model, self._model.loss
        is_slow = loss.name == "logistic" or not loss.classification
        most = MOST_ROWS_SLOW if is_slow else MOST_ROWS
        if math.isinf(loss.curvature):
            most = MOST_ROWS_KINKS
        return model.n_samples <= most * model.n_features and self._is_climbable

    @property
    def even_dual(self) -> bool:
        """Whether the l2 term makes the dual about equally curved in all directions.

        For a smooth loss, or for labels with a kink, where a few long rows do not matter.
        """
        model, loss = self._model, self._model.loss
        if math.isinf(loss.curvature):
            if not (loss.classification and self._has_dual_of_rows):
                return False
            typical = float(np.median(model.row_squares())) / model.n_samples
            return typical <= MOST_UNEVEN_DUAL * model.l2
        if not self._is_climbable:
            return False
        largest = float(model.shares.max() * model.row_squares().max())
        return loss.curvature * largest <= MOST_UNEVEN_DUAL * model.l2

    @property
    def _has_dual_of_rows(self) -> bool:
        """Whether the dual has one coordinate per row, and all rows are in memory."""
        return self._model.l2 > 0.0 and self._model.in_memory is not None

    @property
    def _is_climbable(self) -> bool:
        """Whether the dual can be climbed row by row, and Newton's steps are not cheaper.

        For smooth losses they are cheaper where plain code visits the few entries.
        """
        model = self._model
        if not self._has_dual_of_rows or self.cheap_curvature:
            return False
        return math.isinf(model.loss.curvature) or model.storage.entries >= kernels.FEW_ENTRIES

    @cached_property
    def unevenness(self) -> float:
        """The ratio of the largest column to the smallest, for the reason."""
        return unevenness(self._model)

    @property
    def smoothness(self) -> str:
        """What makes the loss suitable for Newton's steps, for the reason."""
        smooth = math.isfinite(self._model.loss.curvature)
        return "is smooth" if smooth else "can be smoothed as far as the dual gap allows"

    @property
    def steps(self) -> str:
        """What Newton's steps do, for the reason."""
        model = self._model
        if self.cheap_curvature:
            count = f"the curvature in {model.n_parameters} coordinates"
            return f"{count} costs little beside gradients"
        few = f"steps on a sample of {model.n_samples} rows get close quickly"
        return f"{few}; full gradients then refine the curvature"

    @property
    def _model(self) -> LinearModel:
        assert self.model is not None  # functions match earlier rows of the table
        return self.model


def is_given(wish: Any) -> bool:
    """Return whether an argument is neither None nor "auto"."""
    return wish is not None and not (isinstance(wish, str) and wish == AUTO)


# -- the table ------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A row of the table: the method if all facts of the condition hold, and the reason."""

    condition: tuple[str, ...]
    method: str
    reason: str  # with facts of the problem in braces


#: Stands for the method that was given.
GIVEN = "given"
TABLE = [
    Row(("asked_for",), GIVEN, "it was asked for"),
    Row(
        ("exact_function", "nothing_given"),
        BUNDLE,
        "values are exact, so past cuts make a model of the function",
    ),
    Row(
        ("constrained", "diameter_given"),
        "unixgrad",
        "there is a constraint or a penalty, and a diameter is given",
    ),
    Row(
        ("rows_alone", "few_rows_with_one_kink"),
        INTERIOR,
        "the {facts.model.loss.name} loss has one kink, and its {facts.model.n_samples} rows are "
        "few",
    ),
    Row(
        ("rows_alone", "constrained", "separate_terms"),
        PROXIMAL,
        "the {facts.model.loss.name} loss {facts.smoothness}, and each weight has its own term or "
        "limits",
    ),
    Row(("something_given",), "accelegrad", "{facts.given}"),
    Row(("no_dual_bound",), "accelegrad", "without an l2 term the dual gap need not get tight"),
    Row(
        ("uneven_columns",),
        "accelegrad",
        "columns differ in size by a factor of {facts.unevenness:.2g}, so that coordinates are "
        "scaled",
    ),
    Row(
        ("small_dual",),
        DUAL,
        "the dual has {facts.model.n_samples} coordinates, the primal {facts.model.n_features}",
    ),
    Row(
        ("even_dual",),
        DUAL,
        "the l2 term is so strong for rows of this size that a few passes climb the dual",
    ),
    Row((), NEWTON, "the {facts.model.loss.name} loss {facts.smoothness}; {facts.steps}"),
]


class Choice(NamedTuple):
    """The name of a method, and why it was chosen."""

    name: str
    reason: str
    of_rows: bool = False  # whether it works only on the rows of a LinearModel


def first(table: Sequence[Row], facts: Any, *, tried: str = "") -> Row:
    """Return the first row whose condition holds, excluding the method `tried`."""
    for row in table:
        if row.method != tried and all(getattr(facts, fact) for fact in row.condition):
            return row
    raise LookupError("no row of the table holds")


def choose(request: Request, *, tried: str = "") -> Choice:
    """Return the requested or the best method, with the reason; `tried` is excluded."""
    row = first(TABLE, request, tried=tried)
    if row.method != GIVEN:
        of_rows = issubclass(METHODS[row.method].rule, RowRule)
        return Choice(row.method, row.reason.format(facts=request), of_rows)
    name, rule = _given_name(request.method)
    return Choice(name, row.reason, issubclass(rule, RowRule))


def _given_name(method: Any) -> tuple[str, type[Rule]]:
    if isinstance(method, Rule):
        rule = type(method)
        known = [name for name, entry in METHODS.items() if entry.rule is rule]
        return known[0] if known and issubclass(rule, RowRule) else rule.__name__, rule
    if not isinstance(method, str):
        raise TypeError(f"method must be a name or a rule object, not {method!r}.")
    if method in METHODS:
        return method, METHODS[method].rule
    allowed = nearest(method, [AUTO, *METHODS])
    raise ValueError(f"method is {method!r}: {allowed} Without it, one that fits is chosen.")
