"""One call of a workflow agent, from what it is given to the updates that answer it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, Message

from branchpoint.agents._carried import carry
from branchpoint.agents._inputs import Form
from branchpoint.agents._providers import Providers
from branchpoint.agents._questions import answers_in
from branchpoint.agents._telling import Teller
from branchpoint.checkpoint import Checkpoint
from branchpoint.errors import PendingRequestsError, UnfinishedWorkError
from branchpoint.events import WorkflowEvent

__all__ = ["AgentCall"]


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
        pending = [] if checkpoint is None else checkpoint.pending_requests
        answers = answers_in(messages, pending, self._where)
        before = None if checkpoint is None else checkpoint.head_snapshot_id
        untold = await _untold(checkpoint)
        given = await self._providers.before(messages, is_new=before is None)
        arguments = dict(self._options, checkpoint=checkpoint)
        if answers:
            arguments["responses"] = answers
        elif messages:
            arguments["message"] = self._form(given)
        teller = Teller()
        try:
            fresh = 0
            async with aclosing(_events(self._workflow, stream, arguments)) as batches:
                async for events in batches:
                    fresh = len(teller.told)
                    for update in teller.tell([*untold, *events]):
                        yield update
                    untold = []
        except (PendingRequestsError, UnfinishedWorkError) as error:
            raise self._refused(error) from error
        finally:
            moved = checkpoint is None or checkpoint.head_snapshot_id != before
            if self._session is not None and checkpoint is not None:
                carry(self._session, checkpoint)
            if moved:
                self._providers.accepted(messages)
        # What was only said again, since it is still open, is in no history twice.
        await self._providers.after(AgentResponse.from_updates(teller.told[:fresh]), moved)

    def _refused(
        self, error: PendingRequestsError | UnfinishedWorkError
    ) -> PendingRequestsError | UnfinishedWorkError:
        checkpoint = self._checkpoint
        assert checkpoint is not None  # otherwise nothing is pending
        give_up = (
            "checkpoint = await agent.get_checkpoint(session), await checkpoint.abandon(), and then "
            "agent.set_checkpoint(session, checkpoint) give it up"
        )
        if isinstance(error, PendingRequestsError):
            asked = [request.request_id for request in checkpoint.pending_requests]
            return PendingRequestsError(
                f"{self._where} waits for answers to {asked}, so it takes no new message. Answer with function results "
                f"or approval responses that have these ids; {give_up}."
            )
        return UnfinishedWorkError(
            f"{self._where} is in the middle of a turn that failed or was cancelled, so it takes no new message. "
            f"await agent.run(session=session) finishes it; {give_up}."
        )


async def _untold(checkpoint: Checkpoint | None) -> list[WorkflowEvent[Any]]:
    """Return what an unfinished turn has come to so far: the call that it failed in has told nobody."""
    if checkpoint is None or checkpoint.status != "in_progress":
        return []
    head = checkpoint.head_snapshot
    assert head is not None
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
