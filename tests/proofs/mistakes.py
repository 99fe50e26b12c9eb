"""Deliberate mistakes in every bound of the product, and how soon the fuzz finds them.

    python tests/proofs/mistakes.py [--seconds 60] [NAME ...]

Each line of the table names a function of the product and what is put in its place, made from the
original. One that is not found within a minute is a weakness of the fuzz. The exit code is 1 then.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

if __name__ == "__main__":  # a script's own folder: its modules are those of the package `proofs`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from accelegrad.models.multinomial import softmax
from proofs.fuzz import check_of, guarded

#: Of the kinds of findings: those that say that a proof is wrong.
PROVED_FALSE = ("false", "below the bound", "refuted", "too small")

Original = Callable[..., Any]
Change = Callable[[Original], Original]


def after(fix: Callable[[Any], Any]) -> Change:
    return lambda original: lambda *a, **k: fix(original(*a, **k))


def meanwhile(owner: Callable[..., Any], name: str, value: Callable[[Any], Any]) -> Change:
    """The function, while an attribute of `owner(*arguments)` has another value."""

    def change(original: Original) -> Original:
        def changed(*a: Any, **k: Any) -> Any:
            one = owner(*a)
            kept = getattr(one, name)
            setattr(one, name, value(kept))
            got = original(*a, **k)
            setattr(one, name, kept)
            return got

        return changed

    return change


def first(fix: Callable[[Any], Any]) -> Change:
    return after(lambda got: (fix(got[0]), *got[1:]))


def times(factor: float) -> Callable[[Any], Any]:
    return lambda got: factor * got


def higher(got: Any) -> Any:
    """A number plus 0.1 % of its size: a lower bound that claims too much."""
    return got + 1e-3 * abs(got)


def a_tenth_of_the_gap(result: Any) -> Any:
    """The lower bound of a result is raised by so much."""
    result["lower_bound"] += 0.1 * (result.fun - result.lower_bound)
    return result


def always(value: Any) -> Change:
    """Always the same result."""
    return lambda original: lambda *a, **k: value


def wrong_sign_of_allowance(original: Original) -> Original:
    """The allowance for rounding raises the bound."""

    def change(self: Any, *a: Any, **k: Any) -> Any:
        original(self, *a, **k)
        self._growth = -8 * self._growth

    return change


def sums_too_high(original: Any) -> Any:
    """The sums at a point have a level that is 0.1 % too high."""

    def change(cls: Any, *a: Any) -> Any:
        sums = original.__func__(cls, *a)
        return replace(sums, level=1.001 * sums.level)

    return classmethod(change)


#: The sums of slopes have a level that is 0.1 % too high.
level_too_high = after(
    lambda known: known._replace(slopes=replace(known.slopes, level=1.001 * known.slopes.level))
)
#: The cut of f is taken from the value of f + phi.
penalty_counted_twice = meanwhile(lambda self, at, weight: at, "penalty", lambda kept: 0.0)
#: The average is divided by a sum of weights that is too small.
weight_too_small = meanwhile(
    lambda self: self, "_sum", lambda kept: kept._replace(weight=0.999 * kept.weight)
)
#: What is proved within 0.99 R is claimed within R, by a single cut and by the best average.
radius_too_small = meanwhile(lambda self, *a: self, "radius", lambda kept: 0.99 * kept)
average_in_smaller_ball = meanwhile(
    lambda self, *a: self.region, "radius", lambda kept: 0.99 * kept
)


def bound_kept_when_widened(original: Original) -> Original:
    def change(self: Any, radius: float) -> None:
        before = self.lower_bound
        original(self, radius)
        self.lower_bound = max(self.lower_bound, before)

    return change


def slack_dropped(original: Original) -> Original:
    """The Lagrangian of the ball without its term of the ball."""

    def change(self: Any, gradient: Any, point: Any, away: float, step: float) -> Any:
        bound, size = original(self, gradient, point, away, step)
        return bound - (away - self.radius) * (away + self.radius) / (2 * step), size

    return change


def norm_too_small(original: Original) -> Original:
    return lambda level, norm, *a: original(level, 0.999 * norm, *a)


def not_projected(original: Original) -> Original:
    return lambda self, theta, *a: theta


def clipped_only(original: Original) -> Original:
    """Slopes are brought into the domain one by one, which unbalances them."""
    return lambda self, theta: (np.clip(self.space.project(theta), self.low, self.high), 1.0)


def softmax_alone(original: Original) -> Original:
    """Distributions are those of the margins, whatever the classes' shares of the rows are."""
    return lambda self, margins: softmax(margins)[0]


def mean_changed(fix: Callable[..., tuple[Any, Any]]) -> Change:
    """Another slope, or other numbers, of the mean of kept cuts."""
    return after(lambda found: None if found is None else fix(found[0], *found[1]))


level_of_mean_raised = mean_changed(
    lambda slope, level, *more: (slope, (level + 1e-9 * more[2], *more))
)
#: The weights of kept cuts add up to 0.999, and nobody divides by that.
not_normalised = mean_changed(lambda slope, level, *more: (0.999 * slope, (0.999 * level, *more)))


class Mistake(NamedTuple):
    """Where, and what is done there."""

    where: str  # module:attribute, below accelegrad
    change: Change
    note: str = ""
    also: tuple[Mistake, ...] = ()  # what else is done, where a guard would catch this alone

    @property
    def name(self) -> str:
        return f"{self.where} {self.note}".strip()


SETS, PENALTIES, REGION = "geometry.sets:", "geometry.penalties:", "proofs.cuts:Region."
CUTS, MEMORY = "proofs.cuts:CutCertificate.", "bundle.cut_memory:CutMemory."
FENCHEL, DUAL, NULL = "proofs.fenchel:", "proofs.model_dual:ModelDual.", "proofs.null_space:"
CLASSES = "proofs.multinomial_dual:"
#: Lower bounds that are 0.1 % too high
TOO_HIGH = (
    *(f"{SETS}{name}.linear_minimum" for name in ("Ball", "Box", "Simplex", "L1Ball")),
    *(f"{SETS}{name}.linear_minimum" for name in ("Halfspace", "Affine", "Product")),
    *(f"{SETS}{name}.linear_minimum_in_ball" for name in ("FeasibleSet", "Halfspace", "Affine")),
    f"{SETS}FeasibleSet._dual_bound",
    "geometry.polyhedron:Polyhedron.linear_minimum",
    "proofs.model_dual:LateBound.__call__",
    *(f"{FENCHEL}{name}" for name in ("scaled_bound", "Terms.lower_bound")),
    *(f"{FENCHEL}Terms.{name}" for name in ("_separable_least", "_least_in_set")),
    *(f"{DUAL}{name}" for name in ("at_slopes", "at", "bound")),
    *(f"{NULL}DualBounds._value", f"{CLASSES}MultinomialDual.at"),
)
#: Those that come first in a tuple
FIRST_TOO_HIGH = (
    *("geometry.polyhedron:_row_terms", f"{FENCHEL}level"),
    *(f"{REGION}minimum", f"{REGION}minimum_with_penalty"),
)
#: Distances that are too small by 0.1 %
TOO_SHORT = (
    *(f"{SETS}Affine._neglected", f"{DUAL}distance_bound"),
    *(
        f"{PENALTIES}{name}.{function}"
        for name in ("L1", "ElasticNet", "GroupL2", "NuclearNorm")
        for function in ("level_radius", "prox")
    ),
)
FORGOTTEN = Mistake(f"{NULL}NullSpace.largest_imbalance", always(0.0))
FREE_INTERCEPT = Mistake(f"{FENCHEL}Terms._least_with_intercept", always(0.0))
FREE_CLASSES = Mistake(f"{CLASSES}MultinomialDual._imbalance_cost", always(0.0))

MISTAKES = [
    *(Mistake(where, after(higher), "0.1 % too high") for where in TOO_HIGH),
    *(Mistake(where, first(higher), "0.1 % too high") for where in FIRST_TOO_HIGH),
    *(Mistake(where, after(times(0.999)), "0.1 % too short") for where in TOO_SHORT),
    *(
        Mistake(f"{SETS}{name}.diameter_for", after(times(0.99)), "1 % too small")
        for name in ("FeasibleSet", "Box", "Simplex")
    ),
    Mistake(f"{PENALTIES}Penalty.affine_minorant", first(times(1.001)), "slope 0.1 % too steep"),
    # Of a norm no bound uses the value.
    Mistake(f"{PENALTIES}ElasticNet.value", after(times(1.001)), "0.1 % too large"),
    Mistake(f"{REGION}minimum", first(times(-1.0)), "wrong sign"),
    Mistake(f"{REGION}minimum", radius_too_small, "1 % smaller ball"),
    Mistake(f"{REGION}minimum_with_penalty", radius_too_small, "1 % smaller ball"),
    Mistake(f"{REGION}_lagrangian", slack_dropped, "term dropped"),
    Mistake(f"{CUTS}__init__", wrong_sign_of_allowance, "allowance with the wrong sign"),
    Mistake(f"{CUTS}_cut", penalty_counted_twice, "penalty counted twice"),
    Mistake(f"{CUTS}widen", bound_kept_when_widened, "old bound kept"),
    Mistake(f"{CUTS}_raise_by_sum", weight_too_small, "weight 0.1 % too small"),
    Mistake(f"{CUTS}raise_by_average", average_in_smaller_ball, "1 % smaller ball"),
    Mistake(f"{MEMORY}mean", level_of_mean_raised, "level 1e-9 too high"),
    Mistake(f"{MEMORY}mean", not_normalised, "weights not normalised"),
    Mistake("proofs.bracket:Bracket.radius_of", always(float("inf")), "claimed everywhere"),
    Mistake("choose:_proven_radius", after(times(0.5)), "half of it"),
    Mistake(f"{FENCHEL}scaled_bound", norm_too_small, "norm 0.1 % too small"),
    Mistake(f"{FENCHEL}Terms._largest_multiple", always(1.0), "no multiple"),
    Mistake(f"{FENCHEL}Terms.balance", always((1.0, 1.0)), "not balanced", (FREE_INTERCEPT,)),
    Mistake(f"{FENCHEL}SlopeSums.at", sums_too_high, "level 0.1 % too high"),
    Mistake("proofs.fenchel:ColumnSums.at", level_too_high, "level 0.1 % too high"),
    Mistake(f"{DUAL}distance_by_gap", after(times(0.5)), "half of it"),
    Mistake("models.losses:Loss.conjugate", after(times(1.001)), "0.1 % too large"),
    Mistake(f"{NULL}NullSpace.project", not_projected, "not projected", (FORGOTTEN,)),
    Mistake(f"{NULL}DualBounds._scaled_down", clipped_only, "clipped", (FORGOTTEN,)),
    Mistake("sklearn.solve:minimize", after(a_tenth_of_the_gap), "a tenth of the gap missing"),
    Mistake("sklearn.objective:Problem.value", after(times(1 + 1e-9)), "1e-9 too large"),
    Mistake(f"{CLASSES}Balance.of", softmax_alone, "left unbalanced", (FREE_CLASSES,)),
]


@contextmanager
def made(mistake: Mistake) -> Iterator[None]:
    with ExitStack() as stack:
        for one in (mistake, *mistake.also):
            stack.enter_context(_put(one))
        yield


@contextmanager
def _put(mistake: Mistake) -> Iterator[None]:
    module, path = mistake.where.split(":")
    owner: Any = importlib.import_module(f"accelegrad.{module}")
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    own = vars(owner)[name]
    setattr(owner, name, mistake.change(own))
    try:
        yield
    finally:
        setattr(owner, name, own)


class Found(NamedTuple):
    """Which case found a mistake, and how soon."""

    check: str
    seed: int
    kind: str
    text: str


def find(mistake: Mistake, seconds: float, first: int = 0, only: str | None = None) -> Found | None:
    """Run cases, with and then without the mistake, until one fails with it alone.

    Seconds are the processor's. `only` names the one check to run, for those who know it.
    """
    own = "estimators" if mistake.where.startswith("sklearn") else only
    names = [own] if own else [*["checks"] * 4, *["parts"] * 4]
    turns = [(name, check_of(name)) for name in names]
    begun = time.process_time()
    for number in itertools.count():
        if time.process_time() - begun > seconds:
            return None
        name, check = turns[number % len(turns)]
        seed = first + number
        with made(mistake):
            kind, _ = guarded(check, seed)
        if any(word in kind for word in PROVED_FALSE) and not guarded(check, seed)[0]:
            took = f"{time.process_time() - begun:5.1f} s, {number + 1} runs"
            return Found(name, seed, kind, f"{took}: {name} {seed}, {kind}")
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="How soon the fuzz finds deliberate mistakes.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("names", nargs="*", help="only those whose name has one of these in it")
    given = parser.parse_args(arguments)
    missed = 0
    for mistake in MISTAKES:
        if given.names and not any(name in mistake.name for name in given.names):
            continue
        try:
            found = find(mistake, given.seconds, given.seed)
        except (AttributeError, ImportError, KeyError) as error:
            missed += 1
            print(f"{mistake.name:75s} NOT THERE any more: adapt the table ({error})", flush=True)
            continue
        missed += found is None
        text = "NOT FOUND" if found is None else found.text
        print(f"{mistake.name:75s} {text}", flush=True)
    print(f"{missed} not found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
