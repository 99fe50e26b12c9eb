"""What the loop calls of a policy."""

from __future__ import annotations

import math
from typing import Any

from accelegrad.rules.base import State, Step
from accelegrad.run.checkpoint import Saved
from accelegrad.run.oracle import Evaluation
from accelegrad.run.progress import Progress


class Policy(Saved):
    """Something that changes how a run goes on. The loop calls it after every step."""

    progress: Progress

    def __repr__(self) -> str:
        """Say which policy it is: a checkpoint of a run with another one is refused."""
        return type(self).__name__

    def begin(self, progress: Progress) -> None:
        """Take part in a run from its start on."""
        self.progress = progress

    def resumed(self) -> None:
        """Go on from what a checkpoint held, which has been restored."""

    def next_look(self) -> float:
        """Return the iteration after which it wants to look, at the latest; infinite: any."""
        return math.inf

    def after(self, step: Step, before: State) -> None:
        """Follow a step (and the rule's state before it), before the run is judged."""

    def before_next(self) -> None:
        """Change what the next step begins with, once a step has been judged and observed."""

    def confirm(self, final: Evaluation) -> None:
        """Doubt a point that is to be returned with a proof; a `NotConvexError` ends the run."""

    def report(self) -> dict[str, Any]:
        """Return what the run's result says of the policy."""
        return {}
