"""The report: the page's structure, its stills, and the page at work in a browser."""

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from accelegrad_lab.engine.experiment import Claim, Curve, Figure, Panel, Report, Verdict
from accelegrad_lab.report.prepared import OTHERS, POINTS, colours
from accelegrad_lab.report.report import COUNTED, evidence_tables, write_report
from browser import text_of, wait_for, without_scripts

NASTY = "f < g & </script><script>alert(1)</script> $x$ %{y} 'quoted' \"twice\""
AXES = ("iterations", "oracle calls")


def curve(method, variant, rate, rng, **options):
    t = np.unique(np.round(np.geomspace(1, 2000, 90)))
    y = t**-rate * np.exp(0.05 * rng.normal(size=t.size))
    return Curve(method, variant, {AXES[0]: t, AXES[1]: 3 * t}, y, **options)


def panel(title, rng):
    accelerated = curve("AcceleGrad", "average", 1.8, rng)
    broken = curve("Universal fast", NASTY, 1.5, rng, note=NASTY)
    holes = broken.y.copy()
    holes[[0, 20, 21, 40, 42, -1]] = [0.0, np.nan, np.inf, -1.0, 0.0, np.nan]
    curves = [
        replace(accelerated, low=0.7 * accelerated.y, high=1.4 * accelerated.y),
        curve("AcceleGrad", "last", 2.0, rng, dash="dash"),
        curve("AdaGrad", "", 0.9, rng),
        replace(broken, y=holes, low=0.5 * holes, high=2 * holes),
        curve("Method of <others>", "", 0.4, rng, dash="dot", shade=0.5),
    ]
    return Panel(title, curves, AXES, "f(x) - f* & more")


@pytest.fixture(scope="module")
def report():
    rng = np.random.default_rng(7)
    grid = [[panel(f"smooth {i}{j} <b>", rng) for j in range(3)] for i in range(2)]
    nothing = Curve("Nothing", "all NaN", {"epochs": np.arange(4.0)}, np.full(4, np.nan))
    family = [
        Curve("SGD", f"rho = {r}", {"epochs": np.arange(900.0)}, 1 / np.arange(1.0, 901), shade=s)
        for r, s in ((1, 0.0), (2, 0.5), (5, 1.0))
    ]
    one = Curve("LIBLINEAR", "", {"epochs": np.array([3.0])}, np.array([0.2]))
    row = [
        Panel("linear", [*family, one, nothing], ("epochs",), "gap", log_x=False),
        Panel("empty", [nothing], ("epochs",), "gap"),
    ]
    return Report(
        title=f"A report: {NASTY}",
        summary=f"First paragraph.\n\nSecond: {NASTY}",
        claims=[
            Claim("rate", f"fast {NASTY}", "Theorem 1", Verdict.HOLDS, "average", "slope < -1.8",
                  [("slope", "-2.01")], figure="grid"),
            Claim("robust", "robust to rho", "Section 5", Verdict.IN_PART, "last", "a factor 10",
                  [(f"rho = {i}", f"{i}.5e-3") for i in range(8)], "Not for <large> rho.", "family"),
            Claim("stall", "others stall", "Section 5", Verdict.FAILS, "-", "gap >= eps", [],
                  "They do not."),
        ],
        figures=[
            Figure("grid", "Figure 1: a grid", f"Caption {NASTY}", grid, {"seed": "7 <&>"}),
            Figure("family", "Figure 2: a family", "Shades.", [row]),
        ],
        facts={"Data": {"a9a <1>": "32,561 & more"}, "Time used": {"all": "3 s"}},
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    return write_report(report, tmp_path_factory.mktemp("report") / "made" / "by it")


def test_the_page_has_its_parts_in_order_and_nothing_from_elsewhere(page):
    ids = re.findall(r'<[^>]* id="([^"]+)"', page.read_text("utf-8"))
    assert len(set(ids)) == len(ids)
    wanted = "navigation summary figures figure-grid figure-family claims claim-rate claim-robust "
    wanted += "claim-stall facts-data facts-time-used data"
    assert [name for name in ids if name in wanted.split()] == wanted.split()
    html = without_scripts(page)
    targets = re.findall(r'<[^>]* (?:src|href|srcset|data|action)="([^"]*)"', html)
    assert targets
    for target in targets:
        if target.startswith("#"):
            assert f'id="{target[1:]}"' in html
        elif target != "data:,":
            assert (page.parent / target).is_file()
    (policy,) = re.findall(r'"Content-Security-Policy" content="([^"]*)"', html)
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_every_word_of_the_report_is_on_the_page_escaped(report, page):
    found, html = text_of(page), page.read_text("utf-8")
    words = [report.title, *report.summary.split("\n\n"), *COUNTED.values()]
    for claim in report.claims:
        words += [claim.statement, claim.source, claim.verdict.value, claim.threshold]
        words += [claim.explanation, *itertools.chain.from_iterable(claim.evidence)]
        words += [claim.point] if claim.point != "-" else []
    for figure in report.figures:
        words += [figure.title, figure.caption, *itertools.chain(*figure.facts.items())]
    for name, table in report.facts.items():
        words += [name, *itertools.chain(*table.items())]
    assert [part for part in words if part not in found] == []
    assert "alert(1)</script>" not in html
    assert "<others>" not in html
    assert html.count("<script") == html.count("</script>") == 3
    assert html.count('class="count"') == 3


def test_numbers_by_what_they_belong_to_have_columns():
    evidence = [("a_t", "1: 0.5 · 2: 0.3"), ("b", "1: 5 · 2: 6"), ("c", "plain"), ("d", "x: 1")]
    keyed, plain, _ = evidence_tables(evidence).split("</div>")
    assert keyed.count('<th scope="col">') == 2
    assert "<i>a</i><sub>t</sub></th><td>0.5</td><td>0.3</td>" in keyed
    assert "b</th><td>5</td><td>6</td></tr>" in keyed
    assert "col" not in plain
    assert "d</th><td>x: 1</td>" in plain


def test_the_data_is_json_that_fits_the_report(report, page):
    (data,) = re.findall(
        r'<script type="application/json".*?>(.*?)</script>', page.read_text("utf-8")
    )
    figures = json.loads(data)
    assert [figure["id"] for figure in figures] == ["figure-grid", "figure-family"]
    grid, family = figures
    broken = grid["rows"][0][0]["lines"][3]
    assert broken["note"] == NASTY
    y = grid["arrays"][broken["y"]]
    assert [i for i, value in enumerate(y) if value is None] == [0, 20, 21, 40, 42, len(y) - 1]
    assert broken["marked"] == [41]
    given = report.figures[0].rows[0][0].curves[3].y
    np.testing.assert_allclose(y[1:20], given[1:20], rtol=1e-5)
    # The x of all curves is stored once.
    lines = [line for row in grid["rows"] for panel in row for line in panel["lines"]]
    assert len({line["x"]["iterations"] for line in lines}) == 1
    assert family["rows"][0][0]["log_x"] is False
    assert family["arrays"][family["rows"][0][1]["lines"][0]["y"]] == [None] * 4
    assert all(len(array) <= POINTS for array in family["arrays"])


def test_the_same_report_gives_the_same_bytes(report, page, tmp_path):
    again = write_report(report, tmp_path)
    files = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.*"))
    assert len(files) == 6
    assert again == tmp_path / "index.html"
    for file in files:
        assert (tmp_path / file).read_bytes() == (page.parent / file).read_bytes(), file


def test_an_interrupted_write_leaves_the_previous_page(report, tmp_path, monkeypatch):
    small = replace(report, figures=report.figures[1:], claims=[])
    index = write_report(small, tmp_path)
    before = index.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    for place in ("os.fsync", "accelegrad_lab.report.stills.draw_still"):
        with monkeypatch.context() as patched:
            patched.setattr(place, interrupted)
            with pytest.raises(KeyboardInterrupt):
                write_report(replace(small, title="another"), tmp_path)
    assert index.read_bytes() == before
    written = {path.name for path in tmp_path.rglob("*.*")}
    assert written == {"family.png", "family.svg", "index.html", "playground.html"}


def test_a_method_has_one_colour_however_it_is_written():
    names = ["AcceleGrad", "accelegrad", "L-BFGS", "LBFGS", "Universal dual", "universal-dual"]
    found = colours(names)
    for a, b in zip(names[::2], names[1::2], strict=True):
        assert found[a] == found[b]
    strangers = [f"stranger {i}" for i in range(len(OTHERS))]
    assert len(set(colours(strangers).values())) == len(OTHERS)
    assert colours([*strangers, "one more"])["one more"] in OTHERS
    assert colours(["stranger 3"])["stranger 3"] == colours(["AdaGrad", "stranger 3"])["stranger 3"]


def test_stills_show_the_curves(report, page):
    colour = colours(["AcceleGrad"])["AcceleGrad"].light
    wanted = np.array(to_rgb(colour))
    for figure in report.figures:
        picture = imread(page.parent / "figures" / f"{figure.name}.png")[..., :3]
        assert picture.shape[1] > 1000
        assert np.abs(picture - 1).max(axis=2).mean() > 0.005
        drawn = (np.abs(picture - wanted).max(axis=2) < 0.02).sum()
        assert (drawn > 2000) == (figure.name == "grid")
        svg = (page.parent / "figures" / f"{figure.name}.svg").read_text("utf-8")
        assert svg.startswith("<?xml")
        assert (svg.lower().count(f"stroke: {colour.lower()}") >= 12) == (figure.name == "grid")
        assert svg.count('<g id="axes_') == sum(map(len, figure.rows))


READY = "document.documentElement.dataset.ready === 'true'"
TRACES = """
const plot = document.querySelector(arguments[0] + ' .plot');
return plot.data.filter((trace) => trace.meta.kind === (arguments[1] ?? 'curve'))
  .map((trace) => [trace.meta.entry, trace.visible]);
"""
DRAWN = """
return [...document.querySelectorAll('.plot')].map((plot) => {
  const wanted = plot.data.filter((trace) => trace.meta.kind === 'curve' && trace.visible === true
    && trace.x.some((x, i) => x !== null && trace.y[i] !== null)).length;
  const drawn = [...plot.querySelectorAll('.scatterlayer .trace')].filter((group) => {
    const path = group.querySelector('path.js-line');
    return group.__data__[0].trace.meta.kind === 'curve'
      && (group.querySelector('path.point') || (path && path.getAttribute('d').length > 8));
  }).length;
  return [plot.querySelectorAll('.main-svg').length > 0, wanted, drawn];
});
"""


@pytest.fixture
def driver(open_page, page):
    driver = open_page(page)
    wait_for(driver, READY)
    yield driver
    driver.execute_script("localStorage.clear()")
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


def click(driver, selector):
    element = driver.find_element("css selector", selector)
    place = "{block: 'center', behavior: 'instant'}"
    driver.execute_script(f"arguments[0].scrollIntoView({place})", element)
    element.click()


def test_every_figure_is_drawn(driver, report):
    assert driver.execute_script(DRAWN) == [[True, 30, 30], [True, 4, 4]]
    titles = [element.text for element in driver.find_elements("css selector", ".panel-head h3")]
    rows = [row for figure in report.figures for row in figure.rows]
    assert titles == [panel.title for row in rows for panel in row]
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0
    texts = driver.find_elements("css selector", "#figure-family .annotation-text")
    assert [text.text for text in texts] == ["nothing to draw"]


def test_the_legend_hides_a_curve_in_all_panels(driver):
    button = '#figure-grid .legend [data-entry="0"]'
    click(driver, button)
    state = dict(driver.execute_script(TRACES, "#figure-grid"))
    assert state == {0: "legendonly", 1: True, 2: True, 3: True, 4: True}
    bands = driver.execute_script(TRACES, "#figure-grid", "band")
    assert bands == [[0, "legendonly"], [3, True]] * 6
    assert driver.execute_script(DRAWN)[0] == [True, 24, 24]
    assert driver.find_element("css selector", button).get_attribute("aria-pressed") == "false"
    click(driver, button)
    assert driver.execute_script(DRAWN)[0] == [True, 30, 30]


PLOT = "document.querySelector('#figure-{} .plot')"
GRID, FAMILY = f"{PLOT.format('grid')}._fullLayout", f"{PLOT.format('family')}._fullLayout"
TITLE = "document.querySelector('#figure-grid [class*=xtitle]').textContent"
SWITCHES = [
    ('#figure-grid [data-axis="oracle calls"]', f"{TITLE} === 'oracle calls'"),
    ('#figure-grid [data-scale="linear"]', f"{GRID}.xaxis.type === 'linear'"),
    ('#figure-grid [data-scale="log"]', f"{GRID}.xaxis.type + {GRID}.yaxis6.type === 'loglog'"),
    ('#figure-family [data-scale="log"]', f"{FAMILY}.xaxis.type === 'log'"),
    ('#figure-family [data-drag="pan"]', f"{FAMILY}.dragmode === 'pan'"),
]


def test_the_switches_change_the_axes(driver):
    ranges = [driver.execute_script(f"return {GRID}.xaxis2.range")]
    for switch, expected in SWITCHES:
        assert not driver.execute_script(f"return {expected}")
        click(driver, switch)
        assert driver.execute_script(f"return {expected}"), switch
        ranges.append(driver.execute_script(f"return {GRID}.xaxis2.range"))
    np.testing.assert_allclose(ranges[1], np.add(ranges[0], np.log10(3)))
    assert driver.find_elements("css selector", "#figure-family [data-axis]") == []


def test_hovering_shows_all_values_as_plain_text(driver):
    driver.execute_script(
        f"const plot = {PLOT.format('grid')};"
        "const at = plot.data.findIndex((t) => t.meta.kind === 'curve' && t.meta.entry === 3);"
        "Plotly.Fx.hover(plot, [{curveNumber: at, pointNumber: 30}]);"
    )
    label = wait_for(driver, "document.querySelector('#figure-grid .hovertext')?.textContent")
    assert label.count("</script><script>alert(1)</script> $x$ %\u200b{y}") == 2
    for word in ("iterations: ", "oracle calls: ", "f(x) - f* & more: ", "band: "):
        assert word in label


def test_the_theme_changes_the_plots(driver):
    def look():
        parts = f"{PLOT.format('family')}.querySelector('.main-svg')", "document.body"
        colours = [f"getComputedStyle({part}).backgroundColor" for part in parts]
        line = f"{PLOT.format('family')}.data[0].line.color"
        wait_for(driver, READY)
        return list(driver.execute_script(f"return [{', '.join([*colours, line])}]"))

    light = look()
    click(driver, "#theme")
    dark = look()
    assert (light[0], dark[0]) == ("rgb(255, 255, 255)", "rgb(22, 27, 34)")
    assert not set(light) & set(dark)
    driver.refresh()
    assert look() == dark
    click(driver, "#theme")
    assert look() == light
