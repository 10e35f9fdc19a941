"""What the terms of a question count: learned, kept, searched with."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sparta.base.errors import InputError
from sparta.models.resolve import known_query_side

pytestmark = pytest.mark.usefixtures("one_thread")


def once(model: Any, questions: list[str]) -> np.ndarray:
    """Which distinct terms each question has, without what they weigh."""
    has = np.zeros((len(questions), len(model.term_matrix())))
    for row, question in enumerate(questions):
        has[row, list(model.query_tokenizer().counts(question))] = 1
    return has


def weighing(training: Any, name: str = "out", **config: Any) -> Any:
    from sparta.weighing import WeightTraining

    made = training(name, kind=WeightTraining, **{"query_weights": 20, "dropout": 0.0, **config})
    made.folder.mkdir(exist_ok=True)
    return made


def test_the_loss_is_eq_7_among_all_texts_of_a_pool(training, monkeypatch):
    """In plain NumPy; a term counts once, its weight, and a weight costs what it differs from 1."""
    import torch

    monkeypatch.setattr("sparta.weighing.SHARPER", (1.5,))
    made = weighing(training)
    counted = made.weighed.nonzero().squeeze(1)
    n_counted = len(counted)
    assert n_counted == 7
    with torch.no_grad():
        made.counted[counted] = torch.linspace(-0.5, 2.5, n_counted)
    loss, logs = made.loss(0)
    pool = made._pool(made.sets[0]).batch
    rows = made.model.encode_document(pool.candidates).toarray().astype(np.float64)
    weights = made.counted.detach().clamp_min(0).numpy().astype(np.float64)
    scores = 1.5 * (once(made.model, pool.questions) * weights) @ rows.T
    assert pool.n_sentences + len(made.sets[0].paragraphs) == len(pool.candidates), "every text is one"

    import random

    rng = random.Random(made.seed * 7_919)
    rng.choices(made.sets)
    chosen = rng.sample(range(len(pool.questions)), 48)
    means = []
    n = pool.n_sentences
    for gold, part in (
        (pool.gold_sentence, range(n)),
        (pool.gold_paragraph, range(n, len(pool.candidates))),
    ):
        losses = []
        for i in chosen:
            others = [j for j in part if j == gold[i] or j not in pool.right[i]]
            losses.append(np.log(np.exp(scores[i, others]).sum()) - scores[i, gold[i]])
        means.append(np.mean(losses))
    assert logs["ranking"] == pytest.approx(np.mean(means), rel=1e-3)
    held = 1e-3 * ((torch.linspace(-0.5, 2.5, n_counted) - 1) ** 2).sum()
    assert loss.item() - logs["ranking"] == pytest.approx(float(held), rel=1e-3)
    loss.backward()
    moved = made.counted.grad.nonzero().squeeze(1).tolist()
    assert moved
    assert set(moved) <= set(counted.tolist())


def test_the_terms_that_questions_commonly_ask_are_weighed(training, records):
    """By their share of the questions, without the quarter of the stretches that ask them most."""
    made = weighing(training, held_out=0, query_weights=3)
    parts = np.array_split(np.array([set(r["question"].split()) for r in records]), 10)
    words = sorted(set.union(*(own for part in parts for own in part)))
    asked = {}
    for word in words:
        shares = sorted((np.mean([word in own for own in part]) for part in parts), reverse=True)
        asked[word] = (0.5 * shares[2] + sum(shares[3:])) / 7.5
    found = made.commonly_asked()
    ids = made.model.tokenizer.get_vocab()
    assert [float(found[ids[word]]) for word in words] == pytest.approx([asked[w] for w in words], abs=1e-6)
    names = [made.model.tokenizer.id_to_token(i) for i in made.weighed.nonzero().squeeze(1).tolist()]
    most = sorted(asked.values(), reverse=True)[:3]
    assert sorted((asked[name] for name in names), reverse=True) == most
    everything = weighing(training, "everything", held_out=0, query_weights=10_000)
    assert int(everything.weighed.sum()) == sum(share > 0 for share in asked.values()) < len(asked)


def test_a_topic_is_not_what_questions_commonly_ask(training, tmp_path, write_jsonl):
    """Asked in every question of one article, and nowhere else."""
    from sparta.training.paragraphs import open_set

    topics = ["moon", "city", "river", "music", "bank"]
    asked = [
        {"question": f"who {topic}", "positive": f"{topic} is the {a} of {topic}", "title": topic}
        for topic in topics
        for a in ("king", "river", "city", "house", "son", "day", "name", "work")
    ]
    one = open_set(str(write_jsonl(tmp_path / "topics.jsonl", asked)), "pairs", 8)
    made = weighing(training, data=one, held_out=0, query_weights=4)
    names = [made.model.tokenizer.id_to_token(i) for i in made.weighed.nonzero().squeeze(1).tolist()]
    assert names == ["who"]


def test_scores_are_made_sharp_enough_before_the_first_step(training):
    """Too flat scores are what all weights together could mend, which is not what they are for."""
    import torch

    made = weighing(training)
    with torch.no_grad():
        made.counted.mul_(0.5)
    half = made._sharpest()
    with torch.no_grad():
        made.counted.mul_(2)
    whole = made._sharpest()
    assert half == min(4.0, 2 * whole)
    assert made.memory.get("sharper") is None
    made.loss(0)
    assert made.memory["sharper"] == whole


def test_nothing_but_the_weights_is_trained_and_it_resumes(train, tmp_path):
    """Bit for bit; a training that is killed goes on to the same, without reading the texts again."""
    import torch

    from sparta.models.load import load_model
    from sparta.models.sparse import SpartaModel

    first = train("first")
    begun = SpartaModel.load(first.folder)
    usual = {"encoder": str(first.folder), "query_weights": 12, "learning_rate": 1e-3, "steps": 8}
    second = train("second", validate_every=4, **usual)
    state = torch.load(tmp_path / "second" / "state.pt", weights_only=True)["model"]
    for name, tensor in begun.state_dict().items():
        assert torch.equal(state[name], tensor), name
    weights = state["query_term_weights"]
    assert 0 < int((weights != 1).sum()) <= 12
    ended = load_model(second.folder)
    assert ended.config.quantizer == begun.config.quantizer
    assert ended.config.weighted_queries
    assert not begun.config.weighted_queries
    same = (ended.encode_document(train.texts) != load_model(first.folder).encode_document(train.texts)).nnz
    assert same == 0, "texts have the weights that they had"

    answers = iter([0.0, 0.0, 0.0])

    def stopping(*_: Any) -> float:
        try:
            return next(answers)
        except StopIteration:
            raise KeyboardInterrupt from None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparta.weighing.WeightTraining.validate", stopping)
        with pytest.raises(KeyboardInterrupt):
            train("third", validate_every=2, **usual)
    assert list((tmp_path / "third").glob("pool-*.npz"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparta.weighing.WeightTraining._columns", None)  # what was read is kept
        train("third", validate_every=2, resume=True, **usual)
    resumed = torch.load(tmp_path / "third" / "state.pt", weights_only=True)["model"]
    assert torch.equal(resumed["query_term_weights"], weights)
    assert not list(tmp_path.rglob("pool-*.npz")), "a training that has ended leaves none"


def weighted(model: Any, folder: Path) -> Any:
    """Save a model whose "moon" counts 0.5 and "city" nothing; open it again."""
    import torch

    from sparta.models.load import load_model

    known = model.tokenizer.get_vocab()
    model.add_query_weights()
    with torch.no_grad():
        model.query_term_weights[known["moon"]] = 0.5
        model.query_term_weights[known["city"]] = -1.0
    model.save_pretrained(folder)
    return load_model(folder)


def test_a_model_keeps_its_weights(tiny_model, tmp_path):
    """A distinct term counts once; what weighs 0 or less is not asked for."""
    plain = tiny_model.query_tokenizer().terms("moon moon city house")
    assert plain == {"moon": 2.0, "city": 1.0, "house": 1.0}
    model = weighted(tiny_model, tmp_path / "weighted")
    assert model.query_tokenizer().terms("moon moon city house") == {"moon": 0.5, "house": 1.0}
    side = known_query_side(tmp_path / "weighted", None)
    assert side is not None
    assert side.identity() == model.query_side().identity(), "known without loading the model, too"
    np.testing.assert_array_equal(side.weights, model.query_weights)
    row = model.encode_query("moon city")
    assert row.nnz == 1
    assert row.sum() == 0.5


def test_an_index_searches_with_them(tiny_model, tiny_model_folder, tmp_path, write_jsonl):
    """Scores are sums of weight times impact, of the weights that travel with the index."""
    from cli._sparta import main
    from sparta.search.searcher import Searcher

    weighted(tiny_model, tmp_path / "weighted")
    corpus = write_jsonl(
        tmp_path / "corpus.jsonl",
        [{"id": "a", "text": "the moon of the earth"}, {"id": "b", "text": "a house in the city"}],
    )
    scores = {}
    for model in (tiny_model_folder, tmp_path / "weighted"):
        index = tmp_path / f"index of {model.name}"
        done = CliRunner().invoke(
            main, ["index", "--corpus", str(corpus), "--model", str(model), "--index", str(index)]
        )
        assert done.exit_code == 0, done.output
        with Searcher(index) as searcher:
            for asked in ("moon", "house", "moon moon house city"):
                hits = searcher.search(asked, k=2)
                scores[model.name, asked] = {hit.passage_id: hit.score for hit in hits}
    plain, own = scores["tiny", "moon"], scores["weighted", "moon"]
    assert plain["a"] > 0
    assert own == {passage: pytest.approx(0.5 * score) for passage, score in plain.items()}
    house = scores["weighted", "house"]
    assert house == scores["tiny", "house"]
    expected = {passage: house.get(passage, 0) + own.get(passage, 0) for passage in {*house, *own}}
    assert scores["weighted", "moon moon house city"] == pytest.approx(expected)


def test_trained_further_a_model_scores_with_its_weights_and_keeps_them(train, tmp_path):
    from sparta.models.sparse import SpartaModel

    first = train("first")
    begun = weighted(SpartaModel.load(first.folder), tmp_path / "weighted")
    further = train("further", encoder=str(tmp_path / "weighted"), learning_rate=1e-2, steps=3)
    ended = SpartaModel.load(further.folder)
    np.testing.assert_array_equal(ended.query_weights, begun.query_weights)
    assert ended.query_weights is not None


def test_exported_vectors_are_searched_with_them_again(tiny_model, tmp_path, write_jsonl):
    """Only where the model is named: without, JSON vectors may be anyone's."""
    from cli._sparta import main
    from sparta.search.searcher import Searcher

    weighted(tiny_model, tmp_path / "weighted")
    texts = ["the moon of the earth", "a house in the city", "the city has a moon and a house", "a moon moon"]
    write_jsonl(tmp_path / "c.jsonl", [{"id": str(i), "text": t} for i, t in enumerate(texts)])

    def run(command: str, **given: Any) -> Any:
        options = [part for k, v in given.items() for part in ("--" + k.replace("_", "-"), str(tmp_path / v))]
        done = CliRunner().invoke(main, [command, *options])
        assert done.exit_code == 0, done.output
        return done

    def found(index: str) -> list[Any]:
        with Searcher(tmp_path / index) as searcher:
            asked = [searcher.search(q, k=4) for q in ("moon house", "moon moon city", "earth house")]
            return [[(hit.passage_id, hit.score) for hit in hits] for hits in asked]

    run("index", corpus="c.jsonl", model="weighted", index="first")
    exporting = [
        "export",
        "--index",
        str(tmp_path / "first"),
        "--output",
        str(tmp_path / "v.jsonl"),
        "--format",
    ]
    told = CliRunner().invoke(main, [*exporting, "ciff"])
    assert "--query-weights FILE writes them" in told.stderr
    done = CliRunner().invoke(
        main, [*exporting, "pyserini-json", "--query-weights", str(tmp_path / "w.json")]
    )
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    written = json.loads((tmp_path / "w.json").read_text())
    assert written["moon"] == 0.5
    assert written["house"] == 1
    assert "city" not in written
    run("index", vectors="v.jsonl", tokenizer="weighted", index="second")
    assert found("second") == found("first")
    tiny_model.tokenizer.save(str(tmp_path / "plain.json"))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain.json").rename(tmp_path / "plain" / "tokenizer.json")
    run("index", vectors="v.jsonl", tokenizer="plain", index="third")
    assert found("third") != found("first")
    again = ["index", "--append", "--index", str(tmp_path / "second"), "--vectors", str(tmp_path / "v.jsonl")]
    other = CliRunner().invoke(main, [*again, "--tokenizer", str(tmp_path / "plain")])
    assert "name the --tokenizer that the index was begun with" in other.stderr
    (tmp_path / "weighted" / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1")
    broken = CliRunner().invoke(main, [*again, "--tokenizer", str(tmp_path / "weighted")])
    assert "expected a whole model, for it weighs the terms of questions" in broken.stderr
    same = ["--output", str(tmp_path / "s"), "--query-weights", str(tmp_path / "s")]
    one = CliRunner().invoke(main, ["export", "--format", "ciff", "--index", str(tmp_path / "first"), *same])
    assert "expected two files" in one.stderr
    refused = CliRunner().invoke(
        main,
        [
            *("export", "--format", "ciff", "--index", str(tmp_path / "third")),
            *("--output", str(tmp_path / "x"), "--query-weights", str(tmp_path / "y")),
        ],
    )
    assert "expected a model that weighs the terms of questions" in refused.stderr
    assert not (tmp_path / "x").exists()


def test_negatives_are_found_by_how_often_words_occur(tiny_model, tmp_path):
    """BM25 has its own weights."""
    from sparta.training.negatives import bag_matrix

    texts = ["moon moon city", "house"]
    plain = bag_matrix(texts, tiny_model.query_tokenizer())
    model = weighted(tiny_model, tmp_path / "weighted")
    assert (bag_matrix(texts, model.query_tokenizer()) != plain).nnz == 0
    assert plain.max() == 2


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"only_terms": ["moon"]}, "expected only_terms or query_weights, found both"),
        ({"terms": 100}, "found them with query_weights"),
        ({"pruned_to": 100, "mine_every": 3}, "pruned_to and mine_every only .* with query_weights"),
        ({"context_share": 0.0}, "expected context_share only where the whole model is trained"),
        ({"context_share": 0.1, "only_terms": ["moon"], "query_weights": 0}, "found them with only_terms"),
        ({"teachers": ["bm25"]}, "expected no teacher for query_weights, found bm25"),
        ({"encoder": None}, "expected a SPARTA model for query_weights, found an encoder"),
    ],
)
def test_what_weights_cannot_be_trained_with(train, tmp_path, change, wrong):
    train("first", steps=1)
    given = {k: v for k, v in {"encoder": str(tmp_path / "first"), **change}.items() if v is not None}
    with pytest.raises(InputError, match=wrong):
        train("wrong", **{"query_weights": 5, **given})


def test_a_model_in_full_precision_stays_so(train, tmp_path):
    """Else its texts would be rounded, which were to stay as they are."""
    import torch

    from sparta.neural.checkpoint import is_int8, load_state

    first = train("first", full_precision=True)
    given = {"encoder": str(first.folder), "learning_rate": 1e-3, "steps": 4}
    before = load_state(first.folder / "model.safetensors")
    for name, part in (("weights", {"query_weights": 5}), ("terms", {"only_terms": ["moon"]})):
        after = train(name, **part, **given)
        assert not is_int8(after.folder / "model.safetensors")
        state = load_state(after.folder / "model.safetensors")
        same = {key for key in before if torch.equal(state[key], before[key])}
        assert same >= set(before) - {"term_embeddings"}
    assert not is_int8(first.folder / "model.safetensors")
    assert is_int8(
        train("eight", query_weights=5, **{**given, "encoder": str(train("x").folder)}).folder
        / "model.safetensors"
    )


def test_questions_that_have_nothing_in_common(training, tmp_path, write_jsonl, words, caplog):
    """There is nothing to weigh; fewer terms than were asked for are told."""
    from sparta.training.paragraphs import open_set

    rare = [{"question": word, "positive": f"{word} {i}"} for i, word in enumerate(sorted(set(words))[:40])]
    one = open_set(str(write_jsonl(tmp_path / "rare.jsonl", rare)), "pairs", 8)
    with pytest.raises(InputError, match="expected questions that have words in common"):
        weighing(training, data=one, held_out=0)
    made = weighing(training, query_weights=1_000)
    assert f"only {int(made.weighed.sum())} of 1000 terms are asked" in caplog.text


def test_texts_are_read_before_the_first_step(training):
    made = weighing(training)
    seen = []
    loss = made.loss

    def first(step: int) -> Any:
        seen.append(len(list(made.folder.glob("pool-*.npz"))))
        return loss(step)

    made.loss = first
    made._columns = count = Counted(made._columns)
    made.run()
    assert seen[0] == count.calls == 1


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *given: Any) -> Any:
        self.calls += 1
        return self.function(*given)


def test_two_processes_come_to_the_end(train, pairs_file, tmp_path):
    """The first one speaks; of a model that had weights already, too."""
    import subprocess
    import sys

    first = train("first")
    for name, encoder in (("new", first.folder), ("more", tmp_path / "new" / "best")):
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"),
            *("--nproc-per-node", "2", "-m", "cli._sparta", "train", "--encoder", encoder, "--device", "cpu"),
            *("--pairs", pairs_file, "--query-weights", "5", "--steps", "2", "--output", tmp_path / name),
        ]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "-inf" not in done.stderr
        assert done.stderr.count("without weights of questions: validation") == (name == "new")
        assert not list((tmp_path / name).glob("pool-*"))


def test_questions_without_known_words_rank_nothing(training, tmp_path, write_jsonl):
    from sparta.training.paragraphs import open_set

    asked = [{"question": "who moon" if i < 30 else "☃", "positive": f"moon city {i}"} for i in range(40)]
    made = weighing(
        training, data=open_set(str(write_jsonl(tmp_path / "a.jsonl", asked)), "pairs", 8), held_out=10
    )
    assert made.score(made.ask(["☃"]), made.sets[0].paragraphs[0].answers()).tolist() == [[0.0]]
    assert made.validate() >= 0


def test_sets_of_one_name_have_pools_of_their_own(training, records, tmp_path, write_jsonl):
    from sparta.training.paragraphs import open_set

    for name, part in (("a", records[:40]), ("b", records[40:])):
        (tmp_path / name).mkdir()
        write_jsonl(tmp_path / name / "t.jsonl", part)
    made = weighing(training)
    one, other = (open_set(str(tmp_path / name / "t.jsonl"), "pairs", 8) for name in "ab")
    assert one.name == other.name
    assert set(made._pool(one).batch.questions).isdisjoint(made._pool(other).batch.questions)


def test_a_model_that_was_better_without_weights_is_told(train, caplog):
    """Measured as it came, by how often words occur; with weights each counts once."""
    import logging

    first = train("first")
    given = {"encoder": str(first.folder), "query_weights": 5, "learning_rate": 1e-9, "steps": 2}
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.INFO, "sparta"):
        answers = iter([0.9, 0.5, 0.5, 0.5])
        patch.setattr("sparta.weighing.WeightTraining.validate", lambda _: next(answers))
        train("second", **given)
    assert "without weights of questions: validation 0.9000" in caplog.text
    assert "ranks better" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "sparta"):
        train("third", **{**given, "encoder": str(first.folder.parents[1] / "second" / "best")})
    assert "without weights" not in caplog.text, "it had some"


def test_as_it_came_a_word_counts_as_often_as_it_occurs(training):
    import torch

    made = weighing(training)
    texts = [one for paragraph in made.sets[0].paragraphs[:5] for one in paragraph.answers()]
    with torch.no_grad():
        made.counted.mul_(3)
        made._as_it_came = True
        twice = made.score(made.ask(["moon moon city"]), texts)
        once_each = [made.score(made.ask([word]), texts) for word in ("moon", "city")]
        assert torch.allclose(twice, 2 * once_each[0] + once_each[1])
        made._as_it_came = False
        assert torch.allclose(made.score(made.ask(["moon moon city"]), texts), 3 * sum(once_each))
