"""What was measured of everyday fits, and what it comes to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from accelegrad_lab.bench.profile import geometric_mean
from accelegrad_lab.everyday.cases import WORDS
from accelegrad_lab.everyday.goals import GOALS
from accelegrad_lab.everyday.peers import CHECKS, OURS, PEERS
from accelegrad_lab.everyday.runs import TOL, Record

SHORT = 2e-3  # seconds of a peer below which a case does not count for the bars
BOUND_ROUNDING = 1e-9  # relative: a value so far below our bound does not refute it


@dataclass(frozen=True)
class Measured:
    """A case, and what is known of it."""

    key: str
    group: str
    data: str
    goal: str
    words: str
    alpha: float
    floor: float

    @property
    def shown(self) -> str:
        """Its name in tables."""
        return f"{self.data}, {self.goal}"


@dataclass(frozen=True)
class ColdFit:
    """A first fit in a new process with an empty cache."""

    case: str
    solver: str
    cpu: float
    wall: float


@dataclass
class Results:
    """All that was measured so far."""

    cases: dict[str, Measured] = field(default_factory=dict)
    records: dict[str, dict[str, Record]] = field(default_factory=dict)  # by case and solver
    cold: dict[tuple[str, str], ColdFit] = field(default_factory=dict)

    def take(self, kind: str, content: dict[str, Any]) -> None:
        """Take in one line of a file."""
        if kind == "case":
            records = [Record.from_json(one) for one in content["records"]]
            about = {name: value for name, value in content.items() if name != "records"}
            case = Measured(**about)
            self.cases[case.key] = case
            self.records[case.key] = {one.solver: one for one in records}
        elif kind == "cold":
            fit = ColdFit(**content)
            self.cold[fit.case, fit.solver] = fit


def line_of(case: Measured, records: Iterable[Record]) -> dict[str, Any]:
    """Return what `take` takes for a case."""
    return {**asdict(case), "records": [record.to_json() for record in records]}


class Verdict(NamedTuple):
    """What a case came to."""

    case: Measured
    ours: Record
    certified: bool  # to the default tolerance, by itself
    refuted: bool  # whether anybody found a value below our bound
    excess: dict[str, float]  # of each solver, relative to the best value known
    fastest: str  # the peer with the least wall time that is accurate, "" where none is
    peer_wall: float  # its seconds; NaN where there is none, as for the ratios
    ratio: float  # our wall time to its; infinite where our fit did not end
    cpu_ratio: float  # the same of CPU times on one thread
    usual: str  # the peer that users think of first, as it comes, accurate or not
    usual_ratio: float  # our wall time to its
    overhead: float  # our seconds beyond scikit-learn's checks; NaN where not measured

    @property
    def counts(self) -> bool:
        """Whether there is a peer to compare with that takes long enough to be timed well."""
        return self.peer_wall >= SHORT


def verdict(case: Measured, records: dict[str, Record]) -> Verdict:
    """Judge a case: the best value known is the lowest that anybody found."""
    ours = records[OURS]
    values = {name: one.value for name, one in records.items() if math.isfinite(one.value)}
    best = min(values.values(), default=math.nan)
    size = max(best, case.floor) or 1.0
    excess = {name: (value - best) / size for name, value in values.items()}
    refuted = ours.objective - ours.gap > best + BOUND_ROUNDING * size and not _is_path(case)
    accurate = {
        name: one
        for name, one in records.items()
        if name in PEERS and PEERS[name].counts and one.fits and excess.get(name, math.inf) <= TOL
    }
    fastest = min(accurate, key=lambda name: accurate[name].wall, default="")
    peer_wall = ratio = cpu_ratio = overhead = math.nan
    if fastest:
        peer_wall = accurate[fastest].wall
        ratio = ours.wall / peer_wall
        cpu_ratio = ours.cpu / accurate[fastest].cpu
    if CHECKS in records:
        overhead = ours.wall - records[CHECKS].wall
    certified = ours.certified and not refuted and excess.get(OURS, math.inf) <= TOL
    usual = next((name for name, one in records.items() if name in PEERS and one.fits), "")
    usual_ratio = ours.wall / records[usual].wall if usual else math.nan
    return Verdict(
        case,
        ours,
        certified,
        refuted,
        excess,
        fastest,
        peer_wall,
        ratio,
        cpu_ratio,
        usual,
        usual_ratio,
        overhead,
    )


def _is_path(case: Measured) -> bool:
    return GOALS[case.goal].path


def verdicts(found: Results) -> list[Verdict]:
    """Judge all cases."""
    return [verdict(case, found.records[key]) for key, case in found.cases.items()]


class Summary(NamedTuple):
    """How our times compare with those of the fastest peers."""

    cases: int
    mean: float  # geometric
    within_2: int
    worst: float

    @classmethod
    def of(cls, ratios: Iterable[float]) -> Summary:
        """Sum up the cases that have a peer; infinite ratios are not in the mean."""
        ratios = [ratio for ratio in ratios if not math.isnan(ratio)]
        within = sum(ratio <= 2.0 for ratio in ratios)
        return cls(len(ratios), geometric_mean(ratios), within, max(ratios, default=math.nan))

    @property
    def words(self) -> str:
        """It in words."""
        if not self.cases:
            return "no case with a peer"
        return (
            f"geometric mean {self.mean:.2f}, within 2x on {self.within_2} of {self.cases} "
            f"({self.within_2 / self.cases:.0%}), at most {self.worst:.1f}x"
        )


def by_group(judged: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """Return the cases of each group that has any."""
    groups = {name: [one for one in judged if one.case.group == name] for name in WORDS}
    return {name: members for name, members in groups.items() if members}
