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

import numpy as np

INF = np.inf
FAR = 10.0  # weights that nothing bounds are searched up to so many times the scale of the data
ENDS = ("lower", -INF), ("upper", INF)
OUTSIDE = 1e-9  # how far rounding may have moved a point out of a set, relative to its size
SLACK, TINY = 1e-12, 1e-280  # how much more than is claimed may be left, relative to the terms


class Numbers:
    """Float64, or arrays of objects with 50 digits."""

    def __init__(self, exact):
        self.unit, self.of, functions = 2.0**-52, np.float64, (np.exp, np.log, np.log1p)
        if exact:
            import mpmath as mp

            mp.mp.dps, self.unit, number = 50, mp.mpf(10) ** -48, np.frompyfunc(mp.mpf, 1, 1)
            self.of = lambda x: np.asarray(number(np.asarray(x, dtype=float).astype(object)))
            functions = [np.frompyfunc(f, 1, 1) for f in (mp.exp, mp.log, mp.log1p)]
        self.exp, self.log, self.log1p = functions

    def entropy(self, s):
        """Return s log s, 0 at 0."""
        return s * self.log(np.where(s > 0, s, self.of(1.0)))


def shape_of(loss, p):
    """Return the ends of the slopes, 1 / curvature and half the width of the flat zone."""
    shapes = {
        "logistic": (-1.0, 0.0, None, 0.0),
        "hinge": (-1.0, 0.0, 0.0, 0.0),
        "squared_hinge": (-INF, 0.0, 0.5, 0.0),
        "modified_huber": (-4.0, 0.0, 0.5, 0.0),
        "squared": (-INF, INF, 1.0, 0.0),
        "absolute": (-1.0, 1.0, 0.0, 0.0),
        "huber": (-p, p, 1.0, 0.0),
        "quantile": (-p, 1 - p, 0.0, 0.0),
        "epsilon_insensitive": (-1.0, 1.0, 0.0, p),
        "squared_epsilon_insensitive": (-INF, INF, 0.5, p),
    }
    return shapes[loss]


def losses(r, shape, a):
    """Return the losses at residuals r: m - y, or y m - 1 for labels."""
    low, high, softness, epsilon = shape
    if softness is None:
        return np.maximum(-r - 1, 0) + a.log1p(a.exp(-abs(r + 1)))
    s = np.sign(r) * np.maximum(abs(r) - epsilon, 0)
    slope = np.where(s > 0, high, low) if softness == 0 else np.clip(s / softness, low, high)
    return slope * (s - softness * slope / 2)


def conjugates(t, target, shape, a):
    """Return the conjugates at slopes t of the residual."""
    if shape[2] is None:
        return a.entropy(-t) + (1 + t) * a.log1p(np.where(t > -1, t, 0 * t))
    return t * target + shape[2] / 2 * t * t + shape[3] * abs(t)


def verify(certificate, X=None, y=None, *, function=None, exact=False):
    """Return the proved gap of a certificate (its arrays), if it is as claimed, and a sentence."""
    c, a = dict(certificate), Numbers(exact)
    with np.errstate(all="ignore"):
        found = of_function(c, function, a) if "points" in c else of_model(c, X, np.array(y), a)
    value, bound, size, where = found
    gap, claimed = float(value - bound), float(c["gap"])
    fine = gap <= claimed + 1.01 * SLACK * size + TINY  # negative: no minimiser is in the ball
    words = f"verified: within {max(gap, 0.0):.1e} of the minimum"
    if not fine:
        words = f"REFUSED: the gap is claimed to be {claimed:.1e}, but only {gap:.1e} is proved"
    return gap, bool(fine), words + where


def of_model(c, X, y, a):
    """Return value, bound and the size of the terms of a sum over rows, and where the bound holds.

    -sum_i p_i l*(theta_i) + least(sum_i p_i theta_i x_i) is a lower bound for all slopes theta.
    """
    w, b, u, loss = a.of(c["coefficients"]).T, a.of(c["intercepts"]), a.unit, str(c["loss"])
    (d, k), n, several = w.shape, len(y), loss == "multinomial"
    shares, slopes, used = np.zeros((n, 1)), np.ones((n, k)), c.get("rows", slice(None))
    shares[used, 0] = c.get("weights", 1.0)
    shares = a.of(shares) / a.of(shares).sum()
    if "slopes" in c:
        slopes[used] = c["slopes"]
    if "classes" in c:  # each class against the rest; of two, the second
        y = np.where(y[:, None] == c["classes"][-k:], 1.0, -1.0)
    if a.of is not np.float64:
        X = a.of(X.toarray() if hasattr(X, "toarray") else X)
    y, sizes = a.of(y).reshape(n, -1), abs(X)
    m, off = X @ w + b, u * ((8 + d) * (sizes @ abs(w) + abs(b)) + 8 * (abs(y) + 1))
    if several:
        largest = m.max(axis=1, keepdims=True)
        each = a.log(a.exp(m - largest).sum(axis=1, keepdims=True)) + largest
        each = each - (m * (y > 0)).sum(axis=1, keepdims=True)
        above = each + (2 * off + 8 * u * abs(m)).max(axis=1, keepdims=True) + k * u
        s = np.maximum(a.of(slopes), 0)  # distributions over the classes
        s = s / s.sum(axis=1, keepdims=True)
        theta, steep, level = s - (y > 0), s + (y > 0), -a.entropy(s).sum(axis=1, keepdims=True)
        terms = level + 1
    else:
        shape, p = shape_of(loss, a.of(c["parameter"])[()]), abs(c["parameter"])
        sign, target = (y, 1) if shape[1] == 0 else (1, y)  # losses of labels do not rise
        each, *ends = (losses(sign * (m + e) - target, shape, a) for e in (0, -off, off))
        above = np.maximum(*ends)  # a convex function is largest at an end
        theta = a.of(slopes) if "slopes" in c else m - y  # of least squares
        theta = sign * np.clip(sign * theta, *shape[:2])
        level, steep = -conjugates(sign * theta, target, shape, a), abs(theta)
        terms = abs(level) + steep * (steep + abs(y) + 2 + p)
    l1, l2 = a.of(c.get("l1", 0.0)).reshape(-1, 1), a.of(c["l2"])[()]
    penalty = (l1 * abs(w)).sum() + l2 / 2 * (w * w).sum()
    value = ((shares * above).sum() + penalty) * (1 + (40 + d) * u)
    in_pairs = (np.ascontiguousarray((shares * z).T) for z in (level, terms, theta))  # are added
    level, terms, mean = (z.sum(axis=1) for z in in_pairs)
    v, cost = X.T @ (shares * theta), sizes.T @ (shares * steep)
    low, high = (a.of(c.get(end, far)).reshape(-1, 1) for end, far in ENDS)
    scale = 1 + abs(m).max(axis=0) + abs(y).max(axis=0)
    reach = FAR * scale / np.maximum(sizes.T @ shares, 1e-300)

    def bound(errors):
        lost, off, where = errors * 40 * u * terms, errors * (n + 40) * u * cost, ""
        if c["fit_intercept"]:  # slopes that are balanced exactly are close to these:
            away, side = abs(mean) + errors * 40 * u * terms, (shares * steep).sum(axis=0) / 2
            if several:  # by mixing in one distribution, or else by shrinking those of one sign
                away, side = mean + errors * 40 * u, (shares * s).sum(axis=0)
            shrunk = np.clip(away / np.where(side > 0, side, 1), 0, 1)
            shrunk = shrunk.max() if several else shrunk
            off = off + shrunk * (cost.sum(axis=1)[:, None] if several else cost)
            lost = lost + shrunk * terms
        total = 0
        for i in range(len(level)):
            columns = slice(None) if several else slice(i, i + 1)
            limits = l1, l2, low, high, 0, reach[:, columns]
            given = level[i] - lost[i], v[:, columns], off[:, columns], limits, u
            found, far = best_multiple(*given)
            total = total + max(found, 0)
            where = f" among weights up to {FAR:g} times the data's scale" if far else where
        return total, where

    proved, where = bound(1)
    if (np.maximum(low - w, w - high) > OUTSIDE * (1 + abs(w).max())).any():
        return INF, proved, 0, " (the coefficients violate their limits)"
    rounding = bound(0)[0] - proved + value - (shares * each).sum() - penalty
    # The claim has such errors too.
    return value, proved, value + terms.sum() + 2 * rounding / SLACK, where


def best_multiple(level, v, off, limits, u):
    """Return the best of c level + least(c v) over 0 <= c <= 1: l*(c theta) <= c l*(theta)."""
    l1, l2, low, high, *_ = limits
    steep = np.maximum(np.where(low == -INF, v, 0), np.where(high == INF, -v, 0)) + off
    held = (l1 > 0) & (steep > l1) & (l2 == 0)
    top = np.where(held, l1 / np.where(held, steep, 1), 1).min() * (1 - SLACK * held.any())

    def at(c):
        found, far = least(c * v, c * off, 0 * v, limits, u)
        return c * level + found, far

    best, ends = at(top), [0 * top, top]
    for _ in range(60):  # the bound is concave in c
        inner = [ends[0] + (ends[1] - ends[0]) * share for share in (0.382, 0.618)]
        first, second = map(at, inner)
        best = max(best, first, second, key=lambda found: found[0])
        ends = [ends[0], inner[1]] if first[0] > second[0] else [inner[0], ends[1]]
    return best


def least(v, off, apart, limits, u):
    """Return the minimum of <v, w - c> + l1 |w| + l2 / 2 |w|^2, and whether open ends matter.

    v is known up to `off`. A part of it, `apart` and what falls towards open ends, is bounded by
    the radius of a ball around c, or of each coordinate.
    """
    l1, l2, low, high, center, radius = limits
    straight, slope = l2 == 0, l1 - off
    opens = straight & ((low == -INF) | (high == INF))
    steep = np.where(opens, np.maximum(slope, 0), slope)
    rest, kink = v - apart, np.minimum(np.maximum(0 * v, low), high)
    if straight:
        rest = np.maximum(rest, np.where(high == INF, -steep, -INF))
        rest = np.minimum(rest, np.where(low == -INF, steep, INF))
    else:  # a parabola on either side of 0
        low = np.minimum(np.maximum((steep - rest) / l2, low), kink)
        high = np.maximum(np.minimum((-steep - rest) / l2, high), kink)
    beyond, values = abs(v - rest) + (steep - slope), []
    for w in (low, kink, high):
        w = np.where(abs(w) == INF, kink, w)  # towards an open end it does not fall
        parts = rest * (w - center), steep * abs(w), l2 / 2 * w * w
        values.append(sum(parts) - 40 * u * sum(map(abs, parts)))
    lowest = np.minimum(values[0], np.minimum(values[1], values[2])).sum()
    if not beyond.any():
        return lowest, False
    cost = (radius * beyond).sum() if np.ndim(radius) else radius * norm(beyond)
    return lowest - (1 + 40 * u) * cost, True


def norm(z):
    """Return the Euclidean norm, also if squares overflow or vanish."""
    largest = abs(z).max()
    return largest * ((z / largest) @ (z / largest)) ** 0.5 if largest > 0 else largest


def of_function(c, function, a):
    """Return the same for a function by its cuts, of which any average is a lower bound."""
    none, x, points = 0 * c["point"], a.of(c["point"]), a.of(c["points"])
    values, gradients, value = a.of(c["values"]), a.of(c["gradients"]), a.of(c["value"])[()]
    center, radius, l1, l2 = (a.of(c.get(name, none)) for name in ("center", "radius", "l1", "l2"))
    l2, radius = l2.max(), radius[()]
    if function is not None:
        found = [function(np.array(point)) for point in c["points"]]
        values, gradients = a.of([v for v, _ in found]), a.of([np.ravel(g) for _, g in found])
        value = a.of(function(np.array(c["point"]))[0])[()]
        value = value + (l1 * abs(x)).sum() + l2 / 2 * (x * x).sum()
    shares = np.maximum(a.of(c["multipliers"]), 0)
    shares, moved, u = shares / shares.sum(), center - points, (len(x) + len(shares) + 16) * a.unit
    level, v = shares @ (values + (gradients * moved).sum(axis=1)), shares @ gradients
    size = shares @ (abs(values) + (abs(gradients) * abs(moved)).sum(axis=1)) + abs(value)
    if "total" in c:
        total, where = a.of(c["total"])[()], " in the simplex"
        bound, outside = total * v.min() - v @ center, max(-x.min(), abs(x.sum() - total))
        farthest = total + abs(center)
    elif "l1_radius" in c:
        middle, total, where = a.of(c["l1_center"]), a.of(c["l1_radius"])[()], " in the l1 ball"
        bound, outside = v @ (middle - center) - total * abs(v).max(), abs(x - middle).sum() - total
        farthest = total + abs(middle - center)
    else:
        low, high = a.of(c.get("lower", none - INF)), a.of(c.get("upper", none + INF))
        farthest, outside = (
            np.maximum(center - low, high - center),
            np.maximum(low - x, x - high).max(),
        )
        reach = radius + 40 * a.unit * (abs(center) + radius)  # farther ends only add rounding
        low = np.where(low > -INF, np.maximum(low, center - reach), low)
        high = np.where(high < INF, np.minimum(high, center + reach), high)
        limits = l1, l2, low, high, center, radius
        parts, where = (0 * v, a.of(c.get("apart", none))), " in the box" * ("lower" in c)
        bound = max(least(v, 0 * v, part, limits, a.unit)[0] for part in parts)
    off = u * (shares @ abs(gradients) + abs(v)) + a.of(c["gradient_error"])[()]
    lost = off @ np.where(off > 0, np.minimum(farthest, radius), 0)
    lost = lost + u * size + a.of(c["value_error"])[()]
    if not outside <= OUTSIDE * (1 + abs(x).max()):
        return INF, bound, size, " (the point violates the constraints)"
    where += f" within {float(radius):.3g} of the centre" * bool(radius < INF)
    return value, level + bound - lost, size + abs(bound) + lost / SLACK, where


def main(arguments=None):
    """Verify the certificate in a file; return 0 if it holds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
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
    _, fine, words = verify(certificate, X, y, function=function, exact=given.exact)
    print(words)
    return int(not fine)


if __name__ == "__main__":
    sys.exit(main())
