"""Which method "auto" takes, and that it says why; the tables that decide."""

import itertools
import re
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import accelegrad as ag
from accelegrad.catalogue import METHODS
from accelegrad.choose import TABLE, Request, Space, choose, resolve
from accelegrad.models.scaling import unevenness
from accelegrad.rules import Rescaled
from accelegrad.solvers.row_oracle import RowRule

DOCUMENTED = Path(__file__).parents[2] / "docs" / "methods.md"


def model(loss="logistic", rows=600, l2=1e-2, **options):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(rows, 5))
    y = np.where(X @ rng.normal(size=5) + rng.normal(size=rows) > 0, 1.0, -1.0)
    return ag.LinearModel(X, y, loss=loss, l2=l2, **options)


def chosen(problem, **options):
    result = ag.minimize(problem, max_iter=2, rng=0, **options)
    return result.method, result.reason


def test_without_an_l2_term_the_dual_has_to_be_within_reach():
    for loss, rtol in (("logistic", 1e-9), ("hinge", 1e-4), ("quantile", 1e-4)):
        result = ag.minimize(model(loss, l2=0.0), rtol=rtol, rng=0)
        assert result.method == "accelegrad-newton"
        assert result.success
        assert result.certified_radius == np.inf


def text(rows, columns, loss="logistic", l2=1e-5, **options):
    """Rows of about a hundredth of the columns, entries between 0 and 1."""
    X = sp.random(rows, columns, density=0.01, format="csr", rng=np.random.default_rng(3))
    return ag.LinearModel(X, np.resize([-1.0, 1.0], rows), loss=loss, l2=l2, **options)


def short(size, loss):
    """More rows than the interior-point method takes."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((500_000, 2))
    y = np.where(X[:, 0] + rng.standard_normal(500_000) > 0, 1.0, -1.0)
    return ag.LinearModel(size * X, y, loss, l2=1e-4)


@cache
def uneven():
    """Columns that have to be scaled, since curvature would cost too much."""
    problem = text(3000, 2000, fit_intercept=True)
    X = problem.X.multiply(np.geomspace(1, 1e4, 2000)).tocsr()
    return ag.LinearModel(X, problem.y, loss="logistic", l2=1e-6, fit_intercept=True)


def numbers(rows, loss):
    """About as many rows as columns: the dual took more than 3000 epochs."""
    rng = np.random.default_rng(rows)
    X = rng.standard_normal((rows, 225))
    return ag.LinearModel(X, X @ rng.standard_normal(225) / 15, loss, l2=1e-4)


def narrow():
    few = model()
    return ag.LinearModel(few.X * np.geomspace(1, 1e4, 5), few.y, loss="logistic", l2=1e-6)


# fmt: off
#: Problems, the method, and words of the reason
SHAPES = [
    (partial(text, 600, 3000), "dual-ascent", "for 600 rows with 18000 entries, this l2 term and the logistic loss it is likely to need least work"),
    (partial(text, 600, 3000, fit_intercept=True), "dual-ascent", ""),
    # Rows that are fewer than columns are nearly orthogonal; these are about as many.
    (partial(text, 2000, 2200), "accelegrad-newton", ""),
    (partial(text, 6000, 2500, "squared_hinge"), "accelegrad-newton", ""),
    # Rows have squared norms of 8: this l2 term takes three times as many epochs as a strong one.
    (partial(text, 6000, 2500, "squared_hinge", l2=1e-1), "dual-ascent", ""),
    (partial(text, 6000, 2500, "hinge", l2=1e-3), "dual-ascent", ""),
    # Short rows: what a step costs per row counts.
    (partial(short, 1, "hinge"), "proximal-newton", ""),
    (partial(short, 1, "logistic"), "proximal-newton", ""),
    # Columns of very different size are scaled where curvature does not do it.
    (uneven, "accelegrad", "columns differ in size by a factor of"),
    (narrow, "proximal-newton", ""),
    *((partial(numbers, *case), "accelegrad-newton", "") for case in itertools.product((225, 300), ("squared", "huber", "squared_epsilon_insensitive"))),
    # In plain code an epoch of some hundred rows takes as long as a dozen of Newton's steps.
    (partial(text, 200, 2000, l2=1e-3), "accelegrad-newton", ""),
    (partial(text, 200, 20_000, l2=1e-3), "dual-ascent", ""),
]
# fmt: on


@pytest.mark.parametrize(("problem", "method", "words"), SHAPES)
def test_the_shape_of_the_data_decides(problem, method, words):
    found, reason = chosen(problem())
    assert found == method
    assert words in reason


# fmt: off
OTHERS = [
    ({}, {}, "proximal-newton", "this l2 term and the logistic loss it is likely to need least work"),
    (dict(loss="quantile"), {}, "interior-point", "for 600 rows with 3000 entries"),
    (dict(rows=4, l2=0.0), {}, "accelegrad", "without an l2 term"),
    ({}, dict(batch_size=4), "accelegrad", "batch_size asks for"),
    ({}, dict(diameter=3.0), "accelegrad", "a diameter is given"),
    ({}, dict(initial_radius=0.1), "accelegrad", "other options"),
    ({}, dict(restart="adaptive"), "accelegrad", "other options"),
    ({}, dict(scale="columns"), "accelegrad", "scaled coordinates"),
    ({}, dict(feasible_set=ag.Ball(0.0, 1.0)), "accelegrad", "a constraint or a penalty"),
    ({}, dict(penalty=ag.GroupL2(0.1, [0, 0, 1, 1, 1])), "accelegrad", "a constraint or a penalty"),
    ({}, dict(feasible_set=ag.NonNegative()), "proximal-newton", "the logistic loss is smooth, and each weight has its own term or limits"),
    (dict(loss="hinge", l2=0.0, rows=300_000), dict(penalty=ag.L1(0.1)), "proximal-newton", "the hinge loss can be smoothed as far as the dual gap allows, and each weight has"),
    (dict(loss="hinge", l2=0.0), dict(penalty=ag.L1(0.1)), "interior-point", "the hinge loss has one kink, and its 600 rows are few"),
    (dict(loss="hinge"), dict(penalty=ag.L1(0.1), feasible_set=ag.NonNegative()), "proximal-newton", "the hinge loss can be smoothed"),
    (dict(l2=0.0), dict(feasible_set=ag.NonNegative()), "accelegrad", "a constraint or a penalty"),
    (dict(loss="squared", l2=0.0), dict(feasible_set=ag.NonNegative()), "proximal-newton", "the squared loss is smooth, and each weight has its own term or limits"),
    ({}, dict(penalty=ag.L1(0.1), scale="columns"), "accelegrad", "a constraint or a penalty"),
    ({}, dict(penalty=ag.L1(0.1), batch_size=4), "accelegrad", "a constraint or a penalty"),
    ({}, dict(feasible_set=ag.NonNegative(), diameter=3.0), "unixgrad", "a diameter is given"),
    ({}, dict(method="adagrad"), "adagrad", "it was asked for"),
    ({}, dict(method=ag.AdaGrad(diameter=2.0)), "AdaGrad", "it was asked for"),
]
# fmt: on


@pytest.mark.parametrize(("problem", "options", "method", "reason"), OTHERS)
def test_the_method_and_the_reason(problem, options, method, reason):
    found, why = chosen(model(**problem), **options)
    assert found == method
    assert reason in why


def test_columns_that_must_not_be_scaled_leave_it_to_curvature():
    assert chosen(uneven(), scale=None)[0] == "accelegrad-newton"


@pytest.mark.parametrize("minibatches", [False, True])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_minibatches_of_sparse_rows_are_not_scaled(kind, minibatches):
    """In scaled coordinates a step would touch all columns."""
    few = model(l2=0.0)
    X = few.X if kind == "dense" else sp.csr_array(few.X)
    request = Request(
        ag.LinearModel(X * 10.0 ** np.arange(5), few.y),
        Space(np.zeros(5)),
        parameters={"diameter": "auto", "initial_radius": 1.0},
        minibatches=minibatches,
    )
    assert isinstance(resolve(request).rule, Rescaled) is not (kind == "csr" and minibatches)


def test_a_second_solver_stands_by_unless_the_first_takes_a_few_steps():
    def names(problem, **given):
        found = choose(Request(problem), **given)
        return found.name, found.second and found.second.name

    assert names(model()) == ("proximal-newton", None)
    assert names(model("hinge")) == ("interior-point", "proximal-newton")
    assert names(model("hinge"), tried="interior-point")[0] == "proximal-newton"
    assert names(text(600, 3000)) == ("dual-ascent", "accelegrad-newton")
    assert names(model("hinge", l2=0.0)) == ("accelegrad-newton", None)
    assert choose(Request(text(600, 3000), method="dual-ascent")).second is None


@pytest.mark.parametrize("sizes", [(1.0, 1.0), (1.0, 10.0)])
def test_rare_columns_are_not_small_ones(sizes):
    X = sp.random(600, 200, density=0.01, format="csr", rng=np.random.default_rng(1))
    X.data[:] = np.where(X.indices == X.indices.max(), sizes[1], sizes[0])
    y = np.resize([-1.0, 1.0], 600)
    assert unevenness(ag.LinearModel(X, y, loss="hinge")) == pytest.approx(sizes[1])
    assert unevenness(ag.LinearModel(X.toarray(), y, loss="hinge")) > 1.5  # zeros count there
    # A column with a single entry says nothing of its size, and none at all says nothing.
    rare = sp.csr_array(([1e-3, 1e3], ([0, 1], [0, 1])), shape=(600, 5))
    both = ag.LinearModel(sp.hstack([rare, X], format="csr"), y, loss="hinge")
    assert unevenness(both) == pytest.approx(sizes[1])
    table = sp.csr_array(np.ones((50, 100)) * np.append(np.ones(99), 1e3))
    assert unevenness(ag.LinearModel(table, y[:50], loss="hinge")) == pytest.approx(1e3)


OF_FUNCTIONS = [({}, "bundle"), ({"bundle_size": 5}, "bundle")]
OF_FUNCTIONS += [(given, "accelegrad") for given in ({"exact": False}, {"initial_radius": 1.0})]


@pytest.mark.parametrize(("given", "method"), OF_FUNCTIONS)
def test_a_function_gets_a_bundle_unless_it_is_noisy_or_another_is_meant(given, method):
    result = ag.minimize(lambda x: (float(x @ x), 2 * x), np.ones(3), max_iter=3, **given)
    assert result.method == method
    assert result.reason


@pytest.mark.parametrize(
    "name", [name for name, entry in METHODS.items() if issubclass(entry.rule, RowRule)]
)
def test_named_by_rule_and_by_name_is_the_same(name):
    problem = model("hinge" if name == "interior-point" else "logistic")
    by_name, by_rule = (
        ag.minimize(problem, method=method, max_iter=5, rng=1)
        for method in (name, METHODS[name].rule())
    )
    np.testing.assert_array_equal(by_name.x, by_rule.x)
    assert by_rule.method == by_name.method == name


# -- the tables ----------------------------------------------------------------------------------


def test_the_table_is_total_and_no_row_hides_another():
    names = sorted({fact for row in TABLE for fact in row.condition})
    reached = set()
    for values in itertools.product([False, True], repeat=len(names)):
        facts = dict(zip(names, values, strict=True))
        row = next(row for row in TABLE if all(facts[fact] for fact in row.condition))
        reached.add(row)
    assert reached == set(TABLE)
    assert set(names) <= set(dir(Request()))


def shown(table):
    """The table as the documentation has it: facts in words, numbers of the problem in italics."""
    lines = ["| if | method | because |", "|---|---|---|"]
    for row in table:
        words = " and ".join(fact.replace("_", " ") for fact in row.condition) or "nothing else"
        reason = re.sub(r"\{facts\.(?:model\.)?([\w.]+)[^}]*\}", r"*\1*", row.reason)
        method = row.method if row.method == "given" else f'`"{row.method}"`'
        lines.append(f"| {words} | {method} | {reason} |")
    return "\n".join(lines)


def test_the_documentation_shows_the_table():
    expected = shown(TABLE)
    page = DOCUMENTED.read_text("utf-8")
    between = page.partition("<!-- TABLE -->\n")[2].partition("\n<!-- end of TABLE -->")[0]
    assert between.strip() == expected, f"docs/methods.md should have:\n{expected}"
    meaning = page.partition("<!-- end of TABLE -->")[2].partition("## ")[0].lower()
    for row in TABLE:
        assert all(f"*{fact.replace('_', ' ')}*" in meaning for fact in row.condition)
