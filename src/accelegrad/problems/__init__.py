"""What is minimised: linear models of data with their losses, penalties and feasible sets."""
