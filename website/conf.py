"""Sphinx's settings for every language of the site; `python -m website` adds those that differ."""

import importlib
import re
from itertools import pairwise
from pathlib import Path

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.search import SearchLanguage

MATHJAX = Path(importlib.import_module("sphinx-mathjax-offline").__file__).parent / "static" / "mathjax"

project = "GRPO from scratch"
extensions = ["myst_nb"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # what the cells show is in the pages already
nb_merge_streams = True
html_theme = "furo"
html_static_path = ["static", str(MATHJAX / "tex-chtml.js"), str(MATHJAX / "output" / "chtml" / "fonts" / "woff-v2")]
html_css_files = ["site.css"]
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/languages.html",
        "sidebar/scroll-end.html",
    ]
}
html_copy_source = html_show_sourcelink = html_use_index = html_show_copyright = False
mathjax_path = "tex-chtml.js"
mathjax4_config = {"chtml": {"fontURL": "_static"}, "options": {"enableMenu": False}}


class Chinese(SearchLanguage):
    """Chinese words have no spaces between them: the index and the query hold pairs of neighbouring characters."""

    lang, language_name = "zh", "Chinese"
    js_splitter_code = r"""
function splitQuery(query) {
  return query.split(/([\u4e00-\u9fff]+)|[^\p{Letter}\p{Number}_]+/gu).filter(Boolean).flatMap((term) =>
    /[\u4e00-\u9fff]/.test(term) && term.length > 2 ? [...term].slice(1).map((last, i) => term[i] + last) : [term]);
}
"""

    def split(self, input: str) -> list[str]:
        runs = re.findall(r"[\u4e00-\u9fff]+|[^\W\u4e00-\u9fff]+", input)
        return [part for run in runs for part in (map("".join, pairwise(run)) if "\u4e00" <= run[0] <= "\u9fff" else [run])]

    def word_filter(self, word: str) -> bool:
        return len(word) > 1


WIDE = 800  # px: a plot from here on has several panels, too small to read where it is shrunk to a phone


def described(app, doctree):
    """Gives each plot the words that stand beside it in its output as its alternative text, and marks the wide ones."""
    for bundle in doctree.findall(lambda node: isinstance(node, nodes.container) and node.get("nb_element") == "mime_bundle"):
        words = " ".join(part.astext() for part in bundle.children if part.get("mime_type") == "text/plain")
        for image in bundle.findall(nodes.image):
            image["alt"] = words
            image["classes"] += ["wide"] * (int(image.get("width", 0)) > WIDE)


def fold(self, node):
    self.body.append(f'<details class="code"><summary>{self.encode(node["prompt_show"])}</summary>\n')


def unfold(self, node):
    self.body.append("</details>\n")


def setup(app):
    app.add_search_language(Chinese)
    app.connect("doctree-read", described)
    # instead of MyST-NB's own, which has one name for all cells and says it in English
    app.connect("builder-inited", lambda app: app.add_node(HideCodeCellNode, override=True, html=(fold, unfold)))
