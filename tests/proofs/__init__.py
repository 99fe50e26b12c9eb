"""Checks of random cases, by seed: fixed seeds in the tests, new ones in long runs."""
