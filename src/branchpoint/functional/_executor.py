"""The one executor of a functional workflow: its state is what the function has behind it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Never

from branchpoint.codec import copy_value
from branchpoint.errors import DefinitionError, OutputTypeError
from branchpoint.functional._context import RunContext, is_context
from branchpoint.functional._execution import Execution
from branchpoint.functional._journal import Journal
from branchpoint.graph import CodedExecutor, WorkflowContext, port_of

__all__ = ["FunctionalExecutor"]


class FunctionalExecutor(CodedExecutor):
    """Runs the function from its top at every message and at every answer.

    Attributes:
        journal: What the turn has behind it; None before the first one.
    """

    form: ClassVar[str] = "(message: T) or (message: T, ctx: RunContext)"
    journal: Journal | None

    def __init__(self, func: Any, id: str) -> None:
        super().__init__(func, id)
        _check_parameters(func)
        self.journal = None
        self.notation: Any = None

    def on_snapshot_save(self) -> dict[str, Any]:
        """Return the journal."""
        return {} if self.journal is None else self.journal.export(*self.notation)

    def on_snapshot_restore(self, state: dict[str, Any]) -> None:
        """Take the journal."""
        self.journal = Journal.of(state)

    async def start(self, message: Any, ctx: WorkflowContext[Never, Any]) -> None:
        """Begin a turn, or go on with the one that this message began."""
        if self.journal is None or self.journal.turn != port_of(ctx).turn:
            self.journal = Journal(port_of(ctx).turn, message)
        await self._run(ctx)

    async def on_answer(self, request: Any, answer: Any, ctx: WorkflowContext[Never, Any]) -> None:
        """Take an answer, and go on once all that were given are there."""
        journal = self.journal
        assert journal is not None
        for key, request_id in list(journal.asked.items()):
            if request_id == ctx.request_id:
                journal.answers[key] = answer
                del journal.asked[key]
        if port_of(ctx).is_last:
            await self._run(ctx)

    async def _run(self, ctx: WorkflowContext[Never, Any]) -> None:
        port, journal = port_of(ctx), self.journal
        assert journal is not None
        self.notation = port.format, port.depth
        if journal.over:
            return
        execution = Execution(port, journal, RunContext)
        message = copy_value(journal.message)
        args = (message, execution.context) if self.wants_context else (message,)
        journal.over, result = await execution.run(self.function(*args))
        journal.arrange(execution.orders)
        if not journal.over:
            port.forget_state()  # the function will set it again, from its top
        else:
            for request_id in journal.asked.values():
                port.withdraw(request_id)  # the function came to its end without those answers
            journal.asked = {}
            if result is not None:
                await self._yield(result, ctx)

    async def _yield(self, result: Any, ctx: WorkflowContext[Never, Any]) -> None:
        try:
            await ctx.yield_output(result)
        except OutputTypeError:
            declared = inspect.formatannotation(inspect.signature(self.function).return_annotation)
            raise OutputTypeError(
                f"Function {self.id!r} returned a {type(result).__name__}, and declares {declared}. "
                "Annotate it so, or convert the value."
            ) from None


def _check_parameters(func: Callable[..., Any]) -> None:
    """Refuse a function that would get its context where it wants something else."""
    message, *rest = inspect.signature(func).parameters.values()
    called = f"Function {getattr(func, '__name__', func)!r}"
    if message.name in ("self", "cls"):
        raise DefinitionError(
            f"{called} is a method; a workflow is a function. Make one that takes all it needs as its message."
        )
    if is_context(message.annotation, func):
        raise DefinitionError(
            f"{called} takes the context as its first parameter; the message comes first: {FunctionalExecutor.form}."
        )
    for one in rest:
        free = one.annotation is one.empty or str(one.annotation).rpartition(".")[2] == "Any"
        if not free and not is_context(one.annotation, func):
            raise DefinitionError(
                f"{called} has {one.name!r} as its second parameter, which gets the RunContext. Annotate it so; "
                "a workflow has one message, so put several values into a dict or a dataclass."
            )
