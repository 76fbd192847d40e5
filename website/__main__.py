"""`make site`: the course as static pages in site/, for every language that notebooks/ has a folder of."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tomllib
from pathlib import Path

import nbformat
from nbformat import NotebookNode

try:
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError
    from sphinx.util.docutils import docutils_namespace, patch_docutils
except ModuleNotFoundError:
    sys.exit("the site is built by Sphinx, which is not here: .venv/bin/pip install -c constraints.txt -e '.[site]', or 'make extras'")

from grader.course.source import ROOT
from website.outputs import Unrunnable, outputs, solved
from website.pages import entry, page

HERE = Path(__file__).parent


def editions(notebooks: Path) -> dict[str, dict[str, NotebookNode]]:
    """Language -> name -> the learner's notebook: "en" is the folder itself, each folder in it another language."""
    folders = {"en": notebooks} | {folder.name: folder for folder in sorted(notebooks.iterdir()) if folder.is_dir()}
    found = {name: sorted(folder.glob("[0-9][0-9]_*.ipynb")) for name, folder in folders.items()}
    return {name: {path.stem: nbformat.read(path, 4) for path in paths} for name, paths in found.items() if paths}


def build(notebooks: Path, site: Path, work: Path, say=print) -> None:
    """Builds the site of a folder of notebooks. work: where what takes long is kept. Raises SystemExit with a sentence."""
    words = tomllib.loads((HERE / "words.toml").read_text(encoding="utf-8"))
    found = editions(notebooks)
    if unknown := found.keys() - words.keys():
        sys.exit(f"website/words.toml has no table [{min(unknown)}], the language of notebooks/{min(unknown)}: write one, as [en] is")
    new, html = work / "new", work / "html"
    for old in (new, html):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(HERE / "locale", work / "locale", dirs_exist_ok=True)  # Sphinx compiles it where it lies
    for language, edition in found.items():
        folder = "" if language == "en" else language + "/"
        source = work / "source" / language
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        for name, learner in edition.items():
            shown = page(name, learner, shows(name, learner, work / "outputs", say), words[language])
            nbformat.write(shown, source / f"{name}.ipynb")
        to_root = "../" if folder else ""
        (source / "index.md").write_text(first_page(edition, words[language], language, to_root), encoding="utf-8")
        own = ROOT / "docs" / f"run.{language}.png"  # with its titles in the language
        shutil.copy(own if own.exists() else ROOT / "docs" / "run.png", source / "run.png")
        others = [words[each] | {"folder": "" if each == "en" else each + "/", "pages": [*found[each], "search"]} for each in found]
        context = {"to_root": to_root, "languages": others}
        settings = {"html_context": context, "locale_dirs": [str(work / "locale")]}
        render(source, html / language, work / "doctrees" / language, words[language], settings)
        shutil.move(html / language, new / folder)
        (new / folder / "notebooks").mkdir()
        for name in edition:
            shutil.copy(notebooks / folder / f"{name}.ipynb", new / folder / "notebooks")
    shutil.copytree(ROOT / "docs" / "replay", new / "replay")
    replay = new / "replay" / "index.html"
    replay.write_text(
        replay.read_text(encoding="utf-8").replace('data-editions=""', f'data-editions="{" ".join(found)}"'), encoding="utf-8"
    )
    shutil.rmtree(site, ignore_errors=True)
    shutil.move(new, site)


def shows(name: str, learner: NotebookNode, kept: Path, say) -> dict[str, list[NotebookNode]]:
    """What the notebook's cells show; nothing for one that is not graded and cannot run here (a model of the network's)."""

    def progress(done: int, count: int) -> None:
        say(f"\r{name}: {done} of {count} cells have run", end="\n" if done == count else "", flush=True)

    try:
        return outputs(solved(learner, nbformat.read(ROOT / "solutions" / f"{name}.ipynb", 4)), kept, progress)
    except Unrunnable as e:
        if any("nbgrader" in cell.metadata and cell.metadata.nbgrader.grade for cell in learner.cells):
            sys.exit(f"\n{name}: {e}; mend solutions/{name}.py, then run 'make site' again")
        say(f"\n{name}: without what its cells show; {e}")
        return {}


def first_page(edition: dict[str, NotebookNode], words: dict[str, str], language: str, to_root: str) -> str:
    replay = f"{to_root}replay/index.html?lang={language}"
    return "\n\n".join(
        [
            f"# {words['title']}",
            words["lead"],
            f'<a class="replay" href="{replay}">{words["replay"]}</a>',
            f"````{{container}} plot\n```{{image}} run.png\n:alt: {words['picture']}\n:class: wide\n```\n````",  # wide as a plot
            *(entry(name, learner) for name, learner in edition.items()),
            "```{toctree}\n:hidden:\n\n" + "\n".join(edition) + "\n```\n",
        ]
    )


def render(source: Path, target: Path, doctrees: Path, words: dict[str, str], settings: dict) -> None:
    """Runs Sphinx; what it warns of is an error."""
    settings = settings | {"language": words["language"], "html_title": words["title"]}
    try:
        with patch_docutils(), docutils_namespace():  # of its own for each language
            app = Sphinx(source, HERE, target, doctrees, "html", confoverrides=settings, status=None, warningiserror=True)
            app.build()
    except SphinxError as e:
        sys.exit(f"{source}: {e}")
    if app.statuscode:
        sys.exit(f"{source}: Sphinx warned, see above; the site is as it was")


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        try:
            build(ROOT / "notebooks", ROOT / "site", ROOT / "build" / "website")
            print(f"open {ROOT / 'site' / 'index.html'}")
        except KeyboardInterrupt:
            sys.exit("\nstopped; what has run is kept for the next 'make site'")
