"""What a call means, decided from the head and the call alone.

The table "what a call means" of the reference documentation is this file. Every refusal happens
here, before any commit and before any handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from branchpoint.checkpoint import EarlierInput, Source, Stored
from branchpoint.codec import (
    comparison_digest,
    convert,
    copy_value,
    digest,
    encode,
    parse_type_expression,
    type_expression,
)
from branchpoint.engine._request import ABSENT, RunRequest
from branchpoint.engine._state import RunState
from branchpoint.errors import (
    EncodingError,
    InputMismatchError,
    InvalidCallError,
    InvalidInputError,
    InvalidResponseError,
    PendingRequestsError,
    UnfinishedWorkError,
    UnknownRequestError,
    UnregisteredTypeError,
)
from branchpoint.graph import Executor, Graph, find_handler, find_response_handler, matches

__all__ = [
    "Admission",
    "Answer",
    "Begin",
    "Report",
    "Resume",
    "admit",
    "asker",
    "converted",
    "earlier_inputs",
    "payload_digest",
]


class Begin(msgspec.Struct, frozen=True):
    """Accept a message: a first turn, or the next one."""

    message: Any


class Answer(msgspec.Struct, frozen=True):
    """Accept answers, in the order of their requests, already of the declared types.

    `digest` is that of the payload as it was given, when converting changed it.
    """

    responses: Mapping[str, Any]
    digest: str | None = None


class Resume(msgspec.Struct, frozen=True):
    """Go on with unfinished work."""


class Report(msgspec.Struct, frozen=True):
    """Nothing runs: say again what is already known.

    Attributes:
        input_id: The accepted input whose result is told; None for the head's own.
    """

    input_id: str | None = None


Admission = Begin | Answer | Resume | Report


def admit(state: RunState, request: RunRequest, where: str) -> Admission:
    """Decide what this call does.

    Args:
        state: The state at the head.
        request: The call.
        where: The checkpoint, for messages.

    Raises:
        CallError: The call does not fit the head; see the table of what a call means.
    """
    repeated = _repeated(state, request, where)
    if repeated is not None:
        return repeated
    if request.message is not ABSENT:
        return _message(state, request, where)
    if request.responses is not None:
        return _responses(state, request.responses, where)
    return _nothing(state, where)


def _message(state: RunState, request: RunRequest, where: str) -> Begin:
    if state.deliveries:
        raise UnfinishedWorkError(
            f"{where} holds unfinished work of input {state.input_id!r}, so it takes no new message. "
            "Finish it with run(checkpoint=...), give it up with await checkpoint.abandon(), "
            "or go back with checkpoint.restart_from(...)."
        )
    if state.requests:
        raise PendingRequestsError(
            f"{where} waits for answers to {list(state.requests)}, so it takes no new message. "
            "Answer with run(responses={id: value}, checkpoint=...), or give up with await checkpoint.abandon()."
        )
    check_input(state.graph, request.message)
    return Begin(copy_value(request.message, path="messages.input.value"))


def check_input(graph: Graph, message: Any) -> None:
    """Refuse an input that the start executor has no handler for.

    Raises:
        InvalidInputError: It names the executor and the types it takes.
    """
    start = graph.executors[graph.start_id]
    if find_handler(start, message) is None:
        accepted = ", ".join(type_expression(tp) for tp in start.input_types)
        raise InvalidInputError(
            f"Workflow {graph.name!r} got a {type(message).__name__} as input, but its start executor "
            f"{graph.start_id!r} accepts {accepted}. Send one of those, or add a handler."
        )


def _nothing(state: RunState, where: str) -> Resume | Report:
    if state.input is None and not state.deliveries:
        raise InvalidCallError(f"{where} is new, so there is nothing to run: give a message.")
    if state.deliveries:
        return Resume()
    return Report()


def _responses(state: RunState, responses: Mapping[str, Any], where: str) -> Answer:
    unknown = [key for key in responses if key not in state.requests]
    if unknown:
        known = f"open are {list(state.requests)}" if state.requests else "nothing is pending"
        raise UnknownRequestError(
            f"{where} has no open request {', '.join(map(repr, unknown))}: {known}. It was answered already, "
            "belongs to another branch, or never existed. Nothing of this call was accepted."
        )
    answers: dict[str, Any] = {}
    for key, request in state.requests.items():
        if key in responses:
            answers[key] = converted(state.graph, key, request.read(state.medium), responses[key])
    return Answer(answers, _digest_as_given(responses, answers))


def asker(graph: Graph, record: Mapping[str, Any]) -> Executor | None:
    """Return the executor that asked, at any depth; None if this graph does not have it."""
    for executor_id in record["path"]:
        inside = graph.nesting.get(executor_id)
        if inside is None:
            return None
        graph = inside.child
    return graph.executors.get(record["source_executor_id"])


def converted(graph: Graph, key: str, record: Mapping[str, Any], value: Any) -> Any:
    """Return the answer to a request as its executor takes it.

    Raises:
        InvalidResponseError: It is not of the declared type.
    """
    executor = asker(graph, record)
    assert executor is not None  # the names in a state are checked when it is opened
    declared = _declared_type(executor, record, key)
    try:
        answer = copy_value(convert(value, declared, path=f"responses.{key}"), path=f"responses.{key}")
    except EncodingError as error:
        raise InvalidResponseError(
            f"The answer to request {key!r} of executor {executor.id!r} must be {type_expression(declared)}, "
            f"got {type(value).__name__}: {error} Nothing was accepted; the request stays open."
        ) from error
    if find_response_handler(executor, record["data"], answer) is None:
        raise InvalidResponseError(
            f"Executor {executor.id!r} has no response handler that takes a {type(answer).__name__} "
            f"for request {key!r}. Nothing was accepted; the request stays open."
        )
    try:
        executor.check_response(copy_value(record["data"]), answer)
    except ValueError as error:
        raise InvalidResponseError(
            f"The answer to request {key!r} of executor {executor.id!r} does not fit: {error}. Nothing was "
            "accepted; the request stays open."
        ) from error
    return answer


def _declared_type(executor: Executor, record: Mapping[str, Any], key: str) -> Any:
    """Find the type an answer must have: from the handlers of this build, by the stored expression."""
    wanted = record["response_type"]
    for spec in executor.response_handlers:
        members = (spec.response_type, *getattr(spec.response_type, "__args__", ()))
        for member in members:
            if type_expression(member) == wanted:
                return member
    try:
        return parse_type_expression(wanted)
    except UnregisteredTypeError as error:
        # Stored under a name it no longer has: registered since, or no longer, or moved.
        asked = record["data"]
        fitting = [
            spec.response_type for spec in executor.response_handlers if matches(asked, spec.request_type)
        ]
        if len(fitting) == 1:
            return fitting[0]
        raise InvalidResponseError(
            f"Request {key!r} of executor {executor.id!r} declared its answer as {wanted!r}, which none of its "
            "response handlers names and which is not registered. Register the type, or restore the handler."
        ) from error


def _digest_as_given(responses: Mapping[str, Any], answers: Mapping[str, Any]) -> str | None:
    """Return the digest by which these very answers are known again, if the converted ones do not do."""
    try:
        given = payload_digest("responses", responses)
    except EncodingError:
        return None  # it cannot come out of a queue either
    return None if given == payload_digest("responses", answers) else given


def payload_digest(kind: str, value: Any) -> str:
    """Return a digest by which a repeated delivery is told from another payload under its id."""
    plain = dict(value) if kind == "responses" else value
    return comparison_digest(kind, plain, path="messages.input.value")


def _earlier_digest(kind: str, value: Any) -> str | None:
    """Return the digest as it was made when only dicts that stand in plain containers had no order."""
    plain = dict(value) if kind == "responses" else value
    try:
        encoded, _ = encode([kind, _ordered(plain)], format="json")
    except (EncodingError, RecursionError):
        return None
    return digest(encoded.data)


def _ordered(value: Any) -> Any:
    if type(value) is dict:
        keys = sorted(value) if all(type(key) is str for key in value) else value
        return {key: _ordered(value[key]) for key in keys}
    if type(value) is list or type(value) is tuple:
        return type(value)(_ordered(item) for item in value)
    return value


def _repeated(state: RunState, request: RunRequest, where: str) -> Resume | Report | None:
    """Recognise an input that this lineage has accepted before."""
    input_id = request.input_id
    if input_id is None or (request.message is ABSENT and request.responses is None):
        return None
    kind, value = (
        ("message", request.message) if request.responses is None else ("responses", request.responses)
    )

    def check(told: Callable[[], str]) -> None:
        known = told()
        if known != payload_digest(kind, value) and known != _earlier_digest(kind, value):
            raise InputMismatchError(
                f"{where} accepted input {input_id!r} before, with another payload. "
                "A repeated delivery must carry the same payload; a new input needs an id of its own."
            )

    last = state.input
    if last is not None and last.input_id == input_id:
        check(lambda: last.digest or payload_digest(last.kind, last.value.value(state.medium)))
        return _nothing(state, where)
    record = next((record for record in earlier_inputs(state, where) if record.input_id == input_id), None)
    if record is None:
        return None
    check(lambda: record.digest)
    return Report(input_id)


def earlier_inputs(state: RunState, where: str) -> Iterator[EarlierInput]:
    """Read the inputs before the last one, in their order."""
    medium = state.medium
    assert medium is not None
    source = Source(medium.parts, medium.format, where)
    for cell in state.earlier:
        yield EarlierInput.read(Stored(cell.encoded(medium), cell.path, source))
