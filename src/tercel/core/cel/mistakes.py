"""What is wrong with an expression, shown at its place:

--where: unknown attribute worker.mem_fre; did you mean worker.mem_free?
  worker.mem_fre >= 8*GB && worker.os == "linux"
  ^^^^^^^^^^^^^^
"""

from tercel.core.errors import UsageError

SHOWN = 100
"""Characters of a long expression that are shown around the mistake."""


class ExpressionError(UsageError):
    """An expression that cannot be used: the message says why, and points at the place."""


class Mistake(Exception):
    """Inside this package: what is wrong, from `start` to `end` of the text, before it is known what the text is for."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = end


def expression_error(mistake: Mistake, text: str, field: str) -> ExpressionError:
    head = f"--{field}: {mistake.message}"
    if not text.strip():
        return ExpressionError(head, field)
    return ExpressionError(f"{head}\n{_pointed(text, mistake.start, mistake.end)}", field)


def _pointed(text: str, start: int, end: int) -> str:
    """The line of the text with the mistake, and carets below it."""
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    last = len(text) if last < 0 else last
    before = after = ""
    if last - first > SHOWN:
        left = max(first, min(start - SHOWN // 3, last - SHOWN))
        before, first = ("..." if left > first else ""), left
        after, last = ("..." if left + SHOWN < last else ""), min(last, left + SHOWN)
    line = before + "".join(letter if letter.isprintable() else "·" for letter in text[first:last]) + after
    carets = max(1, min(end, last) - start)
    return f"  {line}\n  {' ' * (len(before) + start - first)}{'^' * carets}"
