"""Recipes of bi-encoders: decay, validation, two stages that resume, checkpoints that are begun from."""

from __future__ import annotations

import json
import random
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from cli._dense import main
from cli._training import named_sets
from dense.models.bi_encoder import DenseConfig, DenseModel
from dense.models.checkpoints import begin_from
from dense.training.stages import train_in_two_stages
from dense.training.train import Recipe, layer_groups, train_dense
from sparta.base.errors import InputError, ModelError
from sparta.base.files import sha256_file
from sparta.base.records import Passage
from sparta.neural.inputs import InputLayout
from sparta.training.batches import make_batch
from sparta.training.metrics import figure_named, ranks, shown
from sparta.training.negatives import mine as mine_set
from sparta.training.paragraphs import Paragraph, ParagraphSet, open_set, read_paragraphs

pytestmark = pytest.mark.usefixtures("one_thread", "own_logger")
WHOLE = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=8)


def dense(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def encoder(make_tiny_model: Callable[..., Any], tiny_tokenizer: Any, tmp_path: Path) -> str:
    folder = tmp_path / "encoder"
    make_tiny_model().encoder.save_pretrained(folder)
    tiny_tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


@pytest.fixture
def words(tiny_vocabulary: list[str]) -> list[str]:
    return [t for t in tiny_vocabulary if t.isascii() and t.isalpha() and len(t) > 3]


def questions_on(words: list[str], name: str = "made", n: int = 40, size: int = 6) -> ParagraphSet:
    """The question asks with two words for which two others stand in the answer."""
    paragraphs = []
    for i in range(n):
        own = [(7 * i + 3 * j) % len(words) for j in range(5)]
        text = " ".join(words[n] for n in own)
        question = " ".join(words[(n + 11) % len(words)] for n in own[:2])
        paragraphs.append(Paragraph(text, "", ((0, len(text)),), ((question, 0),)))
    return ParagraphSet(name, tuple(paragraphs), 1.0, size)


USUAL: dict[str, Any] = {
    "steps": 6,
    "learning_rate": 3e-3,
    "validate_every": 3,
    "seed": 1,
    "checkpoint_every": 2,
    "held_out": 4,
    "candidates": 10,
    "device": "cpu",
}


# ---------------------------------------------------------------- the recipe


def test_lower_layers_learn_slower(encoder: str, words: list[str], tmp_path: Path) -> None:
    """The first step of Adam moves every weight by the learning rate of its group."""
    recipe = Recipe(encoder=encoder, **{**USUAL, "steps": 1}, layer_decay=0.5, shared=False, validate_by="rr")
    training = recipe.training([questions_on(words)], tmp_path / "out")
    before = {name: p.detach().clone() for name, p in training.model.named_parameters()}
    training.run()
    moved: dict[float, set[float]] = {}
    for name, parameter in training.model.named_parameters():
        change = float((parameter.detach() - before[name]).abs().max())
        below = 2 if ".embeddings." in name else 1 if ".layer.0." in name else 0
        if "log_scale" not in name and change:
            moved.setdefault(3e-3 * 0.5**below, set()).add(change)
    assert sorted(moved) == [3e-3 / 4, 3e-3 / 2, 3e-3]
    for rate, found in moved.items():
        np.testing.assert_allclose(max(found), rate, rtol=0.01)


def test_layer_groups_hold_every_parameter_once(encoder: str) -> None:
    model = DenseModel.from_encoder(encoder, DenseConfig(WHOLE, routing="seq", period=2))
    named = list(model.named_parameters())
    groups = layer_groups(named, 0.8)
    assert [g["factor"] for g in groups] == [1.0, 0.8, pytest.approx(0.64)]
    assert sorted(id(p) for g in groups for p in g["params"]) == sorted(id(p) for _, p in named)
    assert id(model.log_scale) in {id(p) for p in groups[0]["params"]}
    router = next(p for n, p in named if "router" in n)
    assert any(p is router for p in groups[0]["params"]), "a router learns as its layer does"
    assert len(layer_groups(named, 1.0)) == 1


def test_resuming_with_another_decay_or_entropy_is_refused(
    encoder: str, words: list[str], tmp_path: Path
) -> None:
    def run(**change: Any) -> Any:
        recipe = {**USUAL, "encoder": encoder, "routing": "tok", "period": 2, "steps": 2, **change}
        return train_dense([questions_on(words)], Recipe(**recipe), tmp_path / "out", resume=True)

    run()
    run(layer_decay=1.0, entropy=0.01)
    for change in ({"layer_decay": 0.9}, {"entropy": 0.1}, {"validate_by": "recall@5"}, {"questions": 2}):
        with pytest.raises(InputError, match="expected the same training settings"):
            run(**change)


def test_beta_weighs_the_entropy(encoder: str, words: list[str], tmp_path: Path) -> None:
    recipe = Recipe(encoder=encoder, **USUAL, routing="seq", period=2, entropy=0.7)
    training = recipe.training([questions_on(words)], tmp_path / "out")
    loss, logs = training.loss(0)
    assert logs["entropy"] > 0.01
    assert loss.item() == pytest.approx(logs["ranking"] - 0.7 * logs["entropy"], abs=1e-5)


# ---------------------------------------------------------------- validation


def test_ranks_are_those_of_a_sorted_list() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(-3, 4, (50, 9)).astype(np.float32)
    gold = rng.integers(0, 9, 50).tolist()
    others = [set(rng.choice(9, 2).tolist()) | {g} for g in gold]
    expected = []
    for row, g, own in zip(scores, gold, others, strict=True):
        standing = sorted((s for i, s in enumerate(row) if i == g or i not in own), reverse=True)
        last = max(place for place, s in enumerate(standing, 1) if s == row[g])
        expected.append(np.inf if row[g] == 0 else last)
    found = ranks(torch.from_numpy(scores), gold, others)
    np.testing.assert_array_equal(found, expected)
    assert np.isinf(expected).any()
    figures = {
        "rr": np.mean(1 / np.array(expected)),
        "average-rank": -np.mean(np.minimum(expected, 9)),
        "recall@3": np.mean(np.array(expected) <= 3),
    }
    for name, value in figures.items():
        figure = figure_named(name)(torch.from_numpy(scores), gold, others)
        assert figure == pytest.approx(value, rel=1e-6)
    assert shown("average-rank", -3.25) == "average rank 3.25"
    assert shown("recall@3", 0.5) == "recall@3 0.5000"
    for name in ("mrr", "recall@0", "recall", "average"):
        with pytest.raises(InputError, match="expected rr, average-rank or recall@K"):
            figure_named(name)


@pytest.mark.parametrize(("name", "least"), [("rr", 0.0), ("average-rank", -3.0), ("recall@1", 0.0)])
def test_scores_that_are_no_numbers_find_nothing(name: str, least: float) -> None:
    """A training that diverged must not be taken for the best there was."""
    figure = figure_named(name)
    nothing = torch.full((2, 3), torch.nan)
    assert figure(nothing, [0, 1], [set(), set()]) == least
    one = torch.tensor([[torch.nan, 1.0, 0.5]])
    assert ranks(one, [1], [set()]).tolist() == [2.0]


def test_every_sentence_of_training_stands_in_the_way_when_validating(
    encoder: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of right paragraphs are no numbers of sentences."""
    text = f"{words[0]} {words[1]}"
    half = len(words[0])
    spans = ((0, half), (half + 1, len(text)))
    held = ParagraphSet("made", (Paragraph(text, "", spans, (("where", 0),)),))
    training = Recipe(encoder=encoder, **USUAL).training([questions_on(words)], tmp_path / "out")
    n = 2 + 10
    for better in range(2, n):
        sentences = torch.full((1, n), 0.1)
        sentences[0, 0], sentences[0, better] = 1.0, 2.0
        monkeypatch.setattr(training, "_all_scores", lambda *_, own=sentences: (own, torch.ones(1, 11)))
        assert training._of_set(held, lambda *given: float(ranks(*given)[0])) == (2 + 11) / 2


def test_the_best_is_the_one_of_the_lowest_average_rank(
    encoder: str, words: list[str], tmp_path: Path
) -> None:
    data = questions_on(words)
    recipe = {**USUAL, "encoder": encoder, "steps": 12, "validate_by": "average-rank"}
    result = train_dense([data], Recipe(**recipe), tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    figures = {line["step"]: line["validation"] for line in lines if "validation" in line}
    assert set(figures) == {3, 6, 9, 12}
    assert result.validation == pytest.approx(max(figures.values()), abs=1e-5)
    assert figures[result.step] == max(figures.values())
    model = DenseModel.load(result.folder)
    held, known = data.paragraphs[-4:], [*data.paragraphs[-4:], *data.paragraphs[:10]]
    vectors = model.encode_passages([p.whole() for p in known])[:, 0]
    scores = model.encode_questions([p.questions[0][0] for p in held]) @ vectors.T
    places = [int((row >= row[i]).sum()) for i, row in enumerate(scores)]
    assert -result.validation == pytest.approx(np.mean(places))


def test_without_questions_that_validate_the_last_model_is_kept(
    encoder: str, words: list[str], tmp_path: Path
) -> None:
    recipe = Recipe(encoder=encoder, **{**USUAL, "held_out": 0})
    training = recipe.training([questions_on(words)], tmp_path / "out")
    assert training.run().best_step == 6
    best = DenseModel.load(tmp_path / "out" / "best").state_dict()
    for name, tensor in training.model.state_dict().items():
        assert torch.equal(best[name], tensor)


# ---------------------------------------------------------------- what is no negative


def one_sentence(text: str, *questions: str) -> Paragraph:
    return Paragraph(text, "", ((0, len(text)),), tuple((q, 0) for q in questions))


def test_duplicates_of_any_answer_are_no_negatives() -> None:
    """Of the text that answers, of another that answers too; also where the question was not drawn."""
    paragraphs = [
        one_sentence("moon", "where"),
        one_sentence("earth", "where", "what"),
        one_sentence("sun", "who"),
        one_sentence("earth"),
        one_sentence("moon"),
        Paragraph("king moon", "", ((0, 4), (5, 9)), (("king", 0),)),
    ]
    drawn = set()
    for seed in range(20):
        batch = make_batch(paragraphs, random.Random(seed), 1)
        drawn.add(batch.questions[1])
        right = batch.also_right(batch.questions.index("where"))
        moons, earths = {0, 4, 6, 7, 11}, {1, 3, 8, 10}
        assert right == moons | earths
        assert batch.also_right(batch.questions.index("who")) == {2, 9}
        assert batch.also_right(batch.questions.index("king")) == {5, 12}
    assert drawn == {"where", "what"}


# ---------------------------------------------------------------- BEIR folders


def test_a_beir_folder_is_training_data(tmp_path: Path, write_jsonl: Callable[..., Path]) -> None:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    texts = {"a": "the moon", "b": "the earth", "c": "the sun", "d": "a king"}
    write_jsonl(
        folder / "corpus.jsonl", [{"_id": i, "title": i.upper(), "text": t} for i, t in texts.items()]
    )
    asked = {"1": "what is far", "2": "what is hot", "3": "not judged", "4": "who"}
    write_jsonl(folder / "queries.jsonl", [{"_id": i, "text": t} for i, t in asked.items()])
    with pytest.raises(InputError, match=r"found no qrels/train\.tsv"):
        list(read_paragraphs(folder))
    judged = "query-id\tcorpus-id\tscore\n1\ta\t1\n1\tb\t2\n1\td\t0\n2\tc\t1\n4\tgone\t1\n"
    (folder / "qrels" / "train.tsv").write_text(judged)
    found = list(read_paragraphs(folder, "passages"))
    assert [(p.title, p.text, p.questions) for p in found] == [
        ("A", "the moon", (("what is far", -1),)),
        ("D", "a king", ()),
        ("B", "the earth", (("what is far", -1),)),
        ("D", "a king", ()),
        ("C", "the sun", (("what is hot", -1),)),
    ]
    assert open_set(f"{folder}=2", "pairs", 4).weight == 2


# ---------------------------------------------------------------- two stages


def weights(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "README.md"}


@pytest.fixture
def staged(encoder: str, words: list[str], tmp_path: Path) -> Callable[..., Any]:
    def run(name: str, *, sets: int = 1, resume: bool = False, **change: Any) -> Any:
        data = [questions_on(words, f"set{i}", 30 + 10 * i) for i in range(sets)]
        recipe = {**USUAL, "encoder": encoder, "routing": "tok", "period": 2, **change}
        return train_in_two_stages(data, Recipe(**recipe), tmp_path / name, resume=resume)

    return run


@pytest.mark.parametrize("stop", ["stage-1", "before", "mining", "stage-2"])
def test_two_stages_resume_as_if_never_stopped(
    staged: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    """Stopped in a stage after a checkpoint, between the stages, and while the model mines."""
    import dense.training.stages
    from dense.training.train import DenseTraining

    whole = staged("whole")
    original = DenseTraining.loss

    def loss(self: Any, step: int) -> Any:
        if self.folder.name == stop and step == 3:
            raise KeyboardInterrupt
        if stop == "before" and self.folder.name == "stage-2":
            raise KeyboardInterrupt
        return original(self, step)

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DenseTraining, "loss", loss)
        if stop == "mining":
            patched.setattr(dense.training.stages, "mine", interrupted)
        with pytest.raises(KeyboardInterrupt):
            staged("part")
    torch.manual_seed(99)
    again = staged("part", resume=True)
    assert (again.validation, again.step) == (whole.validation, whole.step)
    for folder in ("best", "stage-1/best", "stage-2/best"):
        assert weights(tmp_path / "part" / folder) == weights(tmp_path / "whole" / folder)
    for file in ("mined.json", "stage-1/log.jsonl", "stage-2/log.jsonl"):
        assert (tmp_path / "part" / file).read_text() == (tmp_path / "whole" / file).read_text()
    before = weights(tmp_path / "part" / "best")
    assert staged("part", resume=True) == again, "a finished one changes nothing"
    assert weights(tmp_path / "part" / "best") == before


@pytest.mark.parametrize("sets", [1, 2])
def test_stage_two_begins_anew_with_what_stage_one_mined(
    staged: Callable[..., Any], encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sets: int
) -> None:
    """P1 and P2 for one set, P2 alone for several; weights as at the beginning of stage one."""
    from dense.training.train import DenseTraining

    starts: list[tuple[str, list[ParagraphSet], dict[str, bytes]]] = []
    original = DenseTraining.run

    def run(self: Any, *, resume: bool = False) -> Any:
        state = {n: t.detach().numpy().tobytes() for n, t in self.model.state_dict().items()}
        starts.append((self.folder.name, self.sets, state))
        return original(self, resume=resume)

    monkeypatch.setattr(DenseTraining, "run", run)
    result = staged("out", sets=sets)
    assert [name for name, _, _ in starts] == ["stage-1", "stage-2"]
    assert starts[0][2] == starts[1][2]
    model = DenseModel.load(tmp_path / "out" / "stage-1" / "best")
    for first, second in zip(starts[0][1], starts[1][1], strict=True):
        assert first.paragraphs == second.paragraphs
        vectors = model.encode_passages([p.whole() for p in first.paragraphs])[:, 0]
        scores = model.encode_questions([p.questions[0][0] for p in first.paragraphs]) @ vectors.T
        assert (scores < 0).any(), "a negative score is a score"
        for i, (p1, near) in enumerate(zip(first.near, second.near, strict=True)):
            p2 = set(range(len(scores))) - {i}
            assert set(near) == (p2 | set(p1) if sets == 1 else p2)
        assert second.near_share == (0.5 if sets == 1 else 1.0)
    assert result.folder == tmp_path / "out" / "best"
    assert weights(result.folder) == weights(tmp_path / "out" / "stage-2" / "best")


def test_both_stages_begin_from_one_encoder(
    staged: Callable[..., Any], encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dense.training.train import DenseTraining

    with monkeypatch.context() as patched:
        patched.setattr(DenseTraining, "loss", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            staged("out")
    other = tmp_path / "other"
    shutil.copytree(encoder, other)
    with (other / "config.json").open("a") as config:
        config.write("\n")
    with pytest.raises(InputError, match=r"expected the encoder that stage one began from .*, found another"):
        staged("out", resume=True, encoder=str(other))
    assert staged("out", resume=True).step


def test_two_stages_mine_between_and_not_on_the_way(staged: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="expected two stages or mining on the way"):
        staged("out", mine_every=2)


def test_near_texts_are_all_that_is_drawn_where_they_alone_are_wanted(words: list[str]) -> None:
    one = questions_on(words, n=30)
    mined = mine_set(one, lambda asked: np.tile(np.arange(30.0, dtype=np.float32), (len(asked), 1)), 2)
    from dataclasses import replace

    whole = replace(mined, near_share=1.0, batch_size=3)
    for seed in range(20):
        [first, *others] = whole.draw(random.Random(seed))
        at = whole.paragraphs.index(first)
        assert {whole.paragraphs.index(p) for p in others} <= set(range(27, 30)) - {at}


# ---------------------------------------------------------------- begun from a model of ours


@pytest.fixture
def saved(encoder: str, tmp_path: Path) -> Callable[..., Path]:
    def make(name: str, **form: Any) -> Path:
        torch.manual_seed(5)
        model = DenseModel.from_encoder(encoder, DenseConfig(WHOLE, **form))
        with torch.no_grad():
            model.log_scale.fill_(2.0)
            for number, parameter in enumerate(model.parameters()):
                parameter.add_(0.01 * (number % 3))
        model.save_pretrained(tmp_path / name)
        return tmp_path / name

    return make


DET: dict[str, Any] = {"routing": "det", "period": 2}


@pytest.mark.parametrize(("own", "asked"), [(True, False), (False, True), (False, False)])
def test_what_is_taken_over_of_how_texts_are_read(
    encoder: str, tmp_path: Path, own: bool, asked: bool
) -> None:
    """[SEP] behind a title where either wants it, and questions as long as they were."""
    plain = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=0)
    source = DenseModel.from_encoder(
        encoder, DenseConfig(replace(plain, separate_title=own), question_length=128)
    )
    source.save_pretrained(tmp_path / "source")
    begun = begin_from(tmp_path / "source", DenseConfig(replace(plain, separate_title=asked)))
    assert begun.config.layout.separate_title == (own or asked)
    assert begun.config.question_length == 128


@pytest.mark.parametrize(
    ("source", "wanted"),
    [({}, {}), ({}, DET), ({}, {"shared": False}), (DET, DET), ({"shared": False}, {"shared": False})],
)
def test_a_model_of_ours_is_a_beginning(
    saved: Callable[..., Path], source: dict[str, Any], wanted: dict[str, Any]
) -> None:
    """Untrained, the new model gives the vectors of the one that it begins from."""
    folder = saved("source", **source)
    old, new = DenseModel.load(folder), begin_from(folder, DenseConfig(WHOLE, **wanted)).eval()
    assert (new.config.shared, new.config.routing) == (wanted.get("shared", True), wanted.get("routing", ""))
    asked, passages = ["the moon", "a king"], [Passage("", "the earth", "King")]
    np.testing.assert_allclose(new.encode_questions(asked), old.encode_questions(asked), atol=1e-5)
    np.testing.assert_allclose(new.encode_passages(passages), old.encode_passages(passages), atol=1e-5)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [(DET, {}), ({"shared": False}, {}), ({"shared": False}, DET), (DET, {**DET, "period": 1})],
)
def test_no_form_is_made_from_several_encoders_or_experts(
    saved: Callable[..., Path], source: dict[str, Any], wanted: dict[str, Any]
) -> None:
    with pytest.raises(ModelError, match="expected a model of the form that is trained"):
        begin_from(saved("source", **source), DenseConfig(WHOLE, **wanted))


# ---------------------------------------------------------------- conversion


def dpr_file(path: Path, tiny_tokenizer: Any) -> Any:
    """A dict file of DPR's code; the question encoder in it."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=tiny_tokenizer.get_vocab_size(),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=96,
    )
    torch.manual_seed(1)
    question, passage = (BertModel(config, add_pooling_layer=False).eval() for _ in range(2))
    stored = {f"question_model.{k}": v for k, v in question.state_dict().items()}
    stored |= {f"ctx_model.{k}": v for k, v in passage.state_dict().items()}
    path.parent.mkdir(exist_ok=True)
    torch.save({"model_dict": stored, "offset": 0, "epoch": 1, "encoder_params": {}}, path)
    return question


def test_a_dict_file_is_converted(encoder: str, tiny_tokenizer: Any, tmp_path: Path) -> None:
    question = dpr_file(tmp_path / "dpr" / "pytorch_model.bin", tiny_tokenizer)
    source = tmp_path / "dpr" / "pytorch_model.bin"
    refused = dense("convert", "--from", source, "--output", tmp_path / "no")
    assert refused.exit_code == 2
    assert "expected a tokenizer" in refused.output
    assert not (tmp_path / "no").exists()
    done = dense("convert", "--from", source, "--tokenizer", encoder, "--output", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "two encoders, 0.2M parameters" in done.output
    ids = torch.tensor([tiny_tokenizer.encode("the moon").ids])
    with torch.no_grad():
        expected = question(ids).last_hidden_state[0, 0]
    model = DenseModel.load(tmp_path / "out")
    np.testing.assert_allclose(model.encode_questions(["the moon"])[0], expected, atol=1e-5)
    again = dense("convert", "--from", source, "--tokenizer", encoder, "--output", tmp_path / "out")
    assert again.exit_code == 2
    assert "expected an empty or a new folder" in again.output
    tiny_tokenizer.save(str(tmp_path / "dpr" / "tokenizer.json"))
    whole = dense("convert", "--from", tmp_path / "dpr", "--output", tmp_path / "folder")
    assert whole.exit_code == 0, whole.output
    assert weights(tmp_path / "folder") == weights(tmp_path / "out")
    small = dense("convert", "--from", tmp_path / "out", "--output", tmp_path / "small", "--int8")
    assert small.exit_code == 0, small.output
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("small", "out")]
    assert sizes[0] < 0.5 * sizes[1]


def test_dprs_folders_are_converted_in_any_order(tiny_tokenizer: Any, tmp_path: Path) -> None:
    from transformers import DPRConfig, DPRContextEncoder, DPRQuestionEncoder

    config = DPRConfig(
        vocab_size=tiny_tokenizer.get_vocab_size(),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=96,
    )
    torch.manual_seed(4)
    question, passage = DPRQuestionEncoder(config).eval(), DPRContextEncoder(config).eval()
    question.save_pretrained(tmp_path / "q")
    passage.save_pretrained(tmp_path / "p")
    weights_of_p = passage.state_dict()
    (tmp_path / "p" / "model.safetensors").unlink()
    torch.save(weights_of_p, tmp_path / "p" / "pytorch_model.bin")
    for name in ("q", "p"):
        tiny_tokenizer.save(str(tmp_path / name / "tokenizer.json"))
    for number, order in enumerate((("q", "p"), ("p", "q"))):
        sources = [part for name in order for part in ("--from", tmp_path / name)]
        done = dense("convert", *sources, "--output", tmp_path / f"out{number}")
        assert done.exit_code == 0, done.output
    assert weights(tmp_path / "out0") == weights(tmp_path / "out1")
    ids = torch.tensor([tiny_tokenizer.encode("the moon").ids])
    with torch.no_grad():
        expected = question(ids).pooler_output[0]
    found = DenseModel.load(tmp_path / "out0").encode_questions(["the moon"])[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["q"], "expected both encoders, found the question encoder only"),
        (["q", "q"], "expected a question encoder and a passage encoder, found question and question"),
        (["plain"], "expected a dict file"),
        (["q", "q", "q"], "expected one source or two, found 3"),
        (["nothing"], "expected a model folder"),
    ],
)
def test_what_cannot_be_converted(tmp_path: Path, sources: list[str], message: str) -> None:
    for name, config in (("q", {"architectures": ["DPRQuestionEncoder"]}), ("plain", {})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    given = [part for name in sources for part in ("--from", tmp_path / name)]
    result = dense("convert", *given, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- the command


def test_two_stages_look_at_their_arguments_first(pairs: Path, encoder: str, tmp_path: Path) -> None:
    """A wrong one leaves nothing that the corrected command would stumble over."""
    usual = ["train", "--pairs", pairs, "--steps", 1, "--batch-size", 4, "--two-stages", "--device", "cpu"]
    output = tmp_path / "out"
    for wrong in (["--encoder", tmp_path / "none"], ["--encoder", encoder, "--mine-every", 1]):
        assert dense(*usual, *wrong, "--output", output).exit_code != 0
        assert not output.exists()
    done = dense(*usual, "--encoder", encoder, "--held-out", 0, "--output", output)
    assert done.exit_code == 0, done.output
    assert f"{output / 'best'}: validation none; the model of step 1" in done.output
    card = output / "best" / "README.md"
    assert "Validation: none; the model of step 1.\n" in card.read_text()
    card.write_text(card.read_text() + "Licence: MIT\n")
    again = [*usual, "--encoder", encoder, "--held-out", 0, "--output", output, "--resume"]
    assert dense(*again).exit_code == 0
    assert card.read_text().endswith("Licence: MIT\n"), "the same weights keep their card"


@pytest.fixture
def pairs(words: list[str], write_jsonl: Callable[..., Path], tmp_path: Path) -> Path:
    records = [
        {"question": p.questions[0][0], "positive": p.text} for p in questions_on(words, n=40).paragraphs
    ]
    return write_jsonl(tmp_path / "pairs.jsonl", records)


def test_dense_train_as_one_types_it(pairs: Path, encoder: str, tmp_path: Path) -> None:
    arguments = ["train", "--encoder", encoder, "--pairs", pairs, "--steps", 2, "--batch-size", 4]
    arguments += ["--routing", "seq", "--experts", 3, "--period", 2, "--pooling", "cls", "--dot"]
    arguments += ["--separate-title", "--layer-decay", 0.8, "--entropy", 0.1, "--questions", 1]
    arguments += ["--validate-by", "recall@2", "--held-out", 4, "--candidates", 5, "--device", "cpu"]
    done = dense(*arguments, "--output", tmp_path / "one")
    assert done.exit_code == 0, done.output
    assert f"{tmp_path / 'one' / 'best'}: validation recall@2 " in done.output
    config = DenseModel.load(tmp_path / "one" / "best").config
    assert (config.routing, config.experts, config.pooling, config.cosine) == ("seq", 3, "cls", False)
    assert config.layout.separate_title
    card = (tmp_path / "one" / "best" / "README.md").read_text()
    told = shlex.split(next(line for line in card.splitlines() if line.startswith("    main train ")))
    assert sorted(told[1:]) == sorted(str(a) for a in arguments if a not in ("--device", "cpu"))
    [pairs_set] = named_sets((str(pairs),), (), (), 4)
    facts = [pairs_set.name, "1", str(len(pairs_set.paragraphs)), "40", f"`{pairs_set.fingerprint()}`"]
    assert f"| {' | '.join(facts)} |" in card
    assert done.output.rsplit("validation ", 1)[1].strip() in card
    assert sha256_file(tmp_path / "one" / "best" / "model.safetensors") in card
    done = dense(*arguments, "--output", tmp_path / "two", "--two-stages")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "two" / "stage-1" / "best" / "config.json").exists()
    assert DenseModel.load(tmp_path / "two" / "best").config == config


def test_files_of_one_name_are_two_sets(tmp_path: Path, write_jsonl: Callable[..., Path]) -> None:
    """What validates one of them must not be taken from the other."""
    paths = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        records = [{"question": f"where is {i}", "positive": f"{folder} {i}"} for i in range(4)]
        paths.append(write_jsonl(tmp_path / folder / "train.jsonl", records))
    sets = named_sets((f"{paths[0]}=2", str(paths[1])), (), (), 2)
    assert [(one.name, one.weight) for one in sets] == [
        (f"{paths[0]}/pairs", 2.0),
        (f"{paths[1]}/pairs", 1.0),
    ]
    assert [one.name for one in named_sets((str(paths[0]),), (), (str(paths[1]),), 2)] == [
        "train.jsonl/pairs",
        "train.jsonl/passages",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--routing", "det", "--two-encoders"], "expected one of --routing and --two-encoders"),
        (["--pooling", "cls", "--codes", "2"], "expected one of --pooling cls and --codes"),
        (["--routing", "det", "--experts", "3"], "--routing det and more than 2 --experts"),
        (["--experts", "3"], "expected --routing with --experts"),
        (["--period", "2"], "expected --routing with --period"),
        (["--routing", "det", "--entropy", "0.1"], "expected --routing seq or tok with --entropy"),
        (["--separate-title"], "expected --no-context or --pooling cls with --separate-title"),
        (["--validate-by", "mrr"], "expected rr, average-rank or recall@K"),
        (["--two-stages", "--mine-every", "2"], "expected two stages or mining on the way"),
    ],
)
def test_options_that_do_not_go_together(
    pairs: Path, encoder: str, tmp_path: Path, options: list[str], message: str
) -> None:
    usual = ["--encoder", encoder, "--pairs", pairs, "--output", tmp_path / "out", "--device", "cpu"]
    result = dense("train", *usual, *options)
    assert result.exit_code == 2
    assert message in result.output
    assert dense("train", "--encoder", encoder, "--output", tmp_path / "out").exit_code == 2
