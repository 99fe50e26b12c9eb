"""Damaged files: a clear error or the right content, never another exception or wrong numbers.

A flipped bit, a size that cannot be true, a checksum that does not fit: in checkpoints, model files
and npz data.
"""

import io
import struct
import tracemalloc
import zipfile
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import accelegrad as ag
from accelegrad.cli.main import main
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


def run(**options):
    return ag.minimize(square, np.ones(2), diameter=4.0, max_iter=6, **options)


@pytest.fixture
def saved_run(tmp_path):
    path = tmp_path / "run.agc"
    ag.minimize(square, np.ones(2), diameter=4.0, max_iter=3, checkpoint=path)
    return path


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.agm"
    save_model(AcceleGradClassifier(random_state=0).fit(X, SIDES), path, feature_names=["a", "b"])
    return path


@contextmanager
def little_memory():
    """Fail where much more memory was asked for than the files here hold."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


def flipped(whole, bit):
    damaged = bytearray(whole)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def one_bit_a_byte(whole, seed):
    bits = np.random.default_rng(seed).integers(8, size=len(whole))
    return [8 * place + int(bit) for place, bit in enumerate(bits)]


def written(value):
    """Return nested content in a form that compares bit for bit."""
    if isinstance(value, dict):
        return {name: written(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return repr(value)


def assert_noticed(path, bits, load, error):
    """Check that each flipped bit is an error of this kind or changes nothing that is read."""
    whole, right = path.read_bytes(), load()
    noticed = 0
    for bit in bits:
        path.write_bytes(flipped(whole, bit))
        try:
            got, message = load(), ""
        except error as caught:
            got, message = right, str(caught)
            noticed += 1
        assert got == right, f"bit {bit} changes what is read, and nothing is said"
        assert not message or str(path) in message
    assert noticed > len(bits) // 2


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


# Flipped bits


def loaded(model):
    estimator = load_model(model)
    return estimator.predict(X).tolist(), estimator.coef_.tobytes(), estimator.get_params()


def test_a_bit_of_every_other_byte_of_a_model_file(model):
    bits = one_bit_a_byte(model.read_bytes(), seed=0)[::2]
    assert_noticed(model, bits, lambda: loaded(model), ArchiveError)


def test_a_run_that_resumes_from_a_flipped_bit(saved_run):
    def load():
        result = run(resume=saved_run)
        return result.x.tobytes(), result.fun, result.gap, result.nit

    bits = one_bit_a_byte(saved_run.read_bytes(), seed=2)
    # The zip directory, which stands at the end, and some of what is before.
    assert_noticed(saved_run, bits[-900::4] + bits[::40], load, ag.CheckpointError)


@pytest.mark.parametrize(("kind", "compressed"), [("dense", False), ("csr", True)])
def test_a_bit_of_every_third_byte_of_an_npz_table(tmp_path, kind, compressed):
    path = tmp_path / "table.npz"
    rows = X.round(1)
    if kind == "dense":
        arrays: dict[str, Any] = {"X": rows}
    else:
        stored = sp.csr_matrix(rows)
        arrays = {name: getattr(stored, name) for name in ("data", "indices", "indptr", "shape")}
        arrays["format"] = kind
    (np.savez_compressed if compressed else np.savez)(path, y=SIDES, **arrays)

    def load():
        blocks = list(open_table(path).blocks(7))
        dense = [part.X.toarray() if sp.issparse(part.X) else part.X for part in blocks]
        return np.concatenate(dense).tobytes(), np.concatenate([part.y for part in blocks]).tolist()

    assert_noticed(path, one_bit_a_byte(path.read_bytes(), seed=3)[::3], load, DataError)


# Sizes that cannot be true


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


HUGE = [(10**12,), (2**62, 2**62), (10**30,), (0, 2**62), (-2, -1)]
"""Shapes of 16 bytes of numbers that claim terabytes, or nonsense."""


@pytest.mark.parametrize("shape", HUGE)
def test_an_array_that_claims_more_than_its_file(model, saved_run, shape):
    with little_memory():
        for path in (model, saved_run):
            rewritten(path, {"a0.npy": npy(shape)})
        with pytest.raises(ArchiveError, match="'a0'"):
            load_model(model)
        with pytest.raises(ag.CheckpointError, match="'a0'"):
            run(resume=saved_run)


@pytest.mark.parametrize("shape", [(1,), (0,)])
def test_an_array_that_claims_less_than_its_file(model, shape):
    # What is not read is not checked: the checksum is of the whole entry.
    rewritten(model, {"a0.npy": npy(shape)})
    with pytest.raises(ArchiveError, match="'a0'"):
        load_model(model)


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
    np.savez(path, X=X, y=SIDES)
    rewritten(path, {"X.npy": content})
    with pytest.raises(DataError):
        open_table(path).whole()


@pytest.mark.parametrize("shape", HUGE)
@pytest.mark.parametrize("name", ["X", "y", "indices"])
def test_npz_data_that_claim_more_than_their_file(tmp_path, name, shape):
    path = tmp_path / "table.npz"
    rows = sp.csr_matrix(X)
    sparse = {part: getattr(rows, part) for part in ("data", "indices", "indptr", "shape")}
    np.savez(path, y=X[:, 0], **({"X": X} if name in "Xy" else sparse))
    rewritten(path, {f"{name}.npy": npy(shape, kind="<i8" if name.startswith("i") else "<f8")})
    with little_memory(), pytest.raises(DataError, match=str(path)):
        open_table(path).whole()


def test_a_sparse_shape_that_nothing_bears_out(tmp_path):
    path = tmp_path / "table.npz"
    for kind in ("csr", "csc", "coo", "dia"):
        for shape in ([10**13, 2], [30, 10**13], [-30, 2], [30], [30, 2, 1]):
            stored: Any = sp.csr_matrix(X).asformat(kind)
            parts = ("data", "indices", "indptr", "row", "col", "offsets")
            arrays = {name: getattr(stored, name) for name in parts if hasattr(stored, name)}
            np.savez(path, **arrays, format=kind, shape=np.array(shape), y=SIDES)
            with little_memory(), pytest.raises(DataError, match=str(path)):
                open_table(path).whole()


def with_sizes(path, name, size):
    """Let the zip directory claim that an entry has so many bytes when inflated."""
    whole = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        entries = [entry.filename for entry in file.infolist()]
    place = -1
    for entry in entries:
        place = whole.index(b"PK\x01\x02", place + 1)
        if entry == name:
            whole[place + 24 : place + 28] = struct.pack("<I", size)
    path.write_bytes(bytes(whole))


@pytest.mark.parametrize("compressed", [False, True])
def test_an_entry_that_claims_more_than_its_file(tmp_path, compressed):
    path = tmp_path / "table.npz"
    (np.savez_compressed if compressed else np.savez)(path, X=X, y=SIDES)
    # Both say the same, so that only the file itself can tell.
    rewritten(
        path,
        {"X.npy": npy((130_000_000, 2))},
        zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED,
    )
    with_sizes(path, "X.npy", 128 + 16 * 130_000_000)
    with little_memory(), pytest.raises(DataError, match=r"'X'|damaged"):
        open_table(path).whole()


@pytest.mark.parametrize("shape", HUGE)
def test_npy_data_that_claim_more_than_their_file(tmp_path, shape):
    long, wide = tmp_path / "X.npy", tmp_path / "y.npy"
    long.write_bytes(npy(shape))
    np.save(wide, np.zeros(2))
    with little_memory(), pytest.raises(ValueError, match=r"X\.npy|equal lengths|no rows"):
        AcceleGradRegressor().fit((long, wide))


def test_the_command_says_it_in_a_line(tmp_path, model, capsys):
    path = tmp_path / "table.npz"
    np.savez(path, X=X, y=SIDES)
    rewritten(path, {"X.npy": npy((10**12, 2))})
    for command in (["fit", path, "--out", tmp_path / "new.agm"], ["predict", model, path]):
        assert main([str(word) for word in command]) == 1
        told = capsys.readouterr().err
        assert "'X'" in told
        assert len(told.splitlines()) == 1
    rewritten(model, {"a0.npy": npy((10**12,))})
    assert main(["inspect", str(model)]) == 1
    assert "damaged" in capsys.readouterr().err


def test_a_sparse_model_with_indices_out_of_range(tmp_path):
    path = tmp_path / "model.agm"
    estimator = AcceleGradRegressor(penalty="l1", alpha=0.01).fit(X, X[:, 1]).sparsify()
    estimator.coef_.indices[0] = 1_000_000
    save_model(estimator, path)
    with pytest.raises(ArchiveError, match="damaged"):
        load_model(path)
