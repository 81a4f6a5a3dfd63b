"""Every public name can be imported, is documented, and has one public path."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import defaultdict
from types import ModuleType

import branchpoint

PUBLIC = sorted(getattr(branchpoint, "__all__", []))


def _public_modules() -> list[ModuleType]:
    """The package and its modules whose dotted names have no private part."""
    names = [info.name for info in pkgutil.walk_packages(branchpoint.__path__, "branchpoint.")]
    public = [name for name in names if not any(part.startswith("_") for part in name.split("."))]
    return [branchpoint, *map(importlib.import_module, public)]


def test_the_package_has_a_door() -> None:
    assert PUBLIC, "branchpoint.__all__ is missing or empty"
    assert len(PUBLIC) == len(set(PUBLIC))
    assert [name for name in dir(branchpoint) if name in PUBLIC] == sorted(PUBLIC), (
        "dir() hides a public name"
    )


def test_a_public_name_is_there_and_says_what_it_is() -> None:
    things = {name: getattr(branchpoint, name) for name in PUBLIC if name != "__version__"}
    silent = [
        name
        for name, thing in things.items()
        if (inspect.isclass(thing) and not thing.__dict__.get("__doc__"))
        or (inspect.isroutine(thing) and not inspect.getdoc(thing))
    ]
    assert not silent, "no docstring of its own"


def test_what_a_public_class_offers_is_documented() -> None:
    classes = [thing for name in PUBLIC if inspect.isclass(thing := getattr(branchpoint, name))]
    silent = [
        f"{cls.__name__}.{member}"
        for cls in classes
        if not issubclass(cls, BaseException)
        for member, value in vars(cls).items()
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod))
        and not inspect.getdoc(value)
        and not _documented_in_a_base(cls, member)
    ]
    assert not silent, "no docstring"


def _documented_in_a_base(cls: type, member: str) -> bool:
    return any(inspect.getdoc(vars(base).get(member)) for base in cls.__mro__[1:] if member in vars(base))


def test_a_public_name_has_one_public_path() -> None:
    """Two names in the package never mean one object, and one name never means two.

    The room that makes a thing shows it at its own door too, for the other rooms; that path and the
    package's own are spelled alike, so a reader meets one name only.
    """
    paths: dict[int, set[str]] = defaultdict(set)
    for name in PUBLIC:
        thing = getattr(branchpoint, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            paths[id(thing)].add(name)
    allowed = {frozenset({"InMemoryCheckpointStorage", "MemoryCheckpointStorage"})}
    doubled = [names for names in paths.values() if len(names) > 1 and frozenset(names) not in allowed]
    assert not doubled, f"one thing under several names: {doubled}"

    for module in _public_modules():
        for name in getattr(module, "__all__", []):
            assert hasattr(module, name), f"{module.__name__}.__all__ names {name}, which is not there"
            if name in PUBLIC and module is not branchpoint and not inspect.ismodule(getattr(module, name)):
                same = getattr(module, name) is getattr(branchpoint, name)
                assert same, f"{module.__name__}.{name} is another thing than branchpoint.{name}"
