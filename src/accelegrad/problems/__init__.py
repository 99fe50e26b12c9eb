"""What is minimised: losses over data, feasible sets, and synthetic problems."""
