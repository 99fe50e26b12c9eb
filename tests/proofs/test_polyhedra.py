"""Some of the random polyhedra that the fuzz draws more of."""

import pytest

import accelegrad as ag
from proofs.polyhedra import FUNCTIONS, ROWS, TOL, check, draw

SEEDS = range(25)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_polyhedral_problem_is_proved(seed):
    check(seed)


def test_rows_at_tiny_angles_are_proved():
    """It ended after max_iter: rounding over a set that is 1e10 wide took all digits."""
    check(118)


def test_all_kinds_are_drawn():
    names = " ".join(draw(seed).name for seed in SEEDS)
    assert all(kind in names for kind in (*ROWS, *FUNCTIONS, "bounds"))


@pytest.mark.parametrize("seed", [31000106, 77000117])
def test_a_vertex_where_no_way_leads_down_is_proved_at_once(seed):
    """It took 129 calls and 23: a proof was not tried before the twentieth step."""
    problem = draw(seed)
    assert ag.minimize(problem.fun, problem.start, tol=TOL, **problem.limits).nfev <= 15
