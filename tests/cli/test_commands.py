"""The command finds what other distributions add, and says what is missing."""

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from accelegrad.cli import main as command

LAB = ("reproduce", "compare", "bench")


def test_the_commands_of_the_lab_are_found(capsys):
    assert set(LAB) <= command.entry_points(group=command.GROUP).names
    assert command.main(["reproduce", "--list"]) == 0
    assert "large" in capsys.readouterr().out


@pytest.mark.parametrize("name", LAB)
def test_without_the_lab_its_commands_say_what_to_install(name, monkeypatch, capsys):
    monkeypatch.setattr(command, "entry_points", lambda **_: EntryPoints())
    assert command.main([name, "--quick", "--anything"]) == 1
    assert "part of accelegrad-lab, which is not installed" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(["--help"])
    assert "needs accelegrad-lab" in " ".join(capsys.readouterr().out.split())


def test_another_distribution_can_add_a_command(monkeypatch):
    entry = EntryPoint("greet", f"{__name__}:add_greet", command.GROUP)
    monkeypatch.setattr(command, "entry_points", lambda **_: EntryPoints([entry]))
    assert command.main(["greet"]) == 7


def add_greet(commands):
    commands.add_parser("greet").set_defaults(run=lambda given: 7)
