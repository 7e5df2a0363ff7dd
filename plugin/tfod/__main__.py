"""The entry point of ``python -m tfod`` and of the single-file binary."""

import sys

from tfod.cli.main import main

if __name__ == "__main__":
    if hasattr(sys, "frozen"):
        from multiprocessing import freeze_support

        freeze_support()  # worker processes of `tfod check --jobs` run the binary again
    sys.exit(main())
