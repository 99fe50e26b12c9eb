"""Observers of a run, which change nothing: trace, progress bar and callback."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from accelegrad.rules.base import Step
from accelegrad.run.checkpoint import Saved
from accelegrad.run.progress import Progress
from accelegrad.run.result import as_result
from accelegrad.run.trace import Trace

BAR_STEPS = 10  # between two texts of the progress bar: writing one takes longer than a short step


class Observers(Saved):
    """Trace, progress bar and callback, whose time is not counted."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.options = progress, progress.options
        self.trace = Trace() if progress.options.trace else None
        self.saved = () if self.trace is None else ("trace",)
        self.present: list[Callable[[Step], bool]] = []  # True: stop the run
        self._bar: Any = None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint; the run before may not have been traced."""
        if "trace" in state:
            super().restore(state)

    def open(self) -> None:
        """Start observing."""
        if self.trace is not None:
            self.present.append(self._write_trace)
        if self.options.progress:
            self._open_bar()
            self.present.append(self._show_progress)
        if self.options.callback is not None:
            self.present.append(self._call_back)

    def close(self) -> None:
        """Stop observing."""
        if self._bar is not None:
            self._bar.close()

    def next_look(self) -> float:
        """Return the latest iteration after which an observer has to be called."""
        iteration, wanted = self.progress.iteration, self.options.callback_at
        if self.trace is None and self.options.callback is None:
            return math.inf
        if self.trace is not None or wanted is None:
            return iteration + 1
        return min((number for number in wanted if number > iteration), default=math.inf)

    def look(self, step: Step) -> bool:
        """Let all observers look at a step; True if the run should stop."""
        clock = self.progress.clock
        clock.pause()
        try:
            return any([look(step) for look in self.present])  # noqa: C419 -- all of them look
        finally:
            clock.start()

    def _write_trace(self, step: Step) -> bool:
        assert self.trace is not None
        progress = self.progress
        size = float(getattr(step.state, "step_size", math.nan))
        known = progress.iteration, step.evaluation.value, progress.gap, size
        self.trace.add(*known, progress.counts().points, progress.clock.seconds)
        return False

    def _open_bar(self) -> None:
        from tqdm.auto import tqdm

        self._bar = tqdm(
            total=self.options.max_iter,
            initial=self.progress.iteration,
            desc=self.progress.rule.title,
            unit="it",
        )

    def _show_progress(self, step: Step) -> bool:
        self._bar.update(step.steps)
        iteration, best = self.progress.iteration, self.progress.best
        if step.steps > 1 or iteration % BAR_STEPS == 0 or iteration == self.options.max_iter:
            value = step.evaluation.value if best is None else best.value
            gap = f"{self.progress.gap:.1e}"
            self._bar.set_postfix(value=f"{value:.6g}", gap=gap, refresh=False)
        return False

    def _call_back(self, step: Step) -> bool:  # noqa: ARG002
        callback, wanted = self.options.callback, self.options.callback_at
        assert callback is not None
        if wanted is not None and self.progress.iteration not in wanted:
            return False
        try:
            callback(as_result(self._known()))
        except StopIteration:
            return True
        return False

    def _known(self) -> dict[str, Any]:
        progress, best = self.progress, self.progress.best
        known: dict[str, Any] = {"nit": progress.iteration, **progress.counters()}
        known["seconds"] = progress.clock.seconds  # it is paused meanwhile
        known |= progress.points()
        if progress.output == "best" and best is not None:
            known |= {"x": best.point.copy(), "fun": best.value}
        else:
            known |= {"x": progress.output_point().copy(), "fun": progress.value_judged_now()}
        known |= {"lower_bound": -math.inf, "gap": math.inf, "certified_radius": 0.0}
        if best is not None:
            bound = known["lower_bound"] = progress.bracket.lower_bound(best)
            known["certified_radius"] = progress.bracket.radius_of(bound)
            if not math.isnan(known["fun"]):  # otherwise the point has not been judged
                known["gap"] = known["fun"] - bound
        return known
