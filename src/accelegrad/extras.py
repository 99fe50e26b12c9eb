"""Packages that not every user has: who needs them is told at once how to install them."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES = {
    "bench": ("cvxpy", "clarabel"),
    "dask": ("dask", "distributed"),
    "files": ("pandas", "pyarrow"),
    "jax": ("jax", "optax"),
    "report": ("matplotlib", "plotly"),
    "torch": ("torch",),
}
"""The extras of pyproject.toml, and of each what cannot be done without."""


def require(what: str, extra: str, *packages: str) -> None:
    """Raise ImportError with what to install, where a package is missing; import nothing.

    Parameters
    ----------
    what : str
        What needs the packages, as the beginning of a sentence.
    extra : str
        The extra of pyproject.toml that has them.
    *packages : str
        Those that are needed; by default all in `PACKAGES`.
    """
    needed = packages or PACKAGES[extra]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        isnt = "is not installed" if len(missing) == 1 else "are not installed"
        raise ImportError(
            f"{what} needs {' and '.join(needed)}; {' and '.join(missing)} {isnt}: "
            f"pip install 'accelegrad[{extra}]'."
        )
