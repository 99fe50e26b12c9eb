"""The benchmark "no tuning": its arithmetic on made-up numbers, its runs against plain ones."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import accelegrad as ag


def _load_benchmark() -> Any:
    """Import benchmarks/no_tuning.py and its neighbour, which are scripts and no package."""
    folder = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("no_tuning")
    finally:
        sys.path.remove(folder)


no_tuning = _load_benchmark()
suite = no_tuning.suite
Pair, NoisyRow, Tuned, Danger = (
    getattr(no_tuning, name) for name in ("Pair", "NoisyRow", "Tuned", "Danger")
)
SMALL = no_tuning.Sizes(400, 40, 2, 1, 2, 2, (1, 8), 20, 1, 200)


@pytest.fixture(scope="module")
def by_name() -> dict[str, Any]:
    problems = suite.load(real=False, quick=True)
    return {problem.name: problem for problem in problems}


# Exact gradients


def test_calls_are_those_of_a_plain_count(by_name: dict[str, Any]) -> None:
    problem, gaps = by_name["least-squares-box"], []

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = problem.evaluate(x)
        inside = problem.feasible_set.contains(x, tolerance=1e-9)
        gaps.append(problem.relative_gap(value) if inside else np.inf)
        return value, gradient

    options = {"method": "accelegrad", "max_iter": 300}
    ag.minimize(fun, problem.x0, feasible_set=problem.feasible_set, **options)
    expected = {
        threshold: next(i + 1 for i, gap in enumerate(gaps) if gap <= threshold)
        for threshold in no_tuning.THRESHOLDS
    }
    assert no_tuning.calls_to(problem, no_tuning.THRESHOLDS, 300) == expected


def test_the_exact_diameter_is_twice_the_distance(by_name: dict[str, Any]) -> None:
    problem = by_name["quartic"]
    assert no_tuning.told(problem, 10.0) == {
        "method": "accelegrad",
        "diameter": 20.0 * np.linalg.norm(problem.x0 - problem.minimiser),
    }


def test_an_automatic_run_that_misses_had_three_times_the_calls(
    by_name: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def calls_to(problem: Any, thresholds: Any, budget: int, **options: Any) -> Any:
        counts = (10.0, 300.0, None) if options else (20.0, None, 450.0)
        return dict(zip(thresholds, counts, strict=True))

    monkeypatch.setattr(no_tuning, "calls_to", calls_to)
    pairs = no_tuning.exact_pairs(by_name["quartic"], SMALL)
    assert [pair.ratio for pair in pairs] == [2.0, 3.0, None]
    assert {pair.budget for pair in pairs} == {900}
    assert pairs[2].auto is None  # beyond the budget that the exact D had
    assert no_tuning.pair_cells(pairs[0]) == ["10", "20", "2.00"]
    assert no_tuning.pair_cells(pairs[1]) == ["300", ">900", ">3.00"]
    assert no_tuning.pair_cells(pairs[2]) == ["-", "-", ""]


def test_the_summary_of_ratios() -> None:
    pairs = [
        Pair("a", "smooth", 1e-2, 10, 5, 400),
        Pair("b", "smooth", 1e-4, 10, 80, 400),
        Pair("c", "far start", 1e-6, 50, None, 400),
        Pair("d", "far start", 1e-2, None, 7, 400),
        Pair("e", "far start", 1e-2, None, None, 400),
    ]
    lines = list(no_tuning.exact_summary(pairs))
    assert "| smooth | 2 | 2.00 | 8.00 | b at 1e-4 |" in lines
    assert "| far start | 1 | 8.00 | 8.00 | c at 1e-6 |" in lines
    assert "| all | 3 | 3.17 | 8.00 | b at 1e-4 |" in lines
    assert "- Geometric mean 3.175; the target is 1.15: missed." in lines
    assert "- Worst ratio 8.00; the target is 3: missed." in lines
    assert [line for line in lines if line.startswith("  - ")] == [
        "  - b at 1e-4: 8.00",
        "  - c at 1e-6: 8.00",
    ]
    assert lines[-1] == "- Reached by auto and not with the exact D: 1 (d at 1e-2)"


def test_the_cost_of_a_guess_counts_misses_with_the_budget() -> None:
    runs = [
        {"1": {1e-2: 10.0}, "1e1": {1e-2: 40.0}},
        {"1": {1e-2: 10.0}, "1e1": {1e-2: None}},
        {"1": {1e-2: None}, "1e1": {1e-2: 3.0}},
    ]
    cost = no_tuning.guess_cost(runs, "1e1", 1e-2, 90)
    assert cost == pytest.approx((6.0, 9.0, 0.5), rel=1e-15)
    assert no_tuning.guess_cost(runs, "1", 1e-2, 90) == (1.0, 1.0, 0.0)


# Noise


def test_the_best_in_hindsight_is_the_lowest_median(
    by_name: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = by_name["least-squares"]

    def gap(
        problem: Any, batch: int, epochs: int, seed: int, method: str, diameter: float
    ) -> float:
        middle = np.abs(np.log(diameter / (6 * problem.distance))) + 0.5
        return middle * (2 if method == "adagrad" else 1) * [0.01, 1.0, 100.0][seed]

    monkeypatch.setattr(no_tuning, "noisy_gap", gap)
    best = no_tuning.best_tuned(problem, 1, 1, range(3))
    assert (best.method, best.factor) == ("accelegrad", 10**0.5)
    assert best.gap == pytest.approx(0.5 + np.log(10**0.5 / 3), rel=1e-12)


def test_sampled_rows_keep_the_problem(by_name: dict[str, Any]) -> None:
    wide = by_name["logistic-rcv1_vw_small-like-l2=1/n"]
    small = no_tuning.sampled(wide, 30)
    assert small.model.X.shape == (30, 30)
    assert small.model.l2 == wide.model.l2
    # The same Gram matrix: the same problem in other coordinates.
    kept = np.sort(np.random.default_rng(0).choice(wide.model.n_samples, 30, replace=False))
    rows = wide.model.X[kept].toarray()
    np.testing.assert_allclose(small.model.X @ small.model.X.T, rows @ rows.T, atol=1e-12)
    np.testing.assert_array_equal(small.model.y, wide.model.y[kept])
    quantile = no_tuning.sampled(by_name["quantile-0.9-cpusmall-like"], 30).model
    assert (quantile.loss.quantile, quantile.fit_intercept, quantile.n_samples) == (0.9, True, 30)
    box = by_name["least-squares-box"]
    assert no_tuning.sampled(box, 5) is box


def test_a_wrong_minimum_is_refused(by_name: dict[str, Any]) -> None:
    problem = by_name["logistic-magic04-like"]
    off = problem.minimiser + 1e-3
    with pytest.raises(RuntimeError, match="not confirmed"):
        no_tuning.certified(replace(problem, minimiser=off, minimum=problem.evaluate(off)[0]))


@pytest.mark.parametrize(
    "name", ["logistic-w8a-like-l2=1/n", "absolute-housing-like", "least-squares-simplex"]
)
def test_minimisers_of_problems_in_other_units(by_name: dict[str, Any], name: str) -> None:
    problem = by_name[name]
    for label, factor in (("X times 1e-6", 1e-6), ("X times 1e6", 1e6)):
        other = no_tuning.variant(problem, label)
        assert np.abs(other.model.X).max() == factor * np.abs(problem.model.X).max()
        assert other.minimum == other.model.value(other.minimiser)
        size = factor**2 if problem.feasible_set is not None else 1.0
        assert other.minimum == pytest.approx(size * problem.minimum, rel=1e-10)
        assert other.start_value == pytest.approx(size * problem.start_value, rel=1e-10)


def test_a_far_start(by_name: dict[str, Any]) -> None:
    problem = by_name["absolute-housing-like"]
    other = no_tuning.variant(problem, "far start")
    expected = 1e3 * (1 + np.linalg.norm(problem.minimiser))
    assert other.distance == pytest.approx(expected, rel=1e-12)
    assert other.start_value == problem.model.value(other.x0)
    box = no_tuning.variant(by_name["least-squares-box"], "far start")
    assert box.feasible_set.contains(box.x0)
    assert np.abs(box.x0).min() == 0.5  # a corner


def test_the_rule_is_judged_in_the_coordinates_of_the_tuned_runs(by_name: dict[str, Any]) -> None:
    """Scaled columns undo a factor of X, so that a run with them proves nothing about the rule."""
    problem = by_name["logistic-magic04-like"]
    large = no_tuning.variant(problem, "X times 1e6")

    def gaps(options: dict[str, Any]) -> list[float]:
        return [no_tuning.noisy_gap(one, 8, 2, 0, **options) for one in (problem, large)]

    as_given, enlarged = gaps(no_tuning.RULE)
    assert abs(as_given - enlarged) > 1e-3
    as_given, enlarged = gaps(no_tuning.DEFAULT)
    assert enlarged == pytest.approx(as_given, rel=1e-6)


def test_broken_runs_count_as_infinite(
    by_name: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, status = by_name["least-squares"], ag.Status.MAX_ITER

    def minimize(*_: Any, **given: Any) -> Any:
        assert given["max_iter"] == 2 * 8  # 60 rows in batches of 8
        return SimpleNamespace(fun=value, status=status)

    monkeypatch.setattr(no_tuning.ag, "minimize", minimize)
    value = problem.start_value
    assert no_tuning.noisy_gap(problem, 8, 2, 0) == 1.0
    value = np.nan
    assert no_tuning.noisy_gap(problem, 8, 2, 0) == np.inf
    value, status = problem.start_value, ag.Status.DIVERGING
    assert no_tuning.noisy_gap(problem, 8, 2, 0) == np.inf


def test_the_summary_of_noisy_runs() -> None:
    rows = [
        NoisyRow("a", 8, 1.0, 4.0, Tuned("adagrad", 1.0, 2.0)),
        NoisyRow("b", 8, 9.0, 1.0, Tuned("accelegrad", 0.1, 1.0)),
    ]
    assert list(no_tuning.noisy_summary(rows)) == [
        "- b = 8, auto / best: geometric mean 2.12, worst 9.00 (b), above 2: 1 of 2",
        "  - b: 9.00 (default 1.00)",
        "- b = 8, default / best, in other coordinates: geometric mean 1.41, worst 2.00 (a), "
        "above 2: 0 of 2",
    ]


def test_the_summary_of_dangers() -> None:
    found = [
        [Danger("a", "X", 1, 0.25), Danger("a", "X", 8, 3.0)],
        [Danger("b", "X", 1, 0.95), Danger("b", "X", 8, np.inf)],
    ]
    lines = list(no_tuning.safety_tables(found, 5))
    assert "| largest | 0.95 | inf |" in lines
    assert lines[-4:] == [
        "- 20 runs in 4 groups; groups with a run that broke down: 1; groups with a gap of 1 or "
        "more: 2; largest gap inf",
        "- Groups with a run that hardly moved (a gap between 0.9 and 1): 1",
        "  - b, X, b = 8: inf",
        "  - a, X, b = 8: 3",
    ]


# Constraints


@pytest.mark.parametrize(
    ("spectrum", "eigenvalues"),
    [("even", np.logspace(0, -9, 30)), ("power", np.arange(1, 31) ** -2.0)],
)
@pytest.mark.parametrize("shape", ["simplex", "box", "l1-ball"])
def test_minimisers_on_the_boundary(shape: str, spectrum: str, eigenvalues: np.ndarray) -> None:
    problem = no_tuning.boundary_problem(shape, spectrum, 30, 1)
    _, gradient = problem.evaluate(problem.minimiser)
    inner = gradient - gradient.mean() if shape == "simplex" else gradient
    assert np.linalg.norm(inner) > 1e-6 * np.linalg.norm(problem.evaluate(problem.x0)[1])
    values = np.linalg.eigvalsh(problem.model.X.T @ problem.model.X / 30)
    np.testing.assert_allclose(values[::-1], eigenvalues, rtol=1e-5)


def test_slopes_of_a_power_stop_at_rounding() -> None:
    calls = np.geomspace(10, 1e3, 30)
    gaps = 5 * calls**-2.0
    assert no_tuning.slopes(calls, gaps, 30) == pytest.approx((-2, -2), rel=1e-12)
    flat = np.append(gaps, [1e-16, 1e-3, 1e-15])
    later = np.append(calls, [2e3, 3e3, 4e3])
    assert no_tuning.slopes(later, flat, 30) == pytest.approx((-2, -2), rel=1e-12)


def test_the_late_slope_leaves_the_beginning_out() -> None:
    calls = np.geomspace(10, 20_000, 60)
    gaps = np.where(calls < 200, calls**-1.0, 200 * calls**-2.0)
    whole, late = no_tuning.slopes(calls, gaps, 200)
    assert late == pytest.approx(-2, rel=1e-12)
    assert -1.95 < whole < -1.5
    done = np.where(calls < 100, calls**-1.0, 1e-15)
    whole, late = no_tuning.slopes(calls, done, 200)
    assert whole == pytest.approx(-1, rel=1e-12)
    assert np.isnan(late)


def test_a_curve_has_the_gaps_at_its_calls() -> None:
    problem = no_tuning.boundary_problem("box", "even", 20, 0)
    curve = no_tuning.gap_curve(problem, 200)
    calls, averages, best = curve.T
    assert calls[0] >= 10
    assert calls[-1] >= 200
    assert np.all(np.diff(calls) > 0)
    assert np.all(np.diff(best) <= 0)
    # The first call that is as good as the last row was counted apart.
    threshold = float(best[-1]) * (1 + 1e-9)
    first = no_tuning.calls_to(problem, [threshold], 400)[threshold]
    assert first <= calls[-1]
    assert np.all(averages > 0)


def test_the_summary_of_rates() -> None:
    names = ("box, even, 0", "box, even, 1", "box, power, 0")
    problems = [SimpleNamespace(name=name) for name in names]
    calls = dict.fromkeys(no_tuning.THRESHOLDS[1:], 7.0)

    def rates(unixgrad: float, best: float) -> dict[str, Any]:
        late = {"unixgrad": (unixgrad, 0.0), "auto": (-3.0, best), "accelegrad": (0.0, -1.0)}
        return {
            name: no_tuning.Rate(*(no_tuning.Slopes(-1.25, one) for one in pair), calls)
            for name, pair in late.items()
        }

    found = [rates(-2.0, np.nan), rates(-1.5, -2.5), rates(-1.0, np.nan)]
    lines = list(no_tuning.rate_tables(problems, found, 100))
    slopes = "-1.25 / -1.50 | -1.25 / -3.00 | -1.25 / -2.50 | -1.25 / -1.00"
    assert f"| box, even, 1 | {slopes} | 7 | 7 | 7 | 7 | 7 | 7 |" in lines
    whole = "(over all calls: flattest -1.25, flatter: {})"
    done = "exact but for rounding by then: 1"
    assert lines[-6:] == [
        "- even: UniXGrad, average: late slopes: flattest -1.50, steepest -2.00; flatter than -1.9: "
        f"1 of 2 {whole.format(2)}",
        "- even: auto, best: late slopes: flattest -2.50, steepest -2.50; flatter than -1.9: "
        f"0 of 2, {done} {whole.format(2)}",
        "- even: auto, average: late slopes: flattest -3.00, steepest -3.00; flatter than -1.9: "
        f"0 of 2 {whole.format(2)}",
        "- power: UniXGrad, average: late slopes: flattest -1.00, steepest -1.00; flatter than "
        f"-1.9: 1 of 1 {whole.format(1)}",
        f"- power: auto, best: no late slope, {done}",
        "- power: auto, average: late slopes: flattest -3.00, steepest -3.00; flatter than -1.9: "
        f"0 of 1 {whole.format(1)}",
    ]


# The page


def test_the_whole_page_on_three_problems(by_name: dict[str, Any]) -> None:
    names = ("least-squares", "logistic-magic04-like", "least-squares-box")
    problems = [by_name[name] for name in names]
    lines = list(no_tuning.page(problems, list(no_tuning.PARTS), SMALL))
    assert "3 problems, generated data in 1 of them." in lines[0]
    assert f"accelegrad {ag.__version__}" in lines[0]
    assert sum(line.startswith("## ") for line in lines) == 5
    widths = [line.count("|") for line in lines if line.startswith("| least-squares |")]
    assert widths == [11, 12, 10, 10]
    assert not any("nan" in line for line in lines)


def test_unknown_parts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        no_tuning.main(["--parts", "exact,gues"])
    assert "'gues' is none of exact, guess, noise, constrained" in capsys.readouterr().err


def test_problems_are_chosen_by_parts_of_their_names() -> None:
    problems = [SimpleNamespace(name=name) for name in ("quantile-cpusmall", "logistic-w8a", "box")]
    assert no_tuning.chosen(problems, None) == problems
    assert no_tuning.chosen(problems, ["w8a", "cpu"]) == problems[:2]
    with pytest.raises(SystemExit, match="'a9a' is in none of the names quantile-cpusmall, "):
        no_tuning.chosen(problems, ["w8a", "a9a"])
