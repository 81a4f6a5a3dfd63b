"""Executors: the nodes of a graph, which handle messages.

An executor that a developer makes is a definition. A run works on a run-scoped object made from it,
where declared fields hold values; see `_state` for what may be touched when.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any

from branchpoint.errors import DefinitionError, ExecutorStateError
from branchpoint.graph._blueprint import blueprint, check_duplicates, check_layout
from branchpoint.graph._choice import HandlerTable
from branchpoint.graph._edges import is_name
from branchpoint.graph._specs import HandlerSpec, ResponseSpec
from branchpoint.graph._state import SCOPE, BuildingScope, DefinitionScope, RunScope, described, scope_of
from branchpoint.graph._typing import compatible, readable

__all__ = ["Executor"]


class _ExecutorMeta(ABCMeta):
    """Knows when `__init__` is over: from then on the object is a definition."""

    if not TYPE_CHECKING:  # type checkers would take this for the signature of every executor

        def __call__(cls, *args, **kwargs):
            blueprint(cls)  # errors of the class come before errors of its __init__
            executor = super().__call__(*args, **kwargs)
            if isinstance(executor, Executor):
                _finish(executor)
            return executor


def _finish(executor: Executor) -> None:
    scope = scope_of(executor)
    if not isinstance(scope, BuildingScope):
        return
    if "id" not in executor.__dict__:
        raise DefinitionError(
            f"{type(executor).__qualname__}.__init__ never called super().__init__(id=...), so the executor "
            "has no id. Call it, in a dataclass from __post_init__."
        )
    executor.__dict__[SCOPE] = DefinitionScope(scope.defaults, executor._table)


class Executor(metaclass=_ExecutorMeta):
    """A node of a workflow: handles messages, sends messages, gives outputs, asks questions.

    Subclass it and decorate methods with `@handler`. What must be remembered between messages is
    declared with `state()`; attributes set in `__init__` are configuration, which every run sees as
    it was when the workflow was built. Handlers of one executor never run at the same time.

    The object given to a builder is a definition: the workflow copies it, and each run makes a
    run-scoped executor of its own. So one definition may serve several workflows and any number of
    runs at once.

    Attributes:
        id: The name by which edges, `target_id` and the saved state know this executor.
        type: The name of its kind, for people; by default that of the class.

    Example:
        >>> class Tally(Executor):
        ...     seen: list[str] = state(factory=list)
        ...
        ...     @handler
        ...     async def on_word(self, word: str, ctx: WorkflowContext[str, int]) -> None:
        ...         self.seen.append(word)
        ...         if len(self.seen) < 3:
        ...             await ctx.send_message(word)
        ...         else:
        ...             await ctx.yield_output(len(self.seen))
        >>> Tally(id="tally").input_types
        [<class 'str'>]
    """

    id: str
    type: str
    type_: str

    def __init__(
        self,
        id: str,
        *,
        type: str | None = None,
        type_: str | None = None,
        defer_discovery: bool = False,
        **_: Any,
    ) -> None:
        """Make a definition.

        Args:
            id: A name, unique within the workflow.
            type: The name of its kind, for people.
            type_: The same, for subclasses in which `type` is something else.
            defer_discovery: Whether the subclass adds its handlers itself, so that it may declare none.
            **_: Ignored, so that subclasses may pass on what they were given.

        Raises:
            DefinitionError: The id is not a non-empty text, or the class declares no handler.
        """
        cls = self.__class__
        if not is_name(id):
            raise DefinitionError(
                f"{cls.__qualname__} needs a non-empty text as id, without lone surrogates, got {id!r}."
            )
        if not defer_discovery and not blueprint(cls).handlers:
            raise DefinitionError(
                f"{cls.__qualname__} (id '{id}') has no handlers; decorate a method "
                "`async def on_message(self, message: T, ctx: WorkflowContext[OutT])` with @handler."
            )
        self.id = id
        self.type = self.type_ = type or type_ or cls.__name__

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_layout(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        scope = self.__dict__.get(SCOPE)
        if isinstance(scope, RunScope) and not scope.manages_itself and not _is_data_descriptor(self, name):
            raise ExecutorStateError(
                f"Executor {described(self)} assigned '{name}' during a run, which is not declared: the "
                "object does not outlive the run, so the value would be lost. Declare it in the class, as "
                f"`{name}: {readable(value.__class__)} = state(...)` to save it with every snapshot, or with "
                "scratch(...) for this run only."
            )
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        scope = self.__dict__.get(SCOPE)
        if isinstance(scope, RunScope) and not scope.manages_itself and not _is_data_descriptor(self, name):
            raise ExecutorStateError(
                f"Executor {described(self)} deleted '{name}' during a run: attributes that are not declared "
                "are configuration and the same in every run. Declare it with state(...) or scratch(...)."
            )
        object.__delattr__(self, name)

    def __repr__(self) -> str:
        return f"{self.__class__.__qualname__}(id={self.__dict__.get('id')!r})"

    @property
    def _table(self) -> HandlerTable:
        scope = self.__dict__.get(SCOPE) or scope_of(self)
        if scope.table is None:
            plan = blueprint(self.__class__)
            scope.table = HandlerTable(plan.handlers, plan.responses)
        return scope.table

    def _add_handlers(self, handlers: Iterable[HandlerSpec], responses: Iterable[ResponseSpec] = ()) -> None:
        """Add handlers of this instance's own; for subclasses that wrap something, in `__init__`.

        Raises:
            DefinitionError: `__init__` is over, or there is a handler for one of the types already.
        """
        scope = scope_of(self)
        if not isinstance(scope, BuildingScope):
            raise DefinitionError(f"Handlers of executor {described(self)} are added in its __init__ only.")
        together = (*self._table.handlers, *handlers)
        check_duplicates(self.__class__, together)
        scope.table = HandlerTable(together, (*self._table.responses, *responses))

    @property
    def handlers(self) -> tuple[HandlerSpec, ...]:
        """The handlers in declaration order, those of base classes first."""
        return self._table.handlers

    @property
    def response_handlers(self) -> tuple[ResponseSpec, ...]:
        """The response handlers in declaration order, those of base classes first."""
        return self._table.responses

    @property
    def input_types(self) -> list[Any]:
        """The types of message this executor takes, one per handler."""
        return [spec.message_type for spec in self.handlers]

    @property
    def output_types(self) -> list[Any]:
        """The types its handlers declare to send, each once; a bare `WorkflowContext` adds nothing."""
        specs: tuple[HandlerSpec | ResponseSpec, ...] = (*self.handlers, *self.response_handlers)
        return _distinct(tp for spec in specs for tp in spec.output_types or ())

    @property
    def workflow_output_types(self) -> list[Any]:
        """The types its handlers declare to yield to the caller, each once."""
        specs: tuple[HandlerSpec | ResponseSpec, ...] = (*self.handlers, *self.response_handlers)
        return _distinct(tp for spec in specs for tp in spec.workflow_output_types or ())

    def can_handle(self, message: Any) -> bool:
        """Say whether a handler takes this message."""
        return self._table.find(message) is not None

    def is_request_supported(self, request_type: Any, response_type: Any) -> bool:
        """Say whether a response handler takes answers of that type to requests of that type."""
        return any(
            compatible(request_type, spec.request_type) and compatible(response_type, spec.response_type)
            for spec in self.response_handlers
        )

    def check_response(self, request: Any, response: Any) -> None:
        """Refuse an answer that is of the right type and still does not fit its request.

        Override it where an answer has to name what it answers. It is called on the definition, before
        anything of the call is accepted, so it sees no state.

        Args:
            request: What was asked, the method's own copy.
            response: The answer, of the type that the request declares.

        Raises:
            ValueError: It does not fit; the text says why. The request stays open.
        """

    def on_snapshot_save(self) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """Return the state to save, in an executor that manages its own.

        Override it, sync or async, together with `on_snapshot_restore`, where the state sits in a
        foreign object. Then `state()` is not used, and attributes may be assigned in a run. It is
        called on the run-scoped executor after a superstep in which it handled a message. An empty
        dict means that there is nothing to save.
        """
        return {}

    def on_snapshot_restore(self, state: dict[str, Any]) -> Awaitable[None] | None:
        """Take the state that `on_snapshot_save` returned; called before the first message of a run.

        Args:
            state: A copy of the executor's own.
        """
        return None

    def to_dict(self) -> dict[str, Any]:
        """Describe the definition as plain JSON, with types by name."""
        return {
            "id": self.id,
            "type": self.type,
            "input_types": [readable(tp) for tp in self.input_types],
            "output_types": [readable(tp) for tp in self.output_types],
            "workflow_output_types": [readable(tp) for tp in self.workflow_output_types],
            "requests": [
                {"request": readable(spec.request_type), "response": readable(spec.response_type)}
                for spec in self.response_handlers
            ],
            "state": [field.name for field in blueprint(self.__class__).saved],
        }


def _distinct(types: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for tp in types:
        if tp not in found:
            found.append(tp)
    return found


def _is_data_descriptor(executor: Executor, name: str) -> bool:
    for base in executor.__class__.__mro__:
        if name in base.__dict__:
            return hasattr(base.__dict__[name].__class__, "__set__")
    return False
