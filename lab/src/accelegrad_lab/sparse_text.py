"""Sparse text-like data made from random numbers: `datasets.sparse_text` says how."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import ndtri

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_TOPICS = 30
# How much the topics differ: the standard deviation of the log of a word's weight among them.
_TOPIC_CONTRAST = 1.7
# The least share of a document's first topic.
_LEAST_SHARE = 0.7
# Word frequencies fall as 1 / (rank + shift)^exponent: Zipf's law with Mandelbrot's correction.
_ZIPF_EXPONENT = 1.5
_ZIPF_SHIFT = 20.0
# The standard deviation of the log of the document lengths, about that of RCV1.
_LENGTH_SPREAD = 0.7


def random_documents(
    n: int, d: int, nnz: int, noise: float, rng: np.random.Generator
) -> tuple[sp.csr_matrix[np.float64], Vector]:
    """Return n documents over d words, nnz distinct ones in the mean, with their labels."""
    topics = _word_probabilities(d, rng)
    documents = _Documents.draw(n, rng)
    X = _tf_idf(documents.words(topics, documents.lengths(topics, nnz, rng), rng), (n, d))
    return X, documents.labels(noise, rng)


def _word_probabilities(d: int, rng: np.random.Generator) -> Vector:
    """Return the probabilities of d words (columns) in each topic (row)."""
    ranks = rng.permutation(d) + 1.0
    common = (ranks + _ZIPF_SHIFT) ** -_ZIPF_EXPONENT
    weights = common * np.exp(_TOPIC_CONTRAST * rng.standard_normal((_TOPICS, d)))
    probabilities: Vector = weights / weights.sum(axis=1, keepdims=True)
    return probabilities


class _Documents(NamedTuple):
    """Two topics for each document, and the share of the first."""

    first: Integers
    second: Integers
    share: Vector

    @classmethod
    def draw(cls, n: int, rng: np.random.Generator) -> _Documents:
        first, second = rng.integers(_TOPICS, size=(2, n))
        return cls(first, second, rng.uniform(_LEAST_SHARE, 1.0, size=n))

    def lengths(self, topics: Vector, nnz: int, rng: np.random.Generator) -> Integers:
        """Return the lengths in words at which nnz distinct ones are expected in the mean."""
        n = self.share.size
        distinct = _distinct_words(n, nnz, most=topics.shape[1] / 2)
        words, expected = self._vocabulary_growth(topics, distinct.max())
        real = np.exp(np.interp(np.log(rng.permutation(distinct)), np.log(expected), np.log(words)))
        # Rounded up or down by chance, so that short documents do not change the mean.
        lengths: Integers = np.floor(real + rng.random(n)).astype(np.int64)
        return lengths

    def _vocabulary_growth(self, topics: Vector, most: float) -> tuple[Vector, Vector]:
        """Return document lengths and the expected numbers of distinct words, up to `most`.

        These are means over one typical document of each first topic: some topics have a much
        smaller vocabulary than others.
        """
        share = 0.5 * (_LEAST_SHARE + 1.0)
        missed = np.log1p(-(share * topics + (1.0 - share) * np.roll(topics, 1, axis=0)))
        frequency = np.bincount(self.first, minlength=_TOPICS) / self.first.size
        words, expected = [1.0], [1.0]
        while expected[-1] < most:
            words.append(1.3 * words[-1])
            expected.append(float(frequency @ -np.expm1(words[-1] * missed).sum(axis=1)))
        return np.array(words), np.array(expected)

    def words(self, topics: Vector, lengths: Integers, rng: np.random.Generator) -> Integers:
        """Return the words of all documents, in any order, as row number * d + column number."""
        d = topics.shape[1]
        rows = np.repeat(np.arange(lengths.size, dtype=np.int64), lengths)
        from_first = rng.random(rows.size) < self.share[rows]
        topic = np.where(from_first, self.first[rows], self.second[rows])
        # The cumulative probabilities of topic k run from k to k + 1, so one search serves all.
        cumulative = np.cumsum(topics, axis=1)
        cumulative /= cumulative[:, -1:]
        cumulative += np.arange(_TOPICS)[:, None]
        found = np.searchsorted(cumulative.ravel(), topic + rng.random(rows.size), side="right")
        # The sum may be rounded up to the beginning of the next topic.
        entries: Integers = rows * d + np.minimum(found - topic * d, d - 1)
        return entries

    def labels(self, noise: float, rng: np.random.Generator) -> Vector:
        # Half of the topics on either side, so that few documents are near the border.
        sides = rng.permutation(np.where(np.arange(_TOPICS) % 2 == 0, -1.0, 1.0))
        weights = sides + 0.5 * rng.standard_normal(_TOPICS)
        scores = self.share * weights[self.first] + (1.0 - self.share) * weights[self.second]
        y = np.where(scores > np.median(scores), 1.0, -1.0)
        return np.where(rng.random(y.size) < noise, -y, y)


def _distinct_words(n: int, nnz: int, most: float) -> Vector:
    """Return n numbers >= 1 of mean nnz, the quantiles of a log-normal distribution cut at `most`.

    Quantiles and not random numbers, so that the mean is nnz also for few documents.
    """
    if nnz == 1:
        return np.ones(n)
    quantiles = np.exp(_LENGTH_SPREAD * ndtri((np.arange(n) + 0.5) / n))

    def excess(scale: float) -> float:
        return float(np.minimum(scale * quantiles, most - 1.0).mean()) - (nnz - 1.0)

    largest = (most - 1.0) / float(quantiles[0])
    scale = float(brentq(excess, 0.0, largest, xtol=1e-300, rtol=1e-15))
    return 1.0 + np.minimum(scale * quantiles, most - 1.0)


def _tf_idf(words: Integers, shape: tuple[int, int]) -> sp.csr_matrix[np.float64]:
    """Return the matrix with rows of norm 1 of words that are row number * d + column number."""
    n, d = shape
    entries, counts = np.unique(words, return_counts=True)
    rows, columns = np.divmod(entries, d)
    in_documents = np.bincount(columns, minlength=d)[columns]
    values = (1.0 + np.log(counts)) * np.log((1.0 + n) / in_documents)
    values /= np.sqrt(np.bincount(rows, weights=values**2, minlength=n))[rows]
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    return sp.csr_matrix((values, columns, starts), shape=shape)
