"""What two signatures differ in, told so that a reader knows which change to undo."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import unified_diff
from typing import Any, Final

from branchpoint.graph._signature import canonical

__all__ = ["explain_difference"]

_SHOWN: Final = 6
_WIDTH: Final = 160
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_Ends = tuple[tuple[str, ...], tuple[str, ...]]


def explain_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say in readable lines what differs between two signatures.

    Args:
        old: The signature that was stored.
        new: The signature of the workflow at hand.

    Returns:
        One line per difference; empty when the signatures are the same. An executor that only
        changed its id is one line, and its edges are not reported again.
    """
    lines: list[str] = []
    if old.get("name") != new.get("name"):
        lines.append(f"workflow name was {_shown(old.get('name'))}, is now {_shown(new.get('name'))}")
    renamed = _renamed(old, new)
    old_start = renamed.get(str(old.get("start")), old.get("start"))
    if old_start != new.get("start"):
        lines.append(f"start executor was {_shown(old.get('start'))}, is now {_shown(new.get('start'))}")
    lines += _executor_lines(_executors(old), _executors(new), renamed)
    lines += _edge_lines(_edges(old, renamed), _edges(new, {}))
    covered = {"name", "start", "executors", "edges"}
    for key in sorted({*old, *new} - covered):
        if old.get(key) != new.get(key):
            lines.append(f"{key} was {_shown(old.get(key))}, is now {_shown(new.get(key))}")
    if not lines and canonical(old) != canonical(new):
        lines.append("the signatures differ in a detail that this version cannot name")
    return lines


def _executors(plain: Mapping[str, Any]) -> dict[str, Any]:
    return dict(plain.get("executors") or {})


def _renamed(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Pair executors that are gone with new ones of the same type, the best connected match first."""
    before, after = _executors(old), _executors(new)
    free = [key for key in sorted(after) if key not in before]
    pairs: dict[str, str] = {}
    for gone in (key for key in sorted(before) if key not in after):
        alike = [key for key in free if canonical(after[key]) == canonical(before[gone])]
        if alike:
            best = max(alike, key=lambda key: _common_edges(old, new, gone, key))
            pairs[gone] = best
            free.remove(best)
    return pairs


def _common_edges(old: Mapping[str, Any], new: Mapping[str, Any], gone: str, came: str) -> int:
    return len(set(_edges(old, {gone: came})) & set(_edges(new, {})))


def _executor_lines(old: dict[str, Any], new: dict[str, Any], renamed: dict[str, str]) -> list[str]:
    lines = [
        f"executor renamed: '{a}' is now '{b}' ({_type(old[a])}){_made_anew(a, b)}"
        for a, b in renamed.items()
    ]
    for key in sorted({*old, *new}):
        if key in old and key in new:
            if _type(old[key]) != _type(new[key]):
                lines.append(f"executor '{key}' changed its type: {_type(old[key])} is now {_type(new[key])}")
            lines += _child_lines(key, old[key], new[key])
            lines += _code_lines(key, old[key].get("code"), new[key].get("code"))
        elif key in old and key not in renamed:
            lines.append(f"executor removed: '{key}' ({_type(old[key])})")
        elif key in new and key not in renamed.values():
            lines.append(f"executor added: '{key}' ({_type(new[key])})")
    return lines


def _made_anew(*ids: str) -> str:
    """Say what is wrong with ids that nobody wrote down, as an agent without a name has one."""
    if all(map(_UUID.fullmatch, ids)):
        return ", an id that is made anew in each process: give the agent a name, or the executor an id"
    return ""


def _child_lines(key: str, old: Any, new: Any) -> list[str]:
    before, after = old.get("workflow"), new.get("workflow")
    if before is None or after is None:
        if before is after:
            return []
        return [f"executor '{key}' {'lost' if after is None else 'gained'} its child workflow"]
    return [f"inside '{key}': {line}" for line in explain_difference(before, after)]


def _code_lines(key: str, old: Any, new: Any) -> list[str]:
    """Say where the code of a function differs, the first few lines of it."""
    if old == new:
        return []
    lines = list(unified_diff(old or [], new or [], n=0, lineterm=""))[2:]
    told = [line for line in lines if line[:1] in "+-"]
    shown = [f"  {'was' if line[0] == '-' else 'now'} {line[1:].strip()[:_WIDTH]}" for line in told[:_SHOWN]]
    if len(told) > _SHOWN:
        shown.append(f"  and {len(told) - _SHOWN} lines more")
    return ["\n".join([f"the code of '{key}' changed", *shown])]


def _type(entry: Any) -> str:
    return str(entry.get("type"))


def _edges(plain: Mapping[str, Any], renamed: dict[str, str]) -> dict[_Ends, dict[str, Any]]:
    """Return the edge entries by their ends, with renamed executors under their new ids."""
    edges: dict[_Ends, dict[str, Any]] = {}
    for entry in plain.get("edges") or ():
        entry = dict(entry)
        for ends in ("sources", "targets"):
            ids: list[str] = entry.get(ends) or []
            entry[ends] = sorted(renamed.get(key, key) for key in ids)
        if "cases" in entry:
            entry["cases"] = [[name, renamed.get(target, target)] for name, target in entry["cases"]]
        edges[tuple(entry["sources"]), tuple(entry["targets"])] = entry
    return edges


def _edge_lines(old: dict[_Ends, dict[str, Any]], new: dict[_Ends, dict[str, Any]]) -> list[str]:
    lines = [f"edge removed: {_edge(old[ends])}" for ends in sorted(old.keys() - new.keys())]
    lines += [f"edge added: {_edge(new[ends])}" for ends in sorted(new.keys() - old.keys())]
    for ends in sorted(old.keys() & new.keys()):
        before, after = old[ends], new[ends]
        if before.get("kind") != after.get("kind"):
            lines.append(
                f"edge {_ways(before)} changed its kind: {before.get('kind')} is now {after.get('kind')}"
            )
            continue
        for detail in ("condition", "selection"):
            if before.get(detail) != after.get(detail):
                lines.append(
                    f"{detail} of edge {_ways(before)} was {_shown(before.get(detail))}, "
                    f"is now {_shown(after.get(detail))}"
                )
        if before.get("cases") != after.get("cases"):
            lines.append(
                f"cases of the switch {_ways(before)} were {_cases(before)}, are now {_cases(after)}"
            )
    return lines


def _edge(entry: dict[str, Any]) -> str:
    condition = entry.get("condition")
    return f"{_ways(entry)} ({entry.get('kind')}{'' if condition is None else f', if {condition}'})"


def _ways(entry: dict[str, Any]) -> str:
    return f"{_ids(entry['sources'])} -> {_ids(entry['targets'])}"


def _ids(ids: list[str]) -> str:
    return f"'{ids[0]}'" if len(ids) == 1 else "[" + ", ".join(f"'{key}'" for key in ids) + "]"


def _cases(entry: dict[str, Any]) -> str:
    cases = entry.get("cases") or ()
    told = [f"{'default' if name is None else name} -> '{target}'" for name, target in cases]
    return ", ".join(told) or "none"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return f"'{value}'" if isinstance(value, str) else canonical(value)
