"""Markdown with mathematics -> HTML that may stand on anybody's page: it runs nothing, and fetches nothing.

Learners and instructors write it and the other reads it. Each step takes time in proportion to the length of the text.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING
from xml.etree.ElementTree import tostring

import mistune
import nh3
from latex2mathml.converter import convert_to_element
from markupsafe import Markup

if TYPE_CHECKING:
    from mistune import InlineParser, InlineState

MATHML = {
    *("math", "mrow", "mi", "mo", "mn", "mtext", "mspace", "ms", "mfrac", "msqrt", "mroot", "mstyle", "mpadded", "mphantom", "menclose"),
    *("msub", "msup", "msubsup", "munder", "mover", "munderover", "mmultiscripts", "mtable", "mtr", "mtd"),
}
OF_MATHML = {"display", "displaystyle", "stretchy", "fence", "accent", "accentunder", "mathvariant", "width", "linethickness"}
TAGS = (nh3.ALLOWED_TAGS | MATHML) - {"img"}  # which would fetch what a learner names with the reader's cookies: /logout, say
ATTRIBUTES = nh3.ALLOWED_ATTRIBUTES | dict.fromkeys(MATHML, OF_MATHML) | {"details": {"open"}}
ALIGNED = re.compile(r"\{(?:aligned|align|equation|gathered|gather|split)\*?\}")  # the converter knows one of them, without numbers
ENVIRONMENT = r"\\begin\{(?P<environment>[a-z]+\*?)\}(?:[^\\]|\\(?!begin\{|end\{))*\\end\{(?P=environment)\}"


def rendered(text: str) -> Markup:
    """The HTML of a text; formulas stand in $…$, $$…$$ or \\begin{…}…\\end{…}. What would run, or style the page, is left out."""
    return Markup(nh3.clean(str(_MARKDOWN(text)), tags=TAGS, attributes=ATTRIBUTES))


class _Renderer(mistune.HTMLRenderer):
    """Shows a link in the place of a picture."""

    def image(self, text: str, url: str, title: str | None = None) -> str:
        return self.link(text or url, url, title)


def _markdown() -> mistune.Markdown:
    renderer = _Renderer(escape=False)  # nh3 comes after it
    markdown = mistune.Markdown(renderer, plugins=[mistune.plugins.import_plugin(name) for name in ("math", "table", "strikethrough")])
    markdown.inline.register("tex_environment", ENVIRONMENT, _parse_environment, before="link")
    renderer.register("inline_math", lambda _, tex: _formula(tex, "inline"))
    renderer.register("block_math", lambda _, tex: _formula(tex, "block"))
    return markdown


def _parse_environment(_: InlineParser, found: re.Match[str], state: InlineState) -> int:
    state.append_token({"type": "block_math", "raw": found[0]})
    return found.end()


def _formula(tex: str, display: str) -> str:
    try:
        tree = convert_to_element(ALIGNED.sub("{align*}", tex), display=display)
        for node in tree.iter():
            node.text = html.unescape(node.text or "")
        return tostring(tree, encoding="unicode")
    except Exception:  # whatever the parser says of a text that is no formula: it is shown as it was written
        return f"<code>{html.escape(tex)}</code>"


_MARKDOWN = _markdown()
