"""`accelegrad reproduce`: run the paper's experiments and write the report."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accelegrad.errors import nearest, whole_number
from accelegrad.files import whole_file
from accelegrad_lab.datasets import as_binary, find
from accelegrad_lab.engine.experiment import Claim, Experiment, Figure, Report, Setup, Verdict
from accelegrad_lab.engine.models import file_data, generated_data, rows_of
from accelegrad_lab.engine.tasks import Progress, Store, run_tasks
from accelegrad_lab.paper.large_batch import LargeBatch
from accelegrad_lab.paper.regression import Deterministic
from accelegrad_lab.paper.stochastic import Stochastic
from accelegrad_lab.report.report import versions, write_report

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Deterministic(projected=True),
        Stochastic(projected=True),
        Deterministic(projected=False),
        Stochastic(projected=False),
        LargeBatch(),
    )
}
# Claims about leaving the projection out compare with the runs that have it.
NEEDS = {"stochastic-unprojected": ("deterministic", "stochastic", "deterministic-unprojected")}
RCV1 = "rcv1_subsets_binary"


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    out: Path
    names: Sequence[str] = ()
    quick: bool = False
    seeds: int | None = None  # by default one in a quick run, three in a full one
    jobs: int = 1
    data: Path | None = None
    progress: bool = True


def reproduce(request: Request) -> Path:
    """Run what is missing, and write the report; return the page's path."""
    begun = time.perf_counter()
    for name in request.names:
        if name not in EXPERIMENTS:
            raise ValueError(f"there is no experiment {name!r}: {nearest(name, EXPERIMENTS)}")
    names = [name for name in EXPERIMENTS if not request.names or name in request.names]
    seeds = request.seeds if request.seeds is not None else (1 if request.quick else 3)
    whole_number("seeds", seeds, least=1)
    whole_number("jobs", request.jobs, least=1)
    store = Store(request.out / "results")
    setup = _setup(request, names, seeds)
    progress = Progress(len(names), shown=request.progress)
    seconds: dict[str, float] = {}
    try:
        for name in names:
            since = time.perf_counter()
            progress.part(name)
            for needed in (*NEEDS.get(name, ()), name):
                experiment = EXPERIMENTS[needed]
                for tasks in (experiment.first(setup), experiment.tasks(setup)):
                    run_tasks(tasks, store, jobs=request.jobs, progress=progress)
            seconds[name] = time.perf_counter() - since
            _save_traces(EXPERIMENTS[name], setup, store, request.out / "traces")
    finally:
        progress.close()
    seconds["in all"] = time.perf_counter() - begun
    facts = _facts(request, names, setup, seconds)
    return write_report(_report(names, setup, store, facts), request.out)


def _setup(request: Request, names: Sequence[str], seeds: int) -> Setup:
    if "large-batch" not in names:
        return Setup(request.quick, seeds)
    path = request.data or find(RCV1)
    generated = generated_data(20_242, 47_236, 74, seed=0)  # RCV1's shape
    data = generated if path is None else file_data(path, as_binary)
    return Setup(request.quick, seeds, data, rows_of({"data": data}).y.size)


def _save_traces(experiment: Experiment, setup: Setup, store: Store, folder: Path) -> None:
    """Write all recorded runs of an experiment to one file, for others to plot."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    index = []
    for number, one in enumerate(experiment.tasks(setup)):
        outcome = store.get(one)
        index.append({"run": number, **outcome.facts})
        arrays |= {f"{number}/{name}": values for name, values in outcome.arrays.items()}
    arrays["index"] = np.frombuffer(json.dumps(index).encode(), dtype=np.uint8)
    with whole_file(folder / f"{experiment.name}.npz") as file:
        np.savez_compressed(file, **arrays)


def _report(
    names: Sequence[str], setup: Setup, store: Store, facts: dict[str, dict[str, str]]
) -> Report:
    figures: list[Figure] = []
    claims: list[Claim] = []
    for name in names:
        figures += EXPERIMENTS[name].figures(setup, store)
        claims += EXPERIMENTS[name].claims(setup, store)
    drawn = {figure.name for figure in figures}
    claims = [claim.beside(drawn) for claim in claims]
    held = sum(claim.verdict is Verdict.HOLDS for claim in claims)
    how = "at reduced size (--quick)" if setup.quick else "at full size"
    return Report(
        "Online Adaptive Methods, Universality and Acceleration: the experiments",
        f"The experiments of Levy, Yurtsever and Cevher (2018), run {how} with {setup.seeds} "
        f"seed{'s' if setup.seeds > 1 else ''}. The paper's claims are judged by stated "
        f"thresholds: {held} of {len(claims)} hold as they stand."
        + (" Curves are medians over seeds, bands their range." if setup.seeds > 1 else ""),
        claims,
        figures,
        facts,
    )


def _facts(
    request: Request, names: Sequence[str], setup: Setup, seconds: dict[str, float]
) -> dict[str, dict[str, str]]:
    facts = {
        "Run": {
            "experiments": ", ".join(names),
            "size": "quick" if request.quick else "full",
            "seeds": str(setup.seeds),
            "processes": str(request.jobs),
            "raw traces": "traces/NAME.npz, one file per experiment",
        },
        "Timings": {
            **{name: f"{spent:.1f} s" for name, spent in seconds.items()},
            "note": "results that were there already took no time",
        },
        "Versions": versions(),
    }
    if setup.data:
        facts["Data"] = {
            "large-batch": rows_of({"data": setup.data}).description,
            **{name: str(value) for name, value in setup.data.items()},
        }
    return facts
