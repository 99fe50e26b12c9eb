"""Certificates: what others need to recompute a gap; `tools/verify.py` does it with NumPy alone.

They refer to arrays that the proof has made anyway, and are put together when they are saved.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from accelegrad.bundle.cut_memory import Piece
from accelegrad.errors import Vector
from accelegrad.files.archive import whole_file
from accelegrad.geometry.penalties import L1, ElasticNet, OnLeading
from accelegrad.geometry.sets import Ball, Box, L1Ball, Simplex, WholeSpace
from accelegrad.linalg import norm
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.multinomial import MultinomialModel
from accelegrad.proofs.cuts import Region
from accelegrad.proofs.fenchel import Terms

#: Halvings of the interval of a step's logarithm, and its ends relative to the radius over the
#: slope's length: far beyond what rounding lets a bound distinguish.
HALVINGS, SHORTEST, LONGEST = 100, 1e-20, 1e20


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """A value that is proved to be within `gap` of the minimum."""

    value: float
    gap: float

    def arrays(self) -> dict[str, Any]:
        """Return all that the proof needs besides the data or the function, by name."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the arrays to an .npz file, completely or not at all; no pickle is needed."""
        arrays = {name: np.asarray(value) for name, value in self.arrays().items()}
        with whole_file(Path(path)) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(value={self.value:g}, gap={self.gap:.1e})"


@dataclass(frozen=True, eq=False, repr=False)
class ModelCertificate(Certificate):
    """Slopes of the losses, one per row, or one distribution over the classes per row.

    One vector of weights, with an intercept, and one of slopes per problem, if several were solved;
    for several classes a function returns the distributions. Without slopes they are those of least
    squares at the point. `lower` and `upper` limit the weights.
    """

    loss: str
    parameter: float
    l2: float
    l1: float | Vector
    fit_intercept: bool
    points: Any
    slopes: Sequence[Vector] | Callable[[], Any] | None
    weights: Vector | None = None
    lower: Vector | None = None
    upper: Vector | None = None
    rows: Any = None  # those that were used, if not all
    classes: Any = None

    def arrays(self) -> dict[str, Any]:
        """Return the fields as arrays; an intercept is apart from the coefficients."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        points = np.array(found.pop("points"))
        width = points.shape[1] - self.fit_intercept
        found["coefficients"], found["intercepts"] = points[:, :width], np.zeros(len(points))
        if self.fit_intercept:
            found["intercepts"] = points[:, width]
        if self.slopes is not None:
            found["slopes"] = self.slopes() if callable(self.slopes) else np.array(self.slopes).T
        if self.classes is not None:
            found["classes"] = np.array(self.classes.tolist())  # text in objects needs pickle
        return {name: value for name, value in found.items() if value is not None}


def of_model(
    model: LinearModel, terms: Terms | None, point: Vector, value: float, gap: float, slopes: Any
) -> ModelCertificate | None:
    """Return the certificate of a model's value by slopes; None if it could not be checked.

    That is where rows are not in memory, where a set other than a box limits the weights, and where
    limits hold for the intercept.
    """
    if terms is None or not (model.in_memory and terms.separable and terms.intercept_is_free):
        return None
    if slopes is None and model.loss.name != "squared":
        slopes = np.zeros(model.n_samples)  # they prove that the minimum is at least 0
    return ModelCertificate(
        value,
        gap,
        loss=model.loss.plain_name,
        parameter=model.loss.parameter,
        l2=terms.l2,
        l1=terms.l1,
        fit_intercept=model.fit_intercept,
        points=(point,),
        slopes=None if slopes is None else (slopes,),
        weights=model.sample_weight,
        lower=None if terms.free else terms.lower,
        upper=None if terms.free else terms.upper,
    )


def of_classes(
    model: MultinomialModel, distributions: Callable[[], Any] | None
) -> ModelCertificate | None:
    """Return the certificate by distributions over the classes, for a point to be given."""
    if distributions is None:
        return None
    return ModelCertificate(
        *(0.0, 0.0, "multinomial", 0.0, model.l2, 0.0, model.rows.fit_intercept, ()),
        slopes=distributions,
        weights=model.rows.sample_weight,
    )


def joined(parts: Sequence[ModelCertificate | None]) -> ModelCertificate | None:
    """Return the certificate of the sum of problems that differ in their targets."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    slopes = [part.slopes for part in known]
    return replace(
        known[0],
        value=sum(part.value for part in known),
        gap=sum(part.gap for part in known),
        points=[part.points[0] for part in known],
        slopes=None if slopes[0] is None else [each[0] for each in slopes],  # type: ignore[index]
    )


@dataclass(frozen=True, eq=False, repr=False)
class FunctionCertificate(Certificate):
    """Cuts of a function with positive multipliers, and the region over which they were minimised.

    `pieces` are the cuts, and `error` is how far values and gradients can be off, by an accuracy
    that was given or by their type.
    """

    point: Vector
    pieces: Sequence[Piece]
    error: tuple[float, float]
    region: Region | None
    radius: float

    def arrays(self) -> dict[str, Any]:
        """Return cuts, region, and the slopes of affine minorants of its box and penalty."""
        shares, points, values, gradients = map(np.array, zip(*self.pieces, strict=True))
        slope = shares @ gradients / shares.sum()
        return {
            "value": self.value,
            "gap": self.gap,
            "point": self.point,
            "points": points,
            "values": values,
            "gradients": gradients,
            "multipliers": shares,
            "value_error": self.error[0],
            "gradient_error": self.error[1],
            **_space(self.region, self.radius, slope),
        }


def of_function(
    point: Vector,
    value: float,
    gap: float,
    pieces: Sequence[Piece] | None,
    error: tuple[float, float],
    region: Region | None,
) -> FunctionCertificate | None:
    """Return the certificate by cuts; None if some of them are not kept, or for other regions."""
    if pieces is None:
        return None
    radius = np.inf
    if region is not None:
        chosen, penalty, radius = region.feasible_set, region.penalty, region.radius
        l1 = isinstance(getattr(penalty, "penalty", penalty), (L1, NoneType))  # or of leading ones
        limits = isinstance(chosen, (Box, WholeSpace)) and (l1 or isinstance(penalty, ElasticNet))
        bounded = isinstance(chosen, (Simplex, L1Ball, Ball)) and not region.assumed
        if region.change is not None or not (limits or (bounded and penalty is None)):
            return None
    return FunctionCertificate(value, gap, point, pieces, error, region, radius)


def _limits(region: Region) -> tuple[Vector, Vector, Vector, float]:
    """Return the ends of a box, and the l1 factors and the l2 factor of a penalty."""
    size, chosen, penalty = region.center.size, region.feasible_set, region.penalty
    l1, l2, leading = np.zeros(size), 0.0, size
    if isinstance(penalty, OnLeading):
        leading, penalty = penalty.size, penalty.penalty
    if isinstance(penalty, ElasticNet):
        l1[:], l2 = penalty.l1, penalty.l2
    elif isinstance(penalty, L1):
        l1[:leading] = penalty.strength
    ends = (chosen.lower, chosen.upper) if isinstance(chosen, Box) else (-np.inf, np.inf)
    low, high = (np.array(np.broadcast_to(end, size), dtype=np.float64) for end in ends)
    return low, high, l1, l2


def _space(region: Region | None, radius: float, slope: Vector) -> dict[str, Any]:
    """Return ball, set and penalty, and the part of a slope that is bounded by the ball.

    With p = prox(center - s slope, s) of penalty and box together, (center - p) / s bounded by the
    ball and the rest by penalty and box prove most if p is on the boundary of the ball.
    """
    if region is None:  # a zero gradient proves a minimum everywhere
        return {"center": 0.0 * slope, "radius": np.inf}
    chosen, center = region.feasible_set, region.center
    space: dict[str, Any] = {"center": center, "radius": np.inf}
    if isinstance(chosen, Ball):
        return {"center": chosen.center + 0.0 * center, "radius": chosen.radius}
    if isinstance(chosen, Simplex):
        return space | {"total": chosen.total}
    if isinstance(chosen, L1Ball):
        return space | {"l1_radius": chosen.radius, "l1_center": chosen.center + 0.0 * center}
    low, high, l1, l2 = _limits(region)
    if isinstance(chosen, Box):
        space |= {"lower": low, "upper": high}
    if region.penalty is not None:
        space |= {"l1": l1, "l2": l2}
    if not (region.assumed or region.is_ball) or radius == np.inf:
        return space

    def nearest(step: float) -> Vector:
        moved = center - step * slope
        shrunk = np.sign(moved) * np.maximum(np.abs(moved) - step * l1, 0.0) / (1.0 + step * l2)
        return np.clip(shrunk, low, high)

    with np.errstate(all="ignore"):  # the ends are far beyond what numbers can hold
        unit = radius / (norm(slope) or 1.0) or 1.0
        first, last = np.log(SHORTEST * unit), np.log(LONGEST * unit)
        for _ in range(HALVINGS):
            middle = 0.5 * (first + last)
            inside = norm(nearest(np.exp(middle)) - center) <= radius
            first, last = (middle, last) if inside else (first, middle)
        step = np.exp(first)
        return space | {"radius": radius, "apart": (center - nearest(step)) / step}
