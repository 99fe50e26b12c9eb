"""All task functions, known as soon as this is imported."""

from accelegrad.experiments import regression, text

__all__ = ["regression", "text"]
