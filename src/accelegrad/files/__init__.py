"""Data files, model files and checkpoints on disk: pandas, pyarrow, scikit-learn and NumPy read."""

from accelegrad.files.atomic import whole_file

__all__ = ["whole_file"]
