"""Long texts cut into chunks; their hits are documents, each by its best chunk."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from sparta.api import Index
from sparta.base.errors import InputError, NoPassageError
from sparta.base.records import Passage
from sparta.data.sentences import split_units
from sparta.data.units import chunk_unit
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.search.contexts import joined
from sparta.search.retriever import Page
from tests.programs import sparta

WORDS = ["moon", "sun", "star", "ice", "rock", "dust", "ash", "sand", "lake", "tree"]


def documents(n: int = 12) -> list[dict[str, str]]:
    """Texts of 1 to 120 words; the first has many chunks that all match."""
    pick = random.Random(5)
    texts = [" ".join(pick.choices(WORDS, k=pick.randint(1, 120))) for _ in range(n - 1)]
    return [{"id": f"d{i}", "text": text} for i, text in enumerate(["moon sun " * 60, *texts])]


def brute_chunks(text: str, words: int, overlap: int) -> list[str]:
    found, start, pieces = text.split(), 0, []
    while True:
        pieces.append(" ".join(found[start : start + words]))
        if start + words >= len(found):
            return pieces
        start += words - overlap


@pytest.mark.parametrize(("words", "overlap"), [(7, 0), (7, 3), (1, 0), (200, 50)])
def test_chunks_are_windows_of_words(words: int, overlap: int) -> None:
    for record in documents():
        passage = Passage(record["id"], record["text"], "T")
        chunks = list(split_units([passage], chunk_unit(words, overlap)))
        assert [c.text for c in chunks] == brute_chunks(record["text"], words, overlap)
        assert [c.passage_id for c in chunks] == [f"{record['id']}#{n}" for n in range(len(chunks))]
        for chunk in chunks:
            own = chunk.record
            assert record["text"][own["start"] : own["end"]] == chunk.text
            assert (own["document_id"], chunk.title, chunk.context) == (record["id"], "T", "")


SENTENCES = [
    "The moon has ice.",
    "Dr. Ash saw a star, a rock and a lake on it in 1969!",
    "Is sand dust?",
    "A tree is not a star, and it has no light of its own, but it grows and grows and grows there.",
    "Yes.",
    "The sun is hot.",
]


@pytest.mark.parametrize("overlap", [0, 6])
@pytest.mark.parametrize("space", [" ", "\n\n", " \n"])
def test_chunks_end_at_sentences_where_they_can(space: str, overlap: int) -> None:
    text = space.join(SENTENCES)
    chunks = list(split_units([Passage("d", text)], chunk_unit(18, overlap)))
    places = [(chunk.record["start"], chunk.record["end"]) for chunk in chunks]
    assert [text[start:end] for start, end in places] == [chunk.text for chunk in chunks]
    assert all(len(chunk.text.split()) <= 18 for chunk in chunks)
    if overlap:
        assert all(start < end for (_, end), (start, _) in pairwise(places))
    else:
        assert chunks[0].text == f"{SENTENCES[0]}{space}{SENTENCES[1]}"
        assert chunks[1].text == f"{SENTENCES[2]}{space}{' '.join(SENTENCES[3].split()[:15])}"
        assert chunks[2].text.endswith("The sun is hot.")
    assert joined({**chunk.record, "contents": chunk.text} for chunk in chunks) == text


def test_chinese_chunks_end_at_sentences() -> None:
    text = "月亮上有冰。太阳很热！树木生长。"
    chunks = list(split_units([Passage("d", text)], chunk_unit(12), "zh"))
    assert [chunk.text for chunk in chunks] == ["月亮上有冰。太阳很热！", "树木生长。"]


def test_a_text_without_words_is_one_chunk() -> None:
    (chunk,) = split_units([Passage("a", "", "Title")], chunk_unit(5))
    assert (chunk.passage_id, chunk.text, chunk.title) == ("a#0", "", "Title")


@pytest.mark.parametrize(("words", "overlap"), [(0, 0), (5, 5), (5, -1)])
def test_impossible_chunks_are_refused(words: int, overlap: int) -> None:
    with pytest.raises(InputError, match=rf"found {words} words, overlap {overlap}") as told:
        chunk_unit(words, overlap)
    assert told.value.remedy.for_python() == "for example unit=sparta.chunk_unit(200, 50)"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_model_folder: Path) -> tuple[Path, Path]:
    """The same chunks twice: as chunks of documents, and as passages of their own."""
    folder = tmp_path_factory.mktemp("chunks")
    build_index(folder / "ix", documents(), options=options(tiny_model_folder, chunk_unit(6, 2)))
    pieces = [
        {"id": f"{one['id']}/{n}", "text": text}
        for one in documents()
        for n, text in enumerate(brute_chunks(one["text"], 6, 2))
    ]
    build_index(folder / "pieces", pieces, options=options(tiny_model_folder, None))
    return folder / "ix", folder / "pieces"


def options(model: Path, unit: str | None) -> IndexOptions:
    return IndexOptions(model=str(model), unit=unit)


@pytest.mark.jvm
def test_an_older_index_keeps_its_chunks(tmp_path: Path, tiny_model_folder: Path) -> None:
    """Its unit has no `:sentence`; the same options append, and chunks still end after so many words."""
    text = "The moon has ice. A star is far. The sun is hot."
    old = options(tiny_model_folder, "chunk:6:0")
    with Index.create(tmp_path / "ix", [{"id": "a", "text": text}], options=old) as index:
        index.append([{"id": "b", "text": text}], options=options(tiny_model_folder, chunk_unit(6)))
        hits = index.search("moon star sun", 10, hits="chunks", channel="bm25")
        assert {hit.text for hit in hits} == {"The moon has ice. A star", "is far. The sun is hot."}
        for hit in hits:
            assert text[hit.start : hit.end] == hit.text
    with Index.create(
        tmp_path / "new", [{"id": "a", "text": text}], options=options(tiny_model_folder, chunk_unit(6))
    ) as index:
        hits = index.search("moon star sun", 10, hits="chunks", channel="bm25")
        assert {hit.text for hit in hits} == {"The moon has ice.", "A star is far.", "The sun is hot."}


@pytest.mark.jvm
@pytest.mark.parametrize("channel", ["impact", "bm25"])
def test_hits_are_documents_by_their_best_chunk(built: tuple[Path, Path], channel: str) -> None:
    with Index(built[0]) as index, Index(built[1]) as pieces:
        for query in ("moon sun", "ice", "star lake rock"):
            best: dict[str, tuple[float, str]] = {}
            for hit in pieces.search(query, 10_000, channel=channel):
                best.setdefault(hit.passage_id.split("/")[0], (hit.score, hit.text))
            for k in (1, 3, 5, 100):
                hits = index.search(query, k, channel=channel)
                assert [(h.passage_id, (h.score, h.text)) for h in hits] == list(best.items())[:k]


@pytest.mark.jvm
def test_both_channels_at_once_give_the_same(built: tuple[Path, Path]) -> None:
    with Index(built[0]) as index:
        impact, bm25 = index.searcher.rank_both(["moon sun", "ice"], Page(4))
        searchers = {name: index.searcher.beside(name) for name in ("impact", "bm25")}
        assert impact == searchers["impact"].rank(["moon sun", "ice"], Page(4))
        assert bm25 == searchers["bm25"].rank(["moon sun", "ice"], Page(4))


@pytest.mark.jvm
def test_a_document_is_explained_by_its_best_chunk(built: tuple[Path, Path]) -> None:
    with Index(built[0]) as index:
        hits = index.search("star lake", 20)
        for rank, hit in enumerate(hits, 1):
            explained = index.explain("star lake", hit.passage_id)
            assert (explained.score, explained.passage_id) == (hit.score, hit.passage_id)
            assert explained.rank == rank


@pytest.mark.jvm
@pytest.mark.parametrize("channel", ["impact", "bm25"])
def test_a_filter_chooses_the_chunk_that_explains_a_document(built: tuple[Path, Path], channel: str) -> None:
    with Index(built[0]) as index:
        for filter in ({"start": 0}, {"start": {"gt": 40}}):
            hits = index.search("star lake", 20, channel=channel, filter=filter)
            assert len(hits) > 3
            for rank, hit in enumerate(hits, 1):
                explained = index.explain("star lake", hit.passage_id, channel=channel, filter=filter)
                assert (explained.rank, explained.score) == (rank, hit.score)
        best = index.explain("star lake", hits[0].passage_id, channel=channel)
        excluded = index.explain("star lake", best.passage_id, channel=channel, filter={"start": {"lt": 0}})
        assert (excluded.rank, excluded.score) == (0, best.score)


@pytest.mark.jvm
def test_the_terms_of_a_hit_are_those_of_its_chunk(built: tuple[Path, Path]) -> None:
    result = sparta("search", "star lake", "--index", str(built[0]), "--filter", "start=0", "--json")
    hits = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(hits) > 3
    assert [sum(term["share"] for term in hit["terms"]) for hit in hits] == [hit["score"] for hit in hits]


@pytest.mark.jvm
def test_of_chunks_with_equal_scores_the_first_explains_the_document(tmp_path: Path) -> None:
    """An update keeps the positions of the old chunks, so other documents stand between `a#2` and `a#10`."""
    ice, moon = "Ice rock dust sand.", "Moon tree lake ash."
    records = [{"id": "a", "text": " ".join([ice] * 5)}, {"id": "b", "text": moon}]
    options = IndexOptions(channels="bm25", unit=chunk_unit(4))
    with Index.create(tmp_path / "ix", records, options=options) as index:
        index.update([{"id": "a", "text": " ".join([ice, ice, moon, *[ice] * 7, moon])}])
        assert [hit.passage_id for hit in index.search("moon", channel="bm25")] == ["a", "b"]
        assert index.explain("moon", "a", channel="bm25").rank == 1


@pytest.mark.jvm
def test_a_document_is_opened_by_the_id_of_its_hits(built: tuple[Path, Path]) -> None:
    """Its chunks overlap; a term has the highest of its impacts in them."""
    with Index(built[0]) as index:
        for record in documents():
            found = index.passage(record["id"])
            assert found == {"id": record["id"], "title": "", "text": record["text"].strip()}
        first, parts = index.passage("d0#0"), range(len(brute_chunks(documents()[0]["text"], 6, 2)))
        assert (first["id"], first["document_id"], first["start"]) == ("d0#0", "d0", 0)
        highest: dict[str, int] = {}
        for n in parts:
            for term, impact, _ in index.terms(f"d0#{n}"):
                highest[term] = max(impact, highest.get(term, 0))
        assert {term: impact for term, impact, _ in index.terms("d0")} == highest
        with pytest.raises(NoPassageError, match="no passage with the id 'd'"):
            index.passage("d")


@pytest.mark.jvm
def test_a_document_is_updated_and_deleted_whole(tmp_path: Path, tiny_model_folder: Path) -> None:
    some = options(tiny_model_folder, chunk_unit(3))
    first = [{"id": "a", "text": "moon sun star ice rock"}]
    own = options(tiny_model_folder, None)
    with Index.create(tmp_path / "ix", first, options=some) as index:
        assert len(index) == 2
        index.append(
            [{"id": "b", "text": "dust ash sand lake tree moon sun"}],
            options=options(tiny_model_folder, None),
        )
        assert len(index) == 5
        index.update([{"id": "b", "text": "ice"}], options=own)
        assert len(index) == 3
        assert [hit.passage_id for hit in index.search("tree", channel="bm25")] == []
        assert index.delete("a") == 1
        assert len(index) == 1


@pytest.mark.jvm
def test_the_command_cuts_and_refuses(tmp_path: Path, tiny_model_folder: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("\n".join(map(json.dumps, documents(3))))
    base = [
        "index",
        "--index",
        str(tmp_path / "ix"),
        "--corpus",
        str(corpus),
        "--model",
        str(tiny_model_folder),
    ]
    for wrong, advice in (
        (["--overlap", "2"], "--chunk 200 --overlap 50"),
        (["--chunk", "5", "--unit", "sentence"], "omit one of these options"),
        (["--chunk", "5", "--overlap", "5"], "--chunk 200 --overlap 50"),
    ):
        result = sparta(*base, *wrong)
        assert (result.exit_code, advice in result.stderr) == (2, True), result.stderr
    assert sparta(*base, "--chunk", "6", "--overlap", "2").exit_code == 0
    other = sparta(*base, "--append", "--chunk", "9")
    assert "use --chunk 6 --overlap 2" in other.stderr
