"""Indexes that were written once and are never written again: every later sparta must open them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sparta.data.languages import LANGUAGES
from sparta.index.build import write_index
from sparta.index.folder import FORMAT_VERSION, IndexFolder
from sparta.index.inputs.options import IndexOptions
from sparta.index.inputs.sources import vectors_source
from sparta.index.jobs import WriteOptions
from sparta.index.pipeline import build_index
from sparta.search.searcher import Searcher

pytestmark = pytest.mark.jvm

FORMATS = Path(__file__).parents[2] / "formats"
CODECS = ("lucene", "sparta")
LINES = [
    {
        "id": "a",
        "contents": "The moon goes around the earth.",
        "vector": {"moon": 200, "earth": 90, "the": 3},
    },
    {"id": "b", "contents": "The sun is a star.", "vector": {"sun": 255, "star": 121, "the": 3}},
    {"id": "c", "contents": "A river runs by the town.", "vector": {"river": 65535, "town": 300}},
    {"id": "d", "contents": "The moon of the town.", "title": "odd", "vector": {"moon": 200, "town": 1}},
]


def written(folder: Path, codec: str, tokenizer: Path) -> IndexFolder:
    """The index that a folder of tests/formats was copied from, when its format was new."""
    vectors = folder / "vectors.jsonl"
    vectors.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    index = IndexFolder(folder / codec)
    write_index(index, vectors_source([vectors], tokenizer), WriteOptions(codec=codec, threads=1))
    return index


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
@pytest.mark.parametrize("codec", CODECS)
def test_an_index_of_each_format_opens(tmp_path, codec, version):
    shutil.copytree(FORMATS / f"index-{version}-{codec}", tmp_path / "index")
    with Searcher(tmp_path / "index") as searcher:
        hits = searcher.search("the moon, the town", 9)
        assert [(h.passage_id, h.score) for h in hits] == [
            ("c", 300.0),
            ("a", 206.0),
            ("d", 201.0),
            ("b", 6.0),
        ]
        assert hits[2].text == "The moon of the town."
        assert hits[2].title == "odd"
        if version > 1:
            assert searcher.search("the moon, the town", 9, filter={"title": "odd"}) == hits[2:3]
    with Searcher(tmp_path / "index", channel="bm25") as searcher:
        assert [h.passage_id for h in searcher.search("moon town", 9)] == ["d", "c", "a"]


@pytest.mark.parametrize("codec", CODECS)
def test_the_newest_format_is_the_one_written_now(tmp_path, tiny_tokenizer, codec):
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    tiny_tokenizer.save(str(tokenizer / "tokenizer.json"))
    now = json.loads((written(tmp_path, codec, tokenizer).path / "manifest.json").read_text())
    del now["checksum"]  # which older ones of this format lack
    then = json.loads((FORMATS / f"index-{FORMAT_VERSION}-{codec}" / "manifest.json").read_text())

    def shape(value: object) -> object:
        return {k: shape(v) for k, v in value.items()} if isinstance(value, dict) else type(value).__name__

    assert shape(now) == shape(then), (
        "a manifest of another shape is a new format: FORMAT_VERSION, tests/formats"
    )


@pytest.mark.slow
def test_an_older_index_in_chinese_is_searched_as_it_was_written(tmp_path):
    """Its manifest names no analyzer: its texts were bigrams alone, and not folded."""
    path = tmp_path / "ix"
    records = [{"id": "1", "text": "臺灣"}, {"id": "2", "text": "台湾"}]
    older = replace(LANGUAGES["zh"], analyzer=LANGUAGES["zh"].former, fold=str)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LANGUAGES, "zh", older)
        build_index(path, records, options=IndexOptions(language="zh", channels="bm25"))
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["live"]["analyzer"] == "cjk.CJKAnalyzer"
    live = IndexFolder(path).require_live()
    state = IndexFolder(path).state()
    IndexFolder(path).write_state(replace(state, live=replace(live, analyzer="")))
    assert "analyzer" not in json.loads((path / "manifest.json").read_text())["live"]
    build_index(path, [{"id": "3", "text": "臺灣大學"}], "append", IndexOptions(language="zh"))
    with Searcher(path, channel="bm25") as searcher:
        assert {hit.passage_id for hit in searcher.search("臺灣")} == {"1", "3"}
        assert {hit.passage_id for hit in searcher.search("台湾")} == {"2"}
    build_index(path, records, "overwrite", IndexOptions(language="zh", channels="bm25"))
    with Searcher(path, channel="bm25") as searcher:
        assert {hit.passage_id for hit in searcher.search("台湾")} == {"1", "2"}
