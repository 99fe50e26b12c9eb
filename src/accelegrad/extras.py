"""Optional packages, and what to install if one is missing."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES = {
    "dask": ("dask", "distributed"),
    "files": ("pandas", "pyarrow"),
    "jax": ("jax", "optax"),
    "torch": ("torch",),
}
"""The extras of pyproject.toml, and the packages that each requires."""


def require(what: str, extra: str | None, *packages: str, distribution: str = "accelegrad") -> None:
    """Raise ImportError with what to install if a package is missing; import nothing.

    `what` needs the packages (the beginning of a sentence), and `extra` of `distribution` has them;
    None: each is installed by its own name. The default is all packages of the extra.
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
