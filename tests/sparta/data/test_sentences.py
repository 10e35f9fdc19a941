import json
import subprocess
import sys
from bisect import bisect_right
from pathlib import Path

import pytest

from sparta.base.errors import InputError
from sparta.base.records import Hit, Passage
from sparta.data.corpus import open_corpus
from sparta.data.parsing import BadRecordError
from sparta.data.sentences import sentence_splitter, split_units
from sparta.data.units import context_of
from sparta.search.contexts import joined_hits, whole_record
from sparta.shards.store import stored_object

ROOT = Path(__file__).parents[3]


def sentences(text: str, language: str = "en") -> list[str]:
    return [text[a:b] for a, b in sentence_splitter(language)(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("No stop at the end", ["No stop at the end"]),
        (
            "Dr. Smith met Mr. Jones at 5.30 p.m. in Washington. They left.",
            ["Dr. Smith met Mr. Jones at 5.30 p.m. in Washington.", "They left."],
        ),
        ("It costs 3.14 dollars. Cheap.", ["It costs 3.14 dollars.", "Cheap."]),
        ("  Spaces.\n\n Between.  ", ["Spaces.", "Between."]),
        ("Is it? Yes — it is… Good.", None),
        ("", []),
        (" \n ", []),
        ("...", ["..."]),
    ],
)
def test_english(text, expected):
    found = sentences(text)
    if expected is None:
        assert "".join("".join(found).split()) == "".join(text.split())
    else:
        assert found == expected


def test_chinese():
    text = "地球是一颗行星。月亮绕着地球转！谁知道？我不知道"
    assert sentences(text, "zh") == ["地球是一颗行星。", "月亮绕着地球转！", "谁知道？", "我不知道"]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("ru", "Он пошёл вчера\nдомой к матери.", ["Он пошёл вчера\nдомой к матери."]),
        ("ru", "Заголовок\nДомой к матери.", ["Заголовок", "Домой к матери."]),
        ("pl", "Poszedł wczoraj\nśpiewać w domu.", ["Poszedł wczoraj\nśpiewać w domu."]),
        ("fr", "Il a vu une\nœuvre au musée.", ["Il a vu une\nœuvre au musée."]),
        ("fr", "Un titre\nŒuvre au musée.", ["Un titre", "Œuvre au musée."]),
        ("tr", "Dün akşam\nşehre gitti.", ["Dün akşam\nşehre gitti."]),
        ("ar", "عنوان\nذهب إلى البيت.", ["عنوان", "ذهب إلى البيت."]),
        ("en", "სათაური\nსახლში წავიდა.", ["სათაური", "სახლში წავიდა."]),
    ],
)
def test_a_line_that_begins_in_lower_case_goes_on(language, text, expected):
    """In every script that has case; Georgian begins its sentences in lower case."""
    assert sentences(text, language) == expected


def test_offsets_are_characters_also_beyond_the_basic_plane():
    text = "😀 Größe zählt. 𝔘nicode, too! 東京。End."
    spans = sentence_splitter("en")(text)
    assert text[slice(*spans[0])] == "😀 Größe zählt."
    assert all(text[a:b].strip() == text[a:b] != "" for a, b in spans)


@pytest.mark.parametrize(
    "text", ["A. B. C.", "Mr. X said: “Go! Now.” He went.\nU.S. law. (See p. 5.) End", "。。a？！b"]
)
def test_spans_are_in_order_and_leave_out_white_space_only(text):
    spans = sentence_splitter("en")(text)
    edges = [edge for span in spans for edge in span]
    assert edges == sorted(edges)
    covered = "".join(text[a:b] for a, b in spans)
    assert "".join(covered.split()) == "".join(text.split())


def test_units():
    text = "Larry Page founded it. It was a company.  The end!"
    record = {"id": "g", "text": text, "title": "Google", "year": 1998}
    whole = Passage("g", text, "Google", record=record, where="x:1")
    answer = Passage("a", "city", context="the city of paris", start=4, end=8)
    assert list(split_units([whole, answer], "passage")) == [whole, answer]
    *parts, last = split_units([whole, answer], "sentence")
    assert [p.passage_id for p in parts] == ["g#0", "g#1", "g#2"]
    assert [p.text for p in parts] == ["Larry Page founded it.", "It was a company.", "The end!"]
    for part in parts:
        assert part.context == text
        assert part.context[part.start : part.end] == part.text
        assert (part.title, part.where) == ("Google", "x:1")
        assert part.record == {"year": 1998, "passage_id": "g", "start": part.start, "end": part.end}
    assert last is answer


@pytest.mark.parametrize("unit", ["chunk:2:0", "sentence"])
def test_metadata_of_the_name_context_is_no_context(unit: str) -> None:
    record = {"id": "p", "context": "metadata"}
    (first, _) = split_units([Passage("p", "One two. Three four.", record=record)], unit)
    assert context_of(stored_object(first)) == ""
    in_context = Passage("q", "two", "", "One two.", 4, 7, {"context": "One two.", "start": 4, "end": 7})
    (same,) = split_units([in_context], unit)
    assert context_of(stored_object(same)) == "One two."


def test_units_are_a_stream():
    """The second passage is not read before the first one's sentences are used."""

    def passages():
        yield Passage("a", "One. Two.")
        raise AssertionError("read too early")

    units = split_units(passages(), "sentence")
    assert [next(units).passage_id, next(units).passage_id] == ["a#0", "a#1"]


def test_an_unknown_unit():
    with pytest.raises(InputError, match="unknown unit of retrieval 'page'"):
        list(split_units([], "page"))


def test_ids_that_end_like_a_sentences(tmp_path):
    """They are bad records: skipped and counted where that is wished, else a stop with file and line."""
    path = tmp_path / "corpus.jsonl"
    records = [{"id": i, "text": "One. Two."} for i in ("a", "b#1", "c")]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    reader = open_corpus(path, skip_invalid=True)
    assert [p.passage_id for p in split_units(reader, "sentence")] == ["a#0", "a#1", "c#0", "c#1"]
    counts = reader.counts.as_dict()
    assert counts == {"read": 3, "used": 2, "skipped": 1, "reasons": {"invalid id": 1}}
    assert reader.counts.first_skips[0].where == f"{path}:2"
    reader = open_corpus(path)
    with pytest.raises(BadRecordError, match="'b#1' ends in # and a number") as caught:
        list(split_units(reader, "sentence"))
    assert caught.value.where == f"{path}:2"
    assert caught.value.for_command_line().endswith("skip such records with --skip-invalid")
    assert reader.counts.used == 1
    assert len(list(split_units(open_corpus(path), "passage"))) == 3
    with pytest.raises(BadRecordError, match="'b#1' ends in # and a number"):
        list(split_units([Passage("b#1", "One.")], "sentence"))


@pytest.mark.parametrize("space", ["\u00a0", "\u2009", "\u2028", "\u202f", "\u3000"])
def test_white_space_beyond_ascii_after_a_capital(space: str) -> None:
    """The text itself keeps its white space."""
    text = f"Carrots hold vitamin A{space}. They{space}grow in Rome{space}B{space}."
    assert sentences(text) == [f"Carrots hold vitamin A{space}.", f"They{space}grow in Rome{space}B{space}."]


@pytest.mark.parametrize("unit", ["sentence", "chunk:2:0:sentence"])
def test_a_text_on_which_the_splitter_panics(
    unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a bad record: skipped and counted where that is wished, else a stop with file and line."""
    from sentencex import get_sentence_boundaries

    panic = type("PanicException", (BaseException,), {})

    def boundaries(language: str, text: str) -> list[dict[str, int]]:
        if "bad" in text:
            raise panic("end byte index 23")
        return get_sentence_boundaries(language, text)

    monkeypatch.setattr("sentencex.get_sentence_boundaries", boundaries)
    path = tmp_path / "corpus.tsv"
    path.write_text("a\tOne. Two.\nb\tA bad text.\nc\tThe end.\n")
    reader = open_corpus(path, skip_invalid=True)
    units = split_units(reader, unit)
    assert {each.passage_id.partition("#")[0] for each in units} == {"a", "c"}
    assert reader.counts.first_skips[0].where == f"{path}:2"
    with pytest.raises(BadRecordError, match="cannot be split: sentencex fails: end byte index 23") as caught:
        list(split_units(open_corpus(path), unit))
    assert caught.value.where == f"{path}:2"


@pytest.mark.parametrize(("unit", "name"), [("sentence", "passage_id"), ("chunk:2:0", "document_id")])
def test_fields_that_parts_need_are_theirs(unit: str, name: str) -> None:
    """In a process of its own: a process warns once."""
    code = f"""
import json
from sparta.base.records import Passage
from sparta.data.sentences import split_units
one = Passage("a", "The moon. The sun.", record={{{name!r}: "mine", "start": 3.5, "lang": "en"}})
print(json.dumps([part.record for part in split_units([one], {unit!r})]))
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    records = json.loads(ended.stdout)
    assert {(record[name], record["lang"]) for record in records} == {("a", "en")}
    assert records[0]["start"] == 0
    for field in (name, "start"):
        assert f"field {field} of" in ended.stderr
    assert len(ended.stderr.splitlines()) == 2, "once, not for each part"


def pages_of(record, offsets):
    first_page = record.get("first_page", 1)
    return [first_page - 1 + bisect_right(record["page_starts"], offset) for offset in offsets]


@pytest.mark.parametrize("unit", ["sentence", "chunk:7:2", "chunk:7:2:sentence", "chunk:900:0"])
def test_a_part_of_a_pdf_has_the_starts_of_its_pages(unit, caplog):
    texts = ["", "The moon is round. Ice.", "", *(f"Page {n} has rock. Dust" for n in range(30)), "", "Yes."]
    text, starts = "", []
    for page in texts:
        text += "\n\n" if page and text else ""
        starts.append(len(text))
        text += page
    pages = pages_of({"page_starts": starts}, range(len(text)))
    passage = Passage("a.pdf", text, "Moon", record={"page_starts": starts})
    parts = [{**part.record, "contents": part.text} for part in split_units([passage], unit)]
    for part in parts:
        start, end = part["start"], part["end"]
        assert pages_of(part, range(start, end)) == pages[start:end]
        assert part["first_page"] == pages[start]
        assert len(part["page_starts"]) == pages[end - 1] - pages[start] + 1
    hits = [
        Hit(f"a.pdf#{n}", 1, "", part["contents"], part, {}, "a.pdf", part["start"], part["end"])
        for n, part in enumerate(parts)
    ]
    (hit,) = joined_hits(hits)
    letters = [offset for offset in range(hit.start, hit.end) if not text[offset].isspace()]
    for record in (hit.metadata, whole_record("a.pdf", parts, unit)):
        assert pages_of(record, letters) == [pages[offset] for offset in letters]
    assert not caplog.records


@pytest.mark.parametrize("starts", ["12", [3, 1], [1, 5], ["a"], []])
def test_a_field_page_starts_without_starts_stays(starts):
    passage = Passage("a", "One. Two.", record={"page_starts": starts, "first_page": "S. 1"})
    parts = [{**part.record, "contents": part.text} for part in split_units([passage], "sentence")]
    for record in (*parts, whole_record("a", parts, "sentence")):
        assert (record["page_starts"], record["first_page"]) == (starts, "S. 1")


@pytest.mark.parametrize(
    ("unit", "kept"),
    [
        ("sentence", {"document_id": "mine", "space_after": "x"}),
        ("chunk:2:0", {"passage_id": "mine"}),
    ],
)
def test_a_whole_passage_has_the_fields_that_its_parts_do_not_need(unit, kept):
    passage = Passage("a", "The moon. The sun.", record={**kept, "lang": "en"})
    parts = [{**part.record, "contents": part.text} for part in split_units([passage], unit)]
    whole = whole_record("a", parts, unit)
    assert whole == {"id": "a", "contents": passage.text, "lang": "en", **kept}
