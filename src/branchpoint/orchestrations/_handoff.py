"""The builder of handoffs: agents that give each other the word."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

from agent_framework import Agent, Message

from branchpoint.errors import DefinitionError
from branchpoint.graph import DEFAULT_MAX_ITERATIONS
from branchpoint.orchestrations._designation import IntermediateFrom, OutputFrom, designated
from branchpoint.orchestrations._handoff_agent import (
    CONVERSATION,
    DEFAULT_TURN_LIMIT,
    START,
    HandoffAgentExecutor,
)
from branchpoint.orchestrations._handoff_values import HandoffConfiguration
from branchpoint.orchestrations._participants import as_participants, participant_id
from branchpoint.orchestrations._termination import TerminationCondition, checked_condition
from branchpoint.workflow import Workflow, WorkflowBuilder

__all__ = ["HandoffBuilder"]

T = TypeVar("T")


class HandoffBuilder:
    """Lets agents hand a conversation over to each other, by tools that they are given.

    The start agent gets the input. An agent that calls a tool `handoff_to_<name>` gives the turn to that
    agent. After an answer that hands over to nobody, the user is asked, with a `HandoffAgentUserRequest`,
    or the agent goes on by itself, in autonomous mode. It ends when the user answers with nothing, or when
    a termination condition says so. Every answer is an output.

    Everybody may hand over to everybody, unless `add_handoff` says who may. Whoever gets the turn is given
    all that users and agents said since their last one, without tool calls.

    A message on a checkpoint whose run is over goes to the start agent. The conversation is kept; turns,
    and what a termination condition sees, begin anew.

    Example:
        ```python
        workflow = (
            HandoffBuilder(participants=[triage, refunds, orders])
            .add_handoff(triage, [refunds, orders])
            .add_handoff(refunds, [orders])
            .with_termination_condition(lambda conversation: "goodbye" in conversation[-1].text)
            .build()
        )
        ```
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        participants: Sequence[Agent[Any]] | None = None,
        description: str | None = None,
        termination_condition: TerminationCondition | None = None,
        output_from: OutputFrom = None,
        intermediate_output_from: IntermediateFrom = None,
    ) -> None:
        """Collect who takes part.

        Args:
            name: The workflow's name, "Handoff" by default.
            participants: The agents; `participants()` gives them later.
            description: What the workflow is for.
            termination_condition: See `with_termination_condition`.
            output_from: Whose answers are outputs, or "all"; everybody's by default.
            intermediate_output_from: Whose answers are intermediate outputs, "all", or "all_other" that are
                not in `output_from`. Those of others are not seen.

        Raises:
            DefinitionError: A participant is no `Agent`, two have one name, or the condition is no function.
        """
        self._name = name or "Handoff"
        self._description = description
        self._condition = checked_condition(termination_condition)
        self._output_from: OutputFrom = output_from
        self._intermediate_from: IntermediateFrom = intermediate_output_from
        self._agents: dict[str, Agent[Any]] = {}
        self._handoffs: dict[str, dict[str, str | None]] = {}
        self._start_id: str | None = None
        self._return_to_previous = True
        self._autonomous: frozenset[str] | None = frozenset()
        self._prompts: dict[str, str] = {}
        self._turn_limits: dict[str, int] = {}
        if participants is not None:
            self.participants(participants)

    def participants(self, participants: Sequence[Agent[Any]]) -> Self:
        """Give the agents, once.

        Raises:
            DefinitionError: There are some already or none, one is no `Agent`, or two have one name.
        """
        if self._agents:
            raise DefinitionError(f"This builder has the participants {list(self._agents)} already.")
        executors = as_participants(participants, lambda agent: HandoffAgentExecutor(agent, []))  # type: ignore[arg-type]
        for executor, agent in zip(executors, participants, strict=True):
            if not isinstance(agent, Agent):
                raise DefinitionError(f"Agents that hand over are of the class Agent, got {agent!r}.")
            self._agents[executor.id] = agent
        return self

    def add_handoff(
        self,
        source: str | Agent[Any],
        targets: Sequence[str | Agent[Any]],
        *,
        description: str | None = None,
    ) -> Self:
        """Let one agent hand over to others. With the first call, nobody else may, until it is said.

        Args:
            source: Who hands over, by agent or name.
            targets: To whom. Said again for the same two agents, the last description counts.
            description: What the model is told about these handoffs; otherwise the description of the
                target.

        Raises:
            DefinitionError: Somebody does not take part, or would hand over to itself.
        """
        source_id = self._known(source, "add_handoff")
        if isinstance(targets, str) or not targets:
            raise DefinitionError(f"add_handoff takes a list of agents as targets, got {targets!r}.")
        target_ids = [self._known(target, "add_handoff") for target in targets]
        if source_id in target_ids:
            raise DefinitionError(f"Agent {source_id!r} cannot hand over to itself.")
        self._handoffs.setdefault(source_id, {}).update(dict.fromkeys(target_ids, description))
        return self

    def with_start_agent(self, agent: str | Agent[Any]) -> Self:
        """Say who gets the input; the first participant does by default.

        Raises:
            DefinitionError: The agent does not take part.
        """
        self._start_id = self._known(agent, "with_start_agent")
        return self

    def enable_return_to_previous(self, enabled: bool = True) -> Self:
        """Say who gets what the user answers: the agent that asked, which is the default, or the start agent."""
        self._return_to_previous = enabled
        return self

    def with_autonomous_mode(
        self,
        *,
        agents: Sequence[str | Agent[Any]] | None = None,
        prompts: Mapping[str, str] | None = None,
        turn_limits: Mapping[str, int] | None = None,
    ) -> Self:
        """Let agents go on by themselves after an answer that hands over to nobody.

        Args:
            agents: Which; all of them by default.
            prompts: What they are told then, by name.
            turn_limits: How often they go on before the user is asked, by name; 50 times by default, and
                0 asks at once. The count begins anew with each turn that another agent or the user gives.

        Raises:
            DefinitionError: Somebody does not take part, a limit is no number, or a prompt or a limit is for
                somebody who does not go on.
        """
        self._autonomous = (
            None
            if agents is None
            else frozenset(self._known(agent, "with_autonomous_mode") for agent in agents)
        )
        self._prompts = self._by_name(prompts, "prompts")
        self._turn_limits = self._by_name(turn_limits, "turn_limits")
        for name in (*self._prompts, *self._turn_limits):
            if not self._goes_on(name):
                raise DefinitionError(
                    f"with_autonomous_mode has a prompt or a limit for {name!r}, who is not among its agents and does "
                    "not go on by itself."
                )
        for name, limit in self._turn_limits.items():
            if type(limit) is not int or limit < 0:
                raise DefinitionError(
                    f"The turn limit of {name!r} is a whole number, 0 or more, got {limit!r}."
                )
        return self

    def with_termination_condition(self, termination_condition: TerminationCondition) -> Self:
        """Say when the conversation is over.

        It is asked before each turn, and after an answer that hands over to nobody.

        Args:
            termination_condition: A function, plain or async, of what was said since the workflow got its
                last message, by users and agents and without tool calls.

        Raises:
            DefinitionError: It is no function.
        """
        self._condition = checked_condition(termination_condition)
        return self

    def build(self) -> Workflow:
        """Check everything and make the workflow.

        Raises:
            DefinitionError: There are no participants, outputs are wrong, two tools have one name, or nobody
                hands over to one of the agents.
            GraphConnectivityError: Agents hand over to each other alone.
        """
        if not self._agents:
            raise DefinitionError("Handoffs need participants: HandoffBuilder(participants=[...]).")
        start_id = self._start_id or next(iter(self._agents))
        executors = {name: self._executor(name, start_id) for name in self._agents}
        outputs, intermediate = designated(
            list(executors.values()),
            self._output_from,
            self._intermediate_from,
            default=list(executors.values()),
        )
        # A turn of autonomous mode is a superstep, and there may be that many between two handoffs.
        limits = [
            self._turn_limits.get(name, DEFAULT_TURN_LIMIT) for name in self._agents if self._goes_on(name)
        ]
        builder = WorkflowBuilder(
            max_iterations=DEFAULT_MAX_ITERATIONS * (1 + max(limits, default=0)),
            name=self._name,
            description=self._description,
            start_executor=executors[start_id],
            output_from=outputs,
            intermediate_output_from=intermediate,
        )
        builder.add_state(CONVERSATION, list[Message], factory=list, reducer=operator.add)
        builder.add_state(START, int, default=0)
        edges = self._edges(start_id)
        alone = [name for name in self._agents if name != start_id and all(name != to for _, to in edges)]
        if alone:
            raise DefinitionError(
                f"Nobody hands over to {', '.join(map(repr, alone))}: say who does with add_handoff, or leave them out."
            )
        for source, target in edges:
            builder.add_edge(executors[source], executors[target])
        return builder.build()

    def _executor(self, name: str, start_id: str) -> HandoffAgentExecutor:
        return HandoffAgentExecutor(
            self._agents[name],
            self._handoffs_of(name),
            user_response_target_id=None if self._return_to_previous else start_id,
            termination_condition=self._condition,
            autonomous_mode=self._goes_on(name),
            autonomous_mode_prompt=self._prompts.get(name),
            autonomous_mode_turn_limit=self._turn_limits.get(name),
        )

    def _handoffs_of(self, name: str) -> list[HandoffConfiguration]:
        everybody = dict.fromkeys(other for other in self._agents if other != name)
        targets = self._handoffs.get(name, {}) if self._handoffs else everybody
        return [
            HandoffConfiguration(target=target, description=said or self._agents[target].description)
            for target, said in targets.items()
        ]

    def _edges(self, start_id: str) -> list[tuple[str, str]]:
        """Return who gives the turn to whom, each pair once."""
        edges: dict[tuple[str, str], None] = {}
        for name in self._agents:
            edges |= dict.fromkeys((name, handoff.target_id) for handoff in self._handoffs_of(name))
            if not self._return_to_previous and name != start_id:
                edges[name, start_id] = None
            if self._goes_on(name):
                edges[name, name] = None
        return list(edges)

    def _goes_on(self, name: str) -> bool:
        return self._autonomous is None or name in self._autonomous

    def _known(self, agent: str | Agent[Any], where: str) -> str:
        name = participant_id(agent)
        if name not in self._agents:
            raise DefinitionError(f"{where} names {name!r}, who is not among {sorted(self._agents)}.")
        return name

    def _by_name(self, given: Mapping[str, T] | None, what: str) -> dict[str, T]:
        return {
            self._known(name, f"{what} of with_autonomous_mode"): value
            for name, value in (given or {}).items()
        }
