"""Skills: what each expert reads, against a plain BERT with its weights; counts; swaps; spans."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from dense.encoding.question_encoder import BertQuestionEncoder
from dense.encoding.skills import Skills, disjoint
from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from dense.models.skill_checkpoints import begin_skills, without_unread
from dense.models.skill_config import ASSIGNMENTS, READ_BY, SkillConfig
from dense.models.skill_inputs import mention_input, text_windows
from sparta.base.errors import InputError, ModelError
from sparta.base.records import Passage
from sparta.base.remedies import Option
from tests.dense.models.skill_models import PAPER, expert_alone, read, skill_config, skill_model
from tests.programs import dense

pytestmark = pytest.mark.usefixtures("one_thread")
KING = Passage("", "the king was born in paris", "King")
MOON = Passage("", "the moon of the earth")
POOLER = 768 * 768 + 768


@pytest.mark.parametrize(
    ("placement", "assignment", "skills", "published"),
    [
        ("none", "paper", ("single", "expanded"), 110),
        ("none", "paper", tuple(READ_BY), 111),
        ("attention", "naive", tuple(READ_BY), 182),
        ("attention", "paper", tuple(READ_BY), 182),
        ("feed-forward", "naive", tuple(READ_BY), 252),
    ],
)
def test_parameters_of_table_6(
    placement: str, assignment: str, skills: tuple[str, ...], published: int, tiny_tokenizer: Any
) -> None:
    """BERT-base, in millions; the paper counts the pooler, which nothing reads, and rounds 109.5 to 110."""
    with torch.device("meta"):
        config = PAPER.with_skills(SkillConfig(skills, dict(ASSIGNMENTS[assignment]), placement))
        model = DenseModel(BertModel(BertConfig(), add_pooling_layer=False), tiny_tokenizer, config)
    assert all(p.is_meta for p in model.parameters()), "no memory is taken"
    linear, span_head = 768 * 768 + 768, 1536 * 768 + 768 + 768
    by_hand = 108_891_648  # BERT-base without the pooler
    by_hand += span_head if "span" in skills else 0
    by_hand += 6 * 5 * 4 * linear if placement == "attention" else 0
    norms = 2 * 768
    wide = 768 * 3072 + 3072 + 3072 * 768 + 768 + norms
    by_hand += 6 * 5 * wide if placement == "feed-forward" else 0
    count = sum(p.numel() for p in model.parameters())
    assert count == by_hand + 1, "and the scale"
    assert (count + POOLER) / 1e6 == pytest.approx(published, abs=0.55)


@pytest.mark.parametrize("placement", ["attention", "feed-forward", "none"])
def test_each_input_is_read_by_its_expert(placement: str, tiny_tokenizer: Any) -> None:
    model = skill_model(tiny_tokenizer, skill_config(placement))
    skills = Skills(model, dtype="fp32")
    plain = {n: expert_alone(model, n) for n in range(6)} if placement != "none" else {}

    def states(reader: str, text: str) -> torch.Tensor:
        encoder = plain[ASSIGNMENTS["paper"][reader]] if plain else model.passage_encoder
        with torch.no_grad():
            return read(encoder, tiny_tokenizer, text)

    close = {"atol": 1e-5, "rtol": 1e-4}
    found = model.encode_questions(["the moon"])[0]
    np.testing.assert_allclose(found, states("question", "the moon")[0], **close)
    found = model.encode_passages([KING], "fp32")[0, 0]
    np.testing.assert_allclose(found, states("passage", "King [SEP] the king was born in paris")[0], **close)
    found = skills.encode_entities([KING])[0]
    np.testing.assert_allclose(found, states("entity", "King [SEP] the king was born in paris")[0], **close)
    both = "the moon [SEP] King [SEP] the king was born in paris"
    found = skills.encode_expanded(["the moon"], [KING])[0]
    np.testing.assert_allclose(found, states("expanded", both)[0], **close)
    own = states("rerank", both)
    assert tiny_tokenizer.encode("the moon").tokens[3] == "[SEP]"
    np.testing.assert_allclose(skills.rerank(["the moon"], [KING])[0], own[0] @ own[3], **close)
    text = "who was larry page"
    own = states("mention", text)
    found = skills.encode_mentions([text], [(8, 18)])[0]
    np.testing.assert_allclose(found, (own[3] + own[4]) / 2, **close)


def test_a_question_may_hold_separators(tiny_tokenizer: Any) -> None:
    """Slot filling asks `subject [SEP] relation`: the [SEP] of reranking is the one behind the question."""
    model = skill_model(tiny_tokenizer)
    own = read(expert_alone(model, 4), tiny_tokenizer, "king [SEP] born [SEP] the moon of the earth")
    found = Skills(model, dtype="fp32").rerank(["king [SEP] born"], [MOON])[0]
    assert found == pytest.approx((own[0] @ own[4]).item(), rel=1e-4)


def test_swapped_experts_give_other_results(tiny_tokenizer: Any) -> None:
    """Table 7: the same input by another expert; nothing else changes, and swapping back restores it."""
    model = skill_model(tiny_tokenizer)
    own = Skills(model, dtype="fp32")
    swapped = Skills(model, {"question": 4, "expanded": 0, "entity": 1}, dtype="fp32")
    asked = ["the moon"], [KING]
    assert np.abs(own.encode_expanded(*asked) - swapped.encode_expanded(*asked)).max() > 0.01
    with torch.no_grad():
        by_hand = read(
            expert_alone(model, 0), tiny_tokenizer, "the moon [SEP] King [SEP] the king was born in paris"
        )
    np.testing.assert_allclose(swapped.encode_expanded(*asked)[0], by_hand[0], atol=1e-5)
    with torch.no_grad():
        by_hand = read(expert_alone(model, 4), tiny_tokenizer, "the moon")
    np.testing.assert_allclose(swapped.encode_questions(["the moon"])[0], by_hand[0], atol=1e-5)
    expected = model.encode_questions(["the moon"])
    np.testing.assert_allclose(own.encode_questions(["the moon"]), expected, atol=1e-5)
    np.testing.assert_array_equal(
        swapped.encode_entities([KING]), model.encode_passages([KING], "fp32")[:, 0]
    )
    np.testing.assert_array_equal(own.rerank(*asked), swapped.rerank(*asked))
    with pytest.raises(ModelError, match="one of 6 experts"):
        Skills(model, {"question": 6})
    with pytest.raises(ModelError, match="nothing_known"):
        Skills(model, {"nothing_known": 1})


def test_naive_reads_expanded_queries_as_questions(tiny_tokenizer: Any) -> None:
    model = skill_model(tiny_tokenizer, skill_config(assignment="naive"))
    with torch.no_grad():
        by_hand = read(expert_alone(model, 0), tiny_tokenizer, "the moon [SEP] the moon of the earth")[0]
    np.testing.assert_allclose(
        Skills(model, dtype="fp32").encode_expanded(["the moon"], [MOON])[0], by_hand, atol=1e-5
    )


def test_spans_by_hand(tiny_tokenizer: Any) -> None:
    """All spans of whole words, of at most 10 wordpieces, that score above [CLS], the best first."""
    model = skill_model(tiny_tokenizer, seed=4)
    assert model.spans is not None
    text = "larry page and sergey brin founded google in the year of the great king and the moon"
    encoded = tiny_tokenizer.encode(text)
    with torch.no_grad():
        states = read(expert_alone(model, 5), tiny_tokenizer, text)
        model.spans.anchor.normal_()
        model.spans.anchor.mul_(-torch.sign(states[0] @ model.spans.anchor) * 0.3)
        model.spans.anchor.add_(states[0], alpha=-float(states[0] @ model.spans.anchor) / 64)
        threshold = float(states[0] @ model.spans.anchor)
        scored = []
        words = encoded.word_ids
        for i in range(1, len(words) - 1):
            for j in range(i, min(i + 10, len(words) - 1)):
                if words[i - 1] == words[i] or words[j + 1] == words[j]:
                    continue
                joined = torch.cat([states[i], states[j]])
                vector = torch.tanh(joined @ model.spans.projection.weight.T + model.spans.projection.bias)
                scored.append((float(vector @ model.spans.anchor) - threshold, i, j))
    expected: list[tuple[int, int, float]] = []
    taken: set[int] = set()
    for score, i, j in sorted(scored, reverse=True):
        if score > 0 and not taken & {*range(i, j + 1)}:
            taken |= {*range(i, j + 1)}
            expected.append((encoded.offsets[i][0], encoded.offsets[j][1], score))
    empty, found = Skills(model, dtype="fp32").find_spans(["", text])
    assert empty == []
    assert 0 < len(expected) < sum(score > 0 for score, _, _ in scored) < len(scored)
    assert [(s.start, s.end) for s in found] == [e[:2] for e in sorted(expected)]
    np.testing.assert_allclose([s.score for s in found], [e[2] for e in sorted(expected)], atol=1e-4)
    assert all(s.end - s.start == len(text[s.start : s.end].strip()) for s in found)


def test_the_best_of_spans_that_overlap() -> None:
    assert disjoint([(1, 2), (2, 3), (4, 4)], np.array([1.0, 2.0, 0.5])) == [1, 2]
    assert disjoint([(1, 2), (3, 3)], np.array([-1.0, 0.0])) == []
    assert disjoint([], np.array([])) == []


def test_long_texts_are_read_in_windows(tiny_tokenizer: Any) -> None:
    text = "the moon of the earth founded google " * 10
    windows = text_windows(text, tiny_tokenizer, 20)
    pieces = [i for w in windows for i in w.input.ids[1:-1]]
    assert pieces == tiny_tokenizer.encode(text, add_special_tokens=False).ids
    assert max(len(w.input.ids) for w in windows) <= 20
    for window in windows:
        for first, last in window.candidates():
            start, end = window.characters((first, last))
            assert window.positions((start, end)) == (first, last)
            assert last - first < 10
            assert (f" {text} "[start], f" {text} "[end + 1]) == (" ", " "), "whole words"
    assert windows[0].positions((0, len(text))) is None, "longer than the window"
    long = mention_input(text, (len(text) - 7, len(text) - 1), tiny_tokenizer, 20)
    assert tiny_tokenizer.decode(long.ids[long.start : long.end]).replace(" ", "") == "google"
    assert len(long.ids) <= 20
    for span in ((-1, 3), (3, 3), (0, len(text) + 1), (3, 4)):
        with pytest.raises(InputError, match="inside a text"):
            mention_input(text, span, tiny_tokenizer, 20)


@pytest.mark.slow
def test_threads_that_share_a_model_read_with_their_own_experts(tiny_tokenizer: Any) -> None:
    skills = Skills(skill_model(tiny_tokenizer), dtype="fp32")
    passages = [Passage(str(i), f"the moon of the earth {'google ' * i}", "moon") for i in range(4)]
    asked = ["who founded google"] * 4
    reads: list[Callable[[], np.ndarray]] = [
        lambda: skills.encode_expanded(asked, passages),
        lambda: skills.encode_entities(passages),
        lambda: skills.encode_questions(asked),
        lambda: skills.rerank(asked, passages),
    ]
    alone = [read() for read in reads]
    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(lambda i: reads[i % 4](), range(200))):
            np.testing.assert_allclose(found, alone[number % 4], atol=1e-5)


def test_a_word_longer_than_a_window_is_cut_where_this_ends(tiny_tokenizer: Any) -> None:
    text = f"the {'x' * 30} moon"
    pieces = tiny_tokenizer.encode(text, add_special_tokens=False)
    assert pieces.word_ids.count(1) > 2 * 8, "one word of many wordpieces"
    windows = text_windows(text, tiny_tokenizer, 10)
    assert [i for w in windows for i in w.input.ids[1:-1]] == pieces.ids
    assert [len(w.words) for w in windows[1:-1]] == [8] * (len(windows) - 2)


@pytest.mark.parametrize("placement", ["attention", "feed-forward", "none"])
def test_saved_and_loaded(placement: str, tiny_tokenizer: Any, tmp_path: Path) -> None:
    model = skill_model(tiny_tokenizer, skill_config(placement))
    model.save_pretrained(tmp_path / "model")
    again = Skills.open(tmp_path / "model", dtype="fp32")
    assert again.model.config == model.config
    asked = ["the moon", "king"], [KING, MOON]
    own = Skills(model, dtype="fp32")
    np.testing.assert_allclose(again.encode_expanded(*asked), own.encode_expanded(*asked), atol=1e-5)
    np.testing.assert_allclose(again.rerank(*asked), own.rerank(*asked), atol=1e-4)
    text = ["larry page and the moon"]
    [ours], [theirs] = again.find_spans(text), own.find_spans(text)
    assert [span[:2] for span in ours] == [span[:2] for span in theirs]
    questions = ["the moon", "who was the king of the earth"]
    by_numpy = BertQuestionEncoder(tmp_path / "model").encode_questions(questions)
    np.testing.assert_allclose(by_numpy, model.encode_questions(questions), atol=1e-4)


def test_a_skill_that_is_lacking(tiny_tokenizer: Any, tmp_path: Path) -> None:
    model = skill_model(tiny_tokenizer, skill_config(skills=("single", "rerank")))
    model.save_pretrained(tmp_path / "some")
    some = Skills.open(tmp_path / "some")
    assert some.config.skills == ("single", "rerank")
    for skill, ask in {
        "expanded": lambda: some.encode_expanded(["the moon"], [KING]),
        "link": lambda: some.encode_mentions(["the moon"], [(0, 3)]),
        "span": lambda: some.find_spans(["the moon"]),
    }.items():
        with pytest.raises(
            ModelError, match=f"lacks the skill {skill}; its skills: single, rerank"
        ) as raised:
            ask()
        assert f"--{skill} FILE" in str(raised.value)
        assert str(tmp_path) in str(raised.value)
    plain = DenseModel(model.passage_encoder, tiny_tokenizer, DenseConfig(PAPER.layout))
    with pytest.raises(ModelError, match="plain bi-encoder"):
        Skills(plain, dtype="fp32")


@pytest.mark.parametrize(
    "wrong",
    [
        {"skills": ("cooking",)},
        {"skills": ()},
        {"skills": ("single",), "placement": "everywhere"},
        {"skills": ("single",), "experts": {"question": 1, "passage": 0}},
        {"skills": ("single",), "experts": {"question": 0, "passage": -1}},
        {"skills": ("rerank",), "experts": dict(ASSIGNMENTS["pretraining"])},
    ],
)
def test_wrong_configurations(wrong: dict[str, Any]) -> None:
    with pytest.raises(ModelError):
        SkillConfig(**wrong)


def test_plain_models_are_written_as_before() -> None:
    """Versions before skills can read them."""
    assert "skills" not in DenseConfig().as_dict()
    assert DenseConfig().as_dict()["format_version"] == 1
    assert skill_config().as_dict()["format_version"] == 2
    assert DenseConfig.from_dict(skill_config().as_dict(), "") == skill_config()
    with pytest.raises(ModelError, match="here"):
        DenseConfig.from_dict({**skill_config().as_dict(), "skills": {"skills": ["cooking"]}}, "here")


def test_fine_tuning_begins_from_pretraining(tiny_tokenizer: Any, tmp_path: Path) -> None:
    """Figure 3: experts 0 to 3 go on, expert 4 begins as 0."""
    before = skill_model(tiny_tokenizer, skill_config(assignment="pretraining", skills=("single", "link")))
    before.save_pretrained(tmp_path / "pretrained")
    after = begin_skills(tmp_path / "pretrained", skill_config(skills=("expanded", "rerank", "span")))
    assert after.config.skills is not None
    assert after.config.skills.skills == ("single", "expanded", "span", "link", "rerank")
    old, new = before.state_dict(), after.state_dict()
    key = "passage_encoder.encoder.layer.1.attention.self.key.experts.{}.weight"
    for number, source in {0: 0, 1: 1, 2: 2, 3: 3, 4: 0}.items():
        torch.testing.assert_close(new[key.format(number)], old[key.format(source)])
    with pytest.raises(ModelError, match="feed-forward"):
        begin_skills(tmp_path / "pretrained", skill_config("feed-forward"))


def test_skills_begin_from_taser(tiny_tokenizer: Any, tmp_path: Path) -> None:
    """Its experts go on as those of questions and passages: before training, all vectors are the same."""
    config = skill_config("feed-forward", "pretraining", ("single",))
    taser = replace(config, skills=None, routing="det", experts=2)
    taser = replace(taser, layout=replace(taser.layout, separate_title=not taser.layout.separate_title))
    before = skill_model(tiny_tokenizer, taser)
    before.save_pretrained(tmp_path / "taser")
    after = begin_skills(tmp_path / "taser", config).eval()
    some = [Passage("1", "the moon of the earth", "sun")]
    np.testing.assert_array_equal(after.encode_passages(some, "fp32"), before.encode_passages(some, "fp32"))
    np.testing.assert_array_equal(after.encode_questions(["moon"]), before.encode_questions(["moon"]))
    with pytest.raises(ModelError, match="found feed-forward"):
        begin_skills(tmp_path / "taser", skill_config(skills=("single",)))
    with pytest.raises(ModelError) as caught:
        begin_skills(tmp_path / "taser", config.with_skills(config.skills, 3))
    assert caught.value.remedy.options == [Option("period", 2)]


@pytest.mark.slow
def test_experts_that_nothing_is_read_by_are_left_out(tiny_tokenizer: Any, tmp_path: Path) -> None:
    """Of a model for retrieval alone; what it makes of texts stays the same."""
    model = skill_model(tiny_tokenizer, config=skill_config("attention", skills=("single",)))
    small = without_unread(model)
    assert small.config.skills is not None
    assert small.config.skills.experts == {"question": 0, "passage": 1}
    assert small.config.experts == 2
    some = [Passage("1", "the moon of the earth", "sun")]
    np.testing.assert_array_equal(small.encode_passages(some), model.encode_passages(some))
    np.testing.assert_array_equal(small.encode_questions(["the moon"]), model.encode_questions(["the moon"]))
    model.save_pretrained(tmp_path / "model")
    command = ["convert", "--from", str(tmp_path / "model"), "--output", str(tmp_path / "small"), "--int8"]
    assert dense(*command).exit_code == 0
    again = DenseModel.load(tmp_path / "small")
    assert again.config.experts == 2
    before = model.encode_questions(["the moon"])
    np.testing.assert_allclose(again.encode_questions(["the moon"]), before, atol=0.05 * np.abs(before).max())
    span = skill_model(tiny_tokenizer, config=skill_config("attention", skills=("single", "span")))
    kept = without_unread(span)
    assert kept.config.skills is not None
    assert kept.config.skills.experts == {"question": 0, "passage": 1, "span": 2}
    for name, tensor in kept.state_dict().items():
        torch.testing.assert_close(tensor, span.state_dict()[name.replace(".experts.2.", ".experts.5.")])


def test_training_further_keeps_the_markers_and_the_form(tiny_tokenizer: Any, tmp_path: Path) -> None:
    config = skill_config(skills=("single",))
    assert config.skills is not None
    marked = replace(config, skills=replace(config.skills, markers=("fact checking",)))
    skill_model(tiny_tokenizer, marked).save_pretrained(tmp_path / "first")
    other = replace(config, skills=replace(config.skills, markers=("dialogue",)))
    for again, expected in ((config, ("fact checking",)), (other, ("fact checking", "dialogue"))):
        after = begin_skills(tmp_path / "first", again)
        assert after.config.skills is not None
        assert after.config.skills.markers == expected
    with pytest.raises(ModelError) as caught:
        begin_skills(tmp_path / "first", replace(config, pooling="mean", cosine=True))
    assert caught.value.remedy.options == [Option("pooling", "cls"), Option("cosine")]


def test_entities_end_behind_their_accents(tiny_tokenizer: Any) -> None:
    """Where accents are characters of their own, which wordpieces leave out."""
    text = unicodedata.normalize("NFD", "the cité of paris")
    end = text.index(" of")
    [window] = text_windows(text, tiny_tokenizer, 32)
    place = window.positions((4, end))
    assert place is not None
    assert window.characters(place) == (4, end)
