"""Fixtures of the integration tests: origins, servers, the daemon; a check that nothing leaks; an end for hangs."""

import faulthandler
import shutil
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from lib import mounts, process
from lib.certificates import make as make_certificates
from lib.faulty import Faulty
from lib.hub import Hub
from lib.mount import PROGRAM, Cache
from lib.origins import DirectoryOrigin, FaultyOrigin, S3Origin
from lib.servers import Minio, Versitygw

lasting = set()  # the processes that serve the whole session, not one test
HANG_MARGIN_S = 10  # how long before the test's time-out its hung requests get an error


@pytest.fixture
def rounds(request):
    """rounds(short, long): how many a torture test does."""
    return lambda short, long: long if request.config.getoption("--long") else short


@pytest.fixture(scope="session")
def session_directory():
    directory = Path(tempfile.mkdtemp(prefix="cachefs-test-"))
    yield directory
    mounts.clear(directory)
    process.kill(process.ours())
    shutil.rmtree(directory)


@pytest.fixture(autouse=True)
def workdir(session_directory, request):
    """A directory of the test's own. Afterwards there must be no mount below it and no process that it started."""
    directory = Path(tempfile.mkdtemp(dir=session_directory))
    limit = request.node.get_closest_marker("timeout")
    limit_s = float(limit.args[0] if limit and limit.args else request.config.getini("timeout"))
    watchdog = threading.Timer(max(limit_s - HANG_MARGIN_S, 1), _end_hang, [directory])
    watchdog.daemon = True
    watchdog.start()
    yield directory
    watchdog.cancel()
    left_mounts = mounts.below(directory)
    left_processes = {pid: line for pid, line in process.ours().items() if pid not in lasting}
    mounts.clear(directory)
    process.kill(left_processes)
    shutil.rmtree(directory)
    assert not left_mounts, f"the test left mounts behind: {left_mounts}"
    assert not left_processes, f"the test left processes behind: {left_processes}"


def _end_hang(directory):
    """A process that waits in a FUSE request takes no signal: only the connection's end brings it back."""
    faulthandler.dump_traceback(file=sys.__stderr__)
    for mount in mounts.below(directory):
        mounts.abort(mount)


@pytest.fixture(scope="session")
def certificates(session_directory):
    return make_certificates(session_directory / "certificates")


def _server(kind, directory):
    if not kind.available():
        pytest.skip(f"{kind.program} is not in build/tools: scripts/test_tools.sh puts it there")
    with kind(directory) as server:
        lasting.add(server.process.pid)
        yield server
        lasting.discard(server.process.pid)


@pytest.fixture(scope="session")
def versitygw(session_directory):
    yield from _server(Versitygw, session_directory / "versitygw")


@pytest.fixture(scope="session")
def minio(session_directory):
    yield from _server(Minio, session_directory / "minio")


@pytest.fixture
def faulty(workdir):
    with Faulty() as origin:
        yield origin


@pytest.fixture
def web(workdir):
    """A plain web server, scripted."""
    with Faulty(bucket=None) as origin:
        yield origin


@pytest.fixture
def hub(workdir):
    """A Hugging Face hub, scripted."""
    with Hub() as hub:
        yield hub


@pytest.fixture(params=["file", "faulty", "versitygw", "minio"])
def origin(request, workdir):
    """Every kind of origin in turn, empty."""
    if request.param == "file":
        yield DirectoryOrigin(workdir / "origin")
    elif request.param == "faulty":
        yield FaultyOrigin(request.getfixturevalue("faulty"))
    else:
        bucket = S3Origin(request.getfixturevalue(request.param))
        yield bucket
        bucket.close()


@pytest.fixture
def cache(workdir):
    """The daemon under test, not yet started."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built: scripts/build.sh builds it")
    with Cache(workdir / "cache") as cache:
        yield cache
