"""Several quantiles and several outputs at once, and the summary of a fit."""

import re

import numpy as np
import pytest
from sklearn.linear_model import QuantileRegressor, Ridge

from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

RNG = np.random.default_rng(8)
X = RNG.standard_normal((150, 4))
Y = np.column_stack([X @ [1.0, -2.0, 0.5, 0.0], X @ [0.0, 1.0, 1.0, 3.0] + 2.0])
Y += RNG.standard_t(3, size=Y.shape)
LEVELS = [0.1, 0.5, 0.9]


def pinball(level, residual):
    return np.mean(np.where(residual < 0, -level * residual, (1 - level) * residual))


def test_several_quantiles_are_certified_each_and_together():
    several, *singles = (
        AcceleGradRegressor("quantile", quantile=levels, alpha=0.0).fit(X, Y[:, 0])
        for levels in (LEVELS, *LEVELS)
    )
    assert several.coef_.shape == (3, 4)
    np.testing.assert_array_equal(several.coef_, [single.coef_ for single in singles])
    assert several.gap_ == sum(single.gap_ for single in singles)
    assert several.converged_
    # The minimum of the sum, by HiGHS: it is not below what is proved, nor above what was found.
    minimum = 0.0
    for level in LEVELS:
        peer = QuantileRegressor(quantile=level, alpha=0.0, solver="highs").fit(X, Y[:, 0])
        minimum += pinball(level, peer.predict(X) - Y[:, 0])
    rounding = 1e-9 * minimum  # HiGHS's tolerance on feasibility is 1e-7 of the rows' scale at most
    assert several.objective_ - several.gap_ <= minimum + rounding
    assert minimum <= several.objective_ + rounding
    found = several.predict(X) - Y[:, :1]
    values = [pinball(level, found[:, place]) for place, level in enumerate(LEVELS)]
    assert sum(values) == pytest.approx(several.objective_, rel=1e-12)


def test_several_quantiles_have_no_single_score():
    fitted = AcceleGradRegressor("quantile", quantile=[0.1, 0.5, 0.9]).fit(X, Y[:, 0])
    with pytest.raises(ValueError, match=r"quantile=\[0\.1, 0\.5, 0\.9\] predicts 3.*pinball"):
        fitted.score(X, Y[:, 0])
    assert AcceleGradRegressor("quantile", quantile=0.5).fit(X, Y[:, 0]).score(X, Y[:, 0]) > 0.3


def test_quantiles_do_not_cross_on_request():
    far, options = 50.0 * X, {"quantile": [0.45, 0.5, 0.55], "alpha": 0.0}
    plain, sorted_ = (
        AcceleGradRegressor("quantile", non_crossing=given, **options).fit(X[:12], Y[:12, 0])
        for given in (False, True)
    )
    assert (np.diff(plain.predict(far)) < 0).any()  # else this would test nothing
    assert (np.diff(sorted_.predict(far)) >= 0).all()
    np.testing.assert_array_equal(sorted_.predict(far), np.sort(plain.predict(far), axis=1))
    np.testing.assert_array_equal(sorted_.coef_, plain.coef_)


def test_several_outputs():
    several = AcceleGradRegressor(alpha=0.01, tol=1e-9).fit(X, Y)
    assert several.predict(X).shape == Y.shape
    # scikit-learn's Ridge has the sum of squares where we have half their mean.
    peer = Ridge(alpha=0.01 * len(X)).fit(X, Y)
    # A gap of g leaves a distance of sqrt(2 g / alpha) to the coefficients of the minimum.
    distance = np.linalg.norm(several.coef_ - peer.coef_)
    assert distance <= np.sqrt(2 * several.gap_ / 0.01) + 1e-9
    losses = ((several.predict(X) - Y) ** 2).sum(axis=1) / 2
    objective = losses.mean() + 0.005 * (several.coef_**2).sum()
    assert several.objective_ == pytest.approx(objective, rel=1e-12)
    assert several.fit(X, Y[:, 0]).predict(X).shape == (150,)
    one = AcceleGradRegressor().fit(X, Y[:, :1])
    assert one.predict(X).shape == (150, 1)


@pytest.mark.parametrize(
    ("options", "y", "words"),
    [
        ({"quantile": [0.5, 0.1]}, Y[:, 0], "quantile must increase"),
        ({"quantile": []}, Y[:, 0], "quantile must increase"),
        ({"quantile": [0.5, 1.5]}, Y[:, 0], "quantile must be"),
        ({"quantile": [0.1, 0.5], "loss": "huber"}, Y[:, 0], "several are for loss='quantile'"),
        ({"quantile": LEVELS}, Y, r"y must be one-dimensional .* \(150, 2\)"),
    ],
)
def test_what_several_cannot_do(options, y, words):
    with pytest.raises(ValueError, match=words):
        AcceleGradRegressor(**{"loss": "quantile", **options}).fit(X, y)
    with pytest.raises(ValueError, match=r"quantile must|several are for|takes one quantile"):
        AcceleGradRegressor(**{"loss": "quantile", **options}).partial_fit(X, Y[:, 0])
    with pytest.raises(ValueError, match=r"partial_fit takes one output, but .* to 2"):
        AcceleGradRegressor().fit(X, Y).partial_fit(X, Y[:, 0])


def test_the_summary_of_a_fit():
    fitted = AcceleGradRegressor("absolute_error", alpha=0.01).fit(X, Y[:, 1])
    text = str(fitted.summary(top=2))
    facts = dict(re.findall(r"^([a-z ]+?)  +(\S.*)$", text, flags=re.MULTILINE))
    assert text.startswith("AcceleGradRegressor, absolute_error, l2 penalty, alpha 0.01, with int")
    assert float(facts["objective"]) == pytest.approx(fitted.objective_, rel=1e-7)
    shown = float(facts["certified gap"].split()[0])
    assert fitted.gap_ <= shown <= 1.01 * fitted.gap_
    assert facts["method"] == fitted.method_
    assert facts["proved for"] == "all coefficients"
    assert float(facts["seconds"]) == pytest.approx(fitted.seconds_, rel=1e-2)
    lines = text.splitlines()
    assert lines[-3].split() == ["x3", f"{fitted.coef_[3]:+.6g}"]
    assert lines[-1] == "and 2 smaller ones"
    two = AcceleGradClassifier().fit(X, np.where(Y[:, 1] > 0.0, "up", "down"))
    assert "classes        down, up (positive coefficients: up)" in str(two.summary())
    rows = np.random.default_rng(0).standard_normal((360, 3))
    many = AcceleGradClassifier(multi_class="ovr").fit(rows, np.arange(360) % 12)
    text = str(many.summary())
    assert "classes        12: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...\n" in text
    assert max(map(len, text.splitlines())) <= 120
    shown = [abs(row).max() for _, row in many.summary().coefficients]  # all far below 1
    assert shown == sorted(abs(many.coef_).max(axis=0), reverse=True)
    assert shown != list(abs(many.coef_).max(axis=0))
    none = AcceleGradRegressor(penalty="l1", alpha=1e3).fit(X, Y[:, 0])
    assert not none.coef_.any()
    assert str(none.summary()).endswith(f"and {X.shape[1]} that are zero")
