"""JSON schemas of declared types (draft 2020-12), for the outside world.

They describe what `from_json` accepts: the same fields, the same strictness. Every record is
described once, under `$defs`.
"""

from __future__ import annotations

import collections
import collections.abc
import copy
import enum
import re
import typing
from typing import Any, Final

import msgspec

from branchpoint import errors
from branchpoint.codec._json import to_json
from branchpoint.codec._models import is_model, model_schema
from branchpoint.codec._records import NO_DEFAULT, Record, own_doc, record_of
from branchpoint.codec._registry import entry_for_type
from branchpoint.codec._scalars import PLAIN_SCHEMAS, scalar_of
from branchpoint.codec._typeexpr import describe_type
from branchpoint.codec._typenames import bare, is_union

__all__ = ["json_schema"]

_REF: Final = "#/$defs/"
_ARRAYS: Final = frozenset(
    {
        list,
        set,
        frozenset,
        collections.deque,
        collections.abc.Sequence,
        collections.abc.MutableSequence,
        collections.abc.Collection,
        collections.abc.Iterable,
        collections.abc.Set,
        collections.abc.MutableSet,
    }
)
_SETS: Final = frozenset({set, frozenset, collections.abc.Set, collections.abc.MutableSet})
_OBJECTS: Final = frozenset(
    {
        dict,
        collections.OrderedDict,
        collections.Counter,
        collections.abc.Mapping,
        collections.abc.MutableMapping,
    }
)


def json_schema(tp: Any) -> dict[str, Any]:
    """The JSON schema of a declared type.

    Guarantees:
        A fresh dict, the same in every process. `Any` gives `{}`.

    Args:
        tp: A class, `None`, `Any`, a union, a `Literal` or a generic over these. pydantic describes
            its models; a registered type without a schema of its own is described by the
            `json_schema=` of its registration, or as anything where it gave none.

    Raises:
        UnregisteredTypeError: The type, or one inside it, has no plain JSON form.
        DefinitionError: The declared type cannot be understood.
    """
    builder = _Builder()
    schema = builder.schema(tp)
    if builder.definitions:
        schema = _inline_root(schema, builder.definitions)
    return schema


def _inline_root(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Put the root's own definition at the root, unless it refers to itself."""
    name = schema["$ref"].removeprefix(_REF) if schema.keys() == {"$ref"} else None
    if name in definitions and _count(definitions, schema["$ref"]) == 0:
        schema = definitions.pop(name)
    return {**schema, "$defs": definitions} if definitions else schema


def _count(node: Any, reference: str) -> int:
    if isinstance(node, dict):
        return (node.get("$ref") == reference) + sum(_count(part, reference) for part in node.values())
    return sum(_count(part, reference) for part in node) if isinstance(node, list) else 0


class _Builder:
    """Collects the definitions of one schema."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self.names: dict[Any, str] = {}

    def schema(self, declared: Any) -> dict[str, Any]:
        metadata: list[Any] = []
        tp = bare(declared, metadata)
        schema = self.bare_schema(tp)
        for meta in metadata:
            if isinstance(meta, msgspec.Meta):
                schema = {**schema, **_limits(meta, schema)}
        return schema

    def bare_schema(self, tp: Any) -> dict[str, Any]:
        plain = PLAIN_SCHEMAS.get(tp) if isinstance(tp, typing.Hashable) else None
        if plain is not None:
            return dict(plain)
        if is_union(tp):
            members = [member for member in typing.get_args(tp) if member is not msgspec.UnsetType]
            schemas = [self.schema(member) for member in members]
            return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        cls = typing.get_origin(tp) or tp
        if cls is typing.Literal:
            return {"enum": [to_json(choice) for choice in typing.get_args(tp)]}
        if cls is typing.Never or cls is typing.NoReturn:
            return {"not": {}}
        arguments = typing.get_args(tp)
        if cls in _ARRAYS:
            array: dict[str, Any] = {"type": "array", "items": self.schema(arguments[0]) if arguments else {}}
            return {**array, "uniqueItems": True} if cls in _SETS else array
        if cls is tuple:
            return self.tuple_schema(arguments, hasattr(tp, "__args__"))
        if cls in _OBJECTS:
            return self.object_schema(cls, arguments)
        return self.class_schema(tp, cls)

    def tuple_schema(self, arguments: tuple[Any, ...], parametrised: bool) -> dict[str, Any]:
        if not parametrised or (len(arguments) == 2 and arguments[1] is Ellipsis):
            return {"type": "array", "items": self.schema(arguments[0]) if parametrised else {}}
        return _fixed([self.schema(argument) for argument in arguments], len(arguments))

    def object_schema(self, cls: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if cls is collections.Counter:
            return {"type": "object", "additionalProperties": {"type": "integer"}}
        if not arguments:
            return {"type": "object"}
        schema: dict[str, Any] = {"type": "object", "additionalProperties": self.schema(arguments[1])}
        keys = bare(arguments[0])
        if typing.get_origin(keys) is typing.Literal or (
            isinstance(keys, type) and issubclass(keys, enum.Enum)
        ):
            schema["propertyNames"] = self.schema(keys)
        return schema

    def class_schema(self, tp: Any, cls: Any) -> dict[str, Any]:
        entry = entry_for_type(cls) if isinstance(cls, type) else None
        if entry is not None and entry.json_schema is not None:
            given: dict[str, Any] = copy.deepcopy(entry.json_schema)
            return given
        scalar = scalar_of(cls)
        if scalar is not None:
            return dict(scalar.schema)
        if isinstance(cls, type) and issubclass(cls, enum.Enum):
            return self.named(
                tp, cls, lambda: _with_doc(cls, {"enum": [to_json(member.value) for member in cls]})
            )
        if is_model(cls):
            return self.named(tp, cls, lambda: self.model(cls))
        record = record_of(tp)
        if record is not None:
            return self.named(tp, cls, lambda: self.record(record))
        if entry is not None and entry.kind == "custom":
            return {"title": entry.type_id}
        raise errors.UnregisteredTypeError(
            f"{describe_type(tp)} has no plain JSON form. Declare a dataclass, a msgspec.Struct or a "
            "pydantic model, or register it: `register_state_type(cls, encoder=, decoder=, json_schema=)`."
        )

    def named(self, tp: Any, cls: Any, make: typing.Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A reference to the definition of `tp`, which is made on first use; so recursion ends."""
        name = self.names.get(tp)
        if name is None:
            name = re.sub(
                r"[^\w.-]+", "_", describe_type(tp) if typing.get_origin(tp) else cls.__name__
            ).strip("_")
            if name in self.definitions:
                name = re.sub(r"[^\w.-]+", "_", f"{cls.__module__}.{cls.__qualname__}").strip("_")
            while name in self.definitions:
                name += "_"
            self.names[tp] = name
            self.definitions[name] = {}
            self.definitions[name] = make()
        return {"$ref": f"{_REF}{name}"}

    def record(self, record: Record) -> dict[str, Any]:
        if record.kind == "namedtuple":
            items = [self.schema(field.tp) for field in record.fields]
            return _with_doc(record.cls, _fixed(items, sum(field.required for field in record.fields)))
        properties: dict[str, Any] = {}
        if record.tag is not None:
            properties[record.tag[0]] = {"const": record.tag[1]}
        for field in record.fields:
            schema = self.schema(field.tp)
            if field.default is not NO_DEFAULT and field.default is not msgspec.UNSET:
                try:
                    schema["default"] = to_json(field.default)
                except errors.EncodingError:  # a default that JSON cannot say is left out
                    pass
            properties[field.key] = schema
        return _with_doc(
            record.cls,
            {
                "type": "object",
                "properties": properties,
                "required": [field.key for field in record.fields if field.required],
                "additionalProperties": False,
            },
        )

    def model(self, cls: Any) -> dict[str, Any]:
        try:
            schema = model_schema(cls, _REF + "{model}")
            inner = schema.get("$defs", {})
            if any(self.definitions.get(name, part) != part for name, part in inner.items()):
                prefix = f"{cls.__module__}.{cls.__qualname__}."
                schema = model_schema(cls, f"{_REF}{prefix}{{model}}")
                inner = {prefix + name: part for name, part in schema.get("$defs", {}).items()}
        except Exception as error:  # pydantic.PydanticUserError, without importing pydantic
            raise errors.UnregisteredTypeError(
                f"{describe_type(cls)}: pydantic cannot describe this model in JSON ({error})."
            ) from error
        schema.pop("$defs", None)
        self.definitions.update(inner)
        return schema


def _fixed(items: list[dict[str, Any]], least: int) -> dict[str, Any]:
    return {"type": "array", "prefixItems": items, "items": False, "minItems": least, "maxItems": len(items)}


def _with_doc(cls: Any, schema: dict[str, Any]) -> dict[str, Any]:
    doc = own_doc(cls)
    return {"title": cls.__name__, **({"description": doc} if doc else {}), **schema}


_LIMITS: Final = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "title": "title",
    "description": "description",
    "examples": "examples",
}
_LENGTHS: Final = {"array": "Items", "object": "Properties"}


def _limits(meta: msgspec.Meta, schema: dict[str, Any]) -> dict[str, Any]:
    """What an annotation adds to the schema of its type."""
    found = {key: getattr(meta, name) for name, key in _LIMITS.items() if getattr(meta, name) is not None}
    unit = _LENGTHS.get(schema.get("type", ""), "Length")
    for name, side in (("min_length", "min"), ("max_length", "max")):
        if getattr(meta, name) is not None:
            found[f"{side}{unit}"] = getattr(meta, name)
    return {**found, **(meta.extra_json_schema or {})}
