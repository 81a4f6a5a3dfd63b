"""A functional workflow as an agent: what it asks is answered through a session that was saved."""

from __future__ import annotations

import json

from agent_framework import AgentSession, Content

from branchpoint.functional import RunContext, step, workflow
from tests.scenario.kit import Ticks


async def test_r53_a_function_is_an_agent_that_asks_and_goes_on_from_a_saved_session(ticks: Ticks) -> None:
    @step
    async def price(item: str) -> int:
        ticks("price")
        return len(item)

    @workflow(description="Orders what is asked for.")
    async def order(item: str, ctx: RunContext) -> str:
        total = await price(item)
        return f"ordered for {total}" if await ctx.request_info({"total": total}, bool) else "not ordered"

    agent = order.as_agent()
    assert (agent.name, agent.description) == ("order", "Orders what is asked for.")
    sessions = [agent.create_session() for _ in range(2)]
    for session, item in zip(sessions, ("tea", "rice"), strict=True):
        (question,) = (await agent.run(item, session=session)).user_input_requests
        assert question.parse_arguments()["data"] == {"total": len(item)}
    for session, item, answer in zip(sessions, ("tea", "rice"), (True, False), strict=True):
        saved = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
        checkpoint = await agent.get_checkpoint(saved)
        assert checkpoint is not None
        [request] = checkpoint.pending_requests
        result = Content.from_function_result(request.request_id, result=answer)
        response = await agent.run(result, session=saved)
        assert response.text == (f"ordered for {len(item)}" if answer else "not ordered")
    assert ticks["price"] == 2
