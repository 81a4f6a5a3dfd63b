"""What one call of `run()` asks for, checked before anything else happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from branchpoint.errors import InvalidCallError

__all__ = ["ABSENT", "Absent", "RunRequest"]

METADATA_BYTES = 16 * 1024


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
        input_id: The caller's name for this input; a repeated delivery of it acts once.
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
        if self.message is not ABSENT and self.responses is not None:
            raise InvalidCallError(
                "run() got both a message and responses. Answer the open requests with responses=, "
                "wait for the result, then send the message in a call of its own."
            )
        if self.responses is not None and not self.responses:
            raise InvalidCallError(
                "run() got empty responses. Leave them out, or answer at least one request."
            )
        if self.max_supersteps is not None and self.max_supersteps < 0:
            raise InvalidCallError(f"max_supersteps is {self.max_supersteps}; it must be 0 or more.")
        if self.input_id is not None and not self.input_id:
            raise InvalidCallError("input_id is empty; leave it out to have one made.")
        _check_metadata(self.metadata)


def _check_metadata(metadata: Mapping[str, Any] | None) -> None:
    if metadata is None:
        return
    if "boundary" in metadata:
        raise InvalidCallError("The metadata key 'boundary' is the engine's own; choose another name.")
    try:
        encoded = msgspec.json.encode(dict(metadata))
        plain = msgspec.json.decode(encoded) == dict(metadata)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidCallError(f"metadata must be plain JSON: {error}") from error
    if not plain:
        raise InvalidCallError(
            "metadata must be plain JSON: text keys, and values that JSON gives back unchanged."
        )
    if len(encoded) > METADATA_BYTES:
        raise InvalidCallError(f"metadata takes {len(encoded)} bytes; at most {METADATA_BYTES} are kept.")
