"""Supporting sentences: HotpotQA's measures, how sentences are numbered, and the command."""

from __future__ import annotations

import json
import random
import re
import string
from pathlib import Path
from typing import Any

import pytest
import torch

from hybrid.evaluation.questions import questions_of
from hybrid.evidence.supporting import OF_SENTENCES, Fact, Supporting, facts_of, measured
from hybrid.multihop.paths import Evidence, EvidencePath
from hybrid.multihop.searcher import ChainSearcher
from sparta.base.errors import InputError
from sparta.base.records import Hit
from sparta.data.sentences import sentence_splitter
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.reader.path_inputs import PathLayout
from sparta.reader.path_model import PathModel
from tests.programs import hybrid

SENTENCES = {
    "Ulysses": ["Ulysses is a novel. ", "James Joyce wrote it."],
    "James Joyce": ["He was a writer.", " Dublin was his home.", " ", " He left it."],
    "Alien": ["Alien is a film by Ridley Scott."],
}


def hotpot(query_id: str, **changes: Any) -> dict[str, Any]:
    """A question as HotpotQA publishes it."""
    return {
        "_id": query_id,
        "question": "where was the home of the writer of Ulysses",
        "answer": "Dublin",
        "supporting_facts": [["Ulysses", 1], ["James Joyce", 1]],
        "context": [[title, sentences] for title, sentences in SENTENCES.items()],
        "type": "bridge",
        **changes,
    }


def _words(text: str) -> list[str]:
    bare = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def _evaluated(found: list[Fact], gold: list[Fact], answer: str, right: str) -> list[float]:
    """The measures from their definition: counts of sentences and of words, products of both."""
    true = sum(fact in gold for fact in set(found))
    wrong, missed = len(set(found)) - true, sum(fact not in found for fact in set(gold))
    p = true / (true + wrong) if true + wrong else 0.0
    r = true / (true + missed) if true + missed else 0.0
    said, words = _words(answer), _words(right)
    same = " ".join(said) == " ".join(words)
    rest = list(words)
    shared = 0
    for word in said:
        if word in rest:
            rest.remove(word)
            shared += 1
    if not same and any(" ".join(one) in ("yes", "no", "noanswer") for one in (said, words)):
        shared = 0
    answer_p, answer_r = (shared / len(said), shared / len(words)) if shared else (0.0, 0.0)
    exact = float(wrong + missed == 0)
    both = [(p, r), (p * answer_p, r * answer_r)]
    f1, joint = (2 * x * y / (x + y) if x + y > 0 else 0.0 for x, y in both)
    return [exact, f1, exact * same, joint]


def test_measures_are_those_of_hotpotqa() -> None:
    rng = random.Random(3)
    facts = [(title, i) for title in "AB" for i in range(3)]
    words = ["yes", "no", "the", "a", "Dublin", "dublin.", "home", "noanswer", "of"]
    cases = {}
    for q in map(str, range(1000)):
        gold = rng.choices(facts, k=rng.randint(1, 4))
        right = " ".join(rng.choices(words, k=rng.randint(1, 3)))
        found = gold[::-1] if rng.random() < 0.3 else rng.choices(facts, k=rng.randint(0, 5))
        answer = right if rng.random() < 0.3 else " ".join(rng.choices(words, k=rng.randint(0, 3)))
        cases[q] = found, gold, answer, right
    values = measured(
        {q: Supporting(frozenset(gold)) for q, (_, gold, _, _) in cases.items()},
        {q: found for q, (found, _, _, _) in cases.items()},
        {q: answer for q, (_, _, answer, _) in cases.items()},
        {q: [right] for q, (_, _, _, right) in cases.items()},
    )
    for q, case in cases.items():
        assert [values[name][q] for name in OF_SENTENCES] == pytest.approx(_evaluated(*case)), case
    assert all(0.01 < sum(own.values()) / 1000 < 0.9 for own in values.values())


def test_what_is_not_predicted_counts_nothing() -> None:
    known = Supporting(frozenset({("A", 0)}))
    values = measured(
        {"none": known, "no answer": known, "several": known},
        {"no answer": [("A", 0)], "several": [("A", 0)]},
        {"none": "x", "no answer": None, "several": "x"},
        {"none": ["x"], "no answer": ["x"], "several": ["y", "x"]},
    )
    assert list(values) == ["sup_EM", "sup_F1", "joint_EM", "joint_F1"]
    assert values["sup_F1"] == {"none": 0.0, "no answer": 1.0, "several": 1.0}
    assert values["joint_F1"] == {"none": 0.0, "no answer": 0.0, "several": 1.0}


def _path(title: str, text: str, *supporting: str) -> EvidencePath:
    spans = tuple((text.index(one), text.index(one) + len(one)) for one in supporting)
    return EvidencePath((Evidence(Hit("1", 1.0, title, text), {}, 1.0, supporting=spans),))


@pytest.mark.parametrize(
    ("path", "facts"),
    [
        (_path("James Joyce", "".join(SENTENCES["James Joyce"]), "Dublin was his home."), {1}),
        (_path("James Joyce", "".join(SENTENCES["James Joyce"]), "He left it."), {3}),
        (_path("James Joyce", "".join(SENTENCES["James Joyce"]), "He was a writer. Dublin was his"), {0, 1}),
        (_path("James Joyce", "".join(SENTENCES["James Joyce"]), "home."), {1}),
        (_path("James Joyce", "Dublin was his home. He left it.", "He left it."), {3}),
        (_path("Elsewhere", "It rains. It snows.", "It snows."), {1}),
        (_path("James Joyce", "Another text. Of an index.", "Of an index."), {1}),
        (_path("Alien", "Alien is a film by Ridley Scott."), set()),
    ],
)
def test_spans_are_numbered_as_the_sentences_of_the_context(path: EvidencePath, facts: set[int]) -> None:
    known = Supporting(frozenset(), {title: tuple(own) for title, own in SENTENCES.items()})
    title = path.passages[0].hit.title
    assert facts_of(path, known, sentence_splitter("en")) == {(title, number) for number in facts}


def test_hotpotqas_json_and_its_columns(tmp_path: Path) -> None:
    columns = hotpot(
        "b",
        supporting_facts={"title": ["Ulysses"], "sent_id": [1]},
        context={"title": list(SENTENCES), "sentences": list(SENTENCES.values())},
    )
    plain = {"_id": "c", "question": "who", "answer": "x"}
    path = tmp_path / "dev.json"
    path.write_text(json.dumps([hotpot("a"), columns, plain]))
    found = questions_of(path)
    assert found.supporting["a"].facts == {("Ulysses", 1), ("James Joyce", 1)}
    assert found.supporting["b"].facts == {("Ulysses", 1)}
    assert found.supporting["a"].sentences == found.supporting["b"].sentences
    assert found.sample(1).supporting.keys() <= {q.query_id for q in found.sample(1).queries}
    assert set(found.supporting) == {"a", "b"}


@pytest.mark.parametrize(
    "changes",
    [
        {"supporting_facts": [["Ulysses", "1"]]},
        {"supporting_facts": [["Ulysses", True]]},
        {"supporting_facts": [["Ulysses"]]},
        {"supporting_facts": {"title": ["Ulysses"]}},
        {"supporting_facts": 7},
        {"context": [["Ulysses", "It is a novel."]]},
        {"context": [[1, []]]},
    ],
)
def test_facts_of_another_form_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    path.write_text(json.dumps([hotpot("a"), hotpot("b", **changes)]))
    with pytest.raises(InputError, match="broken supporting facts") as caught:
        questions_of(path)
    assert "item 2" in caught.value.where


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Path) -> dict[str, Path]:
    """An index of the context, questions, and readers of paths: one tells sentences, one does not."""
    folder = tmp_path_factory.mktemp("supporting")
    texts = [(title, "".join(own)) for title, own in SENTENCES.items()]
    passages = [{"id": str(n), "title": title, "text": text} for n, (title, text) in enumerate(texts)]
    build_index(folder / "ix", passages, options=IndexOptions(channels="bm25"))
    asked = [hotpot("a"), hotpot("b", question="zzz"), hotpot("c", question="who wrote Ulysses")]
    (folder / "dev.json").write_text(json.dumps(asked))
    torch.manual_seed(5)
    for name, tells in (("tells", True), ("silent", False)):
        layout = PathLayout(max_length=120, longest_question=30, sentences=tells)
        reader = PathModel.from_encoder(str(encoder_folder), layout)
        with torch.no_grad():  # some sentences support the answer, others do not
            reader.sentences.weight.copy_(torch.randn_like(reader.sentences.weight))
        reader.save_pretrained(folder / name)
    names = {"--index": "ix", "--dataset": "dev.json", "tells": "tells", "silent": "silent"}
    return {name: folder / place for name, place in names.items()}


def _eval(places: dict[str, Path], *options: object) -> Any:
    own = [part for name in ("--index", "--dataset") for part in (name, places[name])]
    given = ["eval", *own, "--no-dense", "--format", "json", *options]
    return hybrid(*given)


@pytest.mark.slow
@pytest.mark.jvm
def test_the_command_measures_chains_that_tell_sentences(places: dict[str, Path], tmp_path: Path) -> None:
    chain = ("--chain", "hop-read", "--path-reader", places["tells"])
    written = ("--per-query", tmp_path / "each.jsonl")
    result = _eval(places, *chain, "--measures", ",".join(OF_SENTENCES), *written)
    assert result.exit_code == 0, result.output
    bm25, measured_chain = json.loads(result.stdout)
    assert bm25["sup_EM"] is None
    with ChainSearcher("hop-read", places["--index"], path_reader=places["tells"]) as searcher:
        found = {
            q.query_id: searcher.find_paths(q.text, 1).paths
            for q in questions_of(places["--dataset"]).queries
        }
    gold = [("Ulysses", 1), ("James Joyce", 1)]
    known = Supporting(frozenset(), {title: tuple(own) for title, own in SENTENCES.items()})
    expected = {"b": [0.0] * 4}
    for q in ("a", "c"):
        [best] = found[q]
        assert best.answer is not None
        facts = list(facts_of(best, known, sentence_splitter("en")))
        expected[q] = _evaluated(facts, gold, best.answer.answer, "Dublin")
    assert found["b"] == []
    lines = [json.loads(line) for line in (tmp_path / "each.jsonl").read_text().splitlines()]
    each = {one["query_id"]: one for one in lines if one["ranking"] == "chain hop-read"}
    for q, values in expected.items():
        assert [each[q][name] for name in OF_SENTENCES] == pytest.approx(values)
    assert any(values[1] for values in expected.values()), "some sentence is right"
    means = [100 * sum(own) / 3 for own in zip(*expected.values(), strict=True)]
    assert [measured_chain[name] for name in OF_SENTENCES] == pytest.approx(means)
    usual = _eval(places, *chain)
    assert usual.exit_code == 0, usual.output
    assert set(OF_SENTENCES) <= json.loads(usual.stdout)[1].keys(), "without --measures too"


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("chain", "said"),
    [
        ((), "--chain"),
        (("--chain", "hop"), "reader"),
        (("--chain", "hop-read", "--path-reader", "silent"), "reader"),
    ],
)
def test_without_told_sentences_there_is_no_zero(
    places: dict[str, Path], chain: tuple[str, ...], said: str
) -> None:
    given = [places.get(one, one) for one in chain]
    result = _eval(places, *given, "--measures", "sup_F1,answer_recall@20")
    assert result.exit_code == 2, result.output
    assert said in result.stderr.splitlines()[0]
