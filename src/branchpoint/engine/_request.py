"""What one call of `run()` asks for, checked before anything else happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from branchpoint.checkpoint import check_id, copy_metadata
from branchpoint.errors import InvalidCallError

__all__ = ["ABSENT", "Absent", "RunRequest"]


class Absent:
    """The type of `ABSENT`: no message was given, which is not the same as `None`."""

    _only: Absent | None = None

    def __new__(cls) -> Absent:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


class RunRequest(msgspec.Struct, frozen=True):
    """The arguments of one call.

    Attributes:
        message: The input, or `ABSENT`; `None` is a legal message.
        responses: Answers by request id, or None.
        input_id: The caller's name for this input, within the bounds of a checkpoint id; a repeated
            delivery of it acts once.
        metadata: Plain JSON that travels in the metadata of every snapshot of this input.
        max_supersteps: Stop at the boundary after so many supersteps of this call; 0 runs nothing.
        grace_seconds: How long a cancelled handler may take to clean up before it is abandoned.
        options: Values for this one call that are never persisted.
    """

    message: Any = ABSENT
    responses: Mapping[str, Any] | None = None
    input_id: str | None = None
    metadata: Mapping[str, Any] | None = None
    max_supersteps: int | None = None
    grace_seconds: float = 5.0
    streaming: bool = False
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        given = self.message is not ABSENT or self.responses is not None
        if self.message is not ABSENT and self.responses is not None:
            raise InvalidCallError(
                "run() got both a message and responses. Answer the open requests with responses=, "
                "wait for the result, then send the message in a call of its own."
            )
        if self.responses is not None:
            _check_responses(self.responses)
        if self.max_supersteps is not None and (
            type(self.max_supersteps) is not int or self.max_supersteps < 0
        ):
            raise InvalidCallError(
                f"max_supersteps is a number of supersteps, 0 or more, got {self.max_supersteps!r}."
            )
        if self.input_id is not None:
            check_id(self.input_id, "input_id")
        for name in ("input_id", "metadata"):
            if getattr(self, name) is not None and not given:
                raise InvalidCallError(
                    f"{name}= belongs to an input, and run() got neither a message nor responses; what is resumed "
                    "keeps the input_id and the metadata it was accepted with."
                )
        copy_metadata(self.metadata)


def _check_responses(responses: Any) -> None:
    if not isinstance(responses, Mapping):
        raise InvalidCallError(
            f"responses is a mapping of request id to answer, got {type(responses).__name__}."
        )
    if not responses:
        raise InvalidCallError("run() got empty responses. Leave them out, or answer at least one request.")
