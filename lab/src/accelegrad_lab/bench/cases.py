"""The lists of cases, and what each benchmark asks of its solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_args

import numpy as np
import scipy.sparse as sp

from accelegrad.errors import nearest
from accelegrad.models.losses import LOSSES
from accelegrad_lab.engine import rows
from accelegrad_lab.engine.fit import Fit, Goal
from accelegrad_lab.functions.contest import ACCURACIES, FunctionContest
from accelegrad_lab.functions.formulas import Kind
from accelegrad_lab.functions.suite import SUITE
from accelegrad_lab.peers import EVERYDAY, FUNCTIONS, PEERS, SHAPES, SOLVERS, Peer

Request = Any  # what the user asked for, as the harness has it


class Case(NamedTuple):
    """A problem by name: of which benchmark, in which group, on what data, for which goal."""

    suite: str
    group: str
    data: str
    goal: str

    @property
    def key(self) -> str:
        """Its name."""
        return "/".join(filter(None, (self.group, self.data, self.goal)))

    @property
    def names(self) -> tuple[set[str], set[str], set[str]]:
        """By what it may be asked for: its group, its data or its goal."""
        return {self.group}, {self.data, rows.plain_name(self.data)}, {self.goal} - {""}


# -- fits with all defaults ------------------------------------------------------------------------

CLASSIFIED = ("hinge", "squared_hinge", "log_loss")
L1 = ("l1 log_loss 0.1", "l1 log_loss 0.01")
LASSO = ("lasso 0.1", "lasso 0.01")
QUADRATIC = ("ridge", *LASSO, "elastic net 0.1", "nonnegative ridge", "nonnegative least squares")
ROBUST = ("huber", "quantile 0.9", "absolute", "epsilon-insensitive")

GOALS: Mapping[str, Goal] = {
    "log_loss": Goal("logistic"),
    "hinge": Goal("hinge"),
    "squared_hinge": Goal("squared_hinge"),
    "l1 log_loss 0.1": Goal("logistic", "l1", 0.1),
    "l1 log_loss 0.01": Goal("logistic", "l1", 0.01),
    "log_loss CV": Goal("logistic", path=True),
    "ridge": Goal("squared"),
    "lasso 0.1": Goal("squared", "l1", 0.1),
    "lasso 0.01": Goal("squared", "l1", 0.01),
    "elastic net 0.1": Goal("squared", "elasticnet", 0.1),
    "nonnegative ridge": Goal("squared", nonnegative=True),
    "nonnegative least squares": Goal("squared", None, nonnegative=True),
    "huber": Goal("huber"),
    "quantile 0.9": Goal("quantile", "l1", parameters={"quantile": 0.9}),
    "absolute": Goal("absolute", None),
    "epsilon-insensitive": Goal("epsilon_insensitive"),
    "ridge CV": Goal("squared", path=True),
    "lasso CV": Goal("squared", "l1", path=True),
}

Group = tuple[str, Sequence[str], Sequence[str]]  # its name, and goals on sets, each with each


def _scaled(names: Sequence[str]) -> list[str]:
    return [name + rows.SCALED for name in names]


FULL: Sequence[Group] = (
    ("small", ["breast_cancer-100, scaled"], [*CLASSIFIED, L1[0]]),
    ("small", ["iris-100"], CLASSIFIED),
    ("small", ["diabetes-100, scaled"], [*QUADRATIC, *ROBUST]),
    ("text", rows.TEXT, CLASSIFIED),
    ("rows", [*rows.SHORT_ROWS, *_scaled(rows.SHORT_ROWS)], CLASSIFIED),
    ("sparse", ["sparse-1e4", "sparse-1e5", "sparse-5e5"], CLASSIFIED),
    ("l1", [*rows.TEXT, "spambase, scaled", "a9a", "phishing"], L1),
    ("wide", rows.TEXT, LASSO),
    ("numbers", rows.NUMBERS, QUADRATIC),
    ("numbers", _scaled(rows.NUMBERS), [*QUADRATIC, *ROBUST]),
    ("classes", ["iris", "digits", *(f"{k}-classes" for k in (3, 10, 30, 100))], CLASSIFIED),
    ("classes", ["news20"], CLASSIFIED),
    ("cv", ["breast_cancer, scaled", "digits", "basehock"], ["log_loss CV"]),
    ("cv", ["spambase, scaled"], ["log_loss CV"]),
    ("cv", ["diabetes, scaled", "cpusmall, scaled", "casp, scaled"], ["ridge CV", "lasso CV"]),
    ("cv", ["basehock"], ["lasso CV"]),
)
COLD = (
    "text/basehock/hinge", "text/basehock/log_loss", "rows/spambase, scaled/hinge",
    "rows/spambase, scaled/log_loss", "sparse/sparse-1e4/hinge", "l1/pcmac/l1 log_loss 0.1",
    "wide/pcmac/lasso 0.1", "numbers/cpusmall, scaled/ridge", "numbers/cpusmall, scaled/lasso 0.1",
    "numbers/cpusmall, scaled/huber", "numbers/cpusmall, scaled/absolute",
    "numbers/cpusmall, scaled/nonnegative ridge", "classes/digits/log_loss", "classes/digits/hinge",
    "cv/digits/log_loss CV",
)  # fmt: skip
"""The cases that are fitted in a new process too, with an empty cache of compiled code."""


def _everyday(asked: Request) -> Iterator[Case]:
    """Go through the cases; the quick ones are those of which scikit-learn has the data."""
    for group, sets, goals in FULL:
        for data in filter(rows.is_there, sets):
            if not asked.quick or rows.plain_name(data).split("-")[0] in rows.BUILT_IN:
                yield from (Case(EVERYDAY, group, data, goal) for goal in goals)


# -- solvers of one objective ----------------------------------------------------------------------

STRENGTHS = (1.0, 0.01)  # l2 times the number of rows; chosen
CLASS_LOSSES = ("logistic", "hinge", "squared_hinge")
NUMBER_LOSSES = ("squared", "huber", "absolute", "quantile")
WITHOUT_L2 = ("absolute", "quantile")  # also with l2 = 0, where some peers stand alone
SETS = {
    False: (
        (*rows.TEXT, *rows.SHORT_ROWS, "breast_cancer", "text-20k", "classes-50k", "classes-wide"),
        (*rows.NUMBERS, "diabetes", "numbers-45k"),
    ),
    True: (("text-small", "classes-small"), ("numbers-small",)),
}


def l2_goal(name: str) -> Goal:
    """Return the goal "LOSS l2=S/n" or "LOSS l2=0"."""
    loss, _, strength = name.partition(" l2=")
    parameters = {"quantile": 0.9} if loss == "quantile" else {}
    if strength == "0":
        return Goal(loss, None, parameters=parameters)
    return Goal(loss, strength=float(strength.removesuffix("/n")), parameters=parameters)


def _solvers(asked: Request) -> Iterator[Case]:
    for names, losses in zip(SETS[asked.quick], (CLASS_LOSSES, NUMBER_LOSSES), strict=True):
        for data in filter(rows.is_there, names):
            for loss in losses:
                for strength in (*STRENGTHS, *([0.0] if loss in WITHOUT_L2 else [])):
                    l2 = f"{strength:g}/n" if strength else "0"
                    yield Case(SOLVERS, loss, data + rows.PREPARED, f"{loss} l2={l2}")


# -- random shapes ---------------------------------------------------------------------------------

MOST_ENTRIES = 4e6


class Shape(NamedTuple):
    """A fit drawn at random: any loss and penalty, numbers log-uniform, a third of X full."""

    loss: str
    penalty: str
    alpha: float
    n: int
    d: int
    density: float
    rng: np.random.Generator  # for the entries

    @classmethod
    def draw(cls, seed: int, number: int) -> Shape:
        """Draw a shape, whatever others are drawn."""
        rng = np.random.default_rng([seed, number])
        loss, penalty = rng.choice(list(LOSSES)), rng.choice(["l2", "l1"])
        limits = np.log([[1e-5, 3e-2], [1e2, 4e4], [3.0, 5e3]])
        alpha, n, d = np.exp(rng.uniform(*limits.T))
        density = 0.005 ** max(0.0, rng.uniform(-0.5, 1.0))
        n = min(n, MOST_ENTRIES / (d * density))
        return cls(str(loss), str(penalty), float(alpha), int(n), int(d), density, rng)

    def fit(self) -> Fit:
        """Draw normal entries, and a linear function of them with noise, or its signs."""
        (n, d), rng, entry = (self.n, self.d), self.rng, LOSSES[self.loss]
        if self.density >= rows.DENSE:
            X: Any = rng.standard_normal((n, d)) * (rng.random((n, d)) < self.density)
        else:
            i, j = rng.integers((n, d), size=(int(n * d * self.density), 2)).T
            X = sp.csr_matrix((rng.standard_normal(i.size), (i, j)), shape=(n, d))
        scores = X @ rng.standard_normal(d)
        y = scores / scores.std() + 0.5 * rng.standard_normal(n)
        parameters = {entry.parameter.name: entry.parameter.default} if entry.parameter else {}
        goal = Goal(self.loss, self.penalty, strength=self.alpha * n, parameters=parameters)
        return Fit(goal, rows.Rows(X, np.sign(y) if entry.classification else y))


def _shapes(asked: Request) -> Iterator[Case]:
    for number in range(asked.shapes):
        one = Shape.draw(asked.seed, number)
        data = f"{asked.seed}-{number} {one.n}x{one.d}"
        yield Case(SHAPES, one.loss, data, f"{one.penalty}, alpha={one.alpha:.1e}")


# -- functions -------------------------------------------------------------------------------------

QUICK_FUNCTIONS = (
    "logistic", "quadratic-ill-conditioned", "log-sum-exp", "max-linear", "enclosing-ball",
    "absolute-regression", "max-and-distance", "total-variation", "largest-eigenvalue",
    "nonnegative-least-squares", "matrix-game", "lasso",
)  # fmt: skip


def _functions(asked: Request) -> Iterator[Case]:
    for name in QUICK_FUNCTIONS if asked.quick and not asked.only else SUITE:
        yield Case(FUNCTIONS, SUITE[name].kind, name, "")


# -- the benchmarks --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Suite:
    """A benchmark, declared."""

    title: str  # of its report
    summary: str
    ours: str  # the solver that others are compared with
    groups: Mapping[str, str]  # of cases, in words
    cases: Callable[[Request], Iterator[Case]]  # those asked for whose data are there
    open: Callable[[Case], Any]  # returns the problem of a case
    accuracies: tuple[float, ...]
    judged: float  # the accuracy that the sentences of the report speak of
    measures: tuple[str, ...] = ("seconds", "CPU seconds")  # costs, the first one judged
    limits: tuple[float, float] = (4.0, 0.5)  # seconds of a run, and in a quick benchmark
    proves: bool = True  # whether our solver has to prove its accuracy

    def settings(self, peer: Peer) -> Iterator[float]:
        """Go through what a solver is asked for in turn; NaN stands for its defaults."""
        return iter([float("nan")]) if self.ours == "AcceleGrad" else peer.ladder()


SUITES: dict[str, Suite] = {
    SOLVERS: Suite(
        "accelegrad and the solvers that users would pick",
        "Every solver minimises the same objective, mean loss + l2/2 ||w||^2, on the same arrays, "
        "without an intercept. An accuracy of 1e-3 means P - P* <= 1e-3 (P(0) - P*), measured by "
        "us outside of the clock. Solvers are run from scratch with more and more iterations, or "
        "smaller and smaller tolerances, and the fastest run that is accurate counts. Ours counts "
        "only where its own certificate proves the accuracy.",
        "minimize",
        {loss: LOSSES[loss].words for loss in (*CLASS_LOSSES, *NUMBER_LOSSES)},
        _solvers,
        lambda case: Fit(l2_goal(case.goal), rows.rows_of(case.data), defaults=False),
        (1e-2, 1e-3, 1e-4, 1e-6),
        1e-3,
    ),
    EVERYDAY: Suite(
        "Everyday fits, with all defaults",
        "Fits of estimators with all their defaults, intercept included; ours are certified to "
        "their default tolerance of 1e-3. Peers have their defaults too, but for what makes their "
        "objective the same. A peer is accurate where its objective is within 1e-3, relative, of "
        "the best value that anybody found.",
        "AcceleGrad",
        {
            "small": "100 rows",
            "text": "binary text",
            "rows": "dense or short rows, two classes, raw and scaled",
            "sparse": "made: 1e5 columns, 23 entries per row",
            "l1": "l1 logistic regression",
            "wide": "Lasso on text",
            "numbers": "regression, raw and scaled",
            "classes": "more than two classes",
            "cv": "cross-validation",
        },
        _everyday,
        lambda case: Fit(GOALS[case.goal], rows.rows_of(case.data)),
        (1e-3,),
        1e-3,
        limits=(60.0, 10.0),
    ),
    FUNCTIONS: Suite(
        "Functions of the user's own: calls and seconds",
        "Convex functions with exact values and (sub)gradients. An accuracy of 1e-4 means f - f* "
        "<= 1e-4 (f(x0) - f*), penalty included, at a point of the set that the method evaluated, "
        "whatever it returns. A call is one value with one gradient. Nothing is tuned, but "
        "AC-FGM and the universal method are given the accuracy.",
        "auto",
        dict.fromkeys(get_args(Kind), "functions"),
        _functions,
        lambda case: FunctionContest(SUITE[case.data]),
        ACCURACIES,
        1e-4,
        ("calls", "seconds", "CPU seconds"),
        (5.0, 0.5),
        proves=False,
    ),
}


SUITES[SHAPES] = replace(
    SUITES[EVERYDAY],
    title="Fits of random shapes, with all defaults",
    groups={name: entry.words for name, entry in LOSSES.items()},
    cases=_shapes,
    open=lambda case: Shape.draw(*map(int, case.data.split()[0].split("-"))).fit(),
)


def chosen_cases(asked: Request) -> list[Case]:
    """Return the cases whose data are there.

    `only` names groups, sets (or functions) and goals. Several of one kind are alternatives; a case
    has to fit one of each kind that is named.
    """
    found, only = list(SUITES[asked.suite].cases(asked)), asked.only
    kinds = [set().union(*(case.names[kind] for case in found)) for kind in range(3)]
    known = set().union(*kinds)
    for name in only:
        if name not in known:
            raise ValueError(f"there is no group, set or goal {name!r}: {nearest(name, known)}")
    wanted = [names & set(only) for names in kinds]
    return [
        case
        for case in found
        if all(not names or names & own for names, own in zip(wanted, case.names, strict=True))
    ]


def solvers_of(case: Case, problem: Any, wanted: Sequence[str] = ()) -> list[str]:
    """Return who takes part in a case, ours first; `wanted` are the others asked for."""
    suite = SUITES[case.suite]
    names = [name for name, peer in PEERS.items() if case.suite in peer.suites]
    for name in wanted:
        if name not in names:
            raise ValueError(f"there is no solver {name!r}: {nearest(name, names)}")
    return [
        name
        for name in sorted(names, key=lambda name: name != suite.ours)
        if (name == suite.ours or not wanted or name in wanted)
        and (case.key in COLD or not PEERS[name].cold)
        and not PEERS[name].reason_against(problem)
    ]
