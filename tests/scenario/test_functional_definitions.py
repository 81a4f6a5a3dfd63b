"""Functional workflows that are written wrongly, and those whose code changed under a checkpoint."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from branchpoint import (
    DefinitionError,
    EncodingError,
    ExecutorStateError,
    GraphMismatchError,
    HandlerError,
    InvalidInputError,
    OutputTypeError,
    Workflow,
)
from branchpoint.functional import FunctionalWorkflow, RunContext, step, workflow
from tests.scenario.kit import Ticks

Alias = RunContext


class Opaque:
    """Of a type that is not registered."""


@step
async def make(n: int) -> Any:
    return Opaque()


@step
async def take(it: Any) -> str:
    return "taken"


@step(replay_key=lambda it, n: n)
async def lend(it: Any, n: int) -> int:
    return n


async def test_r53_a_result_that_cannot_be_kept_is_refused_before_any_commit() -> None:
    @workflow
    async def making(n: int) -> None:
        await make(n)

    cp = making.create_checkpoint()
    with pytest.raises(EncodingError, match="Opaque") as caught:
        await making.run(1, checkpoint=cp)
    assert "step 'make'" in caught.value.__notes__
    assert [one.boundary for one in cp.snapshots] == ["input_accepted"]


async def test_r53_an_argument_that_cannot_be_told_apart_is_refused() -> None:
    @workflow
    async def taking(n: int) -> str:
        return await take(Opaque())

    @workflow
    async def lending(n: int) -> list[int]:
        return [await lend(Opaque(), 1), await lend(Opaque(), n=2)]

    with pytest.raises(EncodingError, match="Opaque") as caught:
        await taking.run(1, checkpoint=taking.create_checkpoint())
    assert any("replay_key" in note and "'take'" in note for note in caught.value.__notes__)
    assert (await lending.run(1, checkpoint=lending.create_checkpoint())).get_outputs() == [[1, 2]]


async def test_r53_two_steps_of_one_name_are_refused() -> None:
    @step(name="take")
    async def other(it: Any) -> str:
        return "other"

    @workflow
    async def mixed(n: int) -> str:
        return await take(1) + await other(1)

    with pytest.raises(HandlerError, match="Two steps of 'mixed' are named 'take'"):
        await mixed.run(1)


async def test_r53_a_step_that_is_not_awaited_is_told_by_python() -> None:
    @workflow
    async def forgetful(n: int) -> int:
        take(1)  # type: ignore[unused-coroutine]
        return n

    with pytest.warns(RuntimeWarning, match="never awaited"):
        await forgetful.run(1, checkpoint=forgetful.create_checkpoint())


def test_r53_a_function_of_another_form_is_refused() -> None:
    with pytest.raises(DefinitionError, match="must be a function declared with async def"):

        @workflow
        def sync(n: int) -> int:
            return n

    with pytest.raises(DefinitionError, match="must have the parameters"):

        @workflow
        async def nothing() -> int:
            return 1

    with pytest.raises(DefinitionError, match="must have the parameters"):

        @workflow
        async def three(a: int, b: RunContext, c: int) -> int:
            return 1

    with pytest.raises(DefinitionError):

        @workflow
        async def generating(n: int) -> Any:
            yield n

    with pytest.raises(DefinitionError, match="is a method"):

        class Holder:
            @step
            async def method(self, n: int) -> int:
                return n

    for wrong in (3, Opaque, lambda: 1):
        with pytest.raises(DefinitionError):
            step(wrong)  # type: ignore[arg-type, type-var]
        with pytest.raises(DefinitionError):
            workflow(wrong)  # type: ignore[arg-type]


async def test_r53_input_and_output_have_the_types_that_the_function_declares() -> None:
    @workflow
    async def typed(n: int) -> str:
        result: Any = n
        return result  # type: ignore[no-any-return]

    assert typed.input_types == [int]
    assert typed.output_types == [str]
    assert typed.input_schema == {"type": "integer"}
    assert isinstance(typed, Workflow)
    with pytest.raises(InvalidInputError):
        await typed.run("text")
    with pytest.raises(
        OutputTypeError, match=r"'typed' returned a int, and declares .*str.*\. Annotate it so"
    ):
        await typed.run(1)


async def test_r53_a_step_outside_of_a_workflow_just_runs() -> None:
    @step
    def sync(n: int) -> int:
        return n + 1

    assert await take(1) == "taken"
    assert await sync(1) == 2
    assert isinstance(await make(1), Opaque)
    assert (take.name, take.function.__name__) == ("take", "take")


async def test_r53_a_step_sets_no_state() -> None:
    @step
    async def setting(ctx: RunContext) -> None:
        ctx.set_state("key", 1)

    @workflow
    async def run(n: int) -> None:
        await setting()

    with pytest.raises(ExecutorStateError, match="step 'setting'"):
        await run.run(1)


async def test_r53_a_context_is_of_no_use_after_the_end() -> None:
    kept: list[RunContext] = []

    @workflow
    async def keeping(n: int, ctx: RunContext) -> None:
        kept.append(ctx)

    await keeping.run(1, checkpoint=keeping.create_checkpoint())
    with pytest.raises(ExecutorStateError):
        kept[0].get_state("key")
    with pytest.raises(ExecutorStateError):
        kept[0].request_info("?", int)


# The signature.

_SOURCE = """
from branchpoint.functional import RunContext, step, workflow

@step
async def fetch(n: int) -> int:
    return n

@workflow
async def pipeline(n: int, ctx: RunContext) -> int:
    found = await fetch(n)
    if found > 3:
        found += 1
    return found
"""


def written(folder: Path, source: str, name: str) -> FunctionalWorkflow:
    """The workflow `pipeline` of a module with that source."""
    import importlib.util

    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: FunctionalWorkflow = module.pipeline
    return found


SAME = {
    "layout": (
        "    found = await fetch(n)\n",
        "\n    found = await fetch(\n        n,\n    )  # the number\n\n",
    ),
    "docstring": ("-> int:\n    found", '-> int:\n    """What it does."""\n    found'),
    "annotations": ("(n: int, ctx: RunContext) -> int", "(n: int, ctx) -> 'int'"),
    "annotated variable": ("found = await", "x: int\n    found: int = await"),
    "body of a step": ("    return n\n", "    return n + 1\n"),
    "parentheses": ("if found > 3:", "if (found > 3):"),
}
OTHER = {
    "another step": ("await fetch(n)", "await fetch(await fetch(n))", "fetch(Await("),
    "operator": ("+= 1", "-= 1", "Sub"),
    "constant": ("> 3", "> 4", "4"),
    "order": ("found > 3", "3 > found", "found"),
    "name": ("found", "result", "result"),
    "not awaited": ("found = await fetch", "found = fetch", "fetch(n)"),
    "one statement less": ("        found += 1\n", "        pass\n", "Pass"),
}


@pytest.mark.parametrize("change", SAME)
def test_r53_what_does_nothing_does_not_count_for_the_signature(tmp_path: Path, change: str) -> None:
    old, new = SAME[change]
    assert old in _SOURCE
    one = written(tmp_path, _SOURCE, "one")
    two = written(tmp_path, _SOURCE.replace(old, new), "two")
    assert one.graph_signature_hash == two.graph_signature_hash


@pytest.mark.parametrize("change", OTHER)
async def test_r53_changed_code_is_found_out_and_shown(tmp_path: Path, change: str) -> None:
    old, new, shown = OTHER[change]
    assert old in _SOURCE
    one = written(tmp_path, _SOURCE, "one")
    two = written(tmp_path, _SOURCE.replace(old, new), "two")
    cp = one.create_checkpoint()
    await one.run(1, checkpoint=cp)
    before = cp.head_snapshot_id
    with pytest.raises(GraphMismatchError, match="the code of 'pipeline' changed") as caught:
        await two.run(2, checkpoint=cp)
    assert shown in str(caught.value)
    assert cp.head_snapshot_id == before


def test_r53_the_signature_is_the_same_in_every_process(tmp_path: Path) -> None:
    here = written(tmp_path, _SOURCE, "one").graph_signature_hash
    code = _SOURCE + "\nprint(pipeline.graph_signature_hash)\n"
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    for seed in ("0", "7"):
        ran = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        )
        assert ran.stdout.strip() == here


def test_r53_code_without_a_source_has_a_signature_too() -> None:
    def made(source: str) -> str:
        space: dict[str, Any] = {}
        exec(compile(source, "<nowhere>", "exec"), space)
        found: str = space["pipeline"].graph_signature_hash
        return found

    assert made(_SOURCE) == made(_SOURCE)
    assert made(_SOURCE) != made(_SOURCE.replace("await fetch(n)", "await fetch(await other(n))"))


async def test_r53_a_workflow_holds_nothing_of_its_runs(ticks: Ticks) -> None:
    @workflow
    async def many(n: int) -> str:
        return await take(n)

    before = many.to_json(), dict(vars(many.get_start_executor()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cps = [many.create_checkpoint() for _ in range(5)]
        results = await asyncio.gather(*(many.run(n, checkpoint=cp) for n, cp in enumerate(cps)))
    assert [one.get_outputs() for one in results] == [["taken"]] * 5
    assert (many.to_json(), dict(vars(many.get_start_executor()))) == before


async def test_r53_the_context_may_stand_anywhere_and_may_be_given() -> None:
    @step
    async def first(ctx: RunContext, n: int) -> int:
        return n if ctx.workflow_id == "places" else -1

    @step
    async def last(n: int, *more: int, ctx: RunContext | None = None, **named: int) -> int:
        assert ctx is not None
        return n + sum(more) + sum(named.values())

    @workflow
    async def places(n: int, ctx: RunContext) -> list[int]:
        return [
            await first(1),
            await first(ctx, 2),
            await first(n=3),
            await last(1, 2, x=3),
            await last(1, ctx=ctx),
        ]

    assert (await places.run(1, checkpoint=places.create_checkpoint())).get_outputs() == [[1, 2, 3, 6, 1]]


async def test_r53_wrong_arguments_of_a_step_are_told_at_the_call() -> None:
    @workflow
    async def wrong(n: int) -> str:
        return await take(1, 2)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match="too many positional arguments"):
        await wrong.run(1)


def test_a_function_that_would_get_its_context_in_place_of_something_else_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match="'add' has 'b' as its second parameter, which gets the RunContext"
    ):

        @workflow
        async def add(a: int, b: int) -> int:
            return a + b

    with pytest.raises(DefinitionError, match="'turned' takes the context as its first parameter"):

        @workflow
        async def turned(ctx: RunContext, a: int) -> int:
            return a

    with pytest.raises(DefinitionError, match="'alone' takes the context as its first parameter"):

        @workflow
        async def alone(ctx: RunContext) -> int:
            return 1

    with pytest.raises(DefinitionError, match="'method' is a method"):

        class Holder:
            @workflow
            async def method(self, text: str) -> str:
                return text


async def test_the_context_may_be_declared_in_several_ways() -> None:
    @step
    async def aliased(ctx: Alias) -> str:
        return ctx.workflow_id

    @workflow
    async def bare(text: str, ctx):  # type: ignore[no-untyped-def]
        return await aliased()

    @workflow
    async def anything(text: str, ctx: Any) -> str:
        return await aliased()

    @workflow
    async def optional(text: str, ctx: RunContext | None = None) -> str:
        return await aliased()

    @workflow
    async def by_alias(text: str, ctx: Alias) -> str:
        return await aliased()

    for one in (bare, anything, optional, by_alias):
        assert (await one.run("x")).get_outputs() == [one.name]


async def test_a_step_that_is_called_with_what_it_does_not_take_is_named() -> None:
    @step
    async def unmarked(text: str, ctx) -> str:  # type: ignore[no-untyped-def]
        return text

    @step
    async def one(text: str) -> str:
        return text

    @workflow
    async def calling(which: int, ctx: RunContext) -> str:
        if which == 1:
            return str(await unmarked("x", ctx))
        if which == 2:
            return str(await unmarked("x", ctx=ctx))
        return await one("x", "y")  # type: ignore[call-arg]

    for which in (1, 2):
        with pytest.raises(TypeError, match=r"step 'unmarked' is given the context .* annotate that"):
            await calling.run(which, checkpoint=calling.create_checkpoint())
    with pytest.raises(TypeError, match="step 'one': too many positional arguments"):
        await calling.run(3, checkpoint=calling.create_checkpoint())


def test_a_step_is_no_workflow() -> None:
    with pytest.raises(DefinitionError, match=r"for async functions, got <Step 'make'>"):
        workflow(make)
