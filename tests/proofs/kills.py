"""Runs that are killed at random moments: resumed, each ends as the one that nobody killed.

    python tests/proofs/kills.py [--kills 300] [--seed 0]

A child process does a run of the fuzz with checkpoints and is killed, as often as it takes until one
child gets to the end; what that one found is compared, bit for bit, with a run that was left alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:] = [str(HERE.parent), *(path for path in sys.path if path != str(HERE))]

from proofs.cases import Case, drawn  # noqa: E402
from proofs.checks import COMPARED, TRACED, FindingError, attempt, same  # noqa: E402

PAUSE = 5e-4  # seconds after each iteration, so that there is time to be killed in
KILLS_A_RUN = 4
MOST_CHILDREN = 60  # of one run; by then one gets to the end


def outcome(case: Case, path: Path | None = None) -> dict[str, Any]:
    """Return what a run says; with a path it goes on from there, and keeps what it does."""
    more: dict[str, Any] = {"trace": True}
    if path is not None:
        # Who looks on changes nothing, and gives time to be killed in.
        more |= {"checkpoint": path, "checkpoint_every": 1 + case.seed % 3}
        more["callback"] = lambda _: time.sleep(PAUSE)
        more["resume"] = path if path.exists() else None
    result = attempt(case, **more)
    said = {name: result.get(name) for name in COMPARED}
    return said | {f"trace {name}": result.trace[name] for name in TRACED}


def _child(case: Case, kept: Path, told: Path) -> None:
    told.write_bytes(pickle.dumps(outcome(case, kept)))


def killed(case: Case, folder: Path, rng: np.random.Generator, most: int) -> tuple[int, list[str]]:
    """Kill a run up to `most` times; return how often it was, and what differs in the end."""
    context = multiprocessing.get_context("fork")
    wanted = outcome(case)
    begun = time.perf_counter()
    outcome(case, folder / "whole")  # how long that takes
    whole = time.perf_counter() - begun
    kills, kept, told = 0, folder / "kept", folder / "told"
    for number in range(MOST_CHILDREN):
        child = context.Process(target=_child, args=(case, kept, told))
        child.start()
        again = number < MOST_CHILDREN - 1 and kills < most
        child.join(rng.uniform(0, 0.7 * whole) if again else None)
        if child.is_alive():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
            child.join()
        if child.exitcode == -signal.SIGKILL:  # perhaps at its very last moment
            kills += 1
            continue
        if child.exitcode != 0:
            return kills, [f"the resumed run ended with exit code {child.exitcode}"]
        break
    found = pickle.loads(told.read_bytes())
    return kills, [name for name in wanted if not same(found[name], wanted[name])]


def main(arguments: list[str] | None = None) -> int:
    """Kill as often as asked for, over random cases in turn."""
    parser = argparse.ArgumentParser(description="Kill runs, resume them, and compare.")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    rng, count, runs, wrong, seed = np.random.default_rng(given.seed), 0, 0, 0, given.seed
    while count < given.kills:
        case, seed = drawn(seed), seed + 1
        most = min(KILLS_A_RUN, given.kills - count)
        with tempfile.TemporaryDirectory() as folder:
            try:
                kills, different = killed(case, Path(folder), rng, most)
            except FindingError:  # a distance beyond the range: `checks` looks at refusals
                continue
        count, runs = count + kills, runs + 1
        if different:
            wrong += 1
            print(f"seed {case.seed}: after {kills} kills these differ: {', '.join(different)}")
    print(f"{count} kills in {runs} runs, {wrong} of them ended otherwise")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
