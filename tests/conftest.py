"""Fixtures for all tests."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import open_page

__all__ = ["open_page"]

# A shell starts background jobs with Ctrl-C ignored, and children inherit that: tests of an
# interruption would wait for it for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Folders whose tests take milliseconds each, which go first, and those that start processes, go last.
FIRST = ("rules", "minimize", "run")
LAST = ("proofs", "lab")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run fast tests first, so that a break shows soon; the order within a folder stays."""

    def lateness(item: pytest.Item) -> tuple[bool, int]:
        folder = Path(item.path).relative_to(Path(__file__).parent).parts[0]
        return item.get_closest_marker("slow") is not None, (folder in LAST) - (folder in FIRST)

    items.sort(key=lateness)


@pytest.fixture(scope="session")
def dask_client() -> Iterator[Any]:
    """Return the active client, of a cluster whose two workers are threads of this process.

    It starts at once, and a round trip takes half of what it takes to other processes. Tests of it
    are in one xdist group.
    """
    from distributed import Client

    options: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": ":0"}
    with Client(processes=False, n_workers=2, **options) as client:
        yield client


@pytest.fixture(scope="session")
def dask_processes() -> Iterator[Any]:
    """Return a cluster of two processes, which tests may spoil: killed ones are started again."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture
def dask_processes_client(dask_processes: Any) -> Iterator[Any]:
    """Return a client of the cluster of two processes, which is not the active one."""
    from distributed import Client

    with Client(dask_processes, set_as_default=False) as client:
        client.wait_for_workers(2)
        yield client
