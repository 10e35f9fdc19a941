"""The steps over an index, against brute force over all passages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from dense.encoding.skills import Skills
from hybrid.multihop.chain import Chain
from hybrid.multihop.searcher import ChainPassages, ChainSearcher
from hybrid.multihop.steps import Step, read_chain
from hybrid.multihop.tools import IndexTools
from hybrid.retrieval.fusion import CANDIDATES
from sparta.base.errors import IndexStateError, InputError, ModelError
from sparta.base.records import Hit, Passage
from sparta.reader.records import Text
from tests.dense.channel.channels import done
from tests.dense.models.skill_models import skill_config, skill_model
from tests.programs import dense, sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread")]
ASKED = "who founded google"


@pytest.fixture(scope="module")
def made(
    make_records: Callable[..., Any],
    write_jsonl: Callable[..., Path],
    tiny_tokenizer: Any,
    tiny_model_folder: Path,
    tmp_path_factory: Any,
) -> dict[str, Any]:
    """An index with the dense channel of a model with skills, and one of entities."""
    folder = tmp_path_factory.mktemp("chain")
    records = [{**r, "text": f"{r['text']} {r['title']}"} for r in make_records(24, seed=2)]
    corpus = write_jsonl(folder / "corpus.jsonl", records)
    model = skill_model(tiny_tokenizer, seed=4)
    assert model.spans is not None
    with torch.no_grad():  # some spans score above [CLS], not all
        states, _ = model.states(5, [Skills(model).windows(ASKED)[0].input])
        model.spans.anchor.normal_()
        model.spans.anchor.add_(states[0, 0], alpha=-float(states[0, 0] @ model.spans.anchor) / 64)
    model.save_pretrained(folder / "skills")
    done(
        dense,
        "convert",
        "--from",
        folder / "skills",
        "--reader",
        "entity",
        "--output",
        folder / "entity",
    )
    entities = write_jsonl(folder / "entities.jsonl", [{**r, "kind": "description"} for r in records])
    for name, encoder, source in (("index", "skills", corpus), ("entities", "entity", entities)):
        options = ("--corpus", source, "--model", tiny_model_folder, "--index", folder / name)
        done(sparta, "index", *options)
        done(dense, "index", "--model", folder / encoder, "--index", folder / name)
    passages = [Passage(r["id"], r["text"], r["title"]) for r in records]
    return {"folder": folder, "passages": passages, "skills": Skills.open(folder / "skills")}


@pytest.fixture
def tools(made: dict[str, Any]) -> Any:
    folder = made["folder"]
    with IndexTools(folder / "index", folder / "skills", folder / "entities") as opened:
        yield opened


def best(vector: np.ndarray, rows: np.ndarray, passages: list[Passage], k: int) -> dict[str, float]:
    scores = rows.astype(np.float32) @ vector
    return {passages[i].passage_id: float(scores[i]) for i in np.argsort(-scores)[:k]}


def close(found: dict[str, float], expected: dict[str, float]) -> None:
    """The same scores; vectors are stored in 16 bits."""
    np.testing.assert_allclose(sorted(found.values()), sorted(expected.values()), rtol=0.02, atol=0.2)


@pytest.mark.slow
def test_steps_against_brute_force(made: dict[str, Any], tools: IndexTools) -> None:
    passages, skills = made["passages"], made["skills"]
    rows = skills.encoded_by("passage", skills.passages(passages))
    entities = skills.encode_entities(passages)
    hits = tools.retrieve(Step("s", "retrieve", channel="dense", depth=5), ASKED)
    close(
        {h.passage_id: h.score for h in hits},
        best(skills.model.encode_questions([ASKED])[0], rows, passages, 5),
    )
    named = {p.passage_id: p for p in passages}
    first = [named[h.passage_id] for h in hits[:2]]
    expand = Step("e", "expand", ("f",), depth=4)
    for one, vector, own in zip(
        first,
        skills.encode_expanded([ASKED] * 2, first),
        tools.expand(expand, ASKED, hits[:2]),
        strict=True,
    ):
        close({h.passage_id: h.score for h in own}, best(vector, rows, passages, 4))
        assert one.text
    [linked] = tools.link(Step("l", "link", depth=3), [Hit("", 0.0, text=ASKED)])
    [spans] = skills.find_spans([ASKED])
    assert spans
    vectors = skills.encode_mentions([ASKED] * len(spans), [(s.start, s.end) for s in spans])
    for span, vector in zip(spans, vectors, strict=True):
        own = {
            one.hit.passage_id: one.hit.score for one in linked if one.span == ASKED[span.start : span.end]
        }
        close(own, best(vector, entities, passages, 3))
    assert tools.rerank(Step("r", "rerank", ("s",)), ASKED, hits[:3]) == pytest.approx(
        skills.rerank([ASKED] * 3, [named[h.passage_id] for h in hits[:3]]).tolist()
    )


@pytest.mark.slow
def test_descriptions_have_the_ids_of_the_index(made: dict[str, Any], write_jsonl: Any) -> None:
    """Nothing could go on from others, and other passages of equal ids would be taken for them."""
    folder = made["folder"]
    own = [{"id": f"e-{p.passage_id}", "text": p.text, "title": p.title} for p in made["passages"]]
    corpus = write_jsonl(folder / "others.jsonl", own)
    done(sparta, "index", "--corpus", corpus, "--channels", "bm25", "--index", folder / "others")
    done(dense, "index", "--model", folder / "entity", "--index", folder / "others")
    with IndexTools(folder / "index", folder / "skills", folder / "others") as tools:
        step, asked = Step("l", "link", depth=3), [Hit("", 0.0, text=ASKED)]
        with pytest.raises(IndexStateError, match="has the id 'e-p"):
            tools.link(step, asked)


@pytest.mark.slow
def test_descriptions_in_chunks(made: dict[str, Any]) -> None:
    """Their hits have the ids of what was cut."""
    folder = made["folder"]
    for name, encoder in (("chunks", "skills"), ("chunked-entities", "entity")):
        cut = ("--chunk", 6, "--channels", "bm25", "--index", folder / name)
        done(sparta, "index", "--corpus", folder / "corpus.jsonl", *cut)
        done(dense, "index", "--model", folder / encoder, "--index", folder / name)
    with IndexTools(folder / "chunks", folder / "skills", folder / "chunked-entities") as tools:
        [linked] = tools.link(Step("l", "link", depth=3), [Hit("", 0.0, text=ASKED)])
        texts = {p.passage_id: p.text for p in made["passages"]}
        assert linked
        assert all(link.hit.text == texts[link.hit.passage_id] for link in linked)


def test_linked_passages_are_those_of_the_index(tools: IndexTools) -> None:
    [linked] = tools.link(Step("l", "link", depth=3), [Hit("", 0.0, text=ASKED)])
    assert linked
    for hit, _ in linked:
        [passage] = tools.passages([hit.passage_id])
        assert hit == replace(passage, score=hit.score)


def test_expand_by_the_model_keeps_to_its_filter(made: dict[str, Any], tools: IndexTools) -> None:
    hits = tools.retrieve(Step("s", "retrieve", channel="bm25", depth=2), "moon earth old city")
    step = Step("e", "expand", ("f",), depth=24)
    title = tools.expand(step, ASKED, hits)[0][5].title
    kept = tools.expand(replace(step, filter=json.dumps({"title": title})), ASKED, hits)
    assert {hit.title for own in kept for hit in own} == {title}


def test_bm25_may_come_first_and_needs_no_model(made: dict[str, Any]) -> None:
    steps = [
        Step("search", "retrieve", channel="bm25", depth=5),
        Step("best", "rerank", ("search",), weight=0),
    ]
    with IndexTools(made["folder"] / "index") as tools:
        found = Chain(steps, tools).find_paths("moon earth", 5)
        expected = tools.retrieve(steps[0], "moon earth")
    assert [(p.ids[0], p.score) for p in found.paths] == [(h.passage_id, h.score) for h in expected]


def test_what_cannot_be_done(made: dict[str, Any], tiny_tokenizer: Any, tmp_path: Path) -> None:
    folder = made["folder"]
    hotpot = read_chain("hotpot")
    for models, option in (((), "model"), ((folder / "skills",), "entities")):
        with pytest.raises(InputError) as refused:
            Chain(hotpot, IndexTools(folder / "index", *models))
        assert [one.name for one in refused.value.remedy.options] == [option]
    some = skill_model(tiny_tokenizer, skill_config(skills=("single", "rerank")))
    some.save_pretrained(tmp_path / "some")
    with pytest.raises(ModelError, match="lacks the skill link; its skills: single, rerank"):
        Chain(hotpot, IndexTools(folder / "index", tmp_path / "some", folder / "entities"))
    with pytest.raises(IndexStateError, match=r"expert for passages, not for entities"):
        Chain(hotpot, IndexTools(folder / "index", folder / "skills", folder / "index"))
    skill_model(tiny_tokenizer, seed=9).save_pretrained(tmp_path / "other")
    links = [Step("links", "link"), Step("best", "rerank", ("links",), weight=0)]
    with pytest.raises(IndexStateError, match="entities was encoded by another model than ") as foreign:
        Chain(links, IndexTools(folder / "index", tmp_path / "other", folder / "entities"))
    assert str(foreign.value.remedy).endswith(
        f"dense convert --from {tmp_path / 'other'} --reader entity --output ENTITY-MODEL;"
        f" dense index --overwrite --model ENTITY-MODEL --index {folder / 'entities'}"
    )
    expands = [
        *(Step("search", "retrieve", channel="bm25"), Step("best", "rerank", ("search",), weight=0)),
        *(Step("more", "expand", ("best",)), Step("last", "rerank", ("more",), weight=0)),
    ]
    with pytest.raises(IndexStateError, match="of the chain's model"):
        Chain(expands, IndexTools(folder / "index", tmp_path / "other"))


@pytest.mark.parametrize("channel", ["impact", "bm25", "dense", "bm25=1,impact=1", "dense=1,bm25=0.5"])
def test_any_channel_may_come_first_in_a_chain_without_a_model(made: dict[str, Any], channel: str) -> None:
    """Paths of two passages that the channel found, or that a title in the question or the first names."""
    asked = "who founded google near the old City"
    with ChainSearcher("hop", made["folder"] / "index", channel=channel) as searcher:
        first = {hit.passage_id for hit in searcher.tools.retrieve(searcher.chain.steps[0], asked)}
        paths = searcher.find_paths(asked, 100).paths
    assert paths
    for path in paths:
        assert len(set(path.ids)) == 2
        assert path.score == pytest.approx(sum(one.score for one in path.passages))
        for one in path.passages:
            assert one.hit.passage_id in first or one.scores.keys() & {"named", "linked"}
            assert one.hit.text


def test_sentences_are_read_around_their_place(made: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    path_reader = Mock()
    monkeypatch.setattr("sparta.reader.path_reader.PathReader.open", lambda *_, **__: path_reader)
    monkeypatch.setattr("sparta.reader.config.path_reader_folder", lambda *_: made["folder"])
    hit = Hit("p#1", 1.0, "", "It is old.", {"context": "A sea. It is old.", "start": 7, "end": 17})
    with IndexTools(made["folder"] / "index") as tools:
        tools.read(ASKED, [[hit]])
    path_reader.read.assert_called_once_with(ASKED, [[Text("A sea. It is old.", "", (7, 17))]], language="en")


def test_several_channels_give_as_many_passages_as_a_step_wants(made: dict[str, Any]) -> None:
    steps = [Step("search", "retrieve", channel="bm25=1,impact=1", depth=CANDIDATES + 20)]
    steps += [Step("first", "rerank", ("search",), weight=0)]
    with IndexTools(made["folder"] / "index") as tools:
        Chain(steps, tools)
        assert tools.retrieve(steps[0], ASKED)


def test_only_terms_of_words_can_be_covered(made: dict[str, Any]) -> None:
    steps = [Step("search", "retrieve"), Step("best", "rerank", ("search",), by="terms", channel="dense")]
    with (
        IndexTools(made["folder"] / "index") as tools,
        pytest.raises(InputError, match="found 'dense'"),
    ):
        Chain(steps, tools)


def test_expand_by_a_search(made: dict[str, Any]) -> None:
    """The question with the title, or with title and text, in one search each."""
    asked = "moon earth old city"
    with IndexTools(made["folder"] / "index") as tools:
        hits = tools.retrieve(Step("s", "retrieve", channel="bm25", depth=3), asked)
        for by, added in (("title", "{0.title}"), ("text", "{0.title} {0.text}")):
            step = Step("e", "expand", ("f",), by=by, channel="bm25", depth=4)
            found = tools.expand(step, asked, [*hits, hits[0]])
            texts = [f"{asked} {added.format(hit)}" for hit in hits]
            expected = [
                tools.retrieve(Step("s", "retrieve", channel="bm25", depth=4), text) for text in texts
            ]
            assert found == [*expected, expected[0]]


def test_what_a_chain_is_not_asked(made: dict[str, Any]) -> None:
    with ChainSearcher("hop", made["folder"] / "index") as chain:
        passages = ChainPassages(chain)
        assert passages.run((q for q in [ASKED]), (i for i in ["1"]), 3) == passages.run([ASKED], ["1"], 3)
        for option in ({"offset": 1}, {"filter": {"lang": "en"}}, {"collapse": "lang"}, {"hits": "chunks"}):
            with pytest.raises(InputError, match="chains do not support offset"):
                passages.run([ASKED], **option)
        for ask in (chain.batch_find_paths, passages.run, passages.batch_search):
            for k in (None, 0, -1):
                with pytest.raises(InputError, match="k must be"):
                    ask([ASKED], ["1"], k)
            for threads in (0, None, "2", 1.5):
                with pytest.raises(InputError, match="threads must be"):
                    ask([ASKED], ["1"], threads=threads)
            with pytest.raises(InputError, match="a list of queries, found str"):
                ask(ASKED, ["1"])
        with pytest.raises(InputError, match="k must be a whole number, found None"):
            chain.find_paths(ASKED, None)
        with pytest.raises(InputError, match="the query must be a string, found NoneType"):
            chain.find_paths(None)
