"""Runs a function of lib in a process of its own.

A page fault in a mapping holds Python's lock for as long as it lasts: a test that maps a file of a mount whose origin
is served by its own process would wait for itself. Readers that hang are also easier to end this way."""

import importlib
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

from lib import process

TESTS = Path(__file__).resolve().parents[1]


class ChildError(AssertionError):
    pass


class Child:
    """A call under way: function(*args) with arguments and a result that JSON can carry."""

    def __init__(self, function, *args):
        self.name = function.__name__
        argv = [sys.executable, "-m", "lib.child", function.__module__, self.name,
                json.dumps([os.fspath(a) if isinstance(a, os.PathLike) else a for a in args])]
        self._process = subprocess.Popen(argv, cwd=TESTS, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, env=process.environment(), text=True)

    @property
    def pid(self):
        return self._process.pid

    def running(self):
        return self._process.poll() is None

    def result(self, timeout_s=100):
        """What the function returned; its OSError is raised here."""
        try:
            out, err = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.end()
            raise ChildError(f"{self.name} did not end within {timeout_s} s") from None
        if self._process.returncode != 0:
            raise ChildError(f"{self.name} ended with {self._process.returncode}:\n{err}")
        answer = json.loads(out.splitlines()[-1])
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), answer["path"])
        return answer["result"]

    def end(self):
        """SIGKILL, if it still runs."""
        if self.running():
            self._process.kill()
        self._process.communicate()


def call(function, *args, timeout_s=100):
    return Child(function, *args).result(timeout_s)


def main():
    module, name, args = sys.argv[1:]
    try:
        answer = {"result": getattr(importlib.import_module(module), name)(*json.loads(args))}
    except OSError as e:
        if e.errno is None:
            raise
        traceback.print_exc()
        answer = {"errno": e.errno, "path": str(e.filename)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
