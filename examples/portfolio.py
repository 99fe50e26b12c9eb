"""A long-only portfolio with the smallest mean absolute deviation: non-smooth, over the simplex."""

import numpy as np

import accelegrad as ag


def main():
    rng = np.random.default_rng(0)
    market = rng.standard_normal((500, 1))
    returns = 0.01 * (market * rng.uniform(0.5, 1.5, 30) + rng.standard_normal((500, 30)))
    centred = returns - returns.mean(axis=0)

    def deviation(weights):
        daily = centred @ weights
        return np.abs(daily).mean(), centred.T @ np.sign(daily) / len(daily)

    start = np.full(30, 1 / 30)
    result = ag.minimize(
        lambda w: tuple(1e3 * part for part in deviation(w)),  # tol is relative to max(1, |f|)
        start,
        feasible_set=ag.Simplex(),
        tol=1e-2,
        max_iter=50_000,
    )
    print(f"equal weights {1e3 * deviation(start)[0]:.2f}, best {result.fun:.2f} (in thousandths)")
    print(f"{result.message} No portfolio is below {result.lower_bound:.2f}.")


if __name__ == "__main__":
    main()
