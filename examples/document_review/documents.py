"""The documents of a folder: which files they are, under which names, and what is in them.

A name is text that any store can keep. Most names are the path as it is; what would not survive
(bytes that are no UTF-8, control characters) is written as `%` and two hexadecimal digits, and so
is `%` itself, so that `to_path` always leads back.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from summarise import Summary, broken_links, summarise

__all__ = ["Examined", "Found", "NotReadableError", "examine", "find", "read", "to_name", "to_path"]

SUFFIXES = frozenset({".md", ".markdown", ".mdx", ".txt", ".text", ".rst", ".adoc", ".org"})
BARE_NAMES = frozenset(
    {"readme", "license", "licence", "copying", "changelog", "contributing", "authors", "notice"}
)
SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "dist", "build"})
MARKDOWN = frozenset({".md", ".markdown", ".mdx"})
LIMIT = 4_000_000
"""How many bytes of one document are read."""

_UNSAFE = re.compile("[%\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")


class NotReadableError(Exception):
    """A document that cannot be reviewed; the text says why, in words for a report."""


@dataclass(frozen=True)
class Found:
    """What a search found: documents by name in order, and folders that could not be opened.

    Attributes:
        others: How many files were left out, because they are no documents.
    """

    root: str
    documents: tuple[str, ...]
    closed_folders: tuple[str, ...] = ()
    others: int = 0


@dataclass(frozen=True)
class Examined:
    """One document's summary and its text, or the reason why there is none."""

    summary: Summary | None
    broken_links: tuple[str, ...] = ()
    problem: str | None = None
    text: str = ""


def to_name(path: str | os.PathLike[str]) -> str:
    """Return the name of a path, which is legal text on one line."""
    return _UNSAFE.sub(
        lambda match: "".join(f"%{byte:02X}" for byte in os.fsencode(match[0])), os.fspath(path)
    )


def to_path(name: str) -> Path:
    """Return the path a name was made of."""
    return Path(os.fsdecode(unquote_to_bytes(name)))


def find(places: Sequence[Path]) -> Found:
    """Find the documents in folders, nested ones too; a place that is a file is one.

    A place that is a link is what it leads to. Below it, links to folders are not followed, and hidden
    folders and those of tools are left out.

    Raises:
        NotReadableError: A place does not exist or cannot be opened.
    """
    for place in places:
        _check_place(place)
    real = [Path(os.path.realpath(place)) for place in places]
    root = Path(os.path.commonpath([place if place.is_dir() else place.parent for place in real]))
    documents: set[str] = set()
    others: set[str] = set()
    closed: set[str] = set()
    for place in real:
        if place.is_dir():
            _walk(root, place, documents, others, closed)
        else:
            documents.add(to_name(place.relative_to(root)))
    left_out = len(others - documents)
    return Found(to_name(root), tuple(sorted(documents)), tuple(sorted(closed)), left_out)


def _check_place(place: Path) -> None:
    try:
        if place.is_dir():
            with os.scandir(place):
                return
        place.stat()
    except OSError as error:
        raise NotReadableError(f"{to_name(place)}: {error.strerror}") from error


def _walk(root: Path, place: Path, documents: set[str], others: set[str], closed: set[str]) -> None:
    def cannot_open(error: OSError) -> None:
        closed.add(to_name(Path(os.fsdecode(error.filename)).relative_to(root)))

    for folder, folders, files in os.walk(place, onerror=cannot_open):
        folders[:] = [
            name for name in folders if not name.startswith(".") and name.lower() not in SKIPPED_FOLDERS
        ]
        for name in files:
            path = Path(folder, name)
            found = _is_document(name) and (path.is_file() or path.is_symlink())
            (documents if found else others).add(to_name(path.relative_to(root)))


def _is_document(name: str) -> bool:
    stem, suffix = os.path.splitext(name)
    return suffix.lower() in SUFFIXES or (not suffix and stem.lower() in BARE_NAMES)


def read(path: Path) -> str:
    """Return the text of a document, whatever encoding it is in.

    Raises:
        NotReadableError: The system refuses it, or what is in it is no text.
    """
    try:
        # Without O_NONBLOCK, opening a pipe that was given a document's name would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotReadableError("is no regular file")
            data = file.read(LIMIT)
    except OSError as error:
        raise NotReadableError(f"cannot be read: {error.strerror}") from error
    return _text(data)


def _text(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data:
        raise NotReadableError("is binary, not text")
    try:
        # The limit may have cut a character in two; the decoder then holds its beginning back.
        return codecs.getincrementaldecoder("utf-8-sig")().decode(data)
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")
    strange = sum(not (char.isprintable() or char.isspace()) or char == "\ufffd" for char in text)
    if strange * 20 > len(text):
        raise NotReadableError("is binary, not text")
    return text


def examine(root: str, name: str) -> Examined:
    """Read one document and summarise it; a problem is part of the answer, never an error."""
    path = to_path(root) / to_path(name)
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(to_path(root))):
        return Examined(None, problem="leads out of the folder")  # a link to what nobody asked to review
    try:
        text = read(path)
    except NotReadableError as error:
        return Examined(None, problem=str(error))
    if not text.strip():
        return Examined(None, problem="is empty")
    broken: tuple[str, ...] = ()
    if path.suffix.lower() in MARKDOWN:
        broken = broken_links(text, lambda target: _exists(path.parent, target))
    return Examined(summarise(text), broken, text=text)


def _exists(folder: Path, target: str) -> bool:
    try:
        return (folder / target).exists()
    except (OSError, ValueError):  # too long for a path, or a NUL in it
        return False
