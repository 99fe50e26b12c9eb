"""Ctrl-C in the middle of a run, at a time that depends on the run and not on the clock."""

import os
import signal
import threading
import time


class CtrlC:
    """A callback: once it is called, another thread presses Ctrl-C while the run goes on."""

    def __init__(self):
        self._called = threading.Event()
        self._thread = threading.Thread(target=self._press, daemon=True)
        self._thread.start()

    def __call__(self, _):
        self._called.set()

    def _press(self):
        self._called.wait()
        time.sleep(0.05)  # so that it mostly comes while compiled code runs; any time is right
        os.kill(os.getpid(), signal.SIGINT)
