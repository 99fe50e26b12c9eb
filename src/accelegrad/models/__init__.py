"""Losses, linear models in memory or streamed, and their scaling."""
