"""The paper's experiments. Its claims are in claims.toml; the experiments judge them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources

from accelegrad_lab.engine.experiment import Claim, Verdict


@cache
def _texts() -> dict[str, dict[str, str]]:
    return tomllib.loads((resources.files(__package__) / "claims.toml").read_text("utf-8"))


def judged(
    name: str,
    verdict: Verdict,
    evidence: Sequence[tuple[str, str]],
    explanation: str = "",
    **numbers: float,
) -> Claim:
    """Return a claim with its verdict; `numbers` are those that its text names."""
    text = {part: words.format(**numbers) for part, words in _texts()[name].items()}
    return Claim(name, verdict=verdict, evidence=evidence, explanation=explanation, **text)
