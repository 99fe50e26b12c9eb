"""Python processes of their own, for what happens once in each."""

import os
import subprocess
import sys


def run_python(code: str, *arguments: str, **variables: str) -> str:
    """Run code with environment variables and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
