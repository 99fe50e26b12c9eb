"""A robust regression on raw columns, in scikit-learn's manner, that says how good its fit is."""

import numpy as np
from sklearn.model_selection import train_test_split

from accelegrad.sklearn import AcceleGradRegressor, AcceleGradRegressorCV


def main():
    rng = np.random.default_rng(0)
    scales = np.array([1.0, 1e3, 1e-2, 50.0, 1.0])  # nothing is standardised
    X = rng.standard_normal((2000, 5)) * scales
    y = X @ (np.array([3.0, -2.0, 0.0, 1.0, 0.0]) / scales) + rng.standard_t(2, 2000)
    learnt, tested, y_learnt, y_tested = train_test_split(X, y, random_state=0)

    median = AcceleGradRegressor("absolute_error", alpha=1e-6).fit(learnt, y_learnt)
    print("coefficients in units of the columns:", np.round(median.coef_ * scales, 1) + 0.0)
    error = np.abs(median.predict(tested) - y_tested).mean()
    print(f"mean absolute error on new rows: {error:.1f}")
    relative = median.gap_ / median.objective_
    print(f"no coefficients are better by more than {100 * relative:.2f} %: {relative <= 1e-3}")

    upper = AcceleGradRegressor("quantile", quantile=0.9, alpha=1e-6).fit(learnt, y_learnt)
    print(f"{100 * np.mean(y_tested < upper.predict(tested)):.0f} % of new rows lie below the "
          "fitted 90 % quantile")  # fmt: skip

    chosen = AcceleGradRegressorCV("huber", alphas=[1.0, 1e-2, 1e-4, 1e-6], cv=3)
    chosen.fit(learnt, y_learnt)
    print(
        "every fit of the path met its tolerance:",
        bool((chosen.gaps_ <= 1e-3 * chosen.objectives_).all()),
    )


if __name__ == "__main__":
    main()
