"""pydantic models at the edges: validated, dumped and described by pydantic's own rules.

pydantic is never imported here; a class that is one of its models brings everything along.
"""

from __future__ import annotations

import functools
import inspect
import json
from typing import Any

from branchpoint.codec._pydantic import is_model
from branchpoint.codec._shape import step

__all__ = ["ModelMismatch", "dump_model", "is_model", "load_model", "model_schema"]


class ModelMismatch(ValueError):
    """A value does not fit a model; `path` is the place inside the value."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


def load_model(value: Any, model: Any, *, strict: bool, path: str = "") -> Any:
    """Make an instance of `model` from a dict, or from what else a root model takes.

    In strict mode nothing is coerced beyond what JSON needs (text for a date or an Enum, a list for a
    tuple), and a field that no model knows is refused, unless one of the models says `extra=` itself.
    In both modes validators and defaults run.

    Raises:
        ModelMismatch: The value does not fit.
    """
    options: dict[str, Any] = {"strict": True} if strict else {}
    if strict and not _says_extra(model):
        if _takes_extra(model):
            options["extra"] = "forbid"
        elif isinstance(value, dict):
            _refuse_unknown(value, model, path)
    try:
        return model.model_validate(value, **options)
    except Exception as error:  # a validator may raise what it likes
        first = error
    # Only pydantic's JSON mode reads text for dates and Enums where it is strict.
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise _mismatch(first, path) from first
    try:
        return model.model_validate_json(text, **options)
    except Exception as error:
        raise _mismatch(error, path) from error


def _mismatch(error: Exception, path: str) -> ModelMismatch:
    if not hasattr(error, "errors"):
        return ModelMismatch(path, str(error))
    found = error.errors(include_url=False, include_input=False, include_context=False)
    where = functools.reduce(step, found[0]["loc"], path)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return ModelMismatch(where, f"{found[0]['msg']}{more}")


@functools.lru_cache(maxsize=512)
def _says_extra(model: Any) -> bool:
    """Whether the model, or one inside it, decides itself about unknown fields."""
    found: list[Any] = [model.__pydantic_core_schema__]
    seen: set[int] = set()
    while found:
        node = found.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, dict):
            if "extra_fields_behavior" in node or "extra_behavior" in node:
                return True
            found.extend(node.values())
        elif isinstance(node, (list, tuple)):
            found.extend(node)
    return False


def _takes_extra(model: Any) -> bool:
    """Whether this pydantic lets a caller say what happens to unknown fields (it does from 2.12)."""
    return "extra" in inspect.signature(model.model_validate).parameters


def _refuse_unknown(value: dict[Any, Any], model: Any, path: str) -> None:
    known = set(model.model_fields)
    for field in model.model_fields.values():
        known.update(alias for alias in (field.alias, field.validation_alias) if isinstance(alias, str))
        if field.validation_alias is not None and not isinstance(field.validation_alias, str):
            return  # an alias with choices or a path inside the data
    for key in value:
        if key not in known:
            raise ModelMismatch(step(path, key), "Extra inputs are not permitted")


def dump_model(value: Any) -> Any:
    """The plain JSON of an instance: by alias, with computed fields, by pydantic's JSON mode."""
    return value.model_dump(mode="json", by_alias=True)


def model_schema(model: Any, ref_template: str) -> dict[str, Any]:
    """The JSON schema of what the model accepts; its definitions are under `$defs`."""
    schema: dict[str, Any] = model.model_json_schema(by_alias=True, ref_template=ref_template)
    return schema
