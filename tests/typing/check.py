"""Hold the typing cases of this folder against mypy and against pyright.

`pass_*.py` must be clean under both. In `fail_*.py` each line that ends in `# E` must be an error
under both, and no other line may be one: so a type that silently became `Any` is found.
pyright is run as `basedpyright`, the build of it that needs nothing but its own wheel.
Last, every public name must have a complete type, by pyright's own measure.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BIN = Path(sys.executable).parent

Lines = dict[str, set[int]]


def cases() -> list[Path]:
    return sorted([*HERE.glob("pass_*.py"), *HERE.glob("fail_*.py")])


def expected(paths: list[Path]) -> Lines:
    return {
        path.name: {
            number
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if re.search(r"# E\b", line)
        }
        for path in paths
    }


def _run(command: list[str]) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def mypy_errors(paths: list[Path]) -> tuple[Lines, list[str]]:
    found: Lines = {path.name: set() for path in paths}
    notes: list[str] = []
    command = [sys.executable, "-m", "mypy", "--output=json", "--no-warn-unreachable", *map(str, paths)]
    output = _run(command)
    for line in output.splitlines():
        try:
            item = json.loads(line)
        except ValueError:
            notes.append(f"mypy: {line}")
            continue
        name = Path(item["file"]).name
        if item["severity"] == "error" and name in found:  # errors elsewhere are another check's business
            found[name].add(item["line"])
            notes.append(f"mypy: {item['file']}:{item['line']}: {item['message']} [{item['code']}]")
    return found, notes


def pyright_errors(paths: list[Path]) -> tuple[Lines, list[str]]:
    found: Lines = {path.name: set() for path in paths}
    notes: list[str] = []
    config = ["--pythonpath", sys.executable, "--level", "error"]
    output = _run([str(BIN / "basedpyright"), "--outputjson", *config, *map(str, paths)])
    for item in json.loads(output)["generalDiagnostics"]:
        name, line = Path(item["file"]).name, item["range"]["start"]["line"] + 1
        if item["severity"] == "error" and name in found:
            found[name].add(line)
            notes.append(f"pyright: {item['file']}:{line}: {item['message']} [{item.get('rule', '')}]")
    return found, notes


def incomplete_types() -> list[str]:
    """Public names whose type pyright cannot fully tell."""
    command = [
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "--ignoreexternal",
        "--verifytypes",
        "branchpoint",
    ]
    report = json.loads(_run([str(BIN / "basedpyright"), *command]))["typeCompleteness"]
    return [
        f"{symbol['name']}: {'; '.join(item['message'] for item in symbol['diagnostics']) or 'type unknown'}"
        for symbol in report["symbols"]
        if symbol["isExported"] and not symbol["isTypeKnown"]
    ]


def main() -> int:
    paths = cases()
    wanted = expected(paths)
    bad = False
    for tool, (found, notes) in {"mypy": mypy_errors(paths), "pyright": pyright_errors(paths)}.items():
        for name, lines in wanted.items():
            for line in sorted(found[name] - lines):
                print(f"{tool}: {name}:{line}: an error that is not expected")
                bad = True
            for line in sorted(lines - found[name]):
                print(f"{tool}: {name}:{line}: must be an error and is not")
                bad = True
        if bad:
            print(*notes, sep="\n")
    unknown = incomplete_types()
    for symbol in unknown:
        print(f"pyright: incomplete public type: {symbol}")
    if bad or unknown:
        return 1
    print(
        f"typing: {len(paths)} files, {sum(map(len, wanted.values()))} lines that must fail do, public types complete"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
