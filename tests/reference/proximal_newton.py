"""Proximal Newton's method, transcribed: every model is minimised by trying all of its faces."""

import itertools

import numpy as np


def model_minimum(C, g, l1, lower, upper, s):
    """Return argmin over the box of g'(u - s) + (u - s)'C(u - s)/2 + sum_j l1_j |u_j|.

    A coordinate is at an end of the box, at 0, or between: above 0 or below it. For each choice a
    linear system gives those between; the best point of all that are where they should be is it.
    """

    def value(u):
        return g @ (u - s) + (u - s) @ C @ (u - s) / 2 + l1 @ np.abs(u)

    best = np.clip(s, lower, upper)
    places = [{"low": a, "high": b, "zero": 0.0} for a, b in zip(lower, upper, strict=True)]
    for faces in itertools.product(["low", "high", "zero", "above", "below"], repeat=len(g)):
        u = np.array([place.get(face, 0.0) for place, face in zip(places, faces, strict=True)])
        between = np.array([face in ("above", "below") for face in faces])
        if not np.isfinite(u).all():
            continue
        if between.any():
            signs = np.array([1.0 if face == "above" else -1.0 for face in faces])
            slope = g + C @ (np.where(between, 0.0, u) - s) + l1 * signs
            system = C[np.ix_(between, between)]
            u[between] = np.linalg.lstsq(system, -slope[between], rcond=None)[0]
            if (u * signs < 0.0)[between & (l1 > 0.0)].any():
                continue
        if (u >= lower).all() and (u <= upper).all() and value(u) < value(best):
            best = u
    return best


def proximal_newton(value, gradient, hessian, l1, lower, upper, x, steps):
    """Return the points after each step; the term is in ``value``, not in the derivatives."""
    points = []
    for _ in range(steps):
        g, C = gradient(x), hessian(x)
        u = model_minimum(C, g, l1, lower, upper, x)
        fall = -(g @ (u - x) + (u - x) @ C @ (u - x) / 2 + l1 @ (np.abs(u) - np.abs(x)))
        t = 1.0
        while value(x + t * (u - x)) > value(x) - 1e-4 * t * fall:
            t /= 2
        x = x + t * (u - x)
        points.append(x)
    return points
