"""Scripts that travel with their job: what a worker runs, and how people call it.

A script's text is an argument of a line of shell, which writes it into the attempt's sandbox and becomes its interpreter.
People handed in `job.sh a.csv`, and are shown that.
"""

import shlex
from collections.abc import Sequence

SHELL = "/bin/sh"
_BEGINNING = "f=${TERCEL_SANDBOX:?}/.tercel; "
_REST = 'mkdir -p "$f" && f=$f/$0 && printf %s "$1" >"$f" && chmod u+x "$f" && shift && exec '
_WORDS = 5


def starting(name: str, text: str) -> list[str]:
    """What a worker runs; the script's arguments follow. No shell reads the text, and `$0` is the script's name.

    The interpreter is started by name rather than by the kernel, because a sandbox may lie where nothing may be executed.
    """
    interpreter = " ".join(shlex.quote(word) for word in _interpreter(text))
    return [SHELL, "-c", f'{_BEGINNING}{_REST}{interpreter} "$f" "$@"; exit 126', name, text]


def _interpreter(text: str) -> list[str]:
    """As the kernel reads #!: a path, and all that follows as one argument."""
    first = text.partition("\n")[0].strip()
    words = first[2:].strip().split(None, 1) if first.startswith("#!") else []
    return words or [SHELL]


def typed(argv: Sequence[str]) -> list[str]:
    """A command as people would type it: of a script its name and arguments. In a template, braces are doubled."""
    if len(argv) >= _WORDS and argv[2].startswith((_BEGINNING, in_template(_BEGINNING))):
        return [argv[3], *argv[_WORDS:]]
    return list(argv)


def in_template(text: str) -> str:
    """The text as it is, in a command with holes."""
    return text.replace("{", "{{").replace("}", "}}")
