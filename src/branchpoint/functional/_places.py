"""Where in a function a call stands: what tells two calls of one step apart, the same in every run of it.

Pure. A call is known by the scope it is made in, the step's name and arguments, and which one it is of
those that are alike there. A scope is the code that runs in one task, or in the body of one step. Tasks
have no names that come out the same again, so the scope of a task is known by the first call it makes.
"""

from __future__ import annotations

from typing import Any

from branchpoint.codec import digest

__all__ = ["Call", "Scope"]

Order = tuple[int | str, ...]


class Call:
    """One call of a step, or one question.

    Attributes:
        name: Of the step.
        key: What it is known by.
        order: Sorts calls as the code makes them, whatever the timing.
        scope: What it was made in.
    """

    __slots__ = ("key", "name", "order", "scope")

    def __init__(self, name: str, key: str, order: Order, scope: Scope) -> None:
        self.name = name
        self.key = key
        self.order = order
        self.scope = scope


class Scope:
    """Code that makes its calls one after the other.

    Attributes:
        key: What it is known by; empty for the function itself.
        order: Where it stands among all calls.
        task: What runs it.
        step: The call of the step whose body it belongs to; None outside of any.
        made: Keys of the calls that are done in there.
    """

    __slots__ = ("_alike", "_count", "key", "made", "order", "step", "task")

    def __init__(
        self,
        key: str = "",
        order: Order = (),
        task: Any = None,
        step: Call | None = None,
    ) -> None:
        self.key = key
        self.order = order
        self.task = task
        self.step = step
        self.made: list[str] = []
        self._alike: dict[tuple[str, str, str], int] = {}
        self._count = 0

    def next(self, kind: str, name: str, identity: str) -> Call:
        """Return the next call.

        Args:
            kind: "step" or "request", with "first " before it when it is the first call of a new task.
            name: Of the step.
            identity: A digest of its arguments.
        """
        alike = kind, name, identity
        number = self._alike[alike] = self._alike.get(alike, 0) + 1
        parts = (self.key, kind, name, identity, str(number))
        text = "".join(f"{len(part)}:{part}" for part in parts)
        key = digest(text.encode("utf-8", "surrogatepass"))
        if kind.startswith("first "):
            return Call(name, key, (*self.order, 1, key), self)
        self._count += 1
        return Call(name, key, (*self.order, 0, self._count), self)

    def of_task(self, call: Call, task: Any) -> Scope:
        """Return the scope of a task that this one started and that made `call` first."""
        scope = Scope(call.key, call.order, task, self.step)
        scope.made = self.made
        return scope
