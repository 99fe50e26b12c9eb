"""Random cases: everything that goes into one call of `ag.minimize`, from one whole number."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import scipy.sparse as sp
from scipy.optimize import OptimizeResult

import accelegrad as ag
from accelegrad import kernels
from accelegrad.models import streamed_model
from proofs import functions
from proofs.extended import (
    CLASSIFICATION,
    CURVATURES,
    LOSSES,
    Kind,
    Known,
    LinearObjective,
    PenaltyFormula,
    Rng,
    SetFormula,
)
from proofs.functions import Function
from reference.losses import PARAMETER

Vector = Any

OUTPUTS = ("auto", "best", "average", "last")
#: Methods by what they can do; a method with a radius of its own certifies without a diameter.
WITH_RADIUS = (
    *("auto", "bundle", "accelegrad", "adagrad", "unixgrad", "diagonal"),
    *("u-dog", "a-dog", "dog"),
)
LINE_SEARCHES = ("universal", "universal-dual", "universal-fast")
PLAIN = (*WITH_RADIUS, *LINE_SEARCHES, "linear-coupling", "subgradient")
OF_ROWS = ("accelegrad-newton", "dual-ascent", "interior-point")
#: Losses that the interior-point method takes
ONE_KINK = ("hinge", "absolute", "quantile")
WITH_PROX = ("auto", "bundle", "accelegrad", "unixgrad", "u-dog")
METHODS = (*PLAIN, *OF_ROWS)
#: How much more often than others a method is drawn
WEIGHTS = {"auto": 4.0, "bundle": 3.0}
DIAGONAL_SETS = ("Box", "NonNegative")
SETS = (
    *("Ball", "Box", "Simplex", "L1Ball", "NonNegative", "Halfspace", "Affine", "Polyhedron"),
    *("Product", "WholeSpace", "OnlyBall", "OnlyBox"),
)
#: The share of polyhedra among the sets, where they may be drawn
POLYHEDRA = 0.12
PENALTIES = ("L1", "ElasticNet", "GroupL2", "NuclearNorm", "OwnRidge")
LAYOUTS = ("C", "F", "CSR")


class OnlyProject:
    """A user's own set that can project and nothing else."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def project(self, x: Vector) -> Vector:
        return self.inner.project(x)

    def __repr__(self) -> str:
        return f"OnlyProject({self.inner!r})"


class OwnRidge:
    """A user's own penalty: l1 ||x||_1 + l2 / 2 ||x||^2, with `prox` and `value` alone."""

    def __init__(self, l1: float, l2: float) -> None:
        self.l1, self.l2 = l1, l2

    def value(self, x: Vector) -> float:
        return self.l1 * float(np.abs(x).sum()) + self.l2 / 2 * float(x @ x)

    def prox(self, x: Vector, step: float) -> Vector:
        return np.sign(x) * np.maximum(np.abs(x) - step * self.l1, 0) / (1 + step * self.l2)

    def __repr__(self) -> str:
        return f"OwnRidge({self.l1}, {self.l2})"


@dataclass(frozen=True, eq=False)
class Data:
    """A linear model: the arrays, and the keywords of `ag.LinearModel`."""

    X: Any  # as it is given
    y: Vector
    keywords: dict[str, Any]
    chunk: int = 0  # rows of a chunk, for a `StreamedModel`; 0: in memory

    @cached_property
    def objective(self) -> LinearObjective:
        given = dict(self.keywords)
        parameter = float(given.pop(PARAMETER.get(given["loss"]), 0.0))
        return LinearObjective(self.dense, self.y, parameter=parameter, **given)

    @property
    def dense(self) -> Any:
        X = self.X.toarray() if sp.issparse(self.X) else self.X
        return np.ascontiguousarray(X, dtype=np.float64)

    @property
    def n_parameters(self) -> int:
        return int(self.X.shape[1]) + self.keywords["fit_intercept"]

    @property
    def wide(self) -> float:
        """The size of the entries of X."""
        return float(np.abs(self.dense).max(initial=0.0)) or 1.0

    @property
    def scale(self) -> float:
        """The size of the weights, in orders that sets and steps may have."""
        return min(max(float(np.abs(self.y).max()) / self.wide, 1e-8), 1e8)

    def model(self) -> ag.LinearModel:
        if not self.chunk:
            return ag.LinearModel(self.X, self.y, **self.keywords)
        keywords = dict(self.keywords)
        arrays = [self.X, self.y]
        if "sample_weight" in keywords:
            arrays.append(keywords.pop("sample_weight"))
        firsts = range(0, self.y.size, self.chunk)
        chunks = [tuple(part[i : i + self.chunk] for part in arrays) for i in firsts]
        with mock.patch.object(streamed_model, "BLOCK_ENTRIES", 0):  # each chunk is a part
            return ag.StreamedModel(chunks, **keywords)


@dataclass(frozen=True, eq=False)
class Case:
    """One call of `ag.minimize`, and how it is looked at."""

    seed: int
    problem: Data | Function
    x0: Vector
    #: keywords of `minimize`, but for the set and the penalty
    options: dict[str, Any] = field(default_factory=dict)
    chosen: SetFormula | None = None
    penalty: PenaltyFormula | None = None
    kernels: str = "auto"
    separate: bool = False  # a user's value and gradient apart
    gradient_only: bool = False
    watch: str = ""  # "look", "resume" or "other data": what else is done with it
    tags: tuple[str, ...] = ()

    @property
    def data(self) -> Data | None:
        return self.problem if isinstance(self.problem, Data) else None

    @property
    def exact(self) -> bool:
        """Whether anything can be certified."""
        return self.options.get("exact", True) and not self.gradient_only

    @property
    def stochastic(self) -> bool:
        return self.options.get("batch_size") is not None

    def at(self, x: Any, kind: Kind) -> Known:
        """Return the objective, penalty included, at a point in numbers of this kind."""
        data = self.data
        known = self.problem.at(x, kind) if data is None else data.objective.at(x, kind)
        if self.penalty is None:
            return known
        penalty = self.penalty.at(x, kind)
        return Known(known.value + penalty, known.size + abs(penalty))

    def arguments(self) -> tuple[Any, dict[str, Any]]:
        keywords = dict(self.options)
        if self.chosen is not None:
            keywords["feasible_set"] = build_set(self.chosen)
        if self.penalty is not None:
            keywords["penalty"] = build_penalty(self.penalty)
        if isinstance(self.problem, Data):
            return self.problem.model(), keywords
        if self.gradient_only:
            return None, {**keywords, "jac": self.problem.gradient}
        if self.separate:
            return self.problem.value, {**keywords, "jac": self.problem.gradient}
        return self.problem, keywords

    def run(self, **more: Any) -> OptimizeResult:
        fun, keywords = self.arguments()
        with nullcontext() if self.kernels == "auto" else kernels.use(self.kernels):
            return ag.minimize(fun, self.x0.copy(), **{**keywords, **more})


# -- sets and penalties: the product's object from a formula --------------------------------------


def build_set(formula: SetFormula) -> Any:
    given = formula.arguments
    if formula.name == "Product":
        return ag.Product([(build_set(block), size) for block, size in given["blocks"]])
    if formula.name == "Polyhedron":
        given = {name: value for name, value in given.items() if name != "inner"}
    if formula.name.startswith("Only"):
        return OnlyProject(getattr(ag, formula.name[4:])(**given))
    return getattr(ag, formula.name)(**given)


def build_penalty(formula: PenaltyFormula) -> Any:
    if formula.name == "OwnRidge":
        return OwnRidge(**formula.arguments)
    return getattr(ag, formula.name)(**formula.arguments)


# -- drawing ---------------------------------------------------------------------------------------


def drawn(seed: int) -> Case:
    rng = np.random.default_rng([7, seed])
    family = _pick(rng, [_model_case, _rows_case, _function_case], [11, 2, 9])
    case: Case = family(rng, seed)
    return case


def _power(rng: Rng, low: float, high: float) -> float:
    return float(10.0 ** rng.uniform(low, high))


def _chance(rng: Rng, share: float) -> bool:
    return bool(rng.random() < share)


def _pick(rng: Rng, options: Any, weights: Any = None) -> Any:
    options = list(options)
    p = None if weights is None else np.asarray(weights, dtype=float) / np.sum(weights)
    return options[int(rng.choice(len(options), p=p))]


TROUBLES = (
    *("zero columns", "constant column", "twin columns", "collinear", "twin rows", "separable"),
    *("one class", "offset X", "offset y", "column scales", "y scale", "exact fit", "zero X"),
    "sparse",
)


def _draw_shape(rng: Rng) -> tuple[int, int]:
    n, d = int(rng.integers(1, 81)), int(rng.integers(1, 13))
    if _chance(rng, 0.08):
        return int(_pick(rng, [600, 3000], [3, 1])), d
    return n, n + d if _chance(rng, 0.08) else d


def draw_data(
    rng: Rng, loss: str, n: int | None = None, d: int | None = None
) -> tuple[Data, list[str]]:
    """Draw a linear model, degenerate in one way or two, or in none."""
    drawn_n, drawn_d = _draw_shape(rng)
    n, d = drawn_n if n is None else n, drawn_d if d is None else d
    count = int(_pick(rng, [0, 1, 2], [5, 4, 2]))
    tags = rng.choice(TROUBLES, size=count, replace=False).tolist()
    X = _troubled(rng, rng.standard_normal((n, d)), tags)
    y = _targets(rng, X, loss, tags)
    X = X.astype(np.float32 if _chance(rng, 0.3) else np.float64)
    layout = _pick(rng, LAYOUTS, [5, 2, 3])
    X = sp.csr_array(X) if layout == "CSR" else np.asarray(X, order=layout)
    l2 = 0.0
    if not _chance(rng, 0.4):
        l2 = _power(rng, -6, 1) if _chance(rng, 0.7) else _power(rng, -12, 2)
    keywords: dict[str, Any] = {"loss": loss, "l2": l2, "fit_intercept": _chance(rng, 0.4)}
    if loss in PARAMETER:
        keywords[PARAMETER[loss]] = {
            "quantile": _pick(rng, [0.5, 0.02, 0.9, float(rng.uniform(0.05, 0.95))]),
            "epsilon": _pick(rng, [0.1, 0.0, 1.0, 1e-6]),
            "delta": _pick(rng, [1.35, 0.01, 100.0]),
        }[PARAMETER[loss]]
    if _chance(rng, 0.35):
        weights = rng.uniform(size=n) * 10.0 ** rng.choice([0, 8, -8])
        weights[rng.random(n) < 0.3] = 0.0
        if not weights.any():
            weights[int(rng.integers(n))] = 1.0
        keywords["sample_weight"] = weights
    # Of another stream of numbers: what seeds drew before there were chunks stays as it was.
    chunks = rng.spawn(1)[0]
    chunk = int(chunks.integers(1, n + 1)) if chunks.random() < 0.15 else 0
    tags += [loss, layout, X.dtype.name, *["streamed"] * (chunk > 0)]
    return Data(X, y, keywords, chunk), tags


def _troubled(rng: Rng, X: Any, tags: list[str]) -> Any:
    n, d = X.shape
    if "sparse" in tags:
        X = X * (rng.random((n, d)) < 0.3)
    if "zero columns" in tags:
        X[:, rng.random(d) < 0.4] = 0.0
    if "constant column" in tags:
        X[:, int(rng.integers(d))] = _pick(rng, [1.0, 3.7, 1e4])
    if "twin columns" in tags and d > 1:
        X[:, 0] = X[:, -1]
    if "collinear" in tags and d > 2:
        X[:, 0] = X[:, 1] + X[:, 2] * _pick(rng, [1.0, 1e-7])
    if "twin rows" in tags:
        X = X[rng.integers(0, max(1, n // 3), n)]
    if "offset X" in tags:
        X = 100.3 + X
    if "column scales" in tags:
        X = X * 10.0 ** rng.uniform(-8, 8, d)
    return X * 0.0 if "zero X" in tags else X


def _targets(rng: Rng, X: Any, loss: str, tags: list[str]) -> Vector:
    n, d = X.shape
    scores = X @ rng.standard_normal(d)
    spread = scores.std()
    if spread > 0:
        scores = scores / spread
    noise = 0.0 if {"separable", "exact fit"} & set(tags) else float(_pick(rng, [0.1, 1.0]))
    scores = scores + noise * rng.standard_normal(n)
    if loss in CLASSIFICATION:
        return np.ones(n) if "one class" in tags else np.where(scores > 0, 1.0, -1.0)
    if "y scale" in tags:
        scores = scores * _power(rng, -8, 8)
    return scores + (1e4 if "offset y" in tags else 0.0)


def draw_set(rng: Rng, d: int, scale: float, names: Any = SETS, depth: int = 0) -> SetFormula:
    # Of another stream of numbers: what seeds drew before there were polyhedra stays as it was.
    polyhedra = rng.spawn(1)[0]
    if "Polyhedron" in names and (len(names) == 1 or polyhedra.random() < POLYHEDRA):
        return _draw_polyhedron(polyhedra, d, scale)
    left_out = {"Polyhedron"} | ({"Product"} if d < 2 or depth else set())
    name = _pick(rng, [name for name in names if name not in left_out])
    size = scale * _power(rng, -1, 1)
    shift = rng.standard_normal(d) * scale if _chance(rng, 0.6) else np.zeros(d)
    if name in ("Ball", "OnlyBall"):
        return SetFormula(name, {"center": shift, "radius": size})
    if name in ("Box", "OnlyBox"):
        lower, upper = shift - size * rng.random(d), shift + size * rng.random(d)
        kind = _pick(rng, ["plain", "half", "degenerate", "number", "huge"], [5, 2, 2, 2, 0.3])
        if kind == "half":
            lower[rng.random(d) < 0.5] = -np.inf
            upper[rng.random(d) < 0.3] = np.inf
        if kind == "degenerate":
            fixed = rng.random(d) < 0.5
            upper[fixed] = lower[fixed]
        if kind == "number":
            return SetFormula(name, {"lower": -size, "upper": size})
        if kind == "huge":
            return SetFormula(name, {"lower": -1e308, "upper": 1e308})
        return SetFormula(name, {"lower": lower, "upper": upper})
    if name == "Simplex":
        return SetFormula(name, {"total": size})
    if name == "L1Ball":
        return SetFormula(name, {"radius": size, "center": shift})
    if name in ("NonNegative", "WholeSpace"):
        return SetFormula(name, {})
    if name == "Halfspace":
        normal = rng.standard_normal(d) * _pick(rng, [1.0, 1e-6, 1e6])
        return SetFormula(name, {"normal": normal, "offset": float(normal @ shift)})
    if name == "Affine":
        rows = rng.standard_normal((int(rng.integers(1, d + 1)), d))
        return SetFormula(name, {"A": rows, "b": rows @ shift})
    first = int(rng.integers(1, d))
    inner = [n for n in SETS if n not in ("Product", "WholeSpace")]
    blocks = [(draw_set(rng, size, scale, inner, 1), size) for size in (first, d - first)]
    return SetFormula("Product", {"blocks": blocks})


def _draw_polyhedron(rng: Rng, d: int, scale: float) -> SetFormula:
    inner = scale * rng.standard_normal(d) if _chance(rng, 0.8) else np.zeros(d)
    rows = int(rng.integers(1, d + 3))
    A = rng.standard_normal((rows, d)) * _pick(rng, [1.0, 1e-6, 1e6])
    if _chance(rng, 0.3):
        A = rng.integers(-1, 2, (rows, d)).astype(float)
    if _chance(rng, 0.3):
        A[-1] = A[0] * _pick(rng, [1.0, -2.0])
    level, size = A @ inner, scale * abs(A).max(axis=1)
    lower = level - size * rng.exponential(size=rows) * (rng.random(rows) < 0.8)
    upper = level + size * rng.exponential(size=rows) * (rng.random(rows) < 0.8)
    equal = rng.random(rows) < 0.2
    lower[equal] = upper[equal] = level[equal]
    lower[~equal & (rng.random(rows) < 0.4)] = -np.inf
    upper[~equal & (rng.random(rows) < 0.4)] = np.inf
    ends = inner - scale * rng.exponential(size=d), inner + scale * rng.exponential(size=d)
    if _chance(rng, 0.5):
        ends[0][rng.random(d) < 0.5] = -np.inf
        ends[1][rng.random(d) < 0.5] = np.inf
    given = {"A": A, "lower": lower, "upper": upper, "bounds": ends}
    if _chance(rng, 0.2):
        given["bounds"] = None
    return SetFormula("Polyhedron", {**given, "inner": inner})


def draw_penalty(rng: Rng, d: int, scale: float, names: Any = PENALTIES) -> PenaltyFormula:
    name, strength = _pick(rng, names), scale * _power(rng, -3, 0.5)
    if name == "L1":
        weights = strength * rng.random(d)
        weights[rng.random(d) < 0.2] = 0.0
        own = _chance(rng, 0.4) and weights.any()
        return PenaltyFormula(name, {"strength": weights if own else strength}, d)
    if name in ("ElasticNet", "OwnRidge"):
        l1, l2 = _pick(rng, [(strength, strength), (strength, 0.0), (0.0, strength)])
        return PenaltyFormula(name, {"l1": l1, "l2": l2}, d)
    if name == "GroupL2":
        labels = rng.integers(-1 if _chance(rng, 0.4) else 0, 3, d)
        labels[0] = 0
        count = len(set(labels.tolist()) - {-1})
        given = {"strength": strength, "groups": labels}
        if _chance(rng, 0.4):
            given["weights"] = rng.uniform(0.1, 2.0, count)
        return PenaltyFormula(name, given, d)
    rows = _pick(rng, [r for r in range(1, d + 1) if d % r == 0])
    return PenaltyFormula(name, {"strength": strength, "shape": (rows, d // rows)}, d)


def bounded(formula: SetFormula | None, d: int) -> bool:
    """Tell whether a set is bounded, as the product can know it."""
    unknown = ("Affine", "OnlyBall", "OnlyBox")
    blocks = [] if formula is None else formula.arguments.get("blocks", [(formula, d)])
    return bool(blocks) and all(
        block.name not in unknown and build_set(block).diameter_for(size) < np.inf
        for block, size in blocks
    )


def _draw_goal(rng: Rng, options: dict[str, Any], certain: bool) -> None:
    if certain and _chance(rng, 0.65):
        name = _pick(rng, ["tol", "rtol"], [3, 1])
        options[name] = float(10.0 ** -rng.integers(1, 11 if _chance(rng, 0.4) else 6))


def _draw_iterations(rng: Rng, options: dict[str, Any], most: int) -> None:
    drawn = int(_pick(rng, [5, 20, 60, 200, 400, 3000], [2, 3, 4, 4, 2, 0.25]))
    options["max_iter"] = min(most, drawn)


def _draw_start(
    rng: Rng, d: int, scale: float, target: Vector | None, formula: SetFormula | None
) -> Vector:
    kind = _pick(rng, ["zero", "near", "far", "target"], [5, 3, 1, 2])
    x0 = np.zeros(d)
    if kind in ("near", "far"):
        x0 = (1e4 if kind == "far" else 1.0) * scale * rng.standard_normal(d)
    if kind == "target" and target is not None:
        x0 = target.copy()
    if formula is None:
        return x0
    chosen = build_set(formula)
    return np.array(chosen.project(np.array(chosen.project(x0))), dtype=np.float64)


def _draw_method(
    rng: Rng,
    methods: Any,
    options: dict[str, Any],
    scale: float,
    distance: float,
    smoothness: float,
) -> str:
    method = _pick(rng, methods, [WEIGHTS.get(name, 1.0) for name in methods])
    if method != "auto":
        options["method"] = method
    numeric = _chance(rng, 0.35)
    if numeric:
        factor = _pick(rng, [1.01, 3.0, 30.0, 0.3, 1e-2, 1e6, 1e14], [3, 5, 3, 2, 1, 0.5, 0.5])
        options["diameter"] = float(2 * factor * (distance if distance > 0 else scale))
        if _chance(rng, 0.01):
            options["diameter"] = _pick(rng, [1e300, 1e-300])
    if method in LINE_SEARCHES:
        options["epsilon"] = _power(rng, -8, 0) * max(scale, 1e-6)
        if _chance(rng, 0.2):
            options["initial_smoothness"] = _power(rng, -3, 3)
            options["max_trials"] = int(rng.integers(1, 80))
    if method == "linear-coupling":
        options["smoothness"] = smoothness if smoothness > 0 else 1.0
    if method == "subgradient":
        options["step_size"] = scale * _power(rng, -3, 0)
        if _chance(rng, 0.3):
            options["decay"] = _pick(rng, ["sqrt", "constant"])
    radius = method in WITH_RADIUS and method != "auto" and not numeric
    if radius and _chance(rng, 0.1):
        options["initial_radius"] = _pick(rng, [_power(rng, -6, 3), 1e-200], [9, 1])
    if method == "bundle" and _chance(rng, 0.5):
        options["bundle_size"] = int(rng.integers(4, 13))  # so few that sums of sums are kept
    if numeric and method in ("accelegrad", "diagonal") and _chance(rng, 0.2):
        options["gradient_bound"] = _power(rng, -2, 2)
    return str(method)


def _draw_policies(
    rng: Rng, options: dict[str, Any], method: str, terms: Terms, *, exact: bool
) -> None:
    """Draw restarts, and whether y is projected, where that is allowed."""
    if terms.penalty is not None and method == "accelegrad":
        # Its form with a prox finds its radius.
        options.pop("diameter", None)
        options.pop("gradient_bound", None)
    restarts = method in WITH_RADIUS and method != "bundle" and "diameter" not in options
    if restarts and exact and _chance(rng, 0.15):
        options["restart"] = _pick(rng, ["auto", "adaptive"])
    able = method in ("accelegrad", "diagonal", "linear-coupling") and terms.penalty is None
    if able and terms.chosen is not None and _chance(rng, 0.1):
        options["project_y"] = _chance(rng, 0.5)


class Terms(NamedTuple):
    """What comes with a function: a set, a penalty, both or neither."""

    chosen: SetFormula | None = None
    penalty: PenaltyFormula | None = None

    @property
    def constrained(self) -> bool:
        return self.chosen is not None and self.chosen.name != "WholeSpace"

    @property
    def free(self) -> bool:
        return not self.constrained and self.penalty is None

    @property
    def scalable(self) -> bool:
        """Whether `scale` may be given too."""
        names = {formula.name for formula in (self.chosen, self.penalty) if formula is not None}
        return names <= {"L1", "WholeSpace", *DIAGONAL_SETS}

    def able(self, methods: Any) -> list[str]:
        unable: set[str] = set() if self.free else set(OF_ROWS)
        if self.penalty is not None:
            unable |= set(METHODS) - set(WITH_PROX)
        if self.constrained and self.chosen.name not in DIAGONAL_SETS:
            unable.add("diagonal")
        return [name for name in methods if name not in unable]


def _draw_terms(
    rng: Rng, weights: Any, size: int, penalised: int, scale: float, steep: float
) -> Terms:
    form = _pick(rng, ["free", "set", "penalty", "both"], weights)
    chosen = penalty = None
    if form in ("set", "both"):
        chosen = draw_set(rng, size, scale, DIAGONAL_SETS if form == "both" else SETS)
    if form in ("penalty", "both"):
        names = ("L1", "ElasticNet") if form == "both" else PENALTIES
        penalty = draw_penalty(rng, penalised, steep, names)
    return Terms(chosen, penalty)


def _model_case(rng: Rng, seed: int) -> Case:
    data, tags = draw_data(rng, _pick(rng, LOSSES))
    n, d, size = *data.X.shape, data.n_parameters
    l2, intercept = data.keywords["l2"], data.keywords["fit_intercept"]
    options: dict[str, Any] = {}
    scale, steep = data.scale, max(1e-9, min(data.wide, 1e3))
    terms = _draw_terms(rng, [11, 5, 4, 1], size, d, scale, steep)
    batch = terms.penalty is None and _chance(rng, 0.12)
    methods = _model_methods(data, terms, batch)
    x0 = _draw_start(rng, size, scale, None, terms.chosen)
    squares = float((data.dense**2).sum(axis=1).max()) + intercept
    smoothness = min(CURVATURES[data.keywords["loss"]], 1e3) * squares + l2
    method = _draw_method(rng, methods, options, scale, 0.0, smoothness)
    if method in OF_ROWS and _chance(rng, 0.7):
        options.pop("diameter", None)
    if batch:
        options["batch_size"] = int(rng.integers(1, n + 1))
        options["replacement"] = _chance(rng, 0.3)
    if terms.scalable and method not in OF_ROWS and _chance(rng, 0.2):
        options["scale"] = _pick(rng, ["columns", None, 10.0 ** rng.uniform(-2, 2, d)])
    _draw_policies(rng, options, method, terms, exact=not batch)
    _draw_goal(rng, options, _model_certain(data, options, terms, method))
    slow = n > 80 or ((method in OF_ROWS or method == "auto") and terms == Terms())
    _draw_iterations(rng, options, 60 if slow else 3000)
    if method == "dual-ascent" or (n > 80 and method in OF_ROWS):
        options["max_iter"] = min(options["max_iter"], 20)
    options["output"] = _pick(rng, ["auto", "average", "last"] if batch else OUTPUTS)
    options["rng"] = int(rng.integers(1000))
    mode = "auto" if n > 600 else _pick(rng, ["auto", "never", "always"], [18, 1, 1])
    watch = _pick(rng, ["", "look", "resume", "other data"], [16, 2, 2, 1])
    return Case(seed, data, x0, options, *terms, kernels=mode, watch=watch, tags=tuple(tags))


def _rows_case(rng: Rng, seed: int) -> Case:
    """Draw what methods for sums over rows are made for: many rows, few columns, a goal."""
    loss, n = _pick(rng, LOSSES), int(_pick(rng, [150, 400, 1200], [4, 2, 1]))
    data, tags = draw_data(rng, loss, n=n, d=int(rng.integers(1, 6)))
    l2 = _power(rng, -6, 0) if _chance(rng, 0.8) else 0.0
    given = {"l2": l2, "fit_intercept": _chance(rng, 0.6)}
    data = replace(data, keywords=data.keywords | given)
    able = _model_methods(data, Terms(), False)
    method = _pick(rng, ["auto", *(name for name in able if name in OF_ROWS)])
    options: dict[str, Any] = {} if method == "auto" else {"method": method}
    options[_pick(rng, ["tol", "rtol"])] = float(10.0 ** -rng.uniform(1, 8))
    options |= {"max_iter": int(_pick(rng, [3, 10, 30])), "rng": int(rng.integers(1000))}
    options["output"] = _pick(rng, OUTPUTS, [5, 2, 1, 1])
    x0 = _draw_start(rng, data.n_parameters, 1.0, None, None)
    watch = _pick(rng, ["", "look", "resume", "other data"], [16, 2, 2, 1])
    return Case(seed, data, x0, options, watch=watch, tags=tuple(tags))


def _model_methods(data: Data, terms: Terms, batch: bool) -> list[str]:
    unable: set[str] = set()
    curved = data.keywords["l2"] > 0
    kinks = CURVATURES[data.keywords["loss"]] == np.inf
    if not curved:
        unable.add("dual-ascent")
    if not curved and kinks and data.X.shape[0] <= data.n_parameters:
        unable.add("accelegrad-newton")
    if not curved or data.keywords["loss"] not in ONE_KINK:
        unable.add("interior-point")
    if batch:
        unable |= {*OF_ROWS, *LINE_SEARCHES, "linear-coupling", "bundle"}
    return [name for name in terms.able(METHODS) if name not in unable]


def _model_certain(data: Data, options: dict[str, Any], terms: Terms, method: str) -> bool:
    """Tell whether there surely is a certificate, without which a goal is refused."""
    dual = data.keywords["l2"] > 0 or data.X.shape[0] > data.n_parameters
    return _certain(options, terms, method, data.n_parameters) or (terms.free and dual)


def _certain(options: dict[str, Any], terms: Terms, method: str, d: int) -> bool:
    """The same of any function."""
    return method in WITH_RADIUS or "diameter" in options or bounded(terms.chosen, d)


def _function_case(rng: Rng, seed: int) -> Case:
    d = int(rng.integers(1, 61 if _chance(rng, 0.2) else 13))
    f = functions.drawn(rng, d)
    scale = float(np.abs(f.target).max()) or 1.0
    options: dict[str, Any] = {}
    steep = min(max(float(np.abs(f.matrix).max()) * abs(f.factor), 1e-150), 1e150)
    terms = _draw_terms(rng, [9, 6, 3, 1], d, d, scale, steep)
    noisy = terms.penalty is None and _chance(rng, 0.06)
    only = noisy and _chance(rng, 0.5)
    if noisy:
        f = replace(f, noise=0.0 if only else 0.1 * f.factor)
        options["exact"] = False
    unable = (*LINE_SEARCHES, "bundle") if noisy else ()
    methods = terms.able(name for name in PLAIN if name not in unable)
    x0 = _draw_start(rng, d, scale, f.target, terms.chosen)
    distance = float(np.linalg.norm(f.target - x0))
    with np.errstate(over="ignore"):
        smoothness = min(float((f.matrix**2).sum()) * f.factor, 1e200)
    method = _draw_method(rng, methods, options, scale, distance, smoothness)
    _draw_policies(rng, options, method, terms, exact=not noisy)
    _draw_goal(rng, options, not noisy and _certain(options, terms, method, d))
    slow = d > 12 and terms.constrained  # some projections take long then
    _draw_iterations(rng, options, 60 if slow else 3000)
    options["output"] = _pick(rng, ["auto", "average", "last"] if noisy else OUTPUTS)
    separate = not only and _chance(rng, 0.2)
    watch = _pick(rng, ["", "look", "resume"], [8, 1, 1])
    case = Case(seed, f, x0, options, *terms, separate=separate, watch=watch, tags=(f.shape,))
    return replace(case, gradient_only=only)
