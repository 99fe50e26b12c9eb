"""Every certificate is verified by tools/verify.py, which shares no line with the product."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

VERIFY = Path(__file__).parents[2] / "tools" / "verify.py"
_spec = importlib.util.spec_from_file_location("verify", VERIFY)
assert _spec is not None
assert _spec.loader is not None
verify = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(verify)


def objection(certificate: Any, claimed: float, X: Any = None, y: Any = None) -> str:
    """Return what verify.py objects to a certificate, or to its claim; "" for nothing or none."""
    if certificate is None:
        return ""
    gap, fine, words = verify.verify(certificate.arrays(), X, y)
    if not certificate.gap <= claimed:
        return f"the certificate claims {certificate.gap!r}, the result {claimed!r}"
    return "" if fine else f"{words} ({gap!r}, {claimed!r})"
