"""What teachers think of candidates, and that a training learns it."""

import json
import shutil
from typing import Any

import numpy as np
import pytest
import torch

from sparta.base.errors import InputError, ModelError

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
def test_distillation_from_bm25_and_a_bi_encoder(train, encoder_folder, tmp_path):
    result = train("out", teachers=["bm25=0.5", f"{encoder_folder}=20"])
    assert 0 < result.validation <= 1
    plain = train("plain")
    weights = (result.folder / "model.safetensors").read_bytes()
    assert (plain.folder / "model.safetensors").read_bytes() != weights
    again = train("again", teachers=["bm25=0.5", f"{encoder_folder}=20"])
    assert (again.folder / "model.safetensors").read_bytes() == weights
    with pytest.raises(InputError, match="the settings differ from the settings of the started training"):
        train("out", resume=True)
    with pytest.raises(InputError, match="expected TEACHER=WEIGHT with a number"):
        train("bad", teachers=["bm25=much"])


def test_teachers_score_as_they_say(encoder_folder, pairs_file, tiny_tokenizer):
    """BM25 against its formula, the bi-encoder against a forward pass of one text."""
    import torch

    from sparta.base.records import Passage
    from sparta.models.query_encoder import QueryTokenizer
    from sparta.training.paragraphs import Paragraph, ParagraphSet
    from sparta.training.teachers import DenseTeacher, LexicalTeacher, Mixture

    texts = ["the moon of the earth", "the moon", "larry page founded google", "a house"]
    asked = ["moon moon", "google house"]
    one = ParagraphSet("s", tuple(Paragraph(t) for t in texts))
    lexical = LexicalTeacher([one], QueryTokenizer(tiny_tokenizer))
    candidates = [Passage("", t) for t in texts]
    scores = lexical.scores(asked, candidates)
    mean = np.mean([5, 2, 4, 2])

    def weight(n: int, holding: int, length: int) -> float:
        idf = np.log(1 + (4 - holding + 0.5) / (holding + 0.5))
        return float(idf * n / (n + 0.9 * (0.6 + 0.4 * length / mean)))

    expected = [[2 * weight(1, 2, 5), 2 * weight(1, 2, 2), 0, 0], [0, 0, weight(1, 1, 4), weight(1, 1, 2)]]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    teacher = DenseTeacher(str(encoder_folder))
    teacher.mean, teacher.prefix = True, "the "
    cosines = teacher.scores(asked, candidates)
    encoder = teacher.encoder

    def vector(text: str) -> Any:
        ids = torch.tensor([tiny_tokenizer.encode(text).ids])
        with torch.no_grad():
            state = encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].mean(0)
        return state / state.norm()

    by_hand = [[20 * float(vector("the " + q) @ vector(t)) for t in texts] for q in asked]
    assert np.std(by_hand) > 1
    np.testing.assert_allclose(cosines, by_hand, atol=0.4)
    mixture = Mixture([(lexical, 0.5), (teacher, 20.0)], temperature=2)
    np.testing.assert_allclose(mixture.scores(asked, candidates), 0.25 * scores + 10 * cosines, rtol=1e-5)
    assert mixture.name == f"0.5 bm25 + 20 {encoder_folder.name}"
    inside = [
        Passage("", "the moon", "", texts[0], 0, 8),
        candidates[2],
        Passage("", "of", "", texts[0], 9, 11),
    ]
    alone = mixture.scores(asked, [candidates[1], candidates[2], Passage("", "of")])
    whole = mixture.scores(asked, [candidates[0]])
    expected = alone + whole * torch.tensor([1.0, 0.0, 1.0])
    np.testing.assert_allclose(
        mixture.scores(asked, inside), expected, rtol=1e-4, err_msg="context counts too"
    )


@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_teacher_reads_as_far_as_its_positions_reach(tiny_tokenizer, tmp_path, kind, is_late):
    import transformers

    from sparta.base.records import Passage
    from sparta.models.query_encoder import QueryTokenizer
    from sparta.training.teachers import open_teacher
    from tests.sparta.models.language_models import save_tokenizer

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=tiny_tokenizer.get_vocab_size(), max_position_embeddings=20, pad_token_id=0, **sizes
    )
    getattr(transformers, f"{kind}Model")(config, add_pooling_layer=False).save_pretrained(tmp_path)
    save_tokenizer(tiny_tokenizer, tmp_path)
    if is_late:
        marks = {"query_token_id": "moon", "doc_token_id": "house"}
        (tmp_path / "artifact.metadata").write_text(json.dumps(marks))
    teacher = open_teacher([str(tmp_path)], [], QueryTokenizer(tiny_tokenizer))
    assert teacher is not None
    assert teacher.scores(["the moon"], [Passage("", "moon " * 300)]).isfinite().all()


KINDS = ("Transformer", "Pooling")


@pytest.mark.parametrize(
    ("pooling", "kinds", "expected"),
    [
        ({"pooling_mode": "mean"}, KINDS, True),
        ({"pooling_mode": "cls"}, (*KINDS, "Normalize"), False),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, KINDS, True),
        ({"pooling_mode_cls_token": True}, KINDS, False),
        ({"pooling_mode": "lasttoken"}, KINDS, None),
        ({"pooling_mode": ["mean", "max"]}, KINDS, None),
        ({"pooling_mode_weightedmean_tokens": True}, KINDS, None),
        (None, KINDS, None),
        ({"pooling_mode": "mean"}, (*KINDS, "Dense"), None),
        (None, ("Transformer", "MultiVectorMask"), None),
    ],
)
def test_a_bi_encoder_of_sentence_transformers_pools_as_it_says(
    encoder_folder, tmp_path, pooling, kinds, expected
):
    """Other vectors than those of sentence-transformers would teach wrong scores."""
    from sparta.training.teachers import DenseTeacher

    folder = shutil.copytree(encoder_folder, tmp_path / "encoder")
    modules = [
        {"type": f"sentence_transformers.any.module.{kind}", "path": f"{i}_{kind}" if i else ""}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    if pooling:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if expected is None:
        with pytest.raises(ModelError, match="pools states by mean or cls, found"):
            DenseTeacher(str(folder))
    else:
        teacher = DenseTeacher(str(folder))
        assert (teacher.mean, bool(teacher.prefix)) == (expected, not expected)


@pytest.mark.parametrize(
    ("settings", "prefixes"),
    [
        ({"prompts": {"query": "query: ", "document": "passage: "}}, ("query: ", "passage: ")),
        ({"prompts": {"query": "", "document": ""}}, ("", "")),
        ({"prompts": {"any": "all: "}, "default_prompt_name": "any"}, ("all: ", "all: ")),
        ({"__version__": {}}, (None, "")),
    ],
)
def test_stored_prompts_and_the_stored_length_are_used(encoder_folder, tmp_path, settings, prefixes):
    """Without stored prompts, as in bge, [CLS] means bge's prefix."""
    from sparta.base.records import Passage
    from sparta.training.teachers import QUERY_PREFIX, DenseTeacher

    folder = shutil.copytree(encoder_folder, tmp_path / "encoder")
    (folder / "1_Pooling").mkdir()
    modules = [{"type": f"any.{kind}", "path": f"{i}_{kind}" if i else ""} for i, kind in enumerate(KINDS)]
    for name, content in (
        ("modules.json", modules),
        ("1_Pooling/config.json", {"pooling_mode": "cls"}),
        ("config_sentence_transformers.json", settings),
        ("sentence_bert_config.json", {"max_seq_length": 7}),
    ):
        (folder / name).write_text(json.dumps(content))
    teacher = DenseTeacher(str(folder))
    of_question, of_text = prefixes
    of_question = QUERY_PREFIX if of_question is None else of_question
    assert (teacher.prefix, teacher.text_prefix) == (of_question, of_text)
    assert len(teacher.tokenizer.encode("moon " * 20).ids) == 7
    expected = 20 * teacher.embed([f"{of_question}the moon"]) @ teacher.embed([f"{of_text}a house"]).T
    torch.testing.assert_close(teacher.scores(["the moon"], [Passage("", "a house")]), expected)


def test_an_invalid_proxy_is_named_when_a_file_of_a_teacher_is_fetched(encoder_folder, tmp_path, monkeypatch):
    from huggingface_hub import close_session

    from sparta.training import teachers

    encoder = teachers.load_encoder(encoder_folder), teachers.load_tokenizer(encoder_folder)
    monkeypatch.setattr(teachers, "load_encoder", lambda name: encoder[0])
    monkeypatch.setattr(teachers, "load_tokenizer", lambda name: encoder[1])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://proxy:abc")
    close_session()
    with pytest.raises(InputError, match="the address of the proxy is invalid"):
        teachers.DenseTeacher("me/encoder")
    close_session()


def test_a_cache_must_tell_offline_how_an_encoder_pools(encoder_folder, tmp_path, monkeypatch):
    """The cache remembers which files a model lacks. Another program may not have looked for them."""
    from sparta.training import teachers

    encoder = teachers.load_encoder(encoder_folder), teachers.load_tokenizer(encoder_folder)
    monkeypatch.setattr(teachers, "load_encoder", lambda name: encoder[0])
    monkeypatch.setattr(teachers, "load_tokenizer", lambda name: encoder[1])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"because modules\.json cannot be read"):
        teachers.DenseTeacher("me/encoder")
    cache = tmp_path / "models--me--encoder"
    for path, text in (("refs/main", "0"), (".no_exist/0/modules.json", "")):
        (cache / path).parent.mkdir(parents=True)
        (cache / path).write_text(text)
    with pytest.raises(ModelError, match=r"because 1_Pooling/config\.json cannot be read"):
        teachers.DenseTeacher("me/encoder")
    (cache / ".no_exist/0/1_Pooling").mkdir()
    (cache / ".no_exist/0/1_Pooling/config.json").touch()
    assert teachers.DenseTeacher("me/encoder").prefix


def test_a_sparta_model_teaches(tiny_model_folder):
    """Its scores are those of its own vectors, sentences in their contexts, the second time too."""
    from sparta.base.records import Passage
    from sparta.models.folders.tokenizer import load_tokenizer
    from sparta.models.load import load_module
    from sparta.models.query_encoder import QueryTokenizer
    from sparta.training.teachers import Mixture, open_teacher

    text = "the moon of the earth. larry page founded google."
    sentences = [Passage("", text[:22], "t", text, 0, 22), Passage("", text[23:], "t", text, 23, len(text))]
    candidates = [*sentences, Passage("", text, "t")]
    asked = ["moon moon", "google house"]
    mixture = open_teacher([f"{tiny_model_folder}=3"], [], QueryTokenizer(load_tokenizer(tiny_model_folder)))
    assert isinstance(mixture, Mixture)
    model = load_module(tiny_model_folder)
    expected = (model.encode_query(asked) @ model.encode_document(candidates).T).toarray() * 3 / 2
    assert expected.std() > 0
    np.testing.assert_allclose(mixture.scores(asked, candidates), expected, rtol=1e-4)
    np.testing.assert_allclose(mixture.scores(asked, candidates[:1]), expected[:, :1], rtol=1e-4)
    assert mixture.name == f"3 {tiny_model_folder.name}"


@pytest.mark.parametrize("codes", [0, 2])
@pytest.mark.parametrize("context", [True, False])
def test_a_bi_encoder_of_ours_teaches(make_tiny_model, tmp_path, train, codes, context):
    """Its scores are its own: of a sentence in its context, or of the sentence and of the context added."""
    from dense.models.bi_encoder import DenseConfig, DenseModel
    from dense.training.teacher import open_bi_encoder
    from sparta.base.records import Passage
    from sparta.neural.inputs import InputLayout
    from sparta.training.teachers import open_teacher

    tiny = make_tiny_model(seed=4)
    layout = InputLayout(answer_segment=0, use_context=context, share_context=context)
    model = DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout, codes)).eval()
    model.save_pretrained(tmp_path / "dense" / "best")
    text = "the moon of the earth. larry page founded google."
    sentences = [Passage("", text[:22], "t", text, 0, 22), Passage("", text[23:], "t", text, 23, len(text))]
    whole = Passage("", text, "t")
    asked = ["moon moon", "google house"]

    def own(candidates: list[Passage]) -> np.ndarray:
        questions, vectors = model.encode_questions(asked), model.encode_passages(candidates)
        return model.score(torch.from_numpy(questions), torch.from_numpy(vectors)).numpy()

    expected = own([*sentences, whole])
    if not context:
        expected[:, :2] += own([whole])
    name = str(tmp_path / "dense")
    teacher = open_teacher([f"{name}=3"], [], None, None, [open_bi_encoder])
    for _ in range(2):  # the second time from memory
        found = teacher.scores(asked, [*sentences, whole])
        np.testing.assert_allclose(found, expected * 3 / 2, rtol=0.01, atol=0.05)
    np.testing.assert_allclose(teacher.scores(asked, sentences[:1]), found[:, :1], rtol=1e-5)
    assert teacher.name == "3 dense"
    assert open_bi_encoder("bert") is None
    result = train("out", teachers=[name], openers=[open_bi_encoder])
    assert 0 <= result.validation <= 1
