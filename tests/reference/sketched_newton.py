"""Newton's method with sketched curvature as its docstring has it: every matrix is written out."""

import numpy as np


def inverse(matrix, pairs):
    """Return B: the inverse of the curvature after the BFGS updates by pairs, oldest first."""
    B = np.linalg.inv(matrix)
    for s, y in pairs:
        V = np.eye(s.size) - np.outer(s, y) / np.dot(s, y)
        B = V @ B @ V.T + np.outer(s, s) / np.dot(s, y)
    return B


def sketched_newton(function, curvature, x0, evaluations, memory):
    """Return the trials in order, which of them were accepted, and where curvature was taken.

    ``function(x)`` returns value and gradient; ``curvature(x, number, caution)`` returns a matrix
    and what the next one costs.
    """
    trials, accepted, sketched = [x0], [True], []
    x, (value, gradient) = x0, function(x0)
    pairs, caution, number = [], 1.0, 0
    matrix = cost = slope = None
    while len(trials) < evaluations:
        stale = True
        if matrix is not None:
            direction = -inverse(matrix, pairs[max(len(pairs) - memory, 0) :]) @ gradient
            left = -np.dot(gradient, direction) / slope
            stale = left > 0.05 ** (2 / (1 + cost))
        if stale:
            number += 1
            matrix, cost = curvature(x, number, caution)
            sketched.append((len(trials), caution))
            pairs = []
            direction = -np.linalg.inv(matrix) @ gradient
        slope, t = -np.dot(gradient, direction), 1.0
        while len(trials) < evaluations:
            trial = x + t * direction
            trials.append(trial)
            new_value, new_gradient = function(trial)
            accepted.append(bool(new_value <= value - 1e-4 * t * slope))
            if accepted[-1]:
                break
            t /= 2
            while function(x + t * direction)[0] > value - 1e-4 * t * slope:
                t /= 2
            caution = min(max(10 * caution, 0.03), 1.0)
        if not accepted[-1]:
            break
        if t == 1.0:
            caution = caution / 10 if caution > 0.03 else 0.0
        if np.dot(trial - x, new_gradient - gradient) > 0:
            pairs.append((trial - x, new_gradient - gradient))
        x, value, gradient = trial, new_value, new_gradient
    return trials, accepted, sketched
