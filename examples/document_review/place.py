"""The folder of one play: where its checkpoint, its ticks and its reports are."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from ticks import TickLog

from branchpoint import FileCheckpointStorage

__all__ = ["CHECKPOINT_ID", "Place"]

CHECKPOINT_ID = "review"


@dataclass(frozen=True)
class Place:
    """A folder that belongs to one play, shared by all its processes."""

    folder: Path

    @property
    def storage(self) -> FileCheckpointStorage:
        """Where the checkpoint is kept."""
        return FileCheckpointStorage(self.folder / "checkpoints")

    @property
    def ticks(self) -> TickLog:
        """What was really done, by whom."""
        return TickLog(self.folder / "ticks.jsonl")

    @property
    def published(self) -> Path:
        """Where reports go."""
        return self.folder / "published"

    @property
    def errors(self) -> Path:
        """What the workers wrote to their standard error."""
        return self.folder / "errors.log"

    def reports(self) -> dict[str, str]:
        """Return what was published, by file name."""
        return {file.name: file.read_text(encoding="utf-8") for file in sorted(self.published.glob("*.md"))}

    def command(self, *arguments: str) -> str:
        """Return a command line by which anyone can go on in this place."""
        worker = Path(__file__).with_name("worker.py")
        return shlex.join([sys.executable, str(worker), str(self.folder), *arguments])

    def bytes_stored(self) -> int:
        """Return how many bytes the checkpoint takes on the disk."""
        files = (self.folder / "checkpoints").rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file())
