"""The first fit in a new environment: what it takes, and what of that is compiling.

Run: python benchmarks/first_fit.py [--quick] [--only WORD ...]. Every fit is the first one of
a new process, with an empty folder for compiled code. Data are below 20 MB. Printed are the seconds
of the processor, on one thread, of the first fit and of a second one, the kernels that were
compiled, and whether the fit met its tolerance. Imports are not counted, but for Numba's, which is
loaded when it is needed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import scipy.sparse as sp

LIMIT = 2.0
#: rows, columns, and entries of a row where they are few
SHAPES = {
    "small": (1000, 20, 0),
    "dense": (50_000, 49, 0),
    "wide dense": (3000, 800, 0),
    "text": (3000, 5000, 60),
    "large text": (20_000, 30_000, 80),
    "short rows": (15_000, 300, 12),
    "tall sparse": (40_000, 8000, 40),
}
CLASSES = ("log_loss", "hinge", "squared_hinge", "modified_huber")
NUMBERS = ("squared_error", "absolute_error", "huber", "epsilon_insensitive", "quantile")
TERMS = {
    "l1": {"penalty": "l1", "alpha": 1e-3},
    "elastic net": {"penalty": "elasticnet", "alpha": 1e-3},
    "box": {"feasible_set": "box"},
    "non-negative": {"feasible_set": "non-negative"},
}


def quick_cases():
    """Yield names and what is fitted: three losses with all defaults, and a function."""
    for shape in SHAPES:
        for loss in ("log_loss", "hinge", "squared_error"):
            yield f"{shape}, {loss}", {"shape": shape, "loss": loss}
    yield "a function of 200 coordinates", {"function": 200}


def cases():
    """Yield names and what is fitted."""
    for shape in SHAPES:
        for loss in (*CLASSES, *NUMBERS):
            yield f"{shape}, {loss}", {"shape": shape, "loss": loss}
        for loss in ("log_loss", "hinge"):
            yield f"{shape}, {loss}, five classes", {"shape": shape, "loss": loss, "classes": 5}
        for loss in ("log_loss", "squared_error"):
            name = f"{shape}, {loss}, float32"
            yield name, {"shape": shape, "loss": loss, "dtype": "float32"}
            for term, parameters in TERMS.items():
                name = f"{shape}, {loss}, {term}"
                yield name, {"shape": shape, "loss": loss, "parameters": parameters}
    yield "a function of 200 coordinates", {"function": 200}


def data(shape, dtype, loss, classes):
    """Return rows and targets."""
    rng = np.random.default_rng(0)
    rows, columns, entries = SHAPES[shape]
    if entries:
        numbers = (10 * rng.pareto(0.7, (rows, entries))).astype(np.int64) % columns
        values = rng.random((rows, entries)) + 0.1
        values /= np.linalg.norm(values, axis=1)[:, None]
        ends = np.arange(rows + 1) * entries
        X = sp.csr_matrix((values.ravel(), numbers.ravel(), ends), shape=(rows, columns))
        X.sum_duplicates()
    else:
        X = rng.standard_normal((rows, columns))
    scores = X @ rng.standard_normal((columns, max(classes, 1)))
    scores += 0.5 * scores.std() * rng.standard_normal(scores.shape)
    X = X.astype(dtype)
    if loss in NUMBERS:
        return X, scores[:, 0]
    return X, scores.argmax(axis=1) if classes else scores[:, 0] > 0


def estimator(loss, parameters):
    """Return the estimator, all by default but what is given."""
    import accelegrad as ag
    from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

    sets = {"box": ag.Box(-0.5, 0.5), "non-negative": ag.NonNegative()}
    given = {name: sets.get(value, value) for name, value in parameters.items()}
    return (AcceleGradClassifier if loss in CLASSES else AcceleGradRegressor)(loss=loss, **given)


def prepared(case):
    """Return a call that fits, and tells whether the tolerance was met."""
    import accelegrad as ag

    if "function" in case:
        A = np.random.default_rng(0).standard_normal((2 * case["function"], case["function"]))
        x0 = np.zeros(case["function"])

        def fun(x):
            rest = A @ x - 1.0
            return float(np.abs(rest).sum()), A.T @ np.sign(rest)

        return lambda: bool(ag.minimize(fun, x0, tol=1e-3).success)
    loss, parameters = case["loss"], case.get("parameters", {})
    X, y = data(case["shape"], case.get("dtype", "float64"), loss, case.get("classes", 0))
    fitted = estimator(loss, parameters)
    return lambda: bool(fitted.fit(X, y).converged_)


def compiled_kernels():
    """Return the names of the kernels that this process has compiled or loaded."""
    if "numba" not in sys.modules:
        return []
    from accelegrad.kernels import compile as compiling

    calls = {
        f"{call.kernel.__module__}.{call.kernel.__name__}": call.kernel
        for call in compiling.all_calls()
    }
    return sorted(name.rpartition("kernels.")[2] for name, k in calls.items() if k.overloads)


def measure(case):
    """Print what a first and a second fit take."""
    warnings.simplefilter("ignore")
    fit, seconds = prepared(case), []
    for _ in range(2):
        begun = time.process_time()
        met = fit()
        seconds.append(time.process_time() - begun)
    print(json.dumps({"seconds": seconds, "met": met, "kernels": compiled_kernels()}))


def in_new_process(case):
    """Return what is measured in a process with nothing compiled."""
    with tempfile.TemporaryDirectory() as folder:
        one = {"NUMBA_CACHE_DIR": folder, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        code = [sys.executable, __file__, "--case", json.dumps(case)]
        environment = {**os.environ, **one}
        done = subprocess.run(code, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], help="words that a case's name must have")
    parser.add_argument("--quick", action="store_true", help="three losses, all else by default")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        measure(json.loads(given.case))
        return
    print("| case | first | second | compiled |\n|---|---:|---:|---|")
    beyond = []
    for name, case in quick_cases() if given.quick else cases():
        if not all(word in name for word in given.only):
            continue
        found = in_new_process(case)
        first, second = found["seconds"]
        missed = "" if found["met"] else " (tolerance missed)"
        kernels = ", ".join(found["kernels"])
        print(f"| {name}{missed} | {first:.2f} s | {second:.2f} s | {kernels} |", flush=True)
        if first > LIMIT:
            beyond.append(name)
    print(f"\nwanted: at most {LIMIT} s; beyond: {'; '.join(beyond) or 'none'}")


if __name__ == "__main__":
    main()
