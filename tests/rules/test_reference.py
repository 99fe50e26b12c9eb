"""The transcriptions of tests/reference, checked by hand-made steps, proven bounds and rates."""

from math import sqrt

import numpy as np
import pytest

from reference import methods


def scripted(*gradients):
    """Give a gradient that ignores the point: the t-th call returns the t-th of the vectors."""
    left = iter(gradients)
    return lambda _x: np.array(next(left), dtype=np.float64)


def same(actual, desired):
    np.testing.assert_allclose(np.array(actual), np.array(desired), rtol=1e-13, atol=1e-14)


def ball(radius):
    return lambda x: x * (radius / max(radius, np.linalg.norm(x)))


def regression(seed, p, n=8, d=4):
    """Return f = ||Ax - b||_p^p with b = A solution (min f = 0), a gradient, the solution, A."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d))
    solution = rng.standard_normal(d)
    b = A @ solution
    if p == 1:
        return (
            lambda x: float(np.abs(A @ x - b).sum()),
            lambda x: A.T @ np.sign(A @ x - b),
            solution,
            A,
        )
    return lambda x: float(np.square(A @ x - b).sum()), lambda x: 2 * A.T @ (A @ x - b), solution, A


def both(f, gradient):
    return lambda x: (f(x), gradient(x))


# --- steps by hand --------------------------------------------------------------------------------


def test_accelegrad_by_hand():
    # 2D = 1, x0 = 0, no projection. The gradients make every sum of squares a square:
    #   t        0       1       2        3          4 (alpha 5/4)            5 (alpha 3/2)
    #   alpha g  (3,0)   (0,4)   (12,0)   (0,-84)    (132,0)                  (0,12324)
    #   sum      3^2     5^2     13^2     85^2       157^2                    12325^2
    # t <= 3: alpha = tau = 1, x = z = y: (0,0), (-1,0), (-1,-4/5), (-25/13,-4/5), (-25/13,16/85).
    # t = 4: x5 = z4 = y4, z5 = x5 - (132/157, 0), y5 = x5 - 4/5 (132/157, 0) = x5 - (528/785, 0).
    # t = 5: tau = 2/3, x6 = 2/3 z5 + 1/3 y5 = x5 - (88/157 + 176/785, 0) = x5 - (616/785, 0);
    #        z6 = z5 - (0, 12324/12325), y6 = x6 - (0, 8216/12325).
    script = [(3, 0), (0, 4), (12, 0), (0, -84), (528 / 5, 0), (0, 8216)]
    run = methods.accelegrad(scripted(*script), [0, 0], 6, D=0.5)
    c, e = -25 / 13, 16 / 85
    start = [(0, 0), (-1, 0), (-1, -4 / 5), (c, -4 / 5), (c, e)]
    same(run.alpha, [1, 1, 1, 1, 5 / 4, 3 / 2])
    same(run.eta, [1 / 3, 1 / 5, 1 / 13, 1 / 85, 1 / 157, 1 / 12325])
    same(run.g, script)
    same(run.x, [*start, (c - 616 / 785, e)])
    same(run.z, [*start, (c - 132 / 157, e), (c - 132 / 157, e - 12324 / 12325)])
    same(run.y, [*start, (c - 528 / 785, e), (c - 616 / 785, e - 8216 / 12325)])
    # Averages. t = 3: (-1 - 1 - 25/13 - 25/13)/4 = -19/13, (0 - 4/5 - 4/5 + 16/85)/4 = -6/17.
    # t = 4, sum of the weights 21/4:
    #        4 (-19/13) + 5/4 (-25/13 - 528/785) = -33/4 - 132/157, times 4/21: -1903/1099;
    #        4 (-6/17) + 5/4 16/85 = -20/17, times 4/21: -80/357.
    # t = 5, 27/4: (21/4 of the former + 3/2 y6) 4/27 = 7/9 of the former + 2/9 y6.
    same(run.average[:2], [(-1, 0), (-1, -2 / 5)])
    same(run.average[3:5], [(-19 / 13, -6 / 17), (-1903 / 1099, -80 / 357)])
    same(run.average[5], 7 / 9 * run.average[4] + 2 / 9 * run.y[6])


def test_adagrad_by_hand():
    # D = sqrt(2), so eta = 1/sqrt(sum): 1/3, 1/5, 1/13, with the gradients of AcceleGrad's example.
    run = methods.adagrad(scripted((3, 0), (0, 4), (12, 0)), [0, 0], 3, D=sqrt(2))
    same(run.eta, [1 / 3, 1 / 5, 1 / 13])
    same(run.x, [(0, 0), (-1, 0), (-1, -4 / 5), (-25 / 13, -4 / 5)])
    same(run.average, [(0, 0), (-1 / 2, 0), (-2 / 3, -4 / 15)])  # of x_1..x_t, without x_{t+1}
    # f(x) = -x on [-1, 1], D = 2: x2 = P(0 + 2/sqrt(2)) = 1 and stays; averages 0, 1/2, 2/3.
    clip = lambda x: np.clip(x, -1, 1)  # noqa: E731
    run = methods.adagrad(lambda x: -np.ones_like(x), [0], 3, D=2, project=clip)
    same(run.eta, [sqrt(2), 1, 2 / sqrt(6)])
    same(run.x, [[0], [1], [1], [1]])
    same(run.average, [[0], [1 / 2], [2 / 3]])


# --- proven bounds, at every T of a run -----------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize(("L0", "projected"), [(1e-3, True), (1e3, False)])
def test_universal_bounds(p, L0, projected):
    # Primal: f(average) - f* <= eps/2 + R^2/(2 sum 1/M). Fast: f(y_k) - f* <= eps/2 + R^2/(2 A_k).
    f, gradient, solution, _ = regression(0, p)
    R, eps = np.linalg.norm(solution), 0.1
    options = {"L0": L0, "project": ball(R) if projected else None}
    run = methods.universal_primal(both(f, gradient), np.zeros(4), 100, eps, **options)
    for k in range(100):
        assert f(run.average[k]) <= eps / 2 + R**2 / (2 * sum(1 / M for M in run.M[: k + 1]))
    run = methods.universal_fast(both(f, gradient), np.zeros(4), 100, eps, **options)
    for k in range(100):
        assert f(run.y[k + 1]) <= eps / 2 + R**2 / (2 * run.A[k + 1])
        assert run.M[k] * run.a[k] ** 2 == pytest.approx(run.A[k + 1], rel=1e-12)


# --- rates, trials, accuracy ----------------------------------------------------------------------
