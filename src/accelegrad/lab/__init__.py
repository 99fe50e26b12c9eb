"""Experiments: the paper's, comparisons on a user's data, the benchmark."""
