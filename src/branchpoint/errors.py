"""Every error of the library, as one tree.

The groups say what a caller would do about it: change the definition, call differently, change
a handler, change a value, read the stored data again, or try the storage again.
Each error has an append-only `kind` code, says whether trying again can help (`retryable`), and
has a `public_message` that is safe to show to a stranger: it never holds ids, values or paths.

Messages quote ids, keys and what damaged files say. So whatever is quoted, a message holds no control
character and nothing that changes how a terminal or a log shows it, and its length is bounded.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar, Final

__all__ = [
    "BranchpointError",
    "CallError",
    "CheckpointConflictError",
    "CheckpointInUseError",
    "CheckpointLeasedError",
    "CheckpointNotFoundError",
    "ConvergenceError",
    "CorruptCheckpointError",
    "DataError",
    "DefinitionError",
    "EdgeDuplicationError",
    "ExecutorStateError",
    "GraphConnectivityError",
    "GraphMismatchError",
    "HandlerError",
    "InputMismatchError",
    "InvalidCallError",
    "InvalidInputError",
    "InvalidResponseError",
    "OutputTypeError",
    "PendingRequestsError",
    "SnapshotNotFoundError",
    "SnapshotNotLoadedError",
    "StateConflictError",
    "StorageError",
    "TypeCompatibilityError",
    "UndeliverableMessageError",
    "UnfinishedWorkError",
    "UnknownRequestError",
    "UnknownVersionError",
    "UnregisteredTypeError",
    "UnsupportedValueError",
    "ValidationTypeEnum",
    "EncodingError",
    "WorkflowValidationError",
    "quotable",
]

_LONGEST: Final = 4_000
_LEFT_OUT: Final = " [...] "


def quotable(text: str, longest: int = _LONGEST) -> str:
    """Return a text as a message may hold it: on one line, every character visible, not endless.

    White space becomes blanks, what cannot be seen becomes its escape, and the middle of a text over
    `longest` characters is left out.
    """
    text = _shortened(text, longest)
    return text if text.isprintable() else _shortened("".join(map(_visible, text)), longest)


def _shortened(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    end = longest // 4
    start = longest - end - len(_LEFT_OUT)
    return text[:start] + _LEFT_OUT + text[-end:]


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else character.encode("unicode_escape").decode("ascii")


class BranchpointError(Exception):
    """The root of every error this library raises on purpose.

    Attributes:
        kind: A stable code for programs; new kinds are added, none is ever renamed.
        retryable: Whether the same call may succeed later without any change by the caller.
        public_message: What may be shown to a stranger; holds no id, value or path.
    """

    kind: ClassVar[str] = "branchpoint"
    retryable: ClassVar[bool] = False
    public_message: ClassVar[str] = "The workflow could not do this."

    def __init__(self, *args: Any) -> None:
        super().__init__(*(quotable(one) if isinstance(one, str) else one for one in args))


# Change the definition.


class DefinitionError(BranchpointError):
    """A workflow, an executor or a registration is wrong as written; found before any run."""

    kind = "definition"
    public_message = "The workflow is not defined correctly."


class ValidationTypeEnum(str, Enum):
    """Which rule of the graph's validation was broken."""

    EDGE_DUPLICATION = "EDGE_DUPLICATION"
    EXECUTOR_DUPLICATION = "EXECUTOR_DUPLICATION"
    TYPE_COMPATIBILITY = "TYPE_COMPATIBILITY"
    GRAPH_CONNECTIVITY = "GRAPH_CONNECTIVITY"
    HANDLER_OUTPUT_ANNOTATION = "HANDLER_OUTPUT_ANNOTATION"
    OUTPUT_VALIDATION = "OUTPUT_VALIDATION"


class WorkflowValidationError(DefinitionError):
    """A graph breaks a rule of validation; `validation_type` says which."""

    kind = "definition.validation"

    def __init__(self, message: str, validation_type: ValidationTypeEnum) -> None:
        super().__init__(message)
        self.validation_type = validation_type


class EdgeDuplicationError(WorkflowValidationError):
    """Two edges join the same two executors."""

    kind = "definition.edge_duplication"

    def __init__(self, message: str) -> None:
        super().__init__(message, ValidationTypeEnum.EDGE_DUPLICATION)


class TypeCompatibilityError(WorkflowValidationError):
    """Nothing that the source sends is accepted by the target of an edge."""

    kind = "definition.type_compatibility"

    def __init__(self, message: str) -> None:
        super().__init__(message, ValidationTypeEnum.TYPE_COMPATIBILITY)


class GraphConnectivityError(WorkflowValidationError):
    """An executor cannot be reached from the start, or an end of an edge is missing."""

    kind = "definition.graph_connectivity"

    def __init__(self, message: str) -> None:
        super().__init__(message, ValidationTypeEnum.GRAPH_CONNECTIVITY)


# Call differently.


class CallError(BranchpointError):
    """This call does not fit the state the checkpoint is in; nothing was committed."""

    kind = "call"
    public_message = "This call does not fit the state of the run."


class InvalidCallError(CallError, ValueError):
    """The arguments contradict each other or are of the wrong form."""

    kind = "call.invalid"


class InvalidInputError(CallError, TypeError):
    """The start executor does not accept an input of this type."""

    kind = "call.invalid_input"
    public_message = "The input has the wrong form."


class InputMismatchError(CallError):
    """An input id came back with another payload."""

    kind = "call.input_mismatch"
    public_message = "This delivery was already accepted with another content."


class CheckpointInUseError(CallError):
    """The checkpoint is held by a run; wait for it or cancel it."""

    kind = "call.in_use"
    retryable = True
    public_message = "This run is busy; try again when it has finished."


class UnfinishedWorkError(CallError):
    """The head holds unfinished work; resume it, `abandon` it, or `restart_from` another snapshot."""

    kind = "call.unfinished_work"
    public_message = "An earlier request is unfinished."


class PendingRequestsError(CallError):
    """The head waits for answers; give them as `responses`."""

    kind = "call.pending_requests"
    public_message = "The run waits for an answer."


class UnknownRequestError(CallError, KeyError):
    """An answer names a request that is not open."""

    kind = "call.unknown_request"
    public_message = "There is no such open question."

    def __str__(self) -> str:  # KeyError would show the repr of its argument
        return str(self.args[0]) if self.args else ""


class InvalidResponseError(CallError, TypeError):
    """An answer does not fit the type its request declared; the request stays open."""

    kind = "call.invalid_response"
    public_message = "The answer has the wrong form."


class SnapshotNotFoundError(CallError, LookupError):
    """This checkpoint holds no snapshot of that id."""

    kind = "call.snapshot_not_found"
    public_message = "There is no such snapshot."


# Change a handler.


class HandlerError(BranchpointError):
    """Code inside a superstep broke a rule; the head stays at the last boundary."""

    kind = "handler"
    public_message = "A step of the workflow failed."


class ExecutorStateError(HandlerError, AttributeError):
    """State was touched outside a run, or a run changed something that is not declared as state."""

    kind = "handler.executor_state"


class StateConflictError(HandlerError):
    """Two executors wrote one shared key in one superstep and the key has no reducer."""

    kind = "handler.state_conflict"


class UndeliverableMessageError(HandlerError):
    """No target of the sender accepts the type of what was sent."""

    kind = "handler.undeliverable"


class OutputTypeError(HandlerError, TypeError):
    """A handler sent or yielded a value of a type its annotation does not declare."""

    kind = "handler.output_type"


class ConvergenceError(HandlerError):
    """The run reached its bound of supersteps; the snapshots are kept and a larger bound resumes."""

    kind = "handler.convergence"
    public_message = "The workflow did not finish within its bound."


# Change a value.


class EncodingError(BranchpointError):
    """A value cannot be kept; raised before anything of it is persisted."""

    kind = "value"
    public_message = "The workflow holds a value that cannot be saved."


class UnsupportedValueError(EncodingError, ValueError):
    """A value of a kind that no codec can keep: a cycle, too deep, a lone surrogate."""

    kind = "value.unsupported"


class UnregisteredTypeError(EncodingError, TypeError):
    """The type of a value is not registered; `register_state_type` would."""

    kind = "value.unregistered_type"


# The stored data is not what this program expects.


class DataError(BranchpointError):
    """Stored data cannot be used by this program; it is left as it was."""

    kind = "data"
    public_message = "The saved run cannot be read."


class CorruptCheckpointError(DataError):
    """Stored bytes are damaged or were not written by this library."""

    kind = "data.corrupt"


class UnknownVersionError(DataError):
    """Stored data is of a version this program does not know."""

    kind = "data.unknown_version"


class GraphMismatchError(DataError):
    """The checkpoint was made by a workflow of another graph; the message says what differs."""

    kind = "data.graph_mismatch"
    public_message = "The saved run belongs to another version of the workflow."


# Storage.


class StorageError(BranchpointError):
    """Storage could not do what it was asked to; the head is where it was."""

    kind = "storage"
    retryable = True
    public_message = "The run could not be saved or read."


class CheckpointConflictError(StorageError):
    """Another writer moved the stored head; nothing of this commit was persisted.

    `await checkpoint.refresh()` reads the new head, then decide again.
    """

    kind = "storage.conflict"
    retryable = False
    public_message = "The run was changed elsewhere in the meantime."


class CheckpointLeasedError(CheckpointConflictError):
    """Another run holds the lease, or this one's passed on; `retry_after` seconds from now it may be free."""

    kind = "storage.leased"
    retryable = True
    public_message = "The run is being worked on elsewhere."

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CheckpointNotFoundError(StorageError, LookupError):
    """Storage holds no checkpoint of that id."""

    kind = "storage.not_found"
    retryable = False
    public_message = "There is no such run."


class SnapshotNotLoadedError(StorageError):
    """The snapshot's parts were left in storage; `await checkpoint.load_snapshot(id)` fetches them."""

    kind = "storage.not_loaded"
    retryable = False
