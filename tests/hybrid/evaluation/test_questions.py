"""Questions in the forms that people publish them in, and files that only look like it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli._fusion_options import QuestionArguments, query_sets
from hybrid.evaluation.questions import questions_beside, questions_of, set_beside
from hybrid.evaluation.testsets import QuestionSet, open_test_set
from sparta.base.errors import InputError
from sparta.base.records import Query
from sparta.data.kilt import Provenance
from sparta.index.folder import IndexFolder
from sparta.index.generation import Generation, IndexState, Job

DPR = """who founded google\t['Larry Page', "Sergey Brin's friend"]
"what is a ""cat"" called"\t"['Tom', ""O'Malley""]"
"""


def test_dprs_rows(tmp_path: Path) -> None:
    """As csv.writer leaves them: fields with quotes are quoted, quotes in them doubled."""
    path = tmp_path / "nq.test.tsv"
    path.write_text(DPR)
    asked = questions_of(path)
    assert asked.name == "nq.test"
    assert asked.queries == (
        Query("1", "who founded google", ("Larry Page", "Sergey Brin's friend")),
        Query("2", 'what is a "cat" called', ("Tom", "O'Malley")),
    )
    assert (asked.qrels, asked.groups, asked.match, asked.sampled_from) == ({}, {}, "string", 0)
    packed = tmp_path / "nq.csv.gz"
    packed.write_bytes(gzip.compress(DPR.encode()))
    assert questions_of(packed).queries == asked.queries
    assert questions_of(packed).name == "nq"


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A function that makes the manifest of an index whose first job read a source, with jobs after it.

    Beside wiki.jsonl lie questions, and others in the folder where the command stands.
    """
    for folder, question in ((tmp_path / "data", "right"), (tmp_path / "here", "wrong")):
        folder.mkdir()
        (folder / "wiki.jsonl").touch()
        (folder / "questions.jsonl").write_text(json.dumps({"_id": "1", "text": question}))
        (folder / "qrels.tsv").write_text("1 0 p 1\n")
    monkeypatch.chdir(tmp_path / "here")

    def make(job: dict[str, str], **more: str) -> Path:
        index = IndexFolder(tmp_path / "ix")
        index.path.mkdir(exist_ok=True)
        quantizer = {"bits": 8, "max_weight": 1.0}
        model = {"name": "tiny", "sha256": "", "weighted_queries": False, "quantizer": quantizer}
        index.write_state(IndexState(Generation(1, model, complete=True, job=Job(**job), **more)))
        return index.path

    return make


def test_the_questions_beside_an_index_are_those_of_what_it_was_made_from(
    beside: Callable[..., Path], tmp_path: Path
) -> None:
    """Whatever was added later, from wherever."""
    wiki = str(tmp_path / "data" / "wiki.jsonl")
    for index in (
        lambda: beside({"source": wiki, "mode": "create"}),
        lambda: beside({"source": str(tmp_path / "data" / "new.jsonl"), "mode": "append"}, origin=wiki),
        lambda: beside({"source": str(tmp_path / "here" / "wiki.jsonl"), "mode": "update"}, origin=wiki),
    ):
        assert [q.text for q in questions_beside(index()).queries] == ["right"]
        assert set_beside(index()).corpus == Path(wiki)


def test_questions_in_the_folder_that_was_indexed_come_first(
    beside: Callable[..., Path], tmp_path: Path
) -> None:
    """A folder of texts in data, then one of BEIR's form, in which the questions are."""
    folder = tmp_path / "data" / "beir"
    (folder / "qrels").mkdir(parents=True)
    job = {"source": str(folder), "mode": "create"}
    assert [q.text for q in questions_beside(beside(job)).queries] == ["right"]
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "1", "text": "within"}))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tp\t1\n")
    assert [q.text for q in questions_beside(beside(job)).queries] == ["within"]
    found = set_beside(beside(job))
    assert (found.corpus, found.queries[0].text) == (folder, "within")


def test_no_questions_beside_an_index_of_which_nothing_tells_the_corpus(
    beside: Callable[..., Path], tmp_path: Path
) -> None:
    """From standard input, grown before origins were kept, or of shards that name a relative path."""
    wiki = str(tmp_path / "data" / "wiki.jsonl")
    for job, origin in (
        ({"source": "-", "mode": "create"}, ""),
        ({"source": wiki, "mode": "append"}, "-"),
        ({"source": wiki, "mode": "append"}, ""),
        ({"source": "wiki.jsonl", "mode": "create"}, ""),
    ):
        with pytest.raises(InputError, match=r"questions\.jsonl") as error:
            questions_beside(beside(job, origin=origin))
        assert error.value.remedy


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "curated.tsv"
    lines = [
        {"question": "how tall", "answer": [r"20\s?,?\s?320"]},
        {"question": "who", "answer": "Page"},
        {"id": 7, "question": "where", "answers": ["here", "there"]},
    ]
    path.write_text("\n\n".join(json.dumps(line) for line in lines))
    assert questions_of(path).queries == (
        Query("1", "how tall", (r"20\s?,?\s?320",)),
        Query("3", "who", ("Page",)),
        Query("7", "where", ("here", "there")),
    )


def test_a_json_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "dev.json"
    items = [
        {"dataset": "nq", "question": "who", "answers": ["Page"], "positive_ctxs": [{"text": "t"}]},
        {"question": "where", "answers": ["here"]},
    ]
    path.write_text(json.dumps(items, indent=1))
    expected = (Query("1", "who", ("Page",)), Query("2", "where", ("here",)))
    assert questions_of(path).queries == expected
    packed = tmp_path / "dev.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(items).encode()))
    monkeypatch.setenv("SPARTA_MAX_LINE_MB", "0.0001")  # a list may be a longer line
    assert questions_of(packed).queries == expected


def test_squad_json_asked_of_any_index(tmp_path: Path) -> None:
    """Pretty or in one line; each answer once; questions without an answer are left out."""
    asked = [
        {"id": "a", "question": " who ", "answers": [{"text": "Page", "answer_start": 0}] * 2},
        {"id": "b", "question": "impossible", "answers": []},
    ]
    data = {"version": "1.1", "data": [{"title": "T", "paragraphs": [{"context": "Page", "qas": asked}]}]}
    for name, indent in (("dev.json", 1), ("dev.json", None), ("dev.jsonl", None)):
        (tmp_path / name).write_text(json.dumps(data, indent=indent))
        assert questions_of(tmp_path / name).queries == (Query("a", "who", ("Page",)),)
    asked[0]["answers"] = []
    (tmp_path / "dev.json").write_text(json.dumps(data, indent=1))
    with pytest.raises(InputError, match=r"dev\.json: no question"):
        questions_of(tmp_path / "dev.json")
    asked[:] = [{"id": "a", "question": "who", "answers": [{"text": "Page", "answer_start": 0}]}] * 2
    (tmp_path / "dev.json").write_text(json.dumps(data, indent=1))
    with pytest.raises(InputError, match="'a' was already the id of"):
        questions_of(tmp_path / "dev.json")


def test_fields_of_other_forms_do_not_matter(tmp_path: Path) -> None:
    """`header`, `qas` and `data` may be fields of any question."""
    path = tmp_path / "own.jsonl"
    for name in ("header", "data", "qas"):
        path.write_text(json.dumps({"id": "1", "question": "who", "answers": ["x"], name: ["Science"]}))
        assert questions_of(path).queries == (Query("1", "who", ("x",)),)
    broken = tmp_path / "lines.json"
    broken.write_text('{"question": "q" "answers": ["a"]}\n')
    with pytest.raises(InputError, match=r"lines\.json:1: broken JSON"):
        questions_of(broken)


def test_mrqa_jsonl_asked_of_any_index(tmp_path: Path) -> None:
    """All that a question's record names is an answer, not only what stands in its own context."""
    item = {
        "qid": "1",
        "question": "who",
        "answers": ["Page", "Larry Page"],
        "detected_answers": [{"text": "Larry Page", "char_spans": [[0, 9]]}],
    }
    lines = [{"header": {"dataset": "x"}}, {"context": "Larry Page.", "qas": [item]}]
    path = tmp_path / "dev.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    assert questions_of(path).queries == (Query("1", "who", ("Page", "Larry Page")),)
    path.write_bytes(gzip.compress(json.dumps(lines[1]).encode()))
    assert len(questions_of(path).queries) == 1, "the header may be missing"


def test_entity_questions(tmp_path: Path) -> None:
    folder = tmp_path / "dataset" / "test"
    folder.mkdir(parents=True)
    (folder / "P36.test.json").write_text(json.dumps([{"question": "capital", "answers": ["Paris"]}]))
    (folder / "P17.test.json").write_text(
        json.dumps([{"question": "country", "answers": ["France"]}, {"question": "land", "answers": ["UK"]}])
    )
    (folder / "readme.json").write_text("not read")
    asked = questions_of(folder)
    assert asked.name == "EntityQuestions test"
    assert asked.queries == (
        Query("P17-1", "country", ("France",)),
        Query("P17-2", "land", ("UK",)),
        Query("P36-1", "capital", ("Paris",)),
    )
    assert asked.groups == {"P17-1": "P17", "P17-2": "P17", "P36-1": "P36"}
    (folder / "P36.dev.json").write_text(json.dumps([{"question": "x", "answers": ["y"]}]))
    with pytest.raises(InputError, match="two files for the relation P36"):
        questions_of(folder)


ROW = "q\t['a']\n"


@pytest.mark.parametrize(
    ("name", "content", "place", "said"),
    [
        ("x.tsv", ROW + "only a question\n", ":2", "expected 2 columns (question, answers), found 1"),
        ("x.tsv", ROW + "a\tb\tc\n", ":2", "found 3"),
        ("x.tsv", "q\tLarry Page\n", ":1", "expected ['answer', …], found 'Larry Page'"),
        ("x.tsv", "q\t__import__('os').system('true')\n", ":1", "expected ['answer', …]"),
        ("x.tsv", ROW + "q\t[1]\n", ":2", "expected a list of strings, found [1]"),
        ("x.tsv", "q\t'a'\n", ":1", 'list of strings, found "a"'),
        ("x.tsv", "q\t[]\n", ":1", "list of strings, found []"),
        ("x.tsv", "q\t{'a': 1}\n", ":1", "list of strings, found {"),
        ("x.jsonl", '{"question": "q", "answer": "a"}\n{"question": "q"}\n', ":2", "missing answers"),
        ("x.jsonl", '{"answer": "a"}\n', ":1", "missing question"),
        ("x.jsonl", '{"question": "q", "answer": 3}\n', ":1", "list of strings, found 3"),
        ("x.jsonl", '{"question": "q", "answer": "a"\n', ":1", "broken JSON"),
        ("x.jsonl", '{"id": 1, "question": "q", "answer": "a"}\n' * 2, ":2", "'1' was already the id of"),
        ("x.json", "[]", "", "the list of questions is empty"),
        ("x.json", '[{"question": "q",\n "answers": }]', "", "Expecting value"),
        ("x.json", '[{"question": "q", "answers": ["a"]}, "q"]', ", item 2", 'found "q"'),
        (
            "x.json",
            '[{"question": "q", "answers": ["a"]}, {"question": 1, "answers": ["a"]}]',
            ", item 2",
            "a number",
        ),
        ("x.tsv", "", "", "empty"),
        ("x.tsv", "\n \n", "", "empty"),
    ],
)
def test_files_of_another_form(tmp_path: Path, name: str, content: str, place: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError) as error:
        questions_of(path)
    assert str(error.value).startswith(f"{path}{place}: ")
    assert said in str(error.value)
    assert "→" in str(error.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes(b"caf\xe9\t['a']\n")
    with pytest.raises(InputError, match="UTF-8"):
        questions_of(path)
    with pytest.raises(InputError, match="no such file or folder"):
        questions_of(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: .*\n.*queries\.jsonl"):
        questions_of(tmp_path / "empty")


def test_a_sample_is_always_the_same_and_a_larger_one_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("".join(f"question {i}\t['a']\n" for i in range(200)))
    asked = questions_of(path)
    few, more = asked.sample(20), asked.sample(50)
    assert (len(few.queries), few.sampled_from, len(more.queries)) == (20, 200, 50)
    assert few == asked.sample(20)
    assert [q for q in more.queries if q in few.queries] == list(few.queries), "in the file's order"
    assert more.sample(20).queries == few.queries
    assert asked.sample(200) is asked.sample(None) is asked
    numbers = [int(q.query_id) for q in more.queries]
    assert 60 < sum(numbers) / 50 < 140, "from everywhere"


def test_a_sample_keeps_the_judgments_of_its_questions(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": str(i), "text": f"q {i}"}) + "\n" for i in range(30))
    )
    rows = "".join(f"{i}\tp{i}\t1\n" for i in range(30))
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    few = questions_of(tmp_path).sample(4)
    assert set(few.qrels) == {q.query_id for q in few.queries}
    assert few.answers == {}


def test_judgments_of_questions_that_are_not_asked_do_not_count(tmp_path: Path) -> None:
    """Of them nothing can be found, and they would lower every mean."""
    (tmp_path / "questions.jsonl").write_text('{"_id": "1", "text": "who"}\n{"_id": "2", "text": "what"}\n')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n3\tb\t1\n")
    asked = questions_of(tmp_path)
    assert [q.query_id for q in asked.queries] == ["1"]
    assert asked.qrels == {"1": {"a": 1}}


def test_kilts_lines(tmp_path: Path) -> None:
    """Each answer once; outputs that name passages alone have none; an id may be missing or null."""
    provenance = [{"wikipedia_title": "Moon", "passage_ids": ["k1"]}]
    outputs = [
        {"answer": "French"},
        {"answer": "French", "provenance": provenance},
        {"provenance": provenance},
    ]
    lines = [
        {"id": "trex-1", "input": "Trochu [SEP] native language", "output": outputs},
        {"id": None, "input": "what\u2019s it", "output": [{"answer": "that"}, {"answer": "this"}]},
    ]
    path = tmp_path / "trex.dev.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert questions_of(path).queries == (
        Query("trex-1", "Trochu [SEP] native language", ("French",)),
        Query("2", "what's it", ("that", "this")),
    )
    moon = (Provenance(title="Moon", passage_ids=("k1",)),)
    assert questions_of(path).evidence == {"trex-1": (moon, moon)}
    assert questions_of(path).sample(1).evidence in ({"trex-1": (moon, moon)}, {})


def test_kilts_lines_without_answers(tmp_path: Path) -> None:
    """Provenance will do in their place (dialogues); neither of them is an error, and so is a broken one."""
    path = tmp_path / "wow.dev.jsonl"
    output = [{"answer": "", "provenance": [{"passage_ids": ["k1"]}]}]
    path.write_text(json.dumps({"id": "1", "input": "q", "output": output}))
    assert questions_of(path).queries == (Query("1", "q"),)
    wrongs = [{"answer": ""}], [{"provenance": []}], [{"answer": "a", "provenance": {}}], [], "x"
    for wrong in (*wrongs, [{"answer": ["a", "b"]}], [{"answer": {"a": 1}}]):
        path.write_text("\n" + json.dumps({"id": "1", "input": "q", "output": wrong}))
        with pytest.raises(InputError, match=r"(expected a list of|no output has|provenance)") as raised:
            questions_of(path)
        assert f"{path}:2" in str(raised.value)


def test_what_is_left_out_and_measured_for_some_is_said(tmp_path: Path, caplog: Any, capsys: Any) -> None:
    (tmp_path / "qrels").mkdir()
    lines = [
        {"_id": "judged", "text": "a"},
        {"_id": "answered", "text": "b", "answers": ["x", " "]},
        {"_id": "blank", "text": "c", "answers": [""]},
        {"_id": "neither", "text": "d"},
    ]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\njudged\tp\t1\nno-text\tp\t1\n")
    (tmp_path / "corpus.jsonl").write_text("")
    found = questions_of(tmp_path)
    assert [q.query_id for q in found.queries] == ["judged", "answered"]
    assert (found.answers, found.omitted_questions) == ({"answered": ("x",)}, 2)
    warned = [record.message for record in caplog.records if "no-text" in record.message]
    assert len(warned) == 1
    assert found.known() == {"answers": 1, "judged passages": 1, "pages": 0, "supporting facts": 0}
    capsys.readouterr()
    questions = QuestionArguments(datasets=(tmp_path,), sample=None, matches=())
    assert query_sets(questions, tmp_path) == [found]
    said = capsys.readouterr().err
    assert all(part in said for part in ("2 questions", "answers cover 1 of 2", "passages cover 1 of 2"))
    caplog.clear()
    assert len(open_test_set(tmp_path, tmp_path).queries) == 1
    assert "no-text" in caplog.text


def test_squads_impossible_questions_are_counted(tmp_path: Path) -> None:
    answers = {"a": [{"text": "Page", "answer_start": 0}], "b": [], "c": [{"text": " ", "answer_start": 4}]}
    asked = [{"id": i, "question": "who", "answers": own} for i, own in answers.items()]
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "Page founded it", "qas": asked}]}]}))
    found = questions_of(path)
    assert (found.answers, found.omitted_questions) == ({"a": ("Page",)}, 2)


@pytest.mark.parametrize(
    "line", ['{"question": "who", "answers": [""]}', '{"question": "who", "answers": " "}', "who\t['', ' ']"]
)
def test_blank_answers_are_none(line: str, tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text(f"{line}\n")
    with pytest.raises(InputError, match="every answer is blank"):
        questions_of(path)


def test_two_questions_of_one_id_are_refused() -> None:
    with pytest.raises(InputError, match="two queries have the id '1'"):
        QuestionSet("set", (Query("1", "who"), Query("2", "what"), Query("1", "where")))


def test_a_beir_folder_may_be_compressed_and_have_one_other_file_of_judgments(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    for name, line in (("corpus", {"_id": "d", "text": "x"}), ("queries", {"_id": "q", "text": "what"})):
        (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress(json.dumps(line).encode()))
    (tmp_path / "qrels" / "dev.tsv.gz").write_bytes(gzip.compress(b"query-id\tcorpus-id\tscore\nq\td\t1\n"))
    assert questions_of(tmp_path).qrels == {"q": {"d": 1}}
    assert open_test_set(tmp_path, tmp_path / "work").qrels == {"q": {"d": 1}}
    test = "query-id\tcorpus-id\tscore\nq\td\t2\n"
    (tmp_path / "qrels" / "test.tsv").write_text(test)
    assert questions_of(tmp_path).qrels == {"q": {"d": 2}}
    assert open_test_set(tmp_path, tmp_path / "work").qrels == {"q": {"d": 2}}


@pytest.mark.parametrize(
    ("qrels", "questions", "expected"),
    [
        (["dev", "train"], ["questions.jsonl", "qrels.tsv"], "questions"),
        (["test"], ["questions.jsonl", "qrels.tsv"], "questions"),
        (["test"], ["questions.jsonl"], "queries"),
    ],
)
def test_both_commands_read_the_same_questions_of_a_folder(
    tmp_path: Path, qrels: list[str], questions: list[str], expected: str
) -> None:
    """BEIR's files, and those that sparta names, are in one folder."""
    judged = "query-id\tcorpus-id\tscore\nq\td\t1\n"
    for name in (*(f"qrels/{split}.tsv" for split in qrels), *questions, "queries.jsonl", "corpus.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        line = json.dumps({"_id": "q", "text": path.stem, "answers": ["d"]})
        path.write_text(judged if path.suffix == ".tsv" else line)
    for read in (questions_of, lambda folder: open_test_set(folder, tmp_path / "work")):
        assert [query.text for query in read(tmp_path).queries] == [expected]
