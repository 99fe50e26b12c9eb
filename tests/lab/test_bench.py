"""`accelegrad bench`: ladders, verdicts, processes, resuming, and a report of each benchmark."""

import csv
import json
import math
import multiprocessing
import os
import re
from dataclasses import replace

import numba
import numpy as np
import pytest

from accelegrad.cli.main import main
from accelegrad_lab.bench import harness
from accelegrad_lab.bench import report as bench_report
from accelegrad_lab.bench.cases import COLD, FULL, GOALS, SUITES, Case
from accelegrad_lab.bench.harness import BenchRequest, bench, cold_call, measure
from accelegrad_lab.bench.report import Problem, Record, Results, claims, summary_words
from accelegrad_lab.engine import worker as engine_worker
from accelegrad_lab.engine.experiment import Verdict
from accelegrad_lab.engine.fit import Rung, Sample
from accelegrad_lab.engine.rows import Rows, rows_of
from accelegrad_lab.engine.tasks import LineFile
from accelegrad_lab.engine.worker import Pair, SolverError, TimeLimitError, Timing, Worker
from accelegrad_lab.peers import EVERYDAY, PEERS, SOLVERS, Peer, iterations, once, tolerances
from accelegrad_lab.report import stills
from accelegrad_lab.report.tables import geometric_mean, profile, ratios

CASE = Case(SOLVERS, "hinge", "a", "hinge l2=1/n")
KEY = CASE.key


def problem_for(*solvers, **changes):
    return Problem(KEY, *CASE[1:], "", 1.0, 0.0, 0.5, 0.5, list(solvers))._replace(**changes)


def results_of(times, suite=SOLVERS, **changes):
    """Return results in which each solver reached everything in one run of so many seconds."""
    results = Results(SUITES[suite])
    results.problems[KEY] = problem_for(*times, **changes)
    for name, seconds in times.items():
        rung = Rung(1.0, seconds, 0.5, 2 * seconds, bound=0.5 if PEERS[name].own else -math.inf)
        rungs = (rung,) if math.isfinite(seconds) else ()
        results.records[KEY, name] = Record(KEY, name, rungs, "")
    return results


def test_every_case_is_declared_and_its_rows_are_prepared():
    every = [(g, data, goal) for g, sets, goals in FULL for data in sets for goal in goals]
    assert len(set(every)) == len(every)
    assert {group for group, _, _ in every} == set(SUITES[EVERYDAY].groups)
    assert {goal for *_, goal in every} == set(GOALS)
    assert set(COLD) <= set(map("/".join, every))
    scaled = rows_of("diabetes-100, scaled")
    for values in (scaled.X, scaled.y):
        np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(values.std(axis=0), 1)
    assert set(rows_of("iris-100, scaled").y) == {0, 1, 2}  # labels stay
    prepared = rows_of("numbers-small, prepared").X
    np.testing.assert_allclose(prepared.mean(axis=0), [0] * 10 + [1], atol=1e-12)
    np.testing.assert_allclose(prepared.std(axis=0), [1] * 10 + [0], atol=1e-12)
    text = rows_of("text-small, prepared").X
    assert text.indices.dtype == np.int32
    assert abs(text).max() == 1
    assert set(Rows(np.ones((51, 2)), np.r_[np.ones(50), -1.0]).head(10).y) == {-1.0, 1.0}


def fails(steps):
    if steps < 3:
        return 0.5
    raise SolverError("no")


LADDERS = [
    (lambda steps: 0.99 / 100**steps, {}, "reached", 3),
    (lambda steps: 0.5 if steps >= 3 else 1.0, {"limit": 1e9}, "stalled", 3 + 10),
    (lambda steps: 1.0 / steps, {"limit": 0.1}, "time limit", 6),  # 14 steps would take 0.14 s
    (lambda steps: 0.1, {"ladder": once}, "ended", 1),
    (lambda steps: 0.1, {"ended": "converged"}, "converged", 1),
    (fails, {}, "failed: no", 2),
]


@pytest.mark.parametrize(("value", "given", "status", "runs"), LADDERS)
def test_ladders_end(monkeypatch, value, given, status, runs):
    """Measure a fake solver, whose value is a function of the setting."""
    asked, ended = [], given.get("ended", "")

    class Processes:
        def call(self, _, case, name, setting, *__, limit):
            asked.append(setting)
            rung = Rung(setting, 0.01 * setting, value(setting))
            return Sample([rung], ended), Sample([rung._replace(seconds=0.02 * setting)])

    toy = Peer("Toy", "toy", None, lambda _: "", ladder=given.get("ladder", iterations))
    monkeypatch.setitem(PEERS, "toy", toy)
    known = problem_for("toy", minimum=0.0, lower=0.0)
    record = measure(Processes(), CASE, "toy", known, given.get("limit", 10.0))
    assert (record.status, len(record.rungs)) == (status, runs)
    assert asked[:6] == [1, 2, 3, 4, 6, 9][: len(asked)]
    assert [rung.cpu for rung in record.rungs] == [0.02 * steps for steps in asked[:runs]]
    assert list(tolerances())[:3] == pytest.approx([0.1, 0.1 / math.sqrt(10), 0.01])
    assert math.isnan(next(SUITES[EVERYDAY].settings(PEERS["LinearSVC"])))


def test_ours_counts_only_where_it_is_accurate_and_says_so():
    results = results_of({"minimize": 9.0, "LinearSVC": 1.0})
    rungs = (
        Rung(1e-2, 1.0, 0.5, bound=0.4),  # accurate, but it does not know
        Rung(1e-3, 2.0, 0.6, bound=0.6 - 1e-9),  # a wrong certificate
        Rung(1e-4, 3.0, 0.5, 4.0, bound=0.5 - 1e-9),
    )
    results.records[KEY, "minimize"] = Record(KEY, "minimize", rungs, "")
    assert results.costs("seconds", 1e-3)[KEY] == {"minimize": 3.0, "LinearSVC": 1.0}
    assert results.costs("CPU seconds", 1e-3)[KEY]["minimize"] == 4.0
    assert results.over_best_peer("seconds") == {KEY: (3.0, "LinearSVC")}
    assert results.refuted(KEY)
    unsure = results_of({"minimize": 1.0}, lower=0.5 - 4e-5)  # 8e-5 of P(0) - P*
    assert unsure.unsure(KEY) == pytest.approx(8e-5)
    assert [bool(unsure.costs("seconds", a)) for a in (1e-2, 1e-3, 1e-4)] == [True, True, False]
    # With defaults accuracies are relative to the minimum, or to a floor.
    rung, relative = Rung(1.0, 1.0, 0.5051), problem_for(start=math.inf)
    reached = [
        relative._replace(floor=floor).reached(rung, 1e-2, 0.5, proved=False) for floor in (0, 1)
    ]
    assert reached == [False, True]
    below = results_of({"minimize": 1.0, "LinearSVC": 1.0})
    assert not below.refuted(KEY)
    below.records[KEY, "LinearSVC"] = Record(KEY, "LinearSVC", (Rung(1.0, 1.0, 0.49),), "")
    assert below.lowest(KEY) == 0.49
    verdicts = {claim.name: claim.verdict for claim in claims(below)}
    assert verdicts["bounds-hold"] is verdicts["solved"] is Verdict.FAILS


def test_claims_are_judged():
    def verdicts(times, suite=SOLVERS):
        found = claims(results_of(times, suite))
        return {claim.name: claim.verdict is Verdict.HOLDS for claim in found}

    always, ratios = ["solved", "bounds-hold"], ["mean", "within-2x", "within-5x"]
    good = verdicts({"minimize": 1.0, "AcceleGrad": 5.0, "LinearSVC": 2.0})
    assert good == dict.fromkeys(always + ratios, True)
    bad = verdicts({"minimize": 6.0, "AcceleGrad": 0.1, "LinearSVC": 1.0})
    assert bad == dict.fromkeys(always, True) | dict.fromkeys(ratios, False)
    assert list(verdicts({"minimize": 6.0, "AcceleGrad": 0.1})) == always  # there is no peer
    assert list(verdicts({"minimize": 0.006, "LinearSVC": 0.0019})) == always  # too short to count
    assert not verdicts({"minimize": math.inf, "LinearSVC": 1.0})["solved"]
    assert not verdicts({"AcceleGrad": 1.0, "AcceleGrad, first fit": 2.1}, EVERYDAY)["first-fit"]
    words = summary_words([1.0, math.inf])
    assert words == "geometric mean 1.00, within 2x on 1 of 2 (50%), not solved on 1"


def test_solvers_of_one_colour_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(stills, "draw_still", lambda _figure: {})
    names = [name for name, peer in PEERS.items() if peer.method == "LIBLINEAR"]
    results = results_of(dict.fromkeys(["minimize", *names], 1.0))
    page = bench_report.write_bench_report(results, tmp_path, 1.0, 1.0, interrupted=False)
    (data,) = re.findall(r'<script type="application/json".*?>(.*?)</script>', page.read_text())
    entries = json.loads(data)[0]["entries"]
    looks = [(entry["dash"], entry["colour"]["light"]) for entry in entries]
    assert len(set(looks)) == len(looks) == 1 + len(names) == 11


def test_profiles_of_a_hand_made_example():
    inf = math.inf
    times = {"p": {"a": 1, "b": 2}, "q": {"a": 3, "b": 1}, "r": {"a": inf, "b": 4}, "s": {"b": inf}}
    found = ratios(times)
    assert found["p"] == {"a": 1, "b": 2}
    a, b = profile(found, "a"), profile(found, "b")
    assert (a.problems, b.problems) == (3, 4)
    assert [a.share(factor) for factor in (1, 2.9, 3, 100)] == [1 / 3, 1 / 3, 2 / 3, 2 / 3]
    assert [b.share(factor) for factor in (1, 1.9, 2, 100)] == [0.5, 0.5, 0.75, 0.75]
    x, y = a.line(10.0)
    assert (x.tolist(), y.tolist()) == ([1, 3, 3, 10], [1 / 3, 1 / 3, 2 / 3, 2 / 3])
    never = profile(ratios({"p": {"a": 1.0, "b": 4.0}}), "b")  # it starts at zero
    assert never.line(8.0)[1].tolist() == [0, 0, 1, 1]
    assert geometric_mean([1.0, 4.0, inf]) == pytest.approx(2)
    assert math.isnan(geometric_mean([]))


def test_results_are_kept_line_by_line_and_half_a_line_is_dropped(tmp_path):
    file, settings = LineFile(tmp_path / "results.jsonl"), {"time_limit": 5.0}
    assert file.begin(settings, resume=False) == []
    kept = results_of({"minimize": 1.0}, start=math.inf).problems
    rungs = Rung(math.nan, 0.5, math.inf), Rung(2.0, 1.0, 0.2, 0.1, 3.0, 0.1)
    file.add("problem", kept[KEY]._asdict())
    file.add("record", Record(KEY, "minimize", rungs, "reached").to_json())
    with file.path.open("a") as stream:
        stream.write('{"kind": "record", "problem": "a/h')
    for _ in range(2):
        found = Results(SUITES[SOLVERS])
        for kind, content in file.begin(settings, resume=True):
            found.take(kind, content)
        assert found.problems == kept
        assert repr(found.records[KEY, "minimize"].rungs) == repr(rungs)
    with pytest.raises(ValueError, match="--resume goes on"):
        file.begin(settings, resume=False)
    with pytest.raises(ValueError, match=r"was made with .*5\.0.* but now the settings are"):
        file.begin({"time_limit": 6.0}, resume=True)


def test_an_interrupted_run_writes_its_report_and_goes_on(tmp_path, monkeypatch):
    seen = []

    def instant(_pair, case, name, known, limit):
        seen.append(f"{case.key} {name} {limit:g}")
        if len(seen) == 4:
            raise KeyboardInterrupt
        rung = Rung(1.0, 0.03, known.minimum, bound=known.minimum)
        return Record(case.key, name, (rung,), "reached")

    monkeypatch.setattr(harness, "measure", instant)
    monkeypatch.setattr(stills, "draw_still", lambda _figure: {})  # is shown below
    asked = BenchRequest(
        tmp_path, only=("numbers-small", "absolute"), solvers=("LinearSVR", "QuantReg"),
        quick=True, progress=False, time_limit=3.0,
    )  # fmt: skip
    page, interrupted = bench(asked)
    assert interrupted
    assert "no: it was interrupted" in page.read_text("utf-8")
    assert not bench(replace(asked, resume=True))[1]
    assert seen.count(seen[3]) == 2  # only what was interrupted was run again
    assert len(set(seen)) == len(seen) - 1
    assert seen[0].endswith("minimize 3")
    assert seen[1].endswith("LinearSVR 2")  # others get less where ours is fast
    count = len(seen)
    bench(replace(asked, resume=True))
    assert len(seen) == count


def test_a_call_that_compiles_is_made_again_but_for_a_first_fit():
    made = []

    def make():
        made.append(1)
        return lambda: numba.njit(lambda x: x + 1.0)(1.0)  # which compiles each time

    assert Timing(most=1).fastest(make)[0] == 2.0
    assert len(made) == 1
    Timing(most=2).fastest(make)
    assert len(made) == 1 + 3


def slept(begun, seconds, cpu):
    import time

    begun()
    time.sleep(seconds)
    return seconds, os.getpid(), cpu


def dies(begun, cpu):
    os._exit(1)


def variable(begun, name, cpu):
    return os.environ.get(name)


def test_processes_are_ended_and_replaced(monkeypatch):
    others = set(multiprocessing.active_children())  # of tests before
    with Pair() as pair:
        first, second = pair.call(slept, 0.0, limit=60.0)
        assert (first[2], second[2]) == (False, True)
        assert len({first[1], second[1], os.getpid()}) == 3
        assert pair.call(slept, 0.0, limit=60.0)[0][1] == first[1]
        with pytest.raises(TimeLimitError, match=r"more than 0\.51 s"):
            pair.call(slept, 60.0, limit=0.01)
        again, _ = pair.call(slept, 0.0, limit=60.0)
        assert again[1] != first[1]
        monkeypatch.setenv("OMP_NUM_THREADS", "7")
        for worker in (pair.default, pair.single):
            worker.end()
        assert pair.call(variable, "OMP_NUM_THREADS", limit=60.0) == ("7", "1")
        with pytest.raises(SolverError, match="ended by itself"):
            pair.call(dies, limit=60.0)
        with pytest.raises(SolverError, match="TypeError: 'str' object"):
            pair.default.call(slept, "x", False, limit=60.0)
    assert set(multiprocessing.active_children()) <= others
    monkeypatch.setenv("NUMBA_CACHE_DIR", "before")
    folder = cold_call(variable, "NUMBA_CACHE_DIR", limit=60.0)[0]
    assert folder not in ("before", None)  # a first fit has an empty cache
    assert os.environ["NUMBA_CACHE_DIR"] == "before"
    monkeypatch.setattr(engine_worker, "serve", print)  # which says nothing to its parent
    with pytest.raises(RuntimeError, match="ended as it started"):
        Worker(one_thread=True).call(slept, 0.0, True, limit=60.0)


def run(tmp_path, *options, folder="."):
    assert main(["bench", *options, "--no-progress", "--out", str(tmp_path)]) == 0
    with (tmp_path / folder / "table.csv").open(encoding="utf-8") as file:
        return tmp_path / folder, list(csv.DictReader(file))


def test_the_benchmark_of_solvers(tmp_path, capsys):
    """Recompute every number of table.csv from results.jsonl in a plain way."""
    only = "numbers-small,absolute l2=1/n,absolute l2=0,huber l2=1/n"
    out, rows = run(tmp_path, "--quick", "--only", only, "--solvers", "LinearSVR,L-BFGS-B")
    assert "The report is" in capsys.readouterr().out
    assert "solved" in (out / "index.html").read_text("utf-8")
    assert len(list((out / "figures").glob("profile-1e-0[2346].png"))) == 4
    assert "## Solvers at 0.001" in (out / "table.md").read_text("utf-8")
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    problems = {line["key"]: line for line in lines if line["kind"] == "problem"}
    records = {
        (line["problem"], line["solver"]): [tuple(map(float, rung[:6])) for rung in line["rungs"]]
        for line in lines
        if line["kind"] == "record"
    }
    assert len(problems) == 3
    assert len(records) == 3 + 2  # ours, and a peer where l2 > 0
    assert len(rows) == 4 * len(records)
    for row in rows:
        key, solver, accuracy = row["problem"], row["solver"], float(row["accuracy"])
        every = [rung[2] for one, rungs in records.items() if one[0] == key for rung in rungs]
        lowest, start = min([problems[key]["minimum"], *every]), problems[key]["start"]
        fits = [r for r in records[key, solver] if r[2] <= lowest + accuracy * (start - lowest)]
        if solver == "minimize":
            assert fits  # each is solved to 1e-6
            fits = [r for r in fits if r[2] - r[5] <= accuracy * (start - r[2]) * (1 + 1e-6)]
        assert float(row["seconds"]) == min((r[1] for r in fits), default=math.inf)


def test_the_benchmarks_of_everyday_fits_and_functions(tmp_path, monkeypatch):
    given = ["--everyday", "--quick", "--only", "small,ridge"]
    out, rows = run(tmp_path, *given, folder="everyday")
    assert "| diabetes-100, scaled, ridge |" in (out / "table.md").read_text("utf-8")
    solvers = {(row["goal"], row["solver"]): row for row in rows}
    always = {(goal, name) for goal, name in solvers if not PEERS[name].needs}
    assert always == {("ridge", "Ridge"), ("ridge", "AcceleGrad")}
    row = solvers["ridge", "AcceleGrad"]
    assert 0 < float(row["CPU seconds"]) < 1
    assert row["status"] == "reached"
    text = (out / "results.jsonl").read_text("utf-8")
    assert '"AcceleGrad, tol=1e-6"' in text  # which is shown and not counted
    monkeypatch.setattr(stills, "draw_still", lambda _figure: {})
    chosen = ["--functions", "--only", "valley,lasso", "--solvers", "lbfgs-b,ad-gd,cvxpy"]
    _, rows = run(tmp_path, *chosen, "--time-limit", "600", folder="functions")
    by = {(row["data"], row["solver"], float(row["accuracy"])): row for row in rows}
    assert len(by) == 2 * 4 * 4
    assert 1 < float(by["lasso", "auto", 1e-2]["calls"]) < 60
    assert 0 < float(by["lasso", "auto", 1e-8]["seconds"]) < 60
    assert by["lasso", "cvxpy", 1e-2]["calls"] == ""
    assert float(by["lasso", "cvxpy", 1e-2]["seconds"]) < math.inf


def test_fits_of_random_shapes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(stills, "draw_still", lambda _figure: {})
    monkeypatch.setitem(PEERS, "absent", replace(PEERS["skglm"], needs="no_such_package"))
    given = ["--shapes", "2", "--seed", "19", "--solvers", "LinearSVR"]
    out, rows = run(tmp_path, *given, folder="shapes")
    assert re.search("Left out, because not installed: .*no_such_package", capsys.readouterr().out)
    fits = [json.loads(line) for line in (out / "fits.jsonl").read_text("utf-8").splitlines()]
    assert len(fits) == 2 + 1
    for fit, row in zip(fits, (r for r in rows if r["solver"] == "LinearSVR"), strict=False):
        assert fit["method"] in ("interior-point", "dual-ascent")
        assert 0 <= fit["gap"] <= 1e-3
        assert 0 < fit["CPU seconds"] < 10
        assert fit["its seconds"] == float(row["seconds"]) < math.inf
    assert "of 2 (" in fits[2]["all problems, seconds"]
    # More shapes leave the first ones as they are.
    assert (
        run(tmp_path, *given, "--shapes", "3", "--resume", folder="shapes")[1][: len(rows)] == rows
    )


def test_an_inaccurate_answer_is_not_a_time():
    results = results_of({"minimize": 1.0, "LinearSVC": 1.0})
    results.records[KEY, "LinearSVC"] = Record(KEY, "LinearSVC", (Rung(1.0, 1.0, 0.6),), "reached")
    cost = results.costs("seconds", 1e-3)[KEY]["LinearSVC"]
    assert cost == math.inf
    assert results.ended(KEY, "LinearSVC", cost) == "inaccurate: 2e-01"
    assert results.ended(KEY, "minimize", 1.0) == ""
