"""Letters of a language in pictures, as it is embedded in a translated notebook: a font that has them, else English labels.

Only the standard library and matplotlib are used.
"""

import re

import matplotlib
from matplotlib import font_manager, ft2font
from matplotlib.text import Text


def font_with(letters):
    """The name of a font of this machine that has all these letters ("" if matplotlib's own has them, None if none has)."""
    needed = {ord(letter) for letter in letters} - characters(font_manager.findfont("DejaVu Sans"))
    return (known_font(needed) or installed_since(needed)) if needed else ""


def known_font(needed):
    """The name of a font that matplotlib knows and that has these characters, a plain one if there is one; None if none has."""
    fonts = [font for font in font_manager.fontManager.ttflist if not font.name.startswith("Last Resort")]  # a box for every letter
    fonts.sort(key=lambda f: (f.style != "normal", f.weight != 400, "Sans" not in f.name, f.name))
    return next((font.name for font in fonts if needed <= characters(font.fname)), None)


def installed_since(needed):
    """The same among fonts that are new: matplotlib remembers those of its first start on a machine."""
    for file in {*font_manager.findSystemFonts()} - {font.fname for font in font_manager.fontManager.ttflist}:
        if needed <= characters(file):
            font_manager.fontManager.addfont(file)
    return known_font(needed)


def characters(file):
    """The numbers of the characters that a font's file has; none where it cannot be read."""
    try:
        return set(ft2font.FT2Font(file).get_charmap())
    except (OSError, RuntimeError):
        return set()


def draw(letters, english):
    """From now on pictures show these letters, or, where no font has them, English. english: [pattern of a label, its English], …"""
    patterns = [(re.compile(pattern, re.DOTALL), words) for pattern, words in english]
    font, plain = font_with(letters), getattr(Text, "set_text_plainly", Text.set_text)  # the second: this cell was run before

    def set_text(self, s):
        for pattern, words in patterns if isinstance(s, str) else ():
            s = pattern.sub(words, s)
        plain(self, s)

    setattr(Text, "set_text_plainly", plain)  # noqa: B010
    setattr(Text, "set_text", plain if font is not None else set_text)  # noqa: B010
    if font:
        matplotlib.rcParams["font.family"] = ["DejaVu Sans", font]  # what the first has not comes from the second
