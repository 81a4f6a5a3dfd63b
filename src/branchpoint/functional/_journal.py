"""What an execution of a function has behind it in a turn: results of steps, questions, and answers.

Pure. It is the state of the executor that runs the function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from branchpoint.codec import Encoded, Format, Memo, copy_value, encode
from branchpoint.errors import ExecutorStateError

__all__ = ["Journal", "Record"]

T = TypeVar("T")


class Record(msgspec.Struct):
    """A step that is done.

    Attributes:
        key: What the call is known by.
        step: The name of the step.
        result: What it returned; handed out as a copy.
        encoded: The encoding of all that, once it was made.
    """

    key: str
    step: str
    result: Any
    encoded: Encoded | None = None

    def plain(self) -> dict[str, Any]:
        """Return the form in which a snapshot holds it."""
        return {"step": self.step, "key": self.key, "result": self.result}


class Journal(msgspec.Struct):
    """All that a turn has behind it.

    Attributes:
        turn: The number of the turn.
        message: What began it.
        records: The steps that are done, by key, in the order in which they were kept.
        asked: The ids of the questions that are open, by key.
        answers: What was answered, by key.
        over: Whether the function has returned.
    """

    turn: int
    message: Any
    records: dict[str, Record] = msgspec.field(default_factory=dict)
    asked: dict[str, str] = msgspec.field(default_factory=dict)
    answers: dict[str, Any] = msgspec.field(default_factory=dict)
    over: bool = False
    _memo: Memo | None = None
    _message: Encoded | None = None

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Journal:
        """Return the journal that a snapshot holds.

        Raises:
            ExecutorStateError: It is of another form.
        """
        try:
            records = {one["key"]: Record(one["key"], one["step"], one["result"]) for one in saved["steps"]}
            return cls(
                saved["turn"],
                saved["message"],
                records,
                dict(saved["asked"]),
                dict(saved["answers"]),
                saved["over"],
            )
        except (KeyError, TypeError) as error:
            raise ExecutorStateError(
                f"The saved state is not that of a functional workflow ({type(error).__name__}: {error}): "
                "an edit has to keep turn, message, steps, asked, answers and over."
            ) from error

    def record(
        self, key: str, step: str, result: Any, format: Format | None, depth: int, path: str
    ) -> Record:
        """Make the record of a step, by value.

        Raises:
            EncodingError: The result cannot be kept.
        """
        record = Record(key, step, copy_value(result, path=path))
        if format is not None:
            record.encoded, _ = encode(record.plain(), format=format, depth=depth + 2, path=path)
        return record

    def drop(self, keys: Iterable[str]) -> None:
        """Forget steps that were done inside of one that is done itself."""
        for key in keys:
            self.records.pop(key, None)

    def arrange(self, orders: Mapping[str, tuple[int | str, ...]]) -> None:
        """Sort the steps as the code calls them, so that the state does not tell of their timing.

        Those that were not called come last.
        """
        self.records = _sorted(self.records, orders)
        self.answers = _sorted(self.answers, orders)
        self.asked = _sorted(self.asked, orders)

    def export(self, format: Format | None, depth: int) -> dict[str, Any]:
        """Return what a snapshot holds; what was encoded before is not encoded again."""
        steps: Any = list(self.records.values())
        if format is None:
            steps = [record.plain() for record in steps]
        else:
            for record in steps:
                if record.encoded is None:
                    record.encoded, _ = encode(record.plain(), format=format, depth=depth + 2)
            steps, self._memo = encode(
                [record.encoded for record in steps],
                format=format,
                memo=self._memo,
                depth=depth + 1,
                owned=True,
            )
            if self._message is None:
                self._message, _ = encode(self.message, format=format, depth=depth + 1)
        return {
            "turn": self.turn,
            "message": self.message if self._message is None else self._message,
            "steps": steps,
            "asked": dict(self.asked),
            "answers": dict(self.answers),
            "over": self.over,
        }


def _sorted(given: dict[str, T], orders: Mapping[str, tuple[int | str, ...]]) -> dict[str, T]:
    called = sorted((key for key in given if key in orders), key=orders.__getitem__)
    return {key: given[key] for key in (*called, *(key for key in given if key not in orders))}
