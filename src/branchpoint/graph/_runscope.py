"""From a definition to the executor of one run, and its state back out of it."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from branchpoint.codec import copy_value
from branchpoint.errors import DefinitionError, ExecutorStateError
from branchpoint.graph._blueprint import blueprint
from branchpoint.graph._containers import Copier, unchanged
from branchpoint.graph._executor import Executor
from branchpoint.graph._state import SCOPE, DefinitionScope, RunScope, described, scope_of

__all__ = ["check_configuration", "definition_copy", "dehydrate", "hydrate", "spawn"]

E = TypeVar("E", bound=Executor)


def definition_copy(executor: E) -> E:
    """Return the definition a workflow owns: a private copy of the executor.

    Containers and defaults of state are copied; other objects, such as clients, are shared. Nothing
    done to the caller's executor afterwards shows in the copy.

    Raises:
        DefinitionError: The executor is run-scoped, or its `__init__` has not finished.
    """
    scope = _definition_scope(executor)
    copied: E = object.__new__(executor.__class__)
    copier = Copier(executor, copied)
    for name, value in executor.__dict__.items():
        copied.__dict__[name] = value if value is scope else copier.copy(value)
    defaults = {
        name: copy_value(value, path=f"{executor.id}.{name}") for name, value in scope.defaults.items()
    }
    copied.__dict__[SCOPE] = DefinitionScope(defaults, scope.table, _configuration(copied))
    return copied


def spawn(definition: E) -> E:
    """Return a run-scoped executor: the definition's attributes, its state at the defaults.

    The definition is not touched, neither now nor by anything the run does. Containers are private
    copies, methods bound to the definition are bound to the new object, other objects are shared.

    Raises:
        DefinitionError: The executor is run-scoped, or its `__init__` has not finished.
    """
    scope = _definition_scope(definition)
    names = scope.configuration if scope.configuration is not None else _configuration(definition)
    run: E = object.__new__(definition.__class__)
    attributes = run.__dict__
    attributes.update(definition.__dict__)
    configuration: list[tuple[str, Any]] = []
    if names:
        copier = Copier(definition, run)
        for name in names:
            original = attributes[name] if name in attributes else getattr(definition.__class__, name)
            attributes[name] = copier.copy(original)
            configuration.append((name, original))
    attributes[SCOPE] = RunScope(
        definition,
        scope.defaults,
        scope.table,
        configuration=tuple(configuration),
        manages_itself=blueprint(definition.__class__).manages_itself,
    )
    return run


async def hydrate(executor: Executor, saved: dict[str, Any]) -> None:
    """Give a run-scoped executor the state that was saved for it.

    Args:
        executor: Fresh from `spawn`.
        saved: What `dehydrate` returned; its values belong to the executor from now on. Fields that
            it lacks are at their defaults.

    Raises:
        ExecutorStateError: It holds a field that the class does not declare.
    """
    scope = _run_scope(executor)
    if scope.manages_itself:
        result = executor.on_snapshot_restore(saved)
        if inspect.isawaitable(result):
            await result
        return
    declared = {field.name for field in blueprint(executor.__class__).saved}
    unknown = [name for name in saved if name not in declared]
    if unknown:
        raise ExecutorStateError(
            f"The saved state of executor {described(executor)} holds {unknown}, which the class does not "
            f"declare (it declares {sorted(declared)}); running would drop it. Declare it with state(...) "
            "again, or commit an edited snapshot without it."
        )
    scope.values.update(saved)


async def dehydrate(executor: Executor) -> dict[str, Any] | None:
    """Return the state of a run-scoped executor to save, or None when there is nothing to save.

    All declared fields are in it, with their live values, unless all equal their defaults.

    Raises:
        ExecutorStateError: `on_snapshot_save` did not return a dict with text keys.
    """
    scope = _run_scope(executor)
    if scope.manages_itself:
        return await _own_state(executor)
    saved = blueprint(executor.__class__).saved
    if scope.is_at_defaults(executor, saved):
        return None
    return {field.name: scope.read(executor, field) for field in saved}


async def _own_state(executor: Executor) -> dict[str, Any] | None:
    result: Any = executor.on_snapshot_save()
    if inspect.isawaitable(result):
        result = await result
    if not isinstance(result, dict) or not all(isinstance(key, str) for key in result):
        raise ExecutorStateError(
            f"on_snapshot_save of executor {described(executor)} must return a dict with text keys, got "
            f"{type(result).__name__}."
        )
    return result or None


def check_configuration(executor: Executor) -> None:
    """Refuse a run's change to a container that belongs to the definition.

    To be called when a handler has returned, before anything of it is applied. The change was made
    to a private copy, so the definition and other runs never saw it.

    Raises:
        ExecutorStateError: A container differs from the definition's; names attribute and executor.
    """
    scope = executor.__dict__.get(SCOPE)
    if not isinstance(scope, RunScope):
        scope = _run_scope(executor)
    if not scope.configuration or scope.manages_itself:
        return
    for name, original in scope.configuration:
        copied = executor.__dict__.get(name)
        if not unchanged(original, copied, scope.definition, executor):
            kind = type(original).__name__
            raise ExecutorStateError(
                f"Executor {described(executor)} changed its attribute '{name}', a {kind}, during a run. It "
                "is not declared, so it is configuration and the same in every run, and the change would be "
                f"lost. Declare it in the class, as `{name}: {kind} = state(factory={kind})` to save it with "
                "every snapshot, or with scratch(...) for this run only; assigning it in __init__ then sets "
                "its default."
            )


def _configuration(definition: Executor) -> tuple[str, ...]:
    """Return the names of the attributes that a run needs its own copies of."""
    copier = Copier(definition, object())
    names = [
        name
        for name, value in definition.__dict__.items()
        if name != SCOPE and copier.copy(value) is not value
    ]
    held = definition.__dict__
    names += [name for name in blueprint(definition.__class__).containers if name not in held]
    return tuple(names)


def _definition_scope(executor: Executor) -> DefinitionScope:
    scope = scope_of(executor)
    if not isinstance(scope, DefinitionScope):
        state = "belongs to a run" if isinstance(scope, RunScope) else "is still inside its __init__"
        raise DefinitionError(
            f"Executor {described(executor)} {state}; only a finished definition can be used here."
        )
    return scope


def _run_scope(executor: Executor) -> RunScope:
    scope = scope_of(executor)
    if not isinstance(scope, RunScope):
        raise ExecutorStateError(
            f"Executor {described(executor)} is a definition and holds no state of a run."
        )
    return scope
