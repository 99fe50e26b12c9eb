"""Does what the function returns fit a convex function: it is checked as the run goes.

Of a convex function every tangent lies below every value:
f(x_j) >= f(x_i) + <g_i, x_j - x_i>. Where that fails by more than rounding, nothing that was proved
holds: the function is not convex, its gradient is wrong, or its values are noisy.
"""

from __future__ import annotations

import numpy as np

from accelegrad.errors import NotConvexError, Vector
from accelegrad.rules.base import Evaluated, State, Step, term_of
from accelegrad.run.policies.base import Policy
from accelegrad.run.progress import Progress

#: Each evaluation is compared with this many before it: it then costs about what a step does.
COMPARED = 20
#: What rounding may amount to, relative to the values and to the tangent's rise between the points:
#: generous, as nothing is known of how a function is computed. Of one that returns numbers of less
#: than 64 bits,
ALLOWED, ALLOWED_OF_FEW_BITS = 1e-9, 1e-4
#: and relative to the largest value so far, whose terms may have been that large all along
ALLOWED_OF_LARGEST = 1e-12


class Convexity(Policy):
    """Compares every evaluation with the last ones."""

    saved = ("_points", "_gradients", "_values", "_seen", "_largest")

    def begin(self, progress: Progress) -> None:
        """Take part in a run from its start on."""
        super().begin(progress)
        size = progress.rule.output(progress.rule_state).size
        self._points, self._gradients = np.zeros((COMPARED, size)), np.zeros((COMPARED, size))
        self._offsets = np.empty((COMPARED, size))
        self._values = np.zeros(COMPARED)
        self._seen = 0
        self._largest = 0.0

    def after(self, step: Step, before: State) -> None:  # noqa: ARG002
        """Compare a step's evaluation with the last ones, and with the best."""
        self.compare(step.evaluation)

    def compare(self, at: Evaluated) -> None:
        """Compare an evaluation with the last ones."""
        point, gradient = at.point, at.gradient
        value = at.value - term_of(at)
        self._largest = max(self._largest, abs(value))
        n = min(self._seen, COMPARED)
        points, gradients, values = self._points[:n], self._gradients[:n], self._values[:n]
        offsets = np.subtract(point, points, out=self._offsets[:n])
        # the rise of the earlier tangents to this point, and of this one's to the earlier points
        rises, returns = np.einsum("ij,ij->i", gradients, offsets), offsets @ gradient
        excess = values + rises - value, value - returns - values
        # Less than that is always allowed, and most often there is no more.
        least = ALLOWED_OF_LARGEST * self._largest
        if n and not all(above[above.argmax()] <= least for above in excess):
            self._judge(at, value, np.stack(excess), np.stack((rises, returns)))
        row = self._seen % COMPARED
        self._points[row], self._gradients[row], self._values[row] = point, gradient, value
        self._seen += 1

    def _judge(self, at: Evaluated, value: float, excess: Vector, rises: Vector) -> None:
        """End the run if a tangent lies above a value by more than is allowed.

        The first row is of earlier tangents at this point, the second of this one's at the others.
        """
        size = np.abs(self._values[: excess.shape[1]]) + abs(value)
        few_bits = getattr(self.progress.oracle, "few_bits", False)
        share = ALLOWED_OF_FEW_BITS if few_bits else ALLOWED
        allowed = share * (size + np.abs(rises)) + ALLOWED_OF_LARGEST * self._largest
        for row, beyond in enumerate(excess - allowed):
            if beyond.max() > 0.0:
                i = int(beyond.argmax())
                earlier = self._points[i].copy()
                pair = (at.point, earlier) if row == 1 else (earlier, at.point)
                raise NotConvexError(*pair, by=float(excess[row, i]))
