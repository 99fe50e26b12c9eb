"""How tight the certified gap is at the end of a run, over the suite of functions.

Run: python benchmarks/certified_gap.py [--only NAME ...] [--calls 5000] [--seconds 60]
[--tol none 1e-4 1e-6] [--json FILE]. Every function of the suite (`accelegrad bench --functions`)
is minimised by the default method, without a tol to the limit of calls, and with each tol.

"true" is the value returned less the minimum, which other solvers found; "proved" is the certified
gap. The proof is tight where it is at most twice the true gap, or twice the floor: below it neither
is known. The floor is the error of the stored minimum plus rounding: `FLOOR_UNITS` units, and one
for each coordinate (an inner product is off by half of that, and values of such functions are
sums), of the largest term of a cut: values, and the slope times the way from x0. A proof is false
where it is below the true gap by more than the floor.

With a tol a run ends as soon as the proof is within it; the true gap is often far smaller by then.
So tightness is asked of runs without a tol, and of the others that they end by their own proof.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import accelegrad as ag
from accelegrad_lab.functions.minima import minima
from accelegrad_lab.functions.suite import SUITE

TIGHT = 2.0
#: What a cut's terms are taken to be known to, in units of rounding of their size
FLOOR_UNITS = 400
UNIT = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    name: str
    size: int
    tol: float | None
    calls: int
    status: str
    true: float
    proved: float
    floor: float
    radius: float
    distance: float
    seconds: float

    @property
    def ratio(self) -> float:
        """How many times the true gap, or the floor, was proved."""
        return self.proved / max(self.true, self.floor)

    @property
    def tight(self) -> bool:
        """Whether that is at most twice."""
        return self.ratio <= TIGHT

    @property
    def false(self) -> bool:
        """Whether the proof is refuted by the minimum, which is known up to the floor."""
        return self.proved < self.true - self.floor

    @property
    def by_proof(self) -> bool:
        """Whether the run ended by its own proof."""
        return self.status in ("CONVERGED", "STATIONARY")


def ended(name: str, tol: float | None, calls: int, seconds: float) -> Ended:
    """Run the default method on a function."""
    function, least = SUITE[name].build(), minima()[name]
    begun = time.process_time()
    result = ag.minimize(
        function.fun,
        function.x0,
        feasible_set=function.feasible_set,
        penalty=function.penalty,
        max_iter=calls,
        time_limit=seconds,
        tol=tol,
    )
    rise = float(np.linalg.norm(result.jac) * np.linalg.norm(result.x - function.x0))
    size = max(abs(least.start), abs(least.value), abs(result.fun), rise)
    rounding = (FLOOR_UNITS + function.x0.size) * UNIT * size
    return Ended(
        name=name,
        size=function.x0.size,
        tol=tol,
        calls=result.nfev,
        status=result.status.name,
        true=result.fun - least.value,
        proved=result.gap,
        floor=least.error * (least.start - least.value) + rounding,
        radius=result.certified_radius,
        distance=least.distance,
        seconds=time.process_time() - begun,
    )


def line(run: Ended) -> str:
    """Return a run as a line of the table."""
    far = f"{run.radius / run.distance:>9.2g}" if run.distance else " " * 9
    mark = "FALSE" if run.false else "" if run.tight else "loose"
    return (
        f"{run.name:<26}{run.size:>6}{run.calls:>6} {run.status:<17}{run.true:>10.1e}"
        f"{run.proved:>10.1e}{run.floor:>9.0e}{run.ratio:>10.3g}{run.radius:>10.3g}{far}"
        f"{run.seconds:>7.1f}  {mark}"
    )


def summary(runs: list[Ended], tol: float | None) -> str:
    """Return the shares that count."""
    n, false = len(runs), sum(run.false for run in runs)
    calls = math.exp(sum(math.log(run.calls) for run in runs) / n)
    shares = f"{false} below the true gap; calls {calls:.1f} (geometric mean); "
    tight = f"within {TIGHT:g}x of the truth: {sum(run.tight for run in runs)} of {n}"
    if tol is None:
        return shares + tight
    return shares + f"ended by the proof: {sum(run.by_proof for run in runs)} of {n}; {tight}"


def main() -> None:
    """Print a table for each tol."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(SUITE))
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=60.0, help="a run's limit")
    parser.add_argument("--tol", nargs="*", default=["none", "1e-4", "1e-6"])
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    given = parser.parse_args()
    every: list[Ended] = []
    for word in given.tol:
        tol = None if word == "none" else float(word)
        print(f"\n{'no tol' if tol is None else f'tol={tol:g}'}, at most {given.calls} steps")
        print(
            f"{'function':<26}{'d':>6}{'calls':>6} {'status':<17}{'true':>10}{'proved':>10}"
            f"{'floor':>9}{'ratio':>10}{'radius':>10}{'/ dist.':>9}{'s':>7}"
        )
        runs = []
        for name in given.only:
            runs.append(ended(name, tol, given.calls, given.seconds))
            print(line(runs[-1]), flush=True)
        print(summary(runs, tol))
        every += runs
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(run) for run in every], indent=1) + "\n")


if __name__ == "__main__":
    main()
