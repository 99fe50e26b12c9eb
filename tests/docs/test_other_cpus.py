"""The settings under which `make test-cpus` repeats the numeric tests."""

import pytest

import other_cpus
from other_cpus import Facts, missed, settings

NEW = Facts("x86_64", ["SkylakeX"], ["X86_V3", "X86_V4"])
NEHALEM = {"OPENBLAS_CORETYPE": "Nehalem", "NUMBA_CPU_NAME": "generic"}
DISABLED = {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4"}


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        (NEW, [{"OPENBLAS_CORETYPE": "Haswell"}, NEHALEM | DISABLED]),
        (NEW._replace(openblas=["Haswell"]), [NEHALEM | DISABLED]),
        (NEW._replace(numpy=[]), [{"OPENBLAS_CORETYPE": "Haswell"}, NEHALEM]),
        (Facts("aarch64", ["neoversen1"], ["ASIMDHP"]), []),
        (NEW._replace(openblas=[]), []),
    ],
)
def test_a_cpu_is_taken_for_older_ones(here, expected):
    assert list(settings(here).values()) == expected


def test_the_settings_have_an_effect_here_and_one_without_is_noticed():
    for variables in settings(other_cpus.facts()).values():
        assert not missed(variables, other_cpus.facts_under(variables))
    older, half = NEHALEM | DISABLED, NEW._replace(openblas=["Nehalem"])
    assert missed(older, NEW) == "OpenBLAS took the code for SkylakeX, not for Nehalem"
    assert missed(older, half) == "NumPy still uses X86_V3, X86_V4"
    assert not missed(older, half._replace(numpy=[]))


def test_what_is_named_is_there():
    files = [file for room in other_cpus.NUMERIC for file in (other_cpus.FOLDER / room).iterdir()]
    assert {file.stem for file in files} > other_cpus.NOT_NUMERIC
