"""Penalties against the formulas of the fuzz, the conditions of their prox and sampled points."""

import math
import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from accelegrad.errors import NonFiniteError
from accelegrad.geometry.penalties import (
    L1,
    ElasticNet,
    GroupL2,
    NuclearNorm,
    OnLeading,
    Penalty,
    as_penalty,
)
from proofs.cases import build_penalty
from proofs.extended import LONG, PenaltyFormula

INF = math.inf
SCALES = [1e-8, 1e8]


# -- the cases


def of_groups(labels, **weights):
    return PenaltyFormula("GroupL2", {"strength": 0.6, "groups": labels, **weights}, len(labels))


class OwnMaximum:
    """A penalty as a user would write it: the largest |x_i|, its prox by Moreau and bisection."""

    def __init__(self, strength):
        self.strength = strength

    def value(self, x):
        return self.strength * np.abs(x, out=x).max()  # in place, as users do

    def prox(self, x, step):
        radius = step * self.strength
        if np.abs(x).sum() <= radius:
            x[:] = 0.0
            return x
        low, high = 0.0, np.abs(x).max()
        while low < (middle := 0.5 * (low + high)) < high:
            if np.maximum(np.abs(x) - middle, 0.0).sum() > radius:
                low = middle
            else:
                high = middle
        return np.clip(x, -low, low, out=x)

    def __repr__(self):
        return f"OwnMaximum({self.strength})"


SOME = np.array([0.1, 0.9, 0.0, 0.7, 0.3, 0.4])
THREE, LISTED = [0.5, 1.5, 1.1], [[5, 1], [3], [0, 4, 2]]
#: Formulas, whose first coordinates may be part of more
FORMULAS = {
    "l1": PenaltyFormula("L1", {"strength": 0.7}, 6),
    "weighted_l1": PenaltyFormula("L1", {"strength": 0.2 + SOME}, 6),
    "partly_free_l1": PenaltyFormula("L1", {"strength": SOME}, 6),
    "elastic_net": PenaltyFormula("ElasticNet", {"l1": 0.7, "l2": 0.9}, 6),
    "ridge": PenaltyFormula("ElasticNet", {"l1": 0.0, "l2": 0.9}, 5),
    "labelled_groups": of_groups([9, 4, 5, 9, 9, 5, 5], weights=THREE),  # of the sorted labels
    "partly_free_groups": of_groups([1, 0, 0, -1, -1, 0, 1], weights=THREE[:2]),
    "listed_groups": of_groups([2, 0, 2, 1, 2, 0], weights=THREE),
    "open_groups": of_groups([1, 0, 0, -1, 1, -1, -1, -1]),
    "nuclear": PenaltyFormula("NuclearNorm", {"strength": 0.6, "shape": (3, 4)}, 12),
    "leading_l1": PenaltyFormula("L1", {"strength": 0.7}, 4),
    "leading_nuclear": PenaltyFormula("NuclearNorm", {"strength": 0.6, "shape": (2, 3)}, 6),
}
#: Penalties that are not built from the formula's arguments, but from what it gives, at a scale
OTHERS = {
    "listed_groups": lambda s, _: GroupL2(0.6 * s, LISTED, weights=THREE, size=6),
    "open_groups": lambda s, _: GroupL2(0.6 * s, [range(1, 3), (4, 0)]),
    "leading_l1": lambda s, built: OnLeading(built, 4, 6),
    "leading_nuclear": lambda s, built: OnLeading(built, 6, 7),
}
CASES = sorted([*FORMULAS, "foreign"])
FREE = ["partly_free_l1", "partly_free_groups", "open_groups", "leading_l1", "leading_nuclear"]
BOUNDED = sorted(set(CASES) - set(FREE) - {"foreign"})
SEPARABLE = ["elastic_net", "l1", "leading_l1", "partly_free_l1", "ridge", "weighted_l1"]
for_all = pytest.mark.parametrize("name", CASES)


def drawn(name, scale=1.0):
    """Return a penalty of points of d coordinates with its value by the formula, and numbers."""
    rng = np.random.default_rng(sum(map(ord, name)))
    if name == "foreign":
        value = lambda x: scale * max(map(abs, x))  # noqa: E731
        return SimpleNamespace(penalty=as_penalty(OwnMaximum(scale)), d=5, value=value), rng
    given = FORMULAS[name].arguments
    given = {k: scale * v if k in ("strength", "l1") else v for k, v in given.items()}
    formula = replace(FORMULAS[name], arguments=given)
    penalty = OTHERS.get(name, lambda s, built: built)(scale, build_penalty(formula))
    d = getattr(penalty, "dimension", None) or formula.size
    value = lambda x: float(formula.at(LONG.array(x), LONG))  # noqa: E731
    return SimpleNamespace(penalty=penalty, d=d, value=value), rng


def queries(rng, case, scale, count=6):
    """Draw points and steps: the prox is zero for some, inner, or beyond all thresholds."""
    for _ in range(count):
        for step in (0.05, 1.0, 3.0):
            yield scale * rng.choice([0.3, 1.0, 5.0]) * rng.standard_normal(case.d), step


def sampled(rng, center, scale, count=20):
    """Draw points near the centre, far from it, and sparse ones."""
    for _ in range(count):
        u = center + scale * 10.0 ** rng.uniform(-6, 2) * rng.standard_normal(center.size)
        yield u
        yield np.where(rng.uniform(size=u.size) < 0.5, u, 0.0)
    yield np.zeros_like(center)


# -- values


@for_all
@pytest.mark.parametrize("scale", SCALES)
def test_value_agrees_with_the_formula(name, scale):
    case, rng = drawn(name, scale)
    for _ in range(5):
        x = scale * rng.standard_normal(case.d)
        value = case.penalty.value(x)
        assert type(value) is float
        assert value == pytest.approx(case.value(x), rel=1e-14)
    assert case.penalty.value(np.zeros(case.d)) == 0.0


# -- prox


@for_all
@pytest.mark.parametrize("scale", SCALES)
def test_prox_leaves_a_subgradient(name, scale):
    """(x - p) / step is a subgradient of phi at p: that defines the prox, for every convex phi."""
    case, rng = drawn(name, scale)
    for x, step in queries(rng, case, scale, count=3):
        p = case.penalty.prox(x, step)
        slope, value = (x - p) / step, case.penalty.value(p)
        for u in sampled(rng, p, scale):
            other = case.penalty.value(u)
            size = other + value + np.linalg.norm(x) / step * np.linalg.norm(u - p)
            assert other >= value + slope @ (u - p) - 1e-13 * size


def test_prox_at_the_thresholds():
    x = np.array([1.0, -1.0, np.nextafter(1.0, 2.0), -3.0])
    np.testing.assert_array_equal(L1(2.0).prox(x, 0.5), [0.0, 0.0, 2.0**-52, -2.0])
    np.testing.assert_array_equal(ElasticNet(2.0, 6.0).prox(x, 0.5), [0.0, 0.0, 2.0**-54, -0.5])
    np.testing.assert_array_equal(L1([2.0, 1.0, 0.0, 0.0]).prox(x, 0.5), [0.0, -0.5, x[2], -3.0])
    x = np.array([3.0, 7.0, -4.0, 2.0])
    np.testing.assert_array_equal(GroupL2(1.0, [0, -1, 0, 1]).prox(x, 5.0), [0.0, 7.0, 0.0, 0.0])
    np.testing.assert_allclose(
        GroupL2(1.0, [0, -1, 0, 1]).prox(x, 1.0), [2.4, 7.0, -3.2, 1.0], rtol=1e-15
    )


@pytest.mark.parametrize("size", [1e-200, 1e160])
def test_groups_at_sizes_whose_squares_leave_the_floats(size):
    x = size * np.array([3.0, -4.0, 5.0])
    penalty = GroupL2(1.0, [0, 0, 1])
    assert penalty.value(x) == pytest.approx(10.0 * size, rel=1e-15)
    np.testing.assert_allclose(penalty.prox(x, size), size * np.array([2.4, -3.2, 4.0]), rtol=1e-14)


def test_free_groups_keep_even_what_is_tiny_beside_the_others():
    x = np.array([1e-200, 1.0, 1e-250])
    found = GroupL2(1.0, [0, 1, -1], weights=[0, 1]).prox(x, 0.5)
    np.testing.assert_array_equal(found, [1e-200, 0.5, 1e-250])


@pytest.mark.parametrize("name", sorted(set(CASES) - {"foreign"}))
@pytest.mark.parametrize("bad", [math.nan, INF, -INF])
def test_broken_points_stay_broken_and_do_not_hang(name, bad):
    case, rng = drawn(name)
    x = rng.standard_normal(case.d)
    x[1] = bad
    assert not np.isfinite(case.penalty.prox(x, 1.0)).all()
    assert not math.isfinite(case.penalty.value(x))


@for_all
def test_inputs_stay_as_they_are_and_answers_are_new(name):
    case, rng = drawn(name)
    x = rng.standard_normal(case.d)
    before = x.copy()
    x.setflags(write=False)
    first, again = case.penalty.prox(x, 0.3), case.penalty.prox(x, np.float32(0.3))
    q, _ = case.penalty.affine_minorant(x)
    case.penalty.value(x)
    np.testing.assert_array_equal(x, before)
    for answer in (first, q):
        assert answer.dtype == np.float64
        assert answer.shape == x.shape
        assert answer.flags.writeable
        assert not np.shares_memory(answer, x)
    np.testing.assert_allclose(again, first, atol=1e-7)
    kept = first.copy()
    case.penalty.prox(2.0 * x, 0.3)
    np.testing.assert_array_equal(first, kept)


def test_which_are_separable():
    """Of a sum over coordinates the prox, clipped to a box, is that of both."""
    for name in CASES:
        assert drawn(name)[0].penalty.separable is (name in SEPARABLE)
    assert Penalty.separable is False


# -- level sets


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("scale", SCALES)
def test_level_radius_is_attained_on_an_axis(name, scale):
    case, _ = drawn(name, scale)
    for size in (1e-3 * scale, scale, 1e3 * scale):
        on_axes = size * np.eye(case.d)
        reached = min(case.penalty.level_radius(case.value(u)) for u in on_axes)
        assert reached == pytest.approx(size, rel=1e-14)
    assert case.penalty.level_radius(0.0) == 0.0
    assert case.penalty.level_radius(-1e-18) == 0.0  # rounding of a value that is 0
    assert case.penalty.level_radius(INF) == INF


def test_level_radius_of_special_cases():
    for name in FREE:
        assert [drawn(name)[0].penalty.level_radius(value) for value in (0.0, 1.0)] == [INF, INF]
    assert GroupL2(2.0, [[0, 1], [2]], size=3).level_radius(3.0) == 1.5
    assert GroupL2(2.0, [[0, 1], [2]], weights=[0.5, 3], size=3).level_radius(3.0) == 3.0
    assert GroupL2(2.0, [[0, 1], [2]], weights=[0, 3], size=3).level_radius(3.0) == INF
    assert GroupL2(2.0, [[0, 1], [2]], size=4).level_radius(3.0) == INF
    assert GroupL2(2.0, [[0, 1], [2]]).level_radius(3.0) == INF  # it may be used in more dimensions
    assert OnLeading(L1(2.0), 3, 3).level_radius(3.0) == 1.5
    assert ElasticNet(1.0, 0.0).level_radius(3.0) == 3.0
    assert ElasticNet(0.0, 2.0).level_radius(9.0) == pytest.approx(3.0, rel=1e-15)
    assert ElasticNet(1.0, 1e-20).level_radius(3.0) == pytest.approx(3.0, rel=1e-15)
    assert ElasticNet(0.0, 1e308).level_radius(1e308) == pytest.approx(math.sqrt(2), rel=1e-15)
    for wrong in (math.nan, -INF):
        with pytest.raises(ValueError, match=r"value must be a finite number, but it is"):
            L1(1.0).level_radius(wrong)
    with pytest.raises(TypeError, match=r"value must be a finite number, not None"):
        NuclearNorm(1.0, (1, 1)).level_radius(None)


# -- minorants


@for_all
@pytest.mark.parametrize("scale", SCALES)
def test_affine_minorant_touches(name, scale):
    """That it lies below is what `test_prox_leaves_a_subgradient` shows."""
    case, rng = drawn(name, scale)
    for slope, _ in queries(rng, case, scale, count=3):
        q, c = case.penalty.affine_minorant(slope)
        p = case.penalty.prox(-slope, 1.0)
        assert type(c) is float
        size = np.linalg.norm(slope)
        np.testing.assert_allclose(slope + q, -p, rtol=0, atol=1e-15 * size)
        value = case.penalty.value(p)
        rounding = 1e-13 * (value + size**2)
        assert q @ p + c == pytest.approx(value, abs=rounding)
        if name not in ("elastic_net", "ridge"):  # a norm, or one of some of the coordinates
            assert abs(c) <= (rounding if name == "foreign" else 0.0)


# -- constructors


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: L1(0.0), r"strength must be a finite number > 0, but it is 0\.0"),
        (lambda: L1("1"), r"strength must be an array of real numbers"),
        (lambda: L1([1.0, -2.0]), r"strength must be >= 0, but strength\[1\] is -2\.0"),
        (lambda: L1([1.0, math.nan]), r"strength must be finite, but strength\[1\] is nan"),
        (lambda: L1([0.0, 0.0]), r"strength must have an entry > 0, but all are 0"),
        (lambda: ElasticNet(-1.0, 1.0), r"l1 must be a finite number >= 0, but it is -1\.0"),
        (lambda: ElasticNet(0, 0), r"l1 or l2 must be > 0, but both are 0"),
        (lambda: GroupL2(1, 3), r"groups must be a vector of labels or a list of .*, not 3"),
        (lambda: GroupL2(1, []), r"groups must be a vector with entries, .* \(0,\)"),
        (lambda: GroupL2(1, [0.0, 1.0]), r"groups must hold whole numbers, .* float64"),
        (lambda: GroupL2(1, [0, 1, -2]), r"groups must be labels >= 0, .* groups\[2\] is -2"),
        (lambda: GroupL2(1, [-1, -1]), r"groups must have a label >= 0, but all are -1"),
        (lambda: GroupL2(1, [0, 1], size=3), r"size must be 2, the number of labels .* is 3"),
        (lambda: GroupL2(1, [[0, 1], 2]), r"labels or index lists only, but groups\[1\] is 2"),
        (lambda: GroupL2(1, [[0, 1], [2, 1]]), r"coordinate 1 is in groups\[0\] .* groups\[1\]"),
        (lambda: GroupL2(1, [[0, 1], []]), r"groups\[1\] must be a vector with entries"),
        (lambda: GroupL2(1, [[0], [-1]]), r"indices >= 0, but groups\[1\] has -1"),
        (lambda: GroupL2(1, [[0], [4]], size=4), r"indices from 0 to 3, but groups\[1\] has 4"),
        (lambda: GroupL2(1, [0, 1], weights=[1.0]), r"weights must have .* per group, 2, .* has 1"),
        (lambda: GroupL2(1, [0, 1], weights=[1, -1]), r"weights must be >= 0, but weights\[1\]"),
        (lambda: GroupL2(1, [0, 1], weights=[0, 0]), r"weights must have an entry > 0"),
        (lambda: NuclearNorm(1, 4), r"shape must be a pair of whole numbers >= 1, not 4"),
        (lambda: NuclearNorm(1, (2, 0)), r"shape\[1\] must be a whole number >= 1, but it is 0"),
        (lambda: OnLeading(L1([1, 1]), 3, 4), r"has dimension 2, but the points have 3"),
    ],
)
def test_constructors_say_what_is_wrong(build, words):
    with pytest.raises((TypeError, ValueError), match=words):
        build()


@pytest.mark.parametrize(
    ("penalty", "dimension"),
    [
        (L1(1.0), None),
        (L1([1.0, 2.0]), 2),
        (GroupL2(1, [0, 1, -1]), 3),
        (GroupL2(1, [[0], [3]], size=7), 7),
        (GroupL2(1, [[0], [3]]), None),
        (NuclearNorm(1, (2, 3)), 6),
        (OnLeading(L1(1), 2, 5), 5),
    ],
)
def test_dimensions(penalty, dimension):
    assert penalty.dimension == dimension
    penalty.check_dimension(dimension or 9)
    for wrong in () if dimension is None else (dimension - 1, dimension + 1):
        words = rf"has dimension {dimension}, but the points have {wrong} coordinates"
        for refused in (penalty.value, lambda x: penalty.prox(x, 1.0)):
            with pytest.raises(ValueError, match=words):
                refused(np.ones(wrong))


def test_groups_need_all_their_indices():
    GroupL2(1, [[0], [3]]).check_dimension(4)
    with pytest.raises(ValueError, match=r"has the index 3 .* have 3 coordinates; .* at least 4"):
        GroupL2(1, [[0], [3]]).prox(np.ones(3), 1.0)


@for_all
def test_steps_are_checked(name):
    case, rng = drawn(name)
    x = rng.standard_normal(case.d)
    for zero in (0.0, 0, np.float64(0.0)):
        found = case.penalty.prox(x, zero)
        np.testing.assert_array_equal(found, x)
        assert not np.shares_memory(found, x)
    for wrong in (-1.0, -1e-300, math.nan, INF):
        with pytest.raises(ValueError, match=rf"step must be .* >= 0, but it is {wrong}"):
            case.penalty.prox(x, wrong)
    for wrong in (None, "1", np.ones(2), True):
        with pytest.raises(TypeError, match=r"step must be a finite number >= 0, not"):
            case.penalty.prox(x, wrong)
    again = pickle.loads(pickle.dumps(case.penalty))
    np.testing.assert_array_equal(again.prox(x, 0.5), case.penalty.prox(x, 0.5))
    assert again.value(x) == case.penalty.value(x)
    assert repr(again) == repr(case.penalty)


def test_representations():
    assert repr(L1(0.5)) == "L1(strength=0.5)"
    assert repr(L1([1, 2])) == "L1(strength=[1., 2.])"
    assert len(repr(L1(np.ones(1000)))) < 50
    assert repr(ElasticNet(1, 0.5)) == "ElasticNet(l1=1.0, l2=0.5)"
    words = "GroupL2(strength=1.0, groups={} groups of {} coordinates, size={})"
    assert repr(GroupL2(1, [0, 0, -1, 5])) == words.format(2, 3, 4)
    assert repr(GroupL2(1, [[4]])) == words.format(1, 1, None)
    assert repr(NuclearNorm(2, [2, 3])) == "NuclearNorm(strength=2.0, shape=(2, 3))"
    assert repr(OnLeading(L1(1), 2, 3)) == "OnLeading(L1(strength=1.0), size=2, total=3)"


# -- others' penalties


class OwnSquare:
    """A user's penalty that tells all it can: x^2 / 2 in one dimension."""

    separable = True
    dimension = 1

    def value(self, x):
        return 0.5 * x[0] ** 2

    def prox(self, x, step):
        return [x[0] / (1 + step)]

    def level_radius(self, value):
        return math.sqrt(2 * value)

    def __repr__(self):
        return "OwnSquare"


def test_foreign_penalties_tell_what_they_can():
    full, bare = as_penalty(OwnSquare()), as_penalty(OwnMaximum(2.0))
    assert isinstance(full, Penalty)
    assert (full.separable, full.dimension, full.level_radius(8.0)) == (True, 1, 4.0)
    assert (full.value(np.array([4.0])), full.prox(np.array([4.0]), 1.0).tolist()) == (8.0, [2.0])
    assert full.prox(np.array([4.0]), 1.0).dtype == np.float64
    with pytest.raises(ValueError, match=r"as_penalty\(OwnSquare\) has dimension 1, .* 2 coord"):
        full.check_dimension(2)
    assert repr(bare) == "as_penalty(OwnMaximum(2.0))"
    assert (bare.separable, bare.dimension, bare.level_radius(1.0)) == (False, None, INF)
    leading = OnLeading(full, 1, 3)
    assert leading.separable is True
    np.testing.assert_array_equal(leading.prox(np.array([4.0, 5.0, 6.0]), 1.0), [2.0, 5.0, 6.0])
    assert OnLeading(full, 1, 1).level_radius(8.0) == 4.0
    with pytest.raises(TypeError, match="abstract"):
        Penalty()


def test_own_penalties_pass_through_and_others_are_refused():
    l1 = L1(1.0)
    assert as_penalty(l1) is l1
    half = OwnSquare()
    half.value = 3.0
    for wrong in (None, 0.1, [1, 2], lambda x: x, half):
        with pytest.raises(
            TypeError, match=r"penalty must be .*value\(x\) and prox\(x, step\), not"
        ):
            as_penalty(wrong)
    with pytest.raises(TypeError, match=r"penalty must be a penalty, not the class L1; call"):
        as_penalty(L1)
    with pytest.raises(ValueError, match=r"penalty must be a penalty or a name, not 'l3'"):
        as_penalty("l3")


def foreign(**changes):
    own = OwnSquare()
    for name, attribute in changes.items():
        setattr(own, name, attribute)
    return own


@pytest.mark.parametrize(
    ("method", "answer", "error", "words"),
    [
        ("prox", lambda x: x[:1], ValueError, r"prox must return .* \(3,\), .* \(1,\)"),
        ("prox", lambda x: x[None], ValueError, r"prox must return .* \(3,\), .* \(1, 3\)"),
        ("prox", lambda x: 0.0, ValueError, r"penalty\.prox must return .* \(3,\), .* \(\)"),
        ("prox", lambda x: None, TypeError, r"answer of penalty\.prox must be an array of real"),
        ("prox", lambda x: 1j * x, TypeError, r"answer of penalty\.prox must be real"),
        ("prox", lambda x: x * [1, math.nan, 1], NonFiniteError, r"penalty has entry 1 = nan"),
        ("prox", lambda x: x * [1, 1, -INF], NonFiniteError, r"of the penalty has entry 2 = -inf"),
        ("value", np.copy, TypeError, r"penalty\.value must return a number, .* \(3,\)"),
        ("value", lambda x: None, TypeError, r"answer of penalty\.value must be"),
        ("value", lambda x: "1", TypeError, r"answer of penalty\.value must be"),
        ("value", lambda x: math.nan, NonFiniteError, r"the value of the penalty is nan"),
        ("value", lambda x: INF, NonFiniteError, r"the value of the penalty is inf"),
    ],
)
def test_foreign_answers_with_nonsense_are_refused(method, answer, error, words):
    given = as_penalty(foreign(**{method: lambda x, *step: answer(x)}))
    with pytest.raises(error, match=words):
        given.prox(np.ones(3), 1.0) if method == "prox" else given.value(np.ones(3))


def test_foreign_attributes_with_nonsense_are_refused():
    with pytest.raises(TypeError, match=r"penalty\.separable must be True or False, not 'yes'"):
        as_penalty(foreign(separable="yes"))
    with pytest.raises(TypeError, match=r"penalty\.dimension must be .* not 1\.5"):
        as_penalty(foreign(dimension=1.5))
    for wrong in (-1.0, math.nan):
        with pytest.raises(ValueError, match=r"penalty\.level_radius must return a number >= 0"):
            as_penalty(foreign(level_radius=lambda value, wrong=wrong: wrong)).level_radius(1.0)
    with pytest.raises(TypeError, match=r"penalty\.level_radius must return a number, .* \(2,\)"):
        as_penalty(foreign(level_radius=lambda value: np.ones(2))).level_radius(1.0)
    assert as_penalty(foreign(level_radius=lambda value: INF)).level_radius(1.0) == INF
