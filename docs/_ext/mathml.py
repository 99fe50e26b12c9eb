"""Formulas as MathML, which browsers draw by themselves: nothing is loaded when a page is read."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging
from sphinx.util.math import wrap_displaymath

LOG = logging.getLogger(__name__)
#: What the converter does not know, and what says the same: a large bar, "arg", a line's end
REPLACED = {
    r"(\\[bB]igg?[lr]?)\s*\\(?:\||[lr]?Vert\b)": "\\1\N{DOUBLE VERTICAL LINE}",
    r"\\arg\b": r"\\operatorname{arg}",
    r"\\\n": r"\\ ",
}


def converted(latex: str, display: str, node: nodes.Node) -> str:
    """Return MathML; warn of commands that are not understood."""
    for unknown, known in REPLACED.items():
        latex = re.sub(unknown, known, latex)
    mathml = str(convert(latex.strip(), display=display))
    if "\\" in mathml or "<mi>&</mi>" in mathml:
        LOG.warning("a formula has a command without MathML: %s", latex, location=node)
    return mathml


def visit_inline(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(converted(node.astext(), "inline", node))
    raise nodes.SkipNode


def visit_block(writer: Any, node: nodes.math_block) -> None:
    """Write a formula that stands by itself, lined up where it has marks for that."""
    latex = node.astext()
    if "&" in latex or r"\\" in latex:
        latex = wrap_displaymath(latex, None, numbering=False)
        for split in ("equation*", "split", "align*", "gather"):
            latex = latex.replace(rf"\begin{{{split}}}", "").replace(rf"\end{{{split}}}", "")
        latex = rf"\begin{{split}}{latex}\end{{split}}"
    writer.body.append(f'<div class="math">{converted(latex, "block", node)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
