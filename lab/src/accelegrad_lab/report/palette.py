"""One colour per method, everywhere: on the page, in both themes, and in the still figures.

The fixed colours start from Okabe and Ito's palette and were moved by a search in OKLab: of the
twelve, any two differ by 0.08 at least for normal, deuteranope and protanope eyes, on either
background.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LIGHT_BACKGROUND = "#FFFFFF"
DARK_BACKGROUND = "#161B22"
LIGHT_INK, DARK_INK = "#000000", "#FFFFFF"


@dataclass(frozen=True)
class Colour:
    """A colour for the light page and its twin for the dark one, as #RRGGBB."""

    light: str
    dark: str

    def shaded(self, shade: float) -> Colour:
        """Return the colour blended towards its background; a shade of 1 still can be seen.

        A shade below zero is away from the background, towards the ink.
        """
        if shade < 0.0:
            return Colour(
                _blend(self.light, LIGHT_INK, -0.8 * shade),
                _blend(self.dark, DARK_INK, -0.7 * shade),
            )
        return Colour(
            _blend(self.light, LIGHT_BACKGROUND, 0.68 * shade),
            _blend(self.dark, DARK_BACKGROUND, 0.6 * shade),
        )


FAINTEST, STRONGEST = 0.9, -0.75  # the ends of a family's shades

METHODS: Mapping[str, Colour] = {
    "accelegrad": Colour("#DC6203", "#E8790F"),
    "adagrad": Colour("#2884DC", "#52A4FE"),
    "universalprimal": Colour("#3DA173", "#40F2AA"),
    "universaldual": Colour("#AB569B", "#C96EB6"),
    "universalfast": Colour("#DDA302", "#FBE03F"),
    "linearcoupling": Colour("#5AB1FF", "#80E0FE"),
    "subgradient": Colour("#A8ADB3", "#ABB4B9"),
    "unixgrad": Colour("#4027A1", "#8165F8"),
    "sgd": Colour("#78055A", "#D34E7B"),
    "saga": Colour("#404703", "#CEBC18"),
    "lbfgs": Colour("#1A1A1A", "#F2F2F2"),
    "liblinear": Colour("#8A5744", "#9A5B20"),
}

ALIASES: Mapping[str, str] = {
    "universal": "universalprimal",
    "universalgradient": "universalprimal",
    "universaldualgradient": "universaldual",
    "universalfastgradient": "universalfast",
    "lbfgsb": "lbfgs",
}

OTHERS = (
    Colour("#00756B", "#2CB5A5"),
    Colour("#5B7F00", "#9CC837"),
    Colour("#B5306B", "#F08CB4"),
    Colour("#4F5D95", "#98A8EA"),
    Colour("#B0413E", "#F2807C"),
    Colour("#6B7A86", "#8C9AA6"),
    Colour("#7A4FBF", "#C3A6F5"),
    Colour("#8A7A2E", "#E3D48B"),
)


def colours(methods: Iterable[str]) -> dict[str, Colour]:
    """Return the colour of every method; a name that is not known gets one by its letters.

    Two unknown names do not share a colour while there are colours left.
    """
    found: dict[str, Colour] = {}
    taken: set[int] = set()
    for method in sorted(set(methods)):
        key = "".join(filter(str.isalnum, method.lower()))
        key = ALIASES.get(key, key)
        if key in METHODS:
            found[method] = METHODS[key]
            continue
        place = zlib.crc32(key.encode()) % len(OTHERS)
        while place in taken and len(taken) < len(OTHERS):
            place = (place + 1) % len(OTHERS)
        taken.add(place)
        found[method] = OTHERS[place]
    return found


def tints(count: int) -> list[float]:
    """Return shades, the faintest first, that can be told apart in a family of so many curves."""
    if count == 1:
        return [0.0]
    return [FAINTEST + (STRONGEST - FAINTEST) * place / (count - 1) for place in range(count)]


def _blend(colour: str, towards: str, share: float) -> str:
    """Return the mixture of two colours of the form #RRGGBB."""
    mixed = (
        round((1 - share) * int(colour[i : i + 2], 16) + share * int(towards[i : i + 2], 16))
        for i in (1, 3, 5)
    )
    return "#" + "".join(f"{part:02X}" for part in mixed)
