"""What all connections of one sandbox may take together (`network.limits`), and the speed of each. Pure: clocks are
arguments."""

from __future__ import annotations

from remit.policy.decide import Decision
from remit.policy.model import NetworkLimits

UP, DOWN = "up", "down"
_LEAST_SHARE = 16 * 1024
_SHARES = 8
"""What is left is lent in parts: one connection must hold little of what another could use. So the last 16 KiB for each
connection that is open may not be had by the others."""


class Spent(OSError):
    """More was to be carried than the sandbox may. `decision` names the limit."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.reason)
        self.decision = decision


class Budget:
    """Bytes in all, each way. Every byte is taken before it is passed on, so no cap is ever passed."""

    def __init__(self, limits: NetworkLimits) -> None:
        self._left = {UP: limits.up, DOWN: limits.down}
        self._caps = {UP: limits.up, DOWN: limits.down}

    def take(self, way: str, amount: int) -> bool:
        """False: so much is not left, and nothing was taken."""
        left = self._left[way]
        if left is None:
            return True
        if amount > left:
            return False
        self._left[way] = left - amount
        return True

    def exhausted(self) -> Decision | None:
        """Why nothing more can begin."""
        return next((self.spent(way) for way in (UP, DOWN) if self._left[way] == 0), None)

    def bounded(self) -> bool:
        return any(cap is not None for cap in self._caps.values())

    def borrow(self, way: str) -> int | None:
        """A part of what is left, for one that counts by itself; 0 if nothing is. None: it need not count."""
        left = self._left[way]
        if left is None:
            return None
        share = min(left, max(_LEAST_SHARE, left // _SHARES))
        self._left[way] = left - share
        return share

    def give_back(self, way: str, amount: int) -> None:
        left = self._left[way]
        if left is not None:
            self._left[way] = left + amount

    def spent(self, way: str) -> Decision:
        what = "leave" if way == UP else "come in"
        return Decision("deny", f"network.limits.{way}", f"more than {self._caps[way]} bytes may not {what}")


class Pace:
    """A bucket of tokens: `rate` a second, and as many at once. None: no bound."""

    def __init__(self, rate: int | None, now: float) -> None:
        self._rate, self._at = rate, now
        self._tokens = float(rate or 0)

    def _fill(self, now: float) -> float:
        assert self._rate is not None  # noqa: S101
        self._tokens = min(float(self._rate), self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
        return self._tokens

    def admits(self, now: float) -> bool:
        """One more now?"""
        if self._rate is None:
            return True
        if self._fill(now) < 1:
            return False
        self._tokens -= 1
        return True

    def delay(self, amount: int, now: float) -> float:
        """Seconds until `amount`, which has come, may be passed on."""
        if self._rate is None:
            return 0.0
        self._tokens = self._fill(now) - amount
        return max(0.0, -self._tokens / self._rate)
