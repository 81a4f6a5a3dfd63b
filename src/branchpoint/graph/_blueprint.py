"""What an executor's class declares, worked out once per class."""

from __future__ import annotations

import dataclasses
import sys
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from types import FrameType
from typing import Any, Final

import msgspec

from branchpoint.errors import DefinitionError
from branchpoint.graph._declaration import DECLARATION, Declaration
from branchpoint.graph._specs import HandlerSpec, ResponseSpec
from branchpoint.graph._state import StateField, scratch, state
from branchpoint.graph._typing import readable, run_time_form

__all__ = ["Blueprint", "blueprint", "check_duplicates", "check_layout"]

_BLUEPRINT: Final = "_branchpoint_blueprint"
_HEAP_TYPE: Final = 1 << 9
_CONTAINERS: Final = frozenset({
    list, dict, set, bytearray, deque, OrderedDict, defaultdict, Counter, ChainMap, UserDict, UserList,
})  # fmt: skip
_RENAMED: Final = {
    "on_checkpoint_save": "on_snapshot_save",
    "on_checkpoint_restore": "on_snapshot_restore",
}


class Blueprint(msgspec.Struct, frozen=True):
    """The declarations of one executor class.

    Attributes:
        fields: The declared fields by name, bases first.
        saved: Those of them that are saved.
        handlers: The handlers in declaration order, bases first; an override keeps its place.
        responses: The response handlers in the same order.
        containers: Names of class attributes that are containers; a run copies them, too.
        manages_itself: Whether the class saves and restores its own state.
    """

    fields: dict[str, StateField]
    saved: tuple[StateField, ...]
    handlers: tuple[HandlerSpec, ...]
    responses: tuple[ResponseSpec, ...]
    containers: tuple[str, ...]
    manages_itself: bool


def blueprint(cls: type) -> Blueprint:
    """Return what a class declares.

    Raises:
        DefinitionError: The class is not a valid executor; the message names class and member.
    """
    known: Blueprint | None = cls.__dict__.get(_BLUEPRINT)
    if known is None:
        known = _drawn(cls, sys._getframe(1))
        setattr(cls, _BLUEPRINT, known)
    return known


def _drawn(cls: type, frame: FrameType) -> Blueprint:
    members = _members(cls)
    fields = {name: value for name, value in members.items() if isinstance(value, StateField)}
    for name, value in members.items():
        if value is state or value is scratch:
            raise DefinitionError(
                f"{cls.__qualname__}.{name} is {value.__name__} itself, which declares nothing: call it, as in "
                f"{name}: T = {value.__name__}(factory=list)."
            )
    for name, field in fields.items():
        if field.name != name:
            raise DefinitionError(
                f"{cls.__qualname__}.{name} and .{field.name} are one {field.kind}() field; call "
                f"{field.kind}() once for each."
            )
    _check_dataclass(cls, fields)
    handlers, responses = _discovered(cls, frame)
    methods = [spec.name for spec in handlers] + [spec.name for spec in responses]
    _check_names(cls, {*fields, *methods})
    return Blueprint(
        fields=fields,
        saved=tuple(field for field in fields.values() if field.saved),
        handlers=handlers,
        responses=responses,
        containers=tuple(
            name
            for name, value in members.items()
            if type(value) in _CONTAINERS and not name.startswith("__")
        ),
        manages_itself=_manages_itself(cls, members, fields),
    )


def _members(cls: type) -> dict[str, Any]:
    """Return the attributes of a class and its bases, bases first, without those of `object`."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__[:-1]):
        members.update(vars(base))
    return members


def _discovered(cls: type, frame: FrameType) -> tuple[tuple[HandlerSpec, ...], tuple[ResponseSpec, ...]]:
    handlers: dict[str, HandlerSpec] = {}
    responses: dict[str, ResponseSpec] = {}
    declared: dict[str, Declaration] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, staticmethod | classmethod) and hasattr(value.__func__, DECLARATION):
                raise DefinitionError(
                    f"Handler '{cls.__qualname__}.{name}' must be a plain method; remove "
                    f"@{type(value).__name__}."
                )
            declaration = getattr(value, DECLARATION, None) if callable(value) else None
            if declaration is None and callable(value) and not isinstance(value, type):
                # An override without the decorator is still the handler: calling something else
                # than the method of that name, or nothing, would surprise.
                declaration = declared.get(name)
            if declaration is None or declaration.kind != "handler":
                handlers.pop(name, None)
            if declaration is None or declaration.kind == "handler":
                responses.pop(name, None)
            if declaration is not None:
                declared[name] = declaration
                if declaration.kind == "handler":
                    handlers[name] = declaration.handler_spec(name, value, frame)
                else:
                    responses[name] = declaration.response_spec(name, value, frame)
    check_duplicates(cls, handlers.values())
    _check_duplicate_responses(cls, list(responses.values()))
    return tuple(handlers.values()), tuple(responses.values())


def check_duplicates(cls: type, handlers: Any) -> None:
    """Refuse two handlers for one type, also where it goes by two names (`NewType`, an alias).

    Raises:
        DefinitionError: There are two; the message names both.
    """
    seen: dict[Any, HandlerSpec] = {}
    for spec in handlers:
        other = seen.setdefault(run_time_form(spec.message_type), spec)
        if other is not spec:
            raise DefinitionError(
                f"{cls.__qualname__} has two handlers for {readable(spec.message_type)}"
                f"{_same_as(other.message_type, spec.message_type)}: '{other.name}' and '{spec.name}'; which of "
                "them gets a message would be chance. Keep one."
            )


def _same_as(one: Any, other: Any) -> str:
    return "" if readable(one) == readable(other) else f", which is {readable(one)} at run time"


def _check_duplicate_responses(cls: type, responses: list[ResponseSpec]) -> None:
    seen: dict[Any, ResponseSpec] = {}
    for spec in responses:
        pair = (run_time_form(spec.request_type), run_time_form(spec.response_type))
        other = seen.setdefault(pair, spec)
        if other is not spec:
            raise DefinitionError(
                f"{cls.__qualname__} has two response handlers for a {readable(spec.request_type)} "
                f"answered by {readable(spec.response_type)}: '{other.name}' and '{spec.name}'. Keep one."
            )


def _check_names(cls: type, names: set[str]) -> None:
    root = next(base for base in reversed(cls.__mro__) if "on_snapshot_save" in vars(base))
    taken = sorted(names & {"id", "type", "type_", *vars(root)})
    if taken:
        raise DefinitionError(
            f"{cls.__qualname__}.{taken[0]} takes a name that every executor uses for itself; rename it."
        )


def _manages_itself(cls: type, members: dict[str, Any], fields: dict[str, StateField]) -> bool:
    for old, new in _RENAMED.items():
        if old in members:
            raise DefinitionError(
                f"{cls.__qualname__}.{old} would never be called: the hook is named {new}. Rename it, or "
                "declare the state with state() and remove both hooks."
            )
    saves, restores = (
        sum(name in vars(base) for base in cls.__mro__) > 1
        for name in ("on_snapshot_save", "on_snapshot_restore")
    )
    if saves != restores:
        present, missing = ("save", "restore") if saves else ("restore", "save")
        raise DefinitionError(
            f"{cls.__qualname__} overrides on_snapshot_{present} but not on_snapshot_{missing}, so what is "
            "saved would not come back. Override both."
        )
    saved = [field.name for field in fields.values() if field.saved]
    if saves and saved:
        raise DefinitionError(
            f"{cls.__qualname__} declares {saved} with state() and also overrides on_snapshot_save, which "
            "saves instead of them. Do one of the two; scratch() fields may stay."
        )
    return saves


def _check_dataclass(cls: type, fields: dict[str, StateField]) -> None:
    options = getattr(cls, "__dataclass_params__", None)
    if options is None:
        return
    if options.frozen:
        raise DefinitionError(
            f"{cls.__qualname__} is a frozen dataclass; an executor sets attributes when it is made. "
            "Drop frozen=True."
        )
    names = [field.name for field in dataclasses.fields(cls) if field.name in fields]
    if names and (options.repr or options.eq):
        raise DefinitionError(
            f"The dataclass {cls.__qualname__} would read its state fields {names} in __repr__ and __eq__, "
            "outside of any run. Decorate it with @dataclass(repr=False, eq=False)."
        )


def check_layout(cls: type) -> None:
    """Refuse classes whose instances keep data where a run-scoped copy would not find it.

    Raises:
        DefinitionError: The class has `__slots__`, or a builtin type among its bases.
    """
    for base in cls.__mro__[:-1]:
        slots = base.__dict__.get("__slots__", ())
        if (slots,) if isinstance(slots, str) else tuple(slots):
            raise DefinitionError(
                f"{cls.__qualname__} cannot be an executor with __slots__ (of {base.__qualname__}): a run "
                "copies the executor's __dict__. Remove them."
            )
        if not base.__flags__ & _HEAP_TYPE:
            raise DefinitionError(
                f"{cls.__qualname__} cannot be an executor and a {base.__qualname__}: a run makes the "
                f"executor anew. Hold the {base.__qualname__} in a state() field."
            )
