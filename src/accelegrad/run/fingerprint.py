"""What a run is about, by content: checkpoints of other data, weights or sets are refused."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from accelegrad.errors import Vector

#: Bytes of a digest: two different contents have the same one never in practice.
DIGEST_SIZE = 16
#: How far from the start an object of the user's own is asked what it does.
DISTANCES = (1e-3, 1.0, 1e3)


def fingerprint(content: Any) -> str:
    """Return a text that tells contents apart: numbers, texts, arrays, and what is made of them."""
    digest = hashlib.blake2b(digest_size=DIGEST_SIZE)
    _take(digest, content)
    return digest.hexdigest()


def behaviour(functions: Mapping[str, Any], start: Vector) -> str:
    """Return a text that tells functions of a point apart by what they return near the start."""
    directions = np.random.default_rng(0).standard_normal((len(DISTANCES), start.size))
    points = [start + far * way for far, way in zip(DISTANCES, directions, strict=True)]
    return fingerprint({name: [f(x.copy()) for x in points] for name, f in functions.items()})


def _take(digest: Any, content: Any) -> None:
    if sp.issparse(content):
        _take_sparse(digest, content)
    elif isinstance(content, np.ndarray):
        _take_array(digest, content)
    elif isinstance(content, Mapping):
        _take(digest, [[name, content[name]] for name in sorted(content)])
    elif isinstance(content, (list, tuple)):
        digest.update(f"[{len(content)}".encode())
        for part in content:
            _take(digest, part)
    elif isinstance(content, float):
        digest.update(float(content).hex().encode())
    elif content is None or isinstance(content, (bool, int, str, np.generic)):
        digest.update(f"{type(content).__name__} {content!r};".encode())
    elif hasattr(content, "fingerprint"):  # rows that are read chunk by chunk
        digest.update(content.fingerprint().encode())
    elif hasattr(content, "__dict__"):
        _take(digest, [type(content).__qualname__, vars(content)])
    else:
        digest.update(f"{type(content).__qualname__};".encode())


def _take_sparse(digest: Any, matrix: Any) -> None:
    parts = (matrix.data, matrix.indices, matrix.indptr)
    _take(digest, [matrix.format, list(matrix.shape), *parts])


def _take_array(digest: Any, array: np.ndarray[Any, Any]) -> None:
    """Take an array in without copying it, unless it is neither in C nor in Fortran order."""
    digest.update(f"{array.dtype.str} {array.shape}".encode())
    if array.dtype == object:
        _take(digest, array.tolist())
        return
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        array = array.T
    digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
