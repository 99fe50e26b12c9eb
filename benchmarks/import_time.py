"""How long `import accelegrad` takes beyond NumPy and SciPy.

Run: python benchmarks/import_time.py [--repeat 10]. Processes take turns, and the least
processor time of each kind counts. NumPy and SciPy stand for what any user of them has loaded
already: numpy, scipy.optimize, scipy.sparse, scipy.special and scipy.linalg.
"""

import argparse
import subprocess
import sys

from accelegrad.lab.engine.timing import in_turns

LIMIT = 0.3
BASIS = "import numpy, scipy.linalg, scipy.optimize, scipy.sparse, scipy.special"
CODES = {
    "python": "pass",
    "numpy + scipy": BASIS,
    "accelegrad": f"{BASIS}; import accelegrad",
    "the command": f"{BASIS}; import accelegrad.cli.main",
}
MEASURE = "\nimport time; print(time.process_time())"


def seconds(code):
    done = subprocess.run(
        [sys.executable, "-c", code + MEASURE], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=10)
    given = parser.parse_args()
    times = in_turns(CODES, given.repeat, seconds)
    least = {name: min(of_one) for name, of_one in times.items()}
    for name, time in least.items():
        print(f"{name:<16}{time:6.3f} s")
    for name in ("accelegrad", "the command"):
        beyond = least[name] - least["numpy + scipy"]
        kept = "" if beyond <= LIMIT else " (MISSED)"
        print(f"{name} beyond numpy + scipy: {beyond:.3f} s; wanted: at most {LIMIT} s{kept}")


if __name__ == "__main__":
    main()
