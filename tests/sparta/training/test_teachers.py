"""What teachers think of candidates, and that a training learns it."""

from typing import Any

import numpy as np
import pytest
import torch

from sparta.base.errors import InputError

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


def test_a_sparta_model_teaches(tiny_model_folder):
    """Its scores are those of its own vectors, sentences in their contexts, the second time too."""
    from sparta.base.records import Passage
    from sparta.models.load import load_module
    from sparta.models.query_encoder import QueryTokenizer, load_tokenizer
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


@pytest.fixture
def texts():
    """Sentences in their context, and whole texts: more of each than a cross-encoder reads."""
    from sparta.base.records import Passage

    text = "the moon of the earth. larry page founded google."
    spans = [(0, 22), (23, len(text)), (0, 8), (9, 22), (23, 33), (34, len(text))]
    sentences = [Passage("", text[a:b], "t", text, a, b) for a, b in spans]
    whole = ["a house", "the moon", "google house", "the earth, the moon.", "larry page", "moon google"]
    return [*sentences, *(Passage("", one, "t") for one in whole)]


@pytest.mark.parametrize("projected", [False, True])
def test_a_late_interaction_model_teaches(encoder_folder, tiny_tokenizer, texts, tmp_path, projected):
    """ColBERT's eq. 3, token by token; punctuation of texts does not count, markers do."""
    import json
    import shutil

    from safetensors.torch import load_file, save_file

    from sparta.models.query_encoder import QueryTokenizer
    from sparta.neural.backbones import load_encoder
    from sparta.training.interaction_teachers import LateInteractionTeacher
    from sparta.training.teachers import open_teacher

    folder = shutil.copytree(encoder_folder, tmp_path / "colbert")
    marks = {"query_token_id": "moon", "doc_token_id": "house"}
    (folder / "artifact.metadata").write_text(json.dumps(marks))
    matrix = torch.eye(load_encoder(folder).config.hidden_size)
    if projected:
        matrix = torch.randn(5, len(matrix), generator=torch.Generator().manual_seed(1))
        state = load_file(folder / "model.safetensors")
        save_file({**state, "linear.weight": matrix}, folder / "model.safetensors", {"format": "pt"})
    mixture = open_teacher([f"{folder}"], [], QueryTokenizer(tiny_tokenizer))
    teacher = mixture.teachers[0][0]
    assert isinstance(teacher, LateInteractionTeacher)
    encoder = load_encoder(folder).eval()

    def states(text, marker):
        first, *others = tiny_tokenizer.encode(text).ids
        ids = [first, tiny_tokenizer.token_to_id(marker), *others]
        with torch.no_grad():
            rows = encoder(input_ids=torch.tensor([ids])).last_hidden_state[0] @ matrix.T
        kept = [tiny_tokenizer.id_to_token(i) not in {".", ","} or marker == "moon" for i in ids]
        return torch.nn.functional.normalize(rows, dim=1)[kept]

    asked = ["moon moon", "google house."]
    expected = [
        [float((states(q, "moon") @ states(f"{t.title} {t.text}", "house").T).amax(1).sum()) for t in texts]
        for q in asked
    ]
    found = teacher.scores(asked, texts)
    assert np.std(expected) > 0.01
    np.testing.assert_allclose(found, expected, atol=0.03)
    np.testing.assert_array_equal(teacher.scores(asked, texts), found)


def test_a_cross_encoder_teaches(tiny_tokenizer, texts, tmp_path):
    """It reads the four most similar sentences and whole texts; the others have no score."""
    from sparta.models.folders.cross_encoder import CrossEncoder
    from sparta.models.query_encoder import QueryTokenizer
    from sparta.training.interaction_teachers import CrossEncoderTeacher
    from sparta.training.paragraphs import Paragraph, ParagraphSet
    from sparta.training.teachers import open_teacher, weight_hashes
    from tests.sparta.rerank.cross_encoders import save_cross_encoder

    folder = save_cross_encoder(tiny_tokenizer, tmp_path / "cross")
    sets = [ParagraphSet("s", tuple(Paragraph(text.text) for text in texts))]
    mixture = open_teacher([f"{folder}=2"], sets, QueryTokenizer(tiny_tokenizer))
    teacher = mixture.teachers[0][0]
    assert isinstance(teacher, CrossEncoderTeacher)
    assert weight_hashes(mixture) != [""]
    reader = CrossEncoder(folder)

    def logit(question, text):
        return float(reader.logits([question], [f"{text.title} {text.text}"])[0])

    asked = ["moon moon", "google house"]
    scores, similar = teacher.scores(asked, texts), teacher.lexical.scores(asked, texts)
    for question, row, near in zip(asked, scores, similar, strict=True):
        for columns in (range(6), range(6, 12)):
            read = sorted(columns, key=lambda i: (-float(near[i]), i))[:4]
            for i in columns:
                expected = logit(question, texts[i]) if i in read else np.nan
                assert float(row[i]) == pytest.approx(expected, abs=0.01, nan_ok=True)
    assert np.nanstd(scores) > 0.02
    np.testing.assert_array_equal(teacher.scores(asked, texts), scores)
    np.testing.assert_allclose(teacher.scores(asked, []), np.zeros((2, 0)))


def test_on_a_gpu_torch_reads_the_pairs_of_a_cross_encoder(tiny_tokenizer, texts, tmp_path):
    """The same network, tried here on the CPU: the logits of transformers."""
    from transformers import BertForSequenceClassification

    from sparta.models.query_encoder import load_tokenizer
    from sparta.neural.encoding import arithmetic
    from sparta.training.interaction_teachers import PairNetwork
    from tests.sparta.rerank.cross_encoders import save_cross_encoder

    folder = save_cross_encoder(tiny_tokenizer, tmp_path / "cross")
    network = BertForSequenceClassification.from_pretrained(folder).eval()
    pairs, read = load_tokenizer(folder), [text.text for text in texts]
    expected = []
    for text in read:
        encoding = pairs.encode("moon moon", text)
        ids, segments = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
        with torch.no_grad(), arithmetic(ids.device):
            expected.append(float(network(input_ids=ids, token_type_ids=segments).logits))
    logits = PairNetwork.load(folder, "cpu").logits(["moon moon"] * len(read), read)
    np.testing.assert_allclose(logits, expected, atol=0.01)
    assert logits.std() > 0.02
