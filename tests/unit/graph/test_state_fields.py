"""Declared state: where it lives, what it starts with, and who may touch it."""

from __future__ import annotations

from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Never

import pytest

from branchpoint.errors import DefinitionError, ExecutorStateError
from branchpoint.graph import (
    Executor,
    WorkflowContext,
    check_configuration,
    definition_copy,
    dehydrate,
    handler,
    hydrate,
    scratch,
    spawn,
    state,
)


class Tally(Executor):
    seen: list[str] = state(factory=list)
    count: int = state(0)
    limit: int | None = state(None)
    cache: dict[str, int] = scratch(factory=dict)

    @handler
    async def on_word(self, word: str, ctx: WorkflowContext[str, int]) -> None:
        self.seen.append(word)
        self.count += 1


class Configured(Executor):
    shared_by_class: list[int] = []

    def __init__(self, id: str = "configured", **attributes: Any) -> None:
        super().__init__(id)
        for name, value in attributes.items():
            setattr(self, name, value)

    @handler
    async def on_word(self, word: str, ctx: WorkflowContext[Never, str]) -> None: ...


# In a run.


async def test_r05_a_run_reads_and_writes_fields_like_attributes() -> None:
    run = spawn(Tally("tally"))
    await run.handlers[0].call(run, "a", None)
    run.count += 1
    run.limit = 3
    assert (run.seen, run.count, run.limit) == (["a"], 2, 3)


def test_r06_two_runs_share_nothing() -> None:
    definition = definition_copy(Tally("tally"))
    one, other = spawn(definition), spawn(definition)
    one.seen.append("x")
    one.cache["k"] = 1
    assert other.seen == [] and other.cache == {}


def test_a_mutable_default_is_copied_for_every_run() -> None:
    class Careless(Executor):
        items: list[dict[str, int]] = state([{"n": 0}])

        @handler
        async def on_word(self, word: str, ctx: WorkflowContext) -> None: ...

    definition = Careless("c")
    spawn(definition).items[0]["n"] = 1
    assert spawn(definition).items == [{"n": 0}]


def test_r04_a_default_is_the_classs_own_from_its_declaration() -> None:
    given = [{"n": 0}]

    class Given(Executor):
        items: list[dict[str, int]] = state(given)
        cache: list[dict[str, int]] = scratch(given)

        @handler
        async def on_word(self, word: str, ctx: WorkflowContext) -> None: ...

    given[0]["n"] = 1
    run = spawn(definition_copy(Given("g")))
    assert (run.items, run.cache) == ([{"n": 0}], [{"n": 0}])


@pytest.mark.parametrize("declare", [state, scratch])
def test_a_default_that_cannot_be_copied_is_refused(declare: Callable[..., Any]) -> None:
    with pytest.raises(
        DefinitionError, match=rf"default of {declare.__name__}\(\) cannot be copied .*factory="
    ):
        declare(n for n in ())


def test_a_declared_field_cannot_be_deleted() -> None:
    with pytest.raises(
        ExecutorStateError, match=r"state field 'count' of executor 'tally' \(Tally\) cannot be"
    ):
        del spawn(Tally("tally")).count


# On the definition.


@pytest.mark.parametrize("name", ["seen", "count", "limit", "cache"])
def test_r04_reading_a_field_of_a_definition_is_refused(name: str) -> None:
    for definition in (Tally("tally"), definition_copy(Tally("tally"))):
        with pytest.raises(
            ExecutorStateError, match=rf"'{name}' of executor 'tally' \(Tally\) is only available"
        ):
            getattr(definition, name)


def test_r04_writing_a_field_of_a_definition_is_refused() -> None:
    definition = Tally("tally")
    with pytest.raises(ExecutorStateError, match="only available in a run"):
        definition.count = 3
    assert spawn(definition).count == 0


def test_the_class_attribute_is_the_declaration() -> None:
    assert Tally.count.kind == "state" and Tally.cache.kind == "scratch"  # type: ignore[attr-defined]


class Started(Executor):
    n: int = state(0)
    words: list[str] = state(factory=list)

    def __init__(self, id: str, n: int, *, early: bool = False) -> None:
        if early:
            self.n = n
            self.words.append("early")
            super().__init__(id)
        else:
            super().__init__(id)
            self.n = n
            self.words.append("late")
            self.n += 1

    @handler
    async def on_word(self, word: str, ctx: WorkflowContext) -> None: ...


class StartedHigher(Started):
    def __init__(self, id: str) -> None:
        super().__init__(id, 10)
        self.n *= 2


def test_init_sets_the_default_of_the_instance() -> None:
    one, other = Started("one", 5), Started("other", 7, early=True)
    assert (spawn(one).n, spawn(one).words) == (6, ["late"])
    assert (spawn(other).n, spawn(other).words) == (7, ["early"])
    assert spawn(StartedHigher("higher")).n == 22


async def test_the_default_of_an_instance_is_copied_for_every_run_and_every_workflow() -> None:
    given = ["a"]

    class Given(Executor):
        words: list[str] = state(factory=list)

        def __init__(self, words: list[str]) -> None:
            super().__init__("given")
            self.words = words

        @handler
        async def on_word(self, word: str, ctx: WorkflowContext) -> None: ...

    definition = definition_copy(Given(given))
    given.append("b")
    spawn(definition).words.append("c")
    run = spawn(definition)
    assert run.words == ["a"]
    assert await dehydrate(run) is None


# Saving.


async def test_state_that_equals_its_defaults_is_not_saved() -> None:
    run = spawn(Tally("tally"))
    assert await dehydrate(run) is None
    assert run.seen == [] and run.count == 0
    assert await dehydrate(run) is None
    run.count += 1
    run.count -= 1
    assert await dehydrate(run) is None


async def test_all_fields_are_saved_when_one_differs_and_scratch_never_is() -> None:
    run = spawn(Tally("tally"))
    run.cache["k"] = 1
    assert await dehydrate(run) is None
    run.seen.append("a")
    saved = await dehydrate(run)
    assert saved == {"seen": ["a"], "count": 0, "limit": None}
    assert saved["seen"] is run.seen


@pytest.mark.parametrize("value", [False, 0.0, -0.0])
async def test_a_value_that_only_compares_equal_to_the_default_is_saved(value: Any) -> None:
    run = spawn(Tally("tally"))
    run.count = value
    assert await dehydrate(run) == {"seen": [], "count": value, "limit": None}


async def test_a_run_goes_on_with_saved_state() -> None:
    run = spawn(Tally("tally"))
    await hydrate(run, {"seen": ["a"], "count": 4})
    assert (run.seen, run.count, run.limit) == (["a"], 4, None)
    assert await dehydrate(run) == {"seen": ["a"], "count": 4, "limit": None}
    run.seen.clear()
    run.count = 0
    assert await dehydrate(run) is None


@pytest.mark.parametrize("name", ["gone", "cache", "on_word"])
async def test_saved_state_that_is_not_declared_is_not_dropped_in_silence(name: str) -> None:
    with pytest.raises(ExecutorStateError, match=rf"'tally' \(Tally\) holds \['{name}'\]"):
        await hydrate(spawn(Tally("tally")), {"count": 1, name: {}})


async def test_a_factory_that_never_gives_the_same_is_saved_once_it_was_read() -> None:
    numbers = iter(range(100))

    class Fresh(Executor):
        token: int = state(factory=lambda: next(numbers))

        @handler
        async def on_word(self, word: str, ctx: WorkflowContext) -> None: ...

    run = spawn(Fresh("fresh"))
    token = run.token
    assert await dehydrate(run) == {"token": token}


async def test_state_belongs_to_runs_only() -> None:
    definition = Tally("tally")
    with pytest.raises(ExecutorStateError, match=r"'tally' .* is a definition"):
        await dehydrate(definition)
    with pytest.raises(ExecutorStateError, match=r"'tally' .* is a definition"):
        await hydrate(definition, {})
    with pytest.raises(DefinitionError, match=r"'tally' .* belongs to a run"):
        spawn(spawn(definition))
    with pytest.raises(DefinitionError, match=r"'tally' .* belongs to a run"):
        definition_copy(spawn(definition))


# Declaring.


@pytest.mark.parametrize("declare", [state, scratch])
def test_a_field_has_either_a_default_or_a_factory(declare: Callable[..., Any]) -> None:
    with pytest.raises(DefinitionError, match="either a default or a factory"):
        declare()
    with pytest.raises(DefinitionError, match="either a default or a factory"):
        declare(1, factory=int)
    with pytest.raises(DefinitionError, match="must be a function"):
        declare(factory=3)


def test_one_field_has_one_name() -> None:
    class Twice(Executor):
        a: int = state(0)
        b: int = a

        @handler
        async def on_word(self, word: str, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError, match=r"Twice\.b and \.a are one state\(\) field"):
        Twice("t")


@pytest.mark.parametrize("name", ["id", "type", "handlers", "can_handle"])
def test_a_field_must_not_hide_what_every_executor_has(name: str) -> None:
    async def on_word(self: Any, word: str, ctx: WorkflowContext) -> None: ...

    cls = type("Hiding", (Executor,), {name: state("x"), "on_word": handler(on_word)})
    with pytest.raises(DefinitionError, match=rf"Hiding\.{name} takes a name"):
        cls("h")


def test_fields_are_inherited_and_come_from_mixins() -> None:
    class Counting:
        n: int = state(1)

    class More(Counting, Tally):
        extra: int = state(2)

    run = spawn(More("m"))
    run.n += 1
    assert (run.n, run.extra, run.count) == (2, 2, 0)
    assert More("m").to_dict()["state"] == ["seen", "count", "limit", "n", "extra"]


# Everything else is configuration.


@pytest.mark.parametrize("name", ["total", "id", "type", "shared_by_class"])
def test_r06_assigning_what_is_not_declared_is_refused_in_a_run(name: str) -> None:
    run = spawn(Configured(total=1))
    with pytest.raises(
        ExecutorStateError, match=rf"'configured' \(Configured\) assigned '{name}' .*`{name}: int"
    ):
        setattr(run, name, 2)
    with pytest.raises(ExecutorStateError, match="deleted 'total'"):
        del run.total
    assert run.__dict__["total"] == 1


def test_definitions_may_be_edited_until_they_are_built() -> None:
    executor = Configured(total=1)
    executor.total = 2  # type: ignore[attr-defined]
    built = definition_copy(executor)
    executor.total = 3  # type: ignore[attr-defined]
    assert spawn(built).__dict__["total"] == 2


def _add(value: Any) -> None:
    value.append(9)


MUTATIONS: list[tuple[Any, Callable[[Any], Any]]] = [
    ([1], _add),
    ([1], lambda value: value.__setitem__(0, 1.0)),
    ([1], lambda value: value.__setitem__(0, True)),
    ([1, 2], lambda value: value.reverse()),
    ({"a": 1}, lambda value: value.update(b=2)),
    ({"a": 1, "b": 2}, lambda value: value.update(a=value.pop("a"))),
    ({"a": 1}, lambda value: value.update(b=value.pop("a"))),
    ({1}, lambda value: value.add(2)),
    ({1, 2}, lambda value: value.discard(2)),
    (bytearray(b"a"), lambda value: value.extend(b"b")),
    (deque([1], maxlen=3), _add),
    (OrderedDict(a=1, b=2), lambda value: value.move_to_end("a")),
    (defaultdict(list, a=[1]), lambda value: value["new"]),
    (defaultdict(list, a=[1]), lambda value: setattr(value, "default_factory", dict)),
    (Counter("aab"), lambda value: value.update("a")),
    (ChainMap({"a": 1}, {"b": 2}), lambda value: value.__setitem__("b", 3)),
    (UserDict(a=1), lambda value: value.pop("a")),
    (UserList([1]), _add),
    ({"deep": [{"er": [1]}]}, lambda value: value["deep"][0]["er"].append(2)),
    (([1], 2), lambda value: value[0].append(2)),
    ([object], lambda value: value.__setitem__(0, int)),
    (partial(print, [1]), lambda value: value.args[0].append(2)),
]


@pytest.mark.parametrize(("container", "change"), MUTATIONS)
def test_r06_a_changed_container_is_refused_and_reaches_nobody_else(
    container: Any, change: Callable[[Any], Any]
) -> None:
    definition = definition_copy(Configured(held=container))
    run, other = spawn(definition), spawn(definition)
    check_configuration(run)
    change(run.held)  # type: ignore[attr-defined]
    with pytest.raises(
        ExecutorStateError, match=r"'configured' \(Configured\) changed its attribute 'held', a "
    ):
        check_configuration(run)
    check_configuration(other)
    check_configuration(spawn(definition))


@pytest.mark.parametrize(("container", "change"), MUTATIONS)
def test_editing_the_callers_executor_changes_nothing_that_was_built(
    container: Any, change: Callable[[Any], Any]
) -> None:
    mine = Configured(held=deepcopy(container))
    built = definition_copy(mine)
    before = repr(spawn(built).held)  # type: ignore[attr-defined]
    change(mine.held)  # type: ignore[attr-defined]
    run = spawn(built)
    assert repr(run.held) == before != repr(mine.held)  # type: ignore[attr-defined]
    check_configuration(run)


def test_the_message_says_how_to_declare_a_container() -> None:
    run = spawn(Configured(held=[]))
    run.held.append(1)  # type: ignore[attr-defined]
    with pytest.raises(ExecutorStateError, match=r"`held: list = state\(factory=list\)`"):
        check_configuration(run)


def test_a_container_of_the_class_is_configuration_too() -> None:
    run = spawn(definition_copy(Configured()))
    run.shared_by_class.append(1)
    with pytest.raises(ExecutorStateError, match="changed its attribute 'shared_by_class', a list"):
        check_configuration(run)
    assert Configured.shared_by_class == []


def test_equal_scalars_written_again_are_no_change() -> None:
    run = spawn(Configured(held={"name": "a b", "n": 1}))
    run.held.update(name=str(b"a b", "ascii"), n=1)  # type: ignore[attr-defined]
    check_configuration(run)


def test_what_is_no_container_is_a_shared_service() -> None:
    class Client:
        calls = 0

    client = Client()
    definition = definition_copy(Configured(client=client, clients=[client], by_name={"c": (client,)}))
    run = spawn(definition)
    run.client.calls += 1  # type: ignore[attr-defined]
    assert run.client is client and run.clients[0] is client  # type: ignore[attr-defined]
    assert run.by_name["c"][0] is client  # type: ignore[attr-defined]
    check_configuration(run)


def test_containers_keep_their_shape_in_a_copy() -> None:
    shared = [1]
    loop: list[Any] = []
    loop.append(loop)
    point = ([1], 2)
    run = spawn(
        definition_copy(
            Configured(
                one=shared,
                two=shared,
                loop=loop,
                point=point,
                numbers=(1, 2),
                bounded=deque([1, 2], maxlen=2),
                counted=Counter("aab"),
                by_kind=defaultdict(list, a=[1]),
            )
        )
    )
    attributes = run.__dict__
    assert attributes["one"] is attributes["two"] is not shared
    assert attributes["loop"][0] is attributes["loop"] is not loop
    assert attributes["point"] == point and attributes["point"][0] is not point[0]
    assert attributes["bounded"].maxlen == 2
    assert type(attributes["counted"]) is Counter and attributes["counted"] == Counter("aab")
    assert attributes["by_kind"].default_factory is list and attributes["by_kind"] == {"a": [1]}
    check_configuration(run)


class Bound(Executor):
    n: int = state(0)

    def __init__(self) -> None:
        super().__init__("bound")
        self.step = self.increase
        self.table = {"up": self.increase, "twice": [self.increase, self.increase]}
        self.later = partial(self.increase, 10)
        self.chosen = frozenset({self.increase})
        self.pushed: list[int] = []
        self.push = self.pushed.append
        self.me = self

    def increase(self, by: int = 1) -> None:
        self.n += by

    @handler
    async def on_word(self, word: str, ctx: WorkflowContext) -> None: ...


def test_methods_of_the_definition_are_bound_to_the_run_wherever_they_sit() -> None:
    original = Bound()
    run = spawn(definition_copy(original))
    run.step()
    run.table["up"]()  # type: ignore[operator]
    run.later()
    for method in (*run.chosen, *run.table["twice"]):  # type: ignore[misc]
        method()
    assert run.n == 15
    assert run.me is run
    check_configuration(run)
    run.push(1)
    assert run.pushed == [1] and original.pushed == []
    with pytest.raises(ExecutorStateError, match="'pushed'"):
        check_configuration(run)


def test_properties_and_cached_values_work_in_a_run() -> None:
    class Shaped(Executor):
        n: int = state(0)

        @property
        def double(self) -> int:
            return self.n * 2

        @double.setter
        def double(self, value: int) -> None:
            self.n = value // 2

        @cached_property
        def table(self) -> list[int]:
            return [1, 2]

        @handler
        async def on_word(self, word: str, ctx: WorkflowContext) -> None: ...

    run = spawn(Shaped("s"))
    run.double = 8
    assert (run.n, run.double, run.table) == (4, 8, [1, 2])
    check_configuration(run)


# Executors that manage their own state.


class Owning(Executor):
    def __init__(self) -> None:
        super().__init__("owning")
        self.log: list[str] = []

    @handler
    async def on_word(self, word: str, ctx: WorkflowContext) -> None: ...

    async def on_snapshot_save(self) -> dict[str, Any]:
        return {"log": self.log} if self.log else {}

    def on_snapshot_restore(self, state: dict[str, Any]) -> None:
        self.log = state["log"]


class OwningTheOtherWay(Owning):
    def on_snapshot_save(self) -> dict[str, Any]:  # type: ignore[override]
        return {"log": self.log} if self.log else {}

    async def on_snapshot_restore(self, state: dict[str, Any]) -> None:  # type: ignore[override]
        self.log = state["log"]


@pytest.mark.parametrize("cls", [Owning, OwningTheOtherWay])
async def test_an_executor_may_manage_its_own_state(cls: type[Owning]) -> None:
    definition = definition_copy(cls())
    run = spawn(definition)
    assert await dehydrate(run) is None
    run.log.append("a")
    run.fresh = 1  # type: ignore[attr-defined]
    del run.fresh  # type: ignore[attr-defined]
    check_configuration(run)
    assert await dehydrate(run) == {"log": ["a"]}
    again = spawn(definition)
    assert again.log == []
    await hydrate(again, {"log": ["a", "b"]})
    assert again.log == ["a", "b"]


async def test_what_such_an_executor_saves_must_be_a_dict() -> None:
    class Wrong(Owning):
        async def on_snapshot_save(self) -> Any:
            return ["a"]

    with pytest.raises(ExecutorStateError, match=r"'owning' \(.*Wrong\) must return a dict .* got list"):
        await dehydrate(spawn(Wrong()))


def test_half_of_a_pair_of_hooks_is_refused() -> None:
    class Saves(Tally):
        async def on_snapshot_save(self) -> dict[str, Any]:
            return {}

    class Restores(Tally):
        async def on_snapshot_restore(self, state: dict[str, Any]) -> None: ...

    with pytest.raises(DefinitionError, match="Saves overrides on_snapshot_save but not on_snapshot_restore"):
        Saves("s")
    with pytest.raises(
        DefinitionError, match="Restores overrides on_snapshot_restore but not on_snapshot_save"
    ):
        Restores("r")


def test_declared_and_own_state_do_not_mix() -> None:
    class Mixed(Owning):
        n: int = state(0)

    class Scratched(Owning):
        n: int = scratch(0)

    with pytest.raises(DefinitionError, match=r"Mixed declares \['n'\] with state\(\) and also overrides"):
        Mixed()
    assert spawn(Scratched()).n == 0


@pytest.mark.parametrize("hook", ["save", "restore"])
def test_a_hook_under_its_old_name_is_refused(hook: str) -> None:
    cls = type("Old", (Tally,), {f"on_checkpoint_{hook}": lambda self: {}})
    with pytest.raises(
        DefinitionError, match=f"Old.on_checkpoint_{hook} would never be called.*on_snapshot_{hook}"
    ):
        cls("o")


# Kinds of classes.


def test_a_dataclass_may_be_an_executor() -> None:
    @dataclass(repr=False, eq=False)
    class Record(Executor):
        name: str
        sizes: list[int]
        seen: list[str] = state(factory=list)  # noqa: RUF009
        n: int = state(3)

        def __post_init__(self) -> None:
            super().__init__(self.name)

        @handler
        async def on_word(self, word: str, ctx: WorkflowContext) -> None: ...

    plain, given = Record("r", [1]), Record("r", [1], n=9)
    assert (spawn(plain).n, spawn(given).n, spawn(given).seen) == (3, 9, [])
    run = spawn(definition_copy(plain))
    run.sizes.append(2)
    with pytest.raises(ExecutorStateError, match="'sizes'"):
        check_configuration(run)


def test_dataclasses_that_would_read_state_outside_a_run_are_refused() -> None:
    @dataclass
    class Shown(Executor):
        name: str
        n: int = state(3)

        def __post_init__(self) -> None:
            super().__init__(self.name)

        @handler
        async def on_word(self, word: str, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError, match=r"Shown would read its state fields \['n'\]"):
        Shown("s")


def test_a_frozen_dataclass_is_refused() -> None:
    @dataclass(frozen=True)
    class Frozen(Executor):  # type: ignore[misc]
        name: str

        @handler
        async def on_word(self, word: str, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError, match="Frozen is a frozen dataclass"):
        Frozen("s")


def test_slots_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Slotted cannot be an executor with __slots__"):

        class Slotted(Executor):
            __slots__ = ("a",)

    class Empty(Tally):
        __slots__ = ()

    assert spawn(Empty("e")).count == 0


def test_a_builtin_base_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Listed cannot be an executor and a list"):

        class Listed(Executor, list):  # type: ignore[type-arg]
            pass
