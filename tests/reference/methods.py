"""The methods' formulas, as literally as possible; the rules are tested against them.

Nothing of the package is imported and nothing is accumulated: every iterate is kept, and every sum
is computed afresh from the kept lists. Sources: the references in the rules' docstrings.

Which index is where, in every list of a run: a sequence with a starting value (y, z, v, r, A, L;
x where steps begin at it) begins with it, so that `y[t]` is y_t. What belongs to a step (g, m, eta,
alpha, M, trials, average, query points that are not iterates ...) has one entry per step.
"""

from math import inf, sqrt

import numpy as np


class Run:
    """Everything that a run went through; a list that the method does not have is empty."""

    def __init__(self, **first):
        self.add(**{name: np.array(x, dtype=float) for name, x in first.items()})

    def __getattr__(self, name):
        return self.__dict__.setdefault(name, [])

    def add(self, **entries):
        for name, entry in entries.items():
            getattr(self, name).append(entry)


def moved(x, project, prox=None, step=0.0):
    """Return x after the prox and the projection, where they are given."""
    near = x.copy() if prox is None else prox(x.copy(), step)
    return np.array(near if project is None else project(near), dtype=float)


def weighted(weights, points):
    """Return sum_k w_k p_k, zero if there is nothing to add."""
    return np.array(weights) @ np.array(points) if len(points) else 0.0


def mean(weights, points):
    return weighted(weights, points) / sum(weights)


def squares(alpha, vectors):
    """Return sum_k alpha_k^2 ||v_k||^2."""
    return sum(a**2 * float(v @ v) for a, v in zip(alpha, vectors, strict=True))


def over_root(numerator, total):
    """Return numerator / sqrt(total), 0 for a total of 0."""
    root = np.sqrt(total)
    return np.divide(numerator, root, out=np.zeros_like(root), where=root > 0)[()]


def farthest(points, x0):
    return max(np.linalg.norm(p - x0) for p in points)


def weight(t):
    """Return alpha_t of eq. (2)."""
    return 1.0 if t <= 2 else (t + 1) / 4


# -- AcceleGrad and AdaGrad ------------------------------------------------------------------------


def accelegrad(gradient, x0, T, D=0.0, G=0.0, project=None, project_y=False, beta=None):
    """Alg. 2 with eq. (2), steps t = 0..T-1; with beta its step is 1/beta."""
    run = Run(z=x0, y=x0)
    for t in range(T):
        alpha = weight(t)
        x = 1 / alpha * run.z[t] + (1 - 1 / alpha) * run.y[t]
        run.add(alpha=alpha, x=x, g=np.array(gradient(x.copy()), dtype=float))
        eta = 1 / beta if beta else over_root(2 * D, G**2 + squares(run.alpha, run.g))
        run.add(eta=eta, z=moved(run.z[t] - alpha * eta * run.g[t], project))
        run.add(y=moved(x - eta * run.g[t], project if project_y else None))
        run.add(average=mean(run.alpha, run.y[1:]))
    return run


def linear_coupling(gradient, x0, T, beta, project=None):
    """Alg. 2 with eta_t = 1/beta; the output is the last y."""
    return accelegrad(gradient, x0, T, project=project, beta=beta)


def diagonal_accelegrad(gradient, x0, T, D=None, G=0.0, project=None, project_y=False, r0=None):
    """Alg. 2 in each coordinate, with the widths D, or with r0 and the distance travelled.

    A width grows where the gradients are three standard deviations from a mean of zero.
    """
    run = Run(y=x0, z=x0, r=D if r0 is None else r0)
    start = run.y[0]
    for t in range(T):
        alpha, r = weight(t), run.r[t]
        x = 1 / alpha * run.z[t] + (1 - 1 / alpha) * run.y[t]
        run.add(alpha=alpha, x=x, g=np.array(gradient(x.copy()), dtype=float))
        steps = np.array([a * g for a, g in zip(run.alpha, run.g, strict=True)])
        eta = over_root(2 * r, G**2 + (steps**2).sum(0))
        y = moved(x - eta * run.g[t], project if project_y else None)
        z = run.z[t] - alpha * eta * run.g[t]
        if r0 is not None:
            significant = abs(steps.sum(0)) >= 3 * np.sqrt((steps**2).sum(0))
            r = np.where(significant, np.maximum(r, abs(y - start)), r)
            z = np.clip(z, start - 3 * r, start + 3 * r)
        run.add(eta=eta, y=y, z=moved(z, project), r=r, average=mean(run.alpha, [*run.y[1:], y]))
    return run


def distance_free_accelegrad(gradient, x0, T, r0, *, cap=inf, project=None, prox=None, noisy=False):
    """AcceleGrad with an automatic diameter, as its docstring has it; `noisy`: the second z."""
    bent = project is not None or prox is not None
    run = Run(y=x0, z=x0, r=min(r0, cap))
    for t in range(T):
        alpha, r = weight(t), run.r[t]
        x = 1 / alpha * run.z[t] + (1 - 1 / alpha) * run.y[t]
        g = gradient(x)
        run.add(alpha=alpha, x=x, g=g)
        changes = run.g
        if bent:
            h = run.r[0] / np.linalg.norm(run.g[0])
            mapping = (x0 - moved(x0 - h * run.g[0], project, prox, h)) / h
            changes = [mapping] + [run.g[s] - run.g[s - 1] for s in range(1, t + 1)]
        eta = over_root(2 * r, squares(run.alpha, changes))
        if bent and noisy:
            A, total = sum(run.alpha), weighted(run.alpha, run.g)
            z = moved(x0 - eta * total, project, prox, eta * A)
        else:
            z = moved(run.z[t] - alpha * eta * g, project, prox, alpha * eta)
        far = np.linalg.norm(z - x0)
        run.add(eta=eta, z=x0 + 3 * r * (z - x0) / far if far > 3 * r else z)
        run.add(y=moved(x - eta * g, project, prox, eta))
        run.add(G=(x - run.y[t + 1]) / eta if prox else g, c=alpha * r**2, w=alpha * r)
        N = sum(c * (G @ (x0 - q)) for c, G, q in zip(run.c, run.G, run.x, strict=True))
        S, step = weighted(run.c, run.G), eta / r**2
        proven = N / np.linalg.norm(S)
        if project:
            u = moved(x0 - step * S, project)
            rho = np.linalg.norm(u - x0)
            proven = rho + step * (N - S @ (x0 - u)) / rho
        run.add(r=min(max(r, 2 * float(proven)), cap), average=mean(run.w, run.y[1:]))
    return run


def adagrad(gradient, x0, T, D, project=None):
    """Alg. 1, its x_1 being x0."""
    run = Run(x=x0)
    for t in range(T):
        run.add(g=np.array(gradient(run.x[t].copy()), dtype=float))
        eta = over_root(D, 2 * squares([1.0] * (t + 1), run.g))
        run.add(eta=eta, average=mean([1.0] * (t + 1), run.x))  # before x_{t+1} is appended
        run.add(x=moved(run.x[t] - eta * run.g[t], project))
    return run


def subgradient(gradient, x0, T, step_size, decay, project=None):
    """Plain projected subgradient steps, averaged over the query points with the weights eta_t."""
    run = Run(x=x0)
    for t in range(T):
        eta = step_size / sqrt(t + 1) if decay == "sqrt" else step_size
        run.add(g=gradient(run.x[t].copy()), eta=eta)
        run.add(average=mean(run.eta, run.x))  # before x_{t+1} is appended
        run.add(x=moved(run.x[t] - eta * run.g[t], project))
    return run


# -- Nesterov's universal methods (2015) -----------------------------------------------------------


def first_passing(attempt, L):
    """Return what the first of M = L, 2 L, 4 L ... that passes the test gives."""
    for i in range(100):
        M = 2.0**i * L
        passed, found = attempt(M)
        if passed:
            return {"M": M, "L": M / 2, "trials": i + 1, **found}
    raise RuntimeError("no trial of 100 passed")


def descent(fun, x, epsilon, project):
    """Return the attempt of a step P(x - g/M), which gives g and the point B."""
    f, g = fun(x.copy())

    def attempt(M):
        B = moved(x - g / M, project)
        d = B - x
        return fun(B)[0] <= f + g @ d + M / 2 * (d @ d) + epsilon / 2, {"g": g, "B": B}

    return attempt


def universal_primal(fun, x0, T, epsilon, L0, project=None):
    run = Run(x=x0, L=L0)
    for k in range(T):
        run.add(**first_passing(descent(fun, run.x[k], epsilon, project), run.L[k]))
        run.add(x=run.B[k], average=mean([1 / L for L in run.L[1:]], run.B))
    return run


def universal_dual(fun, x0, T, epsilon, L0, project=None):
    """The dual gradient method; M is tested at x_k, whose gradient it weighs."""
    run = Run(x=x0, L=L0)
    for k in range(T):
        run.add(**first_passing(descent(fun, run.x[k], epsilon, project), run.L[k]))
        phi = run.x[0] - sum(run.g[s] / run.M[s] for s in range(k + 1))
        run.add(x=moved(phi, project), average=mean([1 / M for M in run.M], run.B))
    return run


def universal_fast(fun, x0, T, epsilon, L0, project=None):
    """The fast gradient method; its output is the last y."""
    run = Run(y=x0, A=0.0, L=L0)
    run.add(v=moved(run.y[0], project))
    for k in range(T):
        A, v, y = run.A[k], run.v[k], run.y[k]

        def attempt(M, A=A, v=v, y=y):
            a = (1 + sqrt(1 + 4 * M * A)) / (2 * M)
            tau = a / (A + a)
            x = tau * v + (1 - tau) * y
            f, g = fun(x.copy())
            y_plus = tau * moved(v - a * g, project) + (1 - tau) * y
            d = y_plus - x
            passed = fun(y_plus)[0] <= f + g @ d + M / 2 * (d @ d) + tau * epsilon / 2
            return passed, {"x": x, "g": g, "a": a, "y": y_plus}

        run.add(**first_passing(attempt, run.L[k]))
        total = sum(run.a[s] * run.g[s] for s in range(k + 1))
        run.add(A=sum(run.a), v=moved(run.y[0] - total, project))
    return run


# -- UniXGrad, and the distance travelled ----------------------------------------------------------


def unixgrad(gradient, x0, T, D, G0=None, project=None, prox=None):
    """Alg. 1 of its paper, steps t = 1..T; D is the Euclidean diameter, None for G0 is ||M_1||."""
    run = Run(y=x0, x=x0)  # x[0] is a filler: the method's x begins at 1
    for t in range(1, T + 1):
        alpha, earlier = float(t), np.arange(1.0, t)
        A = sum(range(1, t + 1))
        z_tilde = (alpha * run.y[t - 1] + weighted(earlier, run.x[1:t])) / A
        run.add(alpha=alpha, z_tilde=z_tilde, m=gradient(z_tilde.copy()))
        scale = np.linalg.norm(run.m[0]) if G0 is None else G0
        differences = [g - m for g, m in zip(run.g, run.m[:-1], strict=True)]
        eta = over_root(sqrt(2) * D, scale**2 + squares(earlier, differences))
        step = alpha * eta
        run.add(x=moved(run.y[t - 1] - step * run.m[-1], project, prox, step))
        x_tilde = weighted(run.alpha, run.x[1:]) / A
        run.add(eta=eta, x_tilde=x_tilde, g=gradient(x_tilde.copy()))
        run.add(y=moved(run.y[t - 1] - step * run.g[-1], project, prox, step))
    return run


def u_dog(gradient, x0, T, r0, project=None, prox=None):
    """U-DoG, steps t = 0..T-1; `x_tilde[t]` is the output after t + 1 steps."""
    run = Run(x=x0, y=x0)
    for t in range(T):
        r = max(r0, farthest(run.x, x0), farthest(run.y, x0))
        run.add(r=r, alpha=(sum(run.r) + r) / r)
        w = [a * r for a, r in zip(run.alpha, run.r, strict=True)]
        z_tilde = (w[t] * run.y[t] + weighted(w[:t], run.x[1:])) / sum(w)
        run.add(z_tilde=z_tilde, m=gradient(z_tilde.copy()))
        M = max(a**2 * (v @ v) for a, v in zip(run.alpha, run.m, strict=True))
        Q = squares(run.alpha[:t], [g - m for g, m in zip(run.g, run.m[:t], strict=True)])
        step = run.alpha[t] * over_root(r, max(Q, M))
        run.add(x=moved(run.y[t] - step * run.m[t], project, prox, step))
        x_tilde = mean(w, run.x[1:])
        run.add(x_tilde=x_tilde, g=gradient(x_tilde.copy()))
        Q = squares(run.alpha, [g - m for g, m in zip(run.g, run.m, strict=True)])
        run.add(eta_y=over_root(r, max(Q, M)))
        step = run.alpha[t] * run.eta_y[t]
        run.add(y=moved(run.y[t] - step * run.g[t], project, prox, step))
    return run


def a_dog(gradient, x0, T, r0, project=None):
    """A-DoG, steps t = 0..T-1."""
    run = Run(z=x0, y=x0)
    for t in range(T):
        r = max(r0, farthest(run.z, x0))
        run.add(r=r, alpha=(sum(run.r) + r) / r)
        alpha = run.alpha[t]
        tau = alpha / sum(run.alpha)
        x = tau * run.z[t] + (1 - tau) * run.y[t]
        run.add(x=x, g=gradient(x.copy()))
        run.add(eta=over_root(r, squares(run.alpha, run.g)))
        run.add(z=moved(run.z[t] - alpha * run.eta[t] * run.g[t], project))
        run.add(y=moved(x - run.eta[t] * run.g[t], project))
        run.add(average=mean(np.array(run.alpha) * run.r, run.y[1:]))
    return run


def dog(gradient, x0, T, r0, project=None):
    """DoG, steps t = 0..T-1; `average[t]` is the average of x_0..x_t with weights r_0..r_t."""
    run = Run(x=x0)
    for t in range(T):
        run.add(r=max(r0, farthest(run.x, x0)), g=gradient(run.x[t].copy()))
        run.add(eta=over_root(run.r[t], squares([1.0] * (t + 1), run.g)))
        run.add(average=mean(run.r, run.x))  # before x_{t+1} is appended
        run.add(x=moved(run.x[t] - run.eta[t] * run.g[t], project))
    return run


# -- AcceleGrad without tuning ---------------------------------------------------------------------


def signal_to_noise(run, x0, smallest):
    """Return the ratio that the steps taken near x0 show."""
    cosines = []
    for s in range(1, len(run.g)):
        if (run.r[s] < 1000 * smallest or s < 10) and s <= min(run.settled, default=inf):
            offset = x0 - run.z[s]
            energy = sum(v * v / H for v, H in zip(run.g[s], run.H[s], strict=True) if H)
            product = float(run.g[s] @ offset)
            cosines.append(product * abs(product) / (energy * float(run.H[s] @ offset**2)))
    if not cosines:
        return 0.0
    share = sum(cosines) / len(cosines)
    return max(0.0, share / max(1 - share, 1e-9))


def untuned_accelegrad(
    gradient, x0, T, diagonal=True, r0=None, rate=1.0, momentum=True, project=None, prox=None
):
    """Run T steps; H is one number in every coordinate if not diagonal, `reach` is 2.5 r_t."""
    start = np.array(x0, dtype=float)
    smallest = 1e-6 * (1 + sqrt(float(start @ start) / (start.size if diagonal else 1)))
    own = smallest if momentum else 100 * smallest
    run = Run(x=start, z=start, r=own if r0 is None else r0)
    grown_from, last_growth = run.r[0], 0

    def next_weight(t):
        ratio = signal_to_noise(run, start, smallest) if momentum else 0.0
        return max(1.0, min(weight(t), 10 * ratio ** (1 / 3) * (1 + ratio**2 / 1e6)))

    for t in range(T):
        x, r, alpha = run.x[t], run.r[t], next_weight(t)
        g = np.array(gradient(x), dtype=float)
        run.add(g=g, alpha=alpha, reach=2.5 * rate * r)
        Q = sum((run.r[s] / r) * (run.alpha[s] * run.g[s]) ** 2 for s in range(t + 1))
        H = np.sqrt(Q) if diagonal else np.full(start.size, sqrt(float(np.sum(Q))))
        run.add(H=H, h=float(H.sum()) if diagonal else float(H[0]))
        eta = np.divide(run.reach[t], H, out=np.zeros_like(H), where=H > 0)
        y = moved(x - eta * g, project, prox, eta)
        z = moved(run.z[t] - alpha * eta * g, project, prox, alpha * eta)
        run.add(y=y, z=z)
        if not run.settled:
            N = 0.0
            for s in range(t + 1):
                slope = run.g[s]
                if prox is not None:
                    slope = (run.x[s] - run.y[s]) * run.H[s] / run.reach[s]
                N += run.alpha[s] * run.reach[s] / run.h[s] * float(slope @ (start - run.x[s]))
            length = sqrt(float(H @ (start - z) ** 2))
            exact = signal_to_noise(run, start, smallest) ** 2 if momentum else 0.0
            travelled = sqrt(float(H @ (start - y) ** 2) / run.h[t])
            if length:
                suggested = 2 * N * sqrt(run.h[t]) / length
                if project is not None or prox is not None:
                    suggested = min(suggested, 2 * travelled)
                r = max(r, exact / (exact + 1e6) * travelled, suggested)
            if r > 1.1 * grown_from:
                grown_from, last_growth = r, t + 1
            if t + 1 >= 2 * last_growth + 10 and r >= 1000 * smallest:
                run.add(settled=t)  # from this step on points are averaged
        run.add(r=r)
        tau = 1 / next_weight(t + 1)
        run.add(x=tau * z + (1 - tau) * y)
        points = run.y[run.settled[0] :] if run.settled else []
        run.add(output=mean(np.arange(1.0, len(points) + 1) ** 2, points) if points else run.x[-1])
    return run
