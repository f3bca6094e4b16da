"""Checks that every link on an installed page leads to something that is installed, and that the pages are otherwise
those of the sources.

    check_links.py <sources> <share/doc/Strait>
"""

import re
import sys
from pathlib import Path


def prose(text):
    """Returns the text without blocks of code."""
    text = re.sub(r"(?ms)^```.*?^```", "", text)
    return "\n".join(line for line in text.splitlines() if not line.startswith("    "))


def without_links(text):
    return re.sub(r"\[([^][]*)\]\([^)\s]+\)", r"\1", text)


def problems(page, source):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        path = link.partition("#")[0]
        if "://" not in link and path and not (page.parent / path).exists():
            yield f"links to {link}, which is not installed"
    if without_links(page.read_text()) != without_links(source.read_text()):
        yield "differs from the sources by more than links"


def main():
    sources, installed = Path(sys.argv[1]), Path(sys.argv[2])
    pages = sorted(installed.rglob("*.md"))
    if len(pages) < 20:
        sys.exit(f"only {len(pages)} pages are installed in {installed}")
    found = [f"{page}: {problem}" for page in pages
             for problem in problems(page, sources / page.relative_to(installed))]
    if found:
        sys.exit("\n".join(found))


main()
