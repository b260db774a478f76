"""What the author of a tester checks it with: on the command line, or in a test suite of theirs.

    python -m tercel.testers.conformance licence 'flexlm@up.lab' 'flexlm@down.lab'

    from tercel.testers.conformance import check
    def test_my_tester_is_one() -> None:
        assert check(LicenceTester(), cleared="flexlm@localhost", not_cleared="flexlm@nowhere.invalid") == []

It needs no test framework, and a process in which no event loop runs. Testers that are built in pass it too.
"""

import asyncio
import inspect
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import entry_points

from tercel.core.conditions import Place, Verdict
from tercel.core.errors import UsageError
from tercel.testers.contract import Surroundings, Tester
from tercel.testers.entry_points import GROUP, KIND
from tercel.testers.host import load
from tercel.testers.verdicts import NOTE_MOST, printable, sound, why

LIMIT_S = 10.0
STEP_MOST_S = 0.5
"""So long a test may keep its event loop from others at a time."""
CANCEL_MOST_S = 2.0
NONSENSE = ("", " ", "\0", "\n\n", "💥" * 5000, "a" * 100_000)
"""Some of it may mean something to some tester. It must be judged all the same: a text, or UsageError."""

Problems = list[str]


def check(tester: Tester, cleared: str = "", not_cleared: str = "", limit_s: float = LIMIT_S) -> Problems:
    """What is wrong with it; empty: nothing. The texts are such that one is cleared now, and one is not; empty: no such text."""
    problems = _check_words(tester)
    if problems:
        return problems  # nothing else can be asked
    for text in filter(None, (cleared, not_cleared)):
        problems += _check_text(tester, text)
    problems += _check_nonsense(tester)
    for text, wanted in ((cleared, True), (not_cleared, False)):
        if text and not problems:
            with _stdout_kept() as said:
                problems += asyncio.run(_check_answer(tester, text, wanted, limit_s))
            problems += [f"{text!r}: test() wrote to stdout: {words!r}" for words in said]
    return problems


def _check_words(tester: Tester) -> Problems:
    problems = []
    if not isinstance(getattr(tester, "kind", None), str) or not KIND.fullmatch(tester.kind):
        problems.append("kind: lower-case letters, digits and '-', beginning with a letter")
    if getattr(tester, "place", None) not in (Place.MANAGER, Place.SITE, Place.WORKER):
        problems.append("place: Place.MANAGER, Place.SITE or Place.WORKER")
    summary = getattr(tester, "summary", None)
    if not isinstance(summary, str) or not summary or printable(summary) != summary:
        problems.append(f"summary: one line of at most {NOTE_MOST} printable characters")
    if not callable(getattr(tester, "normalise", None)):
        problems.append("normalise: def normalise(self, text: str) -> str")
    if not inspect.iscoroutinefunction(getattr(tester, "test", None)):
        problems.append("test: async def test(self, text: str, surroundings: Surroundings) -> Verdict")
    return problems


def _check_text(tester: Tester, text: str) -> Problems:
    try:
        once = tester.normalise(text)
        twice = tester.normalise(once)
        padded = tester.normalise(f" {text} ")
    except Exception as error:
        return [f"{text!r}: normalise() raised {type(error).__name__}: {why(error)}"]
    if type(once) is not str or not once:
        return [f"{text!r}: normalise() made {once!r} of it, which is no text"]
    if twice != once:
        return [
            f"{text!r}: normalise() makes {once!r} of it, and {twice!r} of that: who means the same must share a condition"
        ]
    if padded != once:
        return [f"{text!r}: blanks around it make another condition of it: {padded!r}"]
    return []


def _check_nonsense(tester: Tester) -> Problems:
    problems = []
    refused = 0
    for text in NONSENSE:
        try:
            made = tester.normalise(text)
        except UsageError as error:
            refused += 1
            if not str(error):
                problems.append(f"normalise({text[:10]!r}): its UsageError says nothing")
        except Exception as error:
            problems.append(f"normalise({text[:10]!r}) raised {type(error).__name__}; it must be UsageError")
        else:
            if type(made) is not str:
                problems.append(f"normalise({text[:10]!r}) is {made!r}, which is no text")
    if not refused:
        problems.append(
            "normalise() refuses nothing, not even an empty text: raise UsageError for what means nothing"
        )
    return problems


async def _check_answer(tester: Tester, text: str, wanted: bool, limit_s: float) -> Problems:
    normal = tester.normalise(text)
    surroundings = Surroundings(limit_s=limit_s)
    problems = []
    answers = []
    async with _StepsWatched() as longest_s:
        for _ in range(2):  # also the second time: it is asked again and again
            try:
                async with asyncio.timeout(limit_s):
                    answers.append(await tester.test(normal, surroundings))
            except TimeoutError:
                return [f"{text!r}: test() gave no answer within {limit_s:g} s"]
            except Exception as error:
                return [
                    f"{text!r}: test() raised {type(error).__name__}: {why(error)}; answer Verdict(False, note=…)"
                ]
    if longest_s() > STEP_MOST_S:
        problems.append(
            f"{text!r}: test() kept others waiting for {longest_s():.1f} s; await, or use asyncio.to_thread"
        )
    for answer in answers:
        problems += _check_verdict(text, answer, wanted)
    return problems + await _check_cancelling(tester, text, normal, surroundings)


def _check_verdict(text: str, answer: object, wanted: bool) -> Problems:
    made = sound(answer)
    if not isinstance(answer, Verdict) or made != answer:
        return [
            f"{text!r}: {printable(repr(answer))} is not an answer as it should be: {printable(repr(made))}"
        ]
    if answer.cleared is not wanted:
        return [f"{text!r}: cleared is {answer.cleared}, and should be {wanted}: {answer.note}"]
    if not answer.cleared and not answer.note:
        return [f"{text!r}: not cleared, and its note does not say why"]
    return []


async def _check_cancelling(tester: Tester, text: str, normal: str, surroundings: Surroundings) -> Problems:
    task = asyncio.ensure_future(tester.test(normal, surroundings))
    await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=CANCEL_MOST_S)
    if not done:
        return [f"{text!r}: test() does not end when it is cancelled"]
    if not task.cancelled():
        task.exception()  # it was done before it could be cancelled
    return []


class _StepsWatched:
    """Says how long the event loop stood still at most."""

    def __init__(self) -> None:
        self._longest_s = 0.0

    async def __aenter__(self) -> Callable[[], float]:
        self._watching = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        return lambda: self._longest_s

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0.02)
        self._watching.cancel()

    async def _watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            self._longest_s = max(self._longest_s, time.monotonic() - before - 0.01)


@contextmanager
def _stdout_kept() -> Iterator[list[bytes]]:
    """What is written to it meanwhile, by whatever means, is collected instead."""
    said: list[bytes] = []
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            with open(1, "w", closefd=False) as stdout, redirect_stdout(stdout):  # not a path
                yield said
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            if written := file.read(100):
                said.append(written)


def main(words: list[str]) -> int:
    if not 2 <= len(words) <= 3:
        sys.stderr.write(
            f"usage: python -m {__spec__.name} KIND 'text that is cleared' ['text that is not']\n"
        )
        return 2
    kind, cleared, refused = (*words, "")[:3]
    targets = {point.value for point in entry_points(group=GROUP, name=kind)}
    if len(targets) != 1:
        sys.stderr.write(
            f"{kind}: {len(targets)} entry points of the group {GROUP} have this name; there must be one\n"
        )
        return 2
    try:
        tester = load(kind, targets.pop())[0]
    except Exception as error:
        sys.stderr.write(f"{kind}: cannot be imported: {type(error).__name__}: {why(error)}\n")
        return 1
    problems = check(tester, cleared, refused)
    sys.stderr.writelines(f"{kind}: {problem}\n" for problem in problems)
    if not problems:
        sys.stderr.write(f"{kind}: is as a tester should be\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
