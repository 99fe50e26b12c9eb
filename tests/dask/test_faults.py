"""What goes wrong on clusters: processes are killed, stopped, added and taken away in mid-run."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from functools import partial

import dask
import numpy as np
import psutil
import pytest
from dask import delayed
from distributed import Client
from numpy.testing import assert_allclose, assert_array_equal

import accelegrad as ag
from accelegrad.dask import RowModel, WorkerTimeoutError

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dask")]

N, D = 400, 5
OPTIONS = dict(loss="logistic", l2=1e-3, fit_intercept=True)
RUN = dict(method="accelegrad-newton", rtol=1e-10, rng=0)
LONG = 3600.0  # seconds: no machine is so busy, so that only what hangs takes as long


@pytest.fixture
def client(dask_processes_client):
    return dask_processes_client


def plain_data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    return X, np.where(X @ np.arange(D) + 2 * rng.standard_normal(N) > 0.5, 1.0, -1.0)


def read(part):
    """What workers read blocks with: they do it again where these are lost."""
    X, y = plain_data()
    rows = np.array_split(np.arange(N), 4)[part]
    return X[rows], y[rows]


def model_of(client, **options):
    return RowModel([delayed(read)(part) for part in range(4)], client=client, **OPTIONS, **options)


def minimum():
    X, y = plain_data()
    return ag.minimize(ag.StreamedModel([(X, y)], **OPTIONS), **RUN)


def run_and(model, after, action, **options):
    seen = []

    def callback(x):
        seen.append(x)
        if len(seen) == after:
            action()

    return ag.minimize(model, callback=callback, **RUN, **options)


def die(X, shares, victim):
    """What a worker does in mid-task: it is killed, if it is the one."""
    if os.getpid() == victim:
        os.kill(victim, signal.SIGKILL)


def test_a_killed_worker_changes_nothing(client):
    victim = min(client.run(os.getpid).values())
    expected, model = minimum(), model_of(client)
    result = run_and(model, 2, lambda: model.over_chunks(partial(die, victim=victim)))
    assert result.success
    assert_allclose(result.x, expected.x, rtol=0, atol=1e-9)
    # Once more, with rows that have to be read again if they were not.
    assert_allclose(model.value(expected.x), expected.fun, rtol=1e-12)
    assert victim not in client.run(os.getpid).values()


def test_workers_join_and_leave(dask_processes, client):
    expected, cluster = minimum(), dask_processes
    cluster.scale(3)
    model = model_of(client)
    result = run_and(model, 1, lambda: cluster.scale(1))
    assert result.success
    assert_allclose(result.x, expected.x, rtol=0, atol=1e-9)
    cluster.scale(2)
    client.wait_for_workers(2, timeout=LONG)
    assert_allclose(model.value(expected.x), expected.fun, rtol=1e-12)


def test_a_worker_that_hangs_is_named(client):
    model = model_of(client)
    workers = client.run(os.getpid)
    address, victim = next(iter(workers.items()))
    os.kill(victim, signal.SIGSTOP)
    try:
        for calls in (True, False):
            timeout, named = 0.5, []
            # On a busy machine the other worker may be late too, but in the end it is not.
            while named != [address]:
                timeout = model.cluster.timeout = 2 * timeout
                with (
                    dask.config.set({"accelegrad.calls": calls}),
                    pytest.raises(WorkerTimeoutError, match=f"timeout={timeout:g} sec") as error,
                ):
                    model.value(np.zeros(D + 1))
                named = [a for a in workers if a in str(error.value)]
                assert address in named
    finally:
        os.kill(victim, signal.SIGCONT)
    model.cluster.timeout = None
    assert np.isfinite(model.value(np.zeros(D + 1)))


def interrupt(X, shares, process, sent, arrived):
    """What a worker does in mid-task: it presses Ctrl-C, once, and waits until that is noticed."""
    try:
        sent.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(process, signal.SIGINT)
    while not arrived.exists():
        time.sleep(0.01)


@pytest.mark.parametrize(("calls", "timeout"), [(True, None), (False, LONG)])
def test_ctrl_c_in_a_round_trip_returns_the_best_point(client, tmp_path, calls, timeout):
    model = model_of(client, timeout=timeout)
    sent, arrived = tmp_path / "sent", tmp_path / "arrived"

    def notice(*_):
        arrived.touch()
        raise KeyboardInterrupt

    press = partial(interrupt, process=os.getpid(), sent=sent, arrived=arrived)
    usual = signal.signal(signal.SIGINT, notice)
    try:
        with dask.config.set({"accelegrad.calls": calls}):
            result = run_and(model, 2, lambda: model.over_chunks(press))
    finally:
        signal.signal(signal.SIGINT, usual)
    assert result.status is ag.Status.INTERRUPTED
    assert_allclose(model.value(result.x), result.fun, rtol=1e-12)


def cut_off(model, folder, action):
    """Do something in mid-run that loses the rows, and return the checkpoint that is left."""
    checkpoint = folder / "run.ckpt"
    with pytest.raises(ConnectionError, match="can be resumed"):
        run_and(model, 2, action, checkpoint=checkpoint, checkpoint_every=1)
    return checkpoint


def goes_on_bit_for_bit(client, checkpoint):
    whole = ag.minimize(model_of(client), **RUN)
    resumed = ag.minimize(model_of(client), resume=checkpoint, **RUN)
    assert_array_equal(resumed.x, whole.x)
    assert resumed.nit == whole.nit > 2


def test_a_run_goes_on_from_its_checkpoint_where_all_rows_were_forgotten(client, tmp_path):
    model = model_of(client)
    checkpoint = cut_off(model, tmp_path, lambda: client.cancel(model.cluster.parts, force=True))
    goes_on_bit_for_bit(client, checkpoint)


@contextmanager
def started(command, *arguments):
    """Run a command of Dask's in a process of its own."""
    arguments = (sys.executable, "-m", f"distributed.cli.{command}", *map(str, arguments))
    silent = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    paths = os.pathsep.join(filter(None, sys.path))  # where this file is, which it has to import
    process = subprocess.Popen(arguments, env=os.environ | {"PYTHONPATH": paths}, **silent)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def client_of(file, *processes):
    """Return a client of a scheduler that is being started."""
    while True:
        assert [process.poll() for process in processes] == [None] * len(processes)
        if file.exists():
            with suppress(OSError):  # for so many seconds it tries to find a scheduler, also later
                return Client(scheduler_file=file, set_as_default=False, timeout=5)
        time.sleep(0.05)


def test_a_run_goes_on_from_its_checkpoint_where_its_scheduler_was_killed(dask_client, tmp_path):
    found, here = ("--scheduler-file", tmp_path / "scheduler.json"), ("--host", "127.0.0.1")
    worker = ("--nthreads", "1", "--no-nanny", "--no-dashboard")
    with (
        started("dask_scheduler", *found, *here, "--port", 0, "--no-dashboard") as scheduler,
        started("dask_worker", *found, *here, *worker) as one,
        client_of(found[1], scheduler, one) as lost,
    ):
        lost.wait_for_workers(1, timeout=LONG)
        checkpoint = cut_off(model_of(lost), tmp_path, scheduler.kill)
    goes_on_bit_for_bit(dask_client, checkpoint)


def test_no_processes_are_left_behind():
    children = psutil.Process().children(recursive=True)
    assert not [child for child in children if child.status() == psutil.STATUS_STOPPED]
