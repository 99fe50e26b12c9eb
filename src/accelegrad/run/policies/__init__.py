"""What changes how a run goes on, apart from the rule: restarts, the region."""
