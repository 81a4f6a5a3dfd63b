"""`make bench`: all benchmarks, or those that are named; of all of them, the page of figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from environment import ROOT, ready
from page import Facts, comparison, growth, page

import branchpoint

WORKLOADS = tuple(f"W{number}" for number in range(1, 10))
SCRIPTS = {"parts": "shared_parts.py", "lazy": "lazy_load.py"}
PARTS = (*WORKLOADS, "growth", *SCRIPTS)
OWN = Path(".bench")  # stores, reports and the other engines; nothing of it is kept in git
PAGE = Path("docs") / "reference" / "performance.md"

NO_PEERS = """\
There is no comparison at {folder}.
W1 to W9 run beside other engines, whose cases are a folder of their own: run.py, common.py, floor.py and
one peer_*.py for each engine. It is not part of this repository. Say where it is:
    make bench PEERS=path/to/peers
or measure only what needs no other engine:
    make bench ARGS="--only growth,parts,lazy"
"""


def main() -> None:
    """Measure, print, and write the page if everything was measured in full."""
    os.chdir(ROOT)
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("--peers", type=Path, required=True, help="the folder of the comparison")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, smaller sizes, and no page; three minutes"
    )
    options = parser.parse_args()
    only = options.only.split(",")
    if unknown := set(only) - set(PARTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    workloads = [name for name in WORKLOADS if name in only]
    if workloads and not (options.peers / "run.py").is_file():
        sys.exit(NO_PEERS.format(folder=options.peers))
    OWN.mkdir(exist_ok=True)

    commit, load = _commit(), os.getloadavg()[0]  # as they are before; both may change until the end
    if load > 0.5:
        print(f"The machine is busy (load average {load:.1f}): durable cases in particular will be wrong.")
    quick = ["--quick"] if options.quick else []
    compared: dict[str, Any] = {}
    grown: dict[str, Any] = {}
    failed = False
    if workloads:
        python, out = ready(OWN / "venv"), OWN / "peers.json"
        command = [python, "benchmarks/peers.py", "--peers", options.peers, "--only", ",".join(workloads)]
        failed |= _run([*command, "--dir", OWN, "--out", out, *quick])
        compared = _take(out)
    if "growth" in only:
        out = OWN / "growth.json"
        failed |= _run([sys.executable, "benchmarks/growth.py", "--dir", OWN, "--out", out, *quick])
        grown = _take(out)
    for name, script in SCRIPTS.items():
        if name in only and not (options.quick and len(only) > 1):
            failed |= _run([sys.executable, f"benchmarks/{script}"])
    print("\n" + "\n\n".join([*comparison(compared), *(growth(grown) if grown else [])]))
    if failed:
        sys.exit("\nA benchmark failed; see above.")
    if {*WORKLOADS, "growth"} <= set(only) and not options.quick:
        PAGE.write_text(page(_facts(commit, load, compared["versions"]), compared, grown), encoding="utf-8")
        print(f"\nThe page is {PAGE}.")


def _run(command: list[Any]) -> bool:
    """Run one benchmark, which prints as it goes; say whether it failed."""
    print(f"\n== {Path(command[1]).name}", flush=True)
    return subprocess.run([str(word) for word in command], check=False).returncode != 0


def _take(path: Path) -> dict[str, Any]:
    """Read a report and remove it, so that the next one is never mistaken for it; empty if there is none."""
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    return found


def _facts(commit: str, load: float, installed: dict[str, str]) -> Facts:
    machine = f"{os.cpu_count()} cores of {_processor()}, {platform.system()} {platform.release()}"
    versions = {name: version for name, version in installed.items() if version != "absent"}
    return Facts(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=commit,
        machine=f"{machine}, {_file_system()}, with a load average of {load:.1f} before it began",
        versions={"Python": platform.python_version(), "branchpoint": branchpoint.__version__, **versions},
    )


def _commit() -> str:
    """Return the commit of the tree, and whether the tree has changes beside it."""
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
        )
        status = ["git", "status", "--porcelain", "--", "src", "benchmarks"]
        changed = subprocess.run(status, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + (" with changes" if changed else "")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _file_system() -> str:
    """Return the kind of file system that the stores are on."""
    here, best = OWN.resolve(), ("", "an unknown file system")
    try:
        lines = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for _, point, kind, *_ in (line.split() for line in lines):
        if here.is_relative_to(point) and len(point) > len(best[0]):
            best = point, kind
    return best[1]


if __name__ == "__main__":
    main()
