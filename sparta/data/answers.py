"""Where a text holds an answer, as DPR decides it, and whether two answers agree, as SQuAD does."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain

import regex

from sparta.base.errors import InputError
from sparta.base.normal_form import normal_form
from sparta.data.languages import Language, language_of

_FLAGS = regex.IGNORECASE | regex.UNICODE | regex.MULTILINE
LABELS = frozenset(("yes", "no", "supports", "refutes"))
"""Answers that a question asks to choose from: a text holds such words by chance."""
LONGEST_MATCHING = 10.0
"""Seconds after which a regular expression is given up in a text."""


def _tokens_of(language: Language) -> regex.Pattern[str]:
    return _token(language.alone + language.unspaced)


@lru_cache
def _token(alone: str) -> regex.Pattern[str]:
    return regex.compile(rf"(?V1)[{alone}]\p{{M}}*|[\p{{L}}\p{{N}}\p{{M}}--[{alone}]]+|[^\p{{Z}}\p{{C}}]")


def tokens(text: str, language: str = "en") -> list[str]:
    """Letters, digits and marks together, other visible characters alone; decomposed and lower-cased.

    Characters that are words by themselves, as in Chinese, are alone too. Scripts are one, where the language
    folds them.
    """
    own = language_of(language)
    folded = own.fold(text)
    return [t.lower() for t in _tokens_of(own).findall(normal_form("NFD", folded))]


def _tokens_in_place(text: str, language: Language) -> tuple[list[str], list[tuple[int, int]]]:
    """Return the tokens of a text and the characters of the text itself that each one covers."""
    decomposed, places = _decomposed(language.fold(text))
    found = list(_tokens_of(language).finditer(decomposed))
    spans = [(places[m.start()][0], places[m.end() - 1][1]) for m in found]
    return [m[0].lower() for m in found], spans


def _decomposed(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text in NFD, and which characters of the text each of its characters comes from.

    A character and the marks on it are decomposed together: NFD puts marks into one order.
    """
    if text.isascii():
        return text, [(place, place + 1) for place in range(len(text))]
    parts, places, start = [], [], 0
    for end in range(1, len(text) + 1):
        if end < len(text) and unicodedata.combining(text[end]):
            continue
        part = normal_form("NFD", text[start:end])
        parts.append(part)
        places += [(start, end)] * len(part)
        start = end
    return "".join(parts), places


def answer_spans(
    text: str, answers: Sequence[str], *, match: str = "string", language: str = "en"
) -> list[tuple[int, int]]:
    """Where answers stand in a text: `(start, before end)` in characters, in order, each span once.

    An answer is found where its tokens stand side by side (DPR). One that is found nowhere is looked for
    without the articles and the punctuation that the measure of its language does not count. `match` is as in
    `has_answer`.
    """
    if match == "regex":
        decomposed, whence = _decomposed(text)
        matches = (m for answer in answers for m in _matches(answer, decomposed) if m[0].strip())
        return sorted({(whence[m.start()][0], whence[m.end() - 1][1]) for m in matches})
    own = language_of(language)
    words, places = _tokens_in_place(text, own)
    counted = [i for i, word in enumerate(words) if _counts(word, own)]
    spans: set[tuple[int, int]] = set()
    for answer in answers:
        wanted = tokens(answer, language)
        found = _runs(words, wanted)
        if not found:
            wanted = [word for word in wanted if _counts(word, own)]
            found = [(counted[a], counted[b]) for a, b in _runs([words[i] for i in counted], wanted)]
        spans.update((places[a][0], places[b][1]) for a, b in found)
    return sorted(spans)


def _runs(words: list[str], wanted: list[str]) -> list[tuple[int, int]]:
    """Return the first and last place of each stretch of `words` that equals `wanted`, in linear time (Knuth,
    Morris and Pratt, 1977).
    """
    n = len(wanted)
    if not n or wanted[0] not in words:
        return []
    restarts, matched = [0] * n, 0  # how many words at the beginning still match after a mismatch at a place
    for i in range(1, n):
        while matched and wanted[i] != wanted[matched]:
            matched = restarts[matched - 1]
        matched += wanted[i] == wanted[matched]
        restarts[i] = matched
    ends, matched = [], 0
    for i, word in enumerate(words):
        while matched and (matched == n or word != wanted[matched]):
            matched = restarts[matched - 1]
        matched += word == wanted[matched]
        if matched == n:
            ends.append(i)
    return [(end - n + 1, end) for end in ends]


def _counts(word: str, language: Language) -> bool:
    return word not in language.articles and not all(map(language.punctuation, word))


def normalized(answer: str, language: str = "en") -> str:
    """An answer in lower case without punctuation, articles and extra space (SQuAD's evaluation); composed
    characters (NFC), so that accents agree however they are written, and one script. In Chinese, space in an
    answer stays (CMRC 2018).
    """
    own = language_of(language)
    composed = normal_form("NFC", own.fold(answer)).lower()
    bare = "".join(c for c in composed.strip() if not own.punctuation(c))
    if own.in_order:
        return bare  # CMRC's script compares the space in an answer too
    return " ".join((_article(own.articles).sub(" ", bare) if own.articles else bare).split())


@lru_cache
def _article(articles: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(sorted(articles))})\b")


def exact_match(answer: str, expected: Sequence[str], *, match: str = "string", language: str = "en") -> bool:
    """Whether an answer is one of those expected (SQuAD's EM); of a `regex`, whether it begins with a match.

    So DrQA's evaluation has it (Chen et al., 2017): many patterns of CuratedTREC are beginnings of words.
    """
    if match == "regex":
        return any(_searched(pattern, answer.strip(), regex.match) for pattern in expected)
    return any(normalized(answer, language) == normalized(one, language) for one in expected)


def token_f1(answer: str, expected: Sequence[str], *, language: str = "en") -> float:
    """The best F1 of an answer and one of those expected, over the words they share (SQuAD's F1).

    In Chinese, over the longest stretch of characters and words that stands in both (CMRC 2018).
    """
    shared = _longest_stretch if language_of(language).in_order else _in_both
    found = _parts(answer, language)
    return max((_f1(shared, found, _parts(one, language)) for one in expected), default=0.0)


def _parts(answer: str, language: str) -> list[str]:
    """Return what F1 counts: the words of an answer, or CMRC's segments where characters are words."""
    bare = normalized(answer, language)
    return segments(bare) if language_of(language).in_order else bare.split()


def _f1(
    shared: Callable[[Sequence[str], Sequence[str]], int], found: Sequence[str], wanted: Sequence[str]
) -> float:
    if not found or not wanted:
        return float(found == wanted)
    return 2 * shared(found, wanted) / (len(found) + len(wanted))


def _in_both(one: Sequence[str], other: Sequence[str]) -> int:
    return (Counter(one) & Counter(other)).total()


def _longest_stretch(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest stretch in both, in linear time: a suffix automaton reads the other
    (Blumer et al., 1985).
    """
    following, links, lengths, last = [dict[str, int]()], [-1], [0], 0
    for word in one:
        state, new = last, len(following)
        following.append({})
        lengths.append(lengths[last] + 1)
        links.append(0)
        last = new
        while state >= 0 and word not in following[state]:
            following[state][word] = new
            state = links[state]
        if state < 0:
            continue
        target = following[state][word]
        if lengths[target] > lengths[state] + 1:  # longer stretches end there: a copy takes the shorter ones
            copy = len(following)
            following.append(dict(following[target]))
            lengths.append(lengths[state] + 1)
            links.append(links[target])
            links[target] = copy
            while state >= 0 and following[state].get(word) == target:
                following[state][word] = copy
                state = links[state]
            target = copy
        links[new] = target
    return _longest_read(following, links, lengths, other)


def _longest_read(
    following: list[dict[str, int]], links: list[int], lengths: list[int], words: Sequence[str]
) -> int:
    """Return the length of the longest stretch of `words` that a suffix automaton knows."""
    state = matched = longest = 0
    for word in words:
        while state and word not in following[state]:
            state = links[state]
            matched = lengths[state]
        if word in following[state]:
            state, matched = following[state][word], matched + 1
        longest = max(longest, matched)
    return longest


def has_answer(text: str, answers: Sequence[str], *, match: str = "string", language: str = "en") -> bool:
    """Whether the text holds one of the answers.

    :param match: `string`: the tokens of an answer stand side by side in the text; `regex`: an answer is a
        regular expression (CuratedTREC), searched without regard to case; one that is broken matches nothing.
    """
    if match == "regex":
        return any(_searched(answer, text) for answer in answers)
    return holds(token_line(text, language), answers, language)


def holds(line: str, answers: Iterable[str], language: str = "en") -> bool:
    """Return whether a text holds one of the answers; `line` is the text's `token_line`."""
    lines = (_answer_line(answer, language) for answer in answers)
    return any(answer.strip() and answer in line for answer in lines)


def token_line(text: str, language: str = "en") -> str:
    """Return the tokens of a text between spaces, for a text in which many answers are looked for."""
    return f" {' '.join(tokens(text, language))} "


@lru_cache(maxsize=1 << 14)
def _answer_line(answer: str, language: str) -> str:
    """Return an answer's `token_line`: an answer is looked for in many texts."""
    return token_line(answer, language)


def _matches(pattern: str, decomposed: str) -> list[regex.Match[str]]:
    with _in_time(pattern):
        wanted = normal_form("NFD", pattern)
        return list(regex.finditer(wanted, decomposed, _FLAGS, timeout=LONGEST_MATCHING))
    return []


def _searched(pattern: str, text: str, search: Callable[..., object] = regex.search) -> bool:
    decomposed = normal_form("NFD", pattern), normal_form("NFD", text)
    with _in_time(pattern):
        return search(*decomposed, _FLAGS, timeout=LONGEST_MATCHING) is not None
    return False


@contextmanager
def _in_time(pattern: str) -> Iterator[None]:
    """Pass over a broken pattern; refuse one whose matching does not end."""
    try:
        yield
    except regex.error:
        return
    except TimeoutError:
        raise InputError(
            f"expected a regular expression that is matched in {LONGEST_MATCHING:g} s, found one that is not:"
            f" {pattern!r}",
            remedy="write it without repetitions inside repetitions, or leave the question out",
        ) from None


_HAN = re.compile("([\u4e00-\u9fa5])")
_QUOTE = re.compile(r"\"|''")
_OPENING_QUOTES = re.compile(r"(?:^\"|(?<=[ (\[{<«“‘„])(?:\"|''))(?:\"|'')*")
_FULL_STOP = re.compile(r"(?<=[^.])\.(?=[\])}>\"'»”’\s]*$)")
_SINGLE_QUOTE = re.compile(r"(?<!\w)'(?!(?:re|ve|ll|[mtsdn])\b)(?=\w)|(?<=[^'\s])'(?!\S)")
_SHORTENED = re.compile(r"(?<=[^'\s])(?:'(?:ll|re|ve|[msd])|n't)(?!\S)")
_CONTRACTED = re.compile(
    r"\b(can(?=not\b)|d(?='ye\b)|gim(?=me\b)|gon(?=na\b)|got(?=ta\b)|lem(?=me\b)|wan(?=na\s))"
    r"(not|'ye|me|na|ta)"
)
_MARK = re.compile(r"\.{2,}|``|''|[;@#$%&?!*()\[\]{}<>«»“”‘’„\u2012-\u2015]|[,:](?!\d)")


def segments(text: str) -> list[str]:
    """Return the Chinese characters of an answer, and the words and marks between them, as CMRC 2018 does.

    Words are those of NLTK's tokenizer, which CMRC's script uses: `364.6` and `6,300` are one word each.
    The text is in lower case, without the punctuation that the script leaves out.
    """
    parts = _HAN.split(text)
    between = (part if at % 2 else _words(part) for at, part in enumerate(parts))
    return list(chain.from_iterable(between))


def _words(text: str) -> list[str]:
    """The words of a text without Chinese characters; marks are words, opening and closing quotes two."""
    text = _OPENING_QUOTES.sub(lambda quotes: " `` " * len(_QUOTE.findall(quotes[0])), text)
    text = _QUOTE.sub(" '' ", text)
    for pattern in (_FULL_STOP, _MARK, _SINGLE_QUOTE, _SHORTENED):
        text = pattern.sub(r" \g<0> ", text)
    return _CONTRACTED.sub(r" \1 \2 ", text).split()
