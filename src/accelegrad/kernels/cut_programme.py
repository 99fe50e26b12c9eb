"""The small quadratic programme of a bundle method: see `accelegrad.bundle.cut_programme`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from accelegrad.kernels.compile import Call, announces, compiled, kernel, summing

#: No share of a step is divided by less.
SMALLEST = 1e-300


@summing
def _product(one: Any, other: Any, n: int) -> Any:
    """Return the product of the first entries of two vectors."""
    total = 0.0
    for i in range(n):
        total += one[i] * other[i]
    return total


@compiled
def _add(target: Any, factor: float, vector: Any, n: int) -> None:
    """Add a multiple of the first entries of a vector."""
    for i in range(n):
        target[i] += factor * vector[i]


@compiled
def _solve(
    factor: Any, active: Any, linear: Any, constant: float, solved: Any, first: int, n: int
) -> None:
    """Solve with the factor, for minus the linear term and for ones, from one entry on."""
    for i in range(first, n):
        row = factor[i]
        least = constant - linear[active[i]]
        solved[0, i] = (least - _product(row, solved[0], i)) / row[i]
        solved[1, i] = (1.0 - _product(row, solved[1], i)) / row[i]


@compiled
def _find_best(factor: Any, solved: Any, best: Any, n: int, total: float) -> bool:
    """Find the best weights of the active vectors, of any sign, that add up to a total.

    Say whether there are any.
    """
    square = _product(solved[1], solved[1], n)
    if not (square > 0.0 and math.isfinite(square)):
        return False
    share = (total - _product(solved[1], solved[0], n)) / square
    for i in range(n):
        best[i] = solved[0, i] + share * solved[1, i]
    for i in range(n - 1, -1, -1):
        best[i] /= factor[i, i]
        _add(best, -best[i], factor[i], i)
    return math.isfinite(_product(best, best, n))


@compiled
def _entering(
    K: Any, linear: Any, constant: float, active: Any, best: Any, reduced: Any, n: int, numbers: Any
) -> int:
    """Return the vector that lowers the sum most when it enters, -1 if there is none."""
    m = linear.size
    for j in range(m):
        reduced[j] = linear[j] - constant
    for i in range(n):
        _add(reduced, best[i], K[active[i]], m)
    level = 0.0
    for i in range(n):
        level += reduced[active[i]] * best[i]
    lowest = 0
    for j in range(m):
        if reduced[j] < reduced[lowest]:
            lowest = j
    enough = level - numbers[3] * (abs(level) + numbers[4])
    return lowest if reduced[lowest] < enough else -1


@compiled
def _enter(K: Any, active: Any, factor: Any, entering: int, n: int, numbers: Any) -> None:
    """Add a row to the factor."""
    row = factor[n]
    for i in range(n):
        entry = K[entering, active[i]] + numbers[0]
        row[i] = (entry - _product(factor[i], row, i)) / factor[i, i]
    size = (K[entering, entering] + numbers[0]) * (1.0 + numbers[1])
    square = size - _product(row, row, n)
    row[n] = math.sqrt(max(square, 1e-2 * numbers[1] * size, numbers[2]))
    active[n] = entering


@compiled
def _remove(factor: Any, place: int, n: int, turns: Any) -> None:
    """Remove a row of the factor by rotations of its columns; the last becomes the identity's."""
    for i in range(place + 1, n):
        old, new = factor[i], factor[i - 1]
        for j in range(place):
            new[j] = old[j]
        carried = old[place]
        for j in range(place, i - 1):
            entry = old[j + 1]
            new[j] = turns[0, j] * carried + turns[1, j] * entry
            carried = turns[0, j] * entry - turns[1, j] * carried
        length = math.hypot(carried, old[i])
        turns[0, i - 1], turns[1, i - 1] = carried / length, old[i] / length
        new[i - 1] = length
        new[i] = 0.0
    for j in range(n - 1):
        factor[n - 1, j] = 0.0
    factor[n - 1, n - 1] = 1.0


@compiled
def _move(weights: Any, active: Any, best: Any, n: int) -> bool:
    """Go towards the best weights until the first one is zero; say whether others are not."""
    share, first = math.inf, 0
    for i in range(n):
        if best[i] <= 0.0:
            old = weights[active[i]]
            longest = old / max(old - best[i], SMALLEST)
            if longest < share:
                share, first = longest, i
    share = min(share, 1.0)
    left = False
    for i in range(n):
        old = weights[active[i]]
        best[i] = 0.0 if i == first else max(old + share * (best[i] - old), 0.0)
        left = left or best[i] > 0.0
    if left:
        for i in range(n):
            weights[active[i]] = best[i]
    return left


@kernel
def improve(
    K: Any,
    linear: Any,
    weights: Any,
    active: Any,
    n: int,
    factor: Any,
    numbers: Any,
    most_changes: int,
) -> int:
    """Improve the weights, in place, and return how many vectors are active then.

    Parameters
    ----------
    K : array of shape (m, m) or with more columns
        The Gram matrix.
    linear, weights : arrays of shape (m,)
        The linear term, and the weights to begin with.
    active : array of int, of shape (k,)
        The numbers of the active vectors, the first n; at least `most_changes` more fit in.
    n : int
        How many they are.
    factor : array of shape (k, k)
        The lower Cholesky factor of the active part of K plus numbers[0], and of the identity.
    numbers : tuple of five floats
        What is added to K, what to its diagonal as a share of it, the smallest number; and a vector
        enters if that lowers the sum by this share of its terms, and of the last number.
    most_changes : int
        How many vectors may enter or leave.
    """
    rows = factor.shape[0]
    solved, turns = np.empty((2, rows)), np.empty((2, rows))
    best, reduced = np.empty(rows), np.empty(linear.size)
    # As weights add up to 1, a constant may be taken off; a large one would take all digits.
    constant = linear[active[0]]
    for i in range(n):
        constant = min(constant, linear[active[i]])
    _solve(factor, active, linear, constant, solved, 0, n)
    for _ in range(most_changes):
        if not _find_best(factor, solved, best, n, 1.0):
            break
        least = best[0]
        for i in range(n):
            least = min(least, best[i])
        if least > 0.0:
            for i in range(n):
                weights[active[i]] = best[i]
            entering = _entering(K, linear, constant, active, best, reduced, n, numbers)
            if entering < 0 or weights[entering] > 0.0:
                break
            _enter(K, active, factor, entering, n, numbers)
            n += 1
            _solve(factor, active, linear, constant, solved, n - 1, n)
            continue
        if not _move(weights, active, best, n):
            break
        first = n
        for place in range(n - 1, -1, -1):
            if not weights[active[place]] > 0.0:
                _remove(factor, place, n, turns)
                for i in range(place, n - 1):
                    active[i] = active[i + 1]
                n, first = n - 1, place
        _solve(factor, active, linear, constant, solved, first, n)
    return n


@kernel
def correct(factor: Any, active: Any, slopes: Any, weights: Any) -> bool:
    """Correct the weights, in place, by slopes along the vectors; say whether that was possible.

    Parameters
    ----------
    factor, weights : arrays
        As above.
    active : array of int, of shape (n,)
        The numbers of the active vectors.
    slopes : array of shape (m,)
        How the sum grows with each weight.
    """
    n = active.size
    solved, change = np.empty((2, n)), np.empty(n)
    _solve(factor, active, slopes, 0.0, solved, 0, n)
    if not _find_best(factor, solved, change, n, 0.0):
        return False
    total = 0.0
    for i in range(n):
        change[i] += weights[active[i]]
        if not change[i] > 0.0:
            return False
        total += change[i]
    for i in range(n):
        weights[active[i]] = change[i] / total
    return True


@announces
def _calls() -> Iterator[Call]:
    """Yield the two calls: all numbers are float64."""
    one = np.ones((1, 1))
    numbers = (1.0,) * 5
    arguments = (one, np.ones(1), np.ones(1), np.zeros(1, np.intp), 1, one.copy(), numbers, 0)
    yield Call("programme of cuts", improve, arguments)
    active = np.zeros(1, np.intp)
    yield Call("weights of cuts", correct, (one, active, np.ones(1), np.ones(1)))
