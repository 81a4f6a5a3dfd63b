"""Tags that name what somebody would like to have made or called: nothing is looked up, imported or called."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from branchpoint import codec
from branchpoint.checkpoint import Format
from branchpoint.errors import BranchpointError, CorruptCheckpointError
from tests.hostile import watched
from tests.hostile.forge import check_told, forgery, refused, state_with, wire
from tests.scenario.kit import in_new_process
from tests.states import request

# posix.system("id"), as pickle would write it.
PICKLED = base64.b64encode(
    b"\x80\x04\x95\x1d\0\0\0\0\0\0\0\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R."
).decode()
UNREGISTERED, CORRUPT, VERSION, DATA = (
    "UnregisteredTypeError", "CorruptCheckpointError", "UnknownVersionError", "DataError",
)  # fmt: skip

ORDER = {"number": 1, "items": []}
NAMES = [
    "os.system", "posix.system", "subprocess.Popen", "builtins.eval", "builtins.exec", "builtins.__import__",
    "eval", "exec", "os", "importlib.import_module", "pickle.loads", "tests.hostile.watched.Unregistered",
    "tests.hostile.watched.Order", "branchpoint.checkpoint.Checkpoint", "hostile", "hostile.", "hostile.order.",
    "hostile.order.__init__", "HOSTILE.ORDER", "hostile.order ", " hostile.order", "hostile.order[int]",
    "hostile.box[", "hostile.box[]", "hostile.box[os.system]", "hostile.box[int", "hostile.box[int][int]",
    "hostile.box[hostile.box[hostile.box[os.system]]]", "hostile.box[int | ]", "hostile.box[Literal[os.system]]",
    'hostile.box[Literal["a]]', "hostile.box[" + "list[" * 500 + "int" + "]" * 500 + "]",
    "hostile.box[" + "int | " * 3000 + "str]",
    "__main__.Order", "object", "type", "list", "str", "None", "", "Any", "object.__reduce__", "../../x",
    "hostile/order", "hostile.ordér", "hostile.order\u200b", "x" * 100_000, "\u202e", "tzdata.zoneinfo",
]  # fmt: skip

TAGS: dict[str, tuple[Any, str | tuple[str, ...]]] = {
    **{f"name {n} {name[:30]}": ({"$": name, "v": "id"}, UNREGISTERED) for n, name in enumerate(NAMES)},
    # A tag whose name is no text.
    **{
        f"no name {n}": ({"$": name, "v": 1}, CORRUPT)
        for n, name in enumerate(
            [None, 1, 1.5, True, [], {}, ["hostile.order"], {"$": "hostile.order", "v": ORDER}, {"$p": "A" * 22}]
        )
    },
    "a control character in a name": ({"$": "\x1b[31mos.system", "v": 1}, UNREGISTERED),
    # A registered class with something else in it.
    "more": ({"$": "hostile.order", "v": {**ORDER, "more": 1}}, VERSION),
    "more and long": ({"$": "hostile.order", "v": {**ORDER, "x" * 100_000: 1}}, VERSION),
    "more and unseen": ({"$": "hostile.order", "v": {**ORDER, "\x1b[31m": 1}}, VERSION),
    "less": ({"$": "hostile.order", "v": {"items": []}}, VERSION),
    "a method": ({"$": "hostile.order", "v": {**ORDER, "__init__": 1}}, VERSION),
    "a class": ({"$": "hostile.order", "v": {**ORDER, "__class__": "os.system"}}, VERSION),
    "arguments in a list": ({"$": "hostile.order", "v": [1, []]}, CORRUPT),
    "no arguments": ({"$": "hostile.order", "v": None}, CORRUPT),
    "arguments in a tagged dict": (
        {"$": "hostile.order", "v": {"$": "ordereddict", "v": [["number", 1], ["items", []]]}}, CORRUPT,
    ),
    "a property with a setter": ({"$": "hostile.order", "v": {**ORDER, "__dict__": {"secret": 1}}}, "nothing"),
    "a method beside the fields": ({"$": "hostile.order", "v": {**ORDER, "__dict__": {"__class__": 1}}}, "nothing"),
    "a field beside the fields": ({"$": "hostile.order", "v": {**ORDER, "__dict__": {"number": 2}}}, VERSION),
    "no text beside the fields": (
        {"$": "hostile.order", "v": {**ORDER, "__dict__": {"$": "dict", "v": [[1, 2]]}}}, VERSION,
    ),
    "a list beside the fields": ({"$": "hostile.order", "v": {**ORDER, "__dict__": [1]}}, CORRUPT),
    "beside what holds nothing more": ({"$": "hostile.slotted", "v": {"number": 1, "__dict__": {"x": 1}}}, VERSION),
    "its own class": ({"$": "hostile.slotted", "v": {"number": 1, "__dict__": {"__class__": 1}}}, VERSION),
    "a struct with more": ({"$": "hostile.item", "v": {"sku": "x", "data": 1, "more": 1}}, VERSION),
    "a struct with less": ({"$": "hostile.item", "v": {}}, VERSION),
    "beside a struct": ({"$": "hostile.item", "v": {"sku": "x", "data": 1, "__dict__": {"x": 1}}}, VERSION),
    "a pair of three": ({"$": "hostile.pair", "v": {"left": 1, "right": 2, "third": 3}}, VERSION),
    "a pair in a list": ({"$": "hostile.pair", "v": [1, 2]}, CORRUPT),
    "beside a pair": ({"$": "hostile.pair", "v": {"left": 1, "right": 2, "__dict__": {"x": 1}}}, VERSION),
    "no member": ({"$": "hostile.mode", "v": "OFF"}, VERSION),
    "a value of a member": ({"$": "hostile.mode", "v": "on"}, VERSION),
    "a method of an enum": ({"$": "hostile.mode", "v": "explode"}, VERSION),
    "no text of an enum": ({"$": "hostile.mode", "v": ["ON"]}, CORRUPT),
    "a flag of text": ({"$": "hostile.right", "v": "READ"}, CORRUPT),
    "a flag that is none": ({"$": "hostile.right", "v": 64}, VERSION),
    "a flag below zero": ({"$": "hostile.right", "v": -1}, VERSION),
    "a flag of any size": ({"$": "hostile.right", "v": {"$": "int", "v": "0x1" + "0" * 20_000}}, VERSION),
    "a model with more": ({"$": "hostile.box", "v": {"content": 1, "more": 1}}, VERSION),
    "a model with less": ({"$": "hostile.box", "v": {}}, VERSION),
    "a model with extra": ({"$": "hostile.box", "v": {"content": 1, "__extra__": {"x": 1}}}, VERSION),
    "a model with private": ({"$": "hostile.box", "v": {"content": 1, "__private__": {"x": 1}}}, VERSION),
    "a model with lists": ({"$": "hostile.box", "v": {"content": 1, "__private__": [1]}}, CORRUPT),
    "fields that are none": ({"$": "hostile.box", "v": {"content": 1, "__fields_set__": [[]]}}, CORRUPT),
    "a decoder that refuses": ({"$": "hostile.custom", "v": ["x" * 100_000]}, CORRUPT),
    # Versions.
    "version 2": ({"$": "hostile.order", "n": 2, "v": ORDER}, VERSION),
    "version 2**64 - 1": ({"$": "hostile.order", "n": 2**64 - 1, "v": ORDER}, VERSION),
    "version 1 that is said": ({"$": "hostile.order", "n": 1, "v": ORDER}, CORRUPT),
    "version 0": ({"$": "hostile.order", "n": 0, "v": ORDER}, CORRUPT),
    "version -1": ({"$": "hostile.order", "n": -1, "v": ORDER}, CORRUPT),
    "version '2'": ({"$": "hostile.order", "n": "2", "v": ORDER}, CORRUPT),
    "version none": ({"$": "hostile.order", "n": None, "v": ORDER}, CORRUPT),
    "version [2]": ({"$": "hostile.order", "n": [2], "v": ORDER}, CORRUPT),
    "a version of what has none": ({"$": "tuple", "n": 2, "v": []}, CORRUPT),
    # Tags inside of tags.
    "a tag for a payload": ({"$": "hostile.order", "v": {"$": "os.system", "v": "id"}}, UNREGISTERED),
    "a tag for a field": ({"$": "hostile.order", "v": {"number": {"$": "os.system", "v": "id"}, "items": []}},
    UNREGISTERED), "a tag in a tuple in a set": (
        {"$": "set", "v": [{"$": "tuple", "v": [{"$": "os.system", "v": "id"}]}]}, UNREGISTERED,
    ),
    "a tag for a key": ({"$": "dict", "v": [[{"$": "os.system", "v": "id"}, 1]]}, UNREGISTERED),
    "a tag in a deque": ({"$": "deque", "v": [None, [{"$": "os.system", "v": "id"}]]}, UNREGISTERED),
    "a tag for a length": ({"$": "deque", "v": [{"$": "os.system", "v": "id"}, []]}, CORRUPT),
    "a tag for a zone": (
        {"$": "datetime", "v": ["2026-01-01T00:00:00", {"$": "os.system", "v": "id"}, 1]}, UNREGISTERED,
    ),
    "a factory": ({"$": "defaultdict", "v": ["os.system", []]}, CORRUPT),
    "a factory by its tag": ({"$": "defaultdict", "v": [{"$": "os.system", "v": 1}, []]}, CORRUPT),
    "a value of no hash in a set": ({"$": "set", "v": [{"$": "hostile.order", "v": ORDER}]}, CORRUPT),
    "200 tags": (0, ()),
    # Builtin kinds that look at the machine.
    "a zone outside": ({"$": "zoneinfo", "v": "../../../etc/passwd"}, CORRUPT),
    "a zone by its path": ({"$": "zoneinfo", "v": "/etc/localtime"}, CORRUPT),
    "a zone that would be imported": ({"$": "zoneinfo", "v": "Nowhere/Never"}, DATA),
    "a zone by a module's name": ({"$": "zoneinfo", "v": "os"}, DATA),
    "a zone with dots": ({"$": "zoneinfo", "v": "a.b/c"}, CORRUPT),
    "a zone of a folder": ({"$": "zoneinfo", "v": "Europe"}, DATA),
    "a zone that is long": ({"$": "zoneinfo", "v": "x" * 100_000}, CORRUPT),
    "a zone with NUL": ({"$": "zoneinfo", "v": "UTC\x00"}, CORRUPT),
    "a zone": ({"$": "zoneinfo", "v": "Europe/Lisbon"}, "nothing"),
    "a path of another system": ({"$": "windowspath", "v": "C:\\x"}, (DATA, "nothing")),
    "a path outside": ({"$": "posixpath", "v": "../../etc/passwd"}, ("nothing", DATA)),
    # What other serializers would take for theirs.
    "jsonpickle": ({"py/object": "os.system", "py/reduce": [{"py/function": "os.system"}, ["id"]]}, "nothing"),
    "yaml": ("!!python/object/apply:os.system ['id']", "nothing"),
    "v1": ({"__af_pickled__": True, "value": PICKLED}, "nothing"),
    "v1 by another name": ({"__pickled__": PICKLED, "__type__": "posix:system"}, "nothing"),
    "pickled bytes": ({"$": "bytes", "v": PICKLED}, (CORRUPT, "nothing")),
    "a tag by the name of pickle": ({"$": "pickle", "v": PICKLED}, UNREGISTERED),
    "a class by its type": ({"__class__": "Order", "__module__": "os", "__reduce__": "x"}, "nothing"),
}  # fmt: skip
_deep: Any = "id"
for _ in range(200):
    _deep = {"$": "tuple", "v": [{"$": "os.system", "v": _deep}]}
TAGS["200 tags"] = (_deep, UNREGISTERED)


async def test_c61_nothing_is_imported_called_or_unpickled_by_what_a_tag_says(
    runs: Path, format: Format
) -> None:
    made = await forgery(runs, format, commits=1)
    expected: dict[str, tuple[str, ...]] = {}

    def write(checkpoint_id: str, *gives: str) -> None:
        made.path = runs / f"{checkpoint_id}.journal"
        made.header["id"] = checkpoint_id
        made.write()
        expected[checkpoint_id] = gives

    for n, (what, (tree, gives)) in enumerate(TAGS.items()):
        made.give_value(tree)
        write(f"shared-{n}", *((gives,) if isinstance(gives, str) else gives))
        whole = watched_state(tree)
        if n % 5 == 0:
            made.give_state(wire(whole, format))
            made.head.manifest = {**made.head.manifest, "meta": {"what": what}}
            write(f"asked-{n}", *((gives,) if isinstance(gives, str) else gives))
            del made.head.manifest["meta"]
        if n % 7 == 0 and what not in ("yaml", "jsonpickle"):
            made.give_state(wire(tree, format))  # in the place of the whole state
            write(f"whole-{n}", UNREGISTERED, CORRUPT, VERSION, DATA)
    made.path.unlink()
    write(made.header["id"], *expected[made.header["id"]])
    found = await asyncio.to_thread(in_new_process, watched.watch, str(runs), format, list(expected))
    assert found["seen"] == []
    assert found["imported"] == []
    assert found["called"] == []
    names = list(TAGS)
    for checkpoint_id, gives in expected.items():
        what = names[int(checkpoint_id.partition("-")[2])]
        kind, said = found["gave"][checkpoint_id]
        assert kind in gives, (what, said)
        if kind != "nothing":
            assert checkpoint_id in said
        if kind == UNREGISTERED and checkpoint_id.startswith("shared"):
            assert "workflow_state.shared.x" in said, said


def watched_state(tree: Any) -> dict[str, Any]:
    """A state with a tree in a request, under type expressions that name what should not be named."""
    whole = state_with(tree)
    asked = request(tree, request_type="os.system", response_type="hostile.box[os.system]")
    whole["messages"]["pending"]["requests"] = {"ask": asked}
    return whole


@pytest.mark.parametrize(
    "text",
    [
    "os.system", "list[os.system]", "__import__('os')", "int]", "[int", "int[int]", "dict[int]", "list[]", "|",
    "int |", "", " ", "()", "tuple[()", "Literal", "Literal[]", "Literal[x]",
        'Literal["a', 'Literal["a"', "Literal[" + "9" * 5000 + "]", "Literal[hostile.mode.ON]", "list[" * 100_000,
        "list[" * 60 + "int" + "]" * 60, "x" * 3_000_000, "int | " * 600_000, "int\x00", "\x1b[31m", "\ud800",
        "int, int", "Union[int, str]", "typing.Union[int, str]", "Never[int]", "...", "tuple[...]",
        'Literal["\\ud800"]', 'Literal[b"\\u1234"]', 'b"x"', "int.real", "None.x", "type", "builtins.int",
        "a" + " " * 100_000,
    ],
    ids=lambda text: ascii(text)[:40],
)  # fmt: skip
def test_c61_a_type_expression_is_read_or_refused(text: str) -> None:
    try:
        codec.parse_type_expression(text)
    except BranchpointError as error:
        check_told(error)


async def test_c61_data_cannot_have_classes_made_without_end(format: Format) -> None:
    """A parametrised model that no part of the program has named is made, but not a thousand of them and more."""
    from branchpoint.codec import _generics

    before, _generics._made = _generics._made, _generics._MOST_MADE - 3
    try:
        with codec.isolated_registry():
            codec.register_state_type(watched.Box, type_id="hostile.box")
            outcomes = []
            for n in range(6):
                data = wire({"$": f'hostile.box[Literal["{n}", "{format}"]]', "v": {"content": "0"}}, format)
                try:
                    outcomes.append(type(codec.decode(data, {}, format=format)).__name__[:3])
                except BranchpointError as error:
                    check_told(error, "hostile.box")
                    outcomes.append(type(error).__name__)
            assert outcomes == ["Box"] * 3 + [UNREGISTERED] * 3
    finally:
        _generics._made = before


async def test_c61_what_a_decoder_says_is_told_in_short(format: Format) -> None:
    data = wire([1, {"$": "hostile.custom", "v": ["x" * 1_000_000, "\x1b[31m"]}], format)
    error = await refused(
        lambda: codec.decode(data, {}, format=format, path="a.b"),
        CorruptCheckpointError,
        "a.b[1]",
        "hostile.custom",
    )
    assert len(str(error)) < 1000
