"""One call of a workflow agent, from what it is given to the updates that answer it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from agent_framework import AgentResponseUpdate, AgentSession, Message

from branchpoint.agents._carried import carry, place_of
from branchpoint.agents._inputs import Form
from branchpoint.agents._providers import Providers
from branchpoint.agents._questions import answers_in
from branchpoint.agents._telling import Teller, is_heard
from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot
from branchpoint.errors import PendingRequestsError, UnfinishedWorkError
from branchpoint.events import WorkflowEvent

__all__ = ["AgentCall"]

_log: Final = logging.getLogger(__name__)


class AgentCall:
    """One call, at work on one session.

    Args:
        workflow: What runs; of it only `run` is used.
        form: Makes its input of messages.
        providers: What goes before and after it.
        messages: What the caller says; nothing, to go on.
        session: Whose call it is; None for one that keeps nothing.
        checkpoint: That of the session.
        options: For `run`.
    """

    def __init__(
        self,
        workflow: Any,
        form: Form,
        providers: Providers,
        messages: list[Message],
        session: AgentSession | None,
        checkpoint: Checkpoint | None,
        options: Mapping[str, Any],
    ) -> None:
        self._workflow = workflow
        self._form = form
        self._providers = providers
        self._messages = messages
        self._session = session
        self._checkpoint = checkpoint
        self._options = options
        self._where = "a call without a session" if session is None else f"session {session.session_id!r}"

    async def updates(self, stream: bool) -> AsyncGenerator[AgentResponseUpdate, None]:
        """Run, and give what is to be told; the session keeps where the workflow is then, however this ends."""
        checkpoint, messages = self._checkpoint, self._messages
        head = None if checkpoint is None else checkpoint.head_snapshot
        pending = [] if checkpoint is None else checkpoint.pending_requests
        answers = answers_in(messages, pending, self._where)
        untold: list[WorkflowEvent[Any]] = []
        if checkpoint is not None and head is not None:
            if messages and not pending and await self._is_new_to(checkpoint, head):
                head = await self._give_up(checkpoint)
            if head.status == "in_progress":
                # The call that it failed in has told nobody; what is answered now is no question any more.
                untold = await _of_last_input(checkpoint, head)
                untold = [event for event in untold if event.request_id not in answers]
            elif self._providers.missed_some:
                # A turn came to its end although its reader had left.
                heard = self._teller(stream)
                heard.hear(await _of_last_input(checkpoint, head))
                await self._providers.catch_up(heard.response())
        given = await self._providers.before(messages, is_new=head is None)
        arguments = dict(self._options, checkpoint=checkpoint)
        if answers:
            arguments["responses"] = answers
        elif messages:
            arguments["message"] = self._form(given)
        teller = self._teller(stream)
        fresh, done = 0, False
        # A copy of the session from before this delivery is not where the delivery has led.
        behind = (
            head is not None and self._session is not None and place_of(self._session) != head.snapshot_id
        )
        try:
            async with aclosing(_events(self._workflow, stream, arguments)) as batches:
                async for events in batches:
                    fresh = len(teller.told)
                    for update in teller.hear([*untold, *events]):
                        yield update
                    untold = []
            done = True
        except (PendingRequestsError, UnfinishedWorkError) as error:
            raise self._refused() from error
        finally:
            moved = self._keep(head, done, behind)
        # What was only said again, since it is still open, is in no history twice.
        await self._providers.after(teller.response(fresh), moved=moved)

    def _teller(self, is_live: bool) -> Teller:
        return Teller(partial(is_heard, self._workflow), is_live)

    def _keep(self, head: CheckpointSnapshot | None, done: bool, behind: bool) -> bool:
        """Have the session keep where the workflow is now, and say whether that is another place than before."""
        session, checkpoint = self._session, self._checkpoint
        if session is None or checkpoint is None:
            self._providers.accepted(self._messages)
            return True
        start = None if head is None else head.snapshot_id
        moved = checkpoint.head_snapshot_id != start or (done and behind)
        if moved:
            carry(session, checkpoint)
            repeated = head is not None and head.input_id == self._options["input_id"] and not behind
            self._providers.accepted([] if repeated else self._messages)
        return moved

    async def _is_new_to(self, checkpoint: Checkpoint, head: CheckpointSnapshot) -> bool:
        """Say whether a message comes while a turn is unfinished, and is not the delivery that began it."""
        if head.status != "in_progress":
            return False
        input_id = self._options["input_id"]
        if input_id is None:
            return True
        await checkpoint.load_lineage()
        return all(snapshot.input_id != input_id for snapshot in checkpoint.ancestors())

    async def _give_up(self, checkpoint: Checkpoint) -> CheckpointSnapshot:
        """Give the unfinished turn up, as a conversation goes on after it was interrupted; tell who looks after it."""
        workflow = self._workflow
        checkpoint.verify_graph(
            workflow_name=workflow.name or "",
            graph_signature_hash=workflow.graph_signature_hash,
            signature=workflow.signature,
        )
        head = await checkpoint.abandon("a new message came before the turn was finished")
        self._providers.forget()
        if self._session is not None:
            carry(self._session, checkpoint)
        _log.warning("%s: an unfinished turn was given up for a new message", self._where)
        return head

    def _refused(self) -> PendingRequestsError:
        checkpoint = self._checkpoint
        assert checkpoint is not None  # otherwise nothing is pending
        asked = [request.request_id for request in checkpoint.pending_requests]
        return PendingRequestsError(
            f"{self._where} waits for answers to {asked}, so it takes no new message. Answer with function results "
            "or approval responses that have these ids, or give the turn up: checkpoint = await "
            "agent.get_checkpoint(session), await checkpoint.abandon(), agent.set_checkpoint(session, checkpoint)."
        )


async def _of_last_input(checkpoint: Checkpoint, head: CheckpointSnapshot) -> list[WorkflowEvent[Any]]:
    """Return what the last input has come to so far."""
    await checkpoint.load_lineage()
    for snapshot in checkpoint.ancestors():
        if snapshot.input_id == head.input_id:
            await checkpoint.load_snapshot(snapshot.snapshot_id)
    return checkpoint.events(input_id=head.input_id)


async def _events(
    workflow: Any, stream: bool, arguments: dict[str, Any]
) -> AsyncGenerator[list[WorkflowEvent[Any]], None]:
    """Run, and give events as they come; last come those of all requests that are open.

    Leaving it early ends the run, and waits until that has cleaned up.
    """
    if not stream:
        result = await workflow.run(**arguments)
        yield list(result)
    else:
        running = workflow.run(stream=True, **arguments)
        try:
            async for event in running:
                yield [event]
            result = await running.get_final_response()
        except BaseException:
            await running.cancel()
            raise
    yield result.get_request_info_events()
