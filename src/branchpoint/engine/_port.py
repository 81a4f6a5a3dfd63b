"""What a handler's context is connected to: it takes by value what the handler does, into its share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from branchpoint.codec import Format, copy_value, json_schema, type_expression
from branchpoint.engine._keys import derive
from branchpoint.engine._options import options_of
from branchpoint.engine._share import Asked, Sent, Share, Yielded
from branchpoint.engine._views import view
from branchpoint.errors import (
    BranchpointError,
    ExecutorStateError,
    OutputTypeError,
    UndeliverableMessageError,
)
from branchpoint.events import WorkflowEvent
from branchpoint.graph import (
    ABSENT,
    Executor,
    FunctionExecutor,
    HandlerSpec,
    ResponseSpec,
    find_response_handler,
    is_name,
    matches,
)

__all__ = ["HandlerPort", "KeepStep", "Origin"]

KeepStep: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[None]]


class Origin(msgspec.Struct, frozen=True):
    """Where a superstep starts from; keys derive from it.

    Attributes:
        run_key: The checkpoint's id; a random id for a run without a checkpoint.
        parent_key: The snapshot the superstep starts from; without a checkpoint, the number of the one before.
        superstep: Its number.
        input_id: The last accepted input.
        metadata: The metadata of that input.
        streaming: Whether the caller reads a stream.
        turn: The number of the turn.
        path: Tells the supersteps of a child apart from all others; empty outside of any child.
    """

    run_key: str
    parent_key: str
    superstep: int
    input_id: str | None
    metadata: Mapping[str, Any]
    streaming: bool
    turn: int
    path: str = ""


class HandlerPort(msgspec.Struct):
    """What a handler's context is connected to while the handler runs.

    Attributes:
        share: Takes what the handler does.
        executor: The run-scoped executor.
        spec: The handler.
        origin: What keys derive from.
        ordinal: The place of the delivery among those of this executor.
        sources: Who sent the delivery.
        request_id: Of the request that the delivery answers.
        tell: Takes events of the handler's own, with the executor's id.
        options: Of the call.
        keep: Commits the state that an executor has in the middle of the superstep.
        is_last: Whether this executor has no further delivery in this superstep.
        closed: The handler has ended, so what it does from now on is refused.
        made: How many keys were made.
        streamed: The id of an output of which pieces were delivered, until it is yielded.
    """

    share: Share
    executor: Executor
    spec: HandlerSpec | ResponseSpec
    origin: Origin
    ordinal: int
    sources: tuple[str, ...]
    request_id: str | None
    tell: Callable[[WorkflowEvent[Any], str], Awaitable[None] | None]
    options: Mapping[str, Any]
    keep: KeepStep | None = None
    is_last: bool = True
    closed: bool = False
    made: int = 0
    streamed: str | None = None

    # What the handler may ask.

    @property
    def executor_id(self) -> str:
        return self.share.executor_id

    @property
    def source_executor_ids(self) -> list[str]:
        return list(self.sources)

    @property
    def idempotency_key(self) -> str:
        return self._key("delivery")

    @property
    def run_metadata(self) -> dict[str, Any]:
        copied: dict[str, Any] = copy_value(dict(self.origin.metadata))
        return copied

    @property
    def run_options(self) -> dict[str, Any]:
        return options_of(self.executor_id, self.options, self.share.graph.executors)

    @property
    def executor_state(self) -> dict[str, Any]:
        self._open("executor_state")
        if not isinstance(self.executor, FunctionExecutor):
            raise ExecutorStateError(
                f"ctx.executor_state is for functions; executor {self.executor_id!r} is a "
                f"{type(self.executor).__name__}: declare its state as fields, `name: T = state(...)`."
            )
        return self.executor.state

    @property
    def is_streaming(self) -> bool:
        return self.origin.streaming

    # For an executor that goes from step to step inside of one superstep.

    @property
    def turn(self) -> int:
        return self.origin.turn

    @property
    def format(self) -> Format | None:
        return None if self.share.medium is None else self.share.medium.format

    @property
    def depth(self) -> int:
        return 3 if self.origin.path else 2

    async def keep_step(self, fields: dict[str, Any]) -> None:
        self._open("keep_step")
        if self.share.medium is not None and self.keep is not None:
            await self.keep(self.executor_id, fields)

    def withdraw(self, request_id: str) -> None:
        self._open("withdraw")
        self.share.withdrawn.append(request_id)

    def forget_state(self) -> None:
        self._open("forget_state")
        self.share.forget()

    # What the handler may do.

    def send(self, value: Any, target_id: str | None) -> None:
        self._open("send_message")
        kept = copy_value(value, path=f"messages.pending.deliveries[from {self.share.executor_id}].value")
        self._check(kept, self.spec.output_types, "sent", "WorkflowContext[that type]")
        self.share.sent.append(Sent(kept, target_id))

    def yield_output(self, value: Any) -> None:
        self._open("yield_output")
        kept = copy_value(value, path=f"messages.output[of {self.executor_id}].value")
        self._check(kept, self.spec.workflow_output_types, "yielded", "WorkflowContext[..., that type]")
        output_id, self.streamed = self.streamed or self._key("output"), None
        self.share.yielded.append(Yielded(output_id, kept))

    def stream_output(self, piece: Any) -> Awaitable[None] | None:
        self._open("stream_output")
        self.streamed = self.streamed or self._key("output")
        kind = self.share.graph.classify_output(self.executor_id)
        if kind is None:
            return None
        data = copy_value(piece, path=f"a piece of output of {self.executor_id}")
        return self.tell(WorkflowEvent(kind, data, output_id=self.streamed), self.executor_id)

    def request(self, data: Any, response_type: Any, request_id: str | None) -> str:
        self._open("request_info")
        if request_id is not None and not is_name(request_id):
            raise ExecutorStateError(
                f"Executor {self.executor_id!r} asked under the request id {request_id!r}; an id is a text that is "
                "not empty, without lone surrogates. Leave it out to have one made."
            )
        request_id = request_id or self._key("request")
        data = copy_value(data, path=f"messages.pending.requests.{request_id}.data")
        if find_response_handler(self.executor, data, response_type) is None:
            raise UndeliverableMessageError(
                f"Executor {self.executor_id!r} asks with a {type(data).__name__} for a "
                f"{type_expression(response_type)}, but has no @response_handler(request, response) for that pair, "
                "so an answer could reach nobody: add one."
            )
        record = {
            "data": data,
            "source_executor_id": self.executor_id,
            "path": [],
            "input_id": self.origin.input_id,
            "superstep": self.origin.superstep,
            "request_type": type_expression(type(data)),
            "response_type": type_expression(response_type),
            "response_schema": _schema(response_type),
        }
        self.share.asked.append(Asked(request_id, record))
        return request_id

    def emit(self, event: WorkflowEvent[Any]) -> Awaitable[None] | None:
        self._open("add_event")
        data = copy_value(event.data, path=f"event of {self.executor_id}")
        told = event if data is event.data else msgspec.structs.replace(event, data=data)
        return self.tell(told, self.executor_id)

    def get_state(self, key: str, default: Any = None, copy: bool = True) -> Any:
        self._open_key("get_state", key)
        if copy:
            return self.share.lend(key, default)
        value = self.share.current(key)
        return default if value is ABSENT else view(value)

    def set_state(self, key: str, value: Any) -> None:
        self._open_key("set_state", key)
        self.share.write(key, value)

    def delete_state(self, key: str) -> None:
        self._open_key("delete_state", key)
        self.share.write(key, ABSENT)

    def update_state(self, key: str, fn: Callable[[Any], Any]) -> Any:
        self._open_key("update_state", key)
        value = self.share.current(key)
        updated = fn(None if value is ABSENT else copy_value(value))
        self.share.write(key, updated, replaces=True)
        return updated

    def _open_key(self, what: str, key: str) -> None:
        if not is_name(key):
            raise ExecutorStateError(
                f"ctx.{what}() of executor {self.executor_id!r} got the key {key!r}; a key of the shared state is a "
                "text that is not empty, without lone surrogates."
            )
        self._open(what)

    def _open(self, what: str) -> None:
        if self.closed or self.share.closed:
            raise ExecutorStateError(
                f"ctx.{what}() was called for executor {self.executor_id!r} after its handler had ended; "
                "nothing of it is kept. Do the work inside the handler and await it there."
            )

    def _key(self, what: str) -> str:
        origin = self.origin
        base = (origin.run_key, origin.parent_key, self.executor_id, origin.path, self.ordinal)
        if what == "delivery":
            return derive(*base)
        self.made += 1
        return derive(*base, what, self.made)

    def _check(self, value: Any, declared: tuple[Any, ...] | None, did: str, how: str) -> None:
        if declared is None or type(value) in declared or any(matches(value, tp) for tp in declared):
            return
        names = ", ".join(type_expression(tp) for tp in declared) or "nothing"
        raise OutputTypeError(
            f"Executor {self.executor_id!r} {did} a {type(value).__name__} in {self.spec.name!r}, whose context "
            f"declares {names}. Annotate the handler's context as {how}, or convert the value."
        )


def _schema(response_type: Any) -> Any:
    """Return the JSON schema of an answer, or None where none can be made."""
    try:
        return json_schema(response_type)
    except (BranchpointError, TypeError):
        return None
