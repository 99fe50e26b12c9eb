"""The estimators' parameters: type, default and description of each.

Estimators are dataclasses, whose constructors store the fields unchanged, as scikit-learn requires.
`documented` writes the descriptions into the docstrings.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import KW_ONLY, Field, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

#: What `fit` sets in all estimators beside coefficients.
FITTED = """\
objective_ : float
    The objective at the coefficients, the one that was minimised: the mean loss, in the units of
    the targets, plus the penalty. Of one class against the rest, the sum over the classes.
gap_ : float
    No coefficients have an objective below ``objective_ - gap_``: proved, by the fit itself.
certified_radius_ : float
    How far from the start that holds; inf where it holds everywhere.
certificate_ : ModelCertificate or None
    What ``tools/verify.py`` needs besides the data to verify `gap_`; `save` writes it to a file.
converged_ : bool
    Whether `gap_` is within the tolerance; False without one.
method_ : str
    The method that `fit` took.
seconds_ : float
    How long it took to solve, without checking the data.
n_iter_ : int
    The iterations that were done; of one class against the rest, the most of any class.
n_samples_seen_ : int
    The rows with weight that the coefficients were learnt from, all in all.
weight_seen_ : float
    The weight of these rows.
n_features_in_ : int
    The number of columns.
feature_names_in_ : array of str
    The columns' names, where X had some."""
#: What `fit` sets in regressors.
TARGET_SCALE = """\
target_scale_ : float, or array of shape (n_outputs,)
    The scale of the targets in which `alpha`, `epsilon` and `delta` are meant: what `target_scale`
    is, or was found to be; 1.0 for "squared_error"."""
#: What `partial_fit` does.
PARTIAL_FIT = """\
AcceleGrad's state goes on from call to call. `gap_` is inf after it, for nobody has seen
the whole. The first 300 rows of a stream count as one chunk, however they come, and should
be typical. After `fit` the coefficients count as much as the rows they were learnt from; so
they do where `set_params` has changed what is minimised, or the diameter, which begins a
new stream. Rows without weight are no rows."""

Described = TypeVar("Described", bound=Callable[..., Any])


def parameter(default: Any, kind: str, words: str) -> Any:
    """Return a dataclass field with the type (`kind`) and description (`words`) of a parameter."""
    return field(default=default, metadata={"kind": kind, "words": words})


def documented(**texts: str) -> Callable[[Described], Described]:
    """Return a decorator that replaces each docstring line ``{name}`` by the text of that name.

    In an estimator, ``{parameters}`` becomes the descriptions of its fields.
    """

    def fill(described: Described) -> Described:
        known = dict(texts)
        if is_dataclass(described):
            known["parameters"] = "\n".join(map(_description, fields(described)))
        for name, text in known.items():
            line = re.compile(rf"^( *)\{{{name}\}}$", re.MULTILINE)
            # `python -OO` leaves no docstrings.
            before, *found = line.split(described.__doc__ or "", maxsplit=1)
            if found:
                described.__doc__ = before + textwrap.indent(text, found[0]) + found[1]
        return described

    return fill


def _description(parameter: Field[Any]) -> str:
    default = parameter.default
    shown = f'"{default}"' if isinstance(default, str) else default
    kind, words = parameter.metadata["kind"], parameter.metadata["words"]
    # Lines of code have 100 characters, of which docstrings indent eight.
    words = textwrap.fill(words, 92, break_long_words=False, break_on_hyphens=False)
    return f"{parameter.name} : {kind}, default {shown}\n{textwrap.indent(words, ' ' * 4)}"


@dataclass(eq=False, repr=False)
class Parameters:
    """The parameters of all estimators."""

    loss: str  # classifiers and regressors have losses, and defaults, of their kind
    _: KW_ONLY
    penalty: str | None = parameter(
        "l2",
        '{"l2", "l1", "elasticnet"} or None',
        r":math:`R(w)` is :math:`\lVert w\rVert^2/2`, :math:`\lVert w\rVert_1`, or with "
        r":math:`\rho` = `l1_ratio` :math:`\rho\lVert w\rVert_1 + (1-\rho)\lVert w\rVert^2/2`. "
        "The intercept is never penalised.",
    )
    l1_ratio: float = parameter(0.15, "float", 'The l1 share of "elasticnet".')
    fit_intercept: bool = parameter(True, "bool", "Whether there is an intercept.")
    feasible_set: Any = parameter(
        None,
        '{"nonnegative", "simplex"}, set or None',
        "A set of `accelegrad` in which the coefficients (of each class, without the intercepts) "
        "have to lie: ``accelegrad.Box(lower, upper)``, ``accelegrad.L1Ball(radius)``...",
    )
    max_iter: int = parameter(10_000, "int", "The largest number of iterations.")
    tol: float | None = parameter(
        1e-3,
        "float or None",
        "Stop when the certified gap is at most `tol` times the objective (or a thousandth of the "
        "loss of a constant prediction, where that is larger). None: do `max_iter`.",
    )
    batch_size: int | str = parameter(
        "auto",
        '"auto" or int',
        '"auto" leaves the choice to `minimize`; a number makes all steps stochastic, each from '
        "this many rows, or from all if there are fewer. In `partial_fit`, "
        '"auto" is 16.',
    )
    diameter: float | str = parameter(
        "auto",
        '"auto" or float',
        "The diameter of a ball around the start that holds a minimiser, if you know one.",
    )
    average: bool | str = parameter(
        "auto",
        '"auto" or bool',
        'Whether the average of the iterates is returned. "auto": the best point, or the average '
        "of a stochastic run or stream.",
    )
    early_stopping: bool = parameter(
        False,
        "bool",
        "Stop when the mean loss of a held-out part of the rows no longer falls. "
        "(Stopping on the certified gap is what `tol` does, always.) That is no convergence: see "
        "`converged_`.",
    )
    validation_fraction: float = parameter(
        0.1, "float", "The share of the rows that is held out for `early_stopping`."
    )
    n_iter_no_change: int = parameter(
        5,
        "int",
        "How many looks at the held-out loss without a fall end the run; with `batch_size`, how "
        "many passes over the rows.",
    )
    random_state: Any = parameter(
        None,
        "int, RandomState or None",
        "For minibatches and held-out rows. None is a fixed seed: the same call gives the same "
        "model.",
    )
    verbose: int = parameter(0, "int", "Above 0: a progress bar.")
