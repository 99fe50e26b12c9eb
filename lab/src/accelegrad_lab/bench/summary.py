"""What the benchmark says: how often the default is first, close to the best, or far behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from accelegrad_lab.bench.profile import geometric_mean
from accelegrad_lab.bench.results import Measured, Suite
from accelegrad_lab.bench.runs import JUDGED
from accelegrad_lab.engine.content import Claim, Verdict
from accelegrad_lab.engine.peers import ESTIMATORS, OURS, OWN, SOLVERS

SOURCE = "this benchmark"
MANY_ROWS = 20_000
AHEAD = 100.0  # times as fast as QuantileRegressor
EXACT = 1e-9  # relative: what is below is rounding


def claims(suite: Suite) -> list[Claim]:
    """Return the sentences that the benchmark has to answer, measured at 1e-3."""
    possible = (
        _solved_and_told(suite),
        _certified(suite),
        _smooth_first(suite),
        _smooth_close(suite),
        _kinked_first(suite),
        _ahead_of_quantile_regressor(suite),
        _ahead_of_sgd(suite),
        _close_to_linear_svc(suite),
    )
    return [claim for claim in possible if claim is not None]


def _claim(
    name: str,
    statement: str,
    threshold: str,
    held: int,
    of: int,
    need: float,
    evidence: Sequence[tuple[str, str]],
) -> Claim:
    """Return a claim that holds where a share `need` of its cases does."""
    verdict = Verdict.HOLDS if held >= need * of else Verdict.IN_PART if held else Verdict.FAILS
    words = "" if verdict is Verdict.HOLDS else f"It is so on {held} of {of} problems."
    return Claim(
        name,
        statement,
        SOURCE,
        verdict,
        "-",
        threshold,
        [("problems", f"{held} of {of}"), *evidence],
        words,
        figure=figure_name(JUDGED),
    )


def figure_name(accuracy: float) -> str:
    """Return the name of the figure for an accuracy."""
    return f"profile-{accuracy:.0e}"


def _solved_and_told(suite: Suite) -> Claim:
    times = suite.times(JUDGED)
    failed = [key for key, by in times.items() if not math.isfinite(by[OURS])]
    return _claim(
        "solved-and-told",
        "The default solves every problem to 1e-3 and its own certificate says so.",
        "All problems; the certificate stops the run, and the time includes it.",
        len(times) - len(failed),
        len(times),
        1.0,
        _listed("not solved", failed, suite),
    )


def _certified(suite: Suite) -> Claim:
    """No certificate is wrong."""
    wrong = []
    for key, one in suite.problems.items():
        records = [suite.records[key, name] for name in OWN if (key, name) in suite.records]
        lower = [rung.own_value - rung.own_gap for record in records for rung in record.rungs]
        if max(lower, default=-math.inf) > one.minimum + EXACT * max(abs(one.minimum), 1e-6):
            wrong.append(key)
    total = len(suite.problems)
    return _claim(
        "certificates-hold",
        "No lower bound that a run of ours proves is above the lowest value found.",
        "All runs of all problems, to a relative 1e-9.",
        total - len(wrong),
        total,
        1.0,
        _listed("wrong", wrong, suite),
    )


def _over_peers(
    suite: Suite, wanted: Callable[[Measured], bool], rival: str = "", *, tuning: bool = False
) -> dict[str, float]:
    """Return our time at 1e-3 over a rival's, or the best peer's, where either solved the problem.

    It is 0 where only the rival failed, and infinite where we did. `tuning` tells whether the time
    that a peer takes to be tuned counts.
    """
    found = {}
    for key, by in suite.times(JUDGED, tuning=tuning).items():
        others = [seconds for name, seconds in by.items() if name not in OWN]
        if rival:
            others = [by[rival]] if rival in by else []
        best = min(others, default=math.nan)
        if wanted(suite.problems[key]) and others and min(best, by[OURS]) < math.inf:
            found[key] = by[OURS] / best if math.isfinite(by[OURS]) else math.inf
    return found


def _smooth_first(suite: Suite) -> Claim | None:
    statement = "On smooth losses the default is the first to reach 1e-3 on most problems."
    most = 0.5 + 1e-9
    return _smooth_within(
        suite, 1.0, most, "smooth-first", statement, "More than half of the problems."
    )


def _smooth_close(suite: Suite) -> Claim | None:
    statement = (
        "On smooth losses the default is within twice the time of the best peer on 90 % of the "
        "problems."
    )
    return _smooth_within(suite, 2.0, 0.9, "smooth-within-2x", statement, "90 % of the problems.")


def _smooth_within(
    suite: Suite, factor: float, share: float, name: str, statement: str, threshold: str
) -> Claim | None:
    """Return the claim that we are within a factor of the best peer on a share of the problems."""
    found = _over_peers(suite, lambda one: one.smooth)
    if not found:
        return None
    held = sum(ratio <= factor for ratio in found.values())
    evidence = [*_mean_ratio(found), *_with_tuning(suite, factor)]
    return _claim(name, statement, threshold, held, len(found), share, evidence)


def _with_tuning(suite: Suite, factor: float) -> list[tuple[str, str]]:
    """Say on how many problems we are within a factor where the tuning of a peer counts."""
    found = _over_peers(suite, lambda one: one.smooth, tuning=True)
    held = sum(ratio <= factor for ratio in found.values())
    return [("if the time to tune SGD counts", f"{held} of {len(found)}")]


def _kinked_first(suite: Suite) -> Claim | None:
    def wanted(one: Measured) -> bool:
        return one.loss in ("absolute", "quantile")

    found = _over_peers(suite, wanted)
    if not found:
        return None
    alone = sum(
        wanted(suite.problems[key]) and set(by) <= set(OWN)
        for key, by in suite.times(JUDGED).items()
    )
    behind = [key for key, ratio in found.items() if ratio > 1]
    return _claim(
        "absolute-and-quantile-first",
        "With absolute and quantile losses the default is the first to reach 1e-3 on all problems.",
        "All problems that a peer can take part in.",
        len(found) - len(behind),
        len(found),
        1.0,
        [
            *_mean_ratio(found),
            ("problems without any peer, not counted", str(alone)),
            *_listed("behind", behind, suite),
        ],
    )


def _ahead_of_quantile_regressor(suite: Suite) -> Claim | None:
    evidence, held = [], 0
    for key, by in suite.times(JUDGED).items():
        if "quantile" not in by or suite.problems[key].rows < MANY_ROWS:
            continue
        ended = not math.isfinite(by["quantile"])
        seconds = suite.records[key, "quantile"].limit if ended else by["quantile"]
        factor = seconds / by[OURS]
        held += factor >= AHEAD
        words = f"{'more than ' if ended else ''}{factor:.0f} times as fast"
        evidence.append((suite.problems[key].shown, words))
    if not evidence:
        return None
    return _claim(
        "ahead-of-QuantileRegressor",
        f"From {MANY_ROWS} rows on, the default is at least {AHEAD:.0f} times as fast to 1e-3 as "
        "QuantileRegressor.",
        "All such problems (l2 = 0). A run that was ended counts with the time it was allowed.",
        held,
        len(evidence),
        1.0,
        evidence,
    )


def _has_hinge(one: Measured) -> bool:
    return one.loss == "hinge"


def _ahead_of_sgd(suite: Suite) -> Claim | None:
    evidence: list[tuple[str, str]] = []
    ahead: dict[str, bool] = {}
    for name, tuning in (("sgd", False), ("sgd-tuned", True), ("sgd-tuned", False)):
        found = _over_peers(suite, _has_hinge, name, tuning=tuning)
        won = sum(ratio < 1 for ratio in found.values())
        counted = "" if name == "sgd" else f", tuning {'' if tuning else 'not '}counted"
        evidence.append((f"ahead of {SOLVERS[name].shown}{counted}", f"{won} of {len(found)}"))
        evidence += _mean_ratio(found)
        if name == "sgd" or tuning:  # nobody has a tuned one without tuning it
            for key, ratio in found.items():
                ahead[key] = ahead.get(key, True) and ratio < 1
    if not ahead:
        return None
    evidence += _listed("behind one of them", [k for k, won in ahead.items() if not won], suite)
    return _claim(
        "hinge-ahead-of-SGD",
        "With the hinge loss the default is ahead of SGDClassifier everywhere, at 1e-3.",
        "All problems, against the default and the tuned one, whose tuning time counts.",
        sum(ahead.values()),
        len(ahead),
        1.0,
        evidence,
    )


def _close_to_linear_svc(suite: Suite) -> Claim | None:
    found = _over_peers(suite, _has_hinge, "liblinear")
    if not found:
        return None
    return _claim(
        "hinge-within-3x-of-LinearSVC",
        "With the hinge loss the default is within three times the time of LinearSVC on most "
        "problems, at 1e-3.",
        "More than half of the problems.",
        sum(ratio <= 3 for ratio in found.values()),
        len(found),
        0.5 + 1e-9,
        _mean_ratio(found),
    )


def losses_of_ours(suite: Suite) -> dict[str, str]:
    """Return where the default is not the first at 1e-3, the worst first, and behind whom."""
    lost: list[tuple[float, str, str]] = []
    for key, by in suite.times(JUDGED).items():
        rivals = {name: seconds for name, seconds in by.items() if name != ESTIMATORS}
        best = min(rivals, key=lambda solver: rivals[solver])
        if best == OURS or not math.isfinite(by[best]):
            continue
        ratio = by[OURS] / by[best]
        took = f"{by[OURS]:.3g} s" if math.isfinite(ratio) else "not reached"
        words = f"{took}, {SOLVERS[best].shown} {by[best]:.3g} s"
        factor = f"{ratio:.1f} times as long" if math.isfinite(ratio) else "not solved"
        lost.append((ratio, suite.problems[key].shown, f"{factor}: {words}"))
    return {shown: words for _, shown, words in sorted(lost, key=lambda one: (-one[0], one[1]))}


def _mean_ratio(found: Mapping[str, float]) -> list[tuple[str, str]]:
    finite = [ratio for ratio in found.values() if 0 < ratio < math.inf]
    if not finite:
        return []
    words = f"{geometric_mean(finite):.2f}, from {min(finite):.2f} to {max(finite):.2f}"
    return [("our time over theirs, geometric mean where both got there", words)]


def _listed(what: str, keys: Sequence[str], suite: Suite) -> list[tuple[str, str]]:
    return [(what, "; ".join(suite.problems[key].shown for key in keys))] if keys else []
