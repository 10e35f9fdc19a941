"""Reading the tokenizer of a model folder, with the settings of all its files."""

from __future__ import annotations

import copyreg
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers

from sparta.base.checks import check_vocabulary, json_object
from sparta.base.errors import ModelError
from sparta.base.files import raise_if_unreadable


def load_tokenizer(name: str | Path) -> Tokenizer:
    """Return a tokenizer from a folder or a hub id, without truncation or padding.

    A tokenizer.json is read directly; transformers reads all other formats.

    :raises ModelError: there is no usable tokenizer.
    """
    folder = Path(name)
    if not (folder / "tokenizer.json").is_file():
        return _for_texts(_through_transformers(str(name)))
    return _from_file(folder, _parsed)


def shared_tokenizer(folder: Path) -> Tokenizer:
    """Return `load_tokenizer(folder)`, which callers share and must not change.

    Parsing takes 50 ms. The versions of an index, and indexes of one model, have equal files.
    """
    return (
        _from_file(folder, _parsed_once) if (folder / "tokenizer.json").is_file() else load_tokenizer(folder)
    )


def _from_file(folder: Path, parse: Callable[[str, str], Tokenizer]) -> Tokenizer:
    path = folder / "tokenizer.json"
    settings = [_settings(folder / name) for name in ("tokenizer_config.json", "sentence_bert_config.json")]
    try:
        return parse(path.read_text("utf-8"), json.dumps(settings))
    except Exception as error:  # tokenizers raises bare Exception
        raise_if_unreadable(path, error)
        raise ModelError(f"the tokenizer file cannot be read: {error}", where=str(path)) from error


def _parsed(text: str, settings: str) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json, with the settings of two other files, as JSON."""
    tokenizer = Tokenizer.from_str(text)
    _use_settings(tokenizer, *json.loads(settings))
    return _for_texts(tokenizer)


_parsed_once = lru_cache(2)(_parsed)


def _for_texts(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # "[SEP]" in a text is five characters, not the end of a segment
    return tokenizer


def _restored(stored: str, encodes_special_tokens: bool) -> Tokenizer:
    tokenizer = Tokenizer.from_str(stored)
    tokenizer.encode_special_tokens = encodes_special_tokens
    return tokenizer


def _stored(tokenizer: Tokenizer) -> tuple[Any, tuple[Any, ...]]:
    if not tokenizer.encode_special_tokens:  # of another package, perhaps: needs no sparta where it is read
        return Tokenizer.from_str, (tokenizer.to_str(),)
    return _restored, (tokenizer.to_str(), True)


# Copies on other devices and machines read "[SEP]" in a text as the original does; tokenizers forgets it.
copyreg.pickle(Tokenizer, _stored)


_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""Names in tokenizer_config.json, and those of `BertNormalizer`."""
_WITH_SETTINGS = {f"{name}Tokenizer" for name in ("Bert", "DistilBert", "Electra", "MPNet")}
"""Classes of transformers that apply these settings to tokenizer.json."""


def _use_settings(
    tokenizer: Tokenizer, settings: Mapping[str, Any], sentence_settings: Mapping[str, Any]
) -> None:
    """Apply settings that override those of tokenizer.json, as transformers does.

    sentence-transformers also lowercases if its settings say so.

    :param settings: tokenizer_config.json
    :param sentence_settings: sentence_bert_config.json
    """
    normalizer = tokenizer.normalizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        applies = str(settings.get("tokenizer_class", "")).removesuffix("Fast") in _WITH_SETTINGS
        for name, ours in _SETTINGS.items() if applies else ():
            if isinstance(settings.get(name), bool) and settings[name] != getattr(normalizer, ours):
                setattr(normalizer, ours, settings[name])
    lowers = sentence_settings.get("do_lower_case") is True
    if lowers and (normalizer is None or normalizer.normalize_str("A") == "A"):
        steps = [normalizers.Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])]
        tokenizer.normalizer = normalizers.Sequence(steps)


def _settings(path: Path) -> dict[str, Any]:
    return json_object(path) if path.is_file() else {}


def fitting_tokenizer(folder: Path, n_words: int) -> Tokenizer:
    """Return the tokenizer of a model folder whose encoder has `n_words` word embeddings.

    :raises ValueError: the tokenizer has more wordpieces than the encoder.
    :raises ModelError: there is no usable tokenizer.
    """
    tokenizer = load_tokenizer(folder)
    if check_vocabulary(tokenizer, folder) > n_words:
        raise ValueError("the tokenizer has more wordpieces than the encoder")
    return tokenizer


def _through_transformers(name: str) -> Tokenizer:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        if not Path(name).is_dir():
            raise
        raise ModelError(
            "the model folder has no tokenizer.json; transformers, which reads other files, is not installed",
            where=name,
            remedy="add the model's tokenizer.json to the folder",
        ) from error

    try:
        fast = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        tokenizer = Tokenizer.from_str(fast.backend_tokenizer.to_str())
    except (OSError, ValueError, TypeError, AttributeError, ImportError) as error:
        raise _no_tokenizer(name, str(error)) from error
    if tokenizer.get_vocab_size() <= len(tokenizer.get_added_tokens_decoder()):
        # transformers returns an empty tokenizer for a folder without tokenizer files
        raise _no_tokenizer(name, "its vocabulary is empty")
    return tokenizer


def _no_tokenizer(name: str, reason: str) -> ModelError:
    return ModelError(
        f"the model folder has no usable tokenizer: {reason}",
        where=name,
        remedy="add the model's tokenizer.json or vocab.txt to the folder",
    )
