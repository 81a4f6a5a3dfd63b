"""The executor that leads a conversation: it asks one participant after the other to speak."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

from agent_framework import AgentResponse, Message

from branchpoint.agents import AgentExecutorRequest, AgentExecutorResponse, as_messages
from branchpoint.codec import copy_value
from branchpoint.errors import DefinitionError, HandlerError
from branchpoint.events import WorkflowEvent
from branchpoint.graph import Executor, WorkflowContext, handler, state
from branchpoint.orchestrations._cleaning import clean_conversation_for_handoff, create_completion_message
from branchpoint.orchestrations._group_chat_messages import (
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatRequestSentEvent,
    GroupChatResponseMessage,
    GroupChatResponseReceivedEvent,
    MagenticResetSignal,
)
from branchpoint.orchestrations._registry import ParticipantRegistry
from branchpoint.orchestrations._termination import TerminationCondition, checked_condition, is_over
from branchpoint.orchestrations._turns import checked_limit, is_spent

__all__ = ["BaseGroupChatOrchestrator", "ChatContext"]

ChatContext: TypeAlias = WorkflowContext[
    AgentExecutorRequest | GroupChatRequestMessage | GroupChatParticipantMessage | MagenticResetSignal,
    AgentResponse,
]


class BaseGroupChatOrchestrator(Executor):
    """Leads a conversation: tells participants what others say, and asks one of them at a time to speak.

    A subclass says in `_choose` what comes next. Everything a conversation is at is declared state, so
    one orchestrator serves any number of checkpoints at once. A participant is only ever told what is
    new to it, so what is stored grows with what is said.

    An input on a checkpoint whose conversation is over continues it: what was said stays, the rounds
    are counted from 0 again, and the condition looks at what is said from then on.

    Attributes:
        conversation: All that was said.
        round_index: How many rounds have begun since the last input.
        said_before: How much of the conversation was said before the last input.
        asked: Who was asked to speak and has not spoken.
    """

    TERMINATION_CONDITION_MET_MESSAGE: ClassVar[str] = (
        "The conversation is over: its condition for that holds."
    )
    MAX_ROUNDS_MET_MESSAGE: ClassVar[str] = "The conversation is over: all of its rounds are used up."

    conversation: list[Message] = state(factory=list)
    round_index: int = state(0)
    said_before: int = state(0)
    asked: list[str] = state(factory=list)

    def __init__(
        self,
        id: str,
        participant_registry: ParticipantRegistry,
        *,
        name: str | None = None,
        max_rounds: int | None = None,
        termination_condition: TerminationCondition | None = None,
    ) -> None:
        """Make the definition of an orchestrator.

        Args:
            id: The executor's id.
            participant_registry: Who takes part.
            name: Under which name it says that the conversation is over; the id by default.
            max_rounds: How many turns of participants an input gets, at least 1; no limit by default.
            termination_condition: Says after each input and turn whether the conversation is over, of what
                was said since the last input, which is the first of it.

        Raises:
            DefinitionError: The limit is no number above 0, or the condition is no function.
        """
        super().__init__(id=id)
        if not isinstance(participant_registry, ParticipantRegistry):
            raise DefinitionError(
                f"An orchestrator needs a ParticipantRegistry of its participants, got {participant_registry!r}."
            )
        self._registry = participant_registry
        self._name = name or id
        self._max_rounds = checked_limit("max_rounds", max_rounds, least=1)
        self._condition = checked_condition(termination_condition)

    @property
    def registry(self) -> ParticipantRegistry:
        """Who takes part."""
        return self._registry

    @property
    def max_rounds(self) -> int | None:
        """How many turns an input gets."""
        return self._max_rounds

    @handler
    async def handle_str(self, task: str, ctx: ChatContext) -> None:
        """Take what a user says."""
        await self._take(as_messages(task), ctx)

    @handler
    async def handle_message(self, task: Message, ctx: ChatContext) -> None:
        """Take a message."""
        await self._take([task], ctx)

    @handler
    async def handle_messages(self, task: list[str | Message], ctx: ChatContext) -> None:
        """Take messages and texts."""
        if not task:
            raise HandlerError(f"Executor {self.id!r} was given no message; a conversation begins with one.")
        await self._take(as_messages(task), ctx)

    @handler
    async def handle_participant_response(
        self, response: AgentExecutorResponse | GroupChatResponseMessage, ctx: ChatContext
    ) -> None:
        """Take a participant's turn.

        Raises:
            HandlerError: It was not asked, so that the conversation would go two ways from here.
        """
        name = ctx.get_source_executor_id()
        if name not in self.asked:
            raise HandlerError(
                f"Participant {name!r} spoke without being asked: it answers each request once. Nothing of this "
                "superstep was kept; mend the participant, take the checkpoint back with restart_from to before it "
                "spoke, and run it again."
            )
        self.asked.remove(name)
        await self._tell(ctx, GroupChatResponseReceivedEvent(self.round_index, name))
        await self._handle_response(response, ctx)

    async def _take(self, messages: list[Message], ctx: ChatContext) -> None:
        self.asked = []  # whose turn was cancelled does not speak any more
        await self._handle_messages(messages, ctx)

    @abstractmethod
    async def _choose(self, ctx: ChatContext) -> str | Message:
        """Return who speaks next, or the message that ends the conversation."""

    async def _handle_messages(self, messages: list[Message], ctx: ChatContext) -> None:
        """Begin, or go on with another input."""
        self.round_index, self.said_before = 0, len(self.conversation)
        self._append_messages(messages)
        await self._broadcast_messages_to_participants(messages, ctx)
        if not await self._check_terminate_and_yield(ctx):
            await self._go_on(ctx)

    async def _handle_response(
        self, response: AgentExecutorResponse | GroupChatResponseMessage, ctx: ChatContext
    ) -> None:
        """Go on after a turn. Others are told of it also when it was the last: there may be another input."""
        messages = clean_conversation_for_handoff(self._process_participant_response(response))
        self._append_messages(messages)
        speaker = ctx.get_source_executor_id()
        others = [name for name in self._registry.participants if name != speaker]
        await self._broadcast_messages_to_participants(messages, ctx, others)
        await self._after_turn(ctx)

    async def _after_turn(self, ctx: ChatContext) -> None:
        """End the conversation, or go on with it."""
        if await self._check_terminate_and_yield(ctx) or await self._check_round_limit_and_yield(ctx):
            return
        await self._go_on(ctx)

    async def _go_on(self, ctx: ChatContext) -> None:
        chosen = await self._choose(ctx)
        if isinstance(chosen, Message):
            await self._broadcast_messages_to_participants([chosen], ctx)
            await self._yield_completion(ctx, chosen)
            return
        await self._send_request_to_participant(chosen, ctx)
        self.round_index += 1

    def _append_messages(self, messages: Sequence[Message]) -> None:
        """Add to the conversation."""
        self.conversation.extend(messages)

    def _get_conversation(self) -> list[Message]:
        """Return a copy of what was said, for functions and managers of the caller."""
        said: list[Message] = copy_value(self.conversation)
        return said

    def _process_participant_response(
        self, response: AgentExecutorResponse | GroupChatResponseMessage
    ) -> list[Message]:
        """Return what a participant said."""
        if isinstance(response, AgentExecutorResponse):
            return response.agent_response.messages
        return [response.message]

    def _create_completion_message(self, message: str) -> Message:
        """Return a message of the orchestrator's own."""
        return create_completion_message(text=message, author_name=self._name)

    async def _check_terminate_and_yield(self, ctx: ChatContext) -> bool:
        """End the conversation if its condition holds; say whether it does."""
        over = await is_over(self._condition, self.conversation[self.said_before :], self.id)
        if over:
            message = self._create_completion_message(self.TERMINATION_CONDITION_MET_MESSAGE)
            await self._yield_completion(ctx, message)
        return over

    async def _check_round_limit_and_yield(self, ctx: ChatContext) -> bool:
        """End the conversation if its rounds are used up; say whether they are."""
        spent = is_spent(self.round_index, self._max_rounds)
        if spent:
            await self._yield_completion(ctx, self._create_completion_message(self.MAX_ROUNDS_MET_MESSAGE))
        return spent

    async def _yield_completion(self, ctx: ChatContext, message: Message) -> None:
        """Add the last message to the conversation and yield it."""
        self._append_messages([message])
        await ctx.yield_output(AgentResponse(messages=[message]))

    async def _broadcast_messages_to_participants(
        self, messages: list[Message], ctx: ChatContext, participants: Sequence[str] | None = None
    ) -> None:
        """Tell participants, or some of them, what was said; nobody answers."""
        names = self._registry.participants if participants is None else participants
        for name in names if messages else ():
            if self._registry.is_agent(name):
                await ctx.send_message(AgentExecutorRequest(messages, should_respond=False), target_id=name)
            elif self._registry.hears(name):
                await ctx.send_message(GroupChatParticipantMessage(messages), target_id=name)

    async def _send_request_to_participant(
        self,
        target: str,
        ctx: ChatContext,
        *,
        additional_instruction: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Ask a participant to speak.

        Args:
            target: Who.
            ctx: The context of the handler.
            additional_instruction: What it is to do now.
            metadata: More for an executor; agents do not get it.
        """
        request: AgentExecutorRequest | GroupChatRequestMessage
        if self._registry.is_agent(target):
            instruction = as_messages(additional_instruction) if additional_instruction else []
            request = AgentExecutorRequest(instruction)
        else:
            request = GroupChatRequestMessage(additional_instruction, metadata)
        await ctx.send_message(request, target_id=target)
        self.asked.append(target)
        await self._tell(ctx, GroupChatRequestSentEvent(self.round_index, target))

    async def _tell(
        self, ctx: ChatContext, data: GroupChatRequestSentEvent | GroupChatResponseReceivedEvent
    ) -> None:
        await ctx.add_event(WorkflowEvent("group_chat", data=data, executor_id=self.id))
