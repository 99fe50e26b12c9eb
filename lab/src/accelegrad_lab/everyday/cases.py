"""The cases: which goals on which sets, in groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from accelegrad.errors import nearest
from accelegrad_lab.everyday.goals import GOALS
from accelegrad_lab.everyday.rows import NUMBERS, SCALED, SHORT_ROWS, TEXT, is_there

CLASSIFIED = ("hinge", "squared_hinge", "log_loss")
L1 = ("l1 log_loss 0.1", "l1 log_loss 0.01")
LASSO = ("lasso 0.1", "lasso 0.01")
QUADRATIC = ("ridge", *LASSO, "elastic net 0.1", "nonnegative ridge", "nonnegative least squares")
ROBUST = ("huber", "quantile 0.9", "absolute", "epsilon-insensitive")


class Case(NamedTuple):
    """A goal on a set."""

    group: str
    data: str
    goal: str

    @property
    def key(self) -> str:
        """Its name."""
        return f"{self.group}/{self.data}/{self.goal}"

    @property
    def names(self) -> set[str]:
        """By what it may be asked for: its group, its set or its goal."""
        return {self.group, self.data, self.data.removesuffix(SCALED), self.goal}


class Group(NamedTuple):
    """Goals on sets, each with each."""

    name: str
    data: Sequence[str]
    goals: Sequence[str]

    def cases(self) -> Iterator[Case]:
        """Go through the cases, those of a set one after the other."""
        for data in self.data:
            for goal in self.goals:
                yield Case(self.name, data, goal)


def _raw_and_scaled(names: Sequence[str]) -> list[str]:
    return [each for name in names for each in (name, name + SCALED)]


def _scaled(names: Sequence[str]) -> list[str]:
    return [name + SCALED for name in names]


FULL = (
    Group("small", ["breast_cancer-100, scaled"], [*CLASSIFIED, L1[0]]),
    Group("small", ["iris-100"], CLASSIFIED),
    Group("small", ["diabetes-100, scaled"], [*QUADRATIC, *ROBUST]),
    Group("text", TEXT, CLASSIFIED),
    Group("rows", _raw_and_scaled(SHORT_ROWS), CLASSIFIED),
    Group("sparse", ["sparse-1e4", "sparse-1e5", "sparse-5e5"], CLASSIFIED),
    Group("l1", [*TEXT, "spambase, scaled", "a9a", "phishing"], L1),
    Group("wide", TEXT, LASSO),
    Group("numbers", NUMBERS, QUADRATIC),
    Group("numbers", _scaled(NUMBERS), [*QUADRATIC, *ROBUST]),
    Group("classes", ["iris", "digits", *(f"{k}-classes" for k in (3, 10, 30, 100))], CLASSIFIED),
    Group("classes", ["news20"], CLASSIFIED),
    Group("cv", ["breast_cancer, scaled", "digits", "basehock"], ["log_loss CV"]),
    Group("cv", ["spambase, scaled"], ["log_loss CV"]),
    Group("cv", ["diabetes, scaled", "cpusmall, scaled", "casp, scaled"], ["ridge CV", "lasso CV"]),
    Group("cv", ["basehock"], ["lasso CV"]),
)  # fmt: skip
QUICK = (
    Group("small", ["breast_cancer-100, scaled"], ["hinge", "log_loss"]),
    Group("small", ["diabetes-100, scaled"], ["ridge", "lasso 0.1"]),
    Group("text", ["text-small"], CLASSIFIED),
    Group("rows", ["breast_cancer, scaled", "classes-small"], CLASSIFIED),
    Group("l1", ["text-small", "classes-small"], ["l1 log_loss 0.1"]),
    Group("wide", ["text-small"], ["lasso 0.1"]),
    Group("numbers", ["numbers-small"], ["ridge", "lasso 0.1", "nonnegative ridge"]),
    Group("numbers", ["numbers-small, scaled"], [*QUADRATIC, *ROBUST]),
    Group("classes", ["iris", "digits", "5-classes-small"], ["log_loss", "hinge"]),
    Group("cv", ["breast_cancer, scaled"], ["log_loss CV"]),
    Group("cv", ["diabetes, scaled"], ["ridge CV", "lasso CV"]),
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

WORDS: Mapping[str, str] = {
    "small": "100 rows",
    "text": "binary text",
    "rows": "dense or short rows, two classes, raw and scaled",
    "sparse": "made: 1e5 columns, 23 entries a row",
    "l1": "l1 logistic regression",
    "wide": "Lasso on text",
    "numbers": "regression, raw and scaled",
    "classes": "more than two classes",
    "cv": "cross-validation",
}
"""The groups, in words."""


def cases(only: Sequence[str] = (), *, quick: bool = False) -> list[Case]:
    """Return the cases whose data are there.

    Parameters
    ----------
    only : sequence of str
        Names of groups, sets or goals. Several of one kind are alternatives; a case has to fit one
        of each kind that is named.
    quick : bool
        Small cases of data that are everywhere.
    """
    found = [case for group in (QUICK if quick else FULL) for case in group.cases()]
    known = set().union(*(case.names for case in found))
    for name in only:
        if name not in known:
            raise ValueError(f"there is no group, set or goal {name!r}: {nearest(name, known)}")
    kinds = [{name for name in only if name in WORDS}, {name for name in only if name in GOALS}]
    kinds.append(set(only) - kinds[0] - kinds[1])
    return [
        case
        for case in found
        if is_there(case.data) and all(not kind or kind & case.names for kind in kinds)
    ]
