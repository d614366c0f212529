"""How figures look, and matplotlib figures as SVG text that any page can hold: no fixed ink, no id twice, no date.

Text, axes and grid are drawn in a colour that stands for the page's own and is replaced by ``currentColor``, so they
are dark on white and light on dark ground. Series have fixed colours of at least 3:1 against both, after the palette
of Okabe and Ito (https://jfly.uni-koeln.de/color/), which people with a colour vision deficiency can tell apart;
markers and dashes differ as well.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from foretell.errors import ForetellError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

INK = "#010203"
"""Stands for the page's colour of text."""
COLOURS = ("#2a7fc0", "#d55e00", "#009e73", "#7a6fd0", "#cc79a7", "#b07d00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":")
WIDTH = 7.6
"""Inches of a figure that fills the page."""
HALF = 5.0
"""Inches of one that has half of it."""
_TAG = re.compile(r"<[^>]*>")
"""Names that come from files stand between tags, where ``<`` and ``>`` are escaped."""
_FONTS = "system-ui, 'DejaVu Sans', sans-serif"
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it is found, read aloud and printed sharp
    "svg.hashsalt": "foretell report",  # equal figures get equal ids
    "text.parse_math": False,  # a dollar sign in a file name is no formula
    "font.family": "DejaVu Sans",  # what matplotlib brings along: wide, so others fit where it fits
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "errorbar.capsize": 2.5,
} | {
    name: INK
    for name in ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
}


def draw(width: float, height: float, paint: Callable[[Canvas], None]) -> str:
    """One ``<svg>`` element of so many inches without declaration, style sheet, ground or fixed ink.

    ``paint`` fills the empty figure; equal strokes give equal text. Raises ForetellError where matplotlib is missing.
    """
    text = _save(paint, width, height)
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(
        r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL
    )  # it would style the whole page
    text = _TAG.sub(lambda tag: tag[0].replace(INK, "currentColor").replace("'DejaVu Sans'", _FONTS), text)
    return text.rstrip().replace("<svg ", '<svg stroke-linejoin="round" stroke-linecap="butt" ', 1)


def with_ids(svg: str, slug: str) -> str:
    """The element with ``slug`` in front of every id, so that several can stand on one page."""

    def own(tag: re.Match[str]) -> str:
        found = re.sub(r'(?<= )id="', f'id="{slug}-', tag[0])
        return re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{slug}-", found)

    return _TAG.sub(own, svg)


def _save(paint: Callable[[Canvas], None], width: float, height: float) -> str:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise ForetellError(
            "figures need matplotlib, which is not installed; install it with pip install 'foretell[plot]'"
        ) from error
    sink = io.StringIO()
    with rc_context(_SETTINGS), warnings.catch_warnings():
        # A name in a script that the font lacks: its width is guessed, the reader's browser has the glyphs.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        canvas = Canvas(figsize=(width, height), layout="constrained")
        paint(canvas)
        canvas.savefig(
            sink, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    return sink.getvalue()
