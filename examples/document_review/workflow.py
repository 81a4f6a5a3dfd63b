"""The review as a workflow: its executors, and the edges between them.

    planner ──Batch──▶ reviewer-1 … reviewer-4 ──[Reviewed, …]──▶ planner     (a loop, batch by batch)
    planner ──AllReviewed──▶ desk ──Decision──▶ publisher, or archive        (after a person's answer)

What must survive is in `state()` fields, in the shared state `reviews`, and in messages. Attributes
set in `__init__` are configuration or services of the process, and are not part of any snapshot.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Never

from agent_framework import SupportsAgentRun
from documents import examine
from messages import AllReviewed, Batch, Decision, Job, Outcome, Question, Review, Reviewed
from report import publish, rejection, report
from summarise import reading_minutes
from summariser import choose, summariser
from ticks import TickLog

from branchpoint import (
    Case,
    Default,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    handler,
    response_handler,
    state,
)

__all__ = ["Services", "build"]

REVIEWERS = 4
# Every batch takes two supersteps; a folder of any size must come to its end.
MAX_ITERATIONS = 1_000_000


@dataclass(frozen=True)
class Services:
    """What the process gives to the executors; none of it is state.

    Attributes:
        ticks: The log outside of the workflow.
        published: The folder that reports go to.
        pace: Seconds that a reviewer takes for each document, so that a person can watch.
        gate: Called before the last document of a batch, with its number and the document; waits there.
        summariser: The agent that chooses what a summary says; all reviewers share it, and it holds nothing.
    """

    ticks: TickLog
    published: Path
    pace: float = 0.0
    gate: Callable[[int, str], Awaitable[None]] | None = None
    summariser: SupportsAgentRun = field(default_factory=summariser)


class Planner(Executor):
    """Splits the documents into batches and sends the next one when the one before is done."""

    root: str = state("")
    left: list[str] = state(factory=list)
    batch_size: int = state(1)
    number: int = state(0)
    closed_folders: tuple[str, ...] = state(())

    def __init__(self, services: Services) -> None:
        super().__init__(id="planner")
        self._ticks = services.ticks

    @handler
    async def on_job(self, job: Job, ctx: WorkflowContext[Batch | AllReviewed]) -> None:
        self._ticks.add(self.id, ctx.idempotency_key)
        self.root, self.left, self.number = job.root, list(job.documents), 0
        self.batch_size, self.closed_folders = job.batch_size, job.closed_folders
        ctx.delete_state("reviews")  # those of an earlier job on this checkpoint
        await self._next(ctx)

    @handler
    async def on_batch_done(self, parts: list[Reviewed], ctx: WorkflowContext[Batch | AllReviewed]) -> None:
        self._ticks.add(self.id, ctx.idempotency_key)
        await self._next(ctx)

    async def _next(self, ctx: WorkflowContext[Batch | AllReviewed]) -> None:
        if not self.left:
            await ctx.send_message(AllReviewed(self.root, self.closed_folders))
            return
        self.number += 1
        documents, self.left = self.left[: self.batch_size], self.left[self.batch_size :]
        await ctx.send_message(Batch(self.number, self.root, tuple(documents)))


class Reviewer(Executor):
    """Reviews its share of each batch: every fourth document of it, when there are four reviewers."""

    reviewed: int = state(0)

    def __init__(self, number: int, services: Services) -> None:
        super().__init__(id=f"reviewer-{number}")
        self._offset = number - 1
        self._services = services

    @handler
    async def on_batch(self, batch: Batch, ctx: WorkflowContext[Reviewed]) -> None:
        services = self._services
        services.ticks.add(self.id, ctx.idempotency_key)
        reviews = []
        for document in batch.documents[self._offset :: REVIEWERS]:
            if services.pace:
                await asyncio.sleep(services.pace)
            if services.gate is not None and document == batch.documents[-1]:
                await services.gate(batch.number, document)
            reviews.append(await self._review(batch.root, document))
            services.ticks.add(self.id, ctx.idempotency_key, document)
            self.reviewed += 1
            # Told at once and never saved: after a kill the same document may be told again.
            progress = {"batch": batch.number, "document": document, "problem": reviews[-1].problem}
            await ctx.add_event(WorkflowEvent("data", progress))
        if reviews:
            ctx.set_state("reviews", reviews)  # the reducer joins what the reviewers of a superstep wrote
        await ctx.send_message(Reviewed(batch.number, tuple(review.document for review in reviews)))

    async def _review(self, root: str, document: str) -> Review:
        examined = await asyncio.to_thread(examine, root, document)
        summary = examined.summary
        if summary is not None and summary.words:
            summary = replace(summary, sentences=await choose(self._services.summariser, examined.text))
        return Review(document, summary, examined.broken_links, examined.problem)


class Desk(Executor):
    """Asks a person whether the report may be published."""

    def __init__(self, services: Services) -> None:
        super().__init__(id="desk")
        self._ticks = services.ticks

    @handler
    async def on_all_reviewed(self, done: AllReviewed, ctx: WorkflowContext) -> None:
        self._ticks.add(self.id, ctx.idempotency_key)
        reviews: list[Review] = ctx.get_state("reviews", copy=False)
        await ctx.request_info(_question(done, reviews), bool)

    @response_handler
    async def on_answer(self, question: Question, approved: bool, ctx: WorkflowContext[Decision]) -> None:
        self._ticks.add(self.id, ctx.idempotency_key)
        await ctx.send_message(Decision(question, approved))


class Publisher(Executor):
    """Publishes the report. Alone in its superstep, so nothing else can make it happen again."""

    def __init__(self, services: Services) -> None:
        super().__init__(id="publisher")
        self._services = services

    @handler
    async def on_decision(self, decision: Decision, ctx: WorkflowContext[Never, Outcome]) -> None:
        services = self._services
        services.ticks.add(self.id, ctx.idempotency_key)
        text = report(decision.question, ctx.get_state("reviews", copy=False))
        name, _ = await asyncio.to_thread(publish, services.published, "report", ctx.idempotency_key, text)
        await ctx.yield_output(Outcome("report", name))


class Archive(Executor):
    """Keeps a note of a report that was rejected."""

    def __init__(self, services: Services) -> None:
        super().__init__(id="archive")
        self._services = services

    @handler
    async def on_decision(self, decision: Decision, ctx: WorkflowContext[Never, Outcome]) -> None:
        services = self._services
        services.ticks.add(self.id, ctx.idempotency_key)
        text = rejection(decision.question)
        name, _ = await asyncio.to_thread(publish, services.published, "rejected", ctx.idempotency_key, text)
        await ctx.yield_output(Outcome("rejected", name))


def is_approved(decision: Decision) -> bool:
    """Say which way a decision goes; the name is part of the graph's signature."""
    return decision.approved


def build(services: Services) -> Workflow:
    """Build the review. Any process that builds it the same way can go on with its checkpoints."""
    planner, desk = Planner(services), Desk(services)
    reviewers = [Reviewer(number, services) for number in range(1, REVIEWERS + 1)]
    routes: list[Case | Default] = [Case(is_approved, Publisher(services)), Default(Archive(services))]
    return (
        WorkflowBuilder(name="document-review", start_executor=planner, max_iterations=MAX_ITERATIONS)
        .add_state("reviews", list[Review], factory=list, reducer=operator.add)
        .add_fan_out_edges(planner, reviewers)
        .add_fan_in_edges(reviewers, planner)
        .add_edge(planner, desk)
        .add_switch_case_edge_group(desk, routes)
        .build()
    )


def _question(done: AllReviewed, reviews: list[Review]) -> Question:
    summaries = [review.summary for review in reviews if review.summary is not None]
    words = sum(summary.words for summary in summaries)
    return Question(
        root=done.root,
        documents=len(reviews),
        words=words,
        minutes=reading_minutes(words),
        problems=tuple(f"{review.document}: {review.problem}" for review in reviews if review.problem),
        broken_links=sum(len(review.broken_links) for review in reviews),
        closed_folders=done.closed_folders,
    )
