"""What rule, loop and certificate cost, as a share of the gradient's time (paper's problem).

Run: python benchmarks/overhead.py [--repeat 9]. Both times are taken in the same run: the function
is timed within the solver, and the rest is what the solver adds. With --fits: the processor time of
small fits with all defaults (100 rows), beside scikit-learn's own and its checks of the data.
"""

import argparse
import statistics
import time
from functools import partial

import numpy as np

import accelegrad as ag
from accelegrad_lab.engine.synthetic import paper_regression

LIMIT = 0.05


class Timed:
    """A function that adds up the time spent in it."""

    def __init__(self, function):
        self.function, self.seconds = function, 0.0

    def __call__(self, x):
        begun = time.perf_counter()
        result = self.function(x)
        self.seconds += time.perf_counter() - begun
        return result


def overhead(problem, diameter, method, iterations, **options):
    """Return (share, microseconds a step that the solver adds, microseconds a gradient)."""
    timed = Timed(problem.fun)
    x0 = np.zeros(problem.A.shape[1])
    begun = time.perf_counter()
    ag.minimize(timed, x0, diameter=diameter, method=method, max_iter=iterations, **options)
    added = time.perf_counter() - begun - timed.seconds
    return added / timed.seconds, 1e6 * added / iterations, 1e6 * timed.seconds / iterations


CLASSES = ("log_loss", "hinge", "squared_hinge", "modified_huber")
NUMBERS = ("squared_error", "absolute_error", "huber", "epsilon_insensitive", "quantile")


def least(call, repeat):
    """Return the least processor time of a call, in milliseconds."""
    call()
    times = []
    for _ in range(repeat):
        begun = time.process_time()
        call()
        times.append(time.process_time() - begun)
    return 1e3 * min(times)


def small_fits(repeat):
    """Print what fits of 100 rows take, in milliseconds."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import validate_data

    from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

    rng = np.random.default_rng(0)
    for columns in (5, 20):
        X = rng.standard_normal((100, columns))
        y = X @ rng.standard_normal(columns) + rng.standard_normal(100)
        labels = (y > 0).astype(int)

        def checked(X=X, y=y):
            validate_data(Ridge(), X, y, accept_sparse="csr")

        def checked_classes(X=X, y=labels):
            validate_data(LogisticRegression(), X, y, accept_sparse="csr")
            check_classification_targets(y)

        fits = {
            "checks of numbers": checked,
            "checks of classes": checked_classes,
            "LogisticRegression": partial(LogisticRegression().fit, X, labels),
            "Ridge": partial(Ridge().fit, X, y),
            **{loss: partial(AcceleGradClassifier(loss=loss).fit, X, labels) for loss in CLASSES},
            **{loss: partial(AcceleGradRegressor(loss=loss).fit, X, y) for loss in NUMBERS},
        }
        for name, fit in fits.items():
            print(f"{columns:>3} columns  {name:<24}{least(fit, repeat):8.2f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--fits", action="store_true", help="small fits instead")
    given = parser.parse_args()
    if given.fits:
        small_fits(given.repeat)
        return
    print(f"{'problem':<10}{'method':<12}{'tol':<6}{'added us':>10}{'gradient us':>13}{'share':>8}")
    worst = 0.0
    for p in (2, 1):
        problem = paper_regression(p, seed=0)
        diameter = 2 * float(np.linalg.norm(problem.x_natural))
        for method in ("accelegrad", "adagrad"):
            for tol in (None, 1e-16):
                runs = [
                    overhead(problem, diameter, method, given.iterations, tol=tol)
                    for _ in range(given.repeat)
                ]
                share, added, gradient = (
                    statistics.median(part) for part in zip(*runs, strict=True)
                )
                worst = max(worst, share)
                name = f"p={p}"
                print(
                    f"{name:<10}{method:<12}{tol or '-'!s:<6}{added:>10.1f}{gradient:>13.1f}"
                    f"{share:>8.1%}"
                )
    print(f"largest share {worst:.1%}; the limit is {LIMIT:.0%}")


if __name__ == "__main__":
    main()
