"""A conversation in which an agent chooses who speaks next."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from agent_framework import AgentResponse, AgentSession, Message, SupportsAgentRun
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from branchpoint.agents import as_messages, run_whole
from branchpoint.codec import copy_value
from branchpoint.errors import HandlerError
from branchpoint.graph import state
from branchpoint.orchestrations._group_chat_base import BaseGroupChatOrchestrator, ChatContext
from branchpoint.orchestrations._json_answers import objects_in, quoted
from branchpoint.orchestrations._participants import participant_id
from branchpoint.orchestrations._registry import ParticipantRegistry
from branchpoint.orchestrations._termination import TerminationCondition
from branchpoint.orchestrations._turns import checked_limit, checked_speaker

__all__ = ["AgentBasedGroupChatOrchestrator", "AgentOrchestrationOutput"]

_INSTRUCTION: Final = """Say how the conversation goes on, as one JSON object and nothing else:
{{
  "terminate": true or false,
  "reason": "why",
  "next_speaker": "the name of who speaks next, exactly as below, or null to end",
  "final_message": "what the user is told at the end, or null"
}}
Who can speak:
{team}"""


class AgentOrchestrationOutput(BaseModel):
    """What an orchestrator agent answers.

    Attributes:
        terminate: Whether the conversation is over.
        reason: Why it decided so.
        next_speaker: Who speaks next, unless it is over.
        final_message: What the user is told, if it is.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        # Strict structured output wants every property among the required ones.
        json_schema_extra={"required": ["terminate", "reason", "next_speaker", "final_message"]},
    )

    terminate: bool
    reason: str
    next_speaker: str | None = Field(default=None, description="Who speaks next, unless it is over")
    final_message: str | None = Field(default=None, description="What the user is told, if it is over")


class AgentBasedGroupChatOrchestrator(BaseGroupChatOrchestrator):
    """Leads a conversation in which an agent chooses who speaks next, and when it is over.

    The agent is shared; its session is declared state. It is told what is new since it was last asked,
    and answers with an `AgentOrchestrationOutput`.

    Attributes:
        agent_session: The agent's session; made when it is first asked.
        told: How many messages of the conversation it has been given.
    """

    agent_session: AgentSession | None = state(None)
    told: int = state(0)

    def __init__(
        self,
        agent: SupportsAgentRun,
        participant_registry: ParticipantRegistry,
        *,
        max_rounds: int | None = None,
        termination_condition: TerminationCondition | None = None,
        retry_attempts: int | None = None,
        session: AgentSession | None = None,
    ) -> None:
        """Make the definition of an orchestrator; its id is the agent's name.

        Args:
            agent: Chooses who speaks next.
            participant_registry: Who takes part.
            max_rounds: How many turns an input gets; see `BaseGroupChatOrchestrator`.
            termination_condition: Says whether the conversation is over, before the agent is asked.
            retry_attempts: How often the agent is asked again when its answer cannot be used; not at all
                by default.
            session: What every new conversation of the agent begins with, by value.

        Raises:
            DefinitionError: An argument is of the wrong form.
        """
        super().__init__(
            participant_id(agent),
            participant_registry,
            name=getattr(agent, "name", None),
            max_rounds=max_rounds,
            termination_condition=termination_condition,
        )
        if session is not None:
            self.agent_session = session
        self._agent = agent
        self._retries = checked_limit("retry_attempts", retry_attempts, least=0) or 0

    async def _choose(self, ctx: ChatContext) -> str | Message:
        session = self.agent_session
        if session is None:
            # The key is the same when this is executed again, so the session is the same one, too.
            session = self.agent_session = self._agent.create_session(session_id=ctx.idempotency_key)
        options: dict[str, Any] = dict(ctx.run_options)
        options.pop("tools", None)  # those are for who does the work
        options["options"] = {"response_format": AgentOrchestrationOutput}
        participants = self._registry.participants
        team = "\n".join(f"{name}: {description}" for name, description in participants.items())
        question = [*copy_value(self.conversation[self.told :]), *as_messages(_INSTRUCTION.format(team=team))]
        self.told = len(self.conversation)
        for left in range(self._retries, -1, -1):
            response = await run_whole(self._agent, question, session, options)
            try:
                return self._chosen(_read(response), participants)
            except (ValueError, HandlerError) as error:
                if left == 0:
                    raise HandlerError(
                        f"The agent {self.id!r}, which leads the conversation, was asked {self._retries + 1} time(s) "
                        f"in round {self.round_index} and gave no usable answer; the last one was "
                        f"{quoted(response.text)}: {error} Nothing of this superstep was kept; run the checkpoint "
                        "again, or mend the agent."
                    ) from error
                question = as_messages(f"This answer cannot be used: {error} Answer again, as JSON.")
        raise AssertionError("unreachable")

    def _chosen(self, output: AgentOrchestrationOutput, participants: Any) -> str | Message:
        if not output.terminate:
            return checked_speaker(output.next_speaker, participants, "It")
        return self._create_completion_message(output.final_message or f"It is over: {output.reason}")

    async def _yield_completion(self, ctx: ChatContext, message: Message) -> None:
        await super()._yield_completion(ctx, message)
        if self.told == len(self.conversation) - 1:
            self.told += 1  # what it said itself is in its session


def _read(response: AgentResponse[Any]) -> AgentOrchestrationOutput:
    """Return what an agent answered: a structured value, or the last fitting object in its text."""
    try:
        value = response.value
    except (ValueError, TypeError):  # pydantic's ValidationError is a ValueError
        value = None
    if value is not None:
        return AgentOrchestrationOutput.model_validate(value)
    trouble = "there is no JSON object in it."
    for found in reversed(objects_in(response.text)):
        try:
            return AgentOrchestrationOutput.model_validate(found)
        except ValidationError as error:
            trouble = (
                "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()) + "."
            )
    raise ValueError(trouble)
