"""Files that are written whole or not at all."""

import os
import stat
import subprocess
import sys

import pytest

from accelegrad.files import whole_file


def test_a_file_takes_its_place_when_it_is_complete(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with whole_file(path) as file:
        file.write(b"after")
        file.flush()
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


def test_an_exception_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def interrupted():
        with whole_file(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_it_is_as_public_as_any_other_new_file(tmp_path):
    plain, whole = tmp_path / "plain", tmp_path / "whole"
    plain.write_bytes(b"")
    with whole_file(whole) as file:
        file.write(b"")
    assert stat.S_IMODE(whole.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_file_that_was_private_stays_private(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    path.chmod(0o600)
    with whole_file(path) as file:
        file.write(b"after")
    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    real.write_bytes(b"before")
    link.symlink_to(real)
    with whole_file(link) as file:
        file.write(b"after")
    assert link.is_symlink()
    assert real.read_bytes() == b"after"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link"]
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


def test_the_longest_name(tmp_path):
    path = tmp_path / ("n" * 255)
    with whole_file(path) as file:
        file.write(b"content")
    assert path.read_bytes() == b"content"


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
