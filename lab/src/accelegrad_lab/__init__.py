"""Experiments: the paper's, comparisons on a user's data, benchmarks."""

__version__ = "0.2.0"
