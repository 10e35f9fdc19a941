"""Remedies: one sentence, its options and commands in the form of who shows it."""

from __future__ import annotations

import pickle

import pytest

from sparta.base.errors import InputError, Interrupted
from sparta.base.remedies import Command, Option, Remedy, remedy


def test_each_front_end_has_its_own_form() -> None:
    """Options differ; commands are typed the same everywhere."""
    advice = remedy(
        "continue with {}, leave {} out, give {}, or run: {}",
        Option("resume", True),
        Option("held_out"),
        Option("dtype", "bf16"),
        Command.of("sparta index", "a b", corpus="FILE", overwrite=True, append=False, index=None),
    )
    command = "sparta index 'a b' --corpus FILE --overwrite"
    assert (
        str(advice) == f"continue with resume=True, leave held_out out, give dtype='bf16', or run: {command}"
    )
    shown = advice.for_command_line()
    assert shown == f"continue with --resume, leave --held-out out, give --dtype bf16, or run: {command}"
    assert [option.name for option in advice.options] == ["resume", "held_out", "dtype"]
    assert [command.name for command in advice.commands] == ["sparta index"]


def test_an_option_of_one_letter_has_one_dash() -> None:
    assert remedy("write {}", Option("K", "20,50")).for_command_line() == "write -K 20,50"


def test_a_command_may_have_an_option_called_name() -> None:
    assert str(remedy("{}", Command.of("sparta push", name="wiki"))) == "sparta push --name wiki"


def test_remedies_are_joined() -> None:
    """Parts of both count; braces of a plain text are kept."""
    joined = remedy("give {}", Option("index")) + '; or JSON: {"a": {}}'
    assert joined.for_command_line() == 'give --index; or JSON: {"a": {}}'
    assert joined.options == [Option("index")]
    assert not Remedy()


def test_a_sentence_has_a_place_for_each_part() -> None:
    """A part without its place is a fault of the program."""
    with pytest.raises(ValueError, match="expected 2 parts"):
        str(remedy("{} and {}", Option("index")))


def test_an_error_carries_them() -> None:
    """Also to another process."""
    error = InputError(
        "wrong", where="here", remedy=remedy("leave {} out", Option("paper")), facts={"found": 3}
    )
    again = pickle.loads(pickle.dumps(error))
    for each in (error, again):
        assert str(each) == "here: wrong\n  → leave paper out"
        assert each.for_command_line() == "here: wrong\n  → leave --paper out"
        assert (each.code, each.facts, each.exit_code) == ("bad_input", {"found": 3}, 2)
    stopped = pickle.loads(pickle.dumps(Interrupted(1200, "passage", "the index")))
    assert str(stopped) == "1,200 passages kept"
    assert (stopped.kept, stopped.unit, stopped.unchanged) == (1200, "passage", "the index")
