"""What a developer writes to define a workflow is typed, without one cast or ignore."""

import operator
from dataclasses import dataclass
from typing import Never, assert_type

from branchpoint import (
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    merge,
    response_handler,
    scratch,
    state,
)


@dataclass
class Question:
    text: str


class Tally(Executor):
    seen: list[str] = state(factory=list)
    count: int = state(0)
    cache: dict[str, int] = scratch(factory=dict)

    @handler
    async def on_word(self, word: str, ctx: WorkflowContext[str, int]) -> None:
        self.seen.append(word)
        self.count += 1
        assert_type(self.count, int)
        assert_type(self.seen, list[str])
        await ctx.send_message(word)
        await ctx.yield_output(len(self.seen))

    @handler
    async def on_number(self, number: int, ctx: WorkflowContext) -> None:
        ctx.set_state("number", number)
        request_id = await ctx.request_info(Question(text=str(number)), bool)
        assert_type(request_id, str)

    @response_handler
    async def on_answer(self, question: Question, answer: bool, ctx: WorkflowContext[Never, int]) -> None:
        await ctx.yield_output(int(answer))

    @handler
    def on_flag(self, flag: bool, ctx: WorkflowContext) -> None:
        self.count += 1


@executor(id="upper")
async def upper(word: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(word.upper())


tally = Tally(id="tally")
builder = WorkflowBuilder(name="words", start_executor=upper).add_edge(upper, tally)
builder.add_state("total", type=int, default=0, reducer=operator.add)
builder.add_state("notes", type=dict, factory=dict, reducer=merge)
assert_type(builder.build(), Workflow)
