"""Fixtures for all tests."""

import signal

from browser import open_page

__all__ = ["open_page"]

# A shell starts background jobs with Ctrl-C ignored, and children inherit that: tests of an
# interruption would wait for it for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
