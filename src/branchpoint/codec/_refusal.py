"""How a refused value is reported: which type, where in the state, and what to do instead."""

from __future__ import annotations

import types
from typing import Any, Final

from branchpoint.codec._blame import describe_depth, text_without_form
from branchpoint.codec._registry import by_type
from branchpoint.codec._shape import step, type_name
from branchpoint.errors import BranchpointError, UnregisteredTypeError, UnsupportedValueError

__all__ = ["NoText", "Refusal", "TooDeep", "depth_error", "error_for", "refuse", "surrogate_in", "text_error"]

_NEVER: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (type, "keep the type id of a registered class as text instead"),
    (BaseException, "keep its text or a registered record of it instead"),
    (memoryview, "keep bytes(view) instead"),
    (
        (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType),
        "keep its results as a list instead",
    ),
    (
        (types.CodeType, types.FunctionType, types.BuiltinFunctionType, types.MethodType),
        "keep the name of what is to be called instead",
    ),
    (types.ModuleType, "keep its name instead"),
)


class Refusal(Exception):
    """A value was refused; on its way up it collects the steps of the path, innermost first.

    Attributes:
        error: Which error the caller will see.
        value: The refused value.
        reason: What is wrong with it, a sentence without a full stop.
        steps: Keys, indexes and fields on the way to it.
    """

    def __init__(self, error: type[BranchpointError], value: Any, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.value = value
        self.reason = reason
        self.steps: list[Any] = []


class NoText(Refusal):
    """A text with a lone surrogate; where it is in the value is found out afterwards."""

    def __init__(self) -> None:
        super().__init__(
            UnsupportedValueError,
            "",
            "it holds a lone surrogate, which has no UTF-8 form; decode or replace it",
        )


class TooDeep(Exception):
    """A value nests deeper than the bound, or contains itself; which one is found out afterwards."""


def refuse(value: Any) -> Refusal:
    """The refusal of a value whose exact type has no codec.

    A class that is not meant to be registered says what to do instead, as `__keep_instead__`.
    """
    cls = type(value)
    instead = getattr(cls, "__keep_instead__", None)
    if type(instead) is str:
        return Refusal(UnsupportedValueError, value, f"values of this kind cannot be kept; {instead}")
    for kinds, instead in _NEVER:
        if isinstance(value, kinds):
            return Refusal(UnsupportedValueError, value, f"values of this kind cannot be kept; {instead}")
    for base in cls.__mro__[1:]:
        entry = by_type.get(base)
        if entry is not None:
            reason = (
                f"its base {entry.type_id!r} is registered, but a subclass is never cut down to its base; "
                f"register it too"
            )
            return Refusal(UnregisteredTypeError, value, reason)
    return Refusal(
        UnregisteredTypeError,
        value,
        f"the type is not registered; @register_state_type('your.{cls.__name__.lower()}') makes it part of "
        f"state, or leave the value out of it",
    )


def error_for(refusal: Refusal, path: str) -> BranchpointError:
    """The error the caller sees, with the full path."""
    for one in reversed(refusal.steps):
        path = step(path, one)
    where = f"at {path}" if path else "as the whole value"
    return refusal.error(
        f"a value of type {type_name(type(refusal.value))} {where} cannot be kept: {refusal.reason}"
    )


def text_error(refusal: NoText, root: Any, path: str) -> BranchpointError:
    """The error for a text without UTF-8 form, with the path to it in the live value."""
    found = text_without_form(root, path)
    if found is None:  # an encoder made it up on the way
        return error_for(refusal, path)
    path, refusal.value = found
    refusal.steps = []
    return error_for(refusal, path)


def depth_error(root: Any, path: str) -> UnsupportedValueError:
    """The error for a value that is too deep or contains itself."""
    return UnsupportedValueError(describe_depth(root, path))


def surrogate_in(tree: Any) -> list[Any] | None:
    """The steps, innermost first, to a text in a wire tree that has no UTF-8 form; None if all have."""
    if type(tree) is str:
        try:
            tree.encode()
        except UnicodeEncodeError:
            return []
    elif type(tree) is list:
        for place, item in enumerate(tree):
            found = surrogate_in(item)
            if found is not None:
                return [*found, place]
    elif type(tree) is dict:
        if "$" in tree:
            return surrogate_in(tree["v"])
        for key, item in tree.items():
            if surrogate_in(key) is not None:
                return [key]
            found = surrogate_in(item)
            if found is not None:
                return [*found, key]
    return None
