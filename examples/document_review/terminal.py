"""What the play looks like: headings, live bars, claims with their marks, and the tree of snapshots."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from claims import Claim, Row
from counting import counted
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.prompt import Confirm, InvalidResponse
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from branchpoint import Checkpoint, CheckpointSnapshot

__all__ = ["Bars", "Terminal", "YesOrNo", "question_lines"]

# Of a long row of equals only the ends are shown.
SHOWN_ROWS = 6
SHOWN_SNAPSHOTS = 6
SHOWN_NAME = 40
SHOWN_PROBLEMS = 8


class Bars:
    """Two live bars: documents that were examined, batches that are in storage."""

    def __init__(self, progress: Progress, documents: TaskID, batches: TaskID) -> None:
        self._progress = progress
        self._documents = documents
        self._batches = batches

    def examined(self, document: str, problem: str | None) -> None:
        """Show one more document, and what was wrong with it."""
        note = _shortened(document) if problem is None else f"{_shortened(document)} {problem}"
        self._progress.update(self._documents, advance=1, note=note)

    def saved(self, batches: int) -> None:
        """Show how many batches are in storage."""
        self._progress.update(self._batches, completed=batches)

    def in_the_middle_of(self, document: str) -> None:
        """Show which document was begun and is not done."""
        self._progress.update(self._documents, note=f"in the middle of {_shortened(document)}")


class YesOrNo(Confirm):
    """A question that takes yes, no, y or n, in small or large letters."""

    choices = ["yes", "no"]  # noqa: RUF012 - the base class declares it so

    def process_response(self, value: str) -> bool:
        """Read an answer, or ask again."""
        word = value.strip().lower()
        if word not in ("yes", "y", "no", "n"):
            raise InvalidResponse("Please answer yes or no.")
        return word.startswith("y")


class Terminal:
    """The screen. Texts are shown as they are: a file may be called `[red]`."""

    def __init__(self) -> None:
        # Into a file or a pipe, lines may be longer than a screen is wide.
        width = None if sys.stdout.isatty() else 120
        self.console = Console(markup=False, highlight=False, emoji=False, width=width)

    def heading(self, text: str) -> None:
        """Begin an act."""
        self.console.print()
        self.console.rule(Text(text, style="bold"), align="left")

    def say(self, text: str, style: str = "") -> None:
        """Print a sentence; it is never cut."""
        self.console.print(text, style=style, soft_wrap=True)

    def trouble(self, text: str) -> None:
        """Say why the play cannot go on."""
        self.say(text, style="bold red")

    def claims(self, claims: Sequence[Claim]) -> None:
        """Print claims with their marks."""
        for claim in claims:
            mark, style = ("✓", "green") if claim.holds else ("✗ NOT TRUE:", "bold red")
            self.console.print(Text.assemble((f"  {mark} ", style), claim.text), soft_wrap=True)

    @contextmanager
    def bars(self, *, documents: int, batches: int, done: int, saved: int) -> Iterator[Bars]:
        """Show live bars while the block runs."""
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False, style="dim"),
        )
        with Progress(*columns, console=self.console) as progress:
            yield Bars(
                progress,
                progress.add_task("documents examined", total=documents, completed=done, note=""),
                progress.add_task("batches in storage", total=batches, completed=saved, note=""),
            )

    def supersteps(self, rows: Sequence[Row]) -> None:
        """Show which process did which superstep."""
        table = Table(
            "superstep", "executors", "calls before the kill", "calls after", "", box=None, padding=(0, 2)
        )
        flight = next((index for index, row in enumerate(rows) if row.first and row.second), 0)
        for index, left_out in _with_gaps(_ends_and(flight, len(rows))):
            if left_out:
                table.add_row("…", f"{left_out} more", "", "", "")
            row = rows[index]
            again, style = ("done again", "yellow") if row.first and row.second else ("", "")
            cells = (
                str(row.superstep),
                _several(row.executors),
                str(len(row.first)),
                str(len(row.second)),
                again,
            )
            table.add_row(*(Text(cell) for cell in cells), style=style)
        self.console.print(table)

    def ask(self, title: str, lines: Sequence[str], question: str) -> bool:
        """Put a question to the person at the terminal.

        Raises:
            EOFError: Nobody is there.
        """
        self.show(title, lines)
        return YesOrNo.ask(question, console=self.console)

    def show(self, title: str, lines: Sequence[str]) -> None:
        """Show a few lines in a frame."""
        self.console.print(Panel(Text("\n".join(lines)), title=Text(title), title_align="left", expand=False))

    def tree(self, checkpoint: Checkpoint, notes: Mapping[str, str]) -> None:
        """Print every snapshot; where a snapshot has several children, each begins a branch."""
        children: dict[str | None, list[CheckpointSnapshot]] = {}
        for snapshot in checkpoint.snapshots:
            children.setdefault(snapshot.parent_snapshot_id, []).append(snapshot)
        columns = "  (id, boundary, supersteps so far, status, who ran)"
        top = Tree(Text.assemble((f"checkpoint {checkpoint.checkpoint_id}", "bold"), (columns, "dim")))
        open_branches = [(top, children[None])]
        while open_branches:
            node, begins = open_branches.pop()
            for begin in begins:
                # A branch alone needs no level of its own: 300 levels would not fit a screen.
                alone = len(begins) == 1
                place = node if alone else node.add(Text(notes.get(begin.snapshot_id, "a branch"), "yellow"))
                row = _straight(begin, children)
                self._add_row(place, row, checkpoint, notes if alone else {**notes, begin.snapshot_id: ""})
                if row[-1].snapshot_id in children:
                    open_branches.append((place, children[row[-1].snapshot_id]))
        self.console.print(top)

    def _add_row(
        self, place: Tree, row: Sequence[CheckpointSnapshot], checkpoint: Checkpoint, notes: Mapping[str, str]
    ) -> None:
        shown = [
            index
            for index, snapshot in enumerate(row)
            if index < SHOWN_SNAPSHOTS or index >= len(row) - SHOWN_SNAPSHOTS or snapshot.snapshot_id in notes
        ]
        for index, left_out in _with_gaps(shown):
            if left_out:
                place.add(Text(f"… {left_out} more", style="dim"))
            snapshot = row[index]
            place.add(_label(snapshot, checkpoint, notes.get(snapshot.snapshot_id, "")))


def question_lines(question: Mapping[str, Any]) -> list[str]:
    """Return what the person who is asked should know; takes the stored question as plain JSON."""
    size = (counted(question["documents"], "document"), counted(question["words"], "word"))
    closed = [f"{name}: cannot be opened" for name in question["closed_folders"]["v"]]
    problems = [*question["problems"]["v"], *closed]
    more = [f"  … {len(problems) - SHOWN_PROBLEMS} more"] if len(problems) > SHOWN_PROBLEMS else []
    return [
        f"{', '.join(size)}, {counted(question['minutes'], 'minute')} to read",
        f"links that lead nowhere: {question['broken_links']}",
        f"could not be reviewed: {len(problems)}",
        *(f"  {problem}" for problem in problems[:SHOWN_PROBLEMS]),
        *more,
    ]


def _shortened(document: str) -> str:
    """Keep the end of a name, which tells more than its folders."""
    return document if len(document) <= SHOWN_NAME else f"…{document[1 - SHOWN_NAME :]}"


def _straight(
    begin: CheckpointSnapshot, children: Mapping[str | None, list[CheckpointSnapshot]]
) -> list[CheckpointSnapshot]:
    """Return a snapshot and those after it, up to the end or to where branches begin."""
    row = [begin]
    while len(following := children.get(row[-1].snapshot_id, [])) == 1:
        row.append(following[0])
    return row


def _label(snapshot: CheckpointSnapshot, checkpoint: Checkpoint, note: str) -> Text:
    # Ids begin with the time, so their ends tell them apart.
    label = Text.assemble(
        (f"…{snapshot.snapshot_id[-6:]}", "cyan"),
        f"  {snapshot.boundary}",
        f"  {snapshot.superstep}",
        (f"  {snapshot.status}", "dim"),
    )
    if snapshot.manifest.executors:
        label.append(f"  {_several(snapshot.manifest.executors)}", style="dim")
    if snapshot.snapshot_id == checkpoint.stored_head_snapshot_id:
        label.append("  ◀ head", style="bold green")
    if note:
        label.append(f"  ({note})", style="yellow")
    return label


def _several(executors: Sequence[str]) -> str:
    return executors[0] if len(executors) == 1 else f"{executors[0]}…{executors[-1].rpartition('-')[2]}"


def _ends_and(middle: int, count: int) -> list[int]:
    """Return the rows to show: the first and the last ones, and those around the middle."""
    near = range(middle - 2, middle + 3)
    return [
        index for index in range(count) if index < SHOWN_ROWS or index >= count - SHOWN_ROWS or index in near
    ]


def _with_gaps(shown: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield each row to show with the number of rows left out before it; a gap of one is shown too."""
    previous = -1
    for index in shown:
        gap = index - previous - 1
        if gap == 1:
            yield index - 1, 0
        yield index, gap if gap > 1 else 0
        previous = index
