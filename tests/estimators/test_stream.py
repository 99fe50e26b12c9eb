"""Streams against rows in memory, for every kind of source; memory; what goes wrong."""

from __future__ import annotations

import bz2
import gc
import json
import weakref
from collections import deque
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from sklearn.exceptions import ConvergenceWarning

from accelegrad.files import formats
from accelegrad.files.formats import is_stream
from accelegrad.files.tables import DataError
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor
from processes import run_python

ROWS, WIDTH, CHUNK = 230, 6, 50


def data(seed=3):
    """Rows with many zeros, the last column empty after the first rows, and labels -1 and 1."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((ROWS, WIDTH)) < 0.5, rng.standard_normal((ROWS, WIDTH)).round(3), 0.0)
    X[60:, -1] = 0.0
    y = np.where(X @ np.arange(1.0, WIDTH + 1) + 0.3 * rng.standard_normal(ROWS) > 0.0, 1.0, -1.0)
    return X, y


def parts(*arrays, size=CHUNK):
    n = arrays[0].shape[0]
    return [tuple(a[start : start + size] for a in arrays) for start in range(0, n, size)]


def classifier(**options):
    return AcceleGradClassifier(random_state=5, **options)


def agree(streamed, whole):
    """Both prove their gaps on the same objective, so that each bounds the other."""
    assert streamed.converged_
    assert streamed.gap_ <= max(streamed.tol, 1e-12) * streamed.objective_
    slack = 1e-12 * whole.objective_  # the rounding of two sums
    assert streamed.objective_ - streamed.gap_ <= whole.objective_ + slack
    assert whole.objective_ - whole.gap_ <= streamed.objective_ + slack
    assert streamed.n_samples_seen_ == whole.n_samples_seen_
    assert streamed.coef_.shape == whole.coef_.shape
    if hasattr(whole, "classes_"):
        np.testing.assert_array_equal(streamed.classes_, whole.classes_)


def libsvm(path, X, y, compress=bytes):
    plain = path.parent / "plain"
    dump_svmlight_file(X, y, str(plain), zero_based=False)
    path.write_bytes(compress(plain.read_bytes()))
    return path


def npy(folder, X, y):
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    return folder / "X.npy", str(folder / "y.npy")


def npz(folder, y, **arrays):
    np.savez(folder / "rows.npz", **arrays, y=y)
    return folder / "rows.npz"


def sparse_npz(folder, X, y):
    sp.save_npz(folder / "sparse.npz", sp.csr_matrix(X))
    return npz(folder, y, **np.load(folder / "sparse.npz"))


# The same rows in the same chunks from everywhere.
SOURCES = {
    "arrays": lambda _, X, y: (X, y),
    "mapped": lambda folder, X, y: tuple(np.load(p, mmap_mode="r") for p in npy(folder, X, y)),
    "npy": npy,
    "npz": lambda folder, X, y: npz(folder, y, X=X),
    "npz sparse": sparse_npz,
    "csr": lambda _, X, y: (sp.csr_matrix(X), y),
    "libsvm.bz2": lambda folder, X, y: libsvm(folder / "data.bz2", X, y, bz2.compress),
    "list": lambda _, X, y: parts(X, y),
    "function": lambda _, X, y: lambda: iter(parts(X, y)),
    "iterable": lambda _, X, y: deque(parts(X, y)),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_stream_is_fitted_as_rows_in_memory(tmp_path, monkeypatch, name):
    monkeypatch.setattr(formats, "rows_per_block", lambda _: CHUNK)
    streamed, whole = (classifier(alpha=1e-2, tol=1e-9) for _ in range(2))
    agree(streamed.fit(SOURCES[name](tmp_path, *data())), whole.fit(*data()))
    assert streamed.n_features_in_ == WIDTH
    # The objective is strongly convex in the weights.
    off = np.sqrt(2 * (streamed.gap_ + whole.gap_) / 1e-2)
    assert np.linalg.norm(streamed.coef_ - whole.coef_) <= 2 * off


@pytest.mark.parametrize("given", [{-1: 0.0, 1: 1.0, 3: 2.0}, "balanced"])
def test_weights_of_classes(given):
    X, y = data()
    y[X[:, 0] + np.random.default_rng(1).standard_normal(ROWS) > 1.0] = 3.0
    chosen = {"alpha": 1e-3, "class_weight": given}
    agree(classifier(**chosen).fit(parts(X, y)), classifier(**chosen).fit(X, y))


def test_weights_go_along_and_rows_without_weight_are_no_rows():
    X, y = data()
    weights = np.random.default_rng(2).uniform(0.5, 2.0, ROWS)
    weights[60:160] = 0.0  # two chunks, and a part of a third
    strange = np.where(weights > 0.0, y, 7.0)
    agree(classifier().fit(parts(X, strange, weights)), classifier().fit(X, y, weights))
    fitted = AcceleGradRegressor().fit((X, y, weights))
    agree(fitted, AcceleGradRegressor().fit(X, y, weights))
    assert fitted.n_samples_seen_ == 130
    with pytest.raises(ValueError, match="all weights are zero"):
        AcceleGradRegressor().fit((X, y, np.zeros(ROWS)))


def test_few_passes_prove_a_gap():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 20)) * rng.uniform(0.1, 5.0, 20)
    z = X @ rng.standard_normal(20) / 5 + rng.standard_normal(20_000)
    passes = [0]

    def source(y):
        def chunks():
            passes[0] += 1
            yield from parts(X, y, size=1000)

        return chunks

    most = {
        AcceleGradClassifier(): (z > 0, 15),
        AcceleGradClassifier("hinge"): (z > 0, 40),
        AcceleGradClassifier(multi_class="multinomial"): (np.digitize(z, [-1, 1]), 30),
        AcceleGradRegressor(): (z, 10),
        AcceleGradRegressor("absolute_error"): (z, 45),
    }
    for estimator, (y, limit) in most.items():
        passes[0] = 0
        assert estimator.set_params(random_state=0).fit(source(y)).converged_
        assert passes[0] <= limit, estimator


def test_fit_forgets_what_was_fitted_before_but_for_a_warm_start():
    X, y = data()
    used = classifier().fit(X[:, :2], np.where(y > 0, "yes", "no"))
    used.partial_fit(X[:9, :2], ["no"] * 9)
    fresh = classifier().fit(parts(X, y))
    np.testing.assert_array_equal(used.fit(parts(X, y)).coef_, fresh.coef_)
    np.testing.assert_array_equal(used.classes_, [-1.0, 1.0])
    warm = classifier(warm_start=True, tol=1e-6).fit(parts(X, y))
    first = warm.n_iter_
    assert warm.fit(parts(X, y)).n_iter_ < first
    assert warm.partial_fit(X[:20], y[:20]).n_samples_seen_ == ROWS + 20


def test_a_last_chunk_of_one_row_empty_chunks_a_late_label_and_many_classes():
    X, y = data()
    y[50] = 7.0
    chunks = [(X[:0], y[:0]), (X[:50], y[:50]), (X[50:50], y[50:50]), (X[50:51], y[50:51])]
    agree(classifier().fit(chunks), classifier().fit(X[:51], y[:51]))
    X, y = np.random.default_rng(0).standard_normal((200, 3)), np.tile(np.arange(25), 8)
    options = {"loss": "hinge", "alpha": 1.0, "tol": 0.1}  # warnings are errors here
    agree(classifier(**options).fit(parts(X, y, size=40)), classifier(**options).fit(X, y))


Z, LABELS = data()
WITH_NAN = np.where(np.arange(ROWS)[:, None] == 170, np.nan, Z)
USED_UP = iter(parts(Z, LABELS))


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ((np.ones((3, 2)),), ValueError, "1 entries"),
        ((np.ones((3, 2)), np.ones(4)), ValueError, r"equal lengths, not \[3, 4\]"),
        ((np.ones((0, 2)), np.ones(0)), ValueError, "no rows"),
        (lambda: iter([]), ValueError, "at least one chunk with rows"),
        (lambda: iter([np.ones((3, 2))]), TypeError, r"chunk 1 must be a tuple \(X, y\)"),
        (lambda: 3, TypeError, "not iterable"),
        ("nowhere.svm", DataError, "cannot be read"),
        (
            [(Z[:50], LABELS[:50]), (Z[50:99, :4], LABELS[50:99])],
            *(ValueError, r"chunk 2: X has 4 features, but .* expecting 6"),
        ),
        (parts(WITH_NAN, LABELS), ValueError, "chunk 4: Input X contains NaN"),
        ([(Z, LABELS), (Z, LABELS[1:])], ValueError, r"chunk 2: .*inconsistent numbers of samples"),
        (iter([(Z, LABELS)]), TypeError, r"\(list_iterator\) can be read once.*partial_fit"),
        ((part for part in [(Z, LABELS)]), TypeError, r"\(generator\) can be read once"),
        (lambda: USED_UP, ValueError, "the same chunks in every pass, but chunk 1 is not"),
    ],
)
def test_wrong_sources(source, error, message):
    with pytest.raises(error, match=message):
        AcceleGradRegressor().fit(source)
    with pytest.raises(ValueError, match="sample_weight cannot be given beside a stream"):
        AcceleGradRegressor().fit(data(), sample_weight=np.ones(ROWS))


def test_ctrl_c_keeps_what_is_fitted():
    chunks, passes = parts(*data()), [0]

    def interrupted():
        passes[0] += 1
        if passes[0] == 6:
            raise KeyboardInterrupt
        yield from chunks

    words = "was interrupted after .* is certified"
    with pytest.warns(ConvergenceWarning, match=words) as caught:
        fitted = classifier(tol=1e-12).fit(interrupted)
    assert "max_iter" not in str(caught[0].message)  # no advice
    assert not fitted.converged_
    assert fitted.score(*data()) > 0.8


def kept_by(use):
    """Return how many of the chunks that were read are still there, without garbage collection."""
    seen = []

    def chunks():
        for X, y in parts(*data(), size=23):
            copied = X.copy()
            seen.append(weakref.ref(copied))
            yield copied, np.asarray(y)
            del copied

    gc.disable()
    try:
        use(chunks)
        assert len(seen) >= 10
        return sum(chunk() is not None for chunk in seen)
    finally:
        gc.enable()


@pytest.mark.parametrize("options", [{}, {"diameter": 3.0}, {"penalty": "l1"}, {"loss": "hinge"}])
def test_every_chunk_is_let_go(options):
    def feed(chunks):
        estimator = classifier(**options)
        for X, y in chunks():
            estimator.partial_fit(X, y, classes=[-1, 1])

    assert kept_by(feed) <= 1  # the loop's own
    if "diameter" not in options:  # which takes too many passes
        assert kept_by(classifier(**options).fit) == 0


PEAKS = """
import json, sys, tracemalloc
from functools import partial
import numpy as np
import accelegrad as ag
from accelegrad.files.formats import open_table
from accelegrad.files.tables import Targets, Wanted
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

def source(rows, labels):
    def chunks():
        rng = np.random.default_rng(0)
        for _ in range(rows // 5000):
            X = rng.standard_normal((5000, 3))
            z = X @ [1.0, -2.0, 0.5] + rng.standard_normal(5000)
            several = np.digitize(z, [-2, -1, 1, 2])
            yield X, several if labels == 5 else np.where(z > 0, 1.0, -1.0)
    return chunks

def hinge(rows):
    ag.minimize(ag.StreamedModel(source(rows, 2), "hinge", l2=1e-3), rtol=1e-3, rng=0)

def classes(rows):
    AcceleGradClassifier(random_state=0, multi_class="multinomial").fit(source(rows, 5))

def file(path):
    table = open_table(path, Wanted(targets=Targets.NUMBERS))
    AcceleGradRegressor(tol=1e-6, random_state=0).fit(partial(table.chunks, 500))

def peak(fit, given):
    tracemalloc.start()
    fit(given)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    if "pyarrow" in sys.modules:  # the most so far
        found += sys.modules["pyarrow"].default_memory_pool().max_memory()
    return found

name, sizes = json.loads(sys.argv[1])
fit = {"hinge": hinge, "classes": classes}.get(name, file)
peak(fit, sizes[0])  # with all that is imported and compiled at first use
print(json.dumps([peak(fit, size) for size in sizes]))
"""


def same_rows(folder, kind, repeats):
    """Write the same 500 rows of 30 numbers, so many times."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((500, 30)).round(2)
    y = (X @ rng.standard_normal(30) + rng.standard_normal(500)).round(2)
    path = folder / f"{repeats}.{kind}"
    if kind == "svm":
        path.write_bytes(libsvm(folder / "chunk", X, y).read_bytes() * repeats)
        return str(path)
    pandas = pytest.importorskip("pandas", reason="the extra files is not installed")
    frame = pandas.DataFrame(np.tile(X, (repeats, 1))).add_prefix("c").assign(t=np.tile(y, repeats))
    if kind == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, row_group_size=500)
    return str(path)


FILES = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("svm", "csv", "parquet")]


@pytest.mark.parametrize("name", ["hinge", "classes", *FILES])
def test_memory_is_flat_in_rows_and_passes(tmp_path, name):
    sizes, most = list[Any]([50_000, 400_000]), 8 * 350_000  # one vector
    if name not in ("hinge", "classes"):  # X has 6 MB; a pass that keeps its chunks adds as much
        sizes, most = [same_rows(tmp_path, name, repeats) for repeats in (5, 50)], 2_000_000
    few, many = json.loads(run_python(PEAKS, json.dumps([name, sizes])))
    assert many - few < most, (few, many)


@pytest.mark.parametrize("X", [np.ones((4, 2)), [[1.0, 2.0]] * 4, ((1.0, 2.0), (3.0, 4.0))])
def test_a_table_without_targets_is_no_stream(X):
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        classifier().fit(X)
    assert not is_stream(X)
