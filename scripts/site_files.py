"""A hook of mkdocs: files of the repository that pages link to become part of the site, and the links follow them.

README.md is the first page. A link that holds in a clone of the repository holds in the site as well:
``docs/page.md`` is ``page.md`` there, and every other file lies below ``repository/``.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


def in_site(path: str) -> str:
    """Where a file of the repository lies in the site."""
    if path == "README.md":
        return "index.md"
    return path[len("docs/") :] if path.startswith("docs/") else f"repository/{path}"


def in_repository(uri: str) -> str:
    """Where a page of the site lies in the repository."""
    if uri == "index.md":
        return "README.md"
    return uri[len("repository/") :] if uri.startswith("repository/") else f"docs/{uri}"


def targets(path: str, text: str) -> list[str]:
    """The files of the repository that a Markdown file links to, as paths from the root."""
    links = (posixpath.normpath(posixpath.join(posixpath.dirname(path), m[2])) for m in LINK.finditer(text))
    return [t for t in links if (ROOT / t).is_file()]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Link every page to the repository that pyproject.toml names."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    config.repo_url = re.findall(r'^Repository = "([^"]+)"', project, re.M)[0]
    config.repo_name = config.repo_url.removeprefix("https://github.com/")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README.md, and what pages link to outside docs/, and what those link to."""
    waiting = ["README.md", *(in_repository(f.src_uri) for f in files.documentation_pages())]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        site = in_site(path)
        if files.get_file_from_path(site) is None:
            files.append(File.generated(config, site, content=(ROOT / path).read_bytes()))
        if path.endswith(".md"):
            found = set(targets(path, (ROOT / path).read_text(encoding="utf-8"))) - seen
            seen |= found
            waiting += sorted(found)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at the places where the files lie in the site."""
    path = in_repository(page.file.src_uri)
    folder = posixpath.dirname(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[2]))
        if not (ROOT / target).is_file():
            return link[0]
        return link[1] + posixpath.relpath(in_site(target), folder or ".") + link[3]

    return LINK.sub(moved, markdown)
