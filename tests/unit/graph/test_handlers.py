"""Declaring handlers: types from annotations or arguments, and what is refused."""

from __future__ import annotations

import asyncio
import functools
import types
import typing
from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    Never,
    NewType,
    Optional,
    Protocol,
    TypeVar,
    Union,
)

import pytest
from typing_extensions import TypeAliasType

from branchpoint.errors import DefinitionError
from branchpoint.graph import (
    Executor,
    FunctionExecutor,
    SyncWorkflowContext,
    WorkflowContext,
    handler,
    response_handler,
)

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")


class Order: ...


class Paid(Order): ...


class Unchecked(Protocol):
    size: int


def _made(method: Any, *, decorate: Any = handler) -> Executor:
    return type("Made", (Executor,), {"on_message": decorate(method)})("made")  # type: ignore[no-any-return]


# Types from annotations.


def _bare(self: Any, message: Order, ctx: WorkflowContext) -> None: ...
def _one(self: Any, message: Order, ctx: WorkflowContext[str]) -> None: ...
def _two(self: Any, message: Order, ctx: WorkflowContext[str, int]) -> None: ...
def _yields(self: Any, message: Order, ctx: WorkflowContext[Never, int]) -> None: ...
def _nothing(self: Any, message: Order, ctx: WorkflowContext[Never, Never]) -> None: ...
def _unions(self: Any, message: Order, ctx: WorkflowContext[str | int, Union[bool, None]]) -> None: ...  # noqa: UP007
def _any(self: Any, message: Order, ctx: WorkflowContext[Any, Any]) -> None: ...
def _generic(self: Any, message: Order, ctx: WorkflowContext[list[str], dict[str, Paid]]) -> None: ...
def _sync(self: Any, message: Order, ctx: SyncWorkflowContext[str]) -> None: ...
def _nested(self: Any, message: Order, ctx: WorkflowContext[Optional[str | int]]) -> None: ...  # noqa: UP045


@pytest.mark.parametrize(
    ("method", "sent", "yielded"),
    [
        (_bare, None, None),
        (_one, (str,), ()),
        (_two, (str,), (int,)),
        (_yields, (), (int,)),
        (_nothing, (), ()),
        (_unions, (str, int), (bool, type(None))),
        (_any, (Any,), (Any,)),
        (_generic, (list[str],), (dict[str, Paid],)),
        (_sync, (str,), ()),
        (_nested, (str, int, type(None)), ()),
    ],
)
def test_the_context_says_what_a_handler_sends_and_yields(method: Any, sent: Any, yielded: Any) -> None:
    executor = _made(method)
    (spec,) = executor.handlers
    assert (spec.message_type, spec.output_types, spec.workflow_output_types) == (Order, sent, yielded)
    assert executor.input_types == [Order]
    assert executor.output_types == list(sent or ())
    assert executor.workflow_output_types == list(yielded or ())


def _none(self: Any, message: None, ctx: WorkflowContext) -> None: ...
def _union(self: Any, message: Order | str, ctx: WorkflowContext) -> None: ...
def _listed(self: Any, message: list[Paid], ctx: WorkflowContext) -> None: ...
def _literal(self: Any, message: Literal["go", 1], ctx: WorkflowContext) -> None: ...
def _annotated(self: Any, message: Annotated[int, "size"], ctx: WorkflowContext) -> None: ...
def _anything(self: Any, message: Any, ctx: WorkflowContext) -> None: ...
def _late(self: Any, message: Late, ctx: WorkflowContext[Late]) -> None: ...


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (_none, type(None)),
        (_union, Order | str),
        (_listed, list[Paid]),
        (_literal, Literal["go", 1]),
        (_annotated, Annotated[int, "size"]),
        (_anything, Any),
    ],
)
def test_a_handler_takes_what_it_is_annotated_with(method: Any, expected: Any) -> None:
    assert _made(method).input_types == [expected]


class Late: ...


def test_a_type_defined_further_down_the_module_is_found() -> None:
    assert _made(_late).handlers[0].output_types == (Late,)


def test_types_local_to_a_function_are_found() -> None:
    class Local: ...

    class Inner(Executor):
        class Own: ...

        @handler
        async def on_local(self, message: Local, ctx: WorkflowContext[Own, list[Local]]) -> None: ...

    (spec,) = Inner("i").handlers
    assert (spec.message_type, spec.output_types, spec.workflow_output_types) == (
        Local,
        (Inner.Own,),
        (list[Local],),
    )


def test_types_local_to_a_function_may_be_defined_after_the_class() -> None:
    class Inner(Executor):
        @handler
        async def on_local(self, message: After, ctx: WorkflowContext) -> None: ...

    class After: ...

    assert Inner("i").input_types == [After]


def test_local_types_are_found_when_the_executor_is_made_elsewhere() -> None:
    def make() -> type[Executor]:
        class Local: ...

        class Inner(Executor):
            Kind = Local

            @handler
            async def on_local(self, message: Local, ctx: WorkflowContext) -> None: ...

        return Inner

    cls = make()
    assert cls("i").input_types == [cls.Kind]  # type: ignore[attr-defined]


def test_a_name_that_is_never_defined_is_an_error_that_names_the_handler() -> None:
    class Lost(Executor):
        @handler
        async def on_amount(self, message: Decimal, ctx: WorkflowContext) -> None: ...

    with pytest.raises(
        DefinitionError, match=r"Handler 'Lost\.on_amount' .*'Decimal' is not defined.*TYPE_CHECKING"
    ):
        Lost("l")


def test_an_unknown_result_type_does_not_matter() -> None:
    class Fine(Executor):
        @handler
        async def on_word(self, message: str, ctx: WorkflowContext) -> Decimal: ...  # type: ignore[empty-body]

    assert Fine("f").input_types == [str]


# Types from arguments.


def test_types_may_all_be_given_to_the_decorator() -> None:
    class Explicit(Executor):
        @handler(input=str | int, output="Order | None", workflow_output=bool)
        async def on_one(self, message, ctx):  # type: ignore[no-untyped-def]
            ...

        @handler(input="Late")
        async def on_two(self, message: Unknown, ctx: AlsoUnknown):  # type: ignore[no-untyped-def,name-defined]  # noqa: F821
            ...

        @response_handler(request="Order", response=bool, output=Never)
        async def on_answer(self, order, answer, ctx):  # type: ignore[no-untyped-def]
            ...

    one, two = Explicit("e").handlers
    assert (one.message_type, one.output_types) == (str | int, (Order, type(None)))
    assert one.workflow_output_types == (bool,)
    assert (two.message_type, two.output_types, two.workflow_output_types) == (Late, None, None)
    (answer,) = Explicit("e").response_handlers
    assert (answer.request_type, answer.response_type) == (Order, bool)
    assert (answer.output_types, answer.workflow_output_types) == ((), None)


def test_some_types_are_not_enough() -> None:
    with pytest.raises(DefinitionError, match=r"on_word' gives types to @handler but not 'input'"):

        class One(Executor):
            @handler(output=str)
            async def on_word(self, message: str, ctx: WorkflowContext) -> None: ...

    with pytest.raises(
        DefinitionError, match=r"on_word' gives types to @response_handler but not 'response'"
    ):

        class Two(Executor):
            @response_handler(request=str)
            async def on_word(self, message: str, answer: str, ctx: WorkflowContext) -> None: ...


def test_text_that_is_no_type_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"on_word' is annotated 'str \|', which is no type"):

        class Broken(Executor):
            @handler(input="str |")
            async def on_word(self, message, ctx):  # type: ignore[no-untyped-def]
                ...


# Refused forms.


async def _no_context(self: Any, message: str) -> None: ...
async def _too_many(self: Any, message: str, ctx: WorkflowContext, more: int = 0) -> None: ...
async def _starred(self: Any, *messages: str, ctx: WorkflowContext) -> None: ...
async def _keyword(self: Any, message: str, *, ctx: WorkflowContext) -> None: ...
async def _untyped(self: Any, message, ctx: WorkflowContext) -> None: ...  # type: ignore[no-untyped-def]
async def _untyped_context(self: Any, message: str, ctx) -> None: ...  # type: ignore[no-untyped-def]
async def _other_context(self: Any, message: str, ctx: dict[str, int]) -> None: ...
async def _sync_context(self: Any, message: str, ctx: SyncWorkflowContext[str]) -> None: ...
async def _variable(self: Any, message: T, ctx: WorkflowContext) -> None: ...
async def _nested_variable(self: Any, message: list[T], ctx: WorkflowContext) -> None: ...
async def _sends_variable(self: Any, message: str, ctx: WorkflowContext[T]) -> None: ...
async def _never(self: Any, message: Never, ctx: WorkflowContext) -> None: ...
async def _number(self: Any, message: 3, ctx: WorkflowContext) -> None: ...  # type: ignore[valid-type]
async def _protocol(self: Any, message: Unchecked, ctx: WorkflowContext) -> None: ...
async def _generator(self: Any, message: str, ctx: WorkflowContext) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (_no_context, r"must have the parameters \(self, message: T, ctx: .*\), it has \(self, message\)"),
        (_too_many, r"it has \(self, message, ctx, more\)"),
        (_starred, r"it has \(self, \*messages, ctx\)"),
        (_keyword, r"it has \(self, message, ctx\)"),
        (_untyped, "needs a type on its parameter 'message'"),
        (_untyped_context, "has no annotation on its context parameter 'ctx'"),
        (_other_context, r"has dict\[str, int\] on its context parameter 'ctx'"),
        (_sync_context, "is async and gets a WorkflowContext"),
        (_variable, "'message' this way: '~T' is a type variable"),
        (_nested_variable, "'~T' is a type variable"),
        (_sends_variable, "the messages it sends this way: '~T' is a type variable"),
        (_never, "no value is of type Never"),
        (_number, "cannot declare 'message' this way: 3 is not a type"),
        (_protocol, "protocol 'Unchecked' cannot be checked at run time"),
        (_generator, "must not be a generator"),
    ],
)
def test_what_is_no_handler_is_refused_by_name(method: Any, text: str) -> None:
    with pytest.raises(DefinitionError, match=text) as caught:
        _made(method)
    assert f"Handler '{method.__name__}'" in str(caught.value)


def test_arity_is_checked_where_the_class_is_written() -> None:
    with pytest.raises(DefinitionError, match=r"Handler 'Wrong\.on_word' must have the parameters"):

        class Wrong(Executor):
            @handler
            async def on_word(self, message: str) -> None: ...

    with pytest.raises(
        DefinitionError, match=r"Response handler 'WrongAnswer\.on_answer' must .*original_request"
    ):

        class WrongAnswer(Executor):
            @response_handler
            async def on_answer(self, message: str, ctx: WorkflowContext) -> None: ...


@pytest.mark.parametrize("wrap", [staticmethod, classmethod])
def test_a_handler_is_a_plain_method(wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(
        DefinitionError, match=f"Handler 'Made.on_message' must be a plain method.*{wrap.__name__}"
    ):
        _made(_bare, decorate=lambda method: wrap(handler(method)))
    with pytest.raises(DefinitionError, match=f"@handler decorates a method .* got {wrap.__name__}"):
        _made(_bare, decorate=lambda method: handler(wrap(method)))


def test_two_handlers_for_one_type_are_refused_by_name() -> None:
    class Two(Executor):
        @handler
        async def first(self, message: str | int, ctx: WorkflowContext) -> None: ...

        @handler
        async def second(self, message: int | str, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError, match=r"Two has two handlers for .*: 'first' and 'second'"):
        Two("t")


UserId = NewType("UserId", str)
Number = TypeAliasType("Number", int | float)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (str, UserId),
        (Annotated[str, "a"], Annotated[str, "b"]),
        (int | float, Number),
        (int | float | str, Number | UserId),
        (list[UserId], list[str]),
        (dict[str, Number], dict[UserId, float | int]),
        (list, typing.List),  # noqa: UP006 - the old name of it
    ],
)
def test_two_names_of_one_type_are_two_handlers_for_it(one: Any, other: Any) -> None:
    async def method(self: Any, message: Any, ctx: WorkflowContext) -> None: ...

    async def asks(self: Any, message: bytes, ctx: WorkflowContext) -> None: ...

    async def answer(self: Any, request: Any, response: Any, ctx: WorkflowContext) -> None: ...

    for pair in ((one, other), (other, one)):
        members = {f"h{n}": handler(input=tp)(_again(method)) for n, tp in enumerate(pair)}
        with pytest.raises(DefinitionError, match=r"two handlers for .*: 'h0' and 'h1'; .* chance"):
            type("Two", (Executor,), members)("t")
        responses = {
            f"r{n}": response_handler(request=str, response=tp)(_again(answer)) for n, tp in enumerate(pair)
        }
        with pytest.raises(DefinitionError, match=r"two response handlers for a str .*: 'r0' and 'r1'"):
            type("Two", (Executor,), {"asks": handler(asks), **responses})("t")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (list, list[str]),
        (list[int], list[str]),
        (tuple, tuple[()]),
        (tuple[int, int], tuple[int, ...]),
        (bool, int),
        (Literal["a"], Literal["b"]),
        (int | None, int),
        (object, Any),
    ],
)
def test_types_that_differ_at_run_time_are_two(one: Any, other: Any) -> None:
    async def method(self: Any, message: Any, ctx: WorkflowContext) -> None: ...

    members = {f"h{n}": handler(input=tp)(_again(method)) for n, tp in enumerate((one, other))}
    assert len(type("Two", (Executor,), members)("t").handlers) == 2


def _again(method: Any) -> Any:
    return types.FunctionType(method.__code__, method.__globals__, method.__name__)


def test_two_response_handlers_for_one_pair_are_refused_by_name() -> None:
    class Two(Executor):
        @handler
        async def on_word(self, message: str, ctx: WorkflowContext) -> None: ...

        @response_handler
        async def first(self, request: str, response: bool, ctx: WorkflowContext) -> None: ...

        @response_handler
        async def other(self, request: str, response: int, ctx: WorkflowContext) -> None: ...

        @response_handler
        async def second(self, request: str, response: bool, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError, match="a str answered by bool: 'first' and 'second'"):
        Two("t")


def test_an_executor_without_handlers_is_refused() -> None:
    class Nothing(Executor): ...

    with pytest.raises(DefinitionError, match=r"Nothing \(id 'n'\) has no handlers; decorate a method"):
        Nothing("n")


# Inheritance.


class Base(Executor):
    @handler
    async def on_word(self, message: str, ctx: WorkflowContext[str]) -> str:
        return "base"

    @handler
    async def on_number(self, message: int, ctx: WorkflowContext[int]) -> str:
        return "base"


class Derived(Base):
    @handler
    async def on_order(self, message: Order, ctx: WorkflowContext) -> str:
        return "derived"

    async def on_word(self, message: str, ctx: WorkflowContext[str]) -> str:
        return "derived"


class Redeclared(Base):
    @handler
    async def on_word(self, message: bytes, ctx: WorkflowContext[bytes]) -> str:  # type: ignore[override]
        return "redeclared"


class Removed(Base):
    on_word = None  # type: ignore[assignment]


def test_handlers_are_listed_bases_first() -> None:
    assert [spec.name for spec in Derived("d").handlers] == ["on_word", "on_number", "on_order"]
    assert Redeclared("r").input_types == [bytes, int]
    assert Removed("r").input_types == [int]


async def test_an_override_without_the_decorator_is_the_handler() -> None:
    executor = Derived("d")
    word, number, _ = executor.handlers
    assert await word.call(executor, "x", None) == "derived"
    assert await number.call(executor, 1, None) == "base"
    assert word.output_types == (str,)


def test_handlers_come_from_mixins_and_generic_bases_too() -> None:
    class Mixin:
        @handler
        async def on_bytes(self, message: bytes, ctx: WorkflowContext) -> None: ...

    class Shelf(Executor, Generic[T]):
        @handler
        async def on_order(self, message: Order, ctx: WorkflowContext) -> None: ...

    class Both(Mixin, Shelf[int]): ...

    assert Both("b").input_types == [Order, bytes]
    assert Shelf[str]("s").input_types == [Order]


# Calling.


async def test_sync_and_async_methods_say_which_they_are() -> None:
    class Mixed(Executor):
        @handler
        async def on_word(self, message: str, ctx: WorkflowContext) -> str:
            return f"async {message} {ctx}"

        @handler
        def on_number(self, message: int, ctx: WorkflowContext) -> str:
            return f"sync {message} {ctx}"

        @response_handler
        async def on_answer(self, request: str, response: int, ctx: WorkflowContext) -> str:
            return f"{request} {response} {ctx}"

    executor = Mixed("m")
    word, number = executor.handlers
    assert (word.is_async, number.is_async) == (True, False)
    assert await word.call(executor, "a", "ctx") == "async a ctx"
    assert await asyncio.to_thread(number.call, executor, 1, "ctx") == "sync 1 ctx"
    (answer,) = executor.response_handlers
    assert await answer.call(executor, "q", 2, "ctx") == "q 2 ctx"
    assert not any(spec.sends_result for spec in (word, number))


async def test_decorators_may_stand_above_and_below() -> None:
    def loud(method: Any) -> Any:
        @functools.wraps(method)
        async def wrapper(*args: Any) -> str:
            return str(await method(*args)).upper()

        return wrapper

    class Wrapped(Executor):
        @loud
        @handler
        async def above(self, message: str, ctx: WorkflowContext[str]) -> str:
            return message

        @handler
        @loud
        async def below(self, message: int, ctx: WorkflowContext[Order]) -> str:
            return f"n{message}"

    executor = Wrapped("w")
    above, below = executor.handlers
    assert await above.call(executor, "a", None) == "A"
    assert await below.call(executor, 1, None) == "N1"
    assert (above.output_types, below.output_types) == ((str,), (Order,))


def test_names_are_looked_up_where_the_method_was_written_not_its_wrapper() -> None:
    elsewhere: dict[str, Any] = {"functools": functools}
    exec(
        "def loud(method):\n"
        "    @functools.wraps(method)\n"
        "    async def wrapper(*args):\n"
        "        return await method(*args)\n"
        "    return wrapper\n",
        elsewhere,
    )

    class Wrapped(Executor):
        @handler
        @elsewhere["loud"]  # type: ignore[untyped-decorator]
        async def below(self, message: Order, ctx: WorkflowContext[Late]) -> None: ...

    assert Wrapped("w").output_types == [Late]


def test_a_decorated_method_stays_a_method_that_tests_can_call() -> None:
    assert asyncio.run(Base("b").on_word("x", None)) == "base"  # type: ignore[arg-type]
    assert isinstance(FunctionExecutor(lambda message: None, "f", input=str).function, Callable)  # type: ignore[arg-type]
