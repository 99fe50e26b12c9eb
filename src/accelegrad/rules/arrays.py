"""Functions that formulas need beyond + - * /, for NumPy, torch and JAX arrays and trees of them.

Rules use operators, `inner`, `where` and `either`, and no Python `if` on array values, so that JAX
can trace them. Sums over a run (squared norms, weights) are float64 for NumPy and torch, where they
do not change the type of an array they multiply. In JAX they would; there sums have the arrays'
type, and below float64 they are a `CompensatedSum`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = Any  # of any shape, of NumPy, torch or JAX; or a `Tree` of such arrays

#: The type of a comparison that is not traced.
TRUTHS = (bool, np.bool_)


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
        return (a if isinstance(a, Tree) else Tree(a)).inner(b)
    library = library_of(a)
    if library is np:
        return float(a.dot(b) if getattr(a, "ndim", 1) == 1 else (a * b).sum())
    product = a * b
    return product.sum() if _is_jax(library) else product.sum(dtype=library.float64)


def where(condition: Any, yes: Any, no: Any) -> Any:
    """Return one of two numbers or arrays; an array of conditions selects entry by entry."""
    if isinstance(condition, TRUTHS):
        return yes if condition else no
    if isinstance(condition, Tree) or isinstance(yes, Tree) or isinstance(no, Tree):
        return together(where, condition, yes, no)
    library = library_of(condition)
    yes, no = _number(yes), _number(no)
    if library.__name__ == "torch" and condition.ndim == 0:  # torch would make floats float32
        yes, no = (library.as_tensor(x, dtype=_type64(library, x)) for x in (yes, no))
    return library.where(condition, yes, no)


def _type64(library: Any, number: Any) -> Any:
    return library.float64 if isinstance(number, float) else None


def either(condition: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """Return the result of one of two functions; a traced condition calls both."""
    if isinstance(condition, TRUTHS):
        return yes() if condition else no()
    return where(condition, yes(), no())


def larger(a: Any, b: Any) -> Any:
    """Return the larger number; the first if they cannot be compared."""
    return where(b > a, b, a)


def absolute(x: Any) -> Any:
    """Return absolute values, with operators only."""
    return x * (x >= 0) - x * (x < 0)


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

    def inner(self, other: Any) -> Any:
        """Return the inner product with another tree."""
        return sum(inner(x, y) for x, y in zip(leaves(self), leaves(other), strict=True))

    def __neg__(self) -> Tree:
        return together(operator.neg, self)


TREES = (Tree, dict, list, tuple)
OPERATORS = ("add", "sub", "mul", "truediv", "pow", "gt", "ge", "lt", "le", "eq")
REFLECTED = ("add", "sub", "mul", "truediv")  # comparisons are reflected by each other


def as_array(given: Any) -> Array:
    """Return a tree of arrays as a `Tree`, an array unchanged."""
    if type(given) is np.ndarray or not isinstance(given, dict | list | tuple):
        return given
    _tell_jax()
    return Tree(given)


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

    def next_result() -> Any:
        pairs = zip(parts, columns, strict=True)
        return function(*(part if column is None else next(column) for part, column in pairs))

    return Tree(_filled(shape, next_result))


def _filled(shape: Any, next_leaf: Callable[[], Any]) -> Any:
    if isinstance(shape, dict):
        found = {key: _filled(shape[key], next_leaf) for key in sorted(shape)}
        return {key: found[key] for key in shape}
    if isinstance(shape, list | tuple):
        parts = [_filled(part, next_leaf) for part in shape]
        return type(shape)(*parts) if hasattr(shape, "_fields") else type(shape)(parts)
    return next_leaf()


def _tell_jax() -> None:
    """Register `Tree` with JAX, if JAX is loaded."""
    jax = sys.modules.get("jax")
    if jax is not None and not _JAX_KNOWS:
        jax.tree_util.register_pytree_node(
            Tree, lambda tree: ((tree.content,), None), lambda _, parts: Tree(*parts)
        )
        _JAX_KNOWS.append(Tree)


_JAX_KNOWS: list[type] = []


# -- sums ----------------------------------------------------------------------------------------


class CompensatedSum(NamedTuple):
    """A sum in two numbers: the rounded total and the rounding error so far.

    It acts as a number, except that adding to it gives another such sum.
    """

    total: Any
    rest: Any

    def __add__(self, term: Any) -> CompensatedSum:
        """Add a term by D. E. Knuth's exact sum of two floats."""
        plain = self.total + term
        share = plain - self.total
        rest = self.rest + ((self.total - (plain - share)) + (term - share))
        total = plain + rest
        return CompensatedSum(total, rest - (total - plain))


def zero_sum(x0: Array) -> Any:
    """Return the empty sum, for numbers computed from arrays like this one."""
    first = next(leaves(x0))
    library = library_of(first)
    if not _is_jax(library) or first.dtype == library.float64:
        return 0.0
    zero = library.zeros((), first.dtype)
    return CompensatedSum(zero, zero)


def _number(given: Any) -> Any:
    return given.total if isinstance(given, CompensatedSum) else given


def _is_jax(library: Any) -> bool:
    return bool(library.__name__ == "jax.numpy")


# -- the operators -------------------------------------------------------------------------------


def _on_tree(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: together(function, self, other)


def _power(base: Any, exponent: Any) -> Any:
    """Return a power; for JAX 0.5 becomes `sqrt`, which compiles to faster code."""
    library = library_of(base)
    if _is_jax(library) and isinstance(exponent, float) and exponent == 0.5:
        return library.sqrt(base)
    return base**exponent


def _on_number(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: function(self.total, _number(other))


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: function(other, self)


for _name in OPERATORS:
    _function = getattr(operator, _name)
    setattr(Tree, f"__{_name}__", _on_tree(_power if _name == "pow" else _function))
    if _name != "add":
        setattr(CompensatedSum, f"__{_name}__", _on_number(_function))
for _name in REFLECTED:
    _function = getattr(operator, _name)
    setattr(Tree, f"__r{_name}__", _on_tree(_reflected(_function)))
    _swapped = _reflected(_function) if _name != "add" else operator.add
    setattr(CompensatedSum, f"__r{_name}__", _on_number(_swapped))
