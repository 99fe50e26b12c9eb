"""The playground: its port of the rules does Python's steps, and the page works by itself."""

import math
import re

import numpy as np
import pytest

from accelegrad.bundle.bundle import Bundle
from accelegrad.geometry.sets import Ball
from accelegrad.rules import AcceleGrad, AdaGrad, DistanceFreeAcceleGrad
from accelegrad_lab.functions.formulas import absolute, squares
from accelegrad_lab.playground import write_playground
from browser import wait_for
from stepping import oracle_of

STEPS = 60
#: Both compute in float64, in another order. The probe for a radius divides by a difference of slopes
#: at points 1e-6 apart, which has ten digits. The bundle compares values: when they are within
#: `RESOLVED` of the minimum, their last digits decide what it does.
TOLERANCE = {"accelegrad": 1e-11, "adagrad": 1e-11, "automatic": 1e-7, "bundle": 1e-6}
RESOLVED = 1e-7


def smooth(p):
    slopes = np.array([[1.0, 3.0], [1.0, -3.0], [-1.0, 0.0]])
    heights = slopes @ p - 0.1
    parts = np.exp(heights - heights.max())
    return heights.max() + math.log(parts.sum()), slopes.T @ parts / parts.sum()


ROTATION = np.array([[math.cos(0.5), math.sin(0.5)], [-math.sin(0.5), math.cos(0.5)]])
NARROW = np.diag([1.0, 10.0]) @ ROTATION
DIFFERENCE, CENTRE = np.array([[1.0, -1.0]]), np.array([1.0, 0.0])
#: with their minima, by hand: at (-ln(2)/2, 0), (1, 1/2), (1, -1/2) and (1/2, 1/2)
FUNCTIONS = {
    "smooth": (smooth, 1.5 * math.log(2) - 0.1),
    "kinked": (absolute(np.array([1, 3])).of(np.array([[1, 0], [-0.5, 1]]), -CENTRE).fun, 0.0),
    "narrow": (squares(1).of(NARROW, -NARROW @ [1, -0.5]).fun, 0.0),
    "mixed": ((squares(1).of(np.eye(2), -CENTRE) + absolute(2).of(DIFFERENCE)).fun, 0.25),
}


def rule_of(method, x0, given):
    project = Ball(x0, given["diameter"] / 2).project
    if method == "accelegrad":
        return AcceleGrad(given["diameter"], given.get("gradientBound", 0.0), project)
    if method == "adagrad":
        return AdaGrad(given["diameter"], project)
    return Bundle() if method == "bundle" else DistanceFreeAcceleGrad(probe=not given.get("noise"))


def points(method, state, rule):
    """Return what a frame of the page shows as y, z and average."""
    if method == "bundle":
        return {"y": state.center}
    if method == "adagrad":
        return {"y": state.query_point, "average": rule.output(state)}
    y, z = state.gradient_point, state.mirror_point
    return {"y": y, "z": z, "average": rule.output(state)}


@pytest.fixture(scope="module")
def page(open_page, tmp_path_factory):
    path = tmp_path_factory.mktemp("playground") / "playground.html"
    write_playground(path)
    return open_page(path)


def frames_of(page, **given):
    return page.execute_script("return Rules.run(arguments[0])", {"steps": STEPS, **given})


@pytest.mark.parametrize("method", TOLERANCE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_steps_are_pythons_and_bands_hold_the_minimum(page, method, name):
    x0 = (0.3, 2.1)
    fun, minimum = FUNCTIONS[name]
    given = {"diameter": 7.0, "gradientBound": 0.5}
    frames = frames_of(page, fun=name, method=method, x0=x0, **given, steps=150)
    claimed = page.execute_script("return Rules.FUNCTIONS[arguments[0]].minimum", name)
    assert claimed == pytest.approx(minimum, abs=1e-15)
    for frame in frames:
        value = fun(np.array(frame["returned"]))[0]
        assert frame["value"] == pytest.approx(value, rel=1e-12)
        assert frame["value"] >= minimum - 1e-12
        if frame["radius"] >= 3.0:  # all minimisers are nearer than that to the start
            assert frame["lower"] <= minimum + 1e-12
    assert frames[-1]["value"] - frames[-1]["lower"] < 0.5
    x0 = np.array(x0)
    rule = rule_of(method, x0, given)
    state = rule.init(x0)
    for t, frame in enumerate(frames[:STEPS]):
        if method == "bundle" and frame["value"] - minimum < RESOLVED:
            break
        step = rule.step(state, oracle_of(fun))
        state = step.state
        for what, expected in {"x": step.evaluation.point, **points(method, state, rule)}.items():
            error = np.abs(np.array(frame[what]) - expected).max()
            assert error <= TOLERANCE[method], f"{what} differs by {error:.1e} at step {t}"
    assert t >= (5 if method == "bundle" else STEPS // 2)


@pytest.mark.parametrize("method", ["accelegrad", "adagrad", "automatic"])
def test_steps_under_noise_are_pythons(page, method):
    given = {"diameter": 6.0, "noise": 2.0, "seed": 7}
    frames = frames_of(page, fun="noisy", method=method, x0=(-1.5, 1.0), **given)
    draws = page.execute_script(
        "const d = Rules.gaussians(7); return [...Array(999)].map(() => d())"
    )
    assert np.mean(draws) == pytest.approx(0, abs=0.08)
    assert np.std(draws) == pytest.approx(1, abs=0.08)
    x0 = np.array([-1.5, 1.0])
    rule = rule_of(method, x0, given)
    state = rule.init(x0)
    assert len(frames) == STEPS
    for frame, noise in zip(frames, draws, strict=False):
        x = rule.query(state)
        gradient = (x - [1, -0.5]) * [1, 4]
        state = rule.update(state, gradient + 2 * np.array(noise))
        for what, expected in points(method, state, rule).items():
            np.testing.assert_allclose(frame[what], expected, rtol=0, atol=1e-11)
        assert frame["lower"] is None


def shown(page, name):
    return page.find_element("id", name).text


def test_the_page_runs_by_itself(page):
    refused = page.execute_script(
        "try { Rules.run({fun: 'noisy', method: 'bundle', x0: [1, 1], noise: 1}) }"
        "catch (error) { return error.message }"
    )
    assert refused == "Bundle (the default) needs exact values: set the noise to 0."
    address = page.current_url
    page.get(f"{address}?fun=kinked&method=bundle")
    assert page.execute_script("return [$('fun').value, $('method').value]") == ["kinked", "bundle"]
    page.get(address)
    assert not re.search(r"""(?:src|href)=["']?(?!#|data:)\w""", page.page_source)  # all is there
    page.execute_script("$('fun').value = 'kinked'; chosenFunction()")
    wait_for(page, "frames.length === 200 && shown > 2")
    page.execute_script("pause(); show(199)")
    assert shown(page, "calls") == "200"
    page.execute_script("$('method').value = 'bundle'; rerun()")
    assert wait_for(page, "frames.at(-1).value - frames.at(-1).lower < 1e-7")
    page.find_element("id", "map").click()  # the middle
    assert page.execute_script("return Math.hypot(...start)") < 0.02
    page.execute_script("$('fun').value = 'noisy'; chosenFunction()")
    assert shown(page, "certified") == "none"
    assert "nothing is proved" in shown(page, "note")
    page.execute_script("$('fun').value = 'narrow'; chosenFunction()")
    page.execute_script("$('method').value = 'accelegrad'; $('diameter').value = 0; rerun()")
    assert "A larger D is needed" in shown(page, "note")
    assert not page.get_log("browser")
