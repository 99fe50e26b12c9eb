"""A stochastic run that writes checkpoints, is stopped, and goes on bit for bit."""

import tempfile
from pathlib import Path

import numpy as np

import accelegrad as ag


def main():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 20))
    y = np.sign(X @ rng.standard_normal(20) + rng.standard_normal(5000))
    model = ag.LinearModel(X, y, loss="logistic", l2=1e-3)
    options = {"diameter": 10.0, "batch_size": 16, "rng": 1}

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.agc"
        ag.minimize(model, max_iter=1000, checkpoint=path, **options)
        resumed = ag.minimize(model, max_iter=3000, resume=path, **options)
    at_once = ag.minimize(model, max_iter=3000, **options)
    print("the same point:", np.array_equal(resumed.x, at_once.x))
    print(f"objective {resumed.fun:.6f}, certified gap {resumed.gap:.1e}")


if __name__ == "__main__":
    main()
