"""A summary of a text: title, length, and the sentences that say most. Pure, and the same every time."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

__all__ = ["KEY_SENTENCES", "Summary", "broken_links", "reading_minutes", "shortened_sentence", "summarise"]

WORDS_PER_MINUTE = 230
KEY_SENTENCES = 3
TITLE_LENGTH = 100
SENTENCE_LENGTH = 400

_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "about above after again against also because been before being below between both could does "
        "doing down during each every from further have having here hers herself himself into itself "
        "just like made make many more most much must nothing once only other ourselves over own same "
        "shall should some such than that their theirs them themselves then there these they this those "
        "through under until upon very want were what when where which while whom whose will with "
        "without would your yours yourself ",
    )
)

# Ideographs and kana are written without spaces; each of them counts as a word, as word processors do.
_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+(?:['’.-][^\W_{_UNSPACED}]+)*")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,}).*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TAG = re.compile(r"</?[A-Za-z][^<>\n]*>")
_LINK = re.compile(r"!?\[([^\[\]\n]*)\](?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\[[^\[\]\n]*\])")
_DEFINITION = re.compile(r"^[ ]{0,3}\[[^\]\n]+\]:[ \t]*(?P<target><[^>\n]*>|\S+).*$", re.MULTILINE)
_TARGET = re.compile(
    r"!?\[[^\[\]\n]*\]\(\s*(?P<target><[^>\n]*>|[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+[^()\n]*)?\)"
)
_CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_HEADING = re.compile(r"^[ ]{0,3}#{1,6}(?:[ \t]+(?P<title>.*?))?[ \t]*#*[ \t]*$")
_UNDERLINE = re.compile(r"^[ ]{0,3}(=+|-+|~+|\*+|\^+)[ \t]*$")
_ITEM = re.compile(r"^[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+")
# After a full stop, and marks that close, comes a new line, or white space and what may begin a sentence.
# Look-behinds have one width each; an ideographic full stop needs nothing after it.
_CLOSING = r"[\"'”’)\]*_`]"
_STOPPED = rf"(?:(?<=[.!?…])|(?<=[.!?…]{_CLOSING})|(?<=[.!?…]{_CLOSING}{{2}}))"
_BEGINNING = r"[\"'“‘(\[*_`]*[^\W_a-zß-öø-ÿ]"
_SENTENCE_END = re.compile(rf"{_STOPPED}(?:[ ]*\n\s*|\s+(?={_BEGINNING}))|(?<=[。！？])")
_CODE = re.compile(r"(`+)(?P<code>[^`]+)\1|\*+|`+|(?<!\w)_+(?=\w)|(?<=\w)_+(?!\w)|~~")


@dataclass(frozen=True)
class Summary:
    """What can be said about a text without understanding it.

    Attributes:
        title: The first heading, or else the first line; empty for a text without words.
        words: How many words its prose has; code blocks are not prose.
        minutes: Time to read it, rounded up.
        sentences: The sentences that use the text's most frequent words, in the order of the text.
    """

    title: str
    words: int
    minutes: int
    sentences: tuple[str, ...]


def summarise(text: str) -> Summary:
    """Return the summary of a Markdown or plain text. The same text always gives the same summary."""
    headings, paragraphs = _structure(_prose(text))
    words = sum(len(_WORD.findall(part)) for part in [*headings, *paragraphs])
    first = next(iter(headings or [_plain(one.split("\n")[0]) for one in paragraphs[:1]]), "")
    return Summary(
        title=_shortened(first, TITLE_LENGTH),
        words=words,
        minutes=reading_minutes(words),
        sentences=_key_sentences([one for paragraph in paragraphs for one in _sentences(paragraph)]),
    )


def shortened_sentence(line: str) -> str:
    """Return a line that somebody else chose as a sentence of a summary: without controls, and not too long."""
    return _shortened(" ".join(_CONTROL.sub("", line).split()), SENTENCE_LENGTH)


def reading_minutes(words: int) -> int:
    """Return how long it takes to read that many words, rounded up."""
    return -(-words // WORDS_PER_MINUTE)


def broken_links(text: str, exists: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the relative link targets of a Markdown text that lead nowhere, each once, in order.

    Args:
        text: The Markdown; links inside code are not links.
        exists: Says whether a decoded relative path, seen from the document, exists.
    """
    bare = _CODE_SPAN.sub("", _without_blocks(text))
    found = sorted([*_TARGET.finditer(bare), *_DEFINITION.finditer(bare)], key=lambda match: match.start())
    targets = dict.fromkeys(match["target"].strip("<>") for match in found)
    return tuple(target for target in targets if (path := _relative_path(target)) and not exists(path))


def _relative_path(target: str) -> str:
    """Return the path a link names in the same tree; empty when it leads elsewhere."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return ""
    if parts.scheme or parts.netloc or parts.path.startswith("/"):
        return ""
    return unquote(parts.path, errors="surrogateescape")


def _without_blocks(text: str) -> str:
    unified = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _COMMENT.sub("", _FENCE.sub("", _FRONT_MATTER.sub("", unified)))


def _prose(text: str) -> str:
    """Return the text as it reads, without the marks of Markdown."""
    bare = _DEFINITION.sub("", _without_blocks(text))
    for _ in range(2):  # an image may stand inside a link
        bare = _LINK.sub(r"\1", bare)
    return _TAG.sub("", bare)


def _structure(prose: str) -> tuple[list[str], list[str]]:
    """Split prose into its headings and its paragraphs; an item of a list is a paragraph."""
    headings: list[str] = []
    paragraphs: list[str] = []
    gathered: list[str] = []

    def close() -> None:
        if gathered:
            paragraphs.append("\n".join(gathered).strip())
            gathered.clear()

    for line in prose.split("\n"):
        if (heading := _HEADING.match(line)) is not None:
            close()
            headings.append(_plain(heading["title"] or ""))
        elif _UNDERLINE.match(line):
            # Under one line it makes that line a heading; elsewhere it is a rule.
            if len(gathered) == 1 and not _ITEM.match(line):
                headings.append(_plain(gathered.pop()))
            close()
        elif not line.strip():
            close()
        elif (item := _ITEM.match(line)) is not None:
            close()
            gathered.append(line[item.end() :])
        elif line.lstrip().startswith("|"):
            close()  # a row of a table holds words and no sentences
            paragraphs.append(line.replace("|", " ").strip())
        else:
            gathered.append(line.lstrip(" \t>"))
    close()
    return [one for one in headings if one], [one for one in paragraphs if one]


def _plain(text: str) -> str:
    """Take out the marks of emphasis and code, and make white space single; code stays as it is."""
    return " ".join(_CODE.sub(lambda match: match["code"] or "", text).split())


def _sentences(paragraph: str) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(paragraph):
        if plain := _plain(sentence):
            yield plain


def _key_sentences(sentences: Sequence[str]) -> tuple[str, ...]:
    """Choose by term frequency: how often the text uses the words that a sentence uses."""
    terms = [_terms(sentence) for sentence in sentences]
    frequency = Counter(term for found in terms for term in found)

    def score(index: int) -> float:
        distinct = set(terms[index])
        # Divided by a root, or else only the longest would win, or only the shortest.
        return sum(frequency[term] for term in distinct) / math.sqrt(len(distinct) + 3)

    whole = [index for index in range(len(sentences)) if len(_WORD.findall(sentences[index])) >= 4]
    best = sorted(whole, key=lambda index: (-score(index), index))
    chosen: dict[str, int] = {}
    for index in best:
        chosen.setdefault(sentences[index], index)
        if len(chosen) == KEY_SENTENCES:
            break
    return tuple(_shortened(sentences[index], SENTENCE_LENGTH) for index in sorted(chosen.values()))


def _terms(sentence: str) -> list[str]:
    words = (word.casefold() for word in _WORD.findall(sentence))
    return [word for word in words if (len(word) > 3 or not word.isascii()) and word not in _STOP_WORDS]


def _shortened(line: str, length: int) -> str:
    if len(line) <= length:
        return line
    words = line[:length].rpartition(" ")[0] or line[: length - 1]
    return words.rstrip(" ,;:") + "…"
