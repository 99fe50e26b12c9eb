"""Slopes and linear terms of cuts, ordinary and degenerate."""

#: What becomes of random slopes, one per row, and of the numbers of the linear term
KINDS = {
    "plain": lambda A, e, rng: (A, e),
    "dependent": lambda A, e, rng: (A[:, :2] @ rng.standard_normal((2, A.shape[1])), e),
    "equal": lambda A, e, rng: (A[rng.integers(0, 1 + len(A) // 3, len(A))], e),
    "nearly equal": lambda A, e, rng: (A[:1] + 1e-7 * A, 1e-7 * e),
    "two bunches": lambda A, e, rng: (
        rng.choice([1, -1], (len(A), 1)) * A[:1] + 1e-7 * A,
        1e-14 * e,
    ),
    "some zero": lambda A, e, rng: (A * (rng.random((len(A), 1)) > 0.4), e),
    "one dimension": lambda A, e, rng: (A[:, :1], e),
    "one cut": lambda A, e, rng: (A[:1], e[:1]),
    "no linear term": lambda A, e, rng: (A, 0.0 * e),
    "all zero": lambda A, e, rng: (0.0 * A, e),
    "badly scaled": lambda A, e, rng: (
        A * 10.0 ** rng.uniform(-3, 3, (len(A), 1)),
        e * 10.0 ** rng.uniform(-4, 4),
    ),
    "badly scaled linear term": lambda A, e, rng: (A, e * 10.0 ** rng.uniform(-8, 8, len(e))),
    "large constant": lambda A, e, rng: (A, e + 1e6),
}


def drawn(kind, rng):
    n, d = int(rng.integers(2, 30)), int(rng.integers(2, 40))
    A, e = rng.standard_normal((n, d)), rng.exponential(size=n) * (rng.random(n) < 0.8)
    return KINDS[kind](A, e, rng)
