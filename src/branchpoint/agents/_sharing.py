"""One registry with Agent Framework: what is registered with either is kept by both.

- A class registered here is made known there, so `FileSessionStore` keeps its values in the state of a
  session and restores them. There they are one opaque text field, written by this codec.
- A class registered there is kept here as the package itself would write it.

A class need not be registered twice; where it is, each side uses its own registration.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import agent_framework
import msgspec
from agent_framework import AgentSession

from branchpoint.codec import (
    TypeEntry,
    decode,
    digest,
    encode,
    new_parts,
)
from branchpoint.errors import CorruptCheckpointError, UnsupportedValueError

__all__ = ["AgentFrameworkRegistry"]

FIELD: Final = "value"
_HERE: Final = "branchpoint:"
"""How the type ids begin there that mean a class registered here."""
_THERE: Final = "agent_framework.state:"
"""How the type ids begin here that mean a class registered there."""


class _Carried(msgspec.Struct, forbid_unknown_fields=True):
    """A value with the parts it is cut into, as one JSON text."""

    value: msgspec.Raw
    parts: dict[str, msgspec.Raw] = {}


def _to_field(value: Any) -> Mapping[str, Any]:
    encoded, _ = encode(value, format="json")
    parts = {name: msgspec.Raw(data) for name, data in sorted(new_parts(encoded, ()).items())}
    return {FIELD: msgspec.json.encode(_Carried(msgspec.Raw(encoded.data), parts)).decode()}


def _from_field(payload: Mapping[str, Any]) -> Any:
    try:
        carried = msgspec.json.decode(payload[FIELD], type=_Carried)
    except (KeyError, TypeError, msgspec.MsgspecError) as error:
        raise CorruptCheckpointError(
            f"a value of type {str(payload.get('type'))[:80]!r} in the state of a session cannot be read ({error}); "
            "restore the session from a backup"
        ) from None
    parts = {name: bytes(data) for name, data in carried.parts.items()}
    for name, data in parts.items():
        if digest(data) != name:
            raise CorruptCheckpointError(
                f"a value of type {str(payload.get('type'))[:80]!r} in the state of a session is damaged: a part of "
                "it does not match its digest; restore the session from a backup"
            )
    return decode(bytes(carried.value), parts, format="json")


class AgentFrameworkRegistry:
    """The registry of Agent Framework, as the codec asks it and tells it."""

    def __init__(self) -> None:
        self._entries: dict[type[Any], TypeEntry] = {}

    def entry_for_type(self, cls: type[Any]) -> TypeEntry | None:
        """Return how values of a class are kept that was registered there."""
        registration = _table("_STATE_CLASS_REGISTRY").get(cls)
        if registration is None or registration.encoder is _to_field:
            return None
        known = self._entries.get(cls)
        if known is None or known.type_id != _id_here(registration.type_id):
            known = self._entries[cls] = _entry(registration)
        return known

    def entry_for_id(self, type_id: str) -> TypeEntry | None:
        """Return the entry of the class that was registered there under the id that this one means."""
        if not type_id.startswith(_THERE):
            return None
        for registration in tuple(_table("_STATE_TYPE_REGISTRY").values()):
            if _id_here(registration.type_id) == type_id:
                return self.entry_for_type(registration.cls)
        return None

    def registered(self, entry: TypeEntry) -> None:
        """Make a class known there, unless it is."""
        try:
            agent_framework.register_state_type(
                entry.cls, type_id=f"{_HERE}{entry.type_id}", encoder=_to_field, decoder=_from_field
            )
        except ValueError:
            pass  # it was registered there by itself, and that counts there

    def forgotten(self, entry: TypeEntry) -> None:
        """Take back what was made known there; only tests undo registrations."""
        by_type, by_id = _table("_STATE_CLASS_REGISTRY"), _table("_STATE_TYPE_REGISTRY")
        registration = by_type.get(entry.cls)
        if registration is not None and registration.encoder is _to_field:
            del by_type[entry.cls]
            by_id.pop(registration.type_id, None)


def _table(name: str) -> dict[Any, Any]:
    """One of the package's own tables, which have no public door; without it its classes are unregistered here."""
    found: dict[Any, Any] = getattr(getattr(agent_framework, "_sessions", None), name, {})
    return found


def _id_here(type_id: str) -> str:
    """An id of the package as one of ours, which may hold no blanks, quotes and brackets."""
    return _THERE + quote(type_id, safe="")


def _entry(registration: Any) -> TypeEntry:
    """Keep values of a class as the package would: by the public way to save and restore a session."""
    cls, type_id = registration.cls, registration.type_id

    def encoder(value: Any) -> Any:
        session = AgentSession(session_id="-")
        session.state = {FIELD: value}
        with warnings.catch_warnings():
            # What it warns of it leaves as it is, and then this codec keeps it or refuses it by its path.
            warnings.simplefilter("ignore", RuntimeWarning)
            payload = session.to_dict()["state"][FIELD]
        if type(payload) is not dict or payload.pop("type", None) != type_id:
            raise UnsupportedValueError(
                f"Agent Framework does not write a {cls.__name__} as type {type_id!r}, under which it was registered"
            )
        return payload

    def decoder(payload: Any) -> Any:
        if type(payload) is not dict:
            raise ValueError("what Agent Framework writes is a dict")
        session = AgentSession.from_dict({"session_id": "-", "state": {FIELD: {**payload, "type": type_id}}})
        return session.state[FIELD]

    return TypeEntry(
        cls=cls,
        type_id=_id_here(type_id),
        version=1,
        encoder=encoder,
        decoder=decoder,
        upgrades={},
        json_schema=None,
        immutable=False,
        copy=None,
        fingerprint=None,
    )
