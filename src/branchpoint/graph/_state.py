"""Declared state of an executor, and which of its three lives the executor is in.

An executor object is *being built* inside its `__init__`, is then a *definition*, and a run works
on a *run-scoped* object made from it. The scope object it carries says which, and decides what
reading and writing a declared field means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from branchpoint.codec import copy_value, fingerprint
from branchpoint.errors import DefinitionError, EncodingError, ExecutorStateError

if TYPE_CHECKING:
    from branchpoint.graph._choice import HandlerTable

__all__ = [
    "SCOPE",
    "BuildingScope",
    "DefinitionScope",
    "RunScope",
    "StateField",
    "described",
    "scope_of",
    "scratch",
    "state",
]

T = TypeVar("T")

SCOPE: Final = "_branchpoint_scope"
"""The attribute under which an executor carries its scope."""

_ABSENT: Final = object()


class StateField:
    """A field declared by `state()` or `scratch()`: a descriptor on the executor's class."""

    __slots__ = ("default", "factory", "name", "saved")

    def __init__(self, default: Any, factory: Callable[[], Any] | None, *, saved: bool) -> None:
        self.default = default
        self.factory = factory
        self.saved = saved
        self.name = ""

    @property
    def kind(self) -> str:
        """The name of the function that declares such a field."""
        return "state" if self.saved else "scratch"

    def fresh(self) -> Any:
        """Return the default as a value that nobody else holds."""
        if self.factory is not None:
            return self.factory()
        return copy_value(self.default, path=self.name)

    def __set_name__(self, owner: type, name: str) -> None:
        # A second name is refused by the blueprint: an error raised here would come out wrapped.
        self.name = self.name or name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return scope_of(instance).read(instance, self)

    def __set__(self, instance: Any, value: Any) -> None:
        if value is not self:  # a dataclass hands the class attribute on as the field's default
            scope_of(instance).write(instance, self, value)

    def __delete__(self, instance: Any) -> None:
        raise ExecutorStateError(
            f"The {self.kind} field '{self.name}' of executor {described(instance)} cannot be deleted; "
            "assign it a value that means nothing, such as None."
        )


@overload
def state(default: T) -> T: ...


@overload
def state(*, factory: Callable[[], T]) -> T: ...


def state(default: Any = _ABSENT, *, factory: Any = None) -> Any:
    """Declare a field of an executor that lives in a run and is saved at every boundary.

    It reads and writes like an attribute, in handlers only. Assigned in `__init__`, it is that
    instance's default. A mutable default is safe: every run gets a copy of its own. A field that
    equals its default takes no place in a snapshot.

    Args:
        default: The value a run starts with.
        factory: Makes that value, instead of `default`.

    Raises:
        DefinitionError: Neither or both are given, or the default cannot be copied.

    Example:
        >>> class Tally(Executor):
        ...     seen: list[str] = state(factory=list)
        ...
        ...     @handler
        ...     async def on_word(self, word: str, ctx: WorkflowContext[Never, int]) -> None:
        ...         self.seen.append(word)
        ...         await ctx.yield_output(len(self.seen))
    """
    return _declared(default, factory, saved=True)


@overload
def scratch(default: T) -> T: ...


@overload
def scratch(*, factory: Callable[[], T]) -> T: ...


def scratch(default: Any = _ABSENT, *, factory: Any = None) -> Any:
    """Declare a field of an executor that lives in a run and is never saved: a cache, a client.

    After an interruption it is at its default again, so nothing may depend on it.

    Args:
        default: The value a run starts with.
        factory: Makes that value, instead of `default`.

    Raises:
        DefinitionError: Neither or both are given, or the default cannot be copied.
    """
    return _declared(default, factory, saved=False)


def _declared(default: Any, factory: Any, *, saved: bool) -> StateField:
    name = "state" if saved else "scratch"
    if (default is _ABSENT) == (factory is None):
        raise DefinitionError(
            f"{name}() needs either a default or a factory: {name}(0), or {name}(factory=list)."
        )
    if isinstance(default, type):
        raise DefinitionError(
            f"{name}({default.__name__}) would hold the class itself; write {name}(factory={default.__name__}) for a "
            "fresh one in every run."
        )
    if factory is not None and not callable(factory):
        raise DefinitionError(
            f"The factory of {name}() must be a function without arguments, got {factory!r}."
        )
    if factory is None:
        # The class's own from here on: the caller's object may change, and no executor with it.
        try:
            default = copy_value(default)
        except EncodingError as error:
            raise DefinitionError(
                f"The default of {name}() cannot be copied for every run ({error}); write "
                f"{name}(factory=...) to make it anew in each."
            ) from error
    return StateField(default, factory, saved=saved)


def described(executor: Any) -> str:
    """Name an executor in a message, by id and class."""
    return f"'{executor.__dict__.get('id', '?')}' ({type(executor).__qualname__})"


class BuildingScope:
    """Inside `__init__`: writing a field sets the instance's default."""

    __slots__ = ("defaults", "table")

    def __init__(self) -> None:
        self.defaults: dict[str, Any] = {}
        self.table: HandlerTable | None = None

    def read(self, executor: Any, field: StateField) -> Any:
        """Return the instance's default, so that `__init__` can change it in place."""
        del executor
        if field.name not in self.defaults:
            self.defaults[field.name] = field.fresh()
        return self.defaults[field.name]

    def write(self, executor: Any, field: StateField, value: Any) -> None:
        """Set the instance's default."""
        del executor
        self.defaults[field.name] = value


class DefinitionScope:
    """After `__init__`: fields hold nothing, they have defaults only."""

    __slots__ = ("configuration", "defaults", "table")

    def __init__(
        self, defaults: dict[str, Any], table: HandlerTable, configuration: tuple[str, ...] | None = None
    ) -> None:
        self.defaults = defaults
        self.table = table
        # Names of the attributes a run copies; known beforehand for definitions a workflow owns.
        self.configuration = configuration

    def read(self, executor: Any, field: StateField) -> Any:
        """Refuse: there is no run."""
        raise ExecutorStateError(
            f"The {field.kind} field '{field.name}' of executor {described(executor)} is only available in a "
            "run: this object is a definition and holds no state. Read it in a handler, or afterwards from "
            f"checkpoint.head_snapshot.state['executor_states']['{executor.__dict__.get('id', '?')}']."
        )

    def write(self, executor: Any, field: StateField, value: Any) -> None:
        """Refuse: there is no run."""
        del value
        raise ExecutorStateError(
            f"The {field.kind} field '{field.name}' of executor {described(executor)} is only available in a "
            "run: this object is a definition and holds no state. Write it in a handler, or set its default "
            "in __init__."
        )


class RunScope:
    """In a run: fields hold values, made from the defaults when they are first touched."""

    __slots__ = ("configuration", "defaults", "definition", "manages_itself", "table", "values")

    def __init__(
        self,
        definition: Any,
        defaults: dict[str, Any],
        table: HandlerTable,
        *,
        configuration: tuple[tuple[str, Any], ...],
        manages_itself: bool,
    ) -> None:
        self.definition = definition
        self.defaults = defaults
        self.table = table
        self.configuration = configuration
        self.manages_itself = manages_itself
        self.values: dict[str, Any] = {}

    def read(self, executor: Any, field: StateField) -> Any:
        """Return the value of this run."""
        try:
            return self.values[field.name]
        except KeyError:
            value = self.values[field.name] = self.default(executor, field)
            return value

    def write(self, executor: Any, field: StateField, value: Any) -> None:
        """Set the value of this run."""
        del executor
        self.values[field.name] = value

    def default(self, executor: Any, field: StateField) -> Any:
        """Return the default of this executor, as a value of its own."""
        if field.name in self.defaults:
            return copy_value(self.defaults[field.name], path=f"{executor.__dict__.get('id')}.{field.name}")
        return field.fresh()

    def is_at_defaults(self, executor: Any, fields: Iterable[StateField]) -> bool:
        """Say whether every one of the fields has the value it would have if it were never touched."""
        return all(
            field.name not in self.values or _equal(self.values[field.name], self.default(executor, field))
            for field in fields
        )


def _equal(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if type(value) is not type(default):
        return False
    # Looking at all of a long list only to learn that it is not empty would cost every superstep.
    if isinstance(value, list | dict | set | str | bytes) and len(value) != len(default):
        return False
    return bool(fingerprint(value) == fingerprint(default))


def scope_of(executor: Any) -> BuildingScope | DefinitionScope | RunScope:
    """Return the scope of an executor; one without any is being built."""
    scope: BuildingScope | DefinitionScope | RunScope | None = executor.__dict__.get(SCOPE)
    if scope is None:
        scope = executor.__dict__[SCOPE] = BuildingScope()
    return scope
