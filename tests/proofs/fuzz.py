"""`make fuzz MINUTES=30`: random cases in several processes until the time is up.

    python tests/proofs/fuzz.py --minutes 30 --processes 2 [--seed S]
    python tests/proofs/fuzz.py --only SEED [--check NAME]

A failing seed is printed with the command that runs just it again. The exit code is 1 if there was any.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import importlib
import multiprocessing
import queue
import resource
import secrets
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
if str(HERE) in sys.path:  # a script's own folder: its modules are those of the package `proofs`
    sys.path.remove(str(HERE))
sys.path.insert(0, str(HERE.parent))

TIME_LIMIT = 60  # seconds of the processor for one case, compiling included
MEMORY = 6 << 30  # bytes of addresses that a process may take
#: What is checked, and its share.
CHECKS = {"checks": 8, "battery": 3, "parts": 2, "polyhedra": 1, "estimators": 2}


class HungError(BaseException):
    """A case took too long; no code under test catches it."""


class Report(NamedTuple):
    """What a worker says of a case."""

    worker: int
    check: str
    seed: int
    kind: str | None = None  # of finding: none yet where a case begins, an empty one if all is well
    text: str = ""


def check_of(name: str) -> Any:
    """Return the function check(seed) of a module."""
    return importlib.import_module(f"proofs.{name}").check


def guarded(check: Any, seed: int) -> tuple[str, str]:
    """Run one case; return the kind of finding and its text, both empty if all is well."""
    signal.signal(signal.SIGPROF, _hung)
    signal.setitimer(signal.ITIMER_PROF, TIME_LIMIT)
    try:
        check(seed)
    except HungError:
        where = traceback.format_exc(limit=-4)
        return "hung", f"no end after {TIME_LIMIT} seconds of the processor\n{where}"
    except AssertionError as error:
        return str(getattr(error, "kind", "AssertionError")), str(error)
    except Exception as error:
        return f"{type(error).__name__} in the fuzz itself", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "", ""


def _hung(*_: Any) -> None:
    raise HungError


def work(worker: int, first: int, step: int, until: float, reports: Any) -> None:
    """Run cases one after the other and report."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    turns, seed = [name for name, share in CHECKS.items() for _ in range(share)], first
    parent = multiprocessing.parent_process()
    while time.time() < until and (parent is None or parent.is_alive()):
        name = turns[seed // step % len(turns)]
        reports.put(Report(worker, name, seed))
        # Ends the process where it is stuck in compiled code, by the clock, on a busy machine.
        faulthandler.dump_traceback_later(10 * TIME_LIMIT, exit=True)
        reports.put(Report(worker, name, seed, *guarded(check_of(name), seed)))
        seed += step


def command(report: Report) -> str:
    """Return what runs a case again."""
    check = "" if report.check == "checks" else f" --check {report.check}"
    return f"python tests/proofs/fuzz.py --only {report.seed}{check}"


def watch(processes: int, first: int, until: float) -> tuple[int, collections.Counter[str]]:
    """Start workers, print what they find, replace one that has died; count runs and findings."""
    context = multiprocessing.get_context("spawn")
    reports: Any = context.Queue()

    def start(number: int, seed: int) -> Any:
        arguments = (number, seed, processes, until, reports)
        worker = context.Process(target=work, args=arguments, daemon=True)
        worker.start()
        return worker

    workers = [start(number, first + number) for number in range(processes)]
    busy: dict[int, Report] = {}
    runs, kinds = 0, collections.Counter[str]()
    while busy or any(worker.is_alive() for worker in workers):
        try:
            news = [reports.get(timeout=1.0)]
        except queue.Empty:
            news = []
            for number, report in busy.items():
                if not workers[number].is_alive():
                    kind = f"stuck, or the process died, exit code {workers[number].exitcode}"
                    news.append(report._replace(kind=kind))
                    workers[number] = start(number, report.seed + processes)
        for report in news:
            if report.kind is None:
                busy[report.worker] = report
                continue
            del busy[report.worker]
            runs += 1
            if report.kind:
                kinds[report.kind] += 1
                print(f"\n--- {report.kind}\n{command(report)}\n{report.text}", flush=True)
    return runs, kinds


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Random problems against every proof.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, help="the first seed; a new one unless given")
    parser.add_argument("--only", type=int, help="run the case of this seed and no other")
    parser.add_argument("--check", default="checks", choices=list(CHECKS), help="what --only runs")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    given = parse(arguments)
    if given.only is not None:
        kind, text = guarded(check_of(given.check), given.only)
        print(f"{kind}\n{text}" if kind else f"seed {given.only}: nothing found")
        return int(bool(kind))
    first = secrets.randbelow(10**9) if given.seed is None else given.seed
    print(f"seeds from {first} on; checks: {', '.join(CHECKS)}", flush=True)
    begun = time.time()
    runs, kinds = watch(given.processes, first, begun + 60 * given.minutes)
    speed = runs / max(time.time() - begun, 1e-9)
    found = sum(kinds.values())
    print(f"\n{runs} runs ({speed:.1f} a second), {found} findings, seeds from {first} on")
    for kind, count in kinds.most_common():
        print(f"{count:6d}  {kind}")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
