"""Run the numeric tests as they would come out on other CPUs: `make test-cpus`.

BLAS, NumPy and Numba choose code by the CPU that they find. Each choice rounds sums in its own way,
so that a test may pass on one machine by luck. Here they are told to choose as on older CPUs. The
files are shared out among these, so that it takes no longer than one of them; `--all` runs every
file on each. What else is given on the command line goes to pytest.
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
#: The rooms that compute. Front ends (estimators, cli, files, dask) only translate, the lab and docs
#: show, torch and JAX bring code of their own, and tests of rules compare with transcriptions at
#: tolerances far above rounding.
NUMERIC = ("bundle", "geometry", "kernels", "minimize", "models", "proofs", "run", "solvers")
#: Tests of arguments, words, files, threads and killed processes: rounding is nothing to them.
#: The fuzz draws problems of its own on every machine.
NOT_NUMERIC = frozenset(
    {
        "test_arguments",
        "test_bad_input",
        "test_checkpoint",
        "test_fuzz",
        "test_scipy_words",
        "test_threads",
        "test_warmup",
    }
)
#: What OpenBLAS calls CPUs with AVX-512. They can run its code for Haswell and older ones.
WITH_AVX512 = frozenset({"SkylakeX", "Cooperlake", "SapphireRapids"})


class Facts(NamedTuple):
    """What the choices of code depend on."""

    machine: str
    openblas: list[str]
    """The CPUs whose code the OpenBLAS libraries have chosen; none if BLAS is another library."""
    numpy: list[str]
    """What NumPy has code for, finds on this CPU and can do without."""


class Setting(NamedTuple):
    """A CPU to be taken for this one: the variables that say so, or why it is left out."""

    name: str
    variables: dict[str, str]
    left_out: str = ""


def facts() -> Facts:
    """Return what is so in this process."""
    import numpy as np
    import scipy.linalg  # noqa: F401  SciPy brings an OpenBLAS of its own
    from threadpoolctl import threadpool_info

    libraries = [found for found in threadpool_info() if found["internal_api"] == "openblas"]
    chosen = sorted({str(found["architecture"]) for found in libraries})
    extensions = np.show_config(mode="dicts").get("SIMD Extensions", {})
    return Facts(platform.machine(), chosen, extensions.get("found", []))


def settings(here: Facts) -> list[Setting]:
    """Return the CPUs that this one can be taken for."""
    names = {"Haswell": "no AVX-512 in BLAS", "Nehalem": "no AVX anywhere"}
    if here.machine.lower() not in ("x86_64", "amd64"):
        reason = f"this CPU is no x86 but {here.machine}"
        return [Setting(name, {}, reason) for name in names.values()]
    if not here.openblas:
        reason = "BLAS is another library than OpenBLAS"
        return [Setting(name, {}, reason) for name in names.values()]
    newer = bool(WITH_AVX512.intersection(here.openblas))
    reason = "" if newer else f"OpenBLAS takes the code for {', '.join(here.openblas)} here anyway"
    disabled = {"NPY_DISABLE_CPU_FEATURES": " ".join(here.numpy)} if here.numpy else {}
    return [
        Setting(names["Haswell"], {"OPENBLAS_CORETYPE": "Haswell"} if newer else {}, reason),
        Setting(
            names["Nehalem"],
            {"OPENBLAS_CORETYPE": "Nehalem", "NUMBA_CPU_NAME": "generic", **disabled},
        ),
    ]


def facts_under(variables: dict[str, str]) -> Facts:
    """Return what is so in a new process with these variables."""
    code = "import json, other_cpus; print(json.dumps(other_cpus.facts()))"
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=FOLDER,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Facts(*json.loads(found.stdout))


def missed(variables: dict[str, str], found: Facts) -> str:
    """Say what of a setting had no effect, or nothing."""
    asked = variables["OPENBLAS_CORETYPE"]
    if found.openblas != [asked]:
        return f"OpenBLAS took the code for {', '.join(found.openblas)}, not for {asked}"
    if "NPY_DISABLE_CPU_FEATURES" in variables and found.numpy:
        return f"NumPy still uses {', '.join(found.numpy)}"
    return ""


def numeric_files() -> list[str]:
    """Return the files of the numeric tests."""
    files = (file for room in NUMERIC for file in sorted((FOLDER / room).glob("test_*.py")))
    return [str(file) for file in files if file.stem not in NOT_NUMERIC]


def shared_out(files: list[str], parts: int) -> list[list[str]]:
    """Return the files in so many parts, each of them in one."""
    return [files[part::parts] for part in range(parts)]


def main(options: list[str]) -> int:
    """Run the numeric tests under the settings; return 0 if all passed, else 1."""
    failed = []
    files, chosen = numeric_files(), settings(facts())
    for setting in chosen:
        if setting.left_out:
            print(f"{setting.name}: left out, as {setting.left_out}", flush=True)
    possible = [setting for setting in chosen if not setting.left_out]
    whole = "--all" in options
    options = [option for option in options if option != "--all"]
    parts = [files] * len(possible) if whole else shared_out(files, len(possible))
    for setting, part in zip(possible, parts, strict=True):
        given = " ".join(f"{name}={value!r}" for name, value in setting.variables.items())
        print(f"{setting.name}: {given}", flush=True)
        without_effect = missed(setting.variables, facts_under(setting.variables))
        if without_effect:
            print(f"{setting.name}: {without_effect}", flush=True)
            failed.append(setting.name)
            continue
        command = [sys.executable, "-m", "pytest", *options, *part]
        done = subprocess.run(command, env={**os.environ, **setting.variables}, check=False)
        if done.returncode:
            failed.append(setting.name)
    if failed:
        print(f"The numeric tests failed with: {'; '.join(failed)}", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
