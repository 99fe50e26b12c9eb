"""The report of everyday fits: verdicts, profiles, and a line for each case, losses first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from accelegrad_lab.bench.profile import profile, profile_facts, ratios
from accelegrad_lab.engine.content import Claim, Curve, Figure, Panel, Report
from accelegrad_lab.engine.content import Verdict as Holds
from accelegrad_lab.everyday.cases import WORDS
from accelegrad_lab.everyday.peers import CHECKS, OURS, PEERS
from accelegrad_lab.everyday.results import (
    SHORT,
    Results,
    Summary,
    Verdict,
    by_group,
    verdicts,
)
from accelegrad_lab.everyday.runs import CUTOFF, LEAST_LIMIT, TOL
from accelegrad_lab.report.report import versions, write_report
from accelegrad_lab.report.tables import csv_text, number_table, put

if TYPE_CHECKING:
    from accelegrad_lab.everyday.everyday import EverydayRequest

TITLE = "Everyday fits, with all defaults"
SOURCE = "this benchmark"
WIDEST = 1000.0  # the factor at which profiles end
FAR, CLOSE, MEAN, SHARE = 5.0, 2.0, 1.0, 0.9  # the bars: at most, close, on average, how often
COLD_SECONDS, OVERHEAD = 2.0, 1e-3
FASTEST, USUAL = "fastest accurate peer", "usual peer"  # as they are drawn
BEST_WORDS = (
    "The fastest accurate peer is another one in each case; the usual one is what users think of "
    "first, as it comes."
)
LISTED = 30  # losses that are named
COLUMNS = (
    "case", "group", "data", "goal", "size", "alpha", "solver", "wall", "cpu", "fits", "value",
    "excess", "status", "ours/solver",
)  # fmt: skip

Wanted = Callable[[Verdict], bool]


def write_everyday_report(
    found: Results, request: EverydayRequest, seconds: float, *, interrupted: bool
) -> Path:
    """Write the page, table.md and table.csv; return the page's path."""
    report = build_report(found, request, seconds, interrupted=interrupted)
    page = write_report(report, request.out)
    put(request.out / "table.md", markdown(found, report))
    put(request.out / "table.csv", _csv(found))
    return page


def build_report(
    found: Results, request: EverydayRequest, seconds: float, *, interrupted: bool
) -> Report:
    """Return the report."""
    judged = verdicts(found)
    facts = {
        "Run": {
            "date": datetime.now(UTC).date().isoformat(),
            "complete": "no: it was interrupted" if interrupted else "yes",
            "cases": str(len(judged)),
            "clock": "wall time of fit with the default number of threads, the least of some fits "
            "in turn with others'; CPU time on one thread beside it",
            "limit of a fit": f"{request.limit:g} s; of a peer {CUTOFF:g} times our first fit, but "
            f"{LEAST_LIMIT:g} s in any case",
            "in all": f"{seconds:.0f} s (results that were there already took none)",
            "raw numbers": "results.jsonl, table.csv",
        },
        "Our time over the fastest accurate peer's": _summaries(judged),
        "Solvers": _solver_facts(found, judged),
        "Where a peer is more than twice as fast": dict(_losses(judged)) or {"nowhere": ""},
        "Without an accurate peer": {
            one.case.shown: _missed_words(found, one) for one in judged if not one.fastest
        },
        "First fits, in a new process with an empty cache": _cold_facts(found),
        "Versions": versions(),
    }
    summary = (
        f"{len(judged)} fits of estimators with all their defaults, intercept included, certified "
        f"to their default tolerance of {TOL:g}. Peers have their defaults too, but for what makes "
        f"their objective the same. A peer is accurate where its objective is within {TOL:g}, "
        "relative, of the best value that anybody found, and the fastest accurate one is what we "
        "are compared with."
    )
    return Report(TITLE, summary, claims(found, judged), _figures(found, judged), facts)


# -- claims ----------------------------------------------------------------------------------------


def claims(found: Results, judged: Sequence[Verdict]) -> list[Claim]:
    """Return the sentences that this benchmark has to answer."""
    counted = [one for one in judged if one.counts]
    possible = [
        _share_claim(
            "certified",
            f"Every fit is certified to {TOL:g} by itself, and nobody finds less than its bound.",
            {one.case.shown: one.certified for one in judged},
        ),
        _mean_claim(counted),
        _share_claim(
            "within-2x",
            f"On {SHARE:.0%} of the cases we take at most twice as long as the fastest accurate "
            f"peer (of cases that take it {1e3 * SHORT:g} ms or more).",
            {one.case.shown: one.ratio <= CLOSE for one in counted},
            need=SHARE,
        ),
        _share_claim(
            "within-5x",
            "Nowhere do we take more than five times as long (of the same cases).",
            {one.case.shown: one.ratio <= FAR for one in counted},
        ),
        _against(
            found, judged, "text-hinge", ("LinearSVC",), CLOSE,
            lambda one: one.case.group == "text" and one.case.goal == "hinge",
            "Hinge on text with an intercept takes at most twice the time of LinearSVC as it "
            "comes, accurate or not.",
        ),
        _against(
            found, judged, "lasso", ("Lasso", "ElasticNet"), CLOSE,
            lambda one: one.case.group == "numbers" and one.case.goal.startswith(("lasso", "elas")),
            "Lasso and elastic net take at most twice the time of scikit-learn's.",
        ),
        _against(
            found, judged, "wide-lasso", ("Lasso", "celer", "skglm"), CLOSE,
            lambda one: one.case.group == "wide",
            "Lasso on text takes at most twice the time of the fastest of scikit-learn, celer and "
            "skglm.",
        ),
        _against(
            found, judged, "cv", ("LogisticRegressionCV", "LassoCV", "RidgeCV"), MEAN,
            lambda one: one.case.group == "cv",
            "Cross-validation takes at most the time of scikit-learn's for as many fits.",
        ),
        _share_claim(
            "cold",
            f"A first fit in a new process with an empty cache takes at most {COLD_SECONDS:g} s "
            "of wall time.",
            {
                found.cases[fit.case].shown: fit.wall <= COLD_SECONDS
                for fit in found.cold.values()
                if fit.solver == OURS and fit.case in found.cases
            },
        ),
        _share_claim(
            "overhead",
            f"With 100 rows a fit takes at most {1e3 * OVERHEAD:g} ms beyond scikit-learn's "
            "checks.",
            {
                one.case.shown: one.overhead <= OVERHEAD
                for one in judged
                if not math.isnan(one.overhead)
            },
        ),
    ]  # fmt: skip
    return [claim for claim in possible if claim is not None]


def _share_claim(
    name: str, statement: str, held: Mapping[str, bool], need: float = 1.0
) -> Claim | None:
    """Return the claim that something holds in a share of cases; None without any."""
    if not held:
        return None
    good = sum(held.values())
    bad = [shown for shown, holds in held.items() if not holds]
    verdict = Holds.HOLDS if good >= need * len(held) else Holds.IN_PART if good else Holds.FAILS
    evidence = [("cases", f"{good} of {len(held)}")]
    if bad:
        more = f" and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
        evidence.append(("not so", "; ".join(bad[:LISTED]) + more))
    words = "" if verdict is Holds.HOLDS else f"It is so on {good} of {len(held)} cases."
    threshold = "all cases" if need == 1.0 else f"{need:.0%} of the cases"
    return Claim(name, statement, SOURCE, verdict, "-", threshold, evidence, words, "everyday")


def _mean_claim(counted: Sequence[Verdict]) -> Claim | None:
    if not counted:
        return None
    summary = Summary.of(one.ratio for one in counted)
    holds = summary.mean <= MEAN
    return Claim(
        "mean",
        "On average we take no longer than the fastest accurate peer (geometric mean, of cases "
        f"that take it {1e3 * SHORT:g} ms or more).",
        SOURCE,
        Holds.HOLDS if holds else Holds.FAILS,
        "-",
        f"at most {MEAN:g}",
        [("our time over the fastest peer's", summary.words)],
        "" if holds else f"The mean is {summary.mean:.2f}.",
        "everyday",
    )


def _against(
    found: Results,
    judged: Sequence[Verdict],
    name: str,
    peers: Sequence[str],
    factor: float,
    wanted: Wanted,
    statement: str,
) -> Claim | None:
    """Return the claim that we are within a factor of the fastest of some peers."""
    held = {}
    for one in judged:
        records = found.records[one.case.key]
        times = [records[peer].wall for peer in peers if peer in records]
        if wanted(one) and times and math.isfinite(min(times)):
            ratio = one.ours.wall / min(times)
            held[f"{one.case.shown} ({ratio:.1f}x)"] = ratio <= factor
    return _share_claim(name, statement, held)


# -- facts -----------------------------------------------------------------------------------------


def _summaries(judged: Sequence[Verdict]) -> dict[str, str]:
    counted = [one for one in judged if one.counts]
    told = {
        f"peers of {1e3 * SHORT:g} ms or more": _words(counted),
        "all cases": _words(judged),
        "the usual peer as it comes, accurate or not": Summary.of(
            one.usual_ratio for one in judged
        ).words,
        "certified": f"{sum(one.certified for one in judged)} of {len(judged)}",
    }
    for name, members in by_group(judged).items():
        told[f"{name} ({WORDS[name]})"] = _words(members)
    told["CPU time on one thread, all cases"] = Summary.of(one.cpu_ratio for one in judged).words
    return told


def _words(judged: Sequence[Verdict]) -> str:
    return Summary.of(one.ratio for one in judged).words


def _losses(judged: Sequence[Verdict]) -> Iterator[tuple[str, str]]:
    """Go through the cases in which we are behind by more than 2, the worst first."""
    lost = [one for one in judged if one.fastest and one.ratio > CLOSE]
    for one in sorted(lost, key=lambda one: -one.ratio):
        yield (
            f"{one.case.group}: {one.case.shown}",
            f"{one.ratio:.1f}x of {one.fastest} ({_ms(one.ours.wall)} and {_ms(one.peer_wall)} ms; "
            f"{one.case.words})",
        )


def _missed_words(found: Results, one: Verdict) -> str:
    """Say what kept the peers of a case from being accurate."""
    told = []
    for name, record in found.records[one.case.key].items():
        if name in PEERS and PEERS[name].counts:
            above = one.excess.get(name, math.nan)
            why = f"{above:.1e} above the best" if math.isfinite(above) else record.status
            told.append(f"{name}: {why}")
    return "; ".join(told) or "no peer has this objective"


def _cold_facts(found: Results) -> dict[str, str]:
    told = {}
    for fit in found.cold.values():
        if fit.case in found.cases:
            shown = f"{found.cases[fit.case].shown}, {fit.solver}"
            told[shown] = f"{fit.wall:.2f} s ({fit.cpu:.2f} s of CPU time)"
    return told or {"none": "not measured in this run"}


def _times(found: Results, judged: Sequence[Verdict]) -> dict[str, dict[str, float]]:
    """Return seconds by case and solver; inf where it is not accurate."""
    times: dict[str, dict[str, float]] = {}
    for one in judged:
        records = found.records[one.case.key]
        by = {OURS: one.ours.wall if one.certified else math.inf}
        for name, record in records.items():
            if name in PEERS and PEERS[name].counts:
                accurate = one.excess.get(name, math.inf) <= TOL
                by[name] = record.wall if accurate else math.inf
        times[one.case.key] = by
    return times


def _solver_facts(found: Results, judged: Sequence[Verdict]) -> dict[str, str]:
    shown = {name: name for name in (OURS, *PEERS)}
    found_ratios = ratios(_times(found, judged))
    return profile_facts(found_ratios, shown, "accurate", "time over the best")


# -- figures ---------------------------------------------------------------------------------------


def _figures(found: Results, judged: Sequence[Verdict]) -> list[Figure]:
    """Return our profile beside that of the best peers over all cases, and all solvers by group."""
    words = (
        "Share of cases that a solver fits within a factor of the fastest accurate solver's time, "
        "of those that it takes part in: higher is better, and the left end is how often it is "
        "the fastest."
    )
    drawn = {name: (peer.method, peer.variant) for name, peer in PEERS.items()}
    groups = [
        _panel(_times(found, members), {OURS: (OURS, ""), **drawn}, f"{name}: {WORDS[name]}")
        for name, members in by_group(judged).items()
    ]
    rows = [groups[i : i + 3] for i in range(0, len(groups), 3)]
    names = {name: (name, "") for name in (OURS, FASTEST, USUAL)}
    whole = _panel(_times_of_best(found, judged), names, "All cases")
    return [
        Figure("everyday", "All cases", f"{words} {BEST_WORDS}", [[whole]]),
        Figure("everyday-groups", "By kind of data and fit", words, rows),
    ]


def _times_of_best(found: Results, judged: Sequence[Verdict]) -> dict[str, dict[str, float]]:
    """Return our seconds by case, and those of the fastest and of the usual peer."""
    times: dict[str, dict[str, float]] = {}
    for one in judged:
        by = times[one.case.key] = {OURS: one.ours.wall if one.certified else math.inf}
        by[FASTEST] = one.peer_wall if one.fastest else math.inf
        if one.usual:
            accurate = one.excess.get(one.usual, math.inf) <= TOL
            by[USUAL] = found.records[one.case.key][one.usual].wall if accurate else math.inf
    return times


def _panel(
    times: Mapping[str, Mapping[str, float]], shown: Mapping[str, tuple[str, str]], title: str
) -> Panel:
    """Return the profiles of solvers, which are shown as methods and variants."""
    table = ratios(times)
    axis = "factor of the least time"
    curves = []
    for name, (method, variant) in shown.items():
        own = profile(table, name)
        if own.problems:
            factors, shares = own.line(WIDEST)
            note = f"{own.problems} cases, {own.shares[-1]:.0%} accurate in the end"
            curves.append(Curve(method, variant, {axis: factors}, shares, note=note))
    return Panel(f"{title} ({len(table)})", curves, [axis], "share of cases", log_y=False)


# -- tables ----------------------------------------------------------------------------------------


def markdown(found: Results, report: Report) -> str:
    """Return the verdicts, the losses and a line for each case as Markdown."""
    judged = verdicts(found)
    lines = [f"# {report.title}", "", report.summary, ""]
    for claim in report.claims:
        measured = "; ".join(f"{what}: {number}" for what, number in claim.evidence)
        lines.append(f"- {claim.statement} **{claim.verdict.value}** ({measured})")
    lines.append("")
    for title, facts in report.facts.items():
        lines += [f"## {title}", "", *(f"- {what}: {words}" for what, words in facts.items()), ""]
    for name, members in by_group(judged).items():
        lines += [f"## {name}: {WORDS[name]}", "", *_case_table(found, members), ""]
    return "\n".join(lines)


def _case_table(found: Results, members: Sequence[Verdict]) -> Iterator[str]:
    head = (
        "case", "size", "ours, ms", "gap", "fastest accurate peer", "its ms", "ratio", "CPU ratio",
        "usual peer: ratio", "its excess",
    )  # fmt: skip
    rows = [
        (
            one.case.shown,
            one.case.words,
            _ms(one.ours.wall),
            _gap(one),
            one.fastest or "-",
            _ms(one.peer_wall),
            f"{one.ratio:.2f}" if one.fastest else "-",
            f"{one.cpu_ratio:.2f}" if one.fastest else "-",
            f"{one.usual_ratio:.2f}" if one.usual else "-",
            f"{one.excess.get(one.usual, math.nan):.1e}" if one.usual else "-",
        )
        for one in members
    ]
    yield from number_table(head, rows)
    if any(CHECKS in found.records[one.case.key] for one in members):
        worst = max(
            members, key=lambda one: -math.inf if math.isnan(one.overhead) else one.overhead
        )
        yield ""
        yield f"Most beyond scikit-learn's checks: {_ms(worst.overhead)} ms ({worst.case.shown})."


def _gap(one: Verdict) -> str:
    """Return the certified gap, relative, and say where it is not what it should be."""
    if one.refuted:
        return "REFUTED"
    size = max(one.ours.objective, one.case.floor)
    shown = f"{one.ours.gap / size:.1e}" if size > 0 else "-"
    return shown if one.certified else f"{shown} (missed)"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if math.isfinite(seconds) else "-"


def _csv(found: Results) -> str:
    rows = []
    for one in verdicts(found):
        case = one.case
        about = [case.key, case.group, case.data, case.goal, case.words, case.alpha]
        for name, record in found.records[case.key].items():
            times = [name, record.wall, record.cpu, record.fits]
            judged = [record.value, one.excess.get(name, math.nan), record.status]
            rows.append([*about, *times, *judged, one.ours.wall / record.wall])
    return csv_text(COLUMNS, rows, end="\n")
