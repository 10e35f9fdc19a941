"""`sparta answer`, `mine-answers`, `train-reader`, `tune-reader` and `eval --answers`, with a tiny reader."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import torch

from tests.programs import Program, hybrid, sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread", "own_logger")]
PASSAGES = {
    "google": "larry page and sergey brin founded google\r\nin a small house",
    "moon": "the moon of the earth",
    "king": "the king of germany was west of the sun",
    "house": "a small house in the city of the king",
}
QUESTIONS = [
    {"_id": "1", "text": "who founded google", "answers": ["Larry Page"]},
    {"_id": "2", "text": "the earth and the moon", "answers": ["the moon"]},
    {"_id": "3", "text": "king of the city", "answers": ["nowhere"]},
    {"_id": "4", "text": "west of the sun", "answers": ["king of germany"]},
]
QRELS = "query-id\tcorpus-id\tscore\n1\tgoogle\t1\n2\tmoon\t1\n3\thouse\t1\n4\tking\t1\n"


@pytest.fixture(scope="module")
def built_folder(
    write_jsonl: Callable[..., Path], encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A corpus with questions beside it, its index for BM25, and an untrained reader."""
    import torch

    from sparta.reader.config import ReaderConfig
    from sparta.reader.span_reader import SpanReader

    folder = tmp_path_factory.mktemp("answers")
    write_jsonl(folder / "wiki.jsonl", [{"id": i, "text": t, "title": i} for i, t in PASSAGES.items()])
    write_jsonl(folder / "questions.jsonl", QUESTIONS)
    (folder / "qrels.tsv").write_text(QRELS)
    done = sparta(
        *("index", "--corpus", folder / "wiki.jsonl", "--index", folder / "index"),
        *("--channels", "bm25", "--quiet"),
    )
    assert done.exit_code == 0, done.output
    torch.manual_seed(3)
    SpanReader.from_encoder(encoder_folder, ReaderConfig()).save_pretrained(folder / "reader")
    return folder


@pytest.fixture
def folder(built_folder: Path, tmp_path: Path) -> Path:
    """The same folder, for a test that changes it."""
    return Path(shutil.copytree(built_folder, tmp_path, dirs_exist_ok=True))


@pytest.mark.slow
def test_an_answer_names_its_passage(folder: Path) -> None:
    where = ("--index", folder / "index", "--reader", folder / "reader")
    shown = sparta("answer", "who founded google", *where)
    assert shown.exit_code == 0, shown.output
    line, around = shown.output.splitlines()
    assert "[google]" in line
    assert "founded google in a" in around
    found = sparta("answer", "who founded google", "-n", 3, "--json", *where)
    answers = [json.loads(line) for line in found.output.splitlines()]
    assert len(answers) == 3
    for one in answers:
        assert set(one) >= {"answer", "score", "passage_id", "start", "end", "text", "reader", "ranker"}
        assert one["text"][one["start"] : one["end"]] == one["answer"]
        assert one["text"] == PASSAGES[one["passage_id"]]
    for threshold in ((), ("--threshold", "0")):
        none = sparta("answer", "xyzzy", *threshold, *where)
        assert (none.exit_code, none.output) == (3, "no answer: no passage was found\n")
    printed = sparta("answer", "xyzzy", "--json", *where)
    fields = {"answer": "", "abstained": False, "threshold": 0.0, "best_guess": None}
    assert (printed.exit_code, json.loads(printed.output)) == (3, {"version": 1, **fields})


@pytest.mark.slow
def test_below_the_threshold_the_command_abstains(folder: Path) -> None:
    where = ("--index", folder / "index", "--reader", folder / "reader")
    guess = json.loads(sparta("answer", "moon", "--json", *where).output)
    shown = sparta("answer", "moon", "--threshold", "1", *where)
    said = f"no sure answer (best guess: {guess['answer']}, {guess['score']:.2f})\n"
    assert (shown.exit_code, shown.stdout.splitlines(keepends=True)[0]) == (3, said)
    assert f"[{guess['passage_id']}]" in shown.stdout
    assert shown.stderr == "  → answers below 1.00 are left out; print all: --threshold 0\n"
    printed = sparta("answer", "moon", "--threshold", "1", "--json", *where)
    assert (printed.exit_code, json.loads(printed.output)["abstained"]) == (3, True)
    best = json.loads(printed.output)["best_guess"]
    assert (best["answer"], best["score"]) == (guess["answer"], guess["score"])
    assert sparta("answer", "moon", "--threshold", "0", *where).exit_code == 0
    nothing = sparta("answer", "xyzzy", "--threshold", "0.5", *where)
    assert (nothing.exit_code, nothing.output) == (3, "no answer: no passage was found\n")


@pytest.mark.slow
def test_many_questions(folder: Path) -> None:
    where = ("--index", folder / "index", "--reader", folder / "reader", "--depth", 2)
    output = folder / "answers.jsonl"
    done = sparta("answer", "--queries", folder / "questions.jsonl", "--output", output, *where)
    assert done.exit_code == 0, done.output
    assert "retrieved passages" in done.output
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["query_id"] for line in lines] == ["1", "2", "3", "4"]
    one = json.loads(sparta("answer", "who founded google", "--json", *where).output)
    assert {name: lines[0][name] for name in one} == one


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["who", "--reader", "nowhere"], "no such folder of a reader"),
        (["who", "--channel", "dens"], "dens"),
        (["who", "--queries", "q.jsonl"], "--queries"),
        ([], "name either a query or --queries FILE"),
        (["who", "--depth", "0"], "depth"),
        (["who", "--weight", "2"], "weight"),
        (["who", "--weight", "nan"], "finite"),
        (["who", "--threshold", "nan"], "finite"),
        (
            ["--queries", "q.tsv", "--output", "a.jsonl.gz"],
            "name the file a.jsonl, and compress it afterwards",
        ),
    ],
)
def test_what_is_refused(folder: Path, arguments: list[str], said: str) -> None:
    result = sparta("answer", *arguments, "--index", folder / "index")
    assert result.exit_code != 0
    assert said in result.output


def test_an_index_without_texts(
    folder: Path, write_jsonl: Callable[..., Path], tiny_model_folder: Path
) -> None:
    vectors = write_jsonl(folder / "v.jsonl", [{"id": "a", "contents": "", "vector": {"moon": 3}}])
    done = sparta(
        *("index", "--vectors", vectors, "--tokenizer", tiny_model_folder),
        *("--index", folder / "bare", "--quiet"),
    )
    assert done.exit_code == 0, done.output
    where = ("--index", folder / "bare", "--reader", folder / "reader")
    asked = ("--dataset", folder, "--index", folder / "bare")
    data = ("--dataset", folder / "questions.jsonl", "--reader", folder / "reader")
    for program, *command in (
        (sparta, "answer", "moon", *where),
        (sparta, "mine-answers", *asked, "--output", folder / "mined.jsonl"),
        (sparta, "tune-reader", *asked, "--reader", folder / "reader", "--output", folder / "tuned"),
        (hybrid, "eval", "--answers", "--index", folder / "bare", *data),
    ):
        refused = program(*command)
        assert refused.exit_code != 0
        assert "the index has no passage texts" in refused.output


@pytest.fixture
def sentences(folder: Path, write_jsonl: Callable[..., Path]) -> Path:
    """A folder with an index of sentences, `ix`, and a question about it beside its corpus."""
    home = folder / "cut"
    home.mkdir()
    corpus = write_jsonl(home / "c.jsonl", [{"id": "g", "text": TWO, "title": "Google"}])
    write_jsonl(home / "questions.jsonl", [{"_id": "1", "text": "two students", "answers": ["a company"]}])
    built = ("--unit", "sentence", "--channels", "bm25", "--quiet", "--index", home / "ix")
    assert sparta("index", "--corpus", corpus, *built).exit_code == 0
    return home


TWO = "Google is a company. It was founded by two students."


@pytest.mark.slow
@pytest.mark.parametrize("how", [["--channel", "bm25"], ["--channel", "bm25=1"], ["--chain", "named"]])
def test_sentences_are_read_in_their_passage(folder: Path, sentences: Path, how: list[str]) -> None:
    """The paper's unit (SPARTA, §4): a sentence is found, and read with what stands around it."""
    where = ("--index", sentences / "ix", "--reader", folder / "reader")
    done = sparta("answer", "two students", *where, *how, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.output)
    assert (answer["text"], answer["passage_id"]) == (TWO, "g#1")
    assert TWO[answer["start"] : answer["end"]] == answer["answer"]
    many = sentences / "answers.jsonl"
    asked = ("--queries", sentences / "questions.jsonl", "--output", many)
    assert sparta("answer", *asked, *where, *how).exit_code == 0
    assert json.loads(many.read_text().splitlines()[0])["text"] == TWO


@pytest.mark.slow
def test_sentences_are_mined_and_measured_in_their_passage(folder: Path, sentences: Path) -> None:
    """The answer stands in the sentence before the one that is found."""
    index, reader = ("--index", sentences / "ix"), ("--reader", folder / "reader")
    asked = ("--dataset", sentences / "questions.jsonl", "--depth", 1)
    done = sparta("mine-answers", *asked, *index, "--output", sentences / "mined.jsonl")
    assert "1 question of 1 with an answer" in done.output
    [passage] = json.loads((sentences / "mined.jsonl").read_text())["passages"]
    assert [passage["text"][a:b] for a, b in passage["spans"]] == ["a company"]
    given = (
        "--dataset",
        sentences / "questions.jsonl",
        "--answers",
        "--output-answers",
        sentences / "a.jsonl",
    )
    done = hybrid("eval", *index, *reader, *given, "--depths", 1)
    assert done.exit_code == 0, done.output
    assert json.loads((sentences / "a.jsonl").read_text())["text"] == TWO


def test_questions_that_find_nothing_are_not_those_of_an_index_without_texts(
    folder: Path, write_jsonl: Callable[..., Path]
) -> None:
    asked = write_jsonl(folder / "other.jsonl", [{"question": "кто", "answers": ["никто"]}])
    given = ("--dataset", asked, "--index", folder / "index", "--output", folder / "mined.jsonl")
    refused = sparta("mine-answers", *given)
    assert (refused.exit_code, "--depth" in refused.output) == (2, True)


def test_mined_trained_and_tuned(folder: Path, encoder_folder: Path) -> None:
    questions = ("--dataset", folder, "--index", folder / "index", "--depth", 3)
    done = sparta("mine-answers", *questions, "--output", folder / "mined.jsonl")
    assert "3 questions of 4 with an answer in a retrieved passage" in done.output, done.output
    mined = [json.loads(line) for line in (folder / "mined.jsonl").read_text().splitlines()]
    first = mined[0]["passages"][0]
    assert [first["text"][a:b] for a, b in first["spans"]] == ["larry page"]
    training = (
        *("train-reader", "--data", folder / "mined.jsonl=6", "--encoder", encoder_folder),
        *("--output", folder / "out", "--steps", 2, "--batch-size", 2, "--held-out", 1),
        *("--train-length", 224, "--max-length", 200, "--overlap", 40),
        *("--longest-question", 28, "--longest-answer", 15),
    )
    trained = sparta(*training)
    assert trained.exit_code == 0, trained.output
    layout = json.loads((folder / "out" / "best" / "config.json").read_text())["reader"]["layout"]
    lengths = {"overlap": 40, "longest_question": 28, "longest_answer": 15}
    assert lengths.items() <= layout.items()
    assert "best: validation F1 0.0" in trained.output
    facts = torch.load(folder / "out" / "state.pt", weights_only=True)["facts"]
    assert facts["globally"] is True
    other = sparta(*training, "--per-passage", "--resume")
    assert (other.exit_code, "started training: globally" in other.output) == (2, True), other.output
    tuned = sparta(
        *(
            "tune-reader",
            "--reader",
            folder / "reader",
            "--output",
            folder / "tuned",
            "--int8",
            *questions,
        ),
    )
    # an untrained reader is never right, which no probability can be fitted to
    assert tuned.exit_code != 0
    assert "found 0 correct" in tuned.output


@pytest.mark.slow
def test_a_tuned_reader_keeps_what_was_fitted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers to questions 1 and 3 are right or wrong whatever counts; that to 2 is right in part."""
    from sparta.reader.reader import Reader
    from sparta.reader.records import Span

    right = {"who founded google": "larry page", "the earth and the moon": "the moon"}

    def read_all(self: Reader, questions: Any, texts: Any, n: int = 5) -> list[list[list[Span]]]:
        def read(question: str, text: str) -> list[Span]:
            at = text.find(right.get(question, "?"))
            return [Span(0, at, at + len(right[question]), 2.0) if at >= 0 else Span(0, 0, 3, -1.0)]

        return [[read(q, t.text) for t in own] for q, own in zip(questions, texts, strict=True)]

    monkeypatch.setattr(Reader, "read_all", read_all)
    done = sparta(
        *("tune-reader", "--reader", folder / "reader", "--output", folder / "tuned", "--int8"),
        *("--dataset", folder, "--index", folder / "index", "--depth", 3),
    )
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert len([line for line in lines if "EM 50.00" in line]) >= 2
    best = [line for line in lines if line.endswith("(best, saved)")]
    assert best == ["best mention  retrieval weight 0.0  EM 50.00  (best, saved)"]
    tuned = Reader.open(folder / "tuned").config
    assert (tuned.weight, tuned.sum_mentions) == (0.0, False)
    again = sparta(
        *("tune-reader", "--reader", folder / "reader", "--output", folder / "tuned"),
        *("--dataset", folder, "--index", folder / "index", "--depth", 3),
    )
    assert again.exit_code != 0
    assert "output folder already contains files" in again.output
    assert "--resume" not in again.output
    assert tuned.answer is not None
    assert tuned.passage.a > 0, "a higher score is more probable"
    before, after = (
        sum(path.stat().st_size for path in (folder / name).glob("*.safetensors"))
        for name in ("reader", "tuned")
    )
    assert after < before, "8 bits"


@pytest.mark.slow
def test_eval_reads_each_ranking_and_the_judged_passages(folder: Path, tiny_model_folder: Path) -> None:
    reading = ("--answers", "--reader", folder / "reader")
    done = sparta(
        *("eval", folder, "--model", tiny_model_folder, *reading, "--format", "json", "--quiet"),
        *("--output-answers", folder / "answers.jsonl"),
    )
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [row["ranking"] for row in rows] == ["impact", "bm25", "judged passages"]
    assert all({"EM", "F1"} <= set(row) for row in rows)
    lines = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert [line["query_id"] for line in lines] == 3 * ["1", "2", "3", "4"]
    (folder / "answers.jsonl").unlink()  # the folder is the corpus
    plot = folder / "depth.png"
    done = hybrid(
        *("eval", "--index", folder / "index", *reading, "--depths", "1,3", "--plot", plot),
    )
    assert done.exit_code == 0, (done.output, done.exc_info)
    assert "EM@3" in done.output
    assert plot.stat().st_size > 1000
    alike = ("--model", tiny_model_folder, *reading, "--quiet", "--plot", folder / "em.svg")
    for depths, label in (("1,3", "EM"), ("3", "EM, %")):  # against depth, or bars of one depth
        done = sparta("eval", folder, *alike, "--depths", depths)
        assert done.exit_code == 0, (done.output, done.exc_info)
        drawn = (folder / "em.svg").read_text()
        assert re.findall("<!-- (EM.*?) -->", drawn) == [label]
    wrong = hybrid("eval", "--index", folder / "index", "--depths", "1,3")
    assert "--depths needs --answers" in wrong.output


@pytest.mark.slow
def test_of_several_devices_eval_reads_on_the_first(folder: Path) -> None:
    reading = ("--channel", "bm25", "--answers", "--reader", folder / "reader", "--quiet")
    done = sparta("eval", folder, *reading, "--device", "cpu,cpu")
    assert done.exit_code == 0, done.output
    assert "judged passages" in done.stdout


@pytest.mark.parametrize(("program", "option"), [(sparta, "-k"), (hybrid, "--candidates")])
def test_more_is_read_than_retrieved(folder: Path, program: Program, option: str) -> None:
    of_set = (folder,) if program is sparta else ("--index", folder / "index")
    reading = ("--answers", "--reader", folder / "reader", "--depths", 150)
    wrong = program("eval", *of_set, *reading)
    assert f"found 150\n  → raise {option}" in wrong.output
    evaluation = program.main.get_command(click.Context(program.main), "eval")
    assert option in [name for parameter in evaluation.params for name in parameter.opts]


@pytest.mark.slow
def test_sets_without_answers(folder: Path, write_jsonl: Callable[..., Path]) -> None:
    """By themselves they are refused; beside others they are measured, and not drawn."""
    bare = folder / "bare"
    bare.mkdir()
    write_jsonl(bare / "queries.jsonl", [{"_id": "1", "text": "who founded google"}])
    (bare / "qrels").mkdir()
    (bare / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tgoogle\t1\n")
    reading = ("--index", folder / "index", "--answers", "--reader", folder / "reader", "--dataset", bare)
    wrong = hybrid("eval", *reading)
    assert wrong.exit_code != 0
    assert "error: bare: " in wrong.output
    assert "--answers" in wrong.output
    plot = folder / "em.png"
    done = hybrid("eval", *reading, "--dataset", folder, "--plot", plot)
    assert done.exit_code == 0, (done.output, done.exc_info)
    assert plot.stat().st_size > 1000


def test_what_a_regular_expression_matches_is_the_answer_to_train_on(
    folder: Path, write_jsonl: Callable[..., Path]
) -> None:
    """The pattern itself is no text that a reader's answer could agree with."""
    asked = write_jsonl(
        folder / "trec.jsonl", [{"id": "1", "question": "who founded google", "answers": ["larry\\spag."]}]
    )
    mined = folder / "mined.jsonl"
    done = sparta(
        *("mine-answers", "--dataset", asked, "--index", folder / "index", "--match", "regex"),
        *("--output", mined),
    )
    assert done.exit_code == 0, done.output
    assert json.loads(mined.read_text())["answers"] == ["larry page"]
