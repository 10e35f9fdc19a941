"""Answers from the passages that are found: measures by hand, each solver, killed and resumed, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from hybrid.evaluation.testsets import QuestionSet
from hybrid.evidence.measures import Gold
from hybrid.multihop.searcher import ChainPassages
from hybrid.multihop.steps import read_chain
from hybrid.replications.downstream import Solved, measure, solve_task
from hybrid.replications.files import state_of
from hybrid.replications.labels import Claim, LabelModel, LabelRecipe, train_labels
from hybrid.replications.solvers import GeneratingSolver, TitleSolver, as_question
from sparta.base.errors import InputError, Interrupted, ModelError
from sparta.base.records import Hit, Query
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.reader.records import text_of
from tests.dense.training.recipes import weights
from tests.hybrid.replications.conftest import Data
from tests.moments import at, ctrl_c
from tests.programs import hybrid

pytestmark = pytest.mark.usefixtures("one_thread")


def hit(title: str, text: str) -> Hit:
    return Hit(passage_id=title, score=1.0, title=title, text=text)


def test_measures_by_hand() -> None:
    """Letter for letter, as SQuAD has it, and with the right page."""
    asked = [Query(str(i), "x", ("Paris", "Lutetia")) for i in range(4)]
    solved = {
        "0": Solved("Paris", ["Paris", "Rome"]),
        "1": Solved("the paris", ["Paris"]),
        "2": Solved("Lutetia", ["Rome", "Paris"]),
        "3": Solved("", []),
    }
    pages = {str(i): (frozenset({frozenset({"Paris"})}),) for i in range(4)}
    found = measure("m", asked, solved, Gold(pages, {})).per_query
    assert list(found["accuracy"].values()) == [1, 0, 1, 0]
    assert list(found["EM"].values()) == [1, 1, 1, 0]
    assert list(found["F1"].values()) == [1, 1, 1, 0]
    assert list(found["page_Rprec"].values()) == [1, 1, 0, 0]
    assert list(found["kilt_accuracy"].values()) == [1, 0, 0, 0]
    assert set(measure("m", asked, solved).per_query) == {"accuracy", "EM", "F1"}
    del pages["3"]
    found = measure("m", asked, solved, Gold(pages, {})).per_query
    assert list(found["page_Rprec"]) == ["0", "1", "2"], "without provenance there is nothing to measure"
    assert found["kilt_accuracy"]["3"] == 0


def test_answers_are_compared_as_the_language_of_the_index_has_it(tmp_path: Path) -> None:
    found = {"1": [hit("Das Haus", "x")]}
    retriever = Mock(
        language="de", channel="bm25", ranking_name="bm25", batch_search=lambda *_: found, in_context=list
    )
    task = QuestionSet("task", (Query("1", "wo?", ("Haus",)),))
    [of_titles] = solve_task(task, tmp_path, retriever, TitleSolver(), tmp_path / "a.jsonl").evaluations
    assert (of_titles.mean("EM"), of_titles.mean("F1"), of_titles.mean("accuracy")) == (1, 1, 0)


def test_white_space_at_the_ends_is_no_difference() -> None:
    """As in KILT's `eval_downstream.py`, which strips answers on both sides."""
    solved = {"1": Solved("Paris ", [])}
    assert measure("m", [Query("1", "x", (" Paris",))], solved).mean("accuracy") == 1


def task_of(*answers: str) -> QuestionSet:
    return QuestionSet("task", tuple(Query(str(i), "wo?", (a,)) for i, a in enumerate(answers)))


def found_of(title: str) -> Any:
    return Mock(
        language="en",
        channel="bm25",
        ranking_name="bm25",
        batch_search=lambda _, ids, *__: {i: [hit(title, "x")] for i in ids},
        in_context=list,
    )


def test_sentences_are_read_in_their_passage(tmp_path: Path) -> None:
    retriever = found_of("Rome")
    retriever.in_context = lambda hits: [replace(h, metadata={"context": "x in its page"}) for h in hits]
    read: list[str] = []

    class Reading(TitleSolver):
        def solve(self, inputs: Any, hits: Any) -> list[str]:
            read.extend(text_of(one).text for own in hits for one in own)
            return list(inputs)

    solve_task(task_of("Rome"), tmp_path, retriever, Reading(), tmp_path / "a.jsonl")
    assert set(read) == {"x in its page"}


@pytest.mark.parametrize("content", [b"", b"my notes", b"my notes\nand more", b'{"id": 1}\n', b"[1]\n[2]"])
def test_another_file_is_refused_and_stays_as_it_is(content: bytes, tmp_path: Path) -> None:
    output = tmp_path / "notes.txt"
    output.write_bytes(content)
    with pytest.raises(InputError) as caught:
        solve_task(task_of("Rome"), tmp_path, found_of("Rome"), TitleSolver(), output, resume=True)
    assert caught.value.where == str(output)
    assert output.read_bytes() == content


def test_answers_of_another_model_or_index_are_not_mixed(tmp_path: Path) -> None:
    output, task = tmp_path / "a.jsonl", task_of("Rome")

    def solved(index: Path, model: str, *, resume: bool) -> Any:
        given = (task, index, found_of("Rome"), TitleSolver(), output)
        return solve_task(*given, model=model, resume=resume)

    solved(tmp_path, "one", resume=False)
    solved(tmp_path, "one", resume=True)
    for index, model, differing in ((tmp_path, "two", "model"), (tmp_path / "other", "one", "index")):
        with pytest.raises(InputError) as caught:
            solved(index, model, resume=True)
        assert caught.value.facts["differing"] == [differing]
    other = QuestionSet("task", (Query("0", "wer?", ("Rome",)),))
    with pytest.raises(InputError, match="an answer to another question: 0"):
        solve_task(other, tmp_path, found_of("Rome"), TitleSolver(), output, model="one", resume=True)
    first, *rest = output.read_text().splitlines()
    older = {k: v for k, v in json.loads(first).items() if k not in ("model", "index")}
    output.write_text("\n".join([json.dumps(older), *rest, ""]))
    solved(tmp_path, "one", resume=True)  # a file that does not say of which it is


@pytest.mark.slow
@pytest.mark.jvm
def test_an_index_that_changed_is_told(data: Data, tmp_path: Path) -> None:
    index = tmp_path / "ix"
    build_index(index, data.corpus, options=IndexOptions(channels="bm25"))
    first = state_of(index)
    assert first == state_of(index)
    build_index(index, [{"id": "new", "text": "moon"}], mode="append", options=IndexOptions(channels="bm25"))
    assert state_of(index) != first
    assert state_of(tmp_path) == ""


def test_answers_of_an_edited_chain_are_not_mixed(tmp_path: Path) -> None:
    task, output = task_of("Rome"), tmp_path / "a.jsonl"

    def solved(depth: int, *, resume: bool) -> Any:
        steps = (replace(read_chain("hop")[0], depth=depth),)
        tools = Mock(language="en", words=Mock(language="en", in_context=list))
        chain = Mock(channel="hop", chain=Mock(steps=steps), tools=tools)
        chain.batch_find_paths = lambda _, ids, *__, **___: {i: [] for i in ids}
        return solve_task(task, tmp_path, ChainPassages(chain), TitleSolver(), output, resume=resume)

    solved(5, resume=False)
    solved(5, resume=True)
    with pytest.raises(InputError) as caught:
        solved(6, resume=True)
    assert caught.value.facts["differing"] == ["steps"]


def test_standard_output_keeps_no_answers(data: Data, tmp_path: Path) -> None:
    given = [
        "downstream",
        "--dataset",
        data.folder / "fever.dev.jsonl",
        "--index",
        data.index,
        "--output",
        "-",
    ]
    found = hybrid(*given)
    assert (found.exit_code, found.stdout) == (2, "")
    assert "standard output" in found.stderr


def test_titles_and_slots() -> None:
    assert TitleSolver().solve(["a", "b"], [[hit("Paris", "x"), hit("Rome", "y")], []]) == ["Paris", ""]
    assert as_question("Pierre Messmer [SEP] native language") == "native language of Pierre Messmer?"
    assert as_question("who saw it") == "who saw it"
    assert as_question("a [SEP] b [SEP] c") == "a [SEP] b [SEP] c"


@pytest.mark.jvm
def test_the_command_and_resumed(data: Data, tmp_path: Path) -> None:
    output = tmp_path / "answers.jsonl"
    command = [
        "downstream",
        "--dataset",
        data.folder / "fever.dev.jsonl",
        "--by",
        "title",
        "--index",
        data.index,
    ]
    command += ["--output", output, "--quiet", "--format", "json"]
    whole = hybrid(*command)
    assert whole.exit_code == 0, whole.output
    [row] = json.loads(whole.stdout)
    assert (row["set"], row["answered by"]) == ("fever.dev", "title, bm25")
    lines = output.read_text().splitlines(keepends=True)
    assert len(lines) == 7
    assert "--resume" in hybrid(*command).output
    output.write_text("".join(lines[:4]) + lines[4][:20])  # killed while it wrote
    again = hybrid(*command, "--resume")
    assert again.stdout == whole.stdout
    assert output.read_text() == "".join(lines)
    few = hybrid(*command[:-4], tmp_path / "few.jsonl", "--sample", 2, *command[-3:])
    assert "a sample of 2 of 6 questions" in few.stderr
    deep = [*command[:-4], tmp_path / "deep.jsonl", "--depth", 150, "--channel", "bm25=1", "--quiet"]
    assert hybrid(*deep).exit_code == 0
    other = hybrid(*command, "--resume", "--depth", 5)
    assert other.exit_code != 0
    assert "started training: depth (5, was 3)" in " ".join(other.output.split())


def test_a_generating_model(bart: Path, tmp_path: Path) -> None:
    """A BART of two layers: it reads passages, then the input, and what it says is what it generates."""
    solver = GeneratingSolver(bart, longest=6, device="cpu")
    hits = [[hit("Paris", "the city " * 40)], [hit("Moon", "the moon")]]
    asked = ["what is the moon", "the moon"]
    long, short = (solver.ids(text, own) for text, own in zip(asked, hits, strict=True))
    assert len(long) == solver.max_length == 40
    words = solver.tokenizer.decode(long, skip_special_tokens=True).replace(" .", ".")
    assert words.startswith("paris. the city the city")
    assert words.endswith("the city what is the moon")
    given = torch.tensor([short])
    alone = solver.model.generate(input_ids=given, max_new_tokens=6, num_beams=1, do_sample=False)
    expected = solver.tokenizer.batch_decode(alone, skip_special_tokens=True)[0].strip()
    assert solver.solve(asked, hits)[1] == expected
    with pytest.raises(ModelError, match="transformers model"):
        GeneratingSolver(tmp_path / "none")


def test_a_generating_model_that_reads_bytes(tmp_path: Path) -> None:
    """ByT5's tokenizer does not say where its tokens stand in a text."""
    from transformers import ByT5Tokenizer, T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    torch.manual_seed(1)
    config = T5Config(vocab_size=384, decoder_start_token_id=0, **sizes)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    ByT5Tokenizer().save_pretrained(tmp_path)
    solver = GeneratingSolver(tmp_path, max_length=40, longest=3, device="cpu")
    passages = [hit("Zürich", "the city " * 40)]
    read = solver.tokenizer.decode(solver.ids("what is it", passages), skip_special_tokens=True)
    assert read.startswith("Zürich. the city")
    assert read.endswith("what is it")
    assert len(solver.solve(["what is it"], [passages])) == 1


def claims(words: list[str], n: int = 60) -> list[Claim]:
    """True is what its passage says."""
    own = [words[i % len(words)] for i in range(n)]
    return [
        Claim(f"{w} {i}", (f"{w} yes" if i % 2 else "no no",), "SUPPORTS" if i % 2 else "REFUTES")
        for i, w in enumerate(own)
    ]


def label_recipe(encoder: Path, **changes: Any) -> LabelRecipe:
    usual: dict[str, Any] = {
        "steps": 6,
        "batch_size": 8,
        "held_out": 20,
        "validate_every": 2,
        "max_length": 96,
    }
    return LabelRecipe(encoder=str(encoder), device="cpu", **{**usual, **changes})


@pytest.mark.slow
def test_labels_are_learnt_and_resumed(encoder_folder: Path, words: list[str], tmp_path: Path) -> None:
    given = claims(words)
    result = train_labels(
        given, label_recipe(encoder_folder, steps=40, learning_rate=2e-3), tmp_path / "long"
    )
    assert result.validation > 0.9
    assert "| REFUTES | 30 |" in (result.folder / "README.md").read_text()
    model = LabelModel.load(tmp_path / "long")
    assert model.labels == ("REFUTES", "SUPPORTS")
    found = model.predict(given)
    assert sum(a == c.label for a, c in zip(found, given, strict=True)) > 50
    recipe = label_recipe(encoder_folder)
    train_labels(given, recipe, tmp_path / "whole")
    with at("write", "log.jsonl", ctrl_c, nth=5), pytest.raises(Interrupted):  # in step 4
        train_labels(given, recipe, tmp_path / "killed")
    train_labels(given, recipe, tmp_path / "killed", resume=True)
    assert weights(tmp_path / "whole" / "best") == weights(tmp_path / "killed" / "best")


def test_what_a_classifier_reads(encoder_folder: Path, words: list[str]) -> None:
    """The claim, then an equal share of the rest for each passage, [SEP] behind each."""
    from sparta.models.folders.tokenizer import load_tokenizer
    from sparta.neural.backbones import load_encoder

    tokenizer = load_tokenizer(encoder_folder)
    model = LabelModel(load_encoder(encoder_folder), tokenizer, ("a", "b"), 24)
    long = " ".join(words[:1] * 50)
    ids = model.input(Claim(words[1], (long, long, words[2]))).ids
    first, last = (tokenizer.token_to_id(t) for t in ("[CLS]", "[SEP]"))
    claim, one, two = (tokenizer.token_to_id(w) for w in (words[1], words[0], words[2]))
    assert ids == [first, claim, last, *[one] * 6, last, *[one] * 6, last, two, last]
    ids = model.input(Claim(words[1], (long,) * 30)).ids
    assert ids == [first, claim, last, *[one, last] * 10], "of more passages than there is room for the first"
    assert len(model.input(Claim(long, (long,) * 30)).ids) == 24


def other_claims(path: Path) -> Path:
    """The same file, but for a claim."""
    other = path.parent / "other" / path.name
    other.parent.mkdir()
    other.write_text(path.read_text().replace('"input": "', '"input": "not ', 1))
    return other


@pytest.mark.jvm
def test_labels_by_the_commands(
    data: Data, encoder_folder: Path, write_jsonl: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in (data.folder / "fever.train.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        row["output"][0]["answer"] = ("SUPPORTS", "REFUTES")[number % 2]
    path = write_jsonl(tmp_path / "fever.train.jsonl", rows)
    common = ["--index", data.index, "--device", "cpu"]
    command = ["train-labels", "--data", path, "--encoder", encoder_folder, *common, "--steps", 2]
    command += ["--batch-size", 4, "--held-out", 5, "--validate-every", 1, "--output", tmp_path / "labels"]
    assert (done := hybrid(*command)).exit_code == 0, done.output
    assert hybrid(*command).exit_code != 0, "the folder is in use"
    assert hybrid(*command, "--resume").exit_code == 0
    others = (data.index, data.folder), (path, other_claims(path))
    changed = [[*command, "--depth", 1]]
    changed += [[new if one == old else one for one in command] for old, new in others]
    for one in changed:
        other = hybrid(*one, "--resume")
        assert "the settings differ from the settings of the started training" in other.output
    answers = ["--by", "label", "--output", tmp_path / "a.jsonl", *common, "--quiet"]
    done = hybrid("downstream", "--dataset", path, "--model", tmp_path / "labels", *answers)
    assert done.exit_code == 0, done.output
    assert {json.loads(line)["answer"] for line in (tmp_path / "a.jsonl").read_text().splitlines()[1:]} <= {
        "SUPPORTS",
        "REFUTES",
    }


@pytest.mark.jvm
def test_bad_input(
    data: Data, encoder_folder: Path, write_jsonl: Callable[..., Path], tmp_path: Path
) -> None:
    def said(*more: object, dataset: Path = data.folder / "fever.dev.jsonl") -> str:
        output = tmp_path / "x.jsonl"
        found = hybrid("downstream", "--dataset", dataset, "--index", data.index, "--output", output, *more)
        assert found.exit_code != 0
        return " ".join(found.output.split())

    assert "answers by label need a model folder" in said("--by", "label")
    assert "answers by title need no model" in said("--by", "title", "--model", "x")
    assert "hybrid train-labels" in said("--by", "label", "--model", encoder_folder)
    listed = {"id": "1", "input": "who", "output": [{"answer": ["a", "b"]}]}
    path = write_jsonl(tmp_path / "listed.jsonl", [listed])
    assert "expected a list of strings" in said("--by", "title", dataset=path)
    bare = {
        "id": "1",
        "input": "who",
        "output": [{"provenance": [{"title": "page 0", "passage_ids": ["p0"]}]}],
    }
    path = write_jsonl(tmp_path / "fever.dev.jsonl", [bare])
    assert "the task has no answers" in said("--by", "title", dataset=path)
    with pytest.raises(InputError, match="two labels"):
        train_labels(
            [Claim(str(i), ("a",), "SUPPORTS") for i in range(90)],
            label_recipe(encoder_folder),
            tmp_path / "o",
        )


def test_answers_of_other_weights_or_a_retrained_model_are_not_mixed(tmp_path: Path) -> None:
    task, output, model = task_of("Rome"), tmp_path / "a.jsonl", tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("1")

    def solved(ranking: str, *, resume: bool) -> Any:
        found = found_of("Rome")
        found.ranking_name = ranking
        return solve_task(task, tmp_path, found, TitleSolver(), output, model=str(model), resume=resume)

    solved("bm25=2,impact=1", resume=False)
    solved("bm25=2,impact=1", resume=True)
    with pytest.raises(InputError) as caught:
        solved("bm25=0.1,impact=1", resume=True)
    assert caught.value.facts["differing"] == ["ranking"]
    (model / "config.json").write_text("2")
    with pytest.raises(InputError) as caught:
        solved("bm25=2,impact=1", resume=True)
    assert caught.value.facts["differing"] == ["model_sha256"]
