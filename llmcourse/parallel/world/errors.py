"""What can go wrong between processes, by name."""


class MismatchError(RuntimeError):
    """Two ranks of one axis are about to call different collectives."""


class RankError(RuntimeError):
    """A rank failed, and with it the run.

    Args:
        rank: the rank that is at fault, as far as can be told.
        cause: what happened to it, in a line.
        details: its traceback, or where each rank was.
    """

    def __init__(self, rank: int, cause: str, details: str = "") -> None:
        super().__init__(rank, cause, details)
        self.rank, self.cause, self.details = rank, cause, details

    def __str__(self) -> str:
        """Return rank and cause, and below them the details."""
        return "\n\n".join(filter(None, [f"rank {self.rank}: {self.cause}", self.details.rstrip()]))


WAITING = ("timed out", "connection closed", "connection reset", "broken pipe", "by peer")
"""Marks, in lower case, of an error by which a rank notices that another one is gone or late."""


def is_consequence(text: str) -> bool:
    """Whether an error only says that another rank did not answer."""
    return any(mark in text.lower() for mark in WAITING)
