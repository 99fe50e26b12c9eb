"""Which features matter: logistic regression with an l1 term, on data where five of 200 do."""

import numpy as np

import accelegrad as ag


def main():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 200))
    margins = X[:, :5] @ np.array([3.0, -2.0, 2.0, -1.5, 1.0])
    labels = np.where(margins + rng.logistic(size=400) > 0, 1.0, -1.0)

    model = ag.LinearModel(X, labels, "logistic", fit_intercept=True)
    result = ag.minimize(model, penalty=ag.L1(0.04), tol=1e-8, max_iter=10_000)
    weights, intercept = result.x[:-1], result.x[-1]  # the intercept is not penalised

    print(f"{np.count_nonzero(weights)} of {weights.size} weights are not zero:")
    for feature in np.flatnonzero(weights):
        print(f"  feature {feature:3d} {weights[feature]:+.3f}")
    print(f"  intercept   {intercept:+.3f}")
    print(f"Objective {result.fun:.6f}, certified to be within {result.gap:.1e} of the minimum.")
    print(result.message)


if __name__ == "__main__":
    main()
