"""`python -m tercel` is `tercel`."""

import sys

from tercel.cli import main

if __name__ == "__main__":
    sys.exit(main())
