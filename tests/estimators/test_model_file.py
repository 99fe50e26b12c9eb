"""Model files: what is read is what was written, bit for bit; anything else is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import SGDClassifier

import accelegrad as ag
from accelegrad.files import archive
from accelegrad.files.archive import ArchiveError
from accelegrad.sklearn import (
    AcceleGradClassifier,
    AcceleGradClassifierCV,
    AcceleGradRegressor,
    AcceleGradRegressorCV,
    model_file,
)
from accelegrad.sklearn.model_file import FORMAT, load_model, read_model, save_model

RNG = np.random.default_rng(11)
X = RNG.standard_normal((90, 4))
SIDES = (X @ [1.0, -2.0, 0.5, 0.0] + 0.1 * RNG.standard_normal(90) > 0).astype(int)
THIRDS = np.argsort(np.argsort(X[:, 0])) // 30

FITTED = {
    "objects": lambda: AcceleGradClassifier().fit(X, np.array(["no", "jä"], dtype=object)[SIDES]),
    "bools": lambda: AcceleGradClassifier().fit(X, SIDES.astype(bool)),
    "multinomial": lambda: AcceleGradClassifier(alpha=1e-2).fit(X, THIRDS - 1),
    "class weights": lambda: AcceleGradClassifier(class_weight={0: 1.5, 1: 0.5}).fit(X, SIDES),
    "numbers": lambda: AcceleGradRegressor("huber", delta=np.float64(0.7)).fit(X, X[:, 1] - 3.0),
    "sparse": lambda: AcceleGradRegressor(penalty="l1", alpha=0.05).fit(X, X[:, 1]).sparsify(),
    "a box": lambda: AcceleGradRegressor(
        feasible_set=ag.Box(-0.5, [0.1, 0.2, 0.3, np.inf]), alpha=0.1
    ).fit(X, X[:, 1]),
    "a stream": lambda: AcceleGradClassifier(random_state=0).partial_fit(X, SIDES, classes=[0, 1]),
    "alpha by cross-validation": lambda: AcceleGradClassifierCV(alphas=[0.1], cv=3).fit(X, SIDES),
    "regressor by cross-validation": lambda: AcceleGradRegressorCV(alphas=(1.0, 0.0), cv=3).fit(
        X, X[:, 1] + 0.1 * SIDES
    ),
}


def same(first, second):
    """Whether two values are of the same kind and equal, bit for bit."""
    if sp.issparse(first):
        return sp.issparse(second) and same(first.toarray(), second.toarray())
    if isinstance(first, np.ndarray):
        alike = isinstance(second, np.ndarray) and first.dtype == second.dtype
        if first.dtype == object:
            return alike and first.tolist() == second.tolist()
        return alike and first.shape == second.shape and first.tobytes() == second.tobytes()
    if isinstance(first, ag.Box):
        return same(first.lower, second.lower) and same(first.upper, second.upper)
    if isinstance(first, float) and isinstance(second, float):
        return np.float64(first).tobytes() == np.float64(second).tobytes()
    return type(first) is type(second) and bool(first == second)


@pytest.mark.parametrize("name", FITTED)
def test_round_trip(tmp_path, name):
    estimator = FITTED[name]()
    path = tmp_path / "model.agm"
    save_model(estimator, path)
    loaded = load_model(path)
    assert type(loaded) is type(estimator)
    before, after = estimator.get_params(), loaded.get_params()
    assert before.keys() == after.keys()
    for parameter, value in before.items():
        assert same(value, after[parameter]), parameter
    attributes = {key for key in vars(estimator) if key.endswith("_")}
    assert attributes == {key for key in vars(loaded) if key.endswith("_")}
    assert {"coef_", "intercept_", "gap_", "objective_", "n_iter_", "converged_"} <= attributes
    for attribute in attributes:
        assert same(getattr(estimator, attribute), getattr(loaded, attribute)), attribute
    assert same(estimator.predict(X), loaded.predict(X))
    with np.load(path, allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)


def test_names_and_version(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas makes columns with names")
    frame = pandas.DataFrame(X, columns=["a", "b", "ü", "d"])
    path = tmp_path / "model.agm"
    estimator = AcceleGradRegressor().fit(frame, X[:, 0])
    save_model(estimator, path, target="price")
    saved = read_model(path)
    assert saved.feature_names == ("a", "b", "ü", "d")
    assert (saved.target, saved.version) == ("price", ag.__version__)
    np.testing.assert_array_equal(saved.estimator.predict(frame), estimator.predict(frame))
    save_model(AcceleGradRegressor().fit(X, X[:, 0]), path)
    assert read_model(path).feature_names is None
    with pytest.raises(ValueError, match=r"feature_names must have 4 entries.*it has 2"):
        save_model(estimator, path, feature_names=["a", "b"])


def changed(path, **changes):
    """Write the model file anew with other content under some names of the header."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    tree = json.loads(arrays["header"].tobytes())
    content = tree["content"]
    for name, value in changes.items():
        (tree if name in ("format", "version") else content)[name] = value
    arrays["header"] = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez(file, **arrays)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.agm"
    save_model(AcceleGradClassifier().fit(X, SIDES), path)
    return path


def test_another_version_or_kind_of_file(tmp_path, model):
    changed(model, version=FORMAT.version + 1)
    with pytest.raises(ArchiveError, match=r"version 2 cannot be read.*reads .* version 1"):
        load_model(model)
    path = tmp_path / "other.agm"
    archive.save(path, archive.Format("accelegrad-checkpoint", 1, "checkpoint"), {})
    with pytest.raises(ArchiveError, match="'accelegrad-checkpoint' version 1 cannot be read"):
        load_model(path)
    np.savez(path.with_suffix(".npz"), a=np.ones(3))
    path.write_bytes(b"something else altogether")
    for foreign in (path, path.with_suffix(".npz")):
        with pytest.raises(ArchiveError, match="not a model file of accelegrad, or a damaged one"):
            load_model(foreign)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        load_model(tmp_path / "nothing.agm")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"estimator": "SGDClassifier"}, ""),
        ({"estimator": "os.system"}, ""),
        ({"parameters": {"no_such_parameter": 3}}, ""),
        ({"parameters": {"loss": {"__kind__": "call"}}}, ""),
        ({"parameters": None}, ""),
        ({"fitted": {}}, ""),
        ({"fitted": {"predict": 3}}, ""),
        ({"fitted": {"__class__": 3}}, ""),
        ({"feature_names": ["a", "b"]}, ".*feature_names must have 4 entries.*it has 2"),
        ({"feature_names": [1, 2, 3, 4]}, ".*feature_names must be text"),
        ({"target": [1]}, ".*target must be a name, a number or nothing"),
        ({"first_feature": "x"}, ".*first_feature must be a whole number"),
        ({"accelegrad": 3}, ".*the version must be text"),
    ],
)
def test_a_header_that_makes_no_sense(model, changes, words):
    changed(model, **changes)
    with pytest.raises(ArchiveError, match=f"the model file is damaged{words}"):
        load_model(model)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"coef_": np.zeros((1, 3))}, r"coef_ has the shape \(1, 3\).*n_features_in_ is 4"),
        (
            {"coef_": np.zeros((2, 4)), "intercept_": np.zeros(2)},
            "coef_ has 2 rows, but its classes need 1",
        ),
        ({"coef_": np.zeros((1, 2, 4))}, r"coef_ has the shape \(1, 2, 4\)"),
        ({"coef_": np.array([["a", "b", "c", "d"]])}, "coef_ must hold numbers"),
        ({"coef_": np.array([[1.0, np.nan, 0.0, 0.0]])}, "coef_ must be finite"),
        ({"coef_": sp.csr_array([[1.0, np.inf, 0.0, 0.0]])}, "coef_ must be finite"),
        ({"coef_": 3.0}, "coef_ has the shape"),
        ({"intercept_": np.zeros(3)}, "intercept_ has 3 entries, but coef_ has 1 row"),
        ({"intercept_": np.array([np.nan])}, "intercept_ must be finite"),
        ({"classes_": np.arange(3)}, "coef_ has 1 rows, but its classes need 3"),
        ({"classes_": np.array([1, 1])}, "classes_ must be two or more distinct labels"),
        ({"classes_": np.array(5)}, "classes_ must be two or more distinct labels"),
        ({"loss": "no_such_loss"}, "loss must be the name of a loss"),
        ({"loss": "huber"}, "loss must be the name of a loss"),
        ({"gap_": "small"}, "gap_ must be a number"),
        ({"n_features_in_": 4.5}, "n_features_in_ must be a whole number"),
    ],
)
def test_a_model_that_makes_no_sense(tmp_path, attributes, words):
    """It is neither written nor, where a careless program has written it, read."""
    path, estimator = tmp_path / "model.agm", AcceleGradClassifier().fit(X, SIDES)
    for name, value in attributes.items():
        setattr(estimator, name, value)
    with pytest.raises((TypeError, ValueError), match=words):
        save_model(estimator, path)
    assert not path.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_file, "check_model", lambda *_: None)
        save_model(estimator, path)
    with pytest.raises(ArchiveError, match=f"the model file is damaged.*{words}"):
        load_model(path)


def test_what_cannot_be_saved(tmp_path):
    path = tmp_path / "model.agm"
    with pytest.raises(NotFittedError):
        save_model(AcceleGradClassifier(), path)
    with pytest.raises(
        TypeError, match=r"must be one of AcceleGradClassifier, .*not SGDClassifier"
    ):
        save_model(SGDClassifier().fit(X, SIDES), path)
    estimator = AcceleGradClassifier(random_state=np.random.RandomState(0)).fit(X, SIDES)
    with pytest.raises(ValueError, match="the parameter 'random_state' cannot be kept"):
        save_model(estimator, path)
    assert not path.exists()
    save_model(estimator.set_params(random_state=None), path)
    np.testing.assert_array_equal(load_model(path).coef_, estimator.coef_)
