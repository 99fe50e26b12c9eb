"""The transcriptions of tests/reference, checked by hand-made steps, proven bounds and rates."""

from math import sqrt

import numpy as np
import pytest

from reference import methods


def scripted(*gradients):
    """Give a gradient that ignores the point: the t-th call returns the t-th of the vectors."""
    left = iter(gradients)
    return lambda _x: np.array(next(left), dtype=np.float64)


def parabola(x):
    """Return 3/2 x^2 and 3 x: f(x + d) exceeds a trial's model by (3 - M)/2 d^2."""
    return 1.5 * float(x @ x), 3 * x


def same(actual, desired):
    np.testing.assert_allclose(np.array(actual), np.array(desired), rtol=1e-13, atol=1e-14)


def same_1d(actual, desired):
    same(actual, [[value] for value in desired])


def ball(radius):
    return lambda x: x * (radius / max(radius, np.linalg.norm(x)))


def interval(low, high):
    return lambda x: np.clip(x, low, high)


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


def test_weights():
    assert [methods.weight(t) for t in range(8)] == [1, 1, 1, 1, 1.25, 1.5, 1.75, 2]


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


def test_accelegrad_by_hand_with_a_projection():
    # f(x) = -x on K = [-1, 1], D = 2, x0 = 0, g = -1 always.
    # t <= 3: alpha = 1, eta_t = 4/sqrt(t+1), x_{t+1} = z_t; z1 = P(0 + 4) = 1 and stays there;
    #         y1 = 4, y2 = 1 + 4/sqrt(2), y3 = 1 + 4/sqrt(3), y4 = 1 + 2 = 3.
    # t = 4:  alpha = 5/4, tau = 4/5: x5 = 4/5 1 + 1/5 3 = 7/5; sum = 4 + 25/16 = 89/16.
    run = methods.accelegrad(lambda x: -np.ones_like(x), [0], 5, D=2, project=interval(-1, 1))
    same(run.eta, [4, 4 / sqrt(2), 4 / sqrt(3), 2, 16 / sqrt(89)])
    same_1d(run.x, [0, 1, 1, 1, 7 / 5])
    same_1d(run.z, [0, 1, 1, 1, 1, 1])
    same_1d(run.y, [0, 4, 1 + 4 / sqrt(2), 1 + 4 / sqrt(3), 3, 7 / 5 + 16 / sqrt(89)])
    # With y projected too, everything after the start is at 1.
    # G^2 = 12 makes eta 4/sqrt(13), .., 4/sqrt(16).
    run = methods.accelegrad(
        lambda x: -np.ones_like(x),
        [0],
        5,
        D=2,
        G=sqrt(12),
        project=interval(-1, 1),
        project_y=True,
    )
    same(run.eta, [4 / sqrt(13), 4 / sqrt(14), 4 / sqrt(15), 1, 16 / sqrt(89 + 16 * 12)])
    same_1d(run.x, [0, 1, 1, 1, 1])
    same_1d(run.z, [0, 1, 1, 1, 1, 1])
    same_1d(run.y, [0, 1, 1, 1, 1, 1])
    same_1d(run.average, [1, 1, 1, 1, 1])


def test_zero_gradients_make_zero_steps():
    run = methods.accelegrad(scripted([0], [0], [2]), [5], 3, D=3)
    same(run.eta, [0, 0, 3])
    same_1d(run.y, [5, 5, 5, -1])
    run = methods.adagrad(scripted([0], [0], [2]), [5], 3, D=sqrt(8))
    same(run.eta, [0, 0, 1])
    same_1d(run.x, [5, 5, 5, 3])


def test_adagrad_by_hand():
    # D = sqrt(2), so eta = 1/sqrt(sum): 1/3, 1/5, 1/13, with the gradients of AcceleGrad's example.
    run = methods.adagrad(scripted((3, 0), (0, 4), (12, 0)), [0, 0], 3, D=sqrt(2))
    same(run.eta, [1 / 3, 1 / 5, 1 / 13])
    same(run.x, [(0, 0), (-1, 0), (-1, -4 / 5), (-25 / 13, -4 / 5)])
    same(run.average, [(0, 0), (-1 / 2, 0), (-2 / 3, -4 / 15)])  # of x_1..x_t, without x_{t+1}
    # f(x) = -x on [-1, 1], D = 2: x2 = P(0 + 2/sqrt(2)) = 1 and stays; averages 0, 1/2, 2/3.
    run = methods.adagrad(lambda x: -np.ones_like(x), [0], 3, D=2, project=interval(-1, 1))
    same(run.eta, [sqrt(2), 1, 2 / sqrt(6)])
    same_1d(run.x, [0, 1, 1, 1])
    same_1d(run.average, [0, 1 / 2, 2 / 3])


def test_linear_coupling_by_hand():
    # f = x^2/2, beta = 2, x0 = 1: eta = 1/2.
    # t <= 3: alpha = 1, everything halves: 1, 1/2, 1/4, 1/8, 1/16.
    # t = 4: alpha = 5/4, x5 = 1/16, z5 = 1/16 - 5/8 1/16 = 3/128, y5 = 1/32.
    # t = 5: tau = 2/3, x6 = 2/3 3/128 + 1/3 1/32 = 1/64 + 1/96 = 5/192;
    #        z6 = 3/128 - 3/4 5/192 = 1/256; y6 = 5/384.
    run = methods.linear_coupling(lambda x: x, [1], 6, beta=2)
    same(run.eta, [1 / 2] * 6)
    same_1d(run.x, [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 5 / 192])
    same_1d(run.z, [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 3 / 128, 1 / 256])
    same_1d(run.y, [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 5 / 384])
    # K = [1/4, 1]: z stops at 1/4, y (half of x) is not projected.
    # tau = 1 up to t = 3, so x1..x4 = z0..z3 = 1, 1/2, 1/4, 1/4.
    # t = 4: x5 = 4/5 1/4 + 1/5 1/8 = 9/40, y5 = 9/80.
    run = methods.linear_coupling(lambda x: x, [1], 5, beta=2, project=interval(1 / 4, 1))
    same_1d(run.x, [1, 1 / 2, 1 / 4, 1 / 4, 9 / 40])
    same_1d(run.y, [1, 1 / 2, 1 / 4, 1 / 8, 1 / 8, 9 / 80])


def test_subgradient_by_hand():
    # f = |x|, x0 = 2, step 4/sqrt(t+1): x1 = 2 - 4 = -2, x2 = -2 + 2 sqrt(2), x3 = x2 - 4/sqrt(3).
    # averages 2, (4 2 - 2 sqrt(2) 2)/(4 + 2 sqrt(2)) = 6 - 4 sqrt(2).
    run = methods.subgradient(np.sign, [2], 3, 4, "sqrt")
    x2 = -2 + 2 * sqrt(2)
    same(run.eta, [4, 2 * sqrt(2), 4 / sqrt(3)])
    same_1d(run.x, [2, -2, x2, x2 - 4 / sqrt(3)])
    same_1d(run.average[:2], [2, 6 - 4 * sqrt(2)])
    same(run.average[2], (8 - 4 * sqrt(2) + 4 / sqrt(3) * x2) / (4 + 2 * sqrt(2) + 4 / sqrt(3)))
    # Constant step 3 on K = [-1/2, 4]: x1 = P(2 - 3) = -1/2, x2 = 5/2, x3 = P(-1/2).
    run = methods.subgradient(np.sign, [2], 3, 3, "constant", project=interval(-1 / 2, 4))
    same(run.eta, [3, 3, 3])
    same_1d(run.x, [2, -1 / 2, 5 / 2, -1 / 2])
    same_1d(run.average, [2, 3 / 4, 4 / 3])
    with pytest.raises(ValueError, match="decay"):
        methods.subgradient(np.sign, [2], 3, 3, "linear")


def test_universal_primal_by_hand():
    # f = 3/2 x^2, x0 = 1, L0 = 1, eps = 1/8. A trial passes when (3 - M)/2 d^2 <= 1/16, d = 3 x/M.
    # k = 0: M = 1: 9, no; M = 2: 1/2 9/4, no; M = 4 yes: x = 1 - 3/4 = 1/4, L = 2.
    # k = 1: M = 2: 1/2 (3/8)^2 = 9/128, no; M = 4 yes: x = 1/16, L = 2.
    # k = 2: M = 2: 1/2 (3/32)^2, yes: x = 1/16 - 3/32 = -1/32, L = 1.
    # k = 3: M = 1: (3/32)^2, yes: x = -1/32 + 3/32 = 1/16, L = 1/2.
    # Averages, weights 1/2, 1/2, 1, 2:
    #        1/4, 5/32, (1/8 + 1/32 - 1/32)/2 = 1/16, (1/8 + 1/8)/4 = 1/16.
    run = methods.universal_primal(parabola, [1], 4, 1 / 8)
    assert run.trials == [3, 2, 1, 1]
    assert run.M == [4, 4, 2, 1]
    assert run.L == [1, 2, 2, 1, 1 / 2]
    same_1d(run.x, [1, 1 / 4, 1 / 16, -1 / 32, 1 / 16])
    same_1d(run.g, [3, 3 / 4, 3 / 16, -3 / 32])
    same_1d(run.average, [1 / 4, 5 / 32, 1 / 16, 1 / 16])


def test_universal_dual_by_hand():
    # f = 3/2 x^2, x0 = 1, L0 = 1, eps = 1/8. A trial passes when (3 - M)/2 d^2 <= 1/16, d = 3 x/M.
    # Without K the point B that passes is the next x.
    # k = 0, x = 1: M = 1: d = 3, no; M = 2: d = 3/2, no; M = 4: yes, B = 1 - 3/4 = 1/4.
    # k = 1, x = 1/4: M = 2: d = 3/8, 9/128, no; M = 4: yes, B = 1/4 - 3/16 = 1/16.
    # k = 2, x = 1/16: M = 2: d = 3/32, yes, B = 1/16 - 3/32 = -1/32.
    # Averages, weights 1/4, 1/4, 1/2: 1/4, 5/32, (1/16 + 1/64 - 1/64)/1 = 1/16.
    run = methods.universal_dual(parabola, [1], 3, 1 / 8)
    assert run.trials == [3, 2, 1]
    assert run.M == [4, 4, 2]
    assert run.L == [1, 2, 2, 1]
    same_1d(run.x, [1, 1 / 4, 1 / 16, -1 / 32])
    same_1d(run.phi, [1, 1 / 4, 1 / 16, -1 / 32])
    same_1d(run.B, [1 / 4, 1 / 16, -1 / 32])
    same_1d(run.average, [1 / 4, 5 / 32, 1 / 16])
    # On K = [1/2, 2] with L0 = 4 every trial ends at 1/2 and passes, while phi goes on outside of
    # K: 1 - 3/4 = 1/4, 1/4 - (3/2)/2 = -1/2, -1/2 - (3/2)/1 = -2.
    run = methods.universal_dual(parabola, [1], 3, 1 / 8, L0=4, project=interval(1 / 2, 2))
    assert run.M == [4, 2, 1]
    same_1d(run.x, [1, 1 / 2, 1 / 2, 1 / 2])
    same_1d(run.phi, [1, 1 / 4, -1 / 2, -2])
    same_1d(run.B, [1 / 2, 1 / 2, 1 / 2])
    # So a step back comes from phi, not from x. K = [0, 1], x0 = 0, f = 0 with scripted gradients
    # (at x and at B) and a large eps: M = 1, g = -3: B = P(3) = 1, phi = 3, x = 1; M = 1/2,
    # g = 1/2: B = P(1 - 1) = 0, phi = 2, x = P(2) = 1, not B.
    gradient = scripted([-3], [0], [1 / 2], [0])
    run = methods.universal_dual(lambda x: (0.0, gradient(x)), [0], 2, 1e3, project=interval(0, 1))
    assert run.M == [1, 1 / 2]
    same_1d(run.x, [0, 1, 1])
    same_1d(run.phi, [0, 3, 2])
    same_1d(run.B, [1, 0])


def test_universal_fast_by_hand():
    # f = 3/2 x^2, x0 = 1, L0 = 1, eps = 4/25.
    # tau a = 1/M, so y+ = x - g/M without K. A trial passes when (3 - M)/2 d^2 <= tau 2/25.
    # k = 0, A = 0: tau = 1, a = 1/M, x = 1, g = 3. M = 1 and 2: 9 and 9/8, no.
    #   M = 4: y = 1/4, v = 1 - 3/4 = 1/4, A = 1/4.
    # k = 1, v = y = 1/4, so x = 1/4, g = 3/4.
    #   M = 2: 2 a^2 = 1/4 + a, a = (1 + sqrt 3)/4, tau = sqrt 3 - 1 = 0.73;
    #          1/2 (3/8)^2 = 0.0703 > 0.0586 = tau 2/25, no (without the tau: 0.0703 < 0.08, yes).
    #   M = 4: a = (1 + sqrt 5)/8, A + a = (3 + sqrt 5)/8, yes;
    #          y = 1/4 - 3/16 = 1/16; v = 1/4 - 3/4 a = (5 - 3 sqrt 5)/32.
    # k = 2, M = 2: a = (1 + sqrt(1 + 8 A))/4 = (1 + sqrt(4 + sqrt 5))/4;
    #   x is about -0.004, so the test passes; y = x - 3/2 x = -x/2; v = the last v - 3 a x.
    run = methods.universal_fast(parabola, [1], 3, 4 / 25)
    root = sqrt(5)
    A2, v2, a3 = (3 + root) / 8, (5 - 3 * root) / 32, (1 + sqrt(4 + root)) / 4
    x3 = (a3 * v2 + A2 / 16) / (A2 + a3)
    assert abs(x3) < 0.004
    assert run.trials == [3, 2, 1]
    assert run.M == [4, 4, 2]
    assert run.L == [1, 2, 2, 1]
    same(run.a, [1 / 4, (1 + root) / 8, a3])
    same(run.A, [0, 1 / 4, A2, A2 + a3])
    same_1d(run.x, [1, 1 / 4, x3])
    same_1d(run.y, [1, 1 / 4, 1 / 16, -x3 / 2])
    same_1d(run.v, [1, 1 / 4, v2, v2 - 3 * a3 * x3])


@pytest.mark.parametrize(
    "method", [methods.universal_primal, methods.universal_dual, methods.universal_fast]
)
def test_line_search_is_bounded(method):
    with pytest.raises(RuntimeError, match="step 0: no trial of 7 passed"):
        method(lambda x: (float("nan"), x), [1], 5, 0.1, max_trials=7)


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
