"""The batch sampler: partitions, unbiasedness, exact resumption; and the paper's problem."""

import json

import numpy as np
import pytest

from accelegrad.models.sampling import BatchSampler
from accelegrad_lab.paper.regression import paper_regression
from toys import AbsoluteDeviations


def sampler(n=10, batch_size=3, seed=0, **options):
    return BatchSampler(n, batch_size, np.random.default_rng(seed), **options)


@pytest.mark.parametrize(("n", "batch_size"), [(10, 3), (10, 10), (10, 1), (12, 4), (1, 1)])
def test_an_epoch_is_a_partition_of_the_rows(n, batch_size):
    batches = sampler(n, batch_size)
    for epoch in range(1, 4):
        drawn = [batches.next_rows() for _ in range(-(-n // batch_size))]
        assert [len(rows) for rows in drawn[:-1]] == [batch_size] * (len(drawn) - 1)
        np.testing.assert_array_equal(np.sort(np.concatenate(drawn)), np.arange(n))
        assert batches.rows_drawn == epoch * n


@pytest.mark.parametrize("replacement", [False, True])
def test_every_row_is_equally_likely_in_every_batch(replacement):
    n, batch_size, rounds = 8, 3, 4000
    counts = np.zeros((3, n))
    batches = sampler(n, batch_size, seed=5, replacement=replacement)
    for _ in range(rounds):
        for position in range(3):
            np.add.at(counts[position], batches.next_rows(), 1)
    expected = counts.sum(axis=1, keepdims=True) / n
    assert counts.sum() == rounds * (9 if replacement else n)
    # 6 standard deviations of a count.
    assert np.abs(counts - expected).max() < 6.0 * np.sqrt(expected.max())


def through_json(state):
    """Return the state after its scalars went through JSON and its arrays through bytes."""
    if isinstance(state, dict):
        return {key: through_json(part) for key, part in state.items()}
    if isinstance(state, np.ndarray):
        return np.frombuffer(state.tobytes(), dtype=state.dtype).reshape(state.shape)
    return json.loads(json.dumps(state))


@pytest.mark.parametrize("generator", [np.random.PCG64, np.random.MT19937])
@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("steps", [0, 2, 4, 7])
def test_a_restored_sampler_goes_on_bit_for_bit(generator, replacement, steps):
    def make(seed):
        return BatchSampler(11, 3, np.random.Generator(generator(seed)), replacement)

    original = make(3)
    original.rng.integers(7, size=3, dtype=np.uint32)  # leaves half a 64-bit draw in the buffer
    for _ in range(steps):
        original.next_rows()
    state = original.state()
    expected = [original.next_rows().tolist() for _ in range(3000)]
    # The state has not changed with the sampler, nor does it with the one that is restored.
    state = through_json(state)
    for _ in range(2):
        resumed = make(99)
        resumed.next_rows()
        resumed.restore(state)
        assert [resumed.next_rows().tolist() for _ in range(3000)] == expected
        assert resumed.rows_drawn == original.rows_drawn
    np.testing.assert_array_equal(resumed.rng.random(3), original.rng.random(3))


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing():
    batches = sampler()
    batches.next_rows()
    state = batches.state()
    twin = sampler()
    twin.next_rows()
    other = BatchSampler(10, 3, np.random.Generator(np.random.Philox(0)))
    with pytest.raises(ValueError, match="Philox"):
        other.restore(state)
    with pytest.raises(ValueError, match="permutation of 11 rows"):
        sampler(11).restore(state)
    for broken in ({"permutation": np.zeros(10, int)}, {"position": 11}, {"permutation": [1, 2]}):
        with pytest.raises(ValueError, match="state must hold a permutation of 10 rows"):
            batches.restore({**state, **broken})
    assert batches.next_rows().tolist() == twin.next_rows().tolist()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        *(({"batch_size": size}, ValueError, "batch_size must be a whole") for size in (0, 11)),
        *(({"batch_size": size}, TypeError, "batch_size must be a whole") for size in (2.5, True)),
        *(
            ({"rng": rng}, TypeError, "rng must be a numpy.random.Generator")
            for rng in (0, None, np.random.RandomState(0), np.random.PCG64(0))
        ),
        ({"n": 0}, ValueError, "n must be a whole number >= 1"),
        ({"replacement": "no"}, TypeError, "replacement must be True or False, not 'no'"),
    ],
)
def test_wrong_arguments(given, error, message):
    with pytest.raises(error, match=message):
        BatchSampler(**{"n": 10, "batch_size": 3, "rng": np.random.default_rng(0), **given})
    assert "n=10, batch_size=3" in repr(sampler())


@pytest.mark.parametrize(
    ("n", "d", "noise"), [(60, 12, 1e-2), (40, 5, 4.0), (30, 6, 0.0), (5, 9, 1.0)]
)
@pytest.mark.parametrize("p", [1, 2])
def test_paper_problem_and_its_minimum(p, n, d, noise):
    problem = paper_regression(p, n=n, d=d, noise=noise, seed=6)
    x = np.random.default_rng(1).normal(size=d)
    residuals = [float(row @ x - target) for row, target in zip(problem.A, problem.b, strict=True)]
    assert problem.fun(x)[0] == pytest.approx(sum(abs(r) ** p for r in residuals), rel=1e-14)
    steps = 1e-6 * np.eye(d)
    numeric = [(problem.fun(x + h)[0] - problem.fun(x - h)[0]) / 2e-6 for h in steps]
    np.testing.assert_allclose(problem.fun(x)[1], numeric, rtol=1e-7, atol=1e-7)
    x, value = problem.minimum()
    assert value == problem.fun(x)[0]
    if p == 2:
        assert np.abs(problem.A.T @ (problem.A @ x - problem.b)).max() < 1e-11
        return
    # Not the program that minimum() solves.
    x = AbsoluteDeviations(problem.A, problem.b).minimiser
    assert value == pytest.approx(problem.fun(x)[0], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("name", "wrong"), [("p", 3), ("noise", -1.0), ("d", 0), ("seed", None)])
def test_paper_arguments_are_checked(name, wrong):
    with pytest.raises(TypeError if wrong is None else ValueError, match=f"{name} must be"):
        paper_regression(**{"p": 1, "seed": 0, name: wrong})
