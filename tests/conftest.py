"""Tiny models with random weights, for tests of the plumbing: deterministic, and made in a moment."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import string
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.calls import calls as calls
from tests.compiled import sharing_core
from tests.order import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.order import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from sparta.models.config import SpartaConfig
    from sparta.models.sparta import SpartaModel

WORDS = """
a about after all also an and are as at be been before born both but by can city company country day
did do does earth east eight end engine english every father few find first five flow for found
founded founder four from game german germany google great group had has have he her high his
history home house how if in into is island it its jupiter king known land language large larry
largest last late life light like long made many march may miles moon more most mother mountain much
music name new next night no north not nothing now number of often old on once one only or other our
out over page paper park part people planet play queen question read red relativity released
republic rest river road same school sea search second see sergey she short since single site small
so some song south star started state story street string such sun than that the their them then
there these they third this three time to town tree two under university until up upon very war was
water way we web week well were west what when where which while white who whose why wide will wind
with word words work world would year years yes you young animal brain capital einstein energy
france ocean oxygen paris student theory wrote
""".split()  # noqa: SIM905 (read as text)
SUFFIXES = ["##s", "##ed", "##ing", "##er", "##ers", "##ly", "##tion", "##al", "##ity", "##ment"]
CHINESE = list("的一是不了人我在有他这中国大学地球月亮水山河北京城市谁什么哪里年")
PUNCTUATION = list(".,;:!?'\"()-")


def _vocabulary() -> list[str]:
    letters = list(string.ascii_lowercase) + list(string.digits)
    pieces = [*letters, *(f"##{c}" for c in letters), *PUNCTUATION, *WORDS, *SUFFIXES, *CHINESE]
    head = ["[PAD]", *(f"[unused{i}]" for i in range(10)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return [*head, *dict.fromkeys(pieces)]


ROOT = Path(__file__).parents[1]
OURS = ("sparta", "dense", "hybrid", "cli", "benchmarks", "scripts", "research", "tests")
JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Java without its second compiler and without parallel garbage collection: a process of tests soon ends."""
warned: list[str] = []


def pytest_warning_recorded(warning_message: warnings.WarningMessage, nodeid: str) -> None:
    """Note a warning that a line of ours gave."""
    path = Path(warning_message.filename)
    if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in OURS:
        warned.append(f"{nodeid}: {path}:{warning_message.lineno}: {warning_message.message}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Such a warning is a failure."""
    if warned and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say which, below everything else."""
    if warned:
        print("\n".join(["warnings of our own code fail the tests:", *warned]))


def pytest_configure() -> None:
    """Start Java with `JAVA_OPTIONS` in this process, and let OpenVINO compute with one thread.

    A process of tests soon ends: by default, a fifth of its time goes into code that is then hardly used.
    OpenVINO compiles a network for each thread, and other processes of tests keep the processors busy.
    """
    from sparta.runtime.processor import use_threads

    use_threads(1)
    with suppress(ImportError):  # tests of the base need no Java
        import jnius_config

        jnius_config.add_options(*JAVA_OPTIONS)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Make the archive of Java's classes, once, so that no process of a test starts to make it."""
    from sparta.base.errors import SpartaError
    from sparta.lucene.jvm import build_archive

    if not hasattr(session.config, "workerinput"):
        with suppress(SpartaError, OSError):  # tests without Java run without the archive
            build_archive()


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function `(name, make) -> folder`: the first process of a run calls `make(folder)`, the others wait.

    No test may change such a folder.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        with (shared / f"{name}.lock").open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.seek(0)
            if lock.read() != "made":
                shutil.rmtree(shared / name, ignore_errors=True)
                (shared / name).mkdir()
                make(shared / name)
                lock.write("made")
        return shared / name

    return folder


@pytest.fixture(scope="session")
def example_shards(made_once: Callable[..., Path]) -> Path:
    """The example corpus, encoded by the default model."""

    def make(folder: Path) -> None:
        from sparta.models.load import load_model
        from sparta.shards.encode import EncodeOptions, encode_corpus

        corpus = ROOT / "examples" / "wiki.jsonl"
        encode_corpus(corpus, folder / "shards", load_model(), EncodeOptions())

    return made_once("example-shards", make) / "shards"


@pytest.fixture(scope="session")
def make_records() -> Callable[..., list[dict[str, Any]]]:
    """A function `(n, *, seed=0, longest=12, prefix="p") -> records` of words that the tiny models know."""

    def make(n: int, *, seed: int = 0, longest: int = 12, prefix: str = "p") -> list[dict[str, Any]]:
        rng = random.Random(seed)
        texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, longest))) for _ in range(n)]
        return [
            {"id": f"{prefix}{i}", "text": text, "title": rng.choice(WORDS)} for i, text in enumerate(texts)
        ]

    return make


@pytest.fixture(scope="session")
def write_jsonl() -> Callable[[Path, list[dict[str, Any]]], Path]:
    """A function that writes records, one a line, and gives the path back."""

    def write(path: Path, records: list[dict[str, Any]]) -> Path:
        path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="module")
def own_logger() -> Iterator[None]:
    """The commands take over the project's loggers; later tests get them back as they were."""
    import logging

    loggers = [logging.getLogger(name) for name in ("sparta", "hybrid", "dense")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, state in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate, logger.level = state


@pytest.fixture(scope="session", autouse=True)
def _no_waiting() -> Iterator[None]:
    """Leave out what only measured times and the memory of a long process need."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sparta.runtime.network.core", sharing_core)
        for place in ("network", "first_in_numpy"):
            patched.setattr(f"sparta.runtime.{place}.return_freed_memory", lambda: None)
        with suppress(ImportError):
            patched.setattr("hybrid.evaluation.compare._WARM_UP_QUERIES", 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def irds_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of ir_datasets, which reads the variable once, when it is imported."""
    folder = tmp_path_factory.mktemp("irds")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("IR_DATASETS_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    """After a command that was interrupted, Ctrl-C ends the process at once; not so in the tests after it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch on one thread: small models are faster so, and results do not depend on the machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_vocabulary() -> list[str]:
    """About 400 wordpieces: whole words, letters to spell the others with, and some Chinese."""
    return _vocabulary()


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_vocabulary: list[str]) -> Tokenizer:
    """A lowercasing BERT tokenizer over the tiny vocabulary."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    ids = {piece: i for i, piece in enumerate(tiny_vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(vocab=ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(token, ids[token]) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


@pytest.fixture(scope="session")
def make_tiny_model(tiny_tokenizer: Tokenizer) -> Callable[..., SpartaModel]:
    """A function `(config=None, *, seed=0, tokenizer=None) -> SpartaModel`: BERT, 2 layers of 32, random.

    The layers are weak and the word embeddings strong: a passage's own words weigh most, and a part of the
    other terms gets a lesser weight, so that rankings make some sense and ties are rare.
    """
    import torch
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertModel

    from sparta.models.config import SpartaConfig
    from sparta.models.sparta import SpartaModel

    def make(
        config: SpartaConfig | None = None, *, seed: int = 0, tokenizer: Tokenizer | None = None
    ) -> SpartaModel:
        torch.manual_seed(seed)
        own = tokenizer or tiny_tokenizer
        bert = BertConfig(
            vocab_size=own.get_vocab_size(),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=512,
        )
        encoder = BertModel(bert, add_pooling_layer=False)
        model = SpartaModel(encoder, Tokenizer.from_str(own.to_str()), config or SpartaConfig())
        with torch.no_grad():
            words = encoder.get_input_embeddings().weight
            words.normal_()
            if model.term_embeddings is not None:
                model.term_embeddings.copy_(words + 0.1 * torch.randn_like(words))
            model.scale.fill_(0.25)
            model.bias.fill_(-2.5)
        model.name, model.identity = "tiny", f"tiny-{seed}"
        return model.eval()

    return make


@pytest.fixture(scope="session")
def tiny_model_folder(
    make_tiny_model: Callable[..., SpartaModel], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A SPARTA model folder with a quantizer, as `sparta train` leaves one. Do not write into it."""
    from sparta.base.records import Passage
    from sparta.models.config import SpartaConfig
    from sparta.models.document_encoder import fit_quantizer

    model = make_tiny_model()
    texts = (
        "larry page and sergey brin founded google in a house",
        "the moon of the earth",
        "北京是中国的城市",
    )
    quantizer = fit_quantizer(model, [Passage(str(i), text) for i, text in enumerate(texts)])
    model.config = replace(SpartaConfig(), quantizer=quantizer)
    folder = tmp_path_factory.mktemp("models") / "tiny"
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def lexical_model(tmp_path: Path, tiny_model_folder: Path) -> Path:
    """A folder of a tiny model with lexical terms."""
    from sparta.models.folders.tokenizer import load_tokenizer
    from sparta.models.lexical_terms import LexicalTerms, TermSettings

    folder = tmp_path / "model"
    shutil.copytree(tiny_model_folder, folder)
    LexicalTerms(TermSettings(pair_bits=0), load_tokenizer(folder)).save(folder)
    return folder


@pytest.fixture
def tiny_model(tiny_model_folder: Path) -> SpartaModel:
    """The model of `tiny_model_folder`, opened as every command opens it; each test has its own."""
    from sparta.models.load import load_module

    return load_module(tiny_model_folder)  # type: ignore[return-value]


PYSERINI = """
import json, sys
from sparta.lucene import jvm
jvm.start_jvm()
from tests.pyserinis_searchers import LuceneImpactSearcher, LuceneSearcher

class Encoder:
    def encode(self, query):
        return json.loads(query)

rows = lambda hits: [[hit.docid, hit.score] for hit in hits]
for line in sys.stdin:
    path, bags, texts, passage_id, k = json.loads(line)
    impacts = LuceneImpactSearcher(path, Encoder(), min_idf=-1)
    plain = LuceneSearcher(path)
    print(json.dumps({
        "sparta": [rows(impacts.search(json.dumps(bag), k)) for bag in bags],
        "bm25": [rows(plain.search(text, k, fields={"text": 1.0})) for text in texts],
        "raw": plain.doc(passage_id).raw(),
    }), flush=True)
"""


@pytest.fixture(scope="session")
def ask_pyserini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., dict[str, Any]]]:
    """Return a function that searches a Lucene folder with Pyserini's own searchers.

    They run in a process with our jar on the class path. All tests of a worker ask the same process.
    """
    errors = tmp_path_factory.mktemp("pyserini") / "errors"
    started: list[subprocess.Popen[str]] = []

    def ask(
        path: Path, bags: list[dict[str, int]], texts: list[str], passage_id: str, k: int
    ) -> dict[str, Any]:
        if not started:
            variables = {**os.environ, "PYTHONPATH": str(ROOT)}
            with errors.open("w") as log:
                command, pipe = [sys.executable, "-c", PYSERINI], subprocess.PIPE
                started.append(
                    subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, stderr=log, text=True)
                )
        assert started[0].stdin
        assert started[0].stdout
        started[0].stdin.write(json.dumps([str(path), bags, texts, passage_id, k]) + "\n")
        started[0].stdin.flush()
        lines = iter(started[0].stdout.readline, "")
        limit = threading.Timer(300, started[0].kill)  # the line that does not come is then missing
        limit.start()
        line = next((line for line in lines if line.startswith("{")), None)
        limit.cancel()
        assert line is not None, errors.read_text()
        answer: dict[str, Any] = json.loads(line)
        return answer

    yield ask
    for process in started:
        process.communicate()


# ---------------------------------------------------------------- training


@pytest.fixture(scope="session")
def words(tiny_vocabulary) -> list[str]:
    return [t for t in tiny_vocabulary if t.isascii() and t.isalpha() and len(t) > 3]


@pytest.fixture(scope="session")
def records(words) -> list[dict[str, Any]]:
    """The question asks for two of the words of its answer."""
    rng = random.Random(3)
    made = []
    for i in range(80):
        answer = rng.sample(words, 5)
        made.append({"question": " ".join(answer[:2]), "positive": " ".join(answer), "title": f"t{i // 8}"})
    return made


@pytest.fixture
def pairs_file(records, write_jsonl, tmp_path) -> Path:
    return write_jsonl(tmp_path / "pairs.jsonl", records)


@pytest.fixture
def training(pairs_file, make_tiny_model, tmp_path) -> Callable[..., Any]:
    """Make a training of the tiny model on the pairs; `config` and `trainer` override what is usual."""
    from sparta.models.config import SpartaConfig
    from sparta.neural.inputs import InputLayout
    from sparta.training.options import TrainerConfig
    from sparta.training.paragraphs import open_set
    from sparta.training.sparta_training import SpartaTraining, TrainConfig

    def make(
        name: str = "out",
        *,
        trainer: dict[str, Any] | None = None,
        seed: int = 0,
        batch: int = 8,
        data: Any = None,
        layout: str = "pairs",
        teacher: Any = None,
        **config: Any,
    ) -> Any:
        one = data or open_set(str(pairs_file), layout, batch)
        usual = {
            "steps": 12,
            "learning_rate": 1e-3,
            "bf16": False,
            "seed": 5,
            "validate_every": 3,
            "checkpoint_every": 4,
        }
        chosen = TrainConfig(
            trainer=TrainerConfig(**{**usual, **(trainer or {})}),
            **{"sampled_terms": 50, "pressure": 0.0, "dropout": 0.1, **config},
        )
        shared = InputLayout(answer_segment=0, use_context=True, share_context=True)
        model = make_tiny_model(SpartaConfig(layout=shared), seed=seed)
        return SpartaTraining(model, [one], chosen, tmp_path / name, teacher)

    return make


@pytest.fixture(scope="session")
def encoder_folder(make_tiny_model, tiny_tokenizer, tmp_path_factory) -> Path:
    """A pretrained encoder, as others publish them."""
    folder = tmp_path_factory.mktemp("encoder")
    make_tiny_model().encoder.save_pretrained(folder)
    tiny_tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def train(encoder_folder, pairs_file, records, tmp_path) -> Callable[..., Any]:
    from sparta.training.options import SpartaRecipe
    from sparta.training.paragraphs import open_set
    from sparta.training.train import train_model

    def run(name: str, *, resume: bool = False, openers: Sequence[Any] = (), **change: Any) -> Any:
        usual = {
            "encoder": str(encoder_folder),
            "steps": 6,
            "learning_rate": 1e-3,
            "pressure": 0.001,
            "validate_every": 3,
            "seed": 2,
            "device": "cpu",
        }
        recipe = SpartaRecipe(**{**usual, **change})
        sets = [open_set(str(pairs_file), "pairs", 8)]
        return train_model(sets, recipe, tmp_path / name, resume=resume, openers=openers)

    run.texts = [f"{r['title']} {r['positive']}" for r in records]  # type: ignore[attr-defined]
    return run
