"""How long `import branchpoint` takes, beside what any such program pays anyway.

Each figure is a fresh interpreter, started, and ended; the cases take turns, so that a busy moment
of the machine falls on all of them alike. The first round compiles to a bytecode cache of its own and
warms the file cache, and is not counted: an installed package has its bytecode too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

CASES = {
    "python -c pass": "pass",
    "import asyncio, msgspec": "import asyncio, msgspec",
    "import branchpoint": "import branchpoint",
}


def seconds(code: str, environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return time.perf_counter() - start


def modules(code: str) -> int:
    counted = f"{code}\nimport sys\nprint(len(sys.modules))"
    return int(subprocess.run([sys.executable, "-c", counted], check=True, capture_output=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds

    taken: dict[str, list[float]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(rounds + 1):
            for name, code in CASES.items():
                spent = seconds(code, environment)
                if number:
                    taken[name].append(spent * 1000)

    bare = statistics.median(taken["python -c pass"])
    print(f"Python {sys.version.split()[0]}, {rounds} rounds, milliseconds")
    print(f"{'':26}{'median':>8}{'best':>8}{'worst':>8}{'over bare':>11}{'modules':>9}")
    for name, code in CASES.items():
        times = taken[name]
        middle = statistics.median(times)
        print(
            f"{name:26}{middle:8.1f}{min(times):8.1f}{max(times):8.1f}{middle - bare:11.1f}{modules(code):9}"
        )


if __name__ == "__main__":
    main()
