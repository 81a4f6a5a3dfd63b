"""The report: how it is written, and how it is published once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from counting import counted
from messages import Question, Review

__all__ = ["publish", "rejection", "report"]


def report(question: Question, reviews: Iterable[Review]) -> str:
    """Return the report as Markdown; a pure function, so that writing it again gives the same text."""
    ordered = sorted(reviews, key=lambda review: review.document)
    sections = (line for review in ordered for line in _section(review))
    return "\n".join([*_overview(question), *_problems(question, ordered), *sections])


def rejection(question: Question) -> str:
    """Return the note that takes the report's place when it was rejected."""
    lines = ["# Review rejected", "", f"The report on {_code(question.root)} was not approved."]
    lines.append(f"It had {counted(question.documents, 'document')}; nothing of it was published.")
    return "\n".join([*lines, ""])


def publish(folder: Path, kind: str, key: str, text: str) -> tuple[str, bool]:
    """Write a text to a file whose name comes from `key`, unless it is there already.

    Recovery is at least once, so a handler may come here twice for one delivery; the key is then the
    same, and the second time writes nothing. A file is there as a whole or not at all.

    Returns:
        The file's name, and whether it was written now.
    """
    name = f"{kind}-{key}.md"
    path = folder / name
    if path.exists():
        return name, False
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{name}.{os.getpid()}"
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
    return name, True


def _overview(question: Question) -> Iterator[str]:
    yield f"# Review of {_code(question.root)}"
    yield ""
    size = (counted(question.documents, "document"), counted(question.words, "word"))
    yield f"{', '.join(size)}, {counted(question.minutes, 'minute')} to read."
    yield ""


def _problems(question: Question, reviews: Iterable[Review]) -> Iterator[str]:
    unread = [f"{_code(review.document)} {review.problem}" for review in reviews if review.problem]
    unread += [f"{_code(folder)} cannot be opened" for folder in question.closed_folders]
    if unread:
        yield from ("## Could not be reviewed", "")
        yield from (f"- {entry}" for entry in unread)
        yield ""


def _section(review: Review) -> Iterator[str]:
    summary = review.summary
    if summary is None:
        return
    yield f"## {_code(review.document)}"
    yield ""
    if summary.title:
        yield f"**{_escaped(summary.title)}**"
        yield ""
    yield f"{counted(summary.words, 'word')}, {counted(summary.minutes, 'minute')} to read."
    if summary.sentences:
        yield ""
        yield from (f"- {_escaped(sentence)}" for sentence in summary.sentences)
    if review.broken_links:
        yield ""
        yield "Links that lead nowhere: " + ", ".join(_code(target) for target in review.broken_links)
    yield ""


def _escaped(text: str) -> str:
    # An underscore inside a word marks nothing.
    return re.sub(r"([\\`*\[\]<>#|~]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", text)


def _code(text: str) -> str:
    """Return a code span, whatever backticks are in it."""
    marks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{marks} {text} {marks}" if "`" in text else f"{marks}{text}{marks}"
