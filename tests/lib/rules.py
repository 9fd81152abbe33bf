"""What a scripted origin does wrong: rules that a test switches on and off while the origin runs."""

from dataclasses import dataclass, field
from typing import Any, Callable, Optional


@dataclass(eq=False)
class Rule:
    """The first rule that matches a request decides; all that is not set here goes on as usual.

    Matching: op is "get", "head", "list", "index" or "other"; key a name or a predicate; where a predicate on
    the whole request; the first `after` matches are let through, then `times` are taken (None: all).

    stall_at=N: after N bytes of the body (-1: before the answer's first byte) the answer waits for release().
    cut_at=N: the connection ends after N bytes of the body (-1: before the answer); reset: by RST.
    whole: the range that was asked for is ignored. chunked: the body goes without a Content-Length.
    """

    origin: Any
    op: Optional[str] = None
    key: Any = None
    where: Optional[Callable] = None
    after: int = 0
    times: Optional[int] = None

    status: Optional[int] = None  # an error answer with S3's XML
    code: str = "InternalError"
    headers: dict = field(default_factory=dict)  # name: text or f(request); None takes the header away
    body: Optional[bytes] = None  # instead of the object's bytes; the status stays
    edit: Optional[Callable] = None  # f(whole body) -> whole body
    stall_at: Optional[int] = None
    cut_at: Optional[int] = None
    reset: bool = False
    whole: bool = False
    chunked: bool = False
    late: float = 0  # seconds before the answer
    trickle: Optional[tuple] = None  # (bytes, seconds): that many bytes each so many seconds

    seen: int = 0  # matched; guarded by the origin's condition, as are the next two
    hits: int = 0  # taken
    released: bool = False

    def matches(self, request):
        """Counts and claims the request; the origin's condition is held."""
        if self.op is not None and request.op != self.op:
            return False
        if self.key is not None and not (self.key(request.key) if callable(self.key) else request.key == self.key):
            return False
        if self.where is not None and not self.where(request):
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.seen += 1
        if self.seen <= self.after:
            return False
        self.hits += 1
        return True

    def wait_hits(self, count, timeout_s=30.0):
        """Returns when count requests have met this rule: the barrier for stalls."""
        self.origin.wait_for(lambda: self.hits >= count, timeout_s, f"{count} hits (had {self.hits})")

    def release(self):
        """Lets every stalled answer of this rule go on, those to come included."""
        with self.origin.condition:
            self.released = True
            self.origin.condition.notify_all()

    def remove(self):
        self.origin.remove_rule(self)
        self.release()
