"""The one registry of state types: which classes may be kept, and under which stable name.

Decoding never imports or looks up a class by a name found in data; it asks this registry.
Builtin kinds (tuple, datetime, ...) are not registered here: they are part of the format.
"""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from branchpoint.codec import _defaults, _foreign, _pydantic
from branchpoint.codec._tags import BUILTIN_TAGS, BUILTIN_TYPES
from branchpoint.errors import DefinitionError, UnregisteredTypeError

T = TypeVar("T")
Kind = Literal["dataclass", "struct", "enum", "namedtuple", "pydantic", "custom"]

_ID = re.compile(r"[^\s\[\]|,$\"'][^\s\[\]|,\"']*")


@dataclass(frozen=True, slots=True)
class TypeEntry:
    """What is known of one registered class.

    Attributes:
        cls: The class itself; only values whose type is exactly this class use the entry.
        type_id: The stable name under which values are stored.
        version: The version that is written now, from 1.
        encoder: Live value -> payload, any value the codec can keep.
        decoder: Payload, already decoded -> live value.
        upgrades: `{n: fn}`, fn carries a decoded payload of version n to version n + 1.
        json_schema: What the developer gave as JSON schema, or None.
        immutable: Declared immutable all the way down (always so for an Enum).
        copy: The developer's copy by value, or None.
        fingerprint: The developer's equality token of a value, or None.
        kind: Which default codec is in use, "custom" for the developer's own.
        refused: Why its encoder takes no value, for a parametrised model that no text can name; else "".
    """

    cls: type[Any]
    type_id: str
    version: int
    encoder: Callable[[Any], Any]
    decoder: Callable[[Any], Any]
    upgrades: Mapping[int, Callable[[Any], Any]]
    json_schema: Any
    immutable: bool
    copy: Callable[[Any], Any] | None
    fingerprint: Callable[[Any], Any] | None
    kind: Kind = "custom"
    refused: str = ""


# Read without a lock on hot paths; changed only under the lock and only in place.
by_type: dict[type[Any], TypeEntry] = {}
by_id: dict[str, TypeEntry] = {}
# Parametrised pydantic models are found through their registered origin; kept apart, so that
# `isolated_registry` and a later registration of exactly that class both see a clean table.
derived: dict[type[Any], TypeEntry] = {}
named: dict[str, TypeEntry] = {}
_lock = threading.RLock()
# What a room registers when it is imported, which is once: `isolated_registry` leaves it.
_lasting: set[type[Any]] = set()


@overload
def register_state_type(
    cls: type[T],
    /,
    *,
    type_id: str | None = None,
    encoder: Callable[[T], Any] | None = None,
    decoder: Callable[[Any], T] | None = None,
    version: int = 1,
    upgrades: Mapping[int, Callable[[Any], Any]] | None = None,
    json_schema: Any = None,
    immutable: bool | None = None,
    copy: Callable[[T], T] | None = None,
    fingerprint: Callable[[T], Any] | None = None,
) -> type[T]: ...


@overload
def register_state_type(
    cls: str | None = None,
    /,
    *,
    type_id: str | None = None,
    encoder: Callable[[Any], Any] | None = None,
    decoder: Callable[[Any], Any] | None = None,
    version: int = 1,
    upgrades: Mapping[int, Callable[[Any], Any]] | None = None,
    json_schema: Any = None,
    immutable: bool | None = None,
    copy: Callable[[Any], Any] | None = None,
    fingerprint: Callable[[Any], Any] | None = None,
) -> Callable[[type[T]], type[T]]: ...


def register_state_type(
    cls: Any = None,
    /,
    *,
    type_id: str | None = None,
    encoder: Callable[[Any], Any] | None = None,
    decoder: Callable[[Any], Any] | None = None,
    version: int = 1,
    upgrades: Mapping[int, Callable[[Any], Any]] | None = None,
    json_schema: Any = None,
    immutable: bool | None = None,
    copy: Callable[[Any], Any] | None = None,
    fingerprint: Callable[[Any], Any] | None = None,
) -> Any:
    """Register a class, so that its values can be part of state, messages, requests and outputs.

    Works as `@register_state_type("shop.order")`, as `@register_state_type`, as
    `@register_state_type(version=2, ...)` and as `register_state_type(Order, type_id="shop.order")`.
    Dataclasses, `msgspec.Struct`s, Enums, NamedTuples and pydantic models need nothing more; any
    other class needs `encoder` and `decoder`.

    Args:
        cls: The class, or in decorator form the type id.
        type_id: The stable stored name; `module.qualname` when absent. Give one: a class that
            moves or is renamed later then keeps its data.
        encoder: Value -> payload; the payload may be any value that can itself be kept.
        decoder: Decoded payload -> value. Must accept whatever `encoder` returned.
        version: The version written from now on; data of a newer version is an error.
        upgrades: `{n: fn}`: fn takes the decoded payload of version n and returns that of n + 1.
        json_schema: JSON schema of the type for people outside, where none can be derived.
        immutable: Values never change, all the way down, so they need not be copied.
        copy: A quicker copy by value than decoding an encoding.
        fingerprint: value -> a token that is equal exactly as long as nothing visible changed.

    Returns:
        The class itself, or a decorator.

    Raises:
        DefinitionError: Another class has this id, this class has another id, or it has no
            default codec and no `encoder` and `decoder` were given.
    """
    if cls is None or isinstance(cls, str):
        if isinstance(cls, str):
            if type_id is not None and type_id != cls:
                raise DefinitionError(f"two type ids were given: {cls!r} and {type_id!r}")
            type_id = cls

        def decorate(decorated: Any) -> Any:
            _register(
                decorated,
                type_id,
                encoder,
                decoder,
                version,
                upgrades,
                json_schema,
                immutable,
                copy,
                fingerprint,
            )
            return decorated

        return decorate
    _register(cls, type_id, encoder, decoder, version, upgrades, json_schema, immutable, copy, fingerprint)
    return cls


def _register(
    cls: Any,
    type_id: str | None,
    encoder: Callable[[Any], Any] | None,
    decoder: Callable[[Any], Any] | None,
    version: int,
    upgrades: Mapping[int, Callable[[Any], Any]] | None,
    json_schema: Any,
    immutable: bool | None,
    copy: Callable[[Any], Any] | None,
    fingerprint: Callable[[Any], Any] | None,
) -> None:
    if not isinstance(cls, type):
        raise DefinitionError(f"only a class can be registered, not {cls!r}")
    name = f"{cls.__module__}.{cls.__qualname__}"
    if cls in BUILTIN_TYPES:
        raise DefinitionError(f"{name} is kept by the format itself and cannot be registered")
    if type(version) is not int or version < 1:
        raise DefinitionError(f"{name}: version must be an int from 1, not {version!r}")
    steps = dict(upgrades or {})
    for step in steps:
        if type(step) is not int or not 1 <= step < version:
            raise DefinitionError(
                f"{name}: upgrades[{step!r}] leads nowhere; keys are the versions 1..{version - 1} that "
                f"are older than version={version}"
            )
    if (encoder is None) != (decoder is None):
        raise DefinitionError(f"{name}: give both encoder and decoder, or neither")
    kind: Kind = "custom"
    if encoder is None or decoder is None:
        kind, encoder, decoder = _default_codec(cls, name)
    identifier = _checked_id(cls, type_id, name)
    entry = TypeEntry(
        cls=cls,
        type_id=identifier,
        version=version,
        encoder=encoder,
        decoder=decoder,
        upgrades=steps,
        json_schema=json_schema,
        immutable=_defaults.is_enum(cls) if immutable is None else immutable,
        copy=copy,
        fingerprint=fingerprint,
        kind=kind,
    )
    with _lock:
        other = by_id.get(identifier)
        if other is not None and other.cls is not cls:
            raise DefinitionError(
                f"type id {identifier!r} already belongs to {other.cls.__module__}.{other.cls.__qualname__}; "
                f"register {name} with a type_id of its own"
            )
        earlier = by_type.get(cls)
        if earlier is not None and earlier.type_id != identifier:
            raise DefinitionError(
                f"{name} is already registered as {earlier.type_id!r}; one class has one type id, and "
                f"{identifier!r} would make the data written so far unreadable"
            )
        _forget()
        by_type[cls] = entry
        by_id[identifier] = entry
        for registry in _foreign.joined:
            registry.registered(entry)


def _default_codec(cls: type[Any], name: str) -> tuple[Kind, Callable[[Any], Any], Callable[[Any], Any]]:
    if _pydantic.is_model(cls):
        return ("pydantic", *_pydantic.codec_for(cls))
    found = _defaults.codec_for(cls)
    if found is None:
        raise DefinitionError(
            f"{name} is no dataclass, msgspec.Struct, Enum, NamedTuple or pydantic model, or it builds on a "
            f"builtin container; give register_state_type an encoder= and a decoder="
        )
    return found


def _checked_id(cls: type[Any], type_id: str | None, name: str) -> str:
    if type_id is None:
        if cls.__module__ == "__main__":
            warnings.warn(
                f"{name} gets a type id that only this script knows; give one, as in "
                f"@register_state_type('{cls.__name__.lower()}')",
                UserWarning,
                stacklevel=4,
            )
        return name  # a parametrised model keeps its brackets, which no chosen id may have
    if not _ID.fullmatch(str(type_id)) or type(type_id) is not str:
        raise DefinitionError(
            f"{name}: a type id is a text without spaces, quotes, commas, brackets and '|', and does not "
            f"begin with '$'; {type_id!r} is not"
        )
    try:
        type_id.encode()
    except UnicodeEncodeError:
        raise DefinitionError(f"{name}: the type id {type_id!r} has no UTF-8 form; choose another") from None
    if type_id in BUILTIN_TAGS:
        raise DefinitionError(f"{name}: the type id {type_id!r} belongs to the format itself; choose another")
    return type_id


def entry_for_type(cls: type[Any]) -> TypeEntry | None:
    """Return the entry of exactly this class, or None; a base class does not count.

    A parametrised pydantic model is found when its origin is registered.
    """
    entry = by_type.get(cls)
    if entry is None and _foreign.expected and _foreign.call_in():
        entry = by_type.get(cls)
    if entry is None and "pydantic" in sys.modules:
        entry = derived.get(cls)
        if entry is None and _pydantic.parameters(cls)[0] is not None:
            from branchpoint.codec._generics import derive  # it builds on this file

            with _lock:
                entry = derive(cls)
    return _foreign.find_by_type(cls) if entry is None and _foreign.joined else entry


def entry_for_id(type_id: str) -> TypeEntry | None:
    """Return the entry with this type id, or None."""
    entry = by_id.get(type_id) or named.get(type_id)
    if entry is None and _foreign.expected and _foreign.call_in(type_id):
        entry = by_id.get(type_id)
    if entry is None and type_id.endswith("]"):
        from branchpoint.codec._generics import derive_id

        with _lock:
            entry = derive_id(type_id)
    return _foreign.find_by_id(type_id) if entry is None and _foreign.joined else entry


def join_registry(package: str, registry: _foreign.ForeignRegistry, lasting: Iterable[type[Any]]) -> None:
    """Work with the registry of another package from now on; for the room that knows the package.

    Args:
        package: Its name, as it was expected.
        registry: Asked for what is not known here, told what is registered, from the beginning.
        lasting: Classes that the room has registered; `isolated_registry` does not undo them.
    """
    with _lock:
        _lasting.update(lasting)
        _foreign.joined.append(registry)
        for entry in tuple(by_type.values()):
            registry.registered(entry)
        _foreign.no_longer_expect(package)


def _forget() -> None:
    derived.clear()
    named.clear()


def is_registered(cls: type[Any]) -> bool:
    """Whether values whose type is exactly `cls` are kept by a registered codec."""
    entry = entry_for_type(cls)
    return entry is not None and not entry.refused


def type_id_of(cls: type[Any]) -> str:
    """Return the type id of a registered class.

    Raises:
        UnregisteredTypeError: The class is not registered.
    """
    entry = entry_for_type(cls)
    if entry is None:
        raise UnregisteredTypeError(
            f"{cls.__module__}.{cls.__qualname__} is not registered; register_state_type would do it"
        )
    return entry.type_id


def registered_type(type_id: str) -> type[Any]:
    """Return the class registered under a type id.

    Raises:
        UnregisteredTypeError: No class has this id.
    """
    entry = entry_for_id(type_id)
    if entry is None:
        raise UnregisteredTypeError(
            f"no class is registered as {type_id!r}; import the module that registers it before loading"
        )
    return entry.cls


@contextmanager
def isolated_registry() -> Iterator[None]:
    """Undo, at the end of the block, every registration made inside it (for tests)."""
    with _lock:
        types, ids = dict(by_type), dict(by_id)
    try:
        yield
    finally:
        with _lock:
            for cls in _lasting & by_type.keys():
                types[cls] = by_type[cls]
                ids[by_type[cls].type_id] = by_type[cls]
            gone = [entry for cls, entry in by_type.items() if cls not in types]
            by_type.clear()
            by_type.update(types)
            by_id.clear()
            by_id.update(ids)
            _forget()
            for registry in _foreign.joined:
                for entry in gone:
                    registry.forgotten(entry)
