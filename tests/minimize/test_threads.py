"""BLAS takes one thread for our own work and the user's number for the user's functions."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config
from threadpoolctl import ThreadpoolController, threadpool_limits

import accelegrad as ag
from accelegrad import kernels
from accelegrad.models.matrix import Products, gram_matrix

D = 500


def _adjustable():
    """Return the libraries that take two threads where they are told to: not all do."""
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    with threadpool_limits(2, user_api="blas"):
        return [library for library in found if library.num_threads == 2]


LIBRARIES = _adjustable()

pytestmark = pytest.mark.skipif(not LIBRARIES, reason="no BLAS whose threads can be set")


def now():
    return {library.num_threads for library in LIBRARIES}


@pytest.fixture(autouse=True)
def two_threads():
    """Let BLAS take two threads, however many cores there are."""
    with threadpool_limits(2, user_api="blas"):
        yield
        assert now() == {2}


def squares(seen):
    def fun(x):
        seen.append(now())
        return float(np.sum((x - 1.0) ** 2)), 2.0 * (x - 1.0)

    return fun


class RecordingBox(ag.Box):
    """One of our sets: its projection is our own work."""

    def __init__(self, seen):
        super().__init__(-2.0 * np.ones(D), 2.0 * np.ones(D))
        self.seen = seen

    def project(self, x):
        self.seen.append(now())
        return super().project(x)


class UsersBox:
    diameter = 4.0 * D**0.5

    def __init__(self, seen):
        self.project = lambda x: (seen.append(now()), np.clip(x, -2.0, 2.0))[1]


def test_own_work_takes_one_thread_and_the_users_functions_theirs():
    fun, own, users, looks = [], [], [], []
    ag.minimize(squares(fun), np.zeros(D), max_iter=20, callback=lambda x: looks.append(now()))
    during = RecordingBox(own)
    own.clear()
    ag.minimize(squares(fun), np.zeros(D), feasible_set=during, max_iter=20)
    ag.minimize(squares(fun), np.zeros(D), feasible_set=UsersBox(users), max_iter=20)
    for seen, expected in ((own, 1), (fun, 2), (users, 2), (looks, 2)):
        assert seen
        assert all(numbers == {expected} for numbers in seen)


def test_a_function_that_minimises_itself_and_fails_at_last():
    inner, outer = [], []

    def fun(x):
        outer.append(now())
        own = []
        ag.minimize(squares(inner), np.zeros(D), feasible_set=RecordingBox(own), max_iter=5)
        assert own[-1] == {1}
        outer.append(now())
        if len(outer) > 3:
            raise RuntimeError("no value")
        return float(np.sum((x - 1.0) ** 2)), 2.0 * (x - 1.0)

    with pytest.raises(RuntimeError, match="no value"):
        ag.minimize(fun, np.zeros(D))
    assert all(numbers == {2} for numbers in [*inner, *outer, now()])


def test_runs_in_several_python_threads():
    """Whichever run ends first, functions see the user's number, and so does what comes later."""
    meet = threading.Barrier(2, timeout=60)
    seen = []

    def run(iterations):
        calls = []

        def fun(x):
            if len(calls) < 5:
                meet.wait()  # both runs are inside of a user's function
            calls.append(now())
            seen.append(calls[-1])
            return float(np.sum((x - 1.0) ** 4)), 4.0 * (x - 1.0) ** 3

        ag.minimize(fun, np.zeros(D), max_iter=iterations)

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(run, (8, 60))) == [None, None]
    assert len(seen) >= 30
    assert all(numbers == {2} for numbers in [*seen, now()])


def test_small_problems_switch_nothing():
    for entries, expected in ((64 * 84, {2}), (kernels.FEWEST_SPLIT, {1})):
        with kernels.single_for(entries):
            assert now() == expected


def _seen_in_a_worker():
    seen = []
    ag.minimize(squares(seen), np.zeros(D), max_iter=5)
    return seen, now(), kernels.threads()


def test_a_worker_of_joblib_keeps_its_limit():
    with parallel_config("loky", inner_max_num_threads=1):
        answers = Parallel(n_jobs=2)(delayed(_seen_in_a_worker)() for _ in range(2))
    for seen, after, kernel_threads in answers:
        assert after == {1}
        assert kernel_threads == 1
        assert all(numbers == {1} for numbers in seen)


def test_large_work_is_shared_by_threads_that_sleep():
    """Parts of the rows, one per thread, give the same sums up to rounding, and BLAS stays at 1."""
    rng = np.random.default_rng(0)
    X, weights = rng.standard_normal((3000, 320)), rng.uniform(0.5, 1.0, 3000)
    W, theta = rng.standard_normal((320, 200)), rng.standard_normal((3000, 200))
    rows = np.sort(rng.choice(3000, 2900))
    found = {}
    for count in (1, 2, 3):
        with kernels.use(threads=count), kernels.single_for(kernels.FEWEST_SPLIT):
            products = Products(X)
            found[count] = [
                gram_matrix(X, None, weights, intercept=True),
                gram_matrix(X, None, np.ones(3000), intercept=False),
                gram_matrix(X, rows, weights[:2900], intercept=False),
                products.forward(W),
                products.backward(theta),
            ]
    assert kernels.LEAST_PRODUCTS * 2 <= 2900 * 320 * 320 // 2
    for count in (2, 3):
        for one, several in zip(found[1], found[count], strict=True):
            # sums of 3000 terms of size 1, in another order
            np.testing.assert_allclose(several, one, rtol=1e-12, atol=1e-11)
