"""Arguments that do not go together, and the help."""

import re
from pathlib import Path

import click
import pytest

from cli._output import table
from tests.cli.commands import QUESTION, done, refused
from tests.programs import dense, hybrid, sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]


USAGE = {
    "unknown command": (["explode"], "No such command 'explode'"),
    "unknown option": (["search", "x", "--fast"], "No such option '--fast'"),
    "k of zero": (["search", "x", "-k", "0"], "0 is not in the range 1<=x<=2147483647"),
    "k below zero": (["search", "x", "-k", "-3"], "-3 is not in the range 1<=x<=2147483647"),
    "k too large": (["search", "x", "-k", "3000000000"], "3000000000 is not in the range"),
    "k of letters": (["search", "x", "-k", "ten"], "'ten' is not a valid integer"),
    "n of zero": (["terms", "x", "-n", "0"], "0 is not in the range x>=1"),
    "bits": (["index", "--corpus", "c", "--bits", "17"], "17 is not in the range 1<=x<=16"),
    "channel": (["search", "x", "--channel", "dens"], "'dens' is not one of 'impact', 'bm25', 'dense'"),
    "explain without id": (["explain", "x"], "Missing argument 'ID'"),
    "delete without id": (["delete"], "no passage id is named"),
    "update without corpus": (["update"], "Missing option '--corpus'"),
    "encode without output": (["encode", "--corpus", "c"], "Missing option '--output'"),
    "export without format": (["export", "--output", "x"], "Missing option '--format'"),
    "negative seed": (["train", "--seed", "-1"], "-1 is not in the range 0<=x<=4294967295"),
    "seed too large": (["train", "--seed", "4294967296"], "4294967296 is not in the range"),
    "weight of nothing": (["index", "--corpus", "c", "--min-weight", "nan"], "finite number, found nan"),
    "weight without end": (["index", "--corpus", "c", "--min-weight", "inf"], "finite number, found inf"),
    "rate without end": (["train", "--learning-rate", "inf"], "finite number, found inf"),
    "pressure of nothing": (["train", "--pressure", "nan"], "finite number, found nan"),
}


@pytest.mark.parametrize(("arguments", "words"), USAGE.values(), ids=USAGE.keys())
def test_usage(arguments, words):
    result = sparta(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


WRONG = {
    "neither": (["index"], ["name either --corpus or --vectors, found neither", "sparta index --corpus"]),
    "both": (["index", "--corpus", "c", "--vectors", "v"], ["name either --corpus or --vectors, found both"]),
    "no question": (["search"], ["name either a query or --queries FILE, found neither", "sparta search"]),
    "two questions": (
        ["search", "x", "--queries", "q.tsv"],
        ["name either a query or --queries FILE, found both"],
    ),
    "a channel twice": (
        ["search", "x", "--channel", "impact,impact"],
        ["found impact twice", "--channel bm25=1,impact=1,dense=1"],
    ),
    "output without queries": (["search", "x", "--output", "run"], ["--output", "--queries"]),
    "no option": (["index", "c.jsonl"], ["belong to no option: c.jsonl", "sparta index --corpus c.jsonl"]),
    "two corpora": (
        ["index", "--corpus", "a", "b"],
        ["takes one file or folder", "into one folder"],
    ),
    "append and overwrite": (
        ["index", "--corpus", "c", "--append", "--overwrite"],
        ["--append cannot be combined with --overwrite"],
    ),
    "pruning of ready vectors": (
        ["index", "--vectors", "v", "--unit", "sentence", "--top-k", "5"],
        ["--unit, --top-k has no effect on --vectors", "sparta encode"],
    ),
    "number format of ready vectors": (
        ["index", "--vectors", "v", "--dtype", "fp32"],
        ["--dtype has no effect on --vectors", "sparta encode"],
    ),
    "tokenizer of a corpus": (
        ["index", "--corpus", "c", "--tokenizer", "t"],
        ["--tokenizer has no effect on --corpus"],
    ),
    "training without pairs": (
        ["train", "--encoder", "e", "--output", "o"],
        ["--pairs, --articles or --passages"],
    ),
    "no index": (["search", "x"], ["sparta-index: there is no index here", "sparta index --corpus FILE"]),
    "no index to explain": (["explain", "x", "y"], ["sparta-index: there is no index here"]),
    "no index to list": (["terms", "y"], ["sparta-index: there is no index here"]),
    "no index to delete from": (["delete", "y"], ["sparta-index: there is no index here"]),
    "no index to export": (
        ["export", "--format", "ciff", "--output", "x"],
        ["sparta-index: there is no index here", "$SPARTA_INDEX"],
    ),
}


@pytest.mark.parametrize(("arguments", "words"), WRONG.values(), ids=WRONG.keys())
def test_wrong_arguments(arguments, words):
    refused(sparta(*arguments), 2, *words)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("part", ["1", "2/2", "-1/2", "a/b", "0/0"])
def test_a_wrong_share_is_told_before_a_model_is_loaded(part, corpus):
    result = sparta(
        "encode", "--corpus", corpus, "--output", "s", "--model", "no/such/model", "--shard", part
    )
    refused(result, 2, "--shard must be i/n", f"found {part!r}", "0/2")


@pytest.mark.parametrize("device", ["cuda:99", "gpu", ","])
def test_a_device_that_is_not_there(device, corpus, model):
    result = sparta("index", "--corpus", corpus, *model, "--device", device)
    refused(result, 2, "device", "--device cpu")


def test_a_model_that_is_not_there(corpus, tmp_path):
    refused(
        sparta("index", "--corpus", corpus, "--model", tmp_path / "none"),
        2,
        "no such model folder",
    )
    (tmp_path / "folder").mkdir()
    refused(sparta("index", "--corpus", corpus, "--model", tmp_path / "folder"), 2, "config.json", "--model")


def test_the_model_that_ships_is_told_when_it_is_missing(corpus, monkeypatch, tmp_path):
    monkeypatch.setattr("sparta.models.resolve.shipped_folder", lambda name: tmp_path / "none")
    message = "the default model sparta-small-en is missing from this installation"
    refused(sparta("index", "--corpus", corpus), 2, message, "--model")


@pytest.mark.parametrize("arguments", [["explain", QUESTION, "nobody"], ["terms", "nobody"]])
def test_an_unknown_id(arguments, built):
    refused(
        sparta(*arguments, "--index", built),
        2,
        f"{built}: ",
        "no passage with the id 'nobody'",
        "take an id from a search",
    )


def test_help_tells_every_command_in_one_line():
    output = done(sparta("--help")).stdout
    context = click.Context(sparta.main)
    for name in sparta.main.list_commands(context):
        command = sparta.main.get_command(context, name)
        assert re.search(rf"^  {name} +\S.*[^.]\.$", output, re.MULTILINE), f"the line of {name} is cut"
        text = done(sparta(name, "--help")).stdout
        assert f"sparta {name} " in text.replace("main", "sparta")
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.help or option.show_default, f"{name} {option.name} says nothing"


@pytest.mark.parametrize("program", [sparta, dense, hybrid])
def test_a_program_and_its_commands_say_the_same(program):
    """The help of a program shows summaries without an import; they begin the help of the commands."""
    context = click.Context(program.main)
    for places in program.main.sections.values():
        for name, place in places.items():
            command = program.main.get_command(context, name)
            if not isinstance(command, click.Group):
                assert " ".join((command.help or "").split("\n\n")[0].split()) == place.summary


@pytest.mark.parametrize("name", ["dense", "hybrid"])
def test_the_other_programs_run_as_commands_of_sparta(name):
    refused(sparta(name, "search", "x"), 2, "there is no index here", "sparta index --corpus FILE")
    assert f"sparta {name} search" in done(sparta(name, "search", "--help")).stdout.replace("main", "sparta")


def test_options_are_listed_under_the_heading_of_their_class():
    output = done(sparta("search", "--help")).stdout
    headings = re.findall(r"^(\S.*):$", output, re.MULTILINE)
    assert headings == [
        "Options",
        "Many queries",
        "Filter",
        "Page",
        "Channels",
        "BM25",
        "Reranking",
        "Chain",
    ]
    chain = output[output.index("\nChain:") :]
    assert "--path-reader" in chain
    assert "--k1" not in chain


@pytest.mark.parametrize("program", [sparta, dense, hybrid])
def test_the_help_of_all_programs_is_as_wide(program, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert click.Context(program.main, **program.main.context_settings).make_formatter().width == 108


def test_version():
    assert re.fullmatch(r"sparta, version \d+\.\d+\.\d+\n", done(sparta("--version")).stdout)


def test_table():
    assert table(["a", "bb"], [["xyz", "1"], ["", "22"]]) == "a    bb\nxyz   1\n     22"
    lines = table(
        ["term", "n"], [["東京", "1"], ["ＡＢ", "京"], ["cafe\u0301", "2"], ["ที่", "3"]]
    ).splitlines()
    assert lines == ["term   n", "東京   1", "ＡＢ  京", "cafe\u0301   2", "ที่      3"]


@pytest.mark.slow
def test_parameters_of_bm25_are_refused_where_nothing_is_bm25(index):
    for command in (["search"], ["search", "--channel", "impact=1"], ["answer"]):
        result = sparta(*command, QUESTION, "--index", index, "--k1", 2)
        refused(result, 2, "--k1 has no effect without BM25", "omit --k1, or search by bm25 too")
