"""A learner's process that is none: the worker's own functions, called in the test's process.

What reads a file, takes cells from it, passes plain data and compares needs no process to be
tested; what keeps a submission shut off does, and is tested with one (test_hostile.py).
"""

from llmcourse_classroom.exercises import plain
from llmcourse_classroom.exercises.check import crash
from llmcourse_classroom.grader import worker
from llmcourse_classroom.grader.session import EndedError, Session


class Here(Session):
    """A session whose questions are answered at once; a cell `END` ends it."""

    def __init__(self, place, *, deadline, given="", given_names=()):
        self._given = dict.fromkeys(given_names, given)
        self.limits, self.ended, self._names = place.limits, "", {}

    def __enter__(self):
        return self

    def _ask(self, question, seconds):
        kind, *what = plain.loads(plain.dumps(question))
        answer = self._run(*what) if kind == "cell" else worker.call(self._names, *what)
        return plain.loads(worker.written(answer))

    def _run(self, source):
        if source == "END":
            self.ended = "it was ended"
            raise EndedError(self.ended)
        try:
            exec(compile(source, "<cell>", "exec"), self._names)
        except Exception as error:
            return "crash", crash(error)
        return "ok", None

    def printed(self):
        return ""

    def close(self):
        """Nothing is left behind."""
