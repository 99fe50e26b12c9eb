"""The paper's experiments, comparisons with peers, and the report."""
