"""How long `import accelegrad` takes beyond NumPy and SciPy, and all that a first fit needs.

Run: python benchmarks/import_time.py [--repeat 10]. Processes take turns, and the least
processor time of each kind counts. Compiled modules are kept in a folder of their own, as those
of an installed package are: with PYTHONDONTWRITEBYTECODE most of the time would be spent on
compiling them again. NumPy and SciPy stand for what any user of them has loaded
already: numpy, scipy.optimize, scipy.sparse, scipy.special and scipy.linalg.
"""

import argparse
import os
import subprocess
import sys
import tempfile

from accelegrad_lab.engine.timing import in_turns

LIMIT = 0.3
BASIS = "import numpy, scipy.linalg, scipy.optimize, scipy.sparse, scipy.special"
CODES = {
    "python": "pass",
    "numpy + scipy": BASIS,
    "accelegrad": f"{BASIS}; import accelegrad",
    "minimize": f"{BASIS}; from accelegrad import LinearModel, minimize",
    "the command": f"{BASIS}; import accelegrad.cli.main",
}
MEASURE = "\nimport time; print(time.process_time())"


def seconds(code, compiled):
    """Return the processor time of a process; the modules that it loads are kept compiled."""
    kept = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        [sys.executable, "-c", code + MEASURE],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **kept},
    )
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as compiled:
        times = in_turns(CODES, given.repeat, lambda code: seconds(code, compiled))
    least = {name: min(of_one) for name, of_one in times.items()}
    for name, time in least.items():
        print(f"{name:<16}{time:6.3f} s")
    for name in ("accelegrad", "minimize", "the command"):
        beyond = least[name] - least["numpy + scipy"]
        kept = "" if beyond <= LIMIT else " (MISSED)"
        print(f"{name} beyond numpy + scipy: {beyond:.3f} s; wanted: at most {LIMIT} s{kept}")


if __name__ == "__main__":
    main()
