"""Functions as executors."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Never

import pytest

from branchpoint.errors import DefinitionError
from branchpoint.graph import (
    FunctionExecutor,
    SyncWorkflowContext,
    WorkflowContext,
    definition_copy,
    dehydrate,
    executor,
    find_handler,
    hydrate,
    spawn,
)

if TYPE_CHECKING:
    from decimal import Decimal


class Order: ...


async def shout(word: str, ctx: WorkflowContext[str, int]) -> None: ...


async def plain(word: str) -> None: ...


def measure(word: str) -> int:
    return len(word)


def note(word: str, ctx: WorkflowContext) -> None: ...


def both(word: str, ctx: SyncWorkflowContext[str]) -> int | None: ...


def silent(word: str): ...  # type: ignore[no-untyped-def]


def partly(word: str, ctx: WorkflowContext[Order]): ...  # type: ignore[no-untyped-def]


async def yields(word: str, ctx: WorkflowContext[Never, Order]) -> Never: ...  # type: ignore[misc]


@pytest.mark.parametrize(
    ("function", "is_async", "wants_context", "sent", "yielded"),
    [
        (shout, True, True, (str,), (int,)),
        (plain, True, False, (), ()),
        (measure, False, False, (int,), ()),
        (note, False, True, None, None),
        (both, False, True, (str, int), ()),
        (silent, False, False, None, ()),
        (partly, False, True, (Order,), ()),
        (yields, True, True, (), (Order,)),
    ],
)
def test_what_a_function_sends_is_in_its_annotations(
    function: Any, is_async: bool, wants_context: bool, sent: Any, yielded: Any
) -> None:
    made = executor(function)
    (spec,) = made.handlers
    assert made.id == spec.name == function.__name__
    assert made.type == "FunctionExecutor" and made.function is function
    assert (spec.message_type, spec.is_async, spec.wants_context) == (str, is_async, wants_context)
    assert (spec.output_types, spec.workflow_output_types) == (sent, yielded)
    assert spec.sends_result and not spec.is_method


async def test_calling_passes_what_the_function_takes() -> None:
    async def one(message: str) -> str:
        return f"one {message}"

    def two(message: str, ctx: WorkflowContext) -> str:
        return f"two {message} {ctx}"

    first, second = executor(one), executor(two)
    assert await first.handlers[0].call(spawn(first), "a", "ctx") == "one a"
    assert second.handlers[0].call(spawn(second), "a", "ctx") == "two a ctx"


def test_types_may_be_given_instead() -> None:
    @executor(id="other", input="Order | None", output=str, workflow_output=bool)
    async def given(message, ctx):  # type: ignore[no-untyped-def]
        ...

    (spec,) = given.handlers
    assert given.id == "other" and spec.name == "given"
    assert spec.message_type == Order | None
    assert (spec.output_types, spec.workflow_output_types) == ((str,), (bool,))


def test_what_is_not_given_comes_from_the_annotations() -> None:
    @executor(output=bytes)
    async def partly_given(message: str, ctx: WorkflowContext[str, int]) -> None: ...

    @executor(input=str)
    def untyped(message, ctx):  # type: ignore[no-untyped-def]
        ...

    (spec,) = partly_given.handlers
    assert (spec.message_type, spec.output_types, spec.workflow_output_types) == (str, (bytes,), (int,))
    (spec,) = untyped.handlers
    assert (spec.output_types, spec.workflow_output_types) == (None, None)


def test_local_types_are_found() -> None:
    class Local: ...

    @executor
    async def local(message: Local, ctx: WorkflowContext[list[Local]]) -> None: ...

    assert local.input_types == [Local] and local.output_types == [list[Local]]


def test_partials_callables_and_bound_methods_are_functions_too() -> None:
    class Service:
        async def __call__(self, message: Order, ctx: WorkflowContext[str]) -> None: ...

        def lookup(self, message: str) -> Order: ...  # type: ignore[empty-body]

    def scaled(by: int, message: str) -> int:
        return by * len(message)

    called = FunctionExecutor(Service(), "called")
    assert called.input_types == [Order] and called.handlers[0].is_async
    service = Service()
    looked = executor(service.lookup)
    assert looked.id == "lookup" and looked.output_types == [Order]
    assert spawn(definition_copy(looked)).function.__self__ is service  # type: ignore[attr-defined]
    partial = FunctionExecutor(functools.partial(scaled, 2), "partial")
    assert partial.handlers[0].call(spawn(partial), "abc", None) == 6


async def test_the_state_of_a_function_is_one_dict() -> None:
    definition = definition_copy(executor(measure))
    run = spawn(definition)
    assert run.state == {} and await dehydrate(run) is None
    run.state["n"] = 1
    assert await dehydrate(run) == {"state": {"n": 1}}
    again = spawn(definition)
    assert again.state == {}
    await hydrate(again, {"state": {"n": 1}})
    assert again.state == {"n": 1}


def test_a_function_takes_messages_of_its_type() -> None:
    made = executor(measure)
    assert find_handler(made, "x") is made.handlers[0]
    assert find_handler(made, 3) is None and not made.can_handle(None)


async def no_type(message, ctx: WorkflowContext) -> None: ...  # type: ignore[no-untyped-def]
async def no_context_type(message: str, ctx) -> None: ...  # type: ignore[no-untyped-def]
async def wrong_context(message: str, ctx: int) -> None: ...
async def three(self: Any, message: str, ctx: WorkflowContext) -> None: ...
async def nothing() -> None: ...
async def starred(*messages: str) -> None: ...
async def unknown(message: Decimal) -> None: ...
async def unknown_result(message: str) -> Decimal: ...  # type: ignore[empty-body]
def generator(message: str) -> Any:
    yield message


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (no_type, "Function 'no_type' needs a type on its parameter 'message'"),
        (no_context_type, "Function 'no_context_type' has no annotation on its context parameter 'ctx'"),
        (wrong_context, "Function 'wrong_context' has <class 'int'> on its context parameter"),
        (
            three,
            r"Function 'three' must have the parameters \(message: T\) or .* it has \(self, message, ctx\)",
        ),
        (nothing, r"Function 'nothing' must have the parameters"),
        (starred, r"it has \(\*messages\)"),
        (unknown, "Function 'unknown' has a type that cannot be resolved: name 'Decimal'"),
        (unknown_result, "Function 'unknown_result' has a type that cannot be resolved"),
        (generator, "Function 'generator' must not be a generator"),
        (lambda message: None, "needs a type on its parameter"),
        (staticmethod(measure), "not for a @staticmethod"),
        (classmethod(measure), "not for a @classmethod"),
        (int, "made of a function, got <class 'int'>"),
        (3, "made of a function, got 3"),
    ],
)
def test_what_is_no_such_function_is_refused_by_name(function: Any, text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        executor(function)


@pytest.mark.parametrize("function", [lambda message: None, functools.partial(measure)])
def test_a_function_without_a_name_needs_an_id(function: Any) -> None:
    with pytest.raises(DefinitionError, match="has no name to serve as id"):
        executor(input=str)(function)
    assert executor(id="named", input=str)(function).id == "named"
