"""PgBouncer in transaction mode: the program `pgbouncer`, which Debian has in a package of that name."""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
import tempfile
from pathlib import Path

from tests.servers.postgres import SUPERUSER, PostgresServer
from tests.servers.process import HOST, ServerProcess, free_port, unprivileged

_SETTINGS = """
[databases]
* = host={host} port={postgres}

[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir = {folder}
auth_type = trust
auth_file = {folder}/users
admin_users = {user}
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
client_tls_sslmode = allow
client_tls_key_file = {folder}/key.pem
client_tls_cert_file = {folder}/certificate.pem
"""


def pgbouncer_missing() -> str | None:
    """Why there is no PgBouncer to be had here; None if there is."""
    return None if _program() else "pgbouncer is not on the path (`make servers` installs it)"


def _program() -> str | None:
    return shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


class PgBouncer:
    """PgBouncer with 4 server connections for each database, so that transactions do move between them.

    It takes plain and TLS connections; with TLS it shows a certificate of its own for 127.0.0.1.
    """

    def __init__(self, server: PostgresServer, *, postgres_port: int | None = None) -> None:
        program = _program()
        assert program is not None
        user = unprivileged()  # it refuses to be root
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="branchpoint-pgbouncer-"))
        self.certificate = self.folder / "certificate.pem"
        settings = self.folder / "settings.ini"
        settings.write_text(
            _SETTINGS.format(
                host=HOST,
                postgres=postgres_port or server.port,
                port=self.port,
                folder=self.folder,
                user=SUPERUSER,
            )
        )
        (self.folder / "users").write_text(f'"{SUPERUSER}" ""\n')
        write_certificate(self.certificate, self.folder / "key.pem")
        if user is not None:
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, user, -1)
        self.process = ServerProcess(
            [program, settings], log=self.folder / "log", ready="process up", user=user
        )

    def start(self) -> None:
        self.process.start()

    def remove(self) -> None:
        """End it; it has nothing to save."""
        self.process.kill()
        shutil.rmtree(self.folder)

    def dsn(self, database: str, *, user: str = SUPERUSER, tls: bool = False) -> str:
        """A DSN through PgBouncer: plain, or with TLS and the certificate checked."""
        how = f"sslmode=verify-full&sslrootcert={self.certificate}" if tls else "sslmode=disable"
        return f"postgresql://{user}@{HOST}:{self.port}/{database}?{how}"


def write_certificate(certificate: Path, key: Path) -> None:
    """A certificate for 127.0.0.1 that is signed with its own key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    made = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server of the tests")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(made.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(made, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key.touch(mode=0o600)
    key.write_bytes(
        made.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
