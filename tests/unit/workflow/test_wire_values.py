"""What a workflow takes and gives as plain JSON: schemas, and inputs from outside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Never

import pytest

from branchpoint import (
    Executor,
    UnsupportedValueError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)


@dataclass
class Item:
    name: str


@dataclass
class Order:
    items: list[Item]
    due: datetime | None = None
    notes: list[str] = field(default_factory=list)


class Shop(Executor):
    @handler
    async def on_order(self, order: Order, ctx: WorkflowContext[Never, int]) -> None: ...

    @handler
    async def on_number(self, number: int | None, ctx: WorkflowContext[Never, list[Order]]) -> None: ...


class Words(Executor):
    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[Never, str]) -> None: ...


class Says(Words):
    """Declares nothing of what it yields in answer."""

    @response_handler
    async def on_answer(self, text: str, yes: bool, ctx: WorkflowContext) -> None: ...


class Silent(Executor):
    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str]) -> None: ...


def of(start: Executor) -> Workflow:
    return WorkflowBuilder(name="w", start_executor=start).build()


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from references(item)


def test_every_reference_of_a_schema_leads_somewhere() -> None:
    workflow = of(Shop("shop"))
    for schema, members in ((workflow.input_schema, 3), (workflow.output_schema, 2)):
        json.dumps(schema)
        assert len(schema["anyOf"]) == members
        found = set(references(schema))
        assert found == {"#/$defs/Order", "#/$defs/Item"}
        assert {f"#/$defs/{name}" for name in schema["$defs"]} == found


def test_one_type_is_its_own_schema() -> None:
    workflow = of(Words("words"))
    assert workflow.input_schema == workflow.output_schema == {"type": "string"}


def test_an_output_schema_promises_no_more_than_the_handlers_do() -> None:
    assert of(Says("says")).output_schema == {}
    assert of(Silent("silent")).output_schema == {"not": {}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"items": [{"name": "a"}]}, Order([Item("a")])),
        (
            {"items": [], "due": "2026-01-02T03:04:05Z"},
            Order([], datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ),
        (3, 3),
        (None, None),
    ],
)
def test_plain_json_becomes_an_input(value: Any, expected: Any) -> None:
    assert of(Shop("shop")).parse_input(value) == expected


@pytest.mark.parametrize("value", ["x", True, 1.5, {"items": "a"}, {"items": [], "more": 1}, []])
def test_what_fits_no_input_is_told_why_by_every_type(value: Any) -> None:
    with pytest.raises(
        UnsupportedValueError, match=r"'w', whose start executor 'shop' accepts .*Order \(.*; int \| None \("
    ):
        of(Shop("shop")).parse_input(value)
