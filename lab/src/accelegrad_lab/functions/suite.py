"""The suite: convex functions by name, and their minima.

``SUITE["max-linear"].build()`` gives a `Function`; ``minimum("max-linear")`` its minimum, which
another solver found (`accelegrad bench --functions --minima` finds them anew).
"""

from __future__ import annotations

from accelegrad_lab.functions import constrained, kinks, max_type, smooth
from accelegrad_lab.functions.problem import Case

SUITE: dict[str, Case] = {
    name: case
    for room in (smooth, max_type, kinks, constrained)
    for name, case in room.CASES.items()
}
