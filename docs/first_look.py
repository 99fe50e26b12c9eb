"""Draw the README's picture, that of examples/gallery/plot_first_look.py.

python docs/first_look.py
"""

import runpy
from pathlib import Path

import matplotlib as mpl

HERE = Path(__file__).parent


def main() -> None:
    """Write docs/first_look.svg; the same picture, byte for byte, while the example is the same."""
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "accelegrad", "svg.fonttype": "path"})
    drawn = runpy.run_path(str(HERE.parent / "examples" / "gallery" / "plot_first_look.py"))
    drawn["figure"].savefig(HERE / "first_look.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
