"""Damaged files: a clear error or the right content, never another exception or wrong numbers."""

import io
import struct
import tracemalloc
import zipfile
from contextlib import contextmanager
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

import accelegrad as ag
from accelegrad.files import archive
from accelegrad.files.archive import ArchiveError
from accelegrad.files.formats import open_table
from accelegrad.files.tables import DataError
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor
from accelegrad.sklearn.model_file import load_model, save_model

RNG = np.random.default_rng(5)
X = RNG.standard_normal((30, 2))
SIDES = np.where(X[:, 0] > 0.1, "yes", "no")
# More than any file here holds, less than a single wrong size would ask for.
MOST_MEMORY = 64_000_000


def square(x):
    return 0.5 * float(x @ x), x


def run(max_iter=6, **options):
    return ag.minimize(square, np.ones(2), diameter=4.0, max_iter=max_iter, **options)


@pytest.fixture
def saved_run(tmp_path):
    run(max_iter=3, checkpoint=tmp_path / "run.agc")
    return tmp_path / "run.agc"


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.agm"
    save_model(AcceleGradClassifier(random_state=0).fit(X, SIDES), path, feature_names=["a", "b"])
    return path


def npz(path, rows, y, kind="csr", save=np.savez, **changes):
    """Write rows as `scipy.sparse.save_npz` does, or as an array X, and targets."""
    arrays = {"X": rows}
    if kind != "dense":
        sp.save_npz(path, sp.csr_matrix(rows).asformat(kind))
        arrays = dict(np.load(path))
    save(path, **arrays | {"y": y} | changes)


@contextmanager
def little_memory():
    """Fail where much more memory was asked for than the files here hold."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


def assert_noticed(path, load, error, seed, step, mostly=0.5):
    """Flip a bit of some bytes: each is an error of this kind or changes nothing that is read."""
    whole, right = path.read_bytes(), load()
    bits = np.random.default_rng(seed).integers(8, size=len(whole))
    places = np.arange(len(whole))[step]
    noticed = 0
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(bits[place])
        path.write_bytes(bytes(damaged))
        try:
            got, message = load(), str(path)
        except error as caught:
            got, message = right, str(caught)
            noticed += 1
        assert got == right, f"a bit of byte {place} changes what is read, and nothing is said"
        assert str(path) in message
    assert noticed > mostly * places.size


@pytest.mark.parametrize("kind", ["<f8", ">f4", "?", "<U3"])
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 4)])
def test_arrays_of_every_kind_and_shape_come_back(tmp_path, kind, shape):
    form = archive.Format("test", 1, "test file")
    array = np.arange(np.prod(shape)).reshape(shape).astype(kind)
    for given in (array, np.asfortranarray(array), array.T):
        archive.save(tmp_path / "file", form, {"array": given})
        got = archive.load(tmp_path / "file", form)["array"]
        assert (got.dtype, got.shape) == (given.dtype, given.shape)
        np.testing.assert_array_equal(got, given)
        assert got.flags.writeable


def test_flipped_bits_of_a_model_file(model):
    def load():
        estimator = load_model(model)
        return estimator.predict(X).tolist(), estimator.coef_.tobytes(), estimator.get_params()

    assert_noticed(model, load, ArchiveError, 0, slice(None, None, 2))


# The zip directory, which stands at the end, and some of what is before.
@pytest.mark.parametrize("step", [slice(-900, None, 4), slice(None, None, 40)])
def test_a_run_that_resumes_from_a_flipped_bit(saved_run, step):
    def load():
        result = run(resume=saved_run)
        return result.x.tobytes(), result.fun, result.gap, result.nit

    assert_noticed(saved_run, load, ag.CheckpointError, 2, step)


@pytest.mark.parametrize(("kind", "compressed"), [("dense", False), ("csr", True)])
def test_flipped_bits_of_an_npz_table(tmp_path, kind, compressed):
    path = tmp_path / "table.npz"
    npz(path, X.round(1), SIDES, kind, np.savez_compressed if compressed else np.savez)

    def load():
        Xs, ys = zip(*open_table(path).blocks(7), strict=True)
        dense = [part.toarray() if sp.issparse(part) else part for part in Xs]
        return np.concatenate(dense).tobytes(), np.concatenate(ys).tolist()

    assert_noticed(path, load, DataError, 3, slice(None, None, 3))


def test_flipped_bits_of_a_parquet_table(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="the extra files is not installed")
    parquet, path = pytest.importorskip("pyarrow.parquet"), tmp_path / "table.parquet"
    columns = {"a": X[:, 0], "t": X[:, 1]}
    parquet.write_table(pyarrow.table(columns), path, write_page_checksum=True)

    def load():  # names and numbers of rows are not part of any checksum
        return {block.X.shape[1] for block in open_table(path).blocks(7)}

    assert_noticed(path, load, DataError, 1, slice(None, None, 5), mostly=0.25)


def npy(shape, kind="<f8", content=b"\0" * 16):
    """Return a .npy file whose header may claim anything."""
    file = io.BytesIO()
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + content


def rewritten(path, changes, method=zipfile.ZIP_STORED):
    """Write a zip archive anew, with other entries in place of some, and right checksums."""
    with zipfile.ZipFile(path) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in {**entries, **changes}.items():
            file.writestr(name, content)


#: Shapes of 16 bytes of numbers that claim terabytes, or nonsense
HUGE = [(10**12,), (2**62, 2**62), (10**30,), (0, 2**62), (-2, -1)]


# What is not read of a smaller array is not checked: the checksum is of the whole entry.
@pytest.mark.parametrize("shape", [*HUGE, (1,), (0,)])
def test_an_array_that_claims_more_or_less_than_its_file(model, saved_run, shape):
    with little_memory():
        for path in (model, saved_run):
            rewritten(path, {"a0.npy": npy(shape)})
        with pytest.raises(ArchiveError, match="'a0'"):
            load_model(model)
        with pytest.raises(ag.CheckpointError, match="'a0'"):
            run(resume=saved_run)


HEADERS = [
    b"{'descr': '<f8', 'fortran_order': False, 'shape': ((((((((",
    b"{[]: 1}",
    b"'" * 3,
    b"(" * 5000,
    b"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,), }",
    b"{'descr': '<U0', 'fortran_order': False, 'shape': (999999999999,), }",
    b"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
    b"\xff\xfe",
]


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_that_is_nonsense(tmp_path, model, header):
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 16
    rewritten(model, {"a0.npy": content})
    with pytest.raises(ArchiveError):
        load_model(model)
    path = tmp_path / "table.npz"
    npz(path, X, SIDES, "dense")
    rewritten(path, {"X.npy": content})
    with pytest.raises(DataError):
        open_table(path).whole()


@pytest.mark.parametrize("shape", HUGE)
@pytest.mark.parametrize("name", ["X", "y", "indices"])
def test_npz_data_that_claim_more_than_their_file(tmp_path, name, shape):
    path = tmp_path / "table.npz"
    npz(path, X, X[:, 0], "dense" if name in "Xy" else "csr")
    rewritten(path, {f"{name}.npy": npy(shape, kind="<i8" if name.startswith("i") else "<f8")})
    with little_memory(), pytest.raises(DataError, match=str(path)):
        open_table(path).whole()


def test_a_sparse_shape_that_nothing_bears_out(tmp_path):
    path, shapes = tmp_path / "table.npz", ([10**13, 2], [30, 10**13], [-30, 2], [30], [30, 2, 1])
    for kind, shape in product(("csr", "csc", "coo", "dia"), shapes):
        npz(path, X, SIDES, kind, shape=np.array(shape))
        with little_memory(), pytest.raises(DataError, match=str(path)):
            open_table(path).whole()


@pytest.mark.parametrize("compressed", [False, True])
def test_an_entry_that_claims_more_than_its_file(tmp_path, compressed):
    path, rows = tmp_path / "table.npz", 130_000_000
    (np.savez_compressed if compressed else np.savez)(path, X=X, y=SIDES)
    # Both the array and the zip directory say the same, so that only the file itself can tell.
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    rewritten(path, {"X.npy": npy((rows, 2))}, method)
    whole = bytearray(path.read_bytes())
    place = whole.index(b"PK\x01\x02")  # of the first entry, X
    whole[place + 24 : place + 28] = struct.pack("<I", 128 + 16 * rows)
    path.write_bytes(bytes(whole))
    with little_memory(), pytest.raises(DataError, match=r"'X'|damaged"):
        open_table(path).whole()


@pytest.mark.parametrize("shape", HUGE)
def test_npy_data_that_claim_more_than_their_file(tmp_path, shape):
    long, wide = tmp_path / "X.npy", tmp_path / "y.npy"
    np.save(wide, np.zeros(2))
    with pytest.raises(FileNotFoundError, match=r"X\.npy"):
        AcceleGradRegressor().fit((long, wide))
    long.write_bytes(npy(shape))
    with little_memory(), pytest.raises(ValueError, match=r"X\.npy|equal lengths|no rows"):
        AcceleGradRegressor().fit((long, wide))


def test_a_sparse_model_with_indices_out_of_range(tmp_path):
    path = tmp_path / "model.agm"
    estimator = AcceleGradRegressor(penalty="l1", alpha=0.01).fit(X, X[:, 1]).sparsify()
    estimator.coef_.indices[0] = 1_000_000
    save_model(estimator, path)
    with pytest.raises(ArchiveError, match="damaged"):
        load_model(path)
