"""Codec of pydantic models, for programs that use pydantic.

pydantic is never imported here: a class can only be one of its models if the program imported it.
By pydantic's own rules of what an instance is: fields, extra fields, private attributes and the set
of fields that were given are kept; computed fields and cached properties are derived.
No validator and no `model_post_init` runs on the way back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from branchpoint.codec._defaults import FieldMismatch

__all__ = ["codec_for", "is_model", "parameters"]

# No field of a model can begin with an underscore.
_EXTRA: Final = "__extra__"
_PRIVATE: Final = "__private__"
_GIVEN: Final = "__fields_set__"


def is_model(cls: Any) -> bool:
    """Whether the class is a pydantic model; needs no pydantic to say no."""
    if not isinstance(cls, type) or not hasattr(cls, "__pydantic_fields__"):
        return False
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(cls, pydantic.BaseModel)


def parameters(cls: Any) -> tuple[Any, tuple[Any, ...]]:
    """The generic model and the arguments of `Box[int]`, or (None, ())."""
    metadata = getattr(cls, "__pydantic_generic_metadata__", None)
    if not metadata or metadata["origin"] is None or not is_model(cls):
        return None, ()
    return metadata["origin"], tuple(metadata["args"])


def codec_for(cls: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return encoder and decoder of one model class."""
    put = object.__setattr__

    def encode(value: Any) -> Any:
        names = cls.__pydantic_fields__
        attributes = value.__dict__
        payload = {name: attributes[name] for name in names if name in attributes}
        extra, private, given = (
            value.__pydantic_extra__,
            value.__pydantic_private__,
            value.__pydantic_fields_set__,
        )
        if extra:
            payload[_EXTRA] = dict(extra)
        if private:
            payload[_PRIVATE] = dict(private)
        expected = payload.keys() - {_EXTRA, _PRIVATE}
        if extra:
            expected = expected | extra.keys()
        if given != expected or len(expected) < len(names):
            payload[_GIVEN] = sorted(given)
        return payload

    def decode(payload: Any) -> Any:
        if type(payload) is not dict:
            raise ValueError("the payload of a model is a dict of its fields")
        extra = payload.pop(_EXTRA, None)
        private = payload.pop(_PRIVATE, None)
        given = payload.pop(_GIVEN, None)
        if (
            type(extra) not in (dict, type(None))
            or type(private) not in (dict, type(None))
            or type(given) not in (list, type(None))
        ):
            raise ValueError("the payload of a model has another shape")
        names = cls.__pydantic_fields__
        for name in payload:
            if name not in names:
                raise FieldMismatch(f"it has no field {name!r} any more")
        chosen = set(given) if given is not None else set(payload) | set(extra or ())
        fields = {}
        for name, field in names.items():
            if name in payload:
                fields[name] = payload[name]
            elif not field.is_required():
                fields[name] = field.get_default(call_default_factory=True, validated_data=dict(fields))
            elif given is None:
                raise FieldMismatch(f"its field {name!r} is required and was not saved")
        value = cls.__new__(cls)
        put(value, "__dict__", fields)
        put(value, "__pydantic_fields_set__", chosen)
        allows_extra = cls.model_config.get("extra") == "allow"
        if extra and not allows_extra:
            raise FieldMismatch(f"it takes no extra fields any more, but {sorted(extra)} were saved")
        wanted = (
            ("__pydantic_extra__", (extra or {}) if allows_extra else None),
            (
                "__pydantic_private__",
                _private(cls, private),
            ),
        )
        for name, found in wanted:
            # A root model says None at its class, where setting it would add to the instance's __dict__.
            if found is not None or not cls.__pydantic_root_model__:
                put(value, name, found)
        return value

    return encode, decode


def _private(cls: Any, saved: dict[str, Any] | None) -> dict[str, Any] | None:
    declared = cls.__private_attributes__
    if not declared:
        if saved:
            raise FieldMismatch(f"it has no private attribute {next(iter(saved))!r} any more")
        return None
    values = dict(saved or {})
    for name in values:
        if name not in declared:
            raise FieldMismatch(f"it has no private attribute {name!r} any more")
    for name, attribute in declared.items():
        if name not in values:  # added since, or never set: then there is no default either
            default = attribute.get_default()
            if type(default).__name__ != "PydanticUndefinedType":
                values[name] = default
    return values
