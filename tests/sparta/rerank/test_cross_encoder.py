"""Cross-encoders have the scores of sentence-transformers, and order the first hits of a search."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from sparta import Index
from sparta.base.errors import InputError, ModelError
from sparta.index.inputs.options import IndexOptions
from sparta.models.folders.cross_encoder import CrossEncoder
from sparta.models.folders.pairs import pair_tokenizer
from sparta.rerank.reranked import RerankedRetriever, open_reranker
from sparta.search.facets import count_values
from tests.programs import hybrid
from tests.sparta.rerank.cross_encoders import edit, save_cross_encoder

pytestmark = pytest.mark.usefixtures("one_thread")

QUERY = "who founded google?"
TEXTS = [
    "Larry Page and Sergey Brin founded Google in a small house.",
    "the moon [SEP] of the moon",
    "the earth of all the years and the west of the east " * 9,
    "",
]


@pytest.fixture(scope="module")
def folders(tiny_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The layouts of published cross-encoders, with random weights."""
    from sentence_transformers import CrossEncoder as Theirs

    root = tmp_path_factory.mktemp("cross")
    save_cross_encoder(tiny_tokenizer, root / "plain")
    identity = "torch.nn.modules.linear.Identity"
    for name, fields in {
        "old": {"sbert_ce_default_activation_function": identity},
        "new": {"sentence_transformers": {"activation_fn": identity, "version": "4.1.0"}},
    }.items():
        shutil.copytree(root / "plain", root / name)
        edit(root / name / "config.json", lambda c, fields=fields: {**c, **fields})
    shutil.copytree(root / "new", root / "without segments")
    names = ["input_ids", "attention_mask"]
    edit(
        root / "without segments" / "tokenizer_config.json",
        lambda c: {**c, "model_input_names": names},
    )
    Theirs(str(root / "new"), device="cpu", max_length=64).save_pretrained(str(root / "saved"))
    return {name: root / name for name in ("plain", "old", "new", "saved", "without segments")}


@pytest.mark.parametrize("layout", ["plain", "old", "new", "saved", "without segments"])
def test_scores_equal_sentence_transformers(folders: dict[str, Path], layout: str) -> None:
    from sentence_transformers import CrossEncoder as Theirs

    theirs = Theirs(str(folders[layout]), device="cpu").predict([(QUERY, text) for text in TEXTS])
    ours = CrossEncoder(folders[layout], "fp32").scores([QUERY] * len(TEXTS), TEXTS)
    places = [0, 2, 3]  # sentence-transformers reads the [SEP] in a text as the end of the text
    np.testing.assert_allclose(ours[places], theirs[places], atol=1e-5)
    assert np.ptp(ours) > 0.01
    assert (layout == "plain") == bool(((ours > 0) & (ours < 1)).all()), "only this layout has a sigmoid"


KINDS = (
    *("Bert", "ConvBert", "DPRContextEncoder", "DPRQuestionEncoder", "Electra", "LayoutLM", "Lxmert"),
    *("MobileBert", "SqueezeBert", "Deberta", "DistilBert", "MPNet"),
)


@pytest.mark.parametrize(
    "settings",
    [
        None,
        {},
        *({"tokenizer_class": f"{kind}Tokenizer"} for kind in KINDS),
        {"tokenizer_class": "BertTokenizerFast"},
        {"tokenizer_class": "BertTokenizer", "model_input_names": ["input_ids"]},
        {"tokenizer_class": "PreTrainedTokenizerFast"},
        {"tokenizer_class": "TokenizersBackend"},
        {"tokenizer_class": "TokenizersBackend", "model_input_names": ["token_type_ids"]},
    ],
    ids=str,
)
def test_a_pair_has_segments_where_transformers_passes_them(
    folders: dict[str, Path], tmp_path: Path, settings: dict[str, Any] | None
) -> None:
    from transformers import AutoTokenizer

    folder = shutil.copytree(folders["plain"], tmp_path / "model")
    if settings is None:
        (folder / "tokenizer_config.json").unlink()
    else:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = pair_tokenizer(folder, json.loads((folder / "config.json").read_text()))
    [pair] = tokenizer.inputs([QUERY], TEXTS[:1])
    passed = AutoTokenizer.from_pretrained(folder)(QUERY, TEXTS[0])
    assert set(pair.segments) == set(passed.get("token_type_ids", [0]))
    assert len(pair.segments) == len(pair.ids)


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "labels": (lambda c: {**c, "id2label": {"0": "no", "1": "yes"}}, "with one label; found 2 labels"),
    "kind": (lambda c: {**c, "architectures": ["BertModel"]}, "with one label; found BertModel"),
    "activation": (
        lambda c: {**c, "sbert_ce_default_activation_function": "torch.nn.modules.activation.Tanh"},
        "the activation of a cross-encoder must be Sigmoid or Identity, found Tanh",
    ),
    "roberta": (lambda c: {**c, "model_type": "roberta"}, "whose encoder is not a plain BERT"),
    "weights": (lambda c: {**c, "intermediate_size": 65}, "the cross-encoder cannot be read: expected"),
    "layers": (lambda c: {**c, "num_hidden_layers": 1}, "config.json does not describe the weights bert.enc"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_folders_are_refused(folders: dict[str, Path], tmp_path: Path, case: str) -> None:
    change, message = REFUSED[case]
    folder = shutil.copytree(folders["plain"], tmp_path / "model")
    edit(folder / "config.json", change)
    with pytest.raises(ModelError, match=message):
        CrossEncoder(folder)


DAMAGED: dict[str, Callable[[Path], Any]] = {
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "cut weights": lambda folder: (folder / "model.safetensors").write_bytes(b"0" * 100),
    "length": lambda folder: edit(folder / "tokenizer_config.json", lambda c: {**c, "model_max_length": -5}),
    "type of length": lambda folder: edit(
        folder / "tokenizer_config.json", lambda c: {**c, "model_max_length": "x"}
    ),
    "settings": lambda folder: edit(folder / "config.json", lambda c: {**c, "sentence_transformers": "x"}),
    "type of labels": lambda folder: edit(folder / "config.json", lambda c: {**c, "id2label": 1}),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_folders_are_refused(folders: dict[str, Path], tmp_path: Path, case: str) -> None:
    folder = shutil.copytree(folders["plain"], tmp_path / "model")
    DAMAGED[case](folder)
    with pytest.raises(ModelError, match="the cross-encoder cannot be read") as refused:
        CrossEncoder(folder)
    assert str(folder) in str(refused.value)


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such folder of a cross-encoder"):
        CrossEncoder.open("nowhere")
    with pytest.raises(ModelError, match=r"has no config\.json"):
        CrossEncoder(tmp_path)
    with pytest.raises(InputError, match="found an empty text"):
        open_reranker("")


def test_one_label_by_its_number(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["plain"], tmp_path / "model")
    edit(
        folder / "config.json", lambda c: {k: v for k, v in c.items() if k != "id2label"} | {"num_labels": 1}
    )
    assert np.array_equal(
        CrossEncoder(folder).scores(["a"], ["b"]), CrossEncoder(folders["plain"]).scores(["a"], ["b"])
    )


def changed_bias(folder: Path, bias: float) -> None:
    """Write another bias of the classifier."""
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"classifier.bias": np.array([bias], np.float32)}, folder / "model.safetensors")


@pytest.mark.parametrize("bias", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_are_an_error(
    folders: dict[str, Path], tmp_path: Path, bias: float
) -> None:
    folder = shutil.copytree(folders["new"], tmp_path / "model")
    changed_bias(folder, bias)
    with pytest.raises(ModelError, match="infinite or not numbers"):
        CrossEncoder(folder).scores(["the moon"], ["the moon"])


def test_a_folder_with_other_files_is_read_again(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def score() -> float:
        return float(open_reranker("model").scores(["the moon"], ["the moon"])[0])

    folder = shutil.copytree(folders["new"], tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    before, opened = score(), open_reranker("model")
    assert open_reranker("model") is opened
    changed_bias(folder, 7.0)
    assert score() > before + 5
    shutil.copytree(folders["new"], tmp_path / "elsewhere" / "model")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert score() == before, "a relative name means another folder now"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An index without impacts; the last passage has a title."""
    records = [
        {"id": str(i), "text": f"the moon {'moon ' * i}of year {i}", "lang": "en" if i % 2 else "fr"}
        for i in range(8)
    ]
    records.append({"id": "titled", "title": "the queen", "text": "the moon of the year"})
    options = IndexOptions(channels="bm25")
    return Index.create(tmp_path_factory.mktemp("index") / "ix", records, options=options)


def test_the_first_hits_are_ordered_by_the_scores(index: Index, folders: dict[str, Path]) -> None:
    hits = index.search("the moon", 9)
    texts = [f"{hit.title} {hit.text}" if hit.title else hit.text for hit in hits]
    scores = CrossEncoder(folders["new"]).scores(["the moon"] * 9, texts)
    reranked = index.search("the moon", 9, rerank=folders["new"], rerank_depth=5)
    first = sorted(range(5), key=lambda i: -scores[i])
    assert [hit.passage_id for hit in reranked] == [hits[i].passage_id for i in [*first, *range(5, 9)]]
    np.testing.assert_allclose([hit.score for hit in reranked[:5]], scores[first], atol=1e-5)
    assert [hit.score for hit in reranked] == sorted((hit.score for hit in reranked), reverse=True)
    assert [hit.text for hit in reranked] == [hits[i].text for i in [*first, *range(5, 9)]]


def test_pages_are_parts_of_one_ranking(index: Index, folders: dict[str, Path]) -> None:
    more = {"rerank": folders["new"], "rerank_depth": 6}
    whole = [hit.passage_id for hit in index.search("the moon", 9, **more)]
    for offset, k in ((0, 2), (2, 3), (4, 4), (8, 5)):
        page = index.search("the moon", k, offset=offset, **more)
        assert [hit.passage_id for hit in page] == whole[offset : offset + k]
    assert index.search("zebra", **more) == []
    runs = index.run(["the moon", "zebra"], ["a", "b"], 3, **more)
    assert [list(runs[name].passage_ids) for name in "ab"] == [whole[:3], []]


def test_a_filter_applies_before_the_reranking(index: Index, folders: dict[str, Path]) -> None:
    french = {"filter": {"lang": "fr"}}
    hits = [hit.passage_id for hit in index.search("the moon", 9, **french)]
    reranked = index.search("the moon", 9, rerank=folders["new"], rerank_depth=2, **french)
    assert sorted(hits) == ["0", "2", "4", "6"]
    ids = [hit.passage_id for hit in reranked]
    assert (sorted(ids[:2]), ids[2:]) == (sorted(hits[:2]), hits[2:])


def test_facets_count_the_hits_of_the_first_stage(index: Index, folders: dict[str, Path]) -> None:
    retriever = index.retriever("bm25", folders["new"], 2)
    assert count_values(retriever, "the moon", ["lang"]) == {"lang": {"en": 4, "fr": 4}}


def test_a_depth_without_a_cross_encoder_is_refused(index: Index, folders: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="rerank_depth has no effect"):
        index.search("the moon", rerank_depth=5)
    with pytest.raises(InputError, match="rerank_depth"):
        index.search("the moon", rerank=folders["new"], rerank_depth=0)


def test_the_name_of_the_channel(index: Index, folders: dict[str, Path]) -> None:
    retriever = index.retriever("bm25", folders["new"])
    assert isinstance(retriever, RerankedRetriever)
    assert retriever.channel == "bm25+rerank"
    assert (retriever.num_docs, retriever.unit, retriever.language) == (9, "passage", "en")


def test_a_copy_in_another_process_ranks_alike(index: Index, folders: dict[str, Path]) -> None:
    retriever = index.retriever("bm25", folders["new"], 5)
    with pickle.loads(pickle.dumps(retriever)) as copy:
        assert copy.search("the moon", 9) == retriever.search("the moon", 9)
        assert copy.rerank_depth == 5


def test_an_evaluation_measures_the_same_ranking(
    index: Index, folders: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "queries.jsonl").write_text('{"_id": "a", "text": "the moon"}\n')
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\na\ttitled\t1\n")
    options = [
        "--index",
        str(index.path),
        "--dataset",
        str(tmp_path),
        "--output-runs",
        str(tmp_path / "runs"),
    ]
    more = ["--rerank", str(folders["new"]), "--rerank-depth", "5", "--quiet", "--format", "markdown"]
    printed = hybrid("eval", *options, *more, catch_exceptions=False).stdout
    rows = [[cell.strip() for cell in line.split("|")] for line in printed.splitlines()]
    ms = {row[2]: row[-2] for row in rows if len(row) > 3}
    assert ms["channel"] == "ms/query"
    assert float(ms["bm25+rerank"]) > float(ms["bm25"])
    [run] = (tmp_path / "runs").rglob("*rerank*")
    ranked = [line.split()[2] for line in run.read_text().splitlines()]
    hits = index.search("the moon", 9, rerank=folders["new"], rerank_depth=5)
    assert ranked == [hit.passage_id for hit in hits]


@pytest.mark.jvm
def test_both_scripts_of_chinese_are_read_alike(folders: dict[str, Path], tmp_path: Path) -> None:
    """A Chinese index folds queries and passages for the cross-encoder."""
    read: list[tuple[str, str]] = []

    class Recorded(CrossEncoder):
        def scores(self, queries: list[str], texts: list[str]) -> np.ndarray:
            read.extend(zip(queries, texts, strict=True))
            return super().scores(queries, texts)

    options = IndexOptions(channels="bm25", language="zh")
    records = [{"id": "1", "title": "電腦", "text": "電腦是一種機器"}]
    with Index.create(tmp_path / "ix", records, options=options) as index:
        RerankedRetriever(index.retriever("bm25"), Recorded(folders["plain"])).search("電腦是什麼", 1)
    assert read == [("电脑是什么", "电脑 电脑是一种机器")]
