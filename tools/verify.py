"""Verify a certificate of accelegrad with NumPy alone: recompute the value and the lower bound.

    python tools/verify.py certificate.npz data.npz                 (arrays X and y)
    python tools/verify.py certificate.npz X.npy y.npy
    python tools/verify.py certificate.npz --function module:name   (returns value and gradient)

Only the data or the function are trusted: any slopes and any multipliers prove some lower bound,
wrong ones a poor one (docs/certificate.md). The gap allows for all rounding errors; with --exact
there are hardly any (50 digits, by mpmath). Without the function its cuts are taken as given.
"""

import argparse
import importlib
import os
import sys
from typing import Any, NamedTuple

import numpy as np

INF, BLOCK = np.inf, 64  # rows that are added one after the other; blocks are added in pairs
SLACK = 1e-12  # how much more than is claimed may be left, relative to the terms
ENDS = ("lower", -INF), ("upper", INF)
FAR = 10.0  # what nothing bounds is searched up to so many times the scale of the data


class Numbers:
    """Float64, or 50 digits in arrays of objects."""

    def __init__(self, exact: bool) -> None:
        self.unit, self.of, functions = 2.0**-52, np.float64, (np.exp, np.log, np.log1p)
        if exact:
            import mpmath as mp

            mp.mp.dps, self.unit, number = 50, mp.mpf(10) ** -48, np.frompyfunc(mp.mpf, 1, 1)
            self.of = lambda x: np.asarray(number(np.asarray(x, dtype=float).astype(object)))
            functions = [np.frompyfunc(f, 1, 1) for f in (mp.exp, mp.log, mp.log1p)]
        self.exp, self.log, self.log1p = functions

    def entropy(self, s: Any) -> Any:
        """Return s log s, 0 at 0."""
        return s * self.log(np.where(s > 0, s, self.of(1.0)))


# All losses but the logistic one are linear outside a flat zone of half width epsilon, rounded off
# by parabolas: the residual's least and largest slope, 1 / curvature, epsilon (p: the parameter).
LABELS = {
    "logistic": lambda p: (-1.0, 0.0, None, 0.0),
    "hinge": lambda p: (-1.0, 0.0, 0.0, 0.0),
    "squared_hinge": lambda p: (-INF, 0.0, 0.5, 0.0),
    "modified_huber": lambda p: (-4.0, 0.0, 0.5, 0.0),
}
TARGETS = {
    "squared": lambda p: (-INF, INF, 1.0, 0.0),
    "absolute": lambda p: (-1.0, 1.0, 0.0, 0.0),
    "huber": lambda p: (-p, p, 1.0, 0.0),
    "quantile": lambda p: (-p, 1 - p, 0.0, 0.0),
    "epsilon_insensitive": lambda p: (-1.0, 1.0, 0.0, p),
    "squared_epsilon_insensitive": lambda p: (-INF, INF, 0.5, p),
}


def losses(r: Any, shape: Any, a: Numbers) -> Any:
    """Return the losses at residuals r: m - y, or y m - 1 for labels."""
    low, high, softness, epsilon = shape
    if softness is None:
        return np.maximum(-r - 1, 0) + a.log1p(a.exp(-abs(r + 1)))
    s = np.sign(r) * np.maximum(abs(r) - epsilon, 0)
    slope = np.where(s > 0, high, low) if softness == 0 else np.clip(s / softness, low, high)
    return slope * (s - softness * slope / 2)


def conjugates(t: Any, target: Any, shape: Any, a: Numbers) -> Any:
    """Return the conjugates at slopes t of the residual."""
    if shape[2] is None:
        return a.entropy(-t) + a.entropy(1 + t)
    return t * target + shape[2] / 2 * t * t + shape[3] * abs(t)


class Verdict(NamedTuple):
    """What was recomputed; `fine`: the gap is at most what is claimed, up to rounding."""

    value: float
    bound: float
    claimed: float
    fine: bool
    where: str

    @property
    def gap(self) -> float:
        """How far the value may be above the minimum, whatever rounding has done."""
        return max(self.value - self.bound, 0.0)

    def __str__(self) -> str:
        if self.fine:
            return f"verified: within {self.gap:.1e} of the minimum{self.where}"
        return f"REFUSED: a gap of {self.claimed:.1e} is claimed, {self.gap:.1e} proved{self.where}"


def verify(
    certificate: Any, X: Any = None, y: Any = None, *, function: Any = None, exact: bool = False
) -> Verdict:
    """Recompute value and bound of a certificate, the arrays of its file."""
    c, a = dict(certificate), Numbers(exact)
    with np.errstate(all="ignore"):
        if "points" in c:
            found = of_function(c, function, a)
        else:
            found = of_model(c, X, np.asarray(y), a)
    value, bound, rounding, size, where = found
    fine = value - bound <= float(c["gap"]) + rounding + SLACK * size
    return Verdict(float(value), float(bound), float(c["gap"]), bool(fine), where)


def blocks(X: Any, n: int, a: Numbers) -> Any:
    """Yield runs of rows as dense arrays; X may be sparse."""
    for start in range(0, n, BLOCK):
        some = slice(start, min(start + BLOCK, n))
        yield some, a.of(X[some].toarray() if hasattr(X, "toarray") else X[some])


def combined(X: Any, F: Any, H: Any, a: Numbers) -> Any:
    """Return X' F and |X|' H, blocks added in pairs."""
    sums: list[Any] = []
    for some, rows in blocks(X, len(F), a):
        new, level = (rows.T @ F[some], abs(rows).T @ H[some]), 0
        while sums and sums[-1][0] == level:
            new, level = [one + other for one, other in zip(sums.pop()[1], new)], level + 1
        sums.append((level, new))
    return (sum(parts) for parts in zip(*(part for _, part in reversed(sums))))


def of_model(c: dict[str, Any], X: Any, y: Any, a: Numbers) -> Any:
    """Return value, bound, their rounding, the size of their terms, and where the bound holds."""
    w, b, u, name = a.of(c["coefficients"]).T, a.of(c["intercepts"]), a.unit, str(c["loss"])
    (d, k), n, free = w.shape, len(y), bool(c["fit_intercept"])
    weights, used = np.zeros(n), c.get("rows", slice(None))
    weights[used] = c.get("weights", 1.0)
    shares = a.of(weights)[:, None] / a.of(weights).sum()
    if "classes" in c:  # each class against the rest; of two, the second
        y = np.where(y[:, None] == c["classes"][-k:], 1.0, -1.0)
    y, slopes = a.of(y).reshape(n, -1), np.ones((n, k))
    if "slopes" in c:
        slopes[used] = c["slopes"] if name == "multinomial" else c["slopes"].T
    m, sizes, longest = (a.of(np.zeros(size)) for size in ((n, k), (n, k), (d, 1)))
    for some, rows in blocks(X, n, a):
        m[some], sizes[some] = rows @ w + b, abs(rows) @ abs(w) + abs(b)
        longest = np.maximum(longest, abs(rows).max(axis=0)[:, None])
    off = u * ((8 + d) * sizes + 8 * (abs(y) + 1))
    if name == "multinomial":
        of_rows = a.log(a.exp(m - m.max(axis=1, keepdims=True)).sum(axis=1)) + m.max(axis=1)
        of_rows = (of_rows - (m * (y > 0)).sum(axis=1))[:, None]
        highest = of_rows + (2 * off + 8 * u * abs(m)).max(axis=1, keepdims=True) + k * u
        s = np.maximum(a.of(slopes), 0)  # distributions over the classes
        s = s / s.sum(axis=1, keepdims=True)
        theta, steep, shrunk = s - (y > 0), s + (y > 0), 0
        level = -a.entropy(s).sum(axis=1, keepdims=True)
        terms = level + 1
    else:
        p, labels = a.of(c["parameter"])[()], name in LABELS
        shape, sign, target = (LABELS | TARGETS)[name](p), *((y, 1) if labels else (1, y))
        of_rows = losses(sign * m - target, shape, a)
        ends = (losses(sign * (m + move) - target, shape, a) for move in (-off, off))
        highest = np.maximum(*ends)  # a convex function is largest at an end
        theta = a.of(slopes) if "slopes" in c else m - y  # of least squares
        theta = sign * np.clip(sign * theta, *shape[:2])
        theta, shrunk = balanced(theta, shares, u) if free else (theta, 0)
        level, steep = -conjugates(sign * theta, target, shape, a), abs(theta)
        terms = abs(level) + steep * (steep + abs(y) + 2 + abs(p))
    l1, l2 = a.of(c.get("l1", 0.0)).reshape(-1, 1), a.of(c["l2"])[()]
    penalty = (l1 * abs(w)).sum() + l2 / 2 * (w * w).sum()
    value, above = (shares * of_rows).sum() + penalty, (shares * highest).sum() + penalty
    above = above + (40 + d) * u * (abs(above) + penalty)
    v, cost = combined(X, shares * theta, shares * steep, a)
    level, terms = ((shares * each).sum(axis=0) for each in (level, terms))
    lost, off = (40 * u + shrunk) * terms, (BLOCK * u + shrunk) * cost
    if name == "multinomial" and free:  # mixing in one distribution balances the classes
        excess = ((shares * theta).sum(axis=0) + 40 * u) / (shares * s).sum(axis=0)
        mixed = min(max(*excess, 0), 1)
        lost, off = lost + mixed * level, off + 2 * mixed * cost.sum(axis=1, keepdims=True)
    ends = [a.of(c.get(end, far)).reshape(-1, 1) for end, far in ENDS]
    reach = FAR * (1 + abs(m).max() + abs(y).max()) / np.where(longest > 0, longest, 1)
    found, exactly, where = 0, 0, ""
    for i in range(len(level)):
        columns = slice(None) if name == "multinomial" else slice(i, i + 1)
        limits = l1, l2, *ends, 0, lambda z: (reach * z).sum()
        one, error = v[:, columns], off[:, columns]
        bound, far = best_multiple(level[i] - lost[i], one, error, limits, u)
        central, _ = best_multiple(level[i], one, 0 * error, limits, u)
        found, exactly = found + max(bound, 0), exactly + max(central, 0)
        where = f" among weights up to {FAR:g} times the data's scale" if far else where
    return above, found, above - value + exactly - found, above + terms.sum(), where


def balanced(theta: Any, shares: Any, u: Any) -> Any:
    """Return slopes whose larger side is shrunk to the other's sum, and how exact that is.

    Exactly balanced slopes are smaller by at most this share, of one side.
    """
    up, down = ((shares * np.maximum(side * theta, 0)).sum(axis=0) for side in (1, -1))
    error, shrunk = 40 * u * (up + down), 0 * up
    for side, one, other in ((1, up, down), (-1, down, up)):
        most = np.where(one > other + 2 * error, (other + error) / (one - error), 1)
        least = np.clip((other - error) / np.where(one > 0, one + error, INF), 0, most)
        least = np.where(one > 0, least, most)
        theta = np.where(side * theta > 0, most * theta, theta)
        shrunk = np.maximum(shrunk, 1 - least / np.where(most > 0, most, INF))
    return theta, shrunk


def best_multiple(level: Any, v: Any, off: Any, terms: Any, u: Any) -> Any:
    """Return the best of c level + least(c v) over 0 <= c <= 1: l*(0) is 0, so c l* >= l*(c .)."""
    l1, l2, low, high, *_ = terms
    steep = np.maximum(np.where(low == -INF, v, 0), np.where(high == INF, -v, 0)) + off
    held = (l1 > 0) & (steep > l1) & (l2 == 0)
    top = np.where(held, l1 / np.where(held, steep, 1), 1).min() * (1 - SLACK * held.any())

    def at(c: Any) -> Any:
        bound, far = least(c * v, c * off, 0 * v, terms, u)
        return c * level + bound, far

    best, ends = at(top), [0 * top, top]
    for _ in range(60):  # the bound is concave in c
        inner = [ends[0] + (ends[1] - ends[0]) * share for share in (0.382, 0.618)]
        first, second = map(at, inner)
        best = max(best, first, second, key=lambda found: found[0])
        ends = [ends[0], inner[1]] if first[0] > second[0] else [inner[0], ends[1]]
    return best


def least(v: Any, off: Any, apart: Any, terms: Any, u: Any) -> Any:
    """Return the minimum of <v, w - c> + l1 |w| + l2 / 2 |w|^2, and whether open ends matter.

    v is known up to `off`. A part of it, `apart` and what falls towards open ends, is bounded by a
    ball around c.
    """
    l1, l2, low, high, center, ball = terms
    slope, rest, straight = l1 - off, v - apart, l2 == 0
    open_low, open_high = straight & (low == -INF), straight & (high == INF)
    steep = np.maximum(slope, 0)
    rest = np.clip(rest, np.where(open_high, -steep, -INF), np.where(open_low, steep, INF))
    beyond = abs(v - rest) + np.where(open_low | open_high, steep - slope, 0)
    slope = np.where(open_low | open_high, steep, slope)
    kink, values = np.minimum(np.maximum(0 * v, low), high), []
    if not straight:  # a parabola on either side of 0
        low = np.minimum(np.maximum((slope - rest) / l2, low), kink)
        high = np.maximum(np.minimum((-slope - rest) / l2, high), kink)
    for w in (low, kink, high):
        w = np.where(abs(w) == INF, kink, w)
        parts = rest * (w - center), slope * abs(w), l2 / 2 * w * w
        values.append(sum(parts) - 40 * u * sum(map(abs, parts)))
    lowest = np.minimum(values[0], np.minimum(values[1], values[2])).sum()
    return (lowest - ball(beyond), True) if beyond.any() else (lowest, False)


def of_function(c: dict[str, Any], function: Any, a: Numbers) -> Any:
    """Return the same for a function, by cuts at points."""
    x, points, center, value = (a.of(c[key]) for key in ("point", "points", "center", "value"))
    values, gradients, radius = a.of(c["values"]), a.of(c["gradients"]), float(c["radius"])
    l1, l2 = a.of(c.get("l1", 0 * c["point"])), a.of(c.get("l2", 0.0))[()]
    if function is not None:
        found = [function(np.array(point)) for point in c["points"]]
        values, gradients = a.of([v for v, _ in found]), a.of([np.ravel(g) for _, g in found])
        value = a.of(function(np.array(c["point"]))[0])[()]
        value = value + (l1 * abs(x)).sum() + l2 / 2 * (x * x).sum()
    shares = np.maximum(a.of(c["multipliers"]), 0)
    shares, moved, u = shares / shares.sum(), center - points, (len(x) + len(shares) + 16) * a.unit
    level, v = shares @ (values + (gradients * moved).sum(axis=1)), shares @ gradients
    size = shares @ (abs(values) + (abs(gradients) * abs(moved)).sum(axis=1)) + abs(value)
    off = u * (shares @ abs(gradients)) + a.of(c["gradient_error"])[()]
    if "total" in c:
        total, where = a.of(c["total"])[()], " in the simplex"
        bound, outside = total * v.min() - v @ center, max(-x.min(), abs(x.sum() - total))
        farthest = total + abs(center)
    elif "l1_radius" in c:
        middle, total, where = a.of(c["l1_center"]), a.of(c["l1_radius"])[()], " in the l1 ball"
        bound, outside = v @ (middle - center) - total * abs(v).max(), abs(x - middle).sum() - total
        farthest = total + abs(middle - center)
    else:
        low, high = (a.of(c.get(end, far + 0 * c["point"])) for end, far in ENDS)
        outside, farthest = (
            np.maximum(low - x, x - high).max(),
            np.maximum(center - low, high - center),
        )
        where = " in the box" if "lower" in c else ""
        terms = l1, l2, low, high, center, lambda z: radius * (z @ z) ** 0.5
        parts = 0 * v, a.of(c.get("apart", 0 * c["point"]))
        bound = max(least(v, 0 * v, part, terms, a.unit)[0] for part in parts)
    where += f" within {radius:.3g} of the centre" if radius < INF else ""
    off = off + u * abs(v)
    rounding = off @ np.where(off > 0, np.minimum(farthest, radius), 0)
    rounding = rounding + u * size + a.of(c["value_error"])[()]
    if not outside <= 1e-9 * (1 + abs(x).max()):
        bound, where = -INF, " (the point violates the constraints)"
    return value, level + bound - rounding, rounding, size, where


def main(arguments: Any = None) -> int:
    """Verify the certificate in a file; return 0 if it holds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("certificate", help="the file that certificate.save wrote")
    parser.add_argument("data", nargs="*", help="an .npz file with X and y, or two .npy files")
    parser.add_argument("--function", help="module:name of the function that was minimised")
    parser.add_argument("--exact", action="store_true", help="compute with 50 digits (mpmath)")
    given, function = parser.parse_args(arguments), None
    certificate, *data = (np.load(name) for name in (given.certificate, *given.data))
    X, y = (data[0]["X"], data[0]["y"]) if len(data) == 1 else data or (None, None)
    if given.function:
        module, _, name = given.function.partition(":")
        sys.path.insert(0, os.getcwd())
        function = getattr(importlib.import_module(module), name)
    verdict = verify(certificate, X, y, function=function, exact=given.exact)
    print(verdict)
    return int(not verdict.fine)


if __name__ == "__main__":
    sys.exit(main())
