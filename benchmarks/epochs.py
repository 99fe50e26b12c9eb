"""Compiled stochastic epochs: against scikit-learn's SGD, against d, and against dense updates.

Run: python benchmarks/epochs.py [--repeat 15] [--quick]. Ratios are of times taken in the same run:
the candidates take turns, and the least processor time of each counts, so that other work on the
machine disturbs little. RCV1 is read from ACCELEGRAD_DATA, or else text-like data of its size are
generated.

- epoch: one epoch with batches of one row, against one of SGDClassifier(average=True): the time of
  a fit with max_iter=1, and what each further epoch adds to it.
- columns: a step with d = 5e4 and with d = 5e6 columns, the same number of nonzeros in a row. First
  the same data with its columns spread among the others, then data whose columns are drawn anew
  (by Zipf's law, and uniformly), where most of the difference is that they are not in the cache;
  SGDClassifier, with its own two vectors, shows how much. The mean is over all epochs but the
  first, the rare rebases among them.
- dense: a step against the same rule's own update, with dense vectors.
"""

import argparse
import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from threadpoolctl import threadpool_limits

import accelegrad as ag
from accelegrad.files import datasets
from accelegrad.kernels.dense_epochs import DenseEpochs
from accelegrad.kernels.gradient import data
from accelegrad.kernels.loss_shape import LOGISTIC_SHAPE
from accelegrad.kernels.sparse_epochs import SparseEpochs
from accelegrad.lab.engine.timing import in_turns, processor_seconds
from accelegrad.models.squares import row_squares
from accelegrad.rules.distance import SMALLEST_SHARE

EPOCH_LIMIT, COLUMNS_LIMIT, DENSE_LIMIT = 1.2, 1.3, 50.0
DIAMETER = 100.0
SEVERAL = 4  # epochs that a longer fit of SGDClassifier has more than one


def least_times(candidates, repeat):
    """Return the least processor time of each candidate; they take turns."""
    times = in_turns(candidates, repeat, processor_seconds)
    return {name: min(of_one) for name, of_one in times.items()}


def rcv1():
    if datasets.find("rcv1_subsets_binary") is None:
        data = datasets.sparse_text(seed=0)
        return "generated", data.X.tocsr(), data.y
    data = datasets.read(datasets.find("rcv1_subsets_binary"))
    return data.name, data.X.tocsr(), datasets.as_binary(data.y)


def settings(kind):
    """AcceleGrad projects onto a ball, which makes it rebase the most."""
    if kind == "distance_free":
        return {"initial_radius": SMALLEST_SHARE}  # for x0 = 0
    return {"diameter": DIAMETER, "ball_radius": DIAMETER / 2 if kind == "accelegrad" else np.inf}


def epochs_on(X, kind, y, l2):
    """Return the compiled epochs of a rule from zero, with an intercept."""
    rows, start = data(X, y, None, LOGISTIC_SHAPE), np.zeros(X.shape[1] + 1)
    given = {"l2": l2, "fit_intercept": True, **settings(kind)}
    if isinstance(X, np.ndarray):
        return DenseEpochs(kind, rows, start, **given)
    return SparseEpochs(kind, rows, start, squares=row_squares(X), **given)


def epoch_of(epochs, rng, batch_size=1):
    """Return a function that runs one more epoch; the first is run at once."""

    def run():
        epochs.advance(rng.permutation(epochs.n_samples), batch_size)

    run()
    return run


def sgd(X, y, l2, epochs):
    def fit():
        SGDClassifier(
            loss="log_loss", alpha=l2, average=True, max_iter=epochs, tol=None, random_state=0
        ).fit(X, y)

    return fit


def sgd_epoch(times):
    """What an epoch adds to a fit of SGDClassifier."""
    return (times["sgd, longer fit"] - times["sgd, fit"]) / SEVERAL


def epoch_part(repeat):
    name, X, y = rcv1()
    n, d = X.shape
    print(f"\n## An epoch at batch size 1: {name}, {n} x {d}, {X.nnz / n:.0f} nonzeros a row\n")
    rng = np.random.default_rng(0)
    kinds = [
        (kind, l2) for kind in ("accelegrad", "distance_free", "adagrad") for l2 in (0.0, 1 / n)
    ]
    runs = {key: epochs_on(X, key[0], y, key[1]) for key in kinds}
    candidates = {key: epoch_of(run, rng) for key, run in runs.items()}
    batched = epochs_on(X, "distance_free", y, 1 / n)
    candidates["distance_free, batches of 16"] = epoch_of(batched, rng, 16)
    candidates["sgd, fit"] = sgd(X, y, 1 / n, 1)
    candidates["sgd, longer fit"] = sgd(X, y, 1 / n, 1 + SEVERAL)
    times = least_times(candidates, repeat)
    one, fit = sgd_epoch(times), times["sgd, fit"]
    print("| rule | l2 | ms | of SGD's epoch | of SGD's fit | rebases an epoch |")
    print("|---|---|---|---|---|---|")
    for key, run in runs.items():
        rebases = run.numbers["rebases"] / (repeat + 1)
        print(
            f"| {key[0]} | {'1/n' if key[1] else '0'} | {1e3 * times[key]:.1f} "
            f"| {times[key] / one:.2f} | {times[key] / fit:.2f} | {rebases:.1f} |"
        )
    batches = times["distance_free, batches of 16"]
    print(f"| distance_free, b = 16 | 1/n | {1e3 * batches:.1f} | {batches / one:.2f} | | |")
    print(f"| SGDClassifier, average | 1/n | {1e3 * one:.1f} | 1 | {one / fit:.2f} | |")
    worst = max(times[key] / one for key in runs if key[0] != "adagrad")
    report("the slowest epoch of AcceleGrad and the distance-free rule", worst, EPOCH_LIMIT)


def spread(X, d, rng):
    """Return the same data among d columns."""
    places = np.sort(rng.choice(d, X.shape[1], replace=False)).astype(np.int32)
    return sp.csr_matrix((X.data, places[X.indices], X.indptr), shape=(X.shape[0], d))


def random_rows(n, d, nnz, zipf, rng):
    """Return rows with random columns; with Zipf's law the k-th is as frequent as 1/k."""
    u = rng.random((n, nnz))
    ranks = (d**u - 1) * d / (d - 1) if zipf else u * d
    columns = rng.permutation(d).astype(np.int32)[np.minimum(ranks, d - 1).astype(np.int64)]
    columns.sort(axis=1)
    data = rng.standard_normal(n * nnz) / np.sqrt(nnz)
    return sp.csr_matrix((data, columns.ravel(), np.arange(n + 1) * nnz), shape=(n, d))


def columns_part(repeat, wide):
    n, nnz, narrow = 20_000, 75, 50_000
    rng = np.random.default_rng(1)
    print(f"\n## A step with d = {narrow:.0e} and d = {wide:.0e}, {nnz} nonzeros a row\n")
    print("| columns | rule | us, narrow | us, wide | ratio | mean, narrow | mean, wide |")
    print("|---|---|---|---|---|---|---|")
    y = np.where(rng.random(n) > 0.5, 1.0, -1.0)
    worst = 0.0
    for name in ("the same, spread", "Zipf", "uniform"):
        thin = random_rows(n, narrow, nnz, name != "uniform", rng)
        same = name == "the same, spread"
        broad = spread(thin, wide, rng) if same else random_rows(n, wide, nnz, name == "Zipf", rng)
        candidates = {}
        for size, X in (("narrow", thin), ("wide", broad)):
            for kind in ("accelegrad", "distance_free"):
                candidates[kind, size] = epoch_of(epochs_on(X, kind, y, 1 / n), rng)
            candidates["sgd, fit", size] = sgd(X, y, 1 / n, 1)
            candidates["sgd, longer fit", size] = sgd(X, y, 1 / n, 1 + SEVERAL)
        times = in_turns(candidates, repeat, processor_seconds)
        sizes = ("narrow", "wide")
        for rule in ("accelegrad", "distance_free"):
            one, other = (1e6 * min(times[rule, size]) / n for size in sizes)
            means = " | ".join(f"{1e6 * np.mean(times[rule, size]) / n:.2f}" for size in sizes)
            print(f"| {name} | {rule} | {one:.2f} | {other:.2f} | {other / one:.2f} | {means} |")
            worst = max(worst, other / one) if same else worst
        least = {key: min(own) for key, own in times.items()}
        one, other = (
            1e6 / n * sgd_epoch({key[0]: value for key, value in least.items() if key[1] == size})
            for size in sizes
        )
        print(f"| {name} | SGDClassifier | {one:.2f} | {other:.2f} | {other / one:.2f} | | |")
    report("the largest ratio for the same data", worst, COLUMNS_LIMIT)


def rule_of(kind, x0):
    if kind == "distance_free":
        return ag.DistanceFreeAcceleGrad()
    if kind == "adagrad":
        return ag.AdaGrad(DIAMETER)
    return ag.AcceleGrad(DIAMETER, project=ag.Ball(x0, DIAMETER / 2).project)


def updates_of(rule, model, rng, steps):
    """Return a function that does steps of the rule with dense vectors."""
    states = [rule.init(np.zeros(model.n_parameters))]

    def run():
        state = states.pop()
        for row in rng.integers(model.n_samples, size=steps):
            gradient = model.batch_value_and_gradient(rule.query(state), [row])[1]
            state = rule.update(state, gradient)
        states.append(state)

    return run


def dense_part(repeat, steps):
    rng = np.random.default_rng(2)
    wide = random_rows(5000, 50_000, 75, True, rng)
    y = np.where(rng.random(5000) > 0.5, 1.0, -1.0)
    full = rng.standard_normal((5000, 500))
    print("\n## A step against the rule's own update, with dense vectors\n")
    print("| data | rule | us, kernel | us, rule | times faster |")
    print("|---|---|---|---|---|")
    least = np.inf
    for name, X in (("CSR, d = 5e4, 75 nonzeros", wide), ("dense, d = 500", full)):
        for kind in ("accelegrad", "distance_free", "adagrad"):
            model = ag.LinearModel(X, y, l2=1e-4, fit_intercept=True)
            kernel = epochs_on(X, kind, y, 1e-4)
            rule = rule_of(kind, np.zeros(model.n_parameters))
            candidates = {
                "kernel": epoch_of(kernel, rng),
                "rule": updates_of(rule, model, rng, steps),
            }
            times = least_times(candidates, repeat)
            one, other = 1e6 * times["kernel"] / 5000, 1e6 * times["rule"] / steps
            print(f"| {name} | {kind} | {one:.2f} | {other:.1f} | {other / one:.0f} |")
            if X is wide:
                least = min(least, other / one)
    report("the least gain on CSR rows", least, DENSE_LIMIT, at_least=True)


def report(what, found, limit, at_least=False):
    kept = found >= limit if at_least else found <= limit
    bound = "at least" if at_least else "at most"
    print(f"\n{what}: {found:.2f}; wanted: {bound} {limit:g}{'' if kept else ' (MISSED)'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="small data, to see that it runs")
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    repeat = 2 if given.quick else given.repeat
    with threadpool_limits(1):  # processor time would count waiting threads
        epoch_part(repeat)
        columns_part(repeat, wide=200_000 if given.quick else 5_000_000)
        dense_part(repeat, steps=20 if given.quick else 200)


if __name__ == "__main__":
    main()
