"""What changes how a run goes on, apart from the rule: batch growth, restarts, the region."""
