"""Stochastic runs on linear models whose steps are done many at a time, in compiled code.

`compiled_twin` returns, for a rule on minibatches of a linear model, a rule that does the same
steps up to rounding: O(nonzeros of the batch) a step on CSR data. One call does all steps up to the
next one at which the loop has something to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from accelegrad import kernels
from accelegrad.errors import NonFiniteError, Vector
from accelegrad.geometry.sets import Ball
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.scaling import ColumnScaling
from accelegrad.models.squares import row_squares
from accelegrad.rules import AcceleGrad, AdaGrad, DistanceFreeAcceleGrad, Rescaled
from accelegrad.rules.base import Rule, Step, fewer_steps
from accelegrad.rules.rescaled import changed_oracle
from accelegrad.rules.schedules import importance_weight
from accelegrad.run.batches import weight_squares
from accelegrad.run.oracle import QUIET, Evaluation, MinibatchOracle

if TYPE_CHECKING:
    from accelegrad.kernels.epochs import Epochs

#: Entries of X that a call reads at most: some milliseconds, so that Ctrl-C and time limits work
CHUNK_ENTRIES = 1 << 21
#: With fewer rows and fewer entries, loading Numba would take longer than what it saves.
LEAST_ROWS, LEAST_ENTRIES = 5_000, 1 << 18
#: Rules that are compiled: the kernels' name for them, and the parameters that these take over
TWINS: Mapping[type[Rule], tuple[str, tuple[str, ...]]] = {
    AcceleGrad: ("accelegrad", ("diameter", "gradient_bound")),
    AdaGrad: ("adagrad", ("diameter",)),
    DistanceFreeAcceleGrad: ("distance_free", ("largest_radius",)),
}
#: The numbers in a kernel's state that are sums with the rule's weights, or with their squares; and
#: the columns (CSR data) or points (dense data) that are such sums, by how many there are in all
LINEAR = (
    *("weight_sum", "evidence", "sum_b", "sb", "rho", "rho0", "rho1", "rho2"),
    *("sigma0", "sigma1", "sigma2", "sz", "sy", "sx0"),
)
QUADRATIC = ("ss", "peak")
SUM_COLUMNS = {4: [2, 3], 2: [1]}
SUM_POINTS = {5: [1, 4], 2: [1]}


class CompiledState:
    """What the loop sees of a state that compiled code changes in place."""

    def __init__(
        self,
        new_epochs: Callable[[Vector, float | None], Epochs],
        x0: Vector,
        radius: float | None,
    ) -> None:
        self.epochs: Epochs | None = None  # before the first step, which may look for a radius
        self.start = x0
        self._new_epochs, self._radius = new_epochs, radius

    @property
    def iteration(self) -> int:
        """How many steps were done."""
        return 0 if self.epochs is None else self.epochs.iteration

    @property
    def step_size(self) -> float:
        """The last step's size."""
        return 0.0 if self.epochs is None else self.epochs.step_size

    @property
    def squares(self) -> float:
        """The sum of the squared gradients, weighted as the rule does."""
        return 0.0 if self.epochs is None else float(self.epochs.numbers["squares"])

    @property
    def radius(self) -> float:
        """The radius of a rule that finds it."""
        radius = self._radius if self.epochs is None else self.epochs.radius
        assert radius is not None
        return radius

    def begin(self, radius: float | None) -> Epochs:
        """Let compiled code start at the start, with a radius where the rule has one."""
        self.epochs = self._new_epochs(self.start, radius)
        return self.epochs

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        return {} if self.epochs is None else self.epochs.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        if state:
            self.begin(state.get("radius")).restore(state)


class CompiledRule(Rule):
    """The compiled twin of a rule on minibatches of a linear model.

    Parameters
    ----------
    rule : AcceleGrad, AdaGrad, DistanceFreeAcceleGrad, or one of them rescaled
        The rule, projecting onto a ball around its start at most; rescaled on dense rows only.
    model : LinearModel
        Where the rows come from.
    values : bool
        Whether steps, one at a time then, also compute the value of their batch.
    """

    def __init__(self, rule: Rule, model: LinearModel, *, values: bool = False) -> None:
        self.rule, self.change = _parts(rule)
        self.can, self.accelerated = self.rule.can, self.rule.accelerated
        self.title = self.rule.title  # type: ignore[misc]
        self.model, self.values = model, values
        X: Any = model.X
        entries = X.size if isinstance(X, np.ndarray) else X.nnz
        self._rows_at_once = max(1, CHUNK_ENTRIES * model.n_samples // max(entries, 1))

    def init(self, x0: Vector) -> CompiledState:
        """Return the state before the first step, in the rule's coordinates."""
        start = x0 if self.change is None else self.change.invert(x0)
        radius = self.rule.init(start).radius if "radius" in self.can else None
        return CompiledState(self._epochs, start, radius)

    def step(self, state: CompiledState, oracle: Any) -> Step:
        """Do one step."""
        return self.advance(state, oracle, 1)

    def advance(self, state: CompiledState, oracle: Any, most: int) -> Step:
        """Do up to `most` steps in one compiled call."""
        epochs = state.epochs
        if epochs is None:
            epochs = state.begin(self._first_radius(state, oracle))
        sampler = oracle.sampler
        most = max(1, min(most, self._rows_at_once // sampler.batch_size))
        rows = sampler.next_batches(most)
        batches = -(-rows.size // sampler.batch_size)
        first, squares = state.iteration, state.squares
        seen = self._seen(state, rows) if self.values and batches == 1 else None
        done = epochs.advance(rows, sampler.batch_size)
        oracle.count(batches, rows.size)
        if done < batches:
            raise NonFiniteError("the gradient of a batch is not finite")
        # Nothing exact is known. The square is the steps' weighted mean.
        evaluation = Evaluation(self.last(state), math.nan) if seen is None else seen
        evaluation.squared_norm = (state.squares - squares) / weight_squares(self, first, done)
        return Step(state, evaluation, 1.0, done)

    def _seen(self, state: CompiledState, rows: Any) -> Evaluation:
        """Return the value of a batch where its gradient is taken."""
        assert state.epochs is not None
        point = self._unscaled(state.epochs.query())
        with np.errstate(**QUIET):
            return Evaluation(point, self.model.batch_value_and_gradient(point, rows)[0])

    def coarsened(self, state: CompiledState, ratio: float) -> CompiledState:
        """Change the state into that of batches `ratio` times as large: see `Rule.coarsened`."""
        assert state.epochs is not None
        steps = fewer_steps(state.iteration, ratio)
        ratio = state.iteration / steps
        powers = self.rule.shrinking
        squares = next(p for name, p in powers.items() if name.endswith("squares"))
        content = state.epochs.state()
        content["squares"] /= ratio**squares
        content["iteration"] = steps
        _shrink_sums(content, ratio ** powers["weight_sum"])
        state.epochs.restore(content)
        return state

    def seen_gradient(self, gradient: Vector) -> Vector:
        """Return a gradient in the rule's coordinates."""
        return gradient if self.change is None else self.change.adjoint(gradient)

    def _first_radius(self, state: CompiledState, oracle: MinibatchOracle) -> float | None:
        """Return the radius to start with, from the rule's probe where it has one."""
        if "radius" not in self.can:
            return None
        seen = oracle if self.change is None else changed_oracle(oracle, self.change)
        found, _ = self.rule.prepared(self.rule.init(state.start), seen)
        return float(found.radius)

    def _epochs(self, x0: Vector, radius: float | None) -> Epochs:
        rule, model = self.rule, self.model
        kind, parameters = TWINS[type(rule)]
        ball = _ball_of(rule)
        settings: dict[str, Any] = {
            "l2": model.l2,
            "fit_intercept": model.fit_intercept,
            "ball_radius": None if ball is None else ball.radius,
            "initial_radius": radius,
            **{name: getattr(rule, name) for name in parameters},
        }
        given = {name: setting for name, setting in settings.items() if setting is not None}
        data = model.kernel_data()
        if len(data.matrix) > 1:
            from accelegrad.kernels.sparse_epochs import SparseEpochs

            features = x0[: model.n_features]
            by_row = {"squares": row_squares(model.X)}
            if features.any():
                by_row["offsets"] = model.X @ features
            return SparseEpochs(kind, data, x0, **by_row, **given)
        from accelegrad.kernels.dense_epochs import DenseEpochs

        if self.change is None:
            return DenseEpochs(kind, data, x0, **given)
        scale, shift = self.change.scale, self.change.shift
        change = scale, np.zeros_like(scale) if shift is None else shift
        return DenseEpochs(kind, data, x0, change=change, **given)

    def output(self, state: CompiledState) -> Vector:
        """Return the average that the rule's theorem speaks of."""
        return self._unscaled(state.start if state.epochs is None else state.epochs.output())

    def last(self, state: CompiledState) -> Vector:
        """Return the last iterate."""
        return self._unscaled(state.start if state.epochs is None else state.epochs.last())

    def _unscaled(self, point: Vector) -> Vector:
        return point if self.change is None else self.change.apply(point)


def _shrink_sums(content: dict[str, Any], factor: float) -> None:
    """Divide all that a kernel's state holds of weighted sums, after the number of its steps."""
    for names, divisor in ((LINEAR, factor), (QUADRATIC, factor**2)):
        for name in content.keys() & set(names):
            content[name] /= divisor
    if "columns" in content:
        columns = content["columns"]
        columns[:, SUM_COLUMNS[columns.shape[1]]] /= factor
        return
    points = content["points"]
    points[SUM_POINTS[len(points)]] /= factor
    if len(points) > 2:  # the next query is kept as a point, and depends on the number of steps
        y, z = points[2], points[3]
        points[0] = z + (1 - 1 / importance_weight(content["iteration"])) * (y - z)


def _parts(rule: Rule) -> tuple[Rule, ColumnScaling | None]:
    """Return the rule itself and the scaling of columns under which it runs."""
    if isinstance(rule, Rescaled) and isinstance(rule.change, ColumnScaling):
        return rule.rule, rule.change
    return rule, None


def _ball_of(rule: Any) -> Ball | None:
    """Return the ball whose projection the rule uses."""
    ball = getattr(rule.project, "__self__", None)
    return ball if isinstance(ball, Ball) else None


def compiled_twin(rule: Rule, model: LinearModel, x0: Vector, *, values: bool = False) -> Rule:
    """Return the compiled twin of a rule where there is one and it pays, else the rule itself."""
    inner, change = _parts(rule)
    if change is not None and sp.issparse(model.X):
        return rule  # steps would not be sparse
    start = x0 if change is None else change.invert(x0)
    if not (_pays(model) and _has_twin(inner, start)):
        return rule
    return CompiledRule(rule, model, values=values)


def _pays(model: LinearModel) -> bool:
    def pays(matrix: kernels.Readable) -> bool:
        return model.n_samples >= LEAST_ROWS or matrix.entries >= LEAST_ENTRIES

    return kernels.wanted(kernels.readable(model.X), pays)


def _has_twin(rule: Any, x0: Vector) -> bool:
    """Return whether compiled code does a rule's steps: with no set but a ball around x0 for z."""
    if type(rule) not in TWINS or ("prox" in rule.can and rule.prox is not None):
        return False
    if rule.project is None:
        return True
    if "radius" in rule.can or ("project_y" in rule.can and rule.project_y):
        return False
    ball = _ball_of(rule)
    return ball is not None and np.array_equal(ball.center, x0)
