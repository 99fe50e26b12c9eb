"""`accelegrad fit`, `predict` and `inspect`, from files to files, and what they say to wrong input."""

import csv
import io
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from accelegrad.cli.main import main
from accelegrad.cli.predict import class_places
from accelegrad.files import frames
from accelegrad.sklearn import AcceleGradClassifier
from accelegrad.sklearn.model_file import load_model, read_model, save_model

RNG = np.random.default_rng(21)
X = RNG.standard_normal((120, 3)).round(4)
MARGINS = X @ [1.0, -2.0, 0.5] + 0.2 * RNG.standard_normal(120)
LABELS = np.where(MARGINS > 0, 1.0, -1.0)
PRICES = (10.0 + MARGINS).round(4)
NAMES = ["size", "age", "rooms"]


@pytest.fixture
def run(capsys):
    """Calls the command, and returns what it printed, of errors those of `code`."""

    def call(*arguments, code=0):
        quiet = ["--no-progress"] if arguments[0] == "fit" else []
        assert main([*map(str, arguments), *quiet]) == code
        told = capsys.readouterr()
        assert not (code and told.out)
        assert code != 1 or len(told.err.splitlines()) == 1
        return told.err if code else told.out

    def fit(data, *options):
        call("fit", data, "--out", data.with_suffix(".agm"), *options)
        return data.with_suffix(".agm")

    call.fails, call.fit = partial(call, code=1), fit
    return call


def lines(text):
    pairs = (line.partition("  ") for line in text.splitlines() if not line.startswith(" "))
    return {name: value.strip() for name, _, value in pairs}


def table(text):
    return list(csv.reader(io.StringIO(text)))


def write_csv(path, columns):
    rows = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *rows])
    return path


def features():
    return dict(zip(NAMES, X.T, strict=True))


def svm(folder):
    path = folder / "data.svm"
    dump_svmlight_file(X, LABELS, str(path), zero_based=False)
    return path


def test_the_command_of_the_issue(tmp_path, run):
    data, model = svm(tmp_path), tmp_path / "model.agm"
    told = lines(run("fit", data, "--loss", "hinge", "--alpha", "1e-2", "--out", model))
    expected = AcceleGradClassifier("hinge", alpha=1e-2, random_state=0).fit(X, LABELS)
    fitted = load_model(model)
    np.testing.assert_allclose(fitted.coef_, expected.coef_, rtol=0, atol=1e-9)
    assert float(told["objective"]) == pytest.approx(fitted.objective_, rel=1e-7)
    assert float(told["certified gap"].split()[0]) == pytest.approx(fitted.gap_, rel=1e-2)
    assert fitted.gap_ <= 1e-3 * fitted.objective_
    assert int(told["iterations"]) == fitted.n_iter_
    assert float(told["seconds"]) >= 0.0
    assert told["written to"] == str(model.resolve())
    assert f"{data}: 120 x 3" in told["data"]
    predicted = table(run("predict", model, data))
    assert predicted[0] == ["prediction"]
    assert {row[0] for row in predicted[1:]} == {"-1", "1"}  # as the file has them
    np.testing.assert_array_equal([float(row[0]) for row in predicted[1:]], fitted.predict(X))
    scores = lines(run("predict", model, data, "--score"))
    assert float(scores["accuracy"]) == pytest.approx(fitted.score(X, LABELS), abs=1e-6)
    shown = run("inspect", model)
    assert "hinge, l2 penalty, alpha 0.01, with intercept" in shown
    assert lines(shown)["classes"] == "-1, 1 (positive coefficients: 1)"
    assert lines(shown)["coefficients"] == "3 of 3 not zero"
    assert lines(shown)["converged"] == "yes (tol 0.001)"
    assert shown.splitlines()[-3].split() == ["index", "2", f"{fitted.coef_[0, 1]:+.6g}"]


def test_csv_with_names_and_text_labels(tmp_path, run, monkeypatch):
    words = np.where(LABELS > 0, "spam, or so", "ham")
    data = write_csv(tmp_path / "mail.csv", {**features(), "kind": words})
    model = run.fit(data)
    monkeypatch.setattr(frames, "BLOCK_BYTES", 800)  # predictions come in several chunks
    saved = read_model(model)
    assert (saved.feature_names, saved.target) == (tuple(NAMES), "kind")
    np.testing.assert_array_equal(saved.estimator.classes_, ["ham", "spam, or so"])
    # The columns are found by name, whatever their order; others do not matter.
    other = {"row": np.arange(120), "rooms": X[:, 2], "size": X[:, 0], "age": X[:, 1]}
    new = write_csv(tmp_path / "new.csv", other)
    out = tmp_path / "predicted.csv"
    assert run("predict", model, new, "--out", out) == ""
    assert table(out.read_text())[0] == ["kind"]
    assert [row[0] for row in table(out.read_text())[1:]] == saved.estimator.predict(X).tolist()
    rows = table(run("predict", model, new, "--proba"))
    assert rows[0] == ["ham", "spam, or so"]
    np.testing.assert_array_equal(np.array(rows[1:], dtype=float), saved.estimator.predict_proba(X))
    accuracy = lines(run("predict", model, data, "--score"))["accuracy"]
    assert float(accuracy) == pytest.approx(saved.estimator.score(X, words), abs=1e-6)
    shown = run("inspect", model, "--top", "1")
    assert lines(shown)["target"] == "kind"
    assert lines(shown)["features"] == "3"
    assert shown.splitlines()[-2].split() == ["age", f"{saved.estimator.coef_[0, 1]:+.6g}"]


def test_options_reach_the_estimator(tmp_path, run):
    options = ["--penalty", "elasticnet", "--l1-ratio", "0.4", "--no-intercept", "--balanced"]
    more = ["--tol", "0.01", "--max-iter", "77", "--seed", "5", "--n-features", "8"]
    fitted = load_model(run.fit(svm(tmp_path), *options, *more))
    assert (fitted.penalty, fitted.l1_ratio, fitted.fit_intercept) == ("elasticnet", 0.4, False)
    assert (fitted.tol, fitted.max_iter, fitted.random_state) == (0.01, 77, 5)
    assert fitted.class_weight == "balanced"
    assert fitted.coef_.shape == (1, 8)
    assert load_model(run.fit(svm(tmp_path), "--penalty", "none")).penalty is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--loss", "hinges"], "--loss is 'hinges': did you mean 'hinge'?"),
        (["--alpha", "-1"], "alpha must be a finite number >= 0"),
        (["--tol", "0"], "tol must be a finite number > 0"),
        (["--target", "price"], "target is 'price', but only tables with columns"),
        (["--chunk-rows", "3"], "--chunk-rows is of use with --stream only"),
        (["--stream", "--chunk-rows", "0"], "--chunk-rows must be a whole number >= 1"),
        (["--stream", "--dask", "local"], "--stream and --dask cannot be used together"),
        (["--dask", "somewhere"], "--dask must be 'local' or the address of a scheduler"),
        (["--quantile", "0.3"], "--quantile is of no use with the loss log_loss"),
        (["--loss", "huber", "--balanced"], "--balanced is for classes"),
        (["--n-features", "2"], "the index is 3, but 2 features are expected"),
    ],
)
def test_wrong_options(tmp_path, run, options, message):
    model = tmp_path / "model.agm"
    assert message in run.fails("fit", svm(tmp_path), "--out", model, *options)
    assert not model.exists()


def test_wrong_places(tmp_path, run):
    data = svm(tmp_path)
    model = run.fit(data)
    np.savez(tmp_path / "data.npz", X=X)
    content, link = (data.read_bytes(), model.read_bytes()), tmp_path / "link"
    link.symlink_to(model)
    for arguments, *messages in (
        (("fit", data, "--out", tmp_path / "no" / "model.agm"), "there is no folder"),
        (("fit", data, "--out", tmp_path), "this is a folder"),
        (("fit", tmp_path / "none.csv"), "cannot be read"),
        (("predict", tmp_path / "none.agm", data), "there is no such file"),
        (("inspect", data), "not a model file of accelegrad", "the content is of another kind"),
        (("inspect", tmp_path / "data.npz"), "an .npz file of something else"),
        (("inspect", tmp_path), "this is a folder"),
        (("fit", data, "--out", data), "is what is read"),
        (("predict", model, data, "--out", data), "is what is read"),
        (("predict", model, data, "--out", link), "is what is read"),
    ):
        told = run.fails(*arguments)
        assert all(message in told for message in messages)
    assert (data.read_bytes(), model.read_bytes()) == content


def test_names_from_a_file_cannot_steer_the_terminal(tmp_path, run):
    model = tmp_path / "model.agm"
    names = ["\x1b[31mred", "two\nlines", "\u202eback", "ä b"]
    labels = np.array(["\x1b]0;title\x07", "plain"])[(X[:, 0] > 0).astype(int)]
    estimator = AcceleGradClassifier().fit(np.column_stack([X, X[:, 0]]), labels)
    save_model(estimator, model, feature_names=names, target="\x1b[2J")
    shown = run("inspect", model)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert r"\x1b[31mred" in shown
    assert r"two\nlines" in shown
    assert "ä b" in shown
    assert r"\x1b[2J" in lines(shown)["target"]
    data = write_csv(tmp_path / "new.csv", dict.fromkeys(("a\x1b[31m", "b"), X[:, 0]))
    assert "\x1b" not in run.fails("predict", model, data)


def test_numbers_are_scored_against_numbers_in_data_that_fit_the_model(tmp_path, run):
    data = write_csv(tmp_path / "houses.csv", {**features(), "price": PRICES})
    model = run.fit(data, "--loss", "huber")
    fewer = write_csv(tmp_path / "fewer.csv", {"size": X[:, 0], "age": X[:, 1]})
    message = run.fails("predict", model, fewer)
    assert "1 of the model's 3 columns are not among those of the file: 'rooms'" in message
    bare = write_csv(tmp_path / "bare.csv", features())
    assert "--score needs the true targets" in run.fails("predict", model, bare, "--score")
    assert "the loss huber gives no probabilities" in run.fails("predict", model, bare, "--proba")
    words = PRICES.astype(object)
    words[50] = "much"
    wrong = write_csv(tmp_path / "new.csv", {**features(), "price": words})
    message = run.fails("predict", model, wrong, "--score")
    assert "row 51: the column 'price' is 'much', but it must be a finite number" in message
    told, fitted = lines(run("predict", model, data, "--score")), load_model(model)
    assert float(told["R^2"]) == pytest.approx(fitted.score(X, PRICES), abs=1e-6)
    error = np.abs(fitted.predict(X) - PRICES).mean()
    assert float(told["mean absolute error"]) == pytest.approx(error, rel=1e-7)
    # Without a score the targets do not matter.
    assert len(table(run("predict", model, wrong))) == 121
    for options in ([], ["--stream", "--chunk-rows", "9"]):
        message = run.fails("fit", wrong, "--loss", "huber", "--out", model, *options)
        assert "row 51: the column 'price' is 'much'" in message


def test_warnings_and_help_go_to_standard_error(tmp_path, run, capsys):
    colours = np.where(X[:, 1] > 0, "red", "blue")
    model = run.fit(write_csv(tmp_path / "all.csv", {"colour": colours, "kind": LABELS}))
    new = write_csv(tmp_path / "new.csv", {"colour": ["green"]})  # one column suffices
    assert main(["predict", str(model), str(new)]) == 0
    told = capsys.readouterr()
    assert len(table(told.out)) == 2
    assert told.err.startswith(f"accelegrad predict: warning: {new}: the column 'colour'")
    assert main([]) == 2
    assert "usage: accelegrad" in capsys.readouterr().err


def test_a_reader_that_closes_early_is_no_error(tmp_path, run):
    data = svm(tmp_path)
    command = [sys.executable, "-m", "accelegrad", "predict", run.fit(data), data]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_options_for_tables_are_those_of_reading(tmp_path, run):
    path = tmp_path / "data.txt"
    path.write_text("id;größe;code;t\n1;1.234,5;7;2,5\n2;-;8;3\n3;0,5;7;3\n", "latin-1")
    options = ["--sep", ";", "--decimal", ",", "--thousands", ".", "--encoding", "latin-1"]
    options += ["--na=-,x", "--drop", "id,0", "--text", "2", "--missing", "drop"]
    model = run.fit(path, "--loss", "huber", "--target", "t", *options)
    saved = read_model(model)
    assert saved.feature_names == ("größe", "code=7")
    assert saved.estimator.n_samples_seen_ == 2
    message = run.fails("predict", model, path, *options[:8])
    assert "row 2: the column 'größe' is '-', but it must be a finite number" in message
    message = run.fails("fit", path, *options[:-2])
    assert "row 2: the column 'größe' has no value. Give --missing drop" in message


def test_continuous_targets_are_no_classes(tmp_path, run):
    data = write_csv(tmp_path / "houses.csv", {**features(), "price": PRICES})
    for options in ((), ("--stream",), ("--loss", "hinge")):
        message = run.fails("fit", data, "--out", tmp_path / "m.agm", *options)
        assert "the target holds numbers that are not whole" in message
        assert f"--loss {options[1] if '--loss' in options else 'log_loss'} is for" in message
        assert "For numbers, give --loss squared_error, absolute_error," in message


def test_ctrl_c_writes_no_model_before_there_is_one(tmp_path, run, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(AcceleGradClassifier, "fit", interrupt)
    told = run("fit", svm(tmp_path), "--out", tmp_path / "m.agm", code=130)
    assert "interrupted; no model was written" in told
    assert not (tmp_path / "m.agm").exists()


@pytest.mark.parametrize(
    ("classes", "labels", "places"),
    [
        ([-1.0, 1.0], ["+1", "-1.0", "none of them", "1"], [1, 0, -1, 1]),
        (["1", "2", "xyz"], [1, 2.0, 3], [0, 1, -1]),
        (["1", "1.0", "one"], ["1", "1.0", "01"], [0, 1, -1]),  # the last fits two
        ([False, True], ["True", "False", "1", "0"], [1, 0, 1, 0]),
        (["a", "b"], ["ant", "a"], [-1, 0]),  # not cut to those of the model
        (["1_0", "x"], [10], [-1]),
    ],
)
def test_labels_are_found_among_the_classes(classes, labels, places):
    found = class_places(np.array(labels), np.array(classes))
    np.testing.assert_array_equal(found, places)


def test_labels_that_the_model_does_not_know_are_told(tmp_path, run):
    kinds = np.where(LABELS > 0, "a", "b")
    model = run.fit(write_csv(tmp_path / "all.csv", {**features(), "kind": kinds}))
    kinds = load_model(model).predict(X)
    kinds = np.where(np.arange(120) < 30, kinds, "other")
    data = write_csv(tmp_path / "new.csv", {**features(), "kind": kinds})
    told = lines(run("predict", model, data, "--score"))
    assert (told["accuracy"], told["rows"]) == ("0.250000", "120")
    assert told["labels not known to the model"] == "90 rows: 'other'"


def test_a_target_by_number_is_remembered(tmp_path, run):
    data = tmp_path / "plain.csv"
    np.savetxt(data, np.column_stack([LABELS, X]), delimiter=",")
    model = run.fit(data, "--target", "0")
    fitted = load_model(model)
    predicted = [float(row[0]) for row in table(run("predict", model, data))[1:]]
    np.testing.assert_array_equal(predicted, fitted.predict(X))
    accuracy = lines(run("predict", model, data, "--score"))["accuracy"]
    assert float(accuracy) == pytest.approx(fitted.score(X, LABELS), abs=1e-6)
    shown = run("inspect", model)
    assert lines(shown)["target"] == "column 0"
    assert shown.splitlines()[-3].startswith("column 2  ")  # as the file counts them
    np.savez(tmp_path / "data.npz", X=X, y=LABELS)
    shown = run("inspect", run.fit(tmp_path / "data.npz"))
    assert shown.splitlines()[-3].startswith("column 1 of X  ")
    np.savetxt(data, X, delimiter=",")
    assert [float(row[0]) for row in table(run("predict", model, data))[1:]] == predicted
