"""What a storage was found to keep of the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from branchpoint.checkpoint import Capability

__all__ = ["Outcome", "Report"]

_SIGNS = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}


@dataclass(frozen=True)
class Outcome:
    """What came of one clause.

    Attributes:
        clause: Its name.
        result: Whether the storage keeps it, breaks it, or lacks what it needs.
        why: What was found, or what is lacking.
    """

    clause: str
    result: Literal["passed", "failed", "skipped"]
    why: str = ""


@dataclass(frozen=True)
class Report:
    """All outcomes for one storage; `print(report)` shows them.

    Attributes:
        storage: The name of its class.
        capabilities: What it declares.
        outcomes: One for each clause that was looked at.
    """

    storage: str
    capabilities: frozenset[Capability]
    outcomes: tuple[Outcome, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed and something passed."""
        return not self.failed and any(one.result == "passed" for one in self.outcomes)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The clauses that the storage breaks."""
        return tuple(one for one in self.outcomes if one.result == "failed")

    def outcome(self, clause: str) -> Outcome:
        """Return what came of one clause.

        Raises:
            KeyError: It was not looked at.
        """
        for one in self.outcomes:
            if one.clause == clause:
                return one
        raise KeyError(clause)

    def __str__(self) -> str:
        counts = {
            result: sum(one.result == result for one in self.outcomes)
            for result in ("passed", "failed", "skipped")
        }
        lines = [
            f"{self.storage}: {', '.join(f'{count} {result}' for result, count in counts.items())}",
            f"capabilities: {', '.join(sorted(self.capabilities)) or 'none'}",
        ]
        lines += [
            f"{_SIGNS[one.result]} {one.clause}" + (f": {one.why}" if one.why else "")
            for one in self.outcomes
        ]
        return "\n".join(lines)
