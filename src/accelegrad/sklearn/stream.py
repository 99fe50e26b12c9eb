"""Fitting to data larger than memory, chunk by chunk: files, memory maps, iterators.

`fit_stream` reads a source several times over and gives each chunk to an estimator's `partial_fit`.
Never more than a chunk of the data is in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import check_array, check_consistent_length

from accelegrad.data.columns import Targets, Wanted
from accelegrad.data.streams import Chunk, Source, is_stream, open_source
from accelegrad.errors import Vector, finite_vector, whole_number
from accelegrad.sklearn.base import LinearEstimator
from accelegrad.sklearn.data import refuse_missing
from accelegrad.sklearn.regressor import LinearRegressor
from accelegrad.sklearn.stream_certificate import StreamCertificate

__all__ = ["StreamInterruptedWarning", "Streamed", "fit_stream", "is_stream"]

EPOCHS = 5  # passes of `fit` over a stream, where nobody says how many
_SHOWN_CLASSES = 10


class StreamInterruptedWarning(UserWarning):
    """Ctrl-C ended a stream; the estimator keeps what it has learnt so far."""


class Streamed(NamedTuple):
    """What `fit_stream` did.

    Attributes
    ----------
    estimator : estimator
        The one that was given, fitted.
    rows : int
        The rows learnt from, each as often as it came.
    epochs : int
        The complete passes over the source.
    interrupted : bool
        Whether Ctrl-C ended it.
    """

    estimator: Any
    rows: int
    epochs: int
    interrupted: bool


def fit_stream(
    estimator: Any,
    source: Any,
    *,
    epochs: int = 1,
    chunk_rows: int | None = None,
    classes: Any = None,
    n_features: int | None = None,
    target: str | int | None = None,
    shuffle: bool = True,
    certify: bool = True,
    progress: bool = False,
    rng: int | np.random.Generator | None = None,
) -> Streamed:
    """Fit an estimator to a stream of chunks with its `partial_fit`.

    It goes on from where the estimator stands, as `partial_fit` does. Rows are used in random order
    within a chunk; the chunks are shuffled too where the source allows it.

    Parameters
    ----------
    estimator : AcceleGradClassifier, AcceleGradRegressor or another with `partial_fit`
        What is fitted, in place.
    source : path, tuple of arrays or paths, list, callable, iterable or iterator
        - The path of a LIBSVM, CSV or .tsv file (plain, .bz2, .gz, .xz), an .npz file with the
          arrays `X` (or those that `scipy.sparse.save_npz` writes) and `y`, or a .parquet file. It
          is read once more ahead, for the number of features and the classes, where these are not
          given.
        - A tuple ``(X, y)`` or ``(X, y, sample_weight)`` of arrays, CSR matrices, memory maps, or
          paths of .npy files, of which chunks are read.
        - A list of chunks ``(X, y)`` or ``(X, y, sample_weight)``.
        - A function that makes a new iterator of chunks each time it is called, or another
          iterable of chunks.
        - An iterator or generator of chunks: for one epoch only.
    epochs : int, default 1
        Passes over the source.
    chunk_rows : int, optional
        Rows in a chunk of a file or an array. By default as many as about 16 MB hold.
    classes : array, optional
        All labels of a classifier. They are collected ahead for files and arrays; else they are
        those of the first chunk.
    n_features : int, optional
        The number of features of a LIBSVM file.
    target : str or int, optional
        The target's column in a CSV or parquet file; by default the last.
    shuffle : bool, default True
        Whether chunks come in random order: those of arrays, lists, and LIBSVM files that are not
        compressed.
    certify : bool, default True
        Read the source once more at the end to set `objective_`, `gap_` and `converged_`: the gap
        is proved for the l2 penalty (not for multinomial problems), else it is inf. An iterator
        cannot be read again, so nothing is certified then.
    progress : bool, default False
        Whether a bar shows rows and epochs.
    rng : int, Generator or None
        For the order of the chunks; None is a fixed seed. (The order of the rows has the
        estimator's `random_state`.)

    Returns
    -------
    Streamed
        The estimator, and how many rows and epochs there were.

    Warns
    -----
    StreamInterruptedWarning
        After Ctrl-C: the estimator keeps what it has learnt, and the call returns.

    Raises
    ------
    ValueError
        If a chunk is wrong (another width, an unknown class, NaN...); the message has its number.

    Examples
    --------
    >>> import numpy as np
    >>> from accelegrad.sklearn import AcceleGradRegressor
    >>> from accelegrad.sklearn.stream import fit_stream
    >>> def chunks():
    ...     rng = np.random.default_rng(0)
    ...     for _ in range(20):
    ...         X = rng.standard_normal((500, 3))
    ...         yield X, X @ [1.0, 2.0, 3.0]
    >>> done = fit_stream(AcceleGradRegressor(random_state=0), chunks, epochs=3)
    >>> done.rows
    30000
    >>> bool(np.abs(done.estimator.coef_ - [1.0, 2.0, 3.0]).max() < 0.01)
    True
    """
    if not hasattr(estimator, "partial_fit"):
        raise TypeError(
            f"estimator must have partial_fit, but {type(estimator).__name__} has none."
        )
    epochs = whole_number("epochs", epochs, least=1)
    if chunk_rows is not None:
        chunk_rows = whole_number("chunk_rows", chunk_rows, least=1)
    if n_features is not None:
        n_features = whole_number("n_features", n_features, least=1)
    targets = Targets.NUMBERS if is_regressor(estimator) else Targets.AS_WRITTEN
    wanted = Wanted(target=target, n_features=n_features, targets=targets)
    opened = open_source(source, chunk_rows, wanted)
    if epochs > 1 and opened.once:
        raise ValueError(
            f"epochs is {epochs}, but source is an iterator, which can be read once. Give a "
            "function that makes a new one each time."
        )
    order = np.random.default_rng(0 if rng is None else rng) if shuffle else None
    return _Stream(estimator, opened, classes, progress).run(epochs, order, certify)


def _in_double(X: Any) -> Any:
    """Return float64 in place of float32: what is proved is proved in double precision."""
    return X.astype(np.float64) if getattr(X, "dtype", None) == np.float32 else X


class _Stream:
    """One call of `fit_stream`: checks each chunk and hands it on."""

    def __init__(self, estimator: Any, source: Source, classes: Any, progress: bool) -> None:
        self.estimator, self.source, self.progress = estimator, source, progress
        self.rows = self.chunk = self.epoch = 0
        self.given = classes is not None
        self.classes = None if classes is None else np.unique(np.asarray(classes))
        if classes is not None and not is_classifier(estimator):
            raise ValueError("classes are for classifiers, but the estimator is none.")
        if self.classes is None:
            self.classes = getattr(estimator, "classes_", None)
            self.given = self.classes is not None

    def run(self, epochs: int, order: np.random.Generator | None, certify: bool) -> Streamed:
        bar = None
        try:
            bar = self._prepare(epochs)
            for self.epoch in range(epochs):
                self._pass(order, bar)
            if certify and isinstance(self.estimator, LinearEstimator) and not self.source.once:
                self._certify(bar)
        except KeyboardInterrupt:
            if not self.rows:
                raise
            self._say_interrupted(epochs)
            return Streamed(self.estimator, self.rows, self.epoch, True)
        finally:
            if bar is not None:
                bar.close()
        return Streamed(self.estimator, self.rows, epochs, False)

    def _prepare(self, epochs: int) -> Any:
        unknown = is_classifier(self.estimator) and self.classes is None
        facts = self.source.look(classes=unknown)
        if facts.classes is not None:
            self.classes, self.given = facts.classes, True
        fresh = isinstance(self.estimator, LinearRegressor)
        fresh = fresh and not hasattr(self.estimator, "target_scale_")
        if fresh and not self.source.once:
            self.estimator._take_scale(self._targets)
        if not self.progress:
            return None
        from tqdm.auto import tqdm

        total = None if facts.rows is None else facts.rows * epochs
        return tqdm(total=total, desc="epoch 1", unit="row", unit_scale=True)

    def _targets(self) -> Iterator[tuple[Vector, Vector | None]]:
        """Read targets and weights once."""
        for number, given in enumerate(self.source.chunks(None), start=1):
            self.chunk = number
            chunk = self._checked(given)
            if not chunk.X.shape[0]:
                continue
            try:
                check_consistent_length(chunk.X, chunk.y, chunk.weights)
                refuse_missing(chunk.y)
                y, weights = (
                    None if part is None else finite_vector(name, np.ravel(part).astype(np.float64))
                    for name, part in (("y", chunk.y), ("sample_weight", chunk.weights))
                )
            except (TypeError, ValueError) as error:
                raise ValueError(f"{self._where()}: {error}") from error
            assert y is not None
            yield y, weights

    def _pass(self, order: np.random.Generator | None, bar: Any) -> None:
        before = self.rows
        if bar is not None:
            bar.set_description(f"epoch {self.epoch + 1}")
        for number, given in enumerate(self.source.chunks(order), start=1):
            self.chunk = number
            chunk = self._checked(given)
            count = chunk.X.shape[0]
            if not count:
                continue
            self._learn(chunk)
            self.rows += count
            if bar is not None:
                bar.update(count)
        if self.rows == before:
            raise ValueError(
                f"source has no rows in epoch {self.epoch + 1}. A function as the source must make "
                "a new iterator each time it is called."
            )

    def _certify(self, bar: Any) -> None:
        if bar is not None:
            bar.set_description("certifying")
        estimator = self.estimator
        if not hasattr(estimator, "coef_"):
            raise ValueError("source has no rows with weight: all weights are zero.")
        certificate = StreamCertificate(estimator)
        for given in self.source.chunks(None):
            chunk = self._checked(given)
            if chunk.X.shape[0]:
                certificate.add(_in_double(chunk.X), chunk.y, chunk.weights)
        gap = certificate.gap
        estimator.objective_, estimator.gap_ = float(certificate.objective), float(gap)
        if np.isfinite(gap):
            estimator.certified_radius_ = np.inf
            tol = estimator.tol
            estimator.converged_ = tol is not None and bool(gap <= tol * estimator.objective_)

    def _learn(self, chunk: Chunk) -> None:
        options: dict[str, Any] = {}
        if is_classifier(self.estimator):
            self._check_classes(chunk.y)
            options["classes"] = self.classes
        if chunk.weights is not None:
            options["sample_weight"] = chunk.weights
        try:
            self.estimator.partial_fit(chunk.X, chunk.y, **options)
        except ValueError as error:
            raise ValueError(f"{self._where()}: {error}") from error

    def _checked(self, given: Any) -> Chunk:
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise TypeError(
                f"{self._where()} must be a tuple (X, y) or (X, y, sample_weight), not "
                f"{type(given).__name__}."
            )
        chunk = Chunk(*given)
        if not hasattr(chunk.X, "shape"):
            chunk = chunk._replace(X=check_array(chunk.X))
        if chunk.y is None:
            raise ValueError(f"{self._where()} has no targets.")
        if len(chunk.X.shape) == 2:
            known = getattr(self.estimator, "n_features_in_", chunk.X.shape[1])
            if chunk.X.shape[1] != known:
                raise ValueError(
                    f"{self._where()} has {chunk.X.shape[1]} columns, but the chunks before it "
                    f"have {known}."
                )
        return chunk

    def _check_classes(self, y: Any) -> None:
        seen = np.unique(np.asarray(y))
        if self.classes is None:
            if seen.size < 2:
                raise ValueError(
                    f"{self._where()}, the first, holds only the class {seen[0]!r}, and the others "
                    "are not known. Give classes=[...] with all labels of the stream."
                )
            self.classes = seen
        unknown = np.setdiff1d(seen, self.classes)
        if unknown.size:
            whose = "classes" if self.given else "the first chunk's classes"
            remedy = "" if self.given else " Give classes=[...] with all labels of the stream."
            raise ValueError(
                f"{self._where()} holds the labels {unknown[:_SHOWN_CLASSES].tolist()}, which are "
                f"not among {whose} {self.classes[:_SHOWN_CLASSES].tolist()}.{remedy}"
            )

    def _where(self) -> str:
        return f"chunk {self.chunk} of epoch {self.epoch + 1}"

    def _say_interrupted(self, epochs: int) -> None:
        warnings.warn(
            f"Interrupted in epoch {self.epoch + 1} of {epochs}, after {self.rows} rows in all. "
            "The estimator keeps what it has learnt from them.",
            StreamInterruptedWarning,
            stacklevel=4,
        )
