"""Random tables in files, by fixed seeds: `proofs.files` says what is compared."""

import pytest

from proofs.files import check

SEEDS_A_TEST = 20


@pytest.mark.parametrize("first", range(0, 200, SEEDS_A_TEST))
def test_the_same_table_from_every_file(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        check(seed)
