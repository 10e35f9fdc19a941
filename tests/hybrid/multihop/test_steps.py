"""Chains as files: those that ship, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybrid.multihop.steps import CHAINS, Step, ordered, read_chain
from sparta.base.errors import InputError

SEARCH = '[[step]]\nname = "search"\nskill = "retrieve"\n'
BEST = '[[step]]\nname = "best"\nskill = "rerank"\nafter = ["search"]\n'
LINK = '[[step]]\nname = "names"\nskill = "link"\nby = "titles"\n'
MORE = '[[step]]\nname = "from-best"\nskill = "expand"\nafter = ["best"]\n'
LAST = '[[step]]\nname = "last"\nskill = "rerank"\nafter = ["from-best", "from-other"]\n'


@pytest.mark.parametrize("name", CHAINS)
def test_chains_that_ship(name: str) -> None:
    steps = read_chain(name)
    assert steps[-1].skill == ("read" if name == "hop-read" else "rerank")
    places = {step.name: i for i, step in enumerate(steps)}
    assert all(places[before] < places[step.name] for step in steps for before in step.after)


def test_the_numbers_of_the_released_code() -> None:
    """Two hops: 200 and 5 for each entity, keep 30; 50 and 2 for each entity; β 1.5 and 1, α 1.06."""
    steps = {step.name: step for step in read_chain("hotpot")}
    assert [steps[n].depth for n in ("search", "links", "expand", "links-of-first")] == [200, 5, 50, 2]
    assert (steps["first"].keep, steps["first"].weight, steps["first"].promote) == (30, 1.5, 1.0)
    assert (steps["second"].weight, steps["second"].promote) == (1.0, 1.06)


def test_the_numbers_of_the_chain_of_one_hop() -> None:
    """Configuration A: 1,000 passages, 1,000 for each entity, 1,000 reranked with β 0.5, 100 kept."""
    steps = {step.name: step for step in read_chain("single")}
    assert [steps[name].depth for name in ("search", "links")] == [1000, 1000]
    best = steps["best"]
    assert (best.candidates, best.keep, best.weight, best.promote) == (1000, 100, 0.5, 1.0)


def test_steps_may_stand_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(BEST + SEARCH + 'channel = "bm25"\ndepth = 7\n')
    assert read_chain(path) == [
        Step("search", "retrieve", channel="bm25", depth=7),
        Step("best", "rerank", ("search",)),
    ]


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (SEARCH + BEST.replace("rerank", "think"), "unknown skill 'think'"),
        (SEARCH + BEST.replace('"search"]', '"nothing"]'), "'nothing'"),
        (SEARCH, "search"),
        (SEARCH + SEARCH + BEST, "['search', 'search', 'best']"),
        (SEARCH + "depth = 0\n" + BEST, "`depth` of step 'search'"),
        (SEARCH + BEST + "candidates = 0\n", "candidates"),
        (SEARCH + BEST + "weight = -1\n", "weight"),
        (SEARCH + BEST + "colour = 3\n", "'colour'"),
        (SEARCH + BEST + "wieght = 3\n", "→ write weight"),
        (SEARCH + 'depth = "5"\n' + BEST, "'5'"),
        ("[[step]]\n" + BEST, "needs `name` and `skill`"),
        (SEARCH + BEST + "after = 3\n", "TOML"),
        (SEARCH + BEST.replace('["search"]', "3"), "`after` must be a list of step names, found 3"),
        (SEARCH + BEST.replace('["search"]', "[]"), "1 to 9 steps"),
        (SEARCH + BEST + 'by = "magic"\n', "model or terms, found 'magic'"),
        (SEARCH + 'by = "titles"\n' + BEST, "model, found 'titles'"),
        (SEARCH + "filter = 3\n" + BEST, "`filter` of step 'search'"),
        (SEARCH + "evidence = 0\n" + BEST, "`evidence` of step 'search'"),
        (SEARCH + 'after = ["best"]\n' + BEST, "'search' (retrieve) must name 0 steps, found 1"),
        (
            SEARCH + BEST + MORE.replace('["best"]', '["best", "search"]'),
            "'from-best' (expand) must name 1 steps, found 2",
        ),
        (SEARCH + BEST + "depth = 5\n", "setting depth"),
        (SEARCH + BEST + 'channel = "bm25"\n', "setting channel"),
        (SEARCH + "keep = 5\n" + BEST, "setting keep"),
        (SEARCH + BEST + MORE + 'by = "title"\npromote = 2\n' + LAST, "'from-best' (expand by title)"),
        (SEARCH + LINK + 'filter = "a=b"\n' + BEST, "setting filter"),
        (SEARCH + 'filter = "lang"\n' + BEST, "FIELD=VALUE, found 'lang'"),
        (SEARCH.replace('"retrieve"', '["retrieve"]') + BEST, "unknown skill ['retrieve']"),
        (SEARCH.replace('"retrieve"', "{a = 1}") + BEST, "unknown skill {'a': 1}"),
        (SEARCH.replace('"search"', '""') + BEST, "the name of a step must be one line of text, found ''"),
        (SEARCH.replace('"search"', "1") + BEST, "the name of a step must be one line of text, found 1"),
        ("step = [1, 2]\n", "found 1"),
        (SEARCH + "weight = nan\n" + BEST, "found nan"),
        (SEARCH + BEST + BEST.replace("best", "other"), "best, other"),
        (SEARCH + BEST + MORE, "found from-best"),
        ("nothing here", "TOML"),
        ("", "[[step]]"),
        (
            BEST.replace("search", "expand")
            + '[[step]]\nname = "expand"\nskill = "expand"\nafter = ["best"]\n',
            "best → expand → best",
        ),
        (SEARCH + BEST + '[[step]]\nname = "more"\nskill = "rerank"\nafter = ["best"]\n', "'best' (rerank)"),
        (
            SEARCH + BEST + BEST.replace("best", "other") + MORE + MORE.replace("best", "other") + LAST,
            "'last' must come from one rerank, found best and other",
        ),
    ],
)
def test_refusals(text: str, fact: str, tmp_path: Path) -> None:
    path = tmp_path / "chain.toml"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_chain(path)
    message = " ".join(str(raised.value).split())
    assert fact in message
    assert "chain.toml" in message


def test_a_step_refuses_settings_that_it_does_not_use() -> None:
    with pytest.raises(InputError, match=r"'best' \(rerank by model\) does not use the setting depth"):
        Step("best", "rerank", ("search",), depth=5)
    with pytest.raises(InputError, match=r"'more' \(expand by model\) does not use the setting channel"):
        Step("more", "expand", ("best",), channel="bm25")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "chain.toml"
    path.write_bytes(b"\xef\xbb\xbf" + (SEARCH + BEST).replace("\n", "\r\n").encode())
    assert [step.name for step in read_chain(path)] == ["search", "best"]
    path.write_bytes("# caf\u00e9\n".encode("latin-1") + (SEARCH + BEST).encode())
    with pytest.raises(InputError, match=r"chain\.toml: .*TOML"):
        read_chain(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.toml[\s\S]*hop, hop-read, hotpot, named"):
        read_chain(tmp_path / "nowhere.toml")
    with pytest.raises(InputError, match="steps"):
        ordered([])
