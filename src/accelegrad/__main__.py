"""`python -m accelegrad`."""

import sys

from accelegrad.cli.main import main

sys.exit(main())
