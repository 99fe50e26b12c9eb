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
NOT_NUMERIC = {"test_arguments", "test_bad_input", "test_checkpoint", "test_fuzz"}
NOT_NUMERIC |= {"test_scipy_words", "test_threads", "test_warmup"}
#: What OpenBLAS calls CPUs with AVX-512. They can run its code for Haswell and older ones.
WITH_AVX512 = frozenset({"SkylakeX", "Cooperlake", "SapphireRapids"})


class Facts(NamedTuple):
    """What the choices of code depend on."""

    machine: str
    openblas: list[str]  # whose code the OpenBLAS libraries have chosen; none: another library
    numpy: list[str]  # what NumPy has code for, finds on this CPU and can do without


def facts() -> Facts:
    """Return what is so in this process."""
    import numpy as np
    import scipy.linalg  # noqa: F401  SciPy brings an OpenBLAS of its own
    from threadpoolctl import threadpool_info

    libraries = [found for found in threadpool_info() if found["internal_api"] == "openblas"]
    chosen = sorted({str(found["architecture"]) for found in libraries})
    extensions = np.show_config(mode="dicts").get("SIMD Extensions", {})
    return Facts(platform.machine(), chosen, extensions.get("found", []))


def settings(here: Facts) -> dict[str, dict[str, str]]:
    """Return the variables of each older CPU that this one can be taken for."""
    if here.machine.lower() not in ("x86_64", "amd64") or not here.openblas:
        return {}
    found = {}
    if WITH_AVX512.intersection(here.openblas):  # else it would be taken for itself
        found["no AVX-512 in BLAS"] = {"OPENBLAS_CORETYPE": "Haswell"}
    disabled = {"NPY_DISABLE_CPU_FEATURES": " ".join(here.numpy)} if here.numpy else {}
    older = {"OPENBLAS_CORETYPE": "Nehalem", "NUMBA_CPU_NAME": "generic"}
    return {**found, "no AVX anywhere": {**older, **disabled}}


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


def main(options: list[str]) -> int:
    """Run the numeric tests under the settings; return 0 if all passed, else 1."""
    failed = []
    files = [file for room in NUMERIC for file in sorted((FOLDER / room).glob("test_*.py"))]
    files = [file for file in files if file.stem not in NOT_NUMERIC]
    chosen = settings(facts())
    if not chosen:
        print("left out: this is no x86 CPU, or BLAS is another library than OpenBLAS", flush=True)
    given = [option for option in options if option != "--all"]
    for place, (name, variables) in enumerate(chosen.items()):
        print(f"{name}: {variables}", flush=True)
        if without_effect := missed(variables, facts_under(variables)):
            print(f"{name}: {without_effect}", flush=True)
            failed.append(name)
            continue
        part = files if "--all" in options else files[place :: len(chosen)]
        command = [sys.executable, "-m", "pytest", *given, *map(str, part)]
        if subprocess.run(command, env={**os.environ, **variables}, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"The numeric tests failed with: {'; '.join(failed)}", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
