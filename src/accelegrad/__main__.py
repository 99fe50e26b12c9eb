"""`python -m accelegrad`."""

import sys

from accelegrad.cli import main

sys.exit(main())
