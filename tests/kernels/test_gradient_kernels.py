"""One compiled pass against the products of NumPy and SciPy, and the compiled losses one by one."""

import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numba
import numpy as np
import pytest
import scipy.sparse as sp

import row_sums
from accelegrad import LinearModel, kernels
from accelegrad.kernels.gradient import block_ends, passed
from accelegrad.kernels.loss_shape import for_kernels
from accelegrad.kernels.losses import logistic_slope, loss_and_slope
from accelegrad.models.losses import LOSSES as TABLE
from accelegrad.models.losses import make_loss
from processes import run_python

LOSSES = [*row_sums.LOSSES, *(f"smoothed_{name}" for name in row_sums.KINKED)]
TYPES = [np.float64, np.float32]  # both are summed in float64


def csr(index):
    def convert(X):
        matrix = sp.csr_array(X)
        parts = matrix.data, matrix.indices.astype(index), matrix.indptr.astype(index)
        return sp.csr_array(parts, shape=X.shape)

    return convert


LAYOUTS = {"dense": np.ascontiguousarray, "int32": csr(np.int32), "int64": csr(np.int64)}


@pytest.fixture(autouse=True)
def _blocks_of_any_size(monkeypatch):
    """Let the small data of these tests be split like large ones."""
    monkeypatch.setattr(kernels, "LEAST_WORK", 1)
    monkeypatch.setattr(kernels, "ENTRIES_PER_SUM", 1)


def data(loss, n=203, d=7, dtype=np.float64):
    return row_sums.data(loss.removeprefix("smoothed_"), n, d, dtype=dtype)


def model_of(X, y, loss, **options):
    plain = loss.removeprefix("smoothed_")
    model = row_sums.model_of(plain, X, y, **options)
    return model if plain == loss else model.smoothed(0.4)


def point(model, seed=3):
    return np.random.default_rng(seed).normal(size=model.n_parameters)


def compiled(call, *arguments, threads=1):
    with kernels.use("always", threads=threads):
        return call(*arguments)


def plain(call, *arguments):
    with kernels.use("never"):
        return call(*arguments)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


BATCHES = [
    np.array([0]),
    np.array([202, 202, 5, 5, 5, 3]),
    np.random.default_rng(2).integers(0, 203, 500).astype(np.uint16),
    np.arange(203)[::-2],
    [7, 1, 4],
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_pass_gives_what_the_products_give(loss, layout, dtype):
    X, y = data(loss, dtype=dtype)
    weights = np.random.default_rng(1).integers(0, 4, len(y)).astype(float)
    for intercept, weight in product((False, True), (None, weights)):
        options = {"l2": 0.3, "fit_intercept": intercept, "sample_weight": weight}
        model = model_of(LAYOUTS[layout](X), y, loss, **options)
        w = point(model)
        assert compiled(kernels.wanted, kernels.readable(model.X))
        before = plain(model.at, w)
        calls = [(model.value_and_gradient, w)]
        calls += [(model.batch_value_and_gradient, w, rows) for rows in BATCHES]
        for threads in (1, 2, 3):
            at = compiled(model.at, w, threads=threads)
            assert_close(at.margins, before.margins)
            assert_close(at.derivatives, before.derivatives)
            assert at.gradient.dtype == at.margins.dtype == at.derivatives.dtype == np.float64
            assert type(at.value) is float
            for call in calls:
                (value, gradient), expected = compiled(*call, threads=threads), plain(*call)
                assert_close(value, expected[0])
                assert_close(gradient, expected[1])


def test_many_callers_at_once_get_the_same_bits():
    X, y = data("logistic", n=5000)
    model = LinearModel(X, y)
    w = point(model)
    value, gradient = compiled(model.value_and_gradient, w, threads=2)
    with kernels.use("always", threads=2), ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: model.value_and_gradient(w), range(40)):
            assert found[0] == value
            np.testing.assert_array_equal(found[1], gradient)


def test_arrays_that_cannot_be_written_to_or_have_gaps():
    X, y = data("logistic")
    model = LinearModel(X, y, fit_intercept=True)
    w = point(model)
    expected = compiled(model.value_and_gradient, w)
    known = len(passed.versions)
    locked, spread = X.copy(), np.repeat(w, 2)[::2]
    locked.flags.writeable = spread.flags.writeable = False
    found = compiled(LinearModel(locked, y, fit_intercept=True).value_and_gradient, spread)
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1], expected[1])
    assert len(passed.versions) == known
    assert w.flags.writeable
    assert X.flags.writeable


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("n", "d"), [(1, 1), (1, 5), (2, 1), (3, 2), (5, 1), (9, 4), (64, 3), (67, 1), (1, 300)]
)
def test_any_shape_on_more_threads_than_rows(n, d, layout):
    rng = np.random.default_rng(n + d)
    X, y = rng.normal(size=(n, d)), np.where(rng.random(n) < 0.5, -1.0, 1.0)
    model = LinearModel(LAYOUTS[layout](X), y, fit_intercept=True)
    w = point(model)
    expected = plain(model.at, w)
    for threads in (1, 2, 8):
        at = compiled(model.at, w, threads=threads)
        assert at.value == pytest.approx(expected.value, rel=1e-12)
        assert_close(at.gradient, expected.gradient)
        assert_close(at.margins, X @ w[:-1] + w[-1])


def test_uneven_rows_are_split_by_entries():
    lengths = np.array([0, 0, 50, 1, 1, 1, 1, 46, 0])
    ends = np.concatenate([[0], np.cumsum(lengths)])
    matrix = (np.ones(100), np.zeros(100, np.uint32), ends.astype(np.uint32))
    with kernels.use(threads=2):
        assert block_ends(matrix, 9, True, 1) == [0, 3, 9]
    with kernels.use(threads=50):
        found = block_ends(matrix, 9, True, 1)
    assert found[0] == 0
    assert found[-1] == 9
    assert found == sorted(found)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("layout", ["dense", "int32"])
def test_nan_and_overflow_come_out_as_from_the_products(layout, loss):
    X, y = np.array([[1.0], [-2.0], [1.0], [0.5], [3.0]]), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    model = model_of(LAYOUTS[layout](X), y, loss)
    for w in (np.nan, np.inf, -np.inf, 1e300, -1e300, 1e155, 800.0, 0.0):
        with np.errstate(all="ignore"):
            before = plain(model.at, [w])
            value, gradient = before.value, before.gradient
        for threads in (1, 2):  # without a warning
            at = compiled(model.at, [w], threads=threads)
            np.testing.assert_allclose(at.value, value, rtol=1e-15)
            if np.isnan(w):  # a value that is not a number says enough: slopes may be anything
                continue
            np.testing.assert_allclose(at.gradient, gradient, rtol=1e-15, atol=1e-15)
            np.testing.assert_allclose(at.derivatives, before.derivatives, rtol=1e-15, atol=1e-300)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_of_the_size_of_x_is_allocated(layout):
    X, y = data("logistic", n=20_000, d=40)
    model = LinearModel(LAYOUTS[layout](X), y)
    w, rows = point(model), np.arange(0, 20_000, 2)
    for call in (model.value_and_gradient, lambda w: model.batch_value_and_gradient(w, rows)):
        compiled(call, w, threads=2)  # the first call loads the kernel
        peaks = []
        for _ in range(3):  # on a busy machine a thread of its own may begin late
            tracemalloc.start()
            compiled(call, w, threads=2)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert min(peaks) < 50_000  # X takes 3 to 6 million bytes, one vector of all rows 160,000


def test_small_data_and_other_layouts_are_left_to_the_products():
    def wanted(X):
        return kernels.wanted(kernels.readable(X))

    large = np.zeros((2500, 1000))  # 20 MB
    with kernels.use("auto", threads=1):
        assert wanted(large)
        assert not wanted(large[1:])
        assert not wanted(large.astype(np.float32))
        assert not wanted(np.asfortranarray(large))
        assert not wanted(np.zeros((2500, 2000))[:, :1000])  # rows with gaps
    with kernels.use("always"):
        assert wanted(large[1:])
        assert not wanted(np.asfortranarray(large))
    with kernels.use("never"):
        assert not wanted(large)


def test_settings_hold_within_their_block():
    before = kernels.threads()
    with kernels.use("never", threads=5):
        assert kernels.threads() == 5
        with kernels.use(threads=3):
            assert kernels.threads() == 3
            assert not kernels.wanted(kernels.Readable(1 << 30, 10, sparse=False, bytes=1 << 33))
        assert kernels.threads() == 5
    assert kernels.threads() == before
    with pytest.raises(KeyError), kernels.use(threads=5):
        raise KeyError
    assert kernels.threads() == before
    with pytest.raises(ValueError, match=r"mode must be .*'allways'; did you mean 'always'"):
        kernels.use("allways").__enter__()
    with pytest.raises(ValueError, match="threads must be a whole number >= 1, but it is 0"):
        kernels.use(threads=0).__enter__()
    with pytest.raises(TypeError, match="threads must be a whole number"):
        kernels.use(threads=1.5).__enter__()


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
def test_the_usual_variables_limit_the_threads(name):
    code = "from accelegrad import kernels; print(kernels.threads())"
    names = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    assert run_python(code, **(dict.fromkeys(names, "") | {name: "1"})) == "1"


def test_where_numba_does_not_compile_kernels_are_not_used():
    code = """
import numpy as np
from accelegrad import LinearModel, kernels
with kernels.use("always"):
    print(LinearModel(np.eye(2), np.ones(2), "squared").value(np.ones(2)))
"""
    assert run_python(code, NUMBA_DISABLE_JIT="1") == "0.0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_threads_of_its_own():
    code = """
import os, warnings, numpy as np
from accelegrad import kernels
from accelegrad import LinearModel
warnings.simplefilter("ignore")
kernels.LEAST_WORK = 1
model = LinearModel(np.ones((1000, 3)), np.ones(1000))
with kernels.use("always", threads=2):
    value = model.value(np.ones(3))
    child = os.fork()
    if child == 0:
        os._exit(0 if model.value(np.ones(3)) == value else 1)
    print(os.waitpid(child, 0)[1])
"""
    assert run_python(code) == "0"


@pytest.mark.parametrize("d", [5, 30])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_where_arrays_are_in_memory_does_not_matter(d, loss):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, d)), np.sign(rng.standard_normal(300))
    model, x = LinearModel(X, y, loss, l2=0.01), rng.standard_normal(d)
    seen, others = set(), []
    with kernels.use("always"):
        for _ in range(60):
            others.append(np.empty(rng.integers(1, 300)))
            first = rng.integers(8)
            w = np.empty(d + 8)[first : first + d]
            w[:] = x
            at = model.at(w)
            seen.add((at.value, at.gradient.tobytes(), at.margins.tobytes()))
    assert len(seen) == 1


KINKED = [name for name, entry in TABLE.items() if not entry.smooth]


@numba.njit(error_model="numpy")
def at_margins(loss, margins, y, values, slopes):
    """Fill in values and slopes, those of the logistic loss also by the function for them alone."""
    for i in range(margins.size):
        values[i], slopes[0, i] = loss_and_slope(loss, margins[i], y)
        slopes[1, i] = logistic_slope(margins[i], y) if loss is None else slopes[0, i]


def compiled_losses(loss, margins, y):
    values, slopes = np.empty(margins.size), np.empty((2, margins.size))
    at_margins(for_kernels(loss.shape), margins, y, values, slopes)
    np.testing.assert_array_equal(*slopes)
    return values, slopes[0]


def margins_and_targets(loss):
    """Return pairs with margins everywhere, at and next to where the formula changes."""
    changes = [0.0, 0.25, 0.8, 0.4, 0.65, 0.12, 0.28, 1.0, 2.0]
    near = np.concatenate([[c, np.nextafter(c, 9), np.nextafter(c, -9)] for c in changes])
    margins = np.concatenate([np.linspace(-3, 3, 121), near, -near, [-800.0, 800.0, 1e12, -1e12]])
    for y in (-1.0, 1.0) if loss.classification else (-1.0, 0.0, 0.25, 2.0):
        yield margins + (0.0 if loss.classification else y), y


@pytest.mark.parametrize(
    ("name", "smoothing"),
    [*((name, 0.0) for name in TABLE), *((name, mu) for name in KINKED for mu in (0.4, 1e-9))],
)
def test_values_and_slopes_are_those_of_the_losses(name, smoothing):
    loss = make_loss(name, **row_sums.EXTRAS).smoothed(smoothing)
    for margins, y in margins_and_targets(loss):
        found_value, found_slope = compiled_losses(loss, margins, y)
        value, slope = loss.value_and_derivative(margins, np.full(margins.size, y))
        # An exponential, a logarithm and a sum: on each side some three roundings of eps.
        np.testing.assert_allclose(found_value, value, rtol=2e-15, atol=1e-300)
        np.testing.assert_allclose(found_slope, slope, rtol=2e-15, atol=1e-300)
