"""Files that are written whole or not at all."""

import errno
import io
import os
import stat
import subprocess
import sys
import tempfile
from contextlib import nullcontext

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.cli.main import main
from accelegrad.files import whole_file
from accelegrad.sklearn.model_file import load_model


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_file_takes_its_place_when_it_is_complete_and_else_not(tmp_path, error):
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def write():
        with whole_file(path) as file:
            file.write(b"after")
            file.flush()
            assert path.read_bytes() == b"before"
            if error:
                raise error

    with pytest.raises(error) if error else nullcontext():
        write()
    assert path.read_bytes() == (b"before" if error else b"after")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="permissions and links are POSIX's")
def test_permissions_and_links_are_kept(tmp_path):
    names = ("plain", "whole", "private", "link")
    plain, whole, private, link = (tmp_path / name for name in names)
    (tmp_path / "folder").mkdir()
    real = tmp_path / "folder" / "real"
    plain.touch()
    private.touch(0o600)
    real.write_bytes(b"before")
    link.symlink_to(real)
    for path in (whole, private, link):
        with whole_file(path) as file:
            file.write(b"after")
    assert link.is_symlink()
    assert real.read_bytes() == private.read_bytes() == b"after"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (plain, whole, private)]
    assert modes == [modes[0], modes[0], 0o600]
    assert len(list(tmp_path.iterdir())) == 5
    assert list((tmp_path / "folder").iterdir()) == [real]


@pytest.mark.skipif(os.name != "posix", reason="pipes in the file system are POSIX's")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with whole_file(pipe) as file:
            file.write(b"through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="there is no /dev/stdout")
def test_standard_output_that_goes_to_a_file_is_not_replaced(tmp_path):
    code = (
        "import sys; from pathlib import Path; from accelegrad.files import whole_file\n"
        "print('before')\n"
        "with whole_file(Path('/dev/stdout')) as file: file.write(b'content\\n')\n"
        "print('after')\n"
    )
    with (tmp_path / "output").open("wb") as output:
        subprocess.run([sys.executable, "-c", code], stdout=output, check=True)
    assert (tmp_path / "output").read_text().split() == ["before", "content", "after"]
    assert list(tmp_path.iterdir()) == [tmp_path / "output"]


FULL = os.strerror(errno.ENOSPC)


class FailsOnce(io.FileIO):
    """A file on a disk that is full at one write, and has room again at the next."""

    left = 0  # writes of all files until then

    def __init__(self, handle, mode):
        super().__init__(handle, mode)

    def write(self, content):
        FailsOnce.left -= 1
        if FailsOnce.left == 0:
            raise OSError(errno.ENOSPC, FULL)
        return super().write(content)


def failure(path, which):
    """Write a checkpoint where one write fails, and return the error."""
    FailsOnce.left = which
    options = {"method": "accelegrad", "max_iter": 4, "checkpoint": path}
    try:
        ag.minimize(lambda x: (x @ x, 2.0 * x), np.ones(3), **options)
    except OSError as error:
        return error
    return None


def test_a_full_disk_at_any_write_loses_nothing(tmp_path, monkeypatch):
    path, which = tmp_path / "file", 1
    assert failure(path, 0) is None
    before = path.read_bytes()
    monkeypatch.setattr(os, "fdopen", FailsOnce)
    while error := failure(path, which):
        assert error.errno == errno.ENOSPC
        assert f"{path} is as it was before: {FULL}" in str(error)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]
        which += 1
    assert FailsOnce.left > 0  # there were fewer writes
    assert list(tmp_path.iterdir()) == [path]
    assert which > 5
    path.unlink()
    assert "file was not written: " in str(failure(path, 1))
    assert not list(tmp_path.iterdir())


def test_a_model_that_cannot_be_written_is_not_lost(tmp_path, monkeypatch, capsys):
    """The disk is full, but the temporary folder is on another one."""
    data, temporary = tmp_path / "rows.svm", tmp_path / "temporary"
    data.write_text("1 1:1\n-1 1:-1\n1 1:2\n-1 2:1\n")
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(os, "fdopen", FailsOnce)
    FailsOnce.left, path = 1, tmp_path / "model.agm"
    assert main(["fit", str(data), "--out", str(path), "--no-progress"]) == 1
    told = capsys.readouterr().err
    assert f"model.agm was not written: {FULL}" in told
    [rescued] = temporary.glob("*/model.agm")
    assert f"The model is in {rescued} instead." in told
    assert load_model(rescued).coef_.shape == (1, 2)
    assert not path.exists()
