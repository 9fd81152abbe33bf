"""Waiting for a condition of another process: by asking it again, never by a guess of how long it takes."""

import time

INTERVAL_S = 0.02


def until(condition, timeout_s=30.0, what="the condition"):
    """Returns condition()'s first true value; raises TimeoutError when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what} did not come true within {timeout_s} s")
        time.sleep(INTERVAL_S)
