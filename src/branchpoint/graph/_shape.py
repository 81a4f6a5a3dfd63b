"""The shape of a function's code: what it does, without how it is laid out, commented or annotated.

Read from the source, since bytecode changes with each Python. Each statement is one line of text that
names everything in it; docstrings, annotations, decorators and positions are left out. Where there is no
source, names and constants of the compiled code stand in.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Final

__all__ = ["code_shape"]

_INDENT: Final = "  "
_LEFT_OUT: Final = {
    "annotation", "returns", "type_comment", "type_params", "decorator_list", "kind", "ctx", "type_ignores",
}  # fmt: skip


def code_shape(func: Callable[..., Any]) -> tuple[str, ...]:
    """Return the shape of a function's code, a line for each statement, the same in every process."""
    func = inspect.unwrap(func)
    found = _definition(func)
    if found is not None:
        return (f"({_told(found.args)})", *_lines(found.body, 0))
    code = getattr(func, "__code__", None)
    return tuple(_compiled(code)) if code is not None else (type(func).__qualname__,)


def _definition(func: Callable[..., Any]) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(func)))
    except (OSError, TypeError, SyntaxError):
        return None
    name = getattr(func, "__name__", None)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node
    return None


def _lines(body: list[ast.stmt], level: int) -> Iterator[str]:
    for place, statement in enumerate(body):
        if place == 0 and _is_text(statement) and len(body) > 1:
            continue  # a docstring, or a text that does nothing
        if isinstance(statement, ast.AnnAssign):  # annotations do not count
            if statement.value is None:
                continue
            statement = ast.Assign(targets=[statement.target], value=statement.value)
        yield from _statement(statement, level)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _statement(node: ast.AST, level: int) -> Iterator[str]:
    """Tell a statement in one line, then those inside it, further in."""
    own: list[str] = []
    inner: list[tuple[str, list[Any]]] = []
    for name, value in _fields(node):
        if isinstance(value, list) and value and isinstance(value[0], _BLOCKS):
            inner.append((name, value))
        else:
            own.append(f"{name}={_told(value)}")
    yield f"{_INDENT * level}{type(node).__name__} {' '.join(own)}".rstrip()
    for name, block in inner:
        if name != "body":
            yield f"{_INDENT * level}{name}"
        if isinstance(block[0], ast.stmt):
            yield from _lines(block, level + 1)
        else:
            for one in block:
                yield from _statement(one, level + 1)


_BLOCKS: Final = (ast.stmt, ast.excepthandler, ast.match_case)


def _fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Return the fields of a node that say something; which empty ones there are depends on the Python."""
    for name in node._fields:
        value = getattr(node, name, None)
        if name not in _LEFT_OUT and value is not None and value != []:
            yield name, value


def _told(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_told, value))}]"
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.arg):
        return value.arg
    if isinstance(value, ast.Attribute):
        return f"{_told(value.value)}.{value.attr}"
    if isinstance(value, ast.Constant):
        return repr(value.value)
    if isinstance(value, ast.Call):
        return f"{_told(value.func)}({', '.join(map(_told, [*value.args, *value.keywords]))})"
    if isinstance(value, ast.keyword):
        return f"{value.arg}={_told(value.value)}" if value.arg is not None else f"**{_told(value.value)}"
    if isinstance(value, ast.AST):
        inner = ", ".join(f"{name}={_told(one)}" for name, one in _fields(value))
        return f"{type(value).__name__}({inner})" if inner else type(value).__name__
    return str(value)


def _compiled(code: CodeType) -> Iterator[str]:
    yield f"compiled ({', '.join(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])})"
    yield f"names {', '.join(code.co_names)}"
    constants = [one for one in code.co_consts if not isinstance(one, CodeType)]
    yield f"constants {', '.join(repr(one) for one in constants if not isinstance(one, frozenset))}"
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from (f"{_INDENT}{line}" for line in _compiled(one))
