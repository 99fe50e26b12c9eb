"""Would local steps save round trips? Fits on a cluster with a start by local epochs, and without.

python benchmarks/dask_local_epochs.py [--sets a9a w8a ...] [--blocks 4] [--epochs 5 20]

In a round each block goes on by itself from the same point, by L-BFGS steps on its mean loss with
the l2 term, corrected by a linear term so that its gradient there is that of all rows (Shamir,
Srebro, Zhang, "Communication-efficient distributed optimization using an approximate Newton-type
method", 2014). The mean of what the blocks find is the next point, or one on the way to it, if the
objective is lower there. `minimize` goes on from the last one, and certifies it. Passes over the
rows are counted that compute gradients; "start" are the round trips before `minimize`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from dask import delayed
from distributed import Client
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag
from accelegrad.dask import RowModel
from accelegrad.files import datasets

SETS = ["a9a", "w8a", "spambase", "mushrooms", "rcv1_subsets_binary"]
ROUNDS = 30
STEPS = (1.0, 0.3, 0.1, 0.03)  # shares of the way to the mean that are tried


def counted(model: RowModel) -> Counter[str]:
    """Return how often sums of each name are asked for, from now on."""
    names: Counter[str] = Counter()
    total = model.cluster.total

    def noted(name: str, *arguments: Any, **options: Any) -> Any:
        names[name] += 1
        return total(name, *arguments, **options)

    model.cluster.total = noted  # type: ignore[method-assign]
    return names


def local_point(
    part: Any, w: np.ndarray, l2: float, gradient: np.ndarray, passes: int
) -> tuple[np.ndarray, float, float]:
    """Return where a block's steps end, its share of the weights, and passes, times that share."""
    model = part.rows
    share = float(model.shares.sum())
    linear = gradient - model.gradient(w) / share - l2 * w

    def corrected(v: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = model.value_and_gradient(v)
        value = value / share + float(linear @ v) + 0.5 * l2 * float(v @ v)
        return value, slope / share + linear + l2 * v

    options = {"maxfun": passes, "maxiter": passes}
    found = scipy_minimize(corrected, w, jac=True, method="L-BFGS-B", options=options)
    return share * found.x, share, share * found.nfev


def local_start(model: RowModel, epochs: int, rtol: float) -> tuple[np.ndarray, float]:
    """Return a point to start from, and the local passes that it took."""
    at, passes = model.at(np.zeros(model.n_parameters)), 0.0
    for _ in range(ROUNDS):
        gradient = at.gradient
        if float(gradient @ gradient) <= 2.0 * model.l2 * rtol * at.value:
            break
        arguments = (at.w, model.l2, gradient, epochs)
        points, share, made = model.cluster.total("local-epochs", local_point, *arguments)
        passes += made
        mean = model.at(points / share)
        on_the_way = (mean if t == 1.0 else model.between(at, mean, t) for t in STEPS)
        lower = next((point for point in on_the_way if point.value < at.value), None)
        if lower is None:
            break
        at = lower
    return at.w, passes


def fits(blocks: list[Any], l2: float, rtol: float, epochs: list[int]) -> Iterator[str]:
    """Yield what fits take: round trips before `minimize`, round trips, and passes."""
    for count in (0, *epochs):
        model = RowModel(blocks, l2=l2)
        names, before = counted(model), model.cluster.round_trips
        x0, local = local_start(model, count, rtol) if count else (None, 0.0)
        start = model.cluster.round_trips - before
        result = ag.minimize(model, x0=x0, rtol=rtol, rng=0)
        trips = model.cluster.round_trips - before
        passes = names["value-and-gradient"] + local
        yield f"{start:5d} {trips:5d} {passes:6.0f}{' ' if result.success else '!'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--epochs", type=int, nargs="+", default=[5, 20])
    given = parser.parse_args()
    forms = ["plain", *(f"{k} local epochs" for k in given.epochs)]
    print("start, round trips and passes of " + "; ".join(forms))
    options = {"processes": False, "n_workers": 2, "threads_per_worker": 1}
    with Client(**options, dashboard_address=":0"):
        for name in given.sets:
            path = datasets.find(name)
            if path is None:
                print(f"{name} is not in ACCELEGRAD_DATA")
                continue
            data = datasets.read(path)
            order = np.random.default_rng(0).permutation(data.y.size)
            y = np.where(data.y == data.y.max(), 1.0, -1.0)
            pieces = np.array_split(order, given.blocks)
            blocks = [delayed((data.X[rows], y[rows])) for rows in pieces]
            for l2 in (1e-2, 1e-4):
                for rtol in (1e-3, 1e-6):
                    found = fits(blocks, l2, rtol, given.epochs)
                    print(f"{name:12} l2={l2:g} rtol={rtol:g} |", " | ".join(found), flush=True)


if __name__ == "__main__":
    main()
