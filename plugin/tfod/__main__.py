"""``python -m tfod``, and where the single-file binary starts."""

import sys

from tfod.cli.main import main

if __name__ == "__main__":
    if hasattr(sys, "frozen"):
        from multiprocessing import freeze_support

        freeze_support()  # the binary starts itself for `tfod check --jobs`
    sys.exit(main())
