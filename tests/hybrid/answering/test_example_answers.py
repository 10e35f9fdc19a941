"""The reader that ships, on the example corpus: most of twenty questions are answered exactly."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparta.data.answers import exact_match
from sparta.models.resolve import installed_folder
from tests.cli.commands import done
from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.usefixtures("own_logger")]
FOUNDERS = ["Larry Page and Sergey Brin"]
QUESTIONS = {
    "when was google founded": ["September 1998", "1998"],
    "who set up amazon": ["Jeff Bezos"],
    "what does the name of lego mean": ["play well"],
    "how much did google pay for youtube": [
        *("1.65 billion dollars", "1.65 billion dollars in stock"),
        *("about 1.65 billion dollars", "about 1.65 billion dollars in stock"),
    ],
    "who built facebook": ["Mark Zuckerberg"],
    "who announced the linux kernel": ["Linus Torvalds"],
    "which president signed the act that set yellowstone aside": [
        "Ulysses S. Grant",
        "President Ulysses S. Grant",
    ],
    "where was alan turing born": ["London"],
    "who was the father of ada lovelace": ["Lord Byron", "the poet Lord Byron"],
    "what is the python language named after": ["Monty Python", "the comedy group Monty Python"],
    "who sent the first email": ["Ray Tomlinson"],
    "where was the first transistor demonstrated": ["Bell Laboratories"],
    "who launched wikipedia": ["Jimmy Wales and Larry Sanger"],
    "how many bitcoins can ever exist": ["21 million", "no more than 21 million", "21 million coins"],
    "in which city was marie curie born": ["Warsaw"],
    "what ship did charles darwin sail on": ["HMS Beagle", "Beagle"],
    "who obtained a patent for the telephone": ["Alexander Graham Bell"],
    "how high is mount everest": ["8,849 metres"],
    "where does the blue nile rise": ["Lake Tana", "Lake Tana in Ethiopia"],
    "how far away is the moon": ["384,400 kilometres", "about 384,400 kilometres"],
}


@pytest.fixture(scope="module")
def index(example_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the example corpus."""
    folder = tmp_path_factory.mktemp("examples") / "index"
    done(sparta("index", "--vectors", example_shards, "--index", folder, "--quiet"))
    return folder


def test_sixteen_of_twenty_are_exactly_right(index: Path) -> None:
    from hybrid import open_answerer

    with open_answerer(index) as answerer:
        [first] = answerer.answer("who founded google")
        found = {question: answerer.answer(question) for question in QUESTIONS}
    assert (first.passage_id, exact_match(first.answer, FOUNDERS)) == ("google", True)
    wrong = {
        question: (answers[0].answer if answers else None)
        for question, answers in found.items()
        if not answers or not exact_match(answers[0].answer, QUESTIONS[question])
    }
    assert len(QUESTIONS) == 20
    assert len(wrong) <= 4, wrong


def test_an_index_answers_like_an_answerer_and_opens_its_reader_once(
    index: Path, calls: Callable[..., list[tuple[str, dict[str, Any]]]]
) -> None:
    from hybrid import open_answerer
    from sparta import Index, Reader

    question = "when was google founded"
    with open_answerer(index, "bm25", depth=3) as answerer:
        expected = answerer.answer(question, 2)
    opened = calls(Reader.open)
    with Index(index) as searched:
        assert searched.answer(question, 2, channel="bm25", depth=3) == expected
        unsure = searched.answer(question, threshold=1)
    assert (list(unsure), unsure.abstained) == ([], True)
    assert unsure.best_guess.answer == expected[0].answer
    assert len(opened) == 1


def test_a_reader_whose_files_were_replaced_is_opened_again(index: Path, tmp_path: Path, caplog) -> None:
    """As after another training into the same folder: in Python and in the service."""
    from hybrid.answering.open_readers import OpenReaders
    from sparta import Index

    question, folder = "when was google founded", tmp_path / "reader"
    shutil.copytree(installed_folder("reader-bge-small-en"), folder)
    readers = OpenReaders(name=str(folder))
    with Index(index) as searched:
        first = searched.answer(question, reader=folder)
        served = readers.reader("en")
        assert readers.reader("en") is served
        config = json.loads((folder / "config.json").read_text())
        config["reader"]["weight"] = 0.9
        (folder / "config.json").write_text(json.dumps(config))
        changed = searched.answer(question, reader=folder)
        assert changed[0].score != first[0].score
        assert (served_then := readers.reader("en")) is not served
        (folder / "config.json").write_text("{")  # a copy that is still being written
        assert searched.answer(question, reader=folder) == changed
        assert readers.reader("en") is served_then
        assert [record.message.partition(":")[0] for record in caplog.records] == [str(folder)] * 2
