"""Review the documents of a folder, with a kill in the middle and a person at the end.

    python examples/document_review [--docs PLACE …] [--yes]

Exit codes: 0 when everything the play claims was checked and is true, 1 when something is not, 2 when
it cannot begin.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
from datetime import datetime
from pathlib import Path

try:
    from terminal import Terminal
except ModuleNotFoundError as missing:
    print(
        f"The play needs {missing.name}: run make demo, or pip install 'branchpoint[demo]'.", file=sys.stderr
    )
    sys.exit(2)
from counting import counted
from documents import Found, NotReadableError, find, to_name
from place import Place
from play import Play, PlayError
from summariser import MissingError, described, summariser

PROJECT = Path(__file__).resolve().parents[2]


class CannotBeginError(Exception):
    """The play cannot begin; holds what is wrong, and what to do."""

    def __init__(self, wrong: str, advice: str) -> None:
        super().__init__(wrong)
        self.wrong = wrong
        self.advice = advice


def main(arguments: list[str]) -> int:
    """Perform the play; returns the exit code."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows no ticks still shows the rest
    terminal = Terminal()
    try:
        found = _found(places := options.docs or _own_documents())
        _expect_a_person(options)
        _expect_a_summariser()
        place = _new_place(options.store)
    except CannotBeginError as error:
        terminal.trouble(error.wrong)
        terminal.say(error.advice)
        return 2
    others = f", {counted(found.others, 'other file')} left out," if found.others else ""
    terminal.say(f"{counted(len(found.documents), 'document')}{others} under {found.root}")
    terminal.say(described())
    play = Play(
        terminal,
        place,
        found,
        places,
        batch_size=options.batch,
        pace=options.pace,
        unattended=options.yes,
    )
    try:
        return 0 if play.perform() else 1
    except PlayError as error:
        terminal.trouble(str(error))
    except KeyboardInterrupt:
        terminal.trouble("Interrupted.")
        terminal.say(f"What was committed is kept; to go on from there:\n{place.command('resume')}")
    return 1


def _expect_a_person(options: argparse.Namespace) -> None:
    if not options.yes and not sys.stdin.isatty():
        raise CannotBeginError(
            "A person is asked before the report is published, and there is no terminal to ask at.",
            "Run it in a terminal, or let it answer by itself: --yes, or make demo ARGS=--yes",
        )


def _expect_a_summariser() -> None:
    try:
        summariser()
    except MissingError as error:
        raise CannotBeginError(
            f"The model cannot be asked: {error}.", "Set what is missing, or leave DEMO_MODEL out."
        ) from error


def _own_documents() -> list[Path]:
    """Return the project's own documents: the folder of its docs, and what lies beside its README."""
    return [place for place in (PROJECT / "docs", *sorted(PROJECT.glob("*.md"))) if place.exists()]


def _found(places: list[Path]) -> Found:
    try:
        found = find(places)
    except NotReadableError as error:
        raise CannotBeginError(
            f"These documents cannot be reviewed: {error}", "Choose: --docs FOLDER"
        ) from error
    if not found.documents:
        closed = [f"{folder} could not be opened." for folder in found.closed_folders]
        raise CannotBeginError(
            f"There are no documents in {', '.join(map(to_name, places))}.",
            " ".join(
                [
                    *closed,
                    "Text and Markdown files count (.md .txt .rst .adoc .org, README); hidden folders do not.",
                ]
            ),
        )
    return found


def _new_place(store: Path | None) -> Place:
    """Make a folder for this play alone, in the store or in the system's place for temporary files."""
    try:
        if store is None:
            return Place(Path(tempfile.mkdtemp(prefix="branchpoint-demo-")))
        store.mkdir(parents=True, exist_ok=True)
        now = datetime.now().astimezone()
        return Place(Path(tempfile.mkdtemp(prefix=f"{now:%Y-%m-%d-%H%M%S}-", dir=store)))
    except OSError as error:
        where = to_name(store or tempfile.gettempdir())
        raise CannotBeginError(
            f"Nothing can be kept in {where}: {error.strerror}", "Choose another folder: --store FOLDER"
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="document_review",
        description="Review documents, be killed in the middle, go on in another process, and ask a person.",
    )
    parser.add_argument(
        "--docs",
        type=_path,
        nargs="+",
        metavar="PLACE",
        help="folders or files; by default the project's own",
    )
    parser.add_argument("--store", type=_path, help="where to keep the checkpoint and the report")
    parser.add_argument("--batch", type=_at_least_one, default=4, help="documents in a batch (4)")
    parser.add_argument(
        "--pace", type=float, default=0.1, help="seconds a reviewer takes for a document (0.1)"
    )
    parser.add_argument(
        "--yes", action="store_true", help="answer the question by itself, for unattended runs"
    )
    return parser


def _path(text: str) -> Path:
    """Return the place a person means; `make` and quotes keep the shell from reading the `~`."""
    return Path(os.path.abspath(os.path.expanduser(text)))


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("a batch holds at least one document")
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
