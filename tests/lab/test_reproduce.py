"""The paper's experiments: tasks, the runner, claims that can fail, the command line, the page."""

import itertools
import json
import signal
import subprocess
import sys
import time
import tomllib
from importlib import resources

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from accelegrad.cli import main as cli
from accelegrad_lab import paper
from accelegrad_lab.datasets import as_binary
from accelegrad_lab.engine.experiment import Family, Setup, Verdict, slope, verdict_of
from accelegrad_lab.engine.models import file_data, model_of
from accelegrad_lab.engine.models import minimum_task as text_minimum
from accelegrad_lab.engine.tasks import Outcome, Progress, Store, Task, TaskError, run_tasks
from accelegrad_lab.paper import large_batch, regression, stochastic
from accelegrad_lab.paper import reproduce as reproduction
from accelegrad_lab.paper.regression import minimum_task, problem_of
from accelegrad_lab.paper.reproduce import EXPERIMENTS, Request, reproduce
from browser import wait_for

SMALL = {"p": 2, "n": 60, "d": 8, "noise": 1e-2, "seed": 0}
RUN = {"method": "accelegrad", "rho": 2.0, "projected": True, "batch": 0, "iterations": 80}
SILENT = Progress(1, shown=False)


def small_task(**changes):
    return Task("regression", {**SMALL, **RUN, **changes})


NOISY = small_task(batch=1, draw=3, p=1)


@pytest.fixture(autouse=True)
def no_real_data(monkeypatch):
    monkeypatch.delenv("ACCELEGRAD_DATA", raising=False)


def test_a_damaged_result_is_computed_again(tmp_path):
    store = Store(tmp_path)
    good = store.get(small_task())
    path = store.path(small_task())
    path.write_bytes(path.read_bytes()[:100])
    assert store.load(small_task()) is None
    np.testing.assert_array_equal(store.get(small_task()).arrays["last"], good.arrays["last"])


def test_what_is_recorded_is_the_objective(tmp_path):
    """The trace against a run of the plain transcription."""
    from reference import methods

    store = Store(tmp_path)
    outcome = store.get(small_task())
    problem = problem_of(SMALL)
    known = store.get(minimum_task(SMALL))
    x_star = np.linalg.lstsq(problem.A, problem.b, rcond=None)[0]
    assert known.facts["minimum"] == pytest.approx(np.sum((problem.A @ x_star - problem.b) ** 2))
    D = 4 * np.linalg.norm(x_star)

    def project(x):
        return x * min(1, D / 2 / np.linalg.norm(x))

    run = methods.accelegrad(lambda x: problem.fun(x)[1], np.zeros(8), 80, D, project=project)
    for name, points in (("average", run.average), ("last", run.y[1:])):
        expected = [problem.fun(points[int(t) - 1])[0] for t in outcome.arrays["iteration"]]
        expected = np.array(expected) - known.facts["minimum"]
        np.testing.assert_allclose(outcome.arrays[name], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(outcome.arrays["calls"], outcome.arrays["iteration"])
    noisy = store.get(NOISY).arrays
    np.testing.assert_allclose(noisy["epochs"], noisy["iteration"] / 60)  # counted in rows


def test_the_numbers_do_not_depend_on_the_number_of_processes(tmp_path):
    tasks, stores = [small_task(), NOISY], [Store(tmp_path / "one"), Store(tmp_path / "two")]
    for jobs, store in enumerate(stores, 1):
        run_tasks(tasks, store, jobs=jobs, progress=SILENT)
    for task in tasks:
        alone, together = (store.load(task).arrays for store in stores)
        for name, values in alone.items():
            np.testing.assert_array_equal(values, together[name])
    with pytest.raises(TaskError, match=r"regression with .*'method': 'newton'"):
        run_tasks([small_task(method="newton")], stores[1], jobs=2, progress=SILENT)


def test_an_interrupt_within_a_task_is_not_taken_for_its_end(tmp_path, monkeypatch):
    store, task, calls = Store(tmp_path), small_task(), itertools.count()
    store.get(minimum_task(SMALL))
    original = regression.PaperProblem.fun

    def fun(self, x):
        if next(calls) == 60:
            raise KeyboardInterrupt
        return original(self, x)

    monkeypatch.setattr(regression.PaperProblem, "fun", fun)
    with pytest.raises(KeyboardInterrupt):
        run_tasks([task], store, jobs=1, progress=SILENT)
    assert store.load(task) is None


def outcome(gaps, last=None, calls=1.0, **facts):
    x = np.geomspace(1, 1000, len(gaps)).round()
    arrays = {"iteration": x, "calls": calls * x, "epochs": x / 10, "average": np.array(gaps)}
    arrays["last"] = np.array(gaps if last is None else last)
    return Outcome(arrays, {"status": "MAX_ITER", **facts})


def family(rate, start=1.0, last_rate=None, **more):
    x = np.geomspace(1, 1000, 40).round()
    last = None if last_rate is None else start * x**last_rate
    return Family.of([outcome(start * x**rate, last, **more)], [1.0])


def test_family_takes_medians_of_scaled_gaps():
    made = Family.of(
        [outcome([4.0, 2.0]), outcome([2.0, 1.0]), outcome([9.0, 9.0])], [2.0, 1.0, 1.0]
    )
    np.testing.assert_array_equal(made.average, [2.0, 1.0])
    np.testing.assert_array_equal(made.high["average"], [9.0, 9.0])
    assert made.final("average") == 1.0
    less = Family.of([outcome([4.0, 3.0])], [2.0], minimum=1.0)
    np.testing.assert_array_equal(less.average, [1.5, 1.0])
    assert made.first_below("average", 1.5, "iterations") == 1000
    assert made.first_below("average", 0.5, "iterations") == np.inf
    assert made.value_at("average", "iterations", 999) == 2.0
    x = np.geomspace(1, 1e4, 50)
    assert slope(x, np.maximum(3 * x**-1.7, 1e-5), floor=2e-5) == pytest.approx(-1.7)
    cells = [True, True], [True, True, False], [True, False]
    assert list(map(verdict_of, cells)) == [Verdict.HOLDS, Verdict.IN_PART, Verdict.FAILS]


def exact_families(ours=-2.0, theirs=-1.0, **changes):
    made = {}
    for p in (2, 1):
        for rho in regression.RHOS:
            made[p, "accelegrad", rho] = family(ours if p == 2 else -0.6, 10 * rho, **changes)
            made[p, "adagrad", rho] = family(theirs if p == 2 else -0.5, 20 * rho)
        for index, epsilon in enumerate(regression.EPSILONS):
            made[p, "universal", epsilon] = family(-1.0, 10.0**-index, calls=2.0)
            made[p, "universal-fast", epsilon] = family(-1.0, 10.0**-index, calls=4.0)
    return made


def by_epsilon(families, p, gap):
    """Return the families with final gaps of the searching methods by the place of epsilon."""
    places = itertools.product(regression.SEARCHING, enumerate(regression.EPSILONS))
    return families | {(p, m, epsilon): family(-1.0, gap(place)) for m, (place, epsilon) in places}


def noisy_families(ratio=1.0, at_one=10.0):
    made = {}
    for p, rho in itertools.product((2, 1), (*regression.RHOS, stochastic.SLIGHTLY_MORE)):
        factor = at_one if (p, rho) == (2, 1.0) else ratio
        made[p, "accelegrad", rho] = family(-0.7, factor)
        made[p, "adagrad", rho] = family(-0.7, 1.0)
    return made


def with_searches(rate):
    cells = itertools.product((2, 1), stochastic.NOISY_SEARCHES, [stochastic.EPSILON])
    return QUIET | dict.fromkeys(cells, family(rate))


GOOD, QUIET = exact_families(last_rate=-3.0), noisy_families()
FLAT, SLOW = ({key: family(-1.0, calls=3.0) for key in GOOD}, {key: family(-0.3) for key in QUIET})
HALVES = dict.fromkeys([(p, "accelegrad", 0.5) for p in (2, 1)], family(0.1))
CLAIMS = [  # with results where it holds, and where it does not
    (regression.beats_adagrad, GOOD, exact_families(ours=-0.5, theirs=-2.0)),
    (regression.last_beats_average, GOOD, exact_families(last_rate=-0.1)),
    (regression.overshoots, GOOD, FLAT),
    (regression.small_epsilon_helps, GOOD, by_epsilon(GOOD, 2, lambda k: 10.0**k)),
    # One that is smaller is better, until it is too small.
    (regression.epsilon_must_fit, by_epsilon(GOOD, 1, lambda k: 10.0 ** abs(k - 4)), GOOD),
    (regression.data_passes, GOOD, FLAT),
    (regression.rates, GOOD, exact_families(ours=-1.0)),
    (stochastic.performs_similarly, QUIET, noisy_families(ratio=20.0)),
    (stochastic.adagrad_ahead_once, QUIET, noisy_families(ratio=3.0, at_one=1.0)),
    (stochastic.larger_diameter_cures, QUIET, noisy_families(ratio=20.0)),
    (stochastic.standard_rate, QUIET, SLOW),
    (stochastic.searches_fail, with_searches(0.5), with_searches(-2.0)),
    (
        lambda free: stochastic.works_without_projection({"exact": QUIET}, {"exact": free}),
        noisy_families(ratio=0.9),
        noisy_families(ratio=50.0),
    ),
    (lambda free: stochastic.works_underestimated({"exact": free}), SLOW, SLOW | HALVES),
]


@pytest.mark.parametrize(("claim", "holds", "fails"), CLAIMS)
def test_claims_follow_the_numbers(claim, holds, fails):
    assert claim(holds).verdict is Verdict.HOLDS
    partly = claim.__module__ == regression.__name__  # they have several cells
    assert claim(fails).verdict in (Verdict.FAILS, Verdict.IN_PART if partly else None)


def batch_cells(adagrad, accelegrad):
    start = {"adagrad": adagrad, "accelegrad": accelegrad}
    cells = itertools.product(
        large_batch.PAPERS_LOSSES, large_batch.DIAMETERS, start, (1, 10, 100, 1000, 5000)
    )
    return {cell: family(-1.0, start[cell[2]](cell[3])) for cell in cells}


def test_large_batch_claims_follow_the_numbers():
    claims = large_batch.adagrad_degrades, large_batch.accelegrad_improves, large_batch.same_for_svm
    good = batch_cells(lambda b: max(b, 1000) / 1000, lambda b: 1 / b)
    assert [claim(good).verdict for claim in claims] == [Verdict.HOLDS] * 3
    bad = batch_cells(lambda b: 1.0, lambda b: b)
    assert [claim(bad).verdict for claim in claims] == [Verdict.FAILS] * 3
    # Where no batch gets to 1e-2, the second lowest gap of all decides.
    far = batch_cells(lambda b: max(b, 1000) / 1000, lambda b: 1e6 / b)
    assert large_batch.accelegrad_improves(far).verdict is Verdict.HOLDS
    claim = large_batch.accelegrad_improves(batch_cells(lambda b: 1.0, lambda b: 1e6 * b))
    assert claim.verdict is Verdict.FAILS
    assert "Small batches are as good" in claim.explanation
    # No verdict but a plain one is left unexplained.
    unexplained = large_batch.adagrad_degrades(bad)
    assert unexplained.explanation == ""
    shown = unexplained.beside(set())
    assert shown.explanation
    assert shown.figure == ""


def write_data(path, rows=40, seed=0):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((rows, 12)) < 1 / 3, rng.standard_normal((rows, 12)), 0.0)
    y = np.where(X.sum(axis=1) + rng.standard_normal(rows) > 0, 1, -1)
    dump_svmlight_file(X, y, str(path), zero_based=False)
    return path


def test_a_file_is_known_by_its_content(tmp_path):
    path = tmp_path / "a.svm"
    files = [file_data(write_data(path, seed=seed), as_binary) for seed in (0, 0, 1)]
    assert files[0] == files[1] != files[2]
    parameters = {"data": files[2], "rows": 30, "seed": 0, "loss": "hinge", "l2": 0.1}
    assert model_of(parameters).n_samples == 30
    hinge = Store(tmp_path / "store").get(text_minimum(parameters)).facts
    assert hinge["solver"] == "the method of multipliers"
    assert hinge["lower"] >= (1 - 1e-9) * hinge["minimum"]


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, capsys):
    out, data = tmp_path / "report", write_data(tmp_path / "mine.svm", rows=60)
    arguments = ["reproduce", "large-batch", "--quick", "--no-progress", "--out", str(out)]
    arguments += ["--data", str(data), "--jobs"]
    command = [sys.executable, "-m", "accelegrad", *arguments, "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while len(list((out / "results").glob("text-*.npz"))) < 3:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == cli.INTERRUPTED
    assert "interrupted" in error
    assert "Traceback" not in error
    assert not (out / "index.html").exists()

    def results():
        return {path: path.stat().st_mtime_ns for path in (out / "results").glob("*.npz")}

    kept = results()
    assert cli.main([*arguments, "1"]) == 0
    assert capsys.readouterr().out == f"The report is {(out / 'index.html').resolve()}\n"
    assert kept.items() <= results().items()
    assert "mine.svm" in (out / "index.html").read_text("utf-8")
    names = [f"large-batch-{loss}-{d}" for loss in ("logistic", "hinge") for d in (10000, 200)]
    assert {path.stem for path in (out / "figures").glob("*.png")} == set(names)
    assert {path.stem for path in (out / "figures").glob("*.svg")} == set(names)
    with np.load(out / "traces" / "large-batch.npz") as traces:
        index = json.loads(traces["index"].tobytes())
        assert len(index) == 2 * 2 * 2 * 3  # losses, diameters, methods, b in {1, 10, 60}
        assert traces["0/average"].shape == traces["0/epochs"].shape
        assert index[0]["parameters"]["loss"] == "logistic"


def test_claims_that_compare_experiments_find_what_they_need(tmp_path):
    """Asking for one experiment alone runs the others that its claims stand on."""
    setup, name = Setup(quick=True, seeds=1), "stochastic-unprojected"
    runs = [EXPERIMENTS[needed] for needed in (*reproduction.NEEDS[name], name)]
    there = {task.key for one in runs for task in (*one.tasks(setup), *one.first(setup))}
    asked = set()

    class Recording(Store):
        def get(self, one):
            asked.add(one.key)
            return outcome(np.geomspace(1, 0.1, 5), minimum=1.0)

    EXPERIMENTS[name].claims(setup, Recording(tmp_path))
    assert asked <= there


def test_the_demo_has_every_experiment_and_opens_in_a_browser(tmp_path, monkeypatch, request):
    """In a few seconds: each with fewer rows and steps, on made data."""
    monkeypatch.setattr(regression, "size", lambda _: {"n": 60, "d": 8, "noise": 1e-2})
    monkeypatch.setattr(regression, "budget", lambda _: 40)
    monkeypatch.setattr(stochastic, "epochs", lambda _: 2)
    monkeypatch.setattr(large_batch, "size", lambda _: {"rows": 1200, "epochs": 2})
    made = {"source": "generated", "n": 1500, "d": 200, "nnz": 8, "seed": 0}
    monkeypatch.setattr(reproduction, "generated_data", lambda *_, **__: made)
    demo = reproduce(Request(tmp_path, quick=True, progress=False))
    text = demo.read_text("utf-8")
    for experiment in EXPERIMENTS.values():
        assert experiment.title in text
        assert (demo.parent / "traces" / f"{experiment.name}.npz").exists()
    claims = tomllib.loads((resources.files(paper) / "claims.toml").read_text("utf-8"))
    assert len(claims) == 17
    assert all(f'id="claim-{name}"' in text for name in claims)
    assert "generated" in text
    assert "AcceleGrad beats AdaGrad" in text  # the claim's name in words
    assert "medians over seeds" not in text  # there is one
    assert demo.stat().st_size < 12e6
    open_page = request.getfixturevalue("open_page")  # which skips the rest without a browser
    driver = open_page(demo)
    figures = len(list((demo.parent / "figures").glob("*.png")))
    wait_for(driver, f"document.querySelectorAll('.js-plotly-plot .main-svg').length >= {figures}")
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
