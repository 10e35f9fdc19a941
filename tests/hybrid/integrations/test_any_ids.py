"""Evaluation tools may use any id: passages with it are found, and results carry it."""

from __future__ import annotations

from typing import Any

import pytest

from sparta.base.errors import InputError

pytestmark = pytest.mark.jvm
IDS = ["with a space", "with\ttab", "line\nbreak", "", "é" * 600, "12#3", "7", "0", " 0", "\x00"]


@pytest.mark.parametrize("channel", ["impact", "bm25", "bm25=1,impact"])
def test_beir_gets_its_ids_back(options: Any, channel: str) -> None:
    pytest.importorskip("beir")
    from hybrid.integrations import BeirSearch

    corpus = {name: {"title": "", "text": f"the city of {'moon ' * (n + 1)}"} for n, name in enumerate(IDS)}
    found = BeirSearch(None, channel, options=options).search(corpus, {"q": "moon"}, 100)
    assert sorted(found["q"]) == sorted(IDS)


def test_mteb_gets_its_ids_back(options: Any) -> None:
    pytest.importorskip("mteb")
    from hybrid.integrations import MtebSearch

    model = MtebSearch(None, "bm25", options=options)
    model.index([{"id": name, "text": f"the moon {n}"} for n, name in enumerate(IDS)])
    found = model.search([{"id": "a question", "text": "moon"}], top_k=100)
    assert sorted(found["a question"]) == sorted(IDS)


def test_an_id_of_two_passages_is_refused(options: Any) -> None:
    from hybrid.integrations.collection import Collection

    with pytest.raises(InputError, match="twin"):
        Collection(options=options).hold([{"id": "twin", "text": "a"}, {"id": "twin", "text": "b"}])


def test_passages_without_text_are_told(options: Any) -> None:
    from hybrid.integrations.collection import Collection

    collection = Collection(None, "bm25", options)
    with pytest.warns(UserWarning, match="1 of 2 records were skipped"):
        collection.hold([{"id": "a b", "text": ""}, {"id": "c d", "text": "moon"}])
    assert list(collection.scores({"q": "moon"}, 10)["q"]) == ["c d"]
