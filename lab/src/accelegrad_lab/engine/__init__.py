"""What runs experiments and keeps their results."""
