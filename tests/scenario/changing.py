"""A registered class that changes over the years, each shape of it in a process of its own."""

from __future__ import annotations

import enum
from dataclasses import field as dataclass_field
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pydantic

from branchpoint import BranchpointError, register_state_type
from branchpoint.codec import isolated_registry
from tests.scenario.carry import carrier, finish, take_in
from tests.scenario.kit import bytes_of, file_bytes, place_of

TYPE_ID = "scenario.changing"

# Fields of each shape, the value of each, and defaults.
_FIRST = {"name": "a", "size": 2}
_SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "first": (_FIRST, {}),
    "added default": (_FIRST, {"color": "red"}),
    "added required": ({**_FIRST, "color": "red"}, {}),
    "removed": ({"name": "a"}, {}),
    "renamed": ({"name": "a", "length": 2}, {}),
}


def changing(shape: str, flavour: str) -> Any:
    """Register the class in one of its shapes, as a class of some kind, and return an instance."""
    if shape == "gone":
        return None
    version: dict[str, Any] = {}
    if shape == "second version":
        shape = "renamed"
        upgrade = {1: lambda old: {"name": old["name"], "length": old["size"]}}
        version = {"version": 2, "upgrades": upgrade}
    given, defaults = _SHAPES[shape]
    made = _class(flavour, given, defaults)
    register_state_type(made, type_id=TYPE_ID, **version)
    return made[max(given)] if flavour == "enum" else made(**given)


def _class(flavour: str, given: dict[str, Any], defaults: dict[str, Any]) -> Any:
    required = {name: type(value) for name, value in given.items()}
    optional = {name: type(value) for name, value in defaults.items()}
    if flavour == "struct":
        more = [(name, tp, defaults[name]) for name, tp in optional.items()]
        return msgspec.defstruct("Changing", [*required.items(), *more])
    if flavour == "model":
        fields: Any = {name: (tp, defaults.get(name, ...)) for name, tp in {**required, **optional}.items()}
        return pydantic.create_model("Changing", **fields)
    if flavour == "tuple":
        made: Any = NamedTuple("Changing", [*required.items(), *optional.items()])  # type: ignore[misc]
        made.__new__.__defaults__ = tuple(defaults.values())
        made._field_defaults = dict(defaults)
        return made
    if flavour == "enum":
        return enum.Enum("Changing", {**given, **defaults})
    more_fields = [(name, tp, dataclass_field(default=defaults[name])) for name, tp in optional.items()]
    return make_dataclass("Changing", [*required.items(), *more_fields])


async def enter_changing(kind: str, folder: str, changes: dict[str, list[str]]) -> None:
    """In a process of its own: run a value of the first shape of each change into every place."""
    place = place_of(kind, Path(folder))
    for what, (flavour, before, _) in changes.items():
        with isolated_registry():
            value = {"it": [changing(before, flavour)]}
            await take_in(place.create(carrier(), what), value)


async def go_on_changing(
    kind: str, folder: str, changes: dict[str, list[str]], back: bool = False
) -> dict[str, Any]:
    """In another process: load, look, and go on with the class in its new shape, or `back` in its old one.

    Returns:
        For each change what errors were raised, as (name, text), and what a reader without the class sees.
    """
    found = {}
    for what, (flavour, before, after) in changes.items():
        with isolated_registry():
            wanted = {"it": [changing(before if back else after, flavour)]}
            found[what] = await _go_on(kind, Path(folder), what, wanted)
    return found


async def _go_on(kind: str, folder: Path, checkpoint_id: str, wanted: Any) -> dict[str, Any]:
    place = place_of(kind, folder)
    cp = await place.reload(checkpoint_id)
    head = cp.head_snapshot
    assert head is not None
    shown = head.plain_state()["workflow_state"]["shared"]["kept"]["it"][0]
    before, on_disk = bytes_of(cp), file_bytes(folder)
    said = []
    for call in (lambda: head.state, lambda: cp.pending_requests[0].data, lambda: cp.outputs()[0].value):
        try:
            call()
        except BranchpointError as error:
            said.append([type(error).__name__, str(error)])
    if not said:
        await finish(cp, wanted)
        return {"said": said, "shown": shown}
    try:
        await carrier().run(checkpoint=cp)
    except BranchpointError as error:
        said.append([type(error).__name__, str(error)])
    assert bytes_of(cp) == before
    assert file_bytes(folder) == on_disk
    return {"said": said, "shown": shown}
