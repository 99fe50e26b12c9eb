"""Early stopping: which rows are held out, by what they are scored, and what is kept."""

import numpy as np
import pytest
from objectives import mean_loss
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor, AcceleGradRegressorCV
from accelegrad.sklearn.solve import looks


def noisy(n_classes):
    """Return rows that a long fit learns by heart: their classes, or numbers for 0 classes."""
    rows = {"n_informative": 5, "flip_y": 0.2, "random_state": 0}
    X, y = make_classification(120, 40, n_classes=n_classes or 2, **rows)
    rng = np.random.default_rng(0)
    return X, y if n_classes else X @ rng.standard_normal(40) + 5.0 * rng.standard_normal(120)


CASES = [  # and the number of classes
    (AcceleGradRegressor(diameter=20.0), 0),
    (AcceleGradRegressor("quantile", quantile=0.8, batch_size=30), 0),
    *((AcceleGradClassifier(alpha=1e-6), n_classes) for n_classes in (2, 3)),
]


@pytest.mark.parametrize(("estimator", "n_classes"), CASES)
def test_a_run_ends_when_its_own_loss_on_held_out_rows_stalls(estimator, n_classes):
    """Longer and longer runs on the rows that are left show what early stopping looked at."""
    X, y = noisy(n_classes)
    classes = y if n_classes else None
    parts = train_test_split(X, y, test_size=30, stratify=classes, random_state=0)
    X_left, X_held, y_left, y_held = parts
    waits = 2
    estimator.set_params(tol=None)
    options = {"early_stopping": True, "validation_fraction": 0.25, "n_iter_no_change": waits}
    early = type(estimator)(**estimator.get_params() | options).fit(X, y)
    assert early.n_samples_seen_ == 90
    losses, seen = [], [steps for steps in looks(10_000) if steps <= early.n_iter_]
    for steps in seen:
        plain = type(estimator)(**estimator.get_params() | {"max_iter": steps})
        losses.append(mean_loss(plain.fit(X_left, y_left), X_held, y_held))
    best = int(np.argmin(losses))
    if estimator.loss == "quantile":  # a pass over 90 rows takes 3 steps
        assert seen[-2] < seen[best] + waits * 3 <= early.n_iter_
    else:
        assert early.n_iter_ == seen[best + waits]
    assert mean_loss(early, X_held, y_held) == pytest.approx(losses[best], rel=1e-9)


@pytest.mark.parametrize("multi_class", ["ovr", "multinomial"])
def test_it_is_no_convergence_and_no_reason_to_warn(multi_class):
    X, y = noisy(3)
    options = {"alpha": 1e-6, "multi_class": multi_class, "tol": 1e-6, "early_stopping": True}
    early, late = (AcceleGradClassifier(**options, n_iter_no_change=n).fit(X, y) for n in (1, 1000))
    assert early.n_iter_ < late.n_iter_
    assert 1e-6 * early.objective_ < early.gap_ < np.inf
    assert not early.converged_
    assert early.objective_ - early.gap_ <= late.objective_  # both bound the same minimum
    with pytest.warns(ConvergenceWarning, match="missed tol=1e-06"):
        AcceleGradClassifier(**options, max_iter=2).fit(X, y)


def test_the_seed_chooses_the_rows():
    X, y = noisy(0)
    fits = [
        AcceleGradRegressor("huber", early_stopping=True, random_state=seed).fit(X, y)
        for seed in (None, None, 7)
    ]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert (fits[0].coef_ != fits[2].coef_).all()
    assert fits[0].target_scale_ != fits[2].target_scale_  # that of the rows that are left


def test_cross_validation_stops_early_too():
    X, y = noisy(0)
    options = {"early_stopping": True, "validation_fraction": 0.3, "n_iter_no_change": 1}
    chosen = AcceleGradRegressorCV(
        "absolute_error", alphas=[100.0, 1.0, 1e-2], cv=2, tol=1e-12, **options
    ).fit(X, y)  # warnings are errors here
    assert not chosen.converged_
    assert chosen.n_samples_seen_ == 84


RARE = (np.arange(120) == 7).astype(int)
OUT_OF_RANGE = [  # rows, targets, parameters, error and words
    (1, None, {}, ValueError, r"early_stopping=True holds back 1 of 1 .*fraction=0.1"),
    (9, np.arange(9) > 3, {}, ValueError, "holds back 1 of 9 .*both parts need at least 2 rows"),
    (120, RARE, {}, ValueError, "a class with a single row cannot be in both parts"),
    (120, None, {"early_stopping": "yes"}, TypeError, "early_stopping must be True or False"),
    (120, None, {"validation_fraction": 1.0}, ValueError, "fraction must be between 0 and 1"),
    (120, None, {"validation_fraction": 0.0}, ValueError, "validation_fraction must be"),
    (120, None, {"n_iter_no_change": 0}, ValueError, "n_iter_no_change must be"),
]


@pytest.mark.parametrize(("n", "targets", "options", "error", "words"), OUT_OF_RANGE)
def test_parts_that_are_too_small_and_parameters_out_of_range(n, targets, options, error, words):
    X, y = noisy(0)
    kind = AcceleGradRegressor if targets is None else AcceleGradClassifier
    with pytest.raises(error, match=words):
        kind(**{"early_stopping": True} | options).fit(X[:n], y[:n] if targets is None else targets)
    AcceleGradRegressor(early_stopping=True).fit(X[:2], y[:2])  # a row has a loss


def test_streams_hold_no_rows_back():
    X, y = noisy(2)
    words = "early_stopping must be False for a stream"
    for kind, more in ((AcceleGradRegressor, {}), (AcceleGradClassifier, {"classes": [0, 1]})):
        estimator = kind(early_stopping=True)
        with pytest.raises(ValueError, match=words):
            estimator.fit((X, y))
        with pytest.raises(ValueError, match=words):
            estimator.partial_fit(X, y, **more)
