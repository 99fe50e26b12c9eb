"""Packages that not every user has: who needs them is told at once how to install them."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES = {
    "dask": ("dask", "distributed"),
    "files": ("pandas", "pyarrow"),
    "jax": ("jax", "optax"),
    "torch": ("torch",),
}
"""The extras of pyproject.toml, and of each what cannot be done without."""


def require(what: str, extra: str | None, *packages: str, distribution: str = "accelegrad") -> None:
    """Raise ImportError with what to install, where a package is missing; import nothing.

    Parameters
    ----------
    what : str
        What needs the packages, as the beginning of a sentence.
    extra : str or None
        The extra of pyproject.toml that has them; None: each is installed by its own name.
    *packages : str
        Those that are needed; by default all in `PACKAGES`.
    distribution : str
        Which one has the extra.
    """
    needed = packages or (PACKAGES[extra] if extra else ())
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        isnt = "is not installed" if len(missing) == 1 else "are not installed"
        wanted = f"'{distribution}[{extra}]'" if extra else " ".join(missing)
        raise ImportError(
            f"{what} needs {' and '.join(needed)}; {' and '.join(missing)} {isnt}: "
            f"pip install {wanted}."
        )
