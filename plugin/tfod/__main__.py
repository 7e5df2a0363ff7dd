"""``python -m tfod``, and where the single-file binary starts."""

import sys
from multiprocessing import freeze_support

from tfod.cli.main import main

if __name__ == "__main__":
    freeze_support()  # the binary starts itself for `tfod check --jobs`
    sys.exit(main())
