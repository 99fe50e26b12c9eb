"""Data files, model files and checkpoints on disk."""

from accelegrad.files.atomic import whole_file

__all__ = ["whole_file"]
