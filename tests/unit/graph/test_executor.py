"""Executors as definitions: identity, description, copies and factories."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Any, Never

import pytest

from branchpoint.errors import DefinitionError
from branchpoint.graph import (
    Executor,
    Factory,
    HandlerSpec,
    WorkflowContext,
    definition_copy,
    executor,
    find_handler,
    handler,
    response_handler,
    scratch,
    spawn,
    state,
)


class Reviewer(Executor):
    seen: list[str] = state(factory=list)
    cache: dict[str, int] = scratch(factory=dict)

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str | int, bool]) -> None: ...

    @handler
    async def on_list(self, texts: list[str], ctx: WorkflowContext[str]) -> None: ...

    @response_handler
    async def on_answer(self, text: str, ok: bool | None, ctx: WorkflowContext[bytes]) -> None: ...


def test_id_and_type() -> None:
    plain = Reviewer("r")
    assert (plain.id, plain.type, plain.type_) == ("r", "Reviewer", "Reviewer")
    assert Reviewer(id="r", type="Judge").type == Reviewer("r", type_="Judge").type == "Judge"
    assert Reviewer("r", unknown=1).id == "r"
    assert repr(plain) == "Reviewer(id='r')"


@pytest.mark.parametrize("id", ["", None, 3, "\ud800"])
def test_the_id_is_a_text_that_is_not_empty(id: Any) -> None:
    with pytest.raises(
        DefinitionError, match="Reviewer needs a non-empty text as id, without lone surrogates"
    ):
        Reviewer(id)


def test_an_init_that_forgets_its_base_is_refused() -> None:
    class Forgetful(Reviewer):
        def __init__(self) -> None:
            self.seen = ["x"]

    with pytest.raises(DefinitionError, match=r"Forgetful\.__init__ never called super\(\)\.__init__"):
        Forgetful()


def test_abstract_executors_are_pythons_affair() -> None:
    class Abstract(Reviewer):
        @abstractmethod
        def judge(self) -> None: ...

    with pytest.raises(TypeError, match="abstract"):
        Abstract("a")  # type: ignore[abstract]


def test_a_description_is_plain_and_readable() -> None:
    assert Reviewer("r").to_dict() == {
        "id": "r",
        "type": "Reviewer",
        "input_types": ["str", "list[str]"],
        "output_types": ["str", "int", "bytes"],
        "workflow_output_types": ["bool"],
        "requests": [{"request": "str", "response": "bool | None"}],
        "state": ["seen"],
    }


def test_what_an_executor_declares_is_listed_once_each() -> None:
    made = Reviewer("r")
    assert made.input_types == [str, list[str]]
    assert made.output_types == [str, int, bytes]
    assert made.workflow_output_types == [bool]
    assert [spec.name for spec in made.response_handlers] == ["on_answer"]


def test_a_definition_is_unchanged_by_its_runs() -> None:
    definition = definition_copy(Reviewer("r"))
    before = {name: (id(value), repr(value)) for name, value in vars(definition).items()}
    run = spawn(definition)
    run.seen.append("x")
    run.cache["x"] = 1
    assert {name: (id(value), repr(value)) for name, value in vars(definition).items()} == before


def test_copies_and_runs_have_the_class_and_the_handlers_of_the_original() -> None:
    original = Reviewer("r")
    for other in (definition_copy(original), spawn(original), spawn(definition_copy(original))):
        assert type(other) is Reviewer and other.id == "r"
        assert other.handlers == original.handlers
        assert find_handler(other, "x") == original.handlers[0]


def test_an_executor_with_arguments_is_copied_without_calling_init() -> None:
    made: list[int] = []

    class Counted(Reviewer):
        def __init__(self, id: str, size: int) -> None:
            super().__init__(id)
            made.append(size)

    spawn(definition_copy(Counted("c", 3)))
    assert made == [3]


class Wrapping(Executor):
    """Adds a handler of its own, as executors that wrap something do."""

    def __init__(self, id: str, tp: Any) -> None:
        super().__init__(id, defer_discovery=True)
        self._add_handlers([HandlerSpec("run", tp, None, None, True, Wrapping.run)])

    async def run(self, message: Any, ctx: Any) -> str:
        return f"{self.id} {message}"


async def test_a_subclass_may_build_handlers_of_its_own() -> None:
    one, other = Wrapping("one", int), Wrapping("other", str)
    assert one.input_types == [int] and other.input_types == [str]
    run = spawn(definition_copy(one))
    assert await run.handlers[0].call(run, 1, None) == "one 1"
    with pytest.raises(DefinitionError, match=r"'one' \(Wrapping\) are added in its __init__ only"):
        one._add_handlers(other.handlers)


def test_handlers_of_class_and_instance_are_one_set() -> None:
    class More(Wrapping):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[Never]) -> None: ...

    assert More("m", int).input_types == [str, int]
    with pytest.raises(DefinitionError, match="More has two handlers for str: 'on_text' and 'run'"):
        More("m", str)


# Factories.


def test_a_factory_makes_a_new_executor_each_time() -> None:
    factory = Factory(lambda: Reviewer("r"), id="r")
    first = factory.create()
    second = factory.create(first)
    assert first is not second and (first.id, type(second)) == ("r", Reviewer)


async def _async_product() -> Executor:
    return Reviewer("r")


@executor(id="r")
def shout(text: str) -> str:
    return text.upper()


@executor(id="r")
def whisper(text: str) -> str:
    return text.lower()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Reviewer("other"), "Factory(id='r') made an executor with id 'other'"),
        (lambda: None, "Factory(id='r') must make an Executor, it made a NoneType"),
        (lambda: Reviewer, "it made a "),
        (_async_product, "the function of Factory(id='r') must not be async"),
        (lambda: Wrapping("r", int), "made a Wrapping when the workflow was built with a Reviewer"),
        (lambda: shout, "made a FunctionExecutor of shout when the workflow was built with a Reviewer"),
    ],
)
def test_a_wrong_product_is_refused(make: Any, text: str) -> None:
    with pytest.raises(DefinitionError, match=f"(?i){re.escape(text)}"):
        Factory(make, id="r").create(Reviewer("r"))


def test_a_factory_of_functions_makes_the_same_function() -> None:
    assert Factory(lambda: shout, id="r").create(definition_copy(shout)) is shout
    with pytest.raises(DefinitionError, match="made a FunctionExecutor of whisper"):
        Factory(lambda: whisper, id="r").create(shout)


def test_a_factory_needs_a_function_and_an_id() -> None:
    with pytest.raises(DefinitionError, match="needs a function without arguments"):
        Factory(Reviewer("r"), id="r")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="non-empty text as id"):
        Factory(lambda: Reviewer("r"), id="")
