"""Functions that formulas need beyond + - * /, for NumPy, torch and JAX arrays and trees of them.

Rules use operators and these functions, and no Python `if` on array values, so that JAX can trace
them. Sums over a run (squared norms, weights) are float64 for NumPy and torch, where they do not
change the type of an array they multiply. In JAX they would; there sums have the arrays' type.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # of any shape, of NumPy, torch or JAX; or a `Tree` of such arrays

#: The type of a comparison that is not traced.
TRUTHS = (bool, np.bool_)
#: The torch and optax optimizers divide gradients that are larger than this or smaller than its
#: inverse by a power of two, which keeps sums of squares in the range of float32 and changes no
#: step. Chosen: entries 1e20 times smaller than the largest count, and later gradients may be 1e7
#: times larger.
LARGEST_SIZE = 2.0**20


def library_of(array: Any) -> Any:
    """Return the module for an array: NumPy, torch or jax.numpy."""
    name = type(array).__module__.partition(".")[0]
    if name == "torch":
        return sys.modules["torch"]
    return sys.modules["jax.numpy"] if name in ("jax", "jaxlib") else np


def inner(a: Array, b: Array) -> Any:
    """Return the inner product of two arrays or trees; for NumPy a (faster) Python float."""
    if type(a) is np.ndarray and a.ndim == 1:
        return float(a.dot(b))
    if isinstance(a, TREES):
        return sum(inner(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))
    library = library_of(a)
    if library is np:
        return float(np.vdot(a, b))
    product = a * b
    is_torch = library.__name__ == "torch"
    return product.sum(dtype=library.float64) if is_torch else product.sum()


def where(condition: Any, yes: Any, no: Any) -> Any:
    """Return one of two numbers or arrays; an array of conditions selects entry by entry."""
    if isinstance(condition, TRUTHS):
        return yes if condition else no
    if isinstance(condition, Tree) or isinstance(yes, Tree) or isinstance(no, Tree):
        return together(where, condition, yes, no)
    library = library_of(condition)
    if library.__name__ == "torch" and condition.ndim == 0:  # torch would make floats float32
        kinds = {float: library.float64}
        yes, no = (library.as_tensor(x, dtype=kinds.get(type(x))) for x in (yes, no))
    return library.where(condition, yes, no)


def either(condition: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """Return the result of one of two functions; a traced condition calls both."""
    if isinstance(condition, TRUTHS):
        return yes() if condition else no()
    return where(condition, yes(), no())


def larger(a: Any, b: Any) -> Any:
    """Return the larger number; the first if they cannot be compared."""
    return where(b > a, b, a)


def adaptive_step(scale: Any, total: Any) -> Any:
    """Return scale / sqrt(total), and zero where the total (hence every gradient) is zero."""
    zero = total == 0
    # With a bare root as denominator XLA would compute a slower reciprocal root.
    # The order matters: torch makes a number times a truth value float32.
    return scale / ((total + zero) ** 0.5 + zero) * (total > 0)


# -- trees ---------------------------------------------------------------------------------------


class Tree:
    """A tree of arrays (nested dicts, lists and tuples) as one vector, which JAX can trace.

    Operators act on all arrays; the other operand is a number or a tree of the same shape.
    `content` is the original tree; indexing refers to it: ``tree["bias"]``.
    """

    __slots__ = ("content",)
    __array_ufunc__ = None  # so that NumPy's numbers use the operators of this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, content: Any) -> None:
        self.content = content

    def __getitem__(self, key: Any) -> Any:
        return self.content[key]

    def __repr__(self) -> str:
        return f"Tree({self.content!r})"


TREES = (Tree, dict, list, tuple)
OPERATORS = ("neg", "abs", "add", "sub", "mul", "truediv", "pow", "gt", "ge", "lt", "le", "eq")
REFLECTED = ("add", "sub", "mul", "truediv")  # comparisons are reflected by each other


def as_array(given: Any) -> Array:
    """Return a tree of arrays as a `Tree`, an array unchanged."""
    if type(given) is np.ndarray or not isinstance(given, dict | list | tuple):
        return given
    if "jax" in sys.modules:
        _register(sys.modules["jax"])
    return Tree(given)


@cache
def _register(jax: Any) -> None:
    """Register `Tree` with JAX."""
    jax.tree_util.register_pytree_node(
        Tree, lambda tree: ((tree.content,), None), lambda _, parts: Tree(*parts)
    )


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the arrays of a tree."""
    if isinstance(tree, Tree):
        tree = tree.content
    if isinstance(tree, dict):
        tree = [tree[key] for key in sorted(tree)]  # the order that JAX gives them
    if isinstance(tree, list | tuple):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


def together(function: Callable[..., Any], *parts: Any) -> Tree:
    """Return the tree of the function's results for the arrays of all parts that are trees."""
    shape = next(part.content for part in parts if isinstance(part, Tree))
    columns = [iter(leaves(part)) if isinstance(part, Tree) else None for part in parts]

    def filled(shape: Any) -> Any:
        if isinstance(shape, dict):
            found = {key: filled(shape[key]) for key in sorted(shape)}
            return {key: found[key] for key in shape}
        if isinstance(shape, list | tuple):
            results = [filled(part) for part in shape]
            return type(shape)(*results) if hasattr(shape, "_fields") else type(shape)(results)
        pairs = zip(parts, columns, strict=True)
        return function(*(part if column is None else next(column) for part, column in pairs))

    return Tree(filled(shape))


def _operator(name: str) -> Callable[..., Any]:
    function = getattr(operator, name)
    return lambda *operands: together(function, *operands)


def _reflected(name: str) -> Callable[..., Any]:
    function = getattr(operator, name)
    return lambda self, other: together(function, other, self)


for _name in OPERATORS:
    setattr(Tree, f"__{_name}__", _operator(_name))
for _name in REFLECTED:
    setattr(Tree, f"__r{_name}__", _reflected(_name))
