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
import resource
import secrets
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's own folder: its modules are those of the package `proofs`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

TIME_LIMIT = 60  # seconds of the processor for one case, compiling included
MEMORY = 6 << 30  # bytes of addresses that a process may take
#: What is checked, and its share.
CHECKS = {"checks": 8, "battery": 3, "parts": 2, "polyhedra": 1, "estimators": 2}
TURNS = [name for name, share in CHECKS.items() for _ in range(share)]


class HungError(BaseException):
    """A case took too long; no code under test catches it."""


def check_of(name: str) -> Any:
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


def work(number: int, first: int, until: float, at: Any, findings: Any) -> None:
    """Run cases one after the other, say where it is, and report findings."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    parent = multiprocessing.parent_process()
    at[number] = first
    while time.time() < until and (parent is None or parent.is_alive()):
        # Ends the process where it is stuck in compiled code, by the clock, on a busy machine.
        faulthandler.dump_traceback_later(10 * TIME_LIMIT, exit=True)
        kind, text = guarded(check_of(turn(at[number], len(at))), at[number])
        if kind:
            findings.put((at[number], kind, text))
        at[number] += len(at)


def turn(seed: int, processes: int) -> str:
    """Return which check a worker runs with a seed."""
    return TURNS[seed // processes % len(TURNS)]


def command(check: str, seed: int) -> str:
    return f"python tests/proofs/fuzz.py --only {seed} --check {check}"


def watch(processes: int, first: int, until: float) -> tuple[int, collections.Counter[str]]:
    """Start workers, print what they find, replace one that has died; count runs and findings."""
    context = multiprocessing.get_context("spawn")
    at, findings, kinds = context.Array("q", processes), context.Queue(), collections.Counter[str]()

    def start(number: int, seed: int) -> Any:
        arguments = (number, seed, until, at, findings)
        worker = context.Process(target=work, args=arguments, daemon=True)
        worker.start()
        return worker

    workers = [start(number, first + number) for number in range(processes)]
    while any(worker.is_alive() for worker in workers) or not findings.empty():
        time.sleep(1.0)
        for number, worker in enumerate(workers):
            if worker.exitcode:
                kind = f"stuck, or the process died, exit code {worker.exitcode}"
                findings.put((at[number], kind, ""))
                workers[number] = start(number, at[number] + processes)
        while not findings.empty():
            seed, kind, text = findings.get()
            kinds[kind] += 1
            print(f"\n--- {kind}\n{command(turn(seed, processes), seed)}\n{text}", flush=True)
    return sum((seed - first) // processes for seed in at), kinds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Random problems against every proof.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, help="the first seed; a new one unless given")
    parser.add_argument("--only", type=int, help="run the case of this seed and no other")
    parser.add_argument("--check", default="checks", choices=list(CHECKS), help="what --only runs")
    given = parser.parse_args(arguments)
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
