"""Those who look on at a run: trace, callback and progress bar. They change nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from accelegrad.rules.base import Step
from accelegrad.run.checkpoint import Saved
from accelegrad.run.clock import Clock
from accelegrad.run.progress import Progress
from accelegrad.run.result import as_result
from accelegrad.run.trace import Trace

BAR_STEPS = 10  # between two texts of the progress bar: writing one takes longer than a short step


class Observer:
    """Someone who looks on."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def next_look(self) -> float:
        """Return the iteration after which it wants to look, at the latest; infinite: any."""
        return math.inf

    def look(self, step: Step, seconds: float) -> bool:
        """Look at a step, so many seconds after the start; True: the run is to stop."""
        raise NotImplementedError

    def close(self) -> None:
        """Look no more."""


class Tracer(Observer):
    """Writes every iteration into a trace."""

    def __init__(self, progress: Progress, trace: Trace) -> None:
        super().__init__(progress)
        self.trace = trace

    def next_look(self) -> float:
        """Return the next iteration."""
        return self.progress.iteration + 1

    def look(self, step: Step, seconds: float) -> bool:
        """Add the iteration."""
        progress = self.progress
        size = float(getattr(step.state, "step_size", math.nan))
        value, calls = step.evaluation.value, progress.calls()
        self.trace.add(progress.iteration, value, progress.gap, size, calls, seconds)
        return False


class Callback(Observer):
    """Calls the user's function at the iterations that it wants to see."""

    def next_look(self) -> float:
        """Return the next iteration that the callback wants to see."""
        iteration, wanted = self.progress.iteration, self.progress.options.callback_at
        if wanted is None:
            return iteration + 1
        return min((number for number in wanted if number > iteration), default=math.inf)

    def look(self, step: Step, seconds: float) -> bool:  # noqa: ARG002
        """Call it with what is known so far; True if it raised StopIteration."""
        options = self.progress.options
        wanted = options.callback_at
        if wanted is not None and self.progress.iteration not in wanted:
            return False
        assert options.callback is not None
        try:
            options.callback(as_result(self._known()))
        except StopIteration:
            return True
        return False

    def _known(self) -> dict[str, Any]:
        progress = self.progress
        known: dict[str, Any] = {"nit": progress.iteration, **progress.counters()}
        known |= progress.points()
        best = progress.best
        if progress.output == "best" and best is not None:
            known |= {"x": best.point.copy(), "fun": best.value}
        else:
            known |= {"x": progress.output_point().copy(), "fun": progress.value_judged_now()}
        known |= {"lower_bound": -math.inf, "gap": math.inf, "certified_radius": 0.0}
        if best is not None:
            bound = known["lower_bound"] = progress.certificate.lower_bound(best)
            known["certified_radius"] = progress.certificate.radius_of(bound)
            if not math.isnan(known["fun"]):  # else the point has not been judged
                known["gap"] = known["fun"] - bound
        return known


class ProgressBar(Observer):
    """Shows iterations, value and gap on the terminal."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        from tqdm.auto import tqdm

        self._bar = tqdm(
            total=progress.options.max_iter,
            initial=progress.iteration,
            desc=type(progress.rule).__name__,
            unit="it",
        )

    def look(self, step: Step, seconds: float) -> bool:  # noqa: ARG002
        """Move on, and write value and gap now and then."""
        progress, bar = self.progress, self._bar
        bar.update(step.steps)
        iteration, last = progress.iteration, progress.options.max_iter
        if step.steps > 1 or iteration % BAR_STEPS == 0 or iteration == last:
            best = progress.best
            value = step.evaluation.value if best is None else best.value
            bar.set_postfix(value=f"{value:.6g}", gap=f"{progress.gap:.1e}", refresh=False)
        return False

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()


class Observers(Saved):
    """All those who look on, with their time off the run's clock."""

    def __init__(self, progress: Progress, clock: Clock) -> None:
        self.progress, self.clock = progress, clock
        self.trace = Trace() if progress.options.trace else None
        self.saved = () if self.trace is None else ("trace",)
        self.present: list[Observer] = []

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; a run may be traced though the one before was not."""
        if "trace" in state:
            super().restore(state)

    def open(self) -> None:
        """Begin to look on."""
        options = self.progress.options
        if self.trace is not None:
            self.present.append(Tracer(self.progress, self.trace))
        if options.progress:
            self.present.append(ProgressBar(self.progress))
        if options.callback is not None:
            self.present.append(Callback(self.progress))

    def close(self) -> None:
        """Look no more."""
        for observer in self.present:
            observer.close()

    def next_look(self) -> float:
        """Return the iteration after which somebody wants to look, at the latest."""
        return min((observer.next_look() for observer in self.present), default=math.inf)

    def look(self, step: Step) -> bool:
        """Let everybody look at a step; True if the run is to stop."""
        clock = self.clock
        clock.pause()
        try:
            wishes = [observer.look(step, clock.seconds) for observer in self.present]
        finally:
            clock.start()
        return any(wishes)
