"""What a call gives for itself alone, and what of it is for one executor: pure, never saved."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from branchpoint.errors import InvalidCallError

__all__ = ["WorkflowInvocationKwargs", "check_options", "options_inside", "options_of"]

PER_EXECUTOR: Final = ("function_invocation_kwargs", "client_kwargs")


@dataclass(frozen=True)
class WorkflowInvocationKwargs:
    """Keyword arguments for all executors, and more for some of them.

    A plain mapping given to `run()` is for all executors, or, if one of its keys is the id of an
    executor, per executor; this says both at once.

    Attributes:
        global_kwargs: For every executor.
        executor_kwargs: By executor id; these win over the global ones.
    """

    global_kwargs: Mapping[str, Any] = field(default_factory=dict)
    executor_kwargs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def check_options(options: Mapping[str, Any], executor_ids: Collection[str]) -> None:
    """Refuse options of the wrong form before anything happens.

    Args:
        options: Of the call.
        executor_ids: Those of the workflow.

    Raises:
        InvalidCallError: It names the option.
    """
    for name in PER_EXECUTOR:
        given = options.get(name)
        if given is None:
            continue
        shared: Any
        own: Any
        if isinstance(given, Mapping):
            shared, own = given, given if any(key in executor_ids for key in given) else {}
        else:  # Agent Framework's own class has the same fields
            shared, own = getattr(given, "global_kwargs", None), getattr(given, "executor_kwargs", None)
        if not isinstance(shared, Mapping) or not isinstance(own, Mapping):
            raise InvalidCallError(
                f"{name} is a mapping of keyword arguments, a mapping of executor id to such, or "
                f"WorkflowInvocationKwargs, got {type(given).__name__}."
            )
        for key, arguments in own.items():
            if key not in executor_ids or not isinstance(arguments, Mapping):
                raise InvalidCallError(
                    f"{name} is given per executor, but {key!r} is "
                    f"{'no executor of this workflow' if key not in executor_ids else 'not given a mapping'}; "
                    f"it has {sorted(executor_ids)}. What is for all executors goes into "
                    "WorkflowInvocationKwargs(global_kwargs=..., executor_kwargs=...)."
                )


def options_of(executor_id: str, options: Mapping[str, Any], executor_ids: Collection[str]) -> dict[str, Any]:
    """Return the options of a call that are for one executor.

    Args:
        executor_id: Which one.
        options: Of the call.
        executor_ids: Those of the workflow, by which arguments per executor are told from arguments.
    """
    found = dict(options)
    for name in PER_EXECUTOR:
        if name in found:
            own = _own(found.pop(name), executor_id, executor_ids)
            if own:
                found[name] = own
    return found


def options_inside(
    executor_id: str, options: Mapping[str, Any], executor_ids: Collection[str], child_ids: Collection[str]
) -> dict[str, Any]:
    """Return the options of a call that are for the child workflow of one executor.

    What is given for that executor is given to its child, and may name executors of the child in turn.

    Args:
        executor_id: Which one.
        options: Of the call, as its workflow has them.
        executor_ids: Those of its workflow.
        child_ids: Those of the child.
    """
    found = options_of(executor_id, options, executor_ids)
    for name in PER_EXECUTOR:
        given = options.get(name)
        if given is not None and not isinstance(given, Mapping):
            own = given.executor_kwargs.get(executor_id, {})
            if any(key in child_ids for key in own):
                found[name] = WorkflowInvocationKwargs(given.global_kwargs, own)
    return found


def _own(given: Any, executor_id: str, executor_ids: Collection[str]) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        return {**given.global_kwargs, **given.executor_kwargs.get(executor_id, {})}
    if any(key in executor_ids for key in given):
        return dict(given.get(executor_id, {}))
    return dict(given)
