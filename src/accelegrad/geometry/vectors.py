"""Common base of sets and penalties, ours and users', on vectors."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.errors import Vector, finite_vector, real_array, real_number, whole_number

T = TypeVar("T", bound=npt.NDArray[Any])


class OnVectors(ABC):
    """A set or function of vectors, with its dimension and repr."""

    #: its name in messages
    role: ClassVar[str]
    #: the constructor's parameters shown by `repr`, each an attribute too
    _shown: ClassVar[tuple[str, ...]] = ()
    _dimension: int | None = None

    @property
    def dimension(self) -> int | None:
        """The number of coordinates, None if any number fits."""
        return self._dimension

    def check_dimension(self, size: int) -> None:
        """Raise ValueError unless points of `size` coordinates fit."""
        needed = self.dimension
        if needed is not None and size != needed:
            raise ValueError(
                f"{self.role} {self!r} has dimension {needed}, but the points have {size} "
                f"coordinates; it needs {needed}."
            )

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={short_text(getattr(self, name))}" for name in self._shown)
        return f"{type(self).__name__}({shown})"


def check_users_object(role: str, kind: str, given: Any, *methods: str) -> None:
    """Refuse a user's object without the required methods, given as calls."""
    if isinstance(given, type):
        raise TypeError(
            f"{role} must be a {kind}, not the class {given.__name__}; call the class first."
        )
    if not all(callable(getattr(given, method.split("(")[0], None)) for method in methods):
        calls = (
            f"a method {methods[0]}" if len(methods) == 1 else "methods " + " and ".join(methods)
        )
        plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
        raise TypeError(
            f"{role} must be one of accelegrad's {plural} or an object with {calls}, not {given!r}."
        )


def users_dimension(role: str, given: Any) -> int | None:
    """Return the dimension of a user's object, None if it has none."""
    size = getattr(given, "dimension", None)
    return None if size is None else whole_number(f"{role}.dimension", size, least=1)


def number_or_vector(name: str, given: Any) -> float | Vector:
    """Return a finite number, or a read-only copy of a finite vector."""
    if real_array(name, given).ndim == 0:
        return real_number(name, given)
    return read_only(finite_vector(name, given))


def finite_matrix(name: str, given: Any) -> Vector:
    """Return a copy as a dense matrix of finite numbers."""
    if sp.issparse(given):
        given = given.toarray()  # type: ignore[attr-defined]
    matrix = np.array(real_array(name, given), dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"{name} must be a matrix with entries, but its shape is {matrix.shape}.")
    if not np.isfinite(matrix).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(matrix))[0])
        found = matrix[row, column]
        raise ValueError(f"{name} must be finite, but {name}[{row}, {column}] is {found}.")
    return matrix


def refuse_limits(name: str, limits: Vector, refused: float) -> None:
    """Refuse NaN and the infinity that no point satisfies, as lower or upper limits."""
    wrong = np.atleast_1d(np.isnan(limits) | (limits == refused))
    if wrong.any():
        first = int(np.argmax(wrong))
        where = f"[{first}]" if limits.ndim else ""
        raise ValueError(
            f"{name} must be a number or {-refused}, but {name}{where} is {limits.flat[first]}."
        )


def length(point: float | Vector) -> int | None:
    """Return the number of entries, None for a number."""
    return point.size if isinstance(point, np.ndarray) else None


def short_text(given: Any) -> str:
    """Return a short text for a number or a vector."""
    if not isinstance(given, np.ndarray):
        return repr(given)
    return np.array2string(given, separator=", ", threshold=6, edgeitems=2)


def read_only(array: T) -> T:
    """Make an array read-only and return it."""
    array.setflags(write=False)
    return array
