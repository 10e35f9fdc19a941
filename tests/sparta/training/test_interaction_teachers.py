"""Late-interaction models and cross-encoders teach: their scores, and the models that are refused."""

import json
import shutil

import numpy as np
import pytest
import torch

from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.models.query_encoder import QueryTokenizer
from sparta.training.paragraphs import Paragraph, ParagraphSet
from sparta.training.teachers import open_teacher, weight_hashes
from tests.sparta.rerank.cross_encoders import edit, save_cross_encoder
from tests.sparta.sharing.hub_server import running_hub

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def texts():
    """Sentences in their context, and whole texts: more of each than a cross-encoder reads."""
    text = "the moon of the earth. larry page founded google."
    spans = [(0, 22), (23, len(text)), (0, 8), (9, 22), (23, 33), (34, len(text))]
    sentences = [Passage("", text[a:b], "t", text, a, b) for a, b in spans]
    whole = ["a house", "the moon", "google house", "the earth, the moon.", "larry page", "moon google"]
    return [*sentences, *(Passage("", one, "t") for one in whole)]


@pytest.fixture
def cross_encoder(tiny_tokenizer, tmp_path):
    return save_cross_encoder(tiny_tokenizer, tmp_path / "cross")


@pytest.fixture
def colbert(encoder_folder, tmp_path):
    """A folder as ColBERT writes it, without a projection."""
    folder = shutil.copytree(encoder_folder, tmp_path / "colbert")
    marks = {"query_token_id": "moon", "doc_token_id": "house"}
    (folder / "artifact.metadata").write_text(json.dumps(marks))
    return folder


@pytest.fixture
def opened(tiny_tokenizer, texts):
    """Open a teacher by its name, with the texts as training data."""
    sets = [ParagraphSet("s", tuple(Paragraph(text.text) for text in texts))]
    return lambda name: open_teacher([f"{name}"], sets, QueryTokenizer(tiny_tokenizer))


@pytest.mark.parametrize("projected", [False, True])
def test_a_late_interaction_model_teaches(colbert, opened, tiny_tokenizer, texts, projected):
    """ColBERT's eq. 3, token by token; punctuation of texts does not count, markers do."""
    from safetensors.torch import load_file, save_file

    from sparta.neural.backbones import load_encoder
    from sparta.training.interaction_teachers import LateInteractionTeacher

    matrix = torch.eye(load_encoder(colbert).config.hidden_size)
    if projected:
        matrix = torch.randn(5, len(matrix), generator=torch.Generator().manual_seed(1))
        state = load_file(colbert / "model.safetensors")
        save_file({**state, "linear.weight": matrix}, colbert / "model.safetensors", {"format": "pt"})
    [(teacher, _)] = opened(colbert).teachers
    assert isinstance(teacher, LateInteractionTeacher)
    encoder = load_encoder(colbert).eval()

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


def test_a_cross_encoder_teaches(cross_encoder, opened, texts):
    """It reads the four most similar sentences and whole texts; the others have no score."""
    from sparta.models.folders.cross_encoder import CrossEncoder
    from sparta.training.interaction_teachers import CrossEncoderTeacher

    mixture = opened(cross_encoder)
    [(teacher, _)] = mixture.teachers
    assert isinstance(teacher, CrossEncoderTeacher)
    assert weight_hashes(mixture) != [""]
    reader = CrossEncoder(cross_encoder)

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


def test_a_cross_encoder_reads_equal_texts_once(cross_encoder, opened):
    """A sentence's context may also be a candidate: four different texts are read, and both get the score."""
    mark = "the moon of the earth. "
    contexts = [mark + end for end in ("larry page", "google house", "a house", "moon google", "page moon")]
    sentences = [Passage("", mark.strip(), "t", context, 0, len(mark) - 1) for context in contexts]
    whole = [Passage("", context, "t") for context in contexts]
    mixture = opened(cross_encoder)
    [(teacher, _)] = mixture.teachers
    scores = mixture.scores(["the moon", "larry page"], [*sentences, *whole])
    assert scores[:, 5:].isfinite().sum(1).tolist() == [4, 4]
    np.testing.assert_array_equal(scores[:, :5].isfinite(), scores[:, 5:].isfinite())
    scores_of_paragraphs = teacher.scores(["the moon", "larry page"], whole)
    np.testing.assert_allclose(scores[:, 5:], scores_of_paragraphs / mixture.temperature, rtol=1e-5)


def test_on_a_gpu_torch_reads_the_pairs_of_a_cross_encoder(cross_encoder, texts):
    """The same network, tried here on the CPU: the logits of transformers."""
    from transformers import BertForSequenceClassification

    from sparta.models.folders.tokenizer import load_tokenizer
    from sparta.neural.encoding import arithmetic
    from sparta.training.interaction_teachers import PairNetwork

    network = BertForSequenceClassification.from_pretrained(cross_encoder).eval()
    pairs, read = load_tokenizer(cross_encoder), [text.text for text in texts]
    expected = []
    for text in read:
        encoding = pairs.encode("moon moon", text)
        ids, segments = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
        with torch.no_grad(), arithmetic(ids.device):
            expected.append(float(network(input_ids=ids, token_type_ids=segments).logits))
    torch_network = PairNetwork.load(cross_encoder, "cpu")
    logits = torch_network.logits(["moon moon"] * len(read), read)
    np.testing.assert_allclose(logits, expected, atol=0.01)
    assert logits.std() > 0.02
    torch.nn.init.constant_(torch_network.classifier.bias, torch.nan)
    with pytest.raises(ModelError, match="infinite or not numbers"):
        torch_network.logits(["moon moon"], ["moon"])


def test_the_shipped_reranker_is_found_by_its_name_without_its_package(opened, monkeypatch):
    """As `--rerank` finds it."""
    monkeypatch.setattr("sparta.training.teachers.local_folder", lambda name: pytest.fail(name))
    [(teacher, _)] = opened("reranker-minilm-en").teachers
    assert teacher.name == "reranker-minilm-en"


@pytest.mark.parametrize("architecture", ["XLMRobertaForSequenceClassification", "HF_ColBERT"])
def test_a_model_that_is_not_read_is_refused(encoder_folder, opened, tmp_path, architecture):
    """Its first state would be a wrong vector."""
    folder = shutil.copytree(encoder_folder, tmp_path / "other")
    edit(folder / "config.json", lambda config: {**config, "architectures": [architecture]})
    with pytest.raises(ModelError, match=r"expected a cross-encoder|artifact\.metadata"):
        opened(folder)


def test_late_interaction_without_its_projection_is_refused(colbert, opened):
    (colbert / "model.safetensors").rename(colbert / "weights.safetensors")
    with pytest.raises(ModelError, match="which also holds the projection"):
        opened(colbert)


def test_late_interaction_of_pylate_is_refused(encoder_folder, opened, tmp_path):
    folder = shutil.copytree(encoder_folder, tmp_path / "pylate")
    modules = [{"type": "sentence_transformers.models.Transformer"}, {"type": "pylate.models.Dense.Dense"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="in the form of PyLate"):
        opened(folder)


def test_teachers_are_fetched_from_the_hub(colbert, cross_encoder, opened, texts, tmp_path, monkeypatch):
    from huggingface_hub import constants

    with running_hub() as hub:
        for name, value in {
            "ENDPOINT": hub.address,
            "HUGGINGFACE_CO_URL_TEMPLATE": hub.address + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(tmp_path / "cache"),
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_OFFLINE": False,
        }.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        for folder in (colbert, cross_encoder):
            files = {path.name: path.read_bytes() for path in folder.iterdir()}
            hub.repositories[f"me/{folder.name}"] = files
        for folder in (colbert, cross_encoder):
            fetched, local = opened(f"me/{folder.name}"), opened(folder)
            assert type(fetched.teachers[0][0]) is type(local.teachers[0][0])
            assert fetched.name == local.name
            np.testing.assert_array_equal(fetched.scores(["moon"], texts), local.scores(["moon"], texts))
