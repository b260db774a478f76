"""`tercel` whose conditions let go ten tasks at a time, one batch after the other, as Tapis does. No flag says so: see Settings."""

from functools import partial

from tercel.cli import main
from tercel.core.accounts import Settings
from tercel.manager import service

service.Settings = partial(Settings, fixed_wave=10)  # type: ignore[assignment,attr-defined]

if __name__ == "__main__":
    main()
