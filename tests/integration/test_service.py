"""The systemd unit as it is installed."""

import shutil
import subprocess
from configparser import ConfigParser

import pytest

from lib.mount import PROGRAM

# Any of them gives the service a mount namespace of its own, in which its mounts would stay.
OWN_NAMESPACE = ("ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts", "ProtectProc",
                 "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups",
                 "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "BindPaths", "TemporaryFileSystem",
                 "MountFlags", "RootDirectory", "RootImage", "DynamicUser")


@pytest.fixture
def unit():
    found = [path for path in PROGRAM.parents[1].rglob("cachefs.service")]
    assert len(found) == 1, f"{found}: is the unit installed?"
    return found[0]


def test_it_says_what_mounts_need(unit):
    parser = ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str
    parser.read(unit)
    service = parser["Service"]
    assert service["Type"] == "notify"
    assert service["ExecStart"] == f"{PROGRAM} hold" and service["ExecReload"] == f"{PROGRAM} upgrade"
    assert not set(OWN_NAMESPACE) & set(service)
    assert service["DeviceAllow"] == "/dev/fuse rw" and "CAP_SYS_ADMIN" in service["CapabilityBoundingSet"].split()
    # The option protect.
    assert "CAP_LINUX_IMMUTABLE" in service["CapabilityBoundingSet"].split()
    assert (service["KillMode"], service["OOMPolicy"]) == ("mixed", "continue")


def test_systemd_takes_it(unit):
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    result = subprocess.run([tool, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
