"""The paper's regression problem, solved by each method, with a proof of accuracy for each."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelegrad.minimize import minimize
from accelegrad.problems.synthetic import paper_regression

ROW = "{:<16}{:>6}{:>7}{:>13}{:>13}   {}"


def demo(*, n: int = 2000, d: int = 500, calls: int = 1000, seed: int = 0) -> str:
    """Return a table: each method on the smooth and the non-smooth problem, `calls` calls each."""
    lines = []
    for p in (2, 1):
        problem = paper_regression(p, n=n, d=d, seed=seed)
        x_star, minimum = problem.minimum()
        kind = "smooth" if p == 2 else "non-smooth"
        lines += [
            f"min ||Ax - b||_{p}^{p}, {n} x {d} ({kind}); minimum {minimum:.6f} "
            f"by {'lstsq' if p == 2 else 'HiGHS'}",
            ROW.format("method", "steps", "calls", "true gap", "certified", "ended"),
        ]
        diameter = 2 * float(np.linalg.norm(x_star))
        for method, options, steps in _methods(calls, 1e-3 * minimum):
            result = minimize(
                problem.fun,
                np.zeros(d),
                method=method,
                diameter=diameter,
                max_iter=steps,
                **options,
            )
            true_gap = max(result.fun - minimum, 0.0) / minimum
            gap = result.gap / minimum
            lines.append(
                ROW.format(
                    method,
                    result.nit,
                    result.nfev,
                    f"{true_gap:.1e}",
                    f"{gap:.1e}",
                    result.status.name,
                )
            )
        lines.append("")
    lines.append(
        "Gaps are relative to the minimum. A certified gap is a proof that needs no minimum: it "
        "is never\nsmaller than the true one."
    )
    return "\n".join(lines)


def _methods(calls: int, epsilon: float) -> list[tuple[str, dict[str, Any], int]]:
    """Return (method, options, steps); line searches need two or four calls a step."""
    return [
        ("accelegrad", {}, calls),
        ("adagrad", {}, calls),
        ("universal", {"epsilon": epsilon}, calls // 2),
        ("universal-dual", {"epsilon": epsilon}, calls // 4),
        ("universal-fast", {"epsilon": epsilon}, calls // 4),
    ]
