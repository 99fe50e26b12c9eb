"""The arguments of `minimize`: their groups, and the parameters of single methods."""

import inspect
import re

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.catalogue import METHODS, MethodOptions
from toys import AbsoluteDeviations, LeastSquares

PROBLEM = LeastSquares.random(30, 4, 2)
START = np.zeros(4)
#: Every parameter of a single method: two values that differ in effect, and what goes with them.
USES = {
    "bundle_size": (4, 9, dict(method="bundle", fun=AbsoluteDeviations.random(30, 4, 2))),
    "project_y": (False, None, dict(method="accelegrad", feasible_set=ag.Box(-0.01, 0.01))),
    "gradient_bound": (3.0, None, dict(diameter=4.0)),
    "gradient_scale": (5.0, None, dict(method="unixgrad", diameter=4.0)),
    "initial_radius": (0.01, None, dict(method="dog")),
    "epsilon": (0.1, 9.0, dict(method="universal")),
    "initial_smoothness": (50.0, None, dict(method="universal", epsilon=0.1)),
    "max_trials": (1, None, dict(method="universal", epsilon=0.1, initial_smoothness=1e-3)),
    "smoothness": (9.0, 4.0, dict(method="linear-coupling")),
    "step_size": (0.02, 0.1, dict(method="subgradient")),
    "decay": ("constant", None, dict(method="subgradient", step_size=0.02)),
}
GROUPS = ("Problem", "Method", "Stopping", "Output", "Observation")


def run(fun=PROBLEM, **given):
    return ag.minimize(fun, START, max_iter=12, **given)


@pytest.mark.parametrize("name", MethodOptions.__annotations__)
def test_in_options_and_as_a_keyword_is_the_same(name):
    value, other, beside = USES[name]
    keyword, inside = run(**{name: value}, **beside), run(options={name: value}, **beside)
    np.testing.assert_array_equal(inside.x, keyword.x)
    np.testing.assert_array_equal(inside.x_average, keyword.x_average)
    assert inside.lower_bound == keyword.lower_bound
    without = run(options={name: other}, **beside)
    assert not np.array_equal(inside.x_average, without.x_average)


def test_the_parameters_of_methods_are_those_of_the_catalogue():
    taken = {name for entry in METHODS.values() for name in (*entry.needs, *entry.takes)}
    assert taken - {"diameter"} == MethodOptions.__annotations__.keys() - {"project_y"}


def test_the_docstring_has_all_arguments_in_their_groups_and_in_order():
    text = inspect.getdoc(ag.minimize)
    headings = re.findall(r"^(\w+)\n-+$", text, flags=re.MULTILINE)
    assert headings == [*GROUPS, "Returns", "Examples"]
    parameters = text.partition("Problem\n---")[2].partition("Returns\n---")[0]
    lines = re.findall(r"^(\w[\w, ]*?)(?: : .*)?$", parameters, flags=re.MULTILINE)
    named = [name for line in lines if line not in GROUPS for name in line.split(", ")]
    assert named == [name for name in inspect.signature(ag.minimize).parameters if name != "more"]
    inside = parameters.partition("options : mapping")[2].partition("Stopping")[0]
    assert set(MethodOptions.__annotations__) <= set(re.findall(r"``(\w+)``", inside))
