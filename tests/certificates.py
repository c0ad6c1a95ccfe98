"""Certificates for tests, made by openssl: good ones, expired ones, and keys that cannot be used."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import pytest

__all__ = ["Pair", "encrypted_key", "make_pair"]

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")

EXPIRED = """
[ca]
default_ca = us
[us]
dir = .
database = $dir/index.txt
new_certs_dir = $dir
rand_serial = yes
default_md = sha256
policy = any
copy_extensions = copy
[any]
commonName = supplied
"""


@dataclass(frozen=True)
class Pair:
    """A private key and its certificate as PEM files."""

    key: Path
    certificate: Path


def make_pair(folder: Path, name: str, names: str, *, issuer: Pair | None = None, expired: bool = False) -> Pair:
    """Make `<name>.key` and `<name>.pem` for the subject's `names`, as in `IP:127.0.0.1,DNS:localhost`.

    Without an `issuer` the certificate is signed by its own key.
    """
    if which("openssl") is None:
        pytest.skip("makes its certificates with openssl")
    subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={names}", "-keyout", f"{name}.key")
    if issuer is not None:
        _openssl(folder, "req", "-new", *CURVE, *subject, "-out", f"{name}.csr")
        (folder / f"{name}.cnf").write_text(f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n")
        signed = ("-CA", str(issuer.certificate), "-CAkey", str(issuer.key), "-CAcreateserial", "-days", "2")
        _openssl(
            folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-extfile", f"{name}.cnf", "-out", f"{name}.pem"
        )
    elif not expired:
        _openssl(folder, "req", "-x509", *CURVE, "-days", "2", *subject, "-out", f"{name}.pem")
    else:
        _openssl(folder, "req", "-new", *CURVE, *subject, "-out", f"{name}.csr")
        (folder / "index.txt").touch()
        (folder / "ca.cnf").write_text(EXPIRED)
        own = ("-selfsign", "-keyfile", f"{name}.key", "-in", f"{name}.csr", "-out", f"{name}.pem")
        days = ("-startdate", "20200101000000Z", "-enddate", "20200102000000Z")
        _openssl(folder, "ca", "-config", "ca.cnf", "-batch", "-notext", *own, *days)
    return Pair(folder / f"{name}.key", folder / f"{name}.pem")


def encrypted_key(folder: Path, pair: Pair) -> Path:
    """Make a copy of a key that wants a password."""
    path = folder / "encrypted.key"
    _openssl(folder, "pkcs8", "-topk8", "-in", str(pair.key), "-out", str(path), "-passout", "pass:geheim")
    return path


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, stdin=subprocess.DEVNULL)
