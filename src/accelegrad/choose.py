"""How `minimize` chooses a method: a table of (condition, method, reason).

`TABLE` says which method a problem gets: its rows are read from top to bottom, and the first one
whose condition holds decides. A condition is a tuple of facts that all have to hold, by their names
in `Facts`. docs/methods.md shows the table. What the methods are is in `accelegrad.catalogue`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from accelegrad import kernels
from accelegrad.catalogue import AUTO, BUNDLE, DUAL, INTERIOR, METHODS, NEWTON, PROXIMAL
from accelegrad.errors import nearest
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.scaling import unevenness
from accelegrad.rules import Rule
from accelegrad.solvers.curvature import FACTOR_PRODUCT, Costs
from accelegrad.solvers.interior_point import has_one_kink
from accelegrad.solvers.oracles import SUM_RULES

#: Methods and solvers of other libraries, in lower case: "auto" is what to give in their place.
ELSEWHERE = frozenset(
    {
        *("bfgs", "cg", "cobyla", "cobyqa", "dogleg", "l-bfgs-b"),
        *("nelder-mead", "newton-cg", "powell", "slsqp", "tnc"),
        *("trust-constr", "trust-exact", "trust-krylov", "trust-ncg"),
        *("adam", "sgd", "clarabel", "ecos"),
        *("highs", "mosek", "osqp", "scs"),
    }
)
#: Up to this ratio of the sizes of columns, methods that do not scale them do well.
LARGEST_RATIO = 300.0
#: Up to this many rows per column, ascent on the dual beats learning the curvature from gradients:
#: for smooth losses of labels; for the logistic one, whose steps take logarithms and so cost more,
#: and for losses of numbers (with as many rows as columns they took thousands of epochs); and for
#: losses with kinks, which have no curvature (hinge, 23 entries a row, certified 1e-3, of the time
#: of Newton's steps: a tenth with as many rows as columns, half with five times as many).
MOST_ROWS, MOST_ROWS_SLOW, MOST_ROWS_KINKS = 1.5, 0.75, 5.0
#: With any number of rows it does so up to this ratio of the largest curvature of a row's loss to n
#: times the l2 term, since a few epochs do: 0.35 to 0.8 of the time of Newton's steps for ratios of
#: 0.25 to 2 and 5 to 15 rows a column (about the same below; at 8 up to 1.6 times as long). For
#: the hinge loss the ratio is that of a row's squared norm: 0.3 to 1 of the time on four sets with
#: ratios of 0.3 to 1.8, and up to 1.6 times as long with ratios of 3 and more.
MOST_UNEVEN_DUAL = 2.0
#: A step of the interior-point method may take so many seconds by the estimates of `Costs`, and so
#: many rows there may be, of which it keeps a dozen numbers: the smoothed loss of more rows, or
#: longer ones, is minimised faster (measured on eight data sets).
MOST_STEP_SECONDS, MOST_SHORT_ROWS = 3e-3, 1 << 18
#: The same for dense rows that are few for their columns, up to so many per column: samples of so
#: few rows say little, and ascent on the dual takes thousands of epochs and often misses `tol`. But
#: labels of at most twice as many rows as columns can mostly be told apart without an error, which
#: it finds in some hundreds of epochs (measured on dense random rows).
MOST_SECONDS_OF_NUMBERS = ((0.75, MOST_STEP_SECONDS), (10.0, 1.0))
MOST_SECONDS_OF_LABELS = ((1.5, MOST_STEP_SECONDS), (2.0, 1e-2), (10.0, 1.0))


# -- what is known --------------------------------------------------------------------------------


class Request(NamedTuple):
    """What the user said about the method and the space, unchecked."""

    method: Any
    parameters: Mapping[str, Any]  # diameter and those of single methods; None: not given
    feasible_set: Any = None
    project_y: bool | None = None
    penalty: Any = None
    scale: Any = None
    stochastic: bool = False  # gradients of a few rows at a time
    restart: Any = None


@dataclass(frozen=True)
class Facts:
    """What is known of a problem and of the user's request, for the conditions of `TABLE`.

    What requires a look at the data is computed only when a condition asks for it.
    """

    model: LinearModel | None = None
    rule_given: bool = False  # `method` is a rule object
    name_given: bool = False  # `method` is a name other than "auto"
    streamed: bool = False  # rows come in chunks, each used once
    constrained: bool = False  # by a feasible set other than the whole space, or by a penalty
    separate_terms: bool = False  # each weight has its own l1 or l2 term or limits
    no_limits: bool = False  # there is no feasible set other than the whole space
    exact_values: bool = False
    diameter_given: bool = False  # as a number
    minibatches: bool = False  # `batch_size` is given
    options_given: bool = False  # `restart` or a parameter of single methods
    scale_given: bool = False  # "columns" or an array
    may_scale: bool = False  # `scale` is not None

    @classmethod
    def of(
        cls,
        request: Request,
        model: LinearModel | None,
        *,
        constrained: bool,
        separate_terms: bool = False,
        no_limits: bool = False,
        exact_values: bool = False,
    ) -> Facts:
        """Return the facts of a call of `minimize`."""
        given = not request.parameters.keys() <= {"diameter", "bundle_size"}
        given = given or request.restart is not None or request.project_y is not None
        return cls(
            model,
            rule_given=isinstance(request.method, Rule),
            name_given=isinstance(request.method, str) and request.method != AUTO,
            constrained=constrained,
            separate_terms=separate_terms,
            no_limits=no_limits,
            exact_values=exact_values,
            diameter_given=is_given(request.parameters.get("diameter")),
            minibatches=request.stochastic,
            options_given=given,
            scale_given=is_given(request.scale),
            may_scale=request.scale is not None,
        )

    @property
    def exact_function(self) -> bool:
        """Whether it is a function with exact values that is minimised, not a `LinearModel`."""
        return self.function and self.exact_values

    @property
    def nothing_given(self) -> bool:
        """Whether nothing was given that is meant for other methods."""
        return not (self.diameter_given or self.options_given)

    @property
    def asked_for(self) -> bool:
        """Whether a method was given, as a rule object or by its name."""
        return self.rule_given or self.name_given

    @property
    def rows_alone(self) -> bool:
        """Whether it is a `LinearModel`, and nothing was given that is meant for other methods."""
        plain = self.nothing_given and not (self.minibatches or self.scale_given)
        return plain and not self.function

    @property
    def columns_at_hand(self) -> bool:
        """Whether some columns of a `LinearModel` can be asked for."""
        return self._model.has_columns

    @property
    def something_given(self) -> bool:
        """Whether something was given that methods for sums over rows do not take."""
        return bool(self.given)

    @property
    def given(self) -> str:
        """What was given that methods for sums over rows do not take, for the reason; or ""."""
        reasons = {
            "there is a constraint or a penalty": self.constrained,
            "it is accelerated where the function is smooth, and safe": self.function,
            "a diameter is given": self.diameter_given,
            "batch_size asks for plain stochastic steps": self.minibatches,
            "it is what the other options are meant for": self.options_given,
            "scaled coordinates are asked for": self.scale_given,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    @property
    def function(self) -> bool:
        """Whether it is a function that is minimised, not a `LinearModel`."""
        return self.model is None

    @property
    def no_dual_bound(self) -> bool:
        """Whether no lower bound from the model's dual gets tight."""
        return not self._model.has_dual_bound

    @cached_property
    def cheap_curvature(self) -> bool:
        """Whether second derivatives are cheap enough, compared with gradients, to be of use."""
        return Costs.of(self._model).least > 0

    @cached_property
    def few_rows_with_one_kink(self) -> bool:
        """Whether losses have one kink, and steps with the curvature of all rows cost little."""
        model = self._model
        if not has_one_kink(model.loss) or model.in_memory is None:
            return False
        if model.l2 == 0.0 and not self.separate_terms:
            return False  # nothing holds the weights
        if self.constrained and not (self.no_limits and self.separate_terms):
            return False
        n, d = model.n_samples, model.n_parameters
        if n > MOST_SHORT_ROWS:
            return False
        if self.constrained and n < d:
            return False  # rounding mattered too soon in 9 of 60 fits (columns of 1e-4 to 1e4)
        storage = model.storage._replace(pairs_per_row=math.inf)
        seconds = n * storage.gram_seconds_per_row(d) + FACTOR_PRODUCT * d**3 / 3
        few = MOST_SECONDS_OF_LABELS if model.loss.classification else MOST_SECONDS_OF_NUMBERS
        limits = (limit for most, limit in few if storage.dense and n <= most * d)
        return seconds <= next(limits, MOST_STEP_SECONDS)

    @property
    def uneven_columns(self) -> bool:
        """Whether columns' sizes differ by more than `LARGEST_RATIO`, and may be scaled."""
        needed = self.may_scale and not self.cheap_curvature
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
        """Whether the l2 term makes the dual about as curved in all directions.

        That of a smooth loss, or of labels with a kink, where a few long rows do not matter.
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
        """Whether the dual has a coordinate for each row, and all rows are in memory."""
        return self._model.l2 > 0.0 and self._model.in_memory is not None

    @property
    def _is_climbable(self) -> bool:
        """Whether the dual can be climbed row by row, and Newton's steps are not cheaper.

        Those of smooth losses are where there are so few entries that plain code goes through them.
        """
        model = self._model
        if not self._has_dual_of_rows or self.cheap_curvature:
            return False
        return math.isinf(model.loss.curvature) or model.storage.entries >= kernels.FEW_ENTRIES

    @cached_property
    def unevenness(self) -> float:
        """How many times larger the largest column is than the smallest, for the reason."""
        return unevenness(self._model)

    @property
    def smoothness(self) -> str:
        """What makes the loss fit for Newton's steps, for the reason."""
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
        assert self.model is not None  # functions have been dealt with further up in the table
        return self.model


def is_given(wish: Any) -> bool:
    """Return whether a wish is neither None nor "auto"."""
    return wish is not None and not (isinstance(wish, str) and wish == AUTO)


# -- the table ------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A line of a table: where all facts of the condition hold, this method, for this reason."""

    condition: tuple[str, ...]
    method: str
    reason: str  # with what is known of the problem in braces

    def holds(self, facts: Any) -> bool:
        """Return whether all facts of the condition hold; they are computed one after the other."""
        return all(getattr(facts, fact) for fact in self.condition)


#: In the place of a method's name: the one that was given.
GIVEN = "given"
TABLE = [
    Row(("asked_for",), GIVEN, "it was asked for"),
    Row(("streamed",), "accelegrad", "its steps take noise, and a stream has no end to plan for"),
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
        ("rows_alone", "constrained", "separate_terms", "columns_at_hand"),
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
    """The name of a method, and why it is that one."""

    name: str
    reason: str
    of_rows: bool = False  # whether it works on the rows of a LinearModel and on nothing else


def first(table: Sequence[Row], facts: Any, *, tried: str = "") -> Row:
    """Return the first row of a table whose condition holds, without the method `tried`."""
    for row in table:
        if row.method != tried and row.holds(facts):
            return row
    raise LookupError("no row of the table holds")


def choose(facts: Facts, method: Any = AUTO, *, tried: str = "") -> Choice:
    """Return the method that is asked for, or the one that serves best, with the reason.

    `tried` names one that was tried in vain, and is out of the question.
    """
    if not isinstance(method, (str, Rule)):
        raise TypeError(f"method must be a name or a rule object, not {method!r}.")
    if isinstance(method, str) and method not in (AUTO, *METHODS):
        if method.lower() in ELSEWHERE:
            raise ValueError(
                f"method is {method!r}, which is another library's: leave it out, and one that "
                f"fits is chosen. Allowed: {', '.join(repr(name) for name in [AUTO, *METHODS])}."
            )
        raise ValueError(f"method is {method!r}: {nearest(method, [AUTO, *METHODS])}")
    row = first(TABLE, facts, tried=tried)
    name = _given_name(method) if row.method == GIVEN else row.method
    of_rows = isinstance(method, SUM_RULES) or (name in METHODS and METHODS[name].rule in SUM_RULES)
    return Choice(name, row.reason.format(facts=facts), of_rows)


def _given_name(method: str | Rule) -> str:
    """Return the name of what was given; of a rule for sums over rows that of its method."""
    if isinstance(method, str):
        return method
    known = [name for name, entry in METHODS.items() if entry.rule is type(method)]
    return known[0] if known and isinstance(method, SUM_RULES) else type(method).__name__
