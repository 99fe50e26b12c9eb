"""The settings under which `make test-cpus` repeats the numeric tests."""

import pytest

import other_cpus
from other_cpus import Facts, settings

NEW = Facts("x86_64", ["SkylakeX"], ["X86_V3", "X86_V4"])


def test_a_new_cpu_is_taken_for_two_older_ones():
    newer, older = settings(NEW)
    assert newer.variables == {"OPENBLAS_CORETYPE": "Haswell"}
    assert older.variables == {
        "OPENBLAS_CORETYPE": "Nehalem",
        "NUMBA_CPU_NAME": "generic",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4",
    }
    assert not newer.left_out
    assert not older.left_out


def test_a_cpu_without_avx512_is_not_taken_for_itself():
    same, older = settings(NEW._replace(openblas=["Haswell"]))
    assert same.left_out == "OpenBLAS takes the code for Haswell here anyway"
    assert not older.left_out


def test_a_numpy_with_nothing_to_disable_is_told_nothing():
    assert "NPY_DISABLE_CPU_FEATURES" not in settings(NEW._replace(numpy=[]))[1].variables


@pytest.mark.parametrize(
    ("here", "reason"),
    [
        (Facts("aarch64", ["neoversen1"], ["ASIMDHP"]), "this CPU is no x86 but aarch64"),
        (NEW._replace(openblas=[]), "BLAS is another library than OpenBLAS"),
    ],
)
def test_where_there_is_nothing_to_choose_all_is_left_out(here, reason):
    assert [setting.left_out for setting in settings(here)] == [reason, reason]
    assert not any(setting.variables for setting in settings(here))


def test_the_settings_have_an_effect_here():
    for setting in settings(other_cpus.facts()):
        if not setting.left_out:
            found = other_cpus.facts_under(setting.variables)
            assert not other_cpus.missed(setting.variables, found)


def test_a_setting_without_effect_is_noticed():
    older = settings(NEW)[1].variables
    assert other_cpus.missed(older, NEW) == "OpenBLAS took the code for SkylakeX, not for Nehalem"
    half = NEW._replace(openblas=["Nehalem"])
    assert other_cpus.missed(older, half) == "NumPy still uses X86_V3, X86_V4"
    assert not other_cpus.missed(older, half._replace(numpy=[]))


def test_what_is_named_is_there():
    files = [file for room in other_cpus.NUMERIC for file in (other_cpus.FOLDER / room).iterdir()]
    assert {file.parent.name for file in files} == set(other_cpus.NUMERIC)
    assert {file.stem for file in files} > other_cpus.NOT_NUMERIC


def test_every_numeric_file_is_run_on_one_of_the_cpus():
    files = other_cpus.numeric_files()
    parts = other_cpus.shared_out(files, 2)
    assert sorted(parts[0] + parts[1]) == sorted(files)
    assert abs(len(parts[0]) - len(parts[1])) <= 1
    assert other_cpus.shared_out(files, 1) == [files]
