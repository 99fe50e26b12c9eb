"""What is minimised: losses over rows of data, feasible sets, penalties."""
