"""Every lower bound of a minimum, and what rounding can do to it."""
