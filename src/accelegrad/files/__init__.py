"""Data files, model files and checkpoints on disk."""

from accelegrad.files.archive import whole_file

__all__ = ["whole_file"]
