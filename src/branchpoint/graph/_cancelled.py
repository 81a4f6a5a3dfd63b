"""The answer that a request will not be answered."""

from __future__ import annotations

import msgspec

from branchpoint.codec import register_state_type

__all__ = ["RequestCancelled"]


@register_state_type("branchpoint.request_cancelled", immutable=True)
class RequestCancelled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Says that nobody will answer: a legal answer wherever a request's declared type includes it.

    Attributes:
        reason: Why, in words for the handler; None when nobody said.

    Example:
        >>> class Ask(Executor):
        ...     @handler
        ...     async def on_order(self, order: str, ctx: WorkflowContext[Never, str]) -> None:
        ...         await ctx.request_info(order, bool | RequestCancelled)
        ...
        ...     @response_handler
        ...     async def on_answer(
        ...         self, order: str, answer: bool | RequestCancelled, ctx: WorkflowContext[Never, str]
        ...     ) -> None:
        ...         await ctx.yield_output("given up" if isinstance(answer, RequestCancelled) else "decided")
    """

    reason: str | None = None
