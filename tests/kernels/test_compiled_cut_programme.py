"""The compiled programme of cuts against the plain one, and when it is used."""

import numpy as np
import pytest

from accelegrad import kernels
from accelegrad.bundle import cut_programme
from accelegrad.bundle.cut_programme import CutProgramme, Effort

# In a convex programme an error e in the weights' conditions leaves an error of e^2 in the sum. The
# ridge (1e-13) and rounding, both relative to the terms, are far below.
TOLERANCE = 1e-10


def growing(seed, dimension, count):
    """Yield the programmes of a bundle whose cuts come one by one: Gram matrix and linear term."""
    rng = np.random.default_rng(seed)
    slopes = rng.standard_normal((count, dimension)) + 0.3 * (seed % 2)
    errors = (0.1 + seed) * np.abs(rng.standard_normal(count))
    gram = slopes @ slopes.T
    for m in range(2, count + 1):
        # as a memory of cuts hands it over: with more columns than rows
        yield gram[:m], errors[:m] * rng.uniform(0.5, 1.5)


def solved(mode, problems, count):
    """Return the weights of all programmes, each begun with those before."""
    last, found = np.zeros(count), []
    with kernels.use(mode):
        programme = CutProgramme()
        for gram, linear in problems:
            m = linear.size
            last[:m] = programme.weights(gram, linear, last[:m])
            found.append(last[:m].copy())
    return found


def value(gram, linear, weights):
    return 0.5 * weights @ gram[:, : linear.size] @ weights + linear @ weights


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("dimension", "count"), [(3, 30), (20, 60), (60, 90)])
def test_compiled_and_plain_give_the_same_sum(seed, dimension, count):
    problems = list(growing(seed, dimension, count))
    plain, fast = (solved(mode, problems, count) for mode in ("never", "always"))
    for (gram, linear), one, other in zip(problems, plain, fast, strict=True):
        assert (other >= 0.0).all()
        assert other.sum() == pytest.approx(1.0, abs=1e-12)
        size = gram.diagonal().max() + linear.max()
        ours, theirs = value(gram, linear, other), value(gram, linear, one)
        assert ours == pytest.approx(theirs, abs=TOLERANCE * size)


@pytest.mark.parametrize("seed", range(6))
def test_compiled_and_plain_correct_weights_alike(seed):
    """By slopes that were computed to more digits: here, by those of another linear term."""
    *_, (gram, linear) = growing(seed, 20, 30)
    found = []
    for mode in ("never", "always"):
        with kernels.use(mode):
            programme = CutProgramme()
            weights = programme.weights(gram, linear, np.zeros(30))
            for _ in range(4):  # until the best vectors are active
                weights = programme.weights(gram, linear, weights)
            slopes = gram @ weights + linear + 1e-6 * np.arange(30)
            found.append((weights, programme.corrected(weights, slopes)))
    for weights, better in found:
        assert better is not weights
        assert better.sum() == pytest.approx(1.0, abs=1e-12)
        moved = value(gram, linear + 1e-6 * np.arange(30), better)
        assert moved < value(gram, linear + 1e-6 * np.arange(30), weights)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("mode", ["never", "always"])
def test_vectors_that_depend_on_each_other(mode):
    slopes = np.array([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [-1.0, 1e-9]])
    (found,) = solved(mode, [(slopes @ slopes.T, np.zeros(5))], 5)
    assert np.linalg.norm(found @ slopes) <= 1e-5  # whose square is below what the ridge resolves


@pytest.mark.parametrize("mode", ["never", "always"])
def test_it_goes_on_bit_for_bit_from_a_saved_state(mode):
    """Whatever the kernels' mode is then: a run keeps that which it was begun with."""
    last = np.zeros(40)
    with kernels.use(mode):
        programme = CutProgramme()
    for gram, linear in growing(3, 12, 40):
        m = linear.size
        with kernels.use("always" if m % 2 else "never"):
            again = CutProgramme()
        again.restore(programme.state())
        found = programme.weights(gram, linear, last[:m])
        assert np.array_equal(again.weights(gram, linear, last[:m]), found)
        last[:m] = found


def test_compiled_code_is_used_once_plain_code_has_taken_as_long_as_compiling(monkeypatch):
    with kernels.use("auto"):
        effort = Effort()
    with kernels.use("never"):
        never = Effort()
    assert not effort.compiled_pays
    for each in (effort, never):
        before, programme = each.seconds, CutProgramme(each)
        for gram, linear in growing(1, 10, 20):
            programme.weights(gram, linear, np.zeros(linear.size))
        assert each.seconds > before
    monkeypatch.setattr(cut_programme, "COMPILING_SECONDS", 0.5 * effort.seconds)
    assert effort.compiled_pays
    assert not never.compiled_pays
