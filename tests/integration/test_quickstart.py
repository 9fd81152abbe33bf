"""The README's first command, as a newcomer runs it."""

import os
import re
import subprocess

import pytest

from lib import mounts, process
from lib.mount import REPO
from lib.origins import DirectoryOrigin


def temporary():
    return {name for name in os.listdir("/var/tmp") if name.startswith("cachefs-quickstart.")}


@pytest.fixture
def script():
    path = REPO / "build" / "prefix" / "bin" / "cachefs"
    if not path.exists():
        pytest.skip(f"{path} is not built: scripts/build.sh builds it")
    return REPO / "scripts" / "quickstart.sh"


@pytest.mark.timeout(600)
def test_without_arguments(script, workdir):
    """Reads cold and warm, shows equal checksums, two speeds and the status, and cleans up."""
    before, mounted = temporary(), mounts.below("/var/tmp")
    result = subprocess.run([script], cwd="/", env=process.environment(), stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, timeout=590, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    sums = re.findall(r"sha256 of (origin|mount) +([0-9a-f]{64})", result.stdout)
    assert [kind for kind, _ in sums] == ["origin", "mount"] * 2
    assert sums[0][1] == sums[1][1] and sums[2][1] == sums[3][1]
    assert len(re.findall(r"(?:cold|warm):.* MB/s", result.stdout)) >= 4
    assert "passthrough" in result.stdout and "store" in result.stdout
    assert temporary() == before
    assert mounts.below("/var/tmp") == mounted


@pytest.mark.timeout(600)
def test_with_a_source(script, cache, workdir):
    """Mounted and left mounted; a second run says so."""
    origin = DirectoryOrigin(workdir / "origin")
    origin.put("a", b"content")
    path = cache.directory / "mnt"
    cache.mountpoints.append(path)
    for word in ("is mounted on", "already"):
        with open(workdir / "out", "w+", encoding="utf-8") as out:
            result = subprocess.run([script, origin.source, path], env=cache.env, stdin=subprocess.DEVNULL, stdout=out,
                                    stderr=out, timeout=590, check=False)
            out.seek(0)
            text = out.read()
        assert result.returncode == 0, text
        assert word in text and str(path) in text
        assert (path / "a").read_bytes() == b"content"


def test_wrong_use(script):
    assert subprocess.run([script, "a", "b", "c"], capture_output=True, check=False).returncode == 2
    assert "SOURCE" in subprocess.run([script, "--help"], capture_output=True, text=True, check=True).stdout
