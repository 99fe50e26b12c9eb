"""`accelegrad compare`: the report on files of the user's own, against independent computations."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import LogisticRegression

import accelegrad as ag
from accelegrad import LinearModel
from accelegrad.cli.main import main
from accelegrad_lab.compare.compare import CLOSE, METHODS, CompareRequest, compare
from accelegrad_lab.engine import tasks
from accelegrad_lab.engine.recording import NAMES
from accelegrad_lab.peers import COMPARED, PEERS
from accelegrad_lab.report import stills
from browser import text_of
from reference.losses import loss_values

#: Methods that take smooth losses, too
SMOOTH = tuple(method for method in METHODS if method != "interior-point")


def features(n=90, d=4):
    return np.random.default_rng(0).standard_normal((n, d))


def labels(X):
    noise = np.random.default_rng(1).logistic(size=len(X))
    return np.where(X @ np.arange(1.0, X.shape[1] + 1) + noise > 0, 2, 1)


def numbers(X):
    noise = np.random.default_rng(2).standard_t(3, size=len(X))
    return X @ np.arange(1.0, X.shape[1] + 1) + noise


def libsvm_file(path, X, y):
    dump_svmlight_file(X, y, str(path), zero_based=False)
    return path


def request(data, out, **options):
    usual = {"progress": False, "epochs": 20, "peer_seconds": 1.0}
    return CompareRequest(data, out, **usual | options)


def said(fact, out):
    """Return the number that the table of the problem gives for a fact."""
    html = (out / "index.html").read_text("utf-8")
    problem = html[html.index('id="facts-problem"') :]
    found = re.search(rf'<th scope="row">{re.escape(fact)}</th><td>([-+.e\d]+)', problem)
    assert found is not None
    return float(found[1])


def curves(out):
    with (out / "curves.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(autouse=True)
def _no_stills(monkeypatch):
    """Drawing PNG and SVG files takes a second each time, and is tested with the report."""
    monkeypatch.setattr(stills, "draw_still", lambda figure: {})


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """A comparison with everything: all methods, batches, seeds, and all peers."""
    folder = tmp_path_factory.mktemp("classes")
    X = features(n=120, d=6)
    X[:, 2] = 0  # an empty column
    data = libsvm_file(folder / "toy.svm", X, labels(X))
    options = {"methods": SMOOTH, "peers": ("sklearn",), "l2": 0.01}
    asked = request(data, folder / "out", **options, batch_size=10, seeds=2, epochs=40)
    assert compare(asked) == asked.out / "index.html"
    return asked


def test_the_report_has_every_method_and_peer_and_what_it_claims_is_true(classes):
    words = text_of(classes.out / "index.html")
    names = [NAMES[method] for method in SMOOTH]
    peers = [PEERS[key].shown for key in COMPARED["logistic"].values()]
    for name in names + peers:
        assert words.count(name) >= 3, name
    for fact in (
        "toy: logistic regression",
        "1 is taken as -1, 2 as +1",
        "empty columns 1, left out",
        "10 rows per gradient",
        "Newton's method",
        "automatic: nothing is given",
        "one run at a time",
        "LogisticRegression(solver='saga')",
        "scikit-learn",
    ):
        assert fact in words, fact
    figures = {path.name for path in (classes.out / "figures").iterdir()}
    assert figures == {"epochs.png", "epochs.svg", "seconds.png", "seconds.svg"}
    html = (classes.out / "index.html").read_text("utf-8")
    verdicts = re.findall(r'id="claim-([\w-]+)" class="claim" data-verdict="([\w-]+)"', html)
    assert verdicts == [("certified", "holds")]
    rows = [row for row in curves(classes.out) if row["method"] == "Default"]
    lowest = said("P*", classes.out)
    gaps = np.array([float(row["certified gap"]) for row in rows])
    # A proof allows for its own rounding, and more: it is not below what is known to be true.
    assert gaps.min() >= min(float(row["P last"]) for row in rows) - lowest
    assert gaps[-1] <= CLOSE * lowest


def test_the_curves_are_right(classes):
    X = features(n=120, d=6)
    y = 2.0 * labels(np.where(np.arange(6) == 2, 0.0, X)) - 3
    X = np.delete(X, 2, axis=1)

    def value(w):  # written down anew
        return float(loss_values("logistic", X @ w, y).mean() + 0.01 / 2 * w @ w)

    exact = LogisticRegression(C=1 / 1.2, fit_intercept=False, tol=1e-10, solver="newton-cholesky")
    minimum = value(exact.fit(X, y).coef_[0])
    rows = curves(classes.out)
    assert min(float(row["P last"]) for row in rows) == pytest.approx(minimum, rel=1e-12)
    assert said("P*", classes.out) == pytest.approx(minimum, rel=1e-12)
    runs = {}
    for row in rows:
        runs.setdefault((row["method"], row["seed"]), []).append(row)
    for name, run in runs.items():
        seconds = [float(row["seconds"]) for row in run]
        assert seconds[0] > 0
        assert (np.diff(seconds) >= 0).all(), name
    for seed in (0, 1):
        row = runs["AdaGrad", str(seed)][-1]
        steps = round(float(row["iterations"]))
        options = {"method": "adagrad", "batch_size": 10, "max_iter": steps}
        result = ag.minimize(LinearModel(X, y, l2=0.01), rng=seed, **options)
        assert float(row["P average"]) == pytest.approx(value(result.x_average), rel=1e-6)
        assert float(row["P last"]) == pytest.approx(value(result.x_last), rel=1e-6)
        assert 40 <= float(row["epochs"]) < 41  # the probe for the radius counts too
        assert 460 < steps <= 480
    universal = runs["Universal fast", "0"][-1]
    assert float(universal["P last"]) - minimum < 1e-3 * minimum
    assert 40 <= float(universal["epochs"]) < 50


def test_results_are_used_again(classes, monkeypatch):
    def refuse(parameters, store):
        raise AssertionError(f"computed again: {parameters}")

    for kind in ("compared-run", "model-minimum", "compare-peer"):
        monkeypatch.setitem(tasks.TASKS, kind, refuse)
    compare(classes)
    # Parameters of losses that are not asked for do not matter; the number of epochs does.
    compare(replace(classes, quantile=0.3, tube=5.0))
    with pytest.raises(RuntimeError, match="computed again"):
        compare(replace(classes, epochs=41))


def test_quantile_regression_without_l2_has_a_peer(tmp_path):
    X = features()
    path = libsvm_file(tmp_path / "data", X, numbers(X))
    asked = request(path, tmp_path / "out", loss="quantile", quantile=0.8, peers=("sklearn",))
    words = text_of(compare(replace(asked, l2=0.0)))
    assert re.search(r"lower bound [\d.]+ by the dual: P\* is certified to a relative", words)
    minimum = said("P*", asked.out)
    (end,) = (row for row in curves(asked.out) if row["method"] == "QuantileRegressor")
    assert float(end["P last"]) == pytest.approx(minimum, rel=1e-7)
    words = text_of(compare(asked))
    assert "left out: QuantileRegressor its penalty is an l1 norm" in words


def test_a_peer_that_diverges_is_reported_and_does_not_squeeze_the_figure(tmp_path):
    X = features() * [1, 10, 100, 1000]
    path = libsvm_file(tmp_path / "uneven", X, numbers(X))
    peers = ("sgd", "cholesky")
    words = text_of(compare(request(path, tmp_path / "out", loss="squared", peers=peers)))
    assert "are not drawn" in words
    assert "averaged scikit-learn (nothing to draw)" in words
    assert "Cholesky scikit-learn (nothing to draw)" not in words  # whose gap is zero


def test_the_command_on_a_table_with_text_a_decimal_comma_and_a_named_target(tmp_path, capsys):
    rows = np.random.default_rng(3).standard_normal((60, 2)).round(3)
    lines = ["t;x;colour"]
    for place, (x, noise) in enumerate(rows):
        lines.append(f"{2 * x + noise:.3f};{x};{'rgb'[place % 3]}".replace(".", ","))
    data, out = tmp_path / "houses.csv", tmp_path / "out"
    data.write_text("\n".join(lines))
    options = ["--sep", ";", "--decimal", ",", "--target", "t", "--loss", "absolute"]
    options += ["--methods", "AcceleGrad, auto", "--epochs", "3", "--diameter", "1"]
    assert main(["compare", str(data), *options, "--out", str(out)]) == 0
    said_by_it = capsys.readouterr()
    assert said_by_it.out == f"The report is {out / 'index.html'}\n"
    assert "houses.csv: runs" in said_by_it.err  # the progress bar
    words = text_of(out / "index.html")
    for fact in ("houses: least absolute deviations", "column 't'", "60 rows and 4 columns"):
        assert fact in words, fact
    assert "l2 0.0166667" in words  # 1/n
    assert "D 1 " in words
    targets = np.round(2 * rows[:, 0] + rows[:, 1], 3)
    assert said("P at zero", out) == pytest.approx(np.abs(targets).mean(), rel=1e-3)
