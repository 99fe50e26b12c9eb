"""`accelegrad bench --everyday`: the objective and its peers, verdicts, time limits, the report."""

from __future__ import annotations

import csv
import math
import os
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp

from accelegrad.cli.main import main
from accelegrad_lab.engine.worker import SolverError
from accelegrad_lab.everyday import report as report_module
from accelegrad_lab.everyday.cases import COLD, FULL, WORDS, Case, cases
from accelegrad_lab.everyday.everyday import EverydayRequest, bench_everyday
from accelegrad_lab.everyday.goals import GOALS, Contest
from accelegrad_lab.everyday.peers import CHECKS, OURS, PEERS
from accelegrad_lab.everyday.report import claims
from accelegrad_lab.everyday.results import Measured, Results, Summary, line_of, verdict, verdicts
from accelegrad_lab.everyday.rows import REGRESSIONS, Rows, rows_of
from accelegrad_lab.everyday.runs import Record, Workers, cold, measure
from reference.losses import OTHER_NAMES, loss_values

SINGLE = [name for name, goal in GOALS.items() if not goal.path]
PATHS = [name for name, goal in GOALS.items() if goal.path]
#: The peers that need not end at the minimum of our objective: LIBLINEAR penalises its intercept,
#: and the default number of iterations ends SAGA and SGD before.
ELSEWHERE = ("liblinear", "LinearSVC", "LinearSVR", "saga", "SGDClassifier")


def contest_of(goal: str, *, classes: int = 2, sparse: bool = False) -> Contest:
    """Return a small problem whose columns are so small that the penalty matters."""
    rng = np.random.default_rng(3)
    X: Any = 0.05 * rng.standard_normal((300, 6)) * (rng.random((300, 6)) < 0.7)
    scores = 40 * X @ rng.standard_normal((6, classes)) + rng.gumbel(size=(300, classes))
    numbers = GOALS[goal].loss not in ("log_loss", "hinge", "squared_hinge")
    y = 1.0 + scores[:, 0] / scores[:, 0].std() if numbers else scores.argmax(axis=1)
    return Contest(GOALS[goal], Rows(sp.csr_matrix(X) if sparse else X, y))


def fitted(contest: Contest, solver: str, tol: float | None = None) -> Any:
    """Return the estimator of a peer, or ours, after a fit."""
    estimator = contest.ours(tol) if solver == OURS else PEERS[solver].make(contest)
    with warnings.catch_warnings():
        # Some end before their tolerance, and peers say what will be different in later versions.
        warnings.simplefilter("ignore")
        return estimator.fit(*contest.rows)


def plain_objective(contest: Contest, w: np.ndarray, b: float) -> float:
    """Return the objective of two classes or numbers, written down anew."""
    goal, (X, y) = contest.goal, contest.rows
    y = y if contest.classes is None else np.where(y == 1, 1.0, -1.0)
    parameter = {
        "huber": contest.parameters.get("delta"),
        "quantile": 0.9,
        "epsilon_insensitive": 0.1,
    }.get(goal.loss)
    losses = loss_values(OTHER_NAMES.get(goal.loss, goal.loss), X @ w + b, y, parameter=parameter)
    l1, l2 = np.abs(w).sum(), w @ w / 2
    penalties = {None: 0.0, "l1": l1, "l2": l2, "elasticnet": l1 / 2 + l2 / 2}
    return float(np.mean(losses) + contest.alpha * penalties[goal.penalty])


# -- what is compared ------------------------------------------------------------------------------


@pytest.mark.parametrize("goal", SINGLE)
def test_the_objective_is_that_of_our_estimator(goal: str) -> None:
    contest = contest_of(goal)
    ours = fitted(contest, OURS)
    w, b = np.ravel(ours.coef_), float(np.ravel(ours.intercept_)[0])
    # Sums of 300 terms of the size of one.
    assert contest.value(ours) == pytest.approx(plain_objective(contest, w, b), rel=1e-12)
    assert ours.objective_ == pytest.approx(contest.value(ours), rel=1e-12)
    assert 0 < contest.floor < contest.value(ours)


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_the_objective_of_many_classes(loss: str) -> None:
    contest = contest_of(loss, classes=4)
    ours = fitted(contest, OURS)
    X, y = contest.rows
    scores = X @ ours.coef_.T + ours.intercept_
    penalty = contest.alpha / 2 * (ours.coef_**2).sum()
    if loss == "log_loss":
        value = np.mean(logsumexp(scores, axis=1) - scores[np.arange(y.size), y]) + penalty
    else:
        signs = np.where(y[:, None] == np.arange(4), 1.0, -1.0)
        value = np.maximum(0, 1 - signs * scores).mean(axis=0).sum() + penalty
    assert contest.value(ours) == pytest.approx(value, rel=1e-12)
    assert contest.is_joint == (loss == "log_loss")


@pytest.mark.parametrize("goal", SINGLE)
def test_peers_minimise_the_same_objective(goal: str) -> None:
    """At the peers' default tolerances; no peer goes below what we prove."""
    contest = contest_of(goal)
    ours = fitted(contest, OURS, 1e-6)
    bound = ours.objective_ - ours.gap_
    names = [name for name, peer in PEERS.items() if peer.counts and peer.takes_part(contest)]
    assert names
    for name in names:
        if PEERS[name].apart:
            continue  # it compiles for long
        value = contest.value(fitted(contest, name))
        assert value >= bound * (1 - 1e-9)
        if not any(words in name for words in ELSEWHERE):
            assert value <= 1.001 * ours.objective_, name


def test_a_scaled_intercept_brings_liblinear_closer() -> None:
    contest = contest_of("l1 log_loss 0.1")
    X, y = contest.rows
    # Columns far from zero ask for a large intercept.
    contest = Contest(contest.goal, Rows(X + 0.5, y))
    best = fitted(contest, OURS, 1e-6).objective_
    names = [name for name in PEERS if "l1, liblinear" in name]
    plain, scaled = (contest.value(fitted(contest, name)) / best - 1 for name in names)
    assert scaled < plain / 2


@pytest.mark.parametrize("goal", PATHS)
def test_paths_have_as_many_fits_of_the_same_strengths(goal: str) -> None:
    contest = contest_of(goal)
    (peer,) = (fitted(contest, name) for name in PEERS if PEERS[name].takes_part(contest))
    ours = fitted(contest, OURS)
    strengths = getattr(peer, "Cs_", getattr(peer, "alphas_", getattr(peer, "alphas", None)))
    assert len(strengths) == len(ours.alphas_) == 7
    chosen = {
        "log_loss CV": lambda: 1 / (0.8 * 300 * np.ravel(peer.C_)[0]),
        "ridge CV": lambda: peer.alpha_ / (0.8 * 300),
        "lasso CV": lambda: peer.alpha_,
    }[goal]()
    assert np.isclose(ours.alphas_, chosen, rtol=1e-9, atol=0).any()


def test_an_l1_share_of_one_leaves_no_weight() -> None:
    for goal in ("lasso 0.1", "l1 log_loss 0.1", "elastic net 0.1"):
        contest = contest_of(goal)
        for share, empty in ((1.0001, True), (0.9, False)):
            one = Contest(replace(contest.goal, share=share), contest.rows)
            assert (not fitted(one, OURS, 1e-9).coef_.any()) == empty


# -- cases -----------------------------------------------------------------------------------------


def test_cases_are_found_by_group_set_and_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELEGRAD_DATA", raising=False)
    whole = cases()
    assert {case.group for case in whole} >= {"small", "sparse", "classes", "cv"}
    assert not any(case.data == "basehock" for case in whole)  # the files are not there
    assert {case.group for case in cases(["sparse"])} == {"sparse"}
    chosen = cases(["classes", "hinge", "digits", "iris"])
    assert {case.key for case in chosen} == {"classes/iris/hinge", "classes/digits/hinge"}
    assert {case.data for case in cases(["breast_cancer"], quick=True)} == {"breast_cancer, scaled"}
    with pytest.raises(ValueError, match="did you mean 'hinge'"):
        cases(["hing"])


def test_every_case_is_declared() -> None:
    every = [case for group in FULL for case in group.cases()]
    assert len({case.key for case in every}) == len(every)
    assert {case.group for case in every} == set(WORDS)
    assert {case.goal for case in every} == set(GOALS)
    assert set(COLD) <= {case.key for case in every}


def test_scaled_sets_are_scaled() -> None:
    rows = rows_of("diabetes-100, scaled")
    np.testing.assert_allclose(rows.X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(rows.X.std(axis=0), 1)
    assert rows.y.std() == pytest.approx(1)
    assert rows_of("diabetes-100").y.std() > 10
    assert set(rows_of("iris-100, scaled").y) == {0, 1, 2}
    assert "iris-100" not in REGRESSIONS


# -- verdicts --------------------------------------------------------------------------------------

CASE = Measured("text/a/hinge", "text", "a", "hinge", "10 x 2, dense", 1e-4, 0.01)


def records(**values: tuple[float, float]) -> dict[str, Record]:
    """Return records by solver: seconds and value; ours is certified to 1e-3."""
    made = {
        name: Record(CASE.key, name, cpu=2 * wall, wall=wall, fits=3, value=value)
        for name, (wall, value) in values.items()
    }
    ours = made[OURS]
    ours.objective, ours.gap, ours.certified = ours.value, 1e-3 * ours.value, True
    return made


def test_only_accurate_peers_count() -> None:
    found = records(AcceleGrad=(0.06, 1.0004), LinearSVC=(0.01, 1.1), SGDClassifier=(0.03, 1.0))
    one = verdict(CASE, found)
    assert (one.fastest, one.ratio, one.cpu_ratio) == ("SGDClassifier", pytest.approx(2), 2)
    assert (one.usual, one.usual_ratio) == ("LinearSVC", pytest.approx(6))
    assert one.excess == pytest.approx({"AcceleGrad": 4e-4, "LinearSVC": 0.1, "SGDClassifier": 0})
    assert one.certified
    assert one.counts


def test_a_value_below_our_bound_is_told() -> None:
    one = verdict(CASE, records(AcceleGrad=(0.06, 1.0), LinearSVC=(0.01, 0.9989)))
    assert one.refuted
    assert not one.certified


def test_the_stricter_fit_is_part_of_the_best_value_known() -> None:
    found = records(AcceleGrad=(0.06, 1.0), LinearSVC=(0.01, 1.0004))
    found["reference"] = Record(CASE.key, "reference", value=0.9993)
    one = verdict(CASE, found)
    assert one.fastest == ""
    assert math.isnan(one.ratio)
    assert not one.counts


def test_short_fits_do_not_count() -> None:
    assert not verdict(CASE, records(AcceleGrad=(0.006, 1.0), LinearSVC=(0.0019, 1.0))).counts


def test_the_summary() -> None:
    summary = Summary.of([1.0, 4.0, math.nan])
    assert (summary.cases, summary.within_2, summary.worst) == (2, 1, 4.0)
    assert summary.mean == pytest.approx(2.0)
    assert Summary.of([]).words == "no case with a peer"
    assert Summary.of([1.0, math.inf]).words == (
        "geometric mean 1.00, within 2x on 1 of 2 (50%), at most infx"
    )


def test_a_fit_of_ours_that_does_not_end_counts_as_lost() -> None:
    found = records(AcceleGrad=(0.06, 1.0), LinearSVC=(0.01, 1.0))
    found[OURS] = Record(CASE.key, OURS, "time limit")
    one = verdict(CASE, found)
    assert not one.certified
    assert one.counts
    assert one.ratio == math.inf


def test_records_are_read_as_they_were_written() -> None:
    found = Results()
    kept = records(AcceleGrad=(0.06, 1.0), LinearSVC=(0.01, 1.0))
    kept["LinearSVC"].wall = math.inf
    found.take("case", line_of(CASE, kept.values()))
    assert found.cases == {CASE.key: CASE}
    assert {one.wall for one in found.records[CASE.key].values()} == {0.06, math.inf}
    assert found.records[CASE.key][OURS] == kept[OURS]


def test_claims_are_judged() -> None:
    found = Results()
    for group, goal, cpu in (("text", "hinge", 0.03), ("numbers", "lasso 0.1", 0.06)):
        case = replace(CASE, key=f"{group}/a/{goal}", group=group, goal=goal)
        peer = "LinearSVC" if group == "text" else "Lasso"
        kept = records(**{OURS: (cpu, 1.0), peer: (0.02, 1.0)})
        found.take("case", line_of(case, kept.values()))
    told = {claim.name: claim.verdict.value for claim in claims(found, verdicts(found))}
    assert told == {
        "certified": "holds",
        "mean": "does not hold here",
        "within-2x": "holds in part",
        "within-5x": "holds",
        "text-hinge": "holds",
        "lasso": "does not hold here",
    }


# -- runs ------------------------------------------------------------------------------------------


def test_a_case_is_measured() -> None:
    with Workers() as workers:
        size, found = measure(Case("small", "diabetes-100, scaled", "ridge"), workers, 20.0)
        by = {record.solver: record for record in found}
        assert size.words == "100 x 10, dense"
        assert set(by) == {OURS, "Ridge", CHECKS, "reference"}
        assert all(0 < by[name].cpu < 1 and by[name].fits == 9 for name in (OURS, "Ridge", CHECKS))
        assert by[OURS].certified
        assert by["Ridge"].value == pytest.approx(by[OURS].value, rel=1e-3)
        assert by[CHECKS].cpu < by[OURS].cpu
        # A fit that takes too long is ended, with its process, and the next one begins anew.
        _, found = measure(Case("numbers", "numbers-small", "quantile 0.9"), workers, 1e-9)
        assert {record.status for record in found} == {"time limit"}


def test_a_first_fit_has_an_empty_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "before")
    case = Case("small", "diabetes-100, scaled", "ridge")
    assert cold(case, OURS, 60.0).cpu > 0
    assert os.environ["NUMBA_CACHE_DIR"] == "before"
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    with pytest.raises(SolverError, match="KeyError"):
        cold(case, "no solver", 60.0)
    assert "NUMBA_CACHE_DIR" not in os.environ


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no figures: tests of the report do."""
    page = lambda report, out: out / "index.html"  # noqa: E731
    monkeypatch.setattr(report_module, "write_report", page)


def small(out: Path, **options: Any) -> EverydayRequest:
    given = {"only": ("small", "ridge"), "quick": True, "progress": False, "cold": False}
    return EverydayRequest(out, **{**given, **options})


@pytest.mark.usefixtures("undrawn")
def test_results_are_kept_for_another_time(tmp_path: Path) -> None:
    bench_everyday(small(tmp_path))
    file = tmp_path / "results.jsonl"
    before = file.read_bytes()
    bench_everyday(small(tmp_path, resume=True))
    assert file.read_bytes() == before
    with pytest.raises(ValueError, match="--resume goes on"):
        bench_everyday(small(tmp_path))
    with pytest.raises(ValueError, match="the settings are"):
        bench_everyday(small(tmp_path, resume=True, time_limit=1.0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--everyday", "--only", "rigde"], "did you mean 'ridge'"),
        (["--everyday", "--sets", "a9a"], "--sets does not go with --everyday"),
        (["--everyday", "--minima"], "--minima needs --functions"),
        (["--everyday", "--functions"], "--functions does not go with --everyday"),
        (["--everyday", "--time-limit", "0"], "time_limit must be"),
        (["--only", "ridge"], "--only needs --functions or --everyday"),
    ],
)
def test_wrong_options_are_refused(options, words, tmp_path, capsys) -> None:
    assert main(["bench", *options, "--out", str(tmp_path / "out")]) != 0
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_command(tmp_path: Path, capsys) -> None:
    options = ["--everyday", "--quick", "--only", "small,log_loss,ridge", "--no-progress"]
    assert main(["bench", *options, "--out", str(tmp_path)]) == 0
    assert "The report is" in capsys.readouterr().out
    folder = tmp_path / "everyday"
    assert "AcceleGrad" in (folder / "index.html").read_text("utf-8")
    assert (folder / "figures" / "everyday.svg").exists()
    table = (folder / "table.md").read_text("utf-8")
    assert "| diabetes-100, scaled, ridge | 100 x 10, dense |" in table
    assert "Most beyond scikit-learn's checks" in table
    with (folder / "table.csv").open(encoding="utf-8") as file:
        solvers = {(row["goal"], row["solver"]) for row in csv.DictReader(file)}
    assert {("ridge", "Ridge"), ("log_loss", "LogisticRegression")} <= solvers


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_all_quick_cases_are_certified(tmp_path: Path) -> None:
    bench_everyday(EverydayRequest(tmp_path, quick=True, progress=False))
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ours = [row for row in rows if row["solver"] == OURS]
    assert len(ours) == len(cases(quick=True))
    assert all(float(row["excess"]) <= 1e-3 for row in ours)
    assert "REFUTED" not in (tmp_path / "table.md").read_text("utf-8")
    others = {row["solver"] for row in rows} - {OURS, "reference"}
    counted = {name for name, peer in PEERS.items() if peer.counts or name == CHECKS}
    # celer takes part where it is installed, and no extra installs it.
    assert others == counted - ({"celer"} if find_spec("celer") is None else set())
