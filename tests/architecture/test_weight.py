"""`import branchpoint` is light: it brings in what it needs and nothing that a program may do without."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

# What a program has only if it asks for it.
HEAVY = (
    "agent_framework",
    "anyio",
    "asyncpg",
    "azure",
    "cryptography",
    "graphviz",
    "hypothesis",
    "jinja2",
    "multiprocessing",
    "numpy",
    "openai",
    "opentelemetry",
    "pydantic",
    "pytest",
    "rich",
    "sqlite3",
    "starlette",
    "typer",
    "unittest",
)
ALLOWED_DISTRIBUTIONS = {"branchpoint", "msgspec", "typing_extensions"}

_PROBE = """
import json, sys, time
before = set(sys.modules)
start = time.perf_counter()
import branchpoint
took = time.perf_counter() - start
new = sorted(set(sys.modules) - before)
print(json.dumps({"new": new, "milliseconds": round(took * 1000, 1)}))
"""


def _probe() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True, timeout=60
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_import_brings_in_nothing_heavy() -> None:
    answer = _probe()
    loaded = {str(name).partition(".")[0] for name in answer["new"]}
    print(f"import branchpoint: {answer['milliseconds']} ms, {len(answer['new'])} modules")
    assert not loaded & set(HEAVY), f"import it inside the function that needs it: {loaded & set(HEAVY)}"


def test_import_needs_only_the_declared_distributions() -> None:
    loaded = {str(name).partition(".")[0] for name in _probe()["new"]}
    foreign = {name for name in loaded if name not in sys.stdlib_module_names and not name.startswith("_")}
    assert foreign <= ALLOWED_DISTRIBUTIONS, (
        f"not a dependency of the base: {foreign - ALLOWED_DISTRIBUTIONS}"
    )
