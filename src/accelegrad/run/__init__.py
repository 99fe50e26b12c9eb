"""Running a rule on an oracle."""
