"""A sum over rows on a cluster, from collections or files, against the same sum in memory."""

from uuid import uuid4

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from dask import delayed
from distributed import default_client
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import dump_svmlight_file

import accelegrad as ag
from accelegrad.dask import BlockError, RowModel, read_files
from accelegrad.dask.part import on_part
from accelegrad.proofs.multinomial_dual import Balance

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("dask_client")]

N, D = 600, 8


def plain_data(seed=0, n_features=D):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, n_features)) * (rng.random((N, n_features)) < 0.5)
    return X, np.where(X[:, :D] @ rng.standard_normal(D) + rng.standard_normal(N) > 0.2, 1.0, -1.0)


def blocks_of(X, y, cuts, weight=None):
    parts = np.split(np.arange(N), cuts)
    rows = (X, y) if weight is None else (X, y, weight)
    return [delayed(tuple(column[p] for column in rows)) for p in parts]


def iterates(model, **options):
    points = []
    result = ag.minimize(model, callback=lambda x: points.append(x.copy()), rng=3, **options)
    return np.array(points), result


NEWTON = "accelegrad-newton"
WAYS = {
    "newton": dict(loss="logistic", method=NEWTON, rtol=1e-9),
    "newton, intercept": dict(loss="logistic", method=NEWTON, fit_intercept=True, rtol=1e-9),
    # At 0 all rows are at a corner of the first smoothed loss: rounding would decide which side.
    "smoothed": dict(loss="hinge", method=NEWTON, x0=np.full(D, 0.01), max_iter=8, rtol=1e-3),
    "least squares": dict(loss="squared", method=NEWTON, fit_intercept=True, rtol=1e-9),
    "accelegrad": dict(loss="logistic", diameter=4.0, max_iter=12),
    "minibatches": dict(loss="logistic", batch_size=32, diameter=4.0, max_iter=12),
    "l1": dict(
        fit_intercept=True, penalty=ag.L1(0.01), method="accelegrad", max_iter=12, atol=1e-8
    ),
    "box": dict(loss="hinge", feasible_set=ag.Box(-0.1, 0.1), method="accelegrad", max_iter=12),
}
# Where the first radius is probed for, by differences of values, the rounding of these is multiplied: atol.


def split_options(given):
    given = {"l2": 1e-2, **given}
    model = {name: given.pop(name) for name in ("loss", "fit_intercept", "l2") if name in given}
    return model, given


@pytest.mark.parametrize("way", WAYS)
def test_iterates_are_those_of_one_machine_for_any_blocks(way):
    X, y = plain_data()
    model, run = split_options(WAYS[way])
    atol = run.pop("atol", 1e-10)
    expected, known = iterates(ag.StreamedModel([(X, y)], **model), **run)
    for cuts in ([], [7, 300, 590]):
        found, result = iterates(RowModel(blocks_of(X, y, cuts), **model), **run)
        # Sums in another order: some units of rounding, which a few steps multiply.
        assert_allclose(found, expected, rtol=0, atol=atol)
        assert result.nit == known.nit
        assert_allclose(result.lower_bound, known.lower_bound, rtol=0, atol=1e-9)


#: Met in memory by proximal Newton's method too.
TERMS = {
    "l1": dict(fit_intercept=True, l2=0.0, penalty=ag.L1(0.01)),
    "l1, kinks": dict(loss="absolute", fit_intercept=True, penalty=ag.L1(0.01), max_iter=6),
    "elastic net": dict(loss="squared", penalty=ag.ElasticNet(0.01, 0.1)),
    "box": dict(loss="squared_hinge", feasible_set=ag.Box(-0.1, 0.1)),
}


# With more than 100 columns only some of them move.
@pytest.mark.parametrize(
    ("name", "n_features"), [("l1", D), ("l1, kinks", D), *((name, 150) for name in TERMS)]
)
def test_separate_terms_are_met_by_the_steps_of_one_machine(name, n_features):
    X, y = plain_data(4, n_features=n_features)
    model, given = split_options({"rtol": 1e-6} | TERMS[name])
    expected, known = iterates(ag.LinearModel(X, y, **model), method="proximal-newton", **given)
    rows = sp.csr_matrix(X) if n_features > D else X
    found, result = iterates(RowModel(blocks_of(rows, y, [7, 300]), **model), **given)
    assert result.method == "proximal-newton"
    assert result.success is known.success
    assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert_allclose(result.lower_bound, known.lower_bound, rtol=0, atol=1e-9)


NAMES = [f"x{j}" for j in range(D)]


def frames(X, y, weight):
    frame = dd.from_pandas(pd.DataFrame(X, columns=NAMES).assign(y=y, weight=weight), npartitions=4)
    return frame[NAMES], frame["y"], frame["weight"]


COLLECTIONS = {
    # Blocks along the columns are put together.
    "arrays": lambda X, y, w: (da.from_array(X, chunks=(150, 3)), da.from_array(y, chunks=200), w),
    "frames": frames,
    "delayed": lambda X, y, w: (blocks_of(X, y, [10, 400], w), None, None),
    "futures": lambda X, y, w: (
        default_client().scatter([(X[i::2], y[i::2], w[i::2]) for i in (0, 1)], hash=False),
        *(None, None),
    ),
}


@pytest.mark.parametrize("kind", COLLECTIONS)
def test_all_kinds_of_collections_are_read(kind):
    X, y = plain_data()
    weight = np.random.default_rng(1).uniform(0, 2, N)
    rows, targets, weights = COLLECTIONS[kind](X, y, weight)
    model = RowModel(rows, targets, sample_weight=weights, l2=0.1)
    expected, w = ag.LinearModel(X, y, sample_weight=weight, l2=0.1), np.linspace(-1, 1, D)
    assert model.n_samples == N
    assert_allclose(model.value(w), expected.value(w), rtol=1e-12)
    at = model.at(w)
    assert_allclose(at.gradient, expected.gradient(w), rtol=1e-10, atol=1e-13)
    # The l2 term that the client adds does not reach a worker of its own process.
    there = at.beside(model.with_l2(0.3)).gradient
    assert_allclose(there, expected.with_l2(0.3).gradient(w), rtol=1e-10, atol=1e-13)
    assert_array_equal(model.y, y if kind != "futures" else np.concatenate([y[::2], y[1::2]]))


def workers_of(client, model):
    """Return the number of the worker that holds each part."""
    places = client.who_has(model.cluster.parts)
    order = list(client.nthreads())
    return [order.index(*places[part.key]) for part in model.cluster.parts]


def test_blocks_are_spread_evenly_and_many_put_together(dask_client):
    X, y = plain_data()
    rows, targets = da.from_array(X, chunks=(100, D)), da.from_array(y, chunks=100)
    assert workers_of(dask_client, RowModel(rows, targets, l2=0.1)) == [0, 0, 0, 1, 1, 1]
    last = list(dask_client.nthreads())[1]
    there = dask_client.persist([rows, targets], workers=[last])
    assert workers_of(dask_client, RowModel(*there, l2=0.1)) == [1] * 6
    model = RowModel(blocks_of(X, y, np.arange(0, N, 4)), l2=0.1)  # 151, the first of them empty
    assert len(model.cluster.parts) == 51  # of three blocks each: at most 64
    assert_allclose(model.value(np.ones(D)), ag.LinearModel(X, y, l2=0.1).value(np.ones(D)))


def test_long_points_go_out_once_and_many_sums_come_back_through_a_tree():
    rng = np.random.default_rng(0)
    X = sp.random(N, 20_000, 1e-3, "csr", random_state=0)
    y = np.where(rng.random(N) < 0.5, 1.0, -1.0)
    options = dict(l2=0.1, fit_intercept=True)
    model = RowModel(blocks_of(X, y, np.arange(50, N, 50)), **options)  # 12 blocks
    expected, w = ag.LinearModel(X, y, **options), rng.standard_normal(20_001)
    before = model.cluster.round_trips
    at = model.at(w)
    assert model.cluster.round_trips == before + 1
    assert_allclose(at.value, expected.value(w), rtol=1e-12)
    assert_allclose(at.gradient, expected.gradient(w), rtol=1e-10, atol=1e-14)


@pytest.mark.slow
def test_bits_do_not_depend_on_the_way_to_the_workers(dask_processes_client):
    rng = np.random.default_rng(0)
    X, y = plain_data()
    X = X + 1e-3 * rng.standard_normal((N, D))
    many = blocks_of(X, y, np.arange(60, N, 60))  # 10 blocks: more than are added at once
    points = rng.standard_normal((5, D + 1))
    options, found = dict(client=dask_processes_client, l2=0.1, fit_intercept=True), []
    for calls in (True, False, True):
        with dask.config.set({"accelegrad.calls": calls}):
            model = RowModel(many, **options)
            sums = [[*at.gradient, at.value, at.dual_value] for at in map(model.at, points)]
            run = ag.minimize(model, rtol=1e-9, rng=0)
            found.append(np.concatenate([*sums, run.x, [run.lower_bound]]))
    assert_array_equal(found[1], found[0])
    assert_array_equal(found[2], found[0])


def test_arrays_of_all_arguments_begin_where_numpys_do():
    """Messages put them anywhere, and sums over them would be rounded by where they begin."""
    shifted = np.frombuffer(bytearray(8 * D + 1), dtype=float, offset=1)
    moved = Balance(shifted, 0.0, shifted)
    found = on_part(lambda part, *arguments: arguments, None, shifted, moved, (0, (shifted,)))
    arrays = [found[0], found[1].shift, found[2][1][0]]
    for array in arrays:
        assert array.ctypes.data % 16 == 0
        assert_array_equal(array, shifted)


def refused(X, shares):
    raise ZeroDivisionError(f"of {X.shape[1]} columns")


@pytest.mark.parametrize("calls", [True, False])
def test_what_goes_wrong_on_a_worker_is_raised_here(calls):
    model = RowModel(blocks_of(*plain_data(), [100]), l2=0.1)
    with (
        dask.config.set({"accelegrad.calls": calls}),
        pytest.raises(ZeroDivisionError, match="of 8 columns"),
    ):
        model.over_chunks(refused)


def test_parts_are_found_where_they_were_moved_to(dask_client):
    X, y = plain_data()
    model, expected = RowModel(blocks_of(X, y, [100]), l2=0.1), ag.LinearModel(X, y, l2=0.1)
    model.value(np.ones(D))
    workers = list(dask_client.nthreads())
    for worker in workers:
        dask_client.replicate(model.cluster.parts, n=2)
        dask_client.replicate(model.cluster.parts, n=1, workers=[worker])
        dask_client.replicate(model.cluster.parts, n=1)
        assert_allclose(model.value(np.ones(D)), expected.value(np.ones(D)), rtol=1e-12)


def test_an_evaluation_is_one_round_trip_and_lost_margins_are_computed_again():
    X, y = plain_data()
    model, expected = RowModel(blocks_of(X, y, [100]), l2=0.1), ag.LinearModel(X, y, l2=0.1)
    rng = np.random.default_rng(0)
    p, q, *_ = points = [model.at(rng.standard_normal(D)) for _ in range(20)]
    for at in points:
        at.value, at.gradient, at.squared_slopes  # noqa: B018
    assert model.cluster.round_trips == len(points)
    model.batch_value_and_gradient(np.ones(D), np.arange(20))
    assert model.cluster.round_trips == len(points) + 1
    w = p.w + 0.3 * (q.w - p.w)  # more points than parts keep were evaluated since
    assert_allclose(model.between(p, q, 0.3).value, expected.value(w), rtol=1e-12)


PARTS = [slice(0, 240), slice(240, 400), slice(400, N)]


@pytest.mark.parametrize("kind", ["libsvm", "parquet", "own reader", "npy"])
def test_files_are_read_by_the_workers(kind, tmp_path):
    X, y = plain_data()
    X = X.round(3)
    X[400:, -1] = 0.0  # a LIBSVM file that does not know of the last column
    rows = []
    for number, part in enumerate(PARTS):
        path = tmp_path / f"{number}.{kind}"
        if kind == "libsvm":
            dump_svmlight_file(X[part], y[part], str(path), zero_based=False)
        elif kind == "npy":
            rows.append((tmp_path / f"X{number}.npy", tmp_path / f"y{number}.npy"))
            np.save(rows[-1][0], X[part])
            np.save(rows[-1][1], y[part])
        else:
            frame = pd.DataFrame(X[part], columns=NAMES).assign(label=y[part])
            frame.to_parquet(path.with_suffix(".parquet"))
    if kind == "own reader":
        frame = dd.read_parquet(tmp_path)
        given = frame[NAMES], frame["label"]
    elif kind == "parquet":
        given = (read_files(str(tmp_path / "*.parquet"), target="label", numbers=True),)
    else:
        given = (read_files(rows or tmp_path, split=2 if rows else 1),)
    model, expected = RowModel(*given, l2=0.1), ag.LinearModel(X, y, l2=0.1)
    w = np.linspace(-1, 1, D)
    assert_allclose(model.value(w), expected.value(w), rtol=1e-12)
    assert_allclose(model.gradient(w), expected.gradient(w), rtol=1e-10)


def counted(path, part):
    (path / uuid4().hex).touch()
    X, y = plain_data()
    return X[part], y[part]


def test_rows_are_read_once(tmp_path):
    model = RowModel([delayed(counted, pure=False)(tmp_path, part) for part in PARTS], l2=0.1)
    for w in (np.zeros(D), np.ones(D), -np.ones(D)):
        model.value(w)
    assert len(list(tmp_path.iterdir())) == len(PARTS)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="at least one file"):
        read_files(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_files([tmp_path / "nowhere.csv"])
    np.save(tmp_path / "X.npy", plain_data()[0])
    np.save(tmp_path / "y.npy", np.array([print] * N, dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="Python objects"):
        RowModel(read_files([(tmp_path / "X.npy", tmp_path / "y.npy")]), l2=0.1)


SPOILT = {
    "block 1: X must be finite, but row 3 ": lambda X, y: (
        X + np.where(np.arange(len(X)) == 3, np.nan, 0.0)[:, None],
        y,
    ),
    "block 1 has 5 columns, but block 0 has 8": lambda X, y: (X[:, :5], y),
    "block 1: it has 400 rows": lambda X, y: (X, y[:-1]),
    "block 1: it must be a tuple": lambda X, y: X,
    r"block 1: y must hold the labels -1 and \+1": lambda X, y: (X, y + 1),
}


@pytest.mark.parametrize("message", SPOILT)
def test_errors_name_the_block(message):
    X, y = plain_data()
    blocks = [(X[:200], y[:200]), SPOILT[message](X[200:], y[200:])]
    with pytest.raises(BlockError, match=message):
        RowModel([delayed(block) for block in blocks], l2=0.1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.ones((3, 2)), np.ones(3)), TypeError, "dask.array"),
        (([],), ValueError, "at least one block"),
        (([1, 2],), TypeError, "delayed values or futures"),
        ((da.ones((4, 2), chunks=2),), ValueError, "y must be given"),
    ],
)
def test_other_data_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        RowModel(*arguments)


def test_a_checkpoint_of_other_rows_is_refused(tmp_path):
    X, y = plain_data()
    path = tmp_path / "run.ckpt"
    ag.minimize(RowModel(blocks_of(X, y, [100]), l2=1e-3), checkpoint=path, max_iter=2)
    for rows, targets in ((X, -y), (1.1 * X, y)):
        other = RowModel(blocks_of(rows, targets, [100]), l2=1e-3)
        with pytest.raises(ValueError, match="data"):
            ag.minimize(other, resume=path, max_iter=4)
