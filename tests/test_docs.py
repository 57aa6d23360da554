"""What the pages link to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]


def anchors(page: Path) -> set[str]:
    """The addresses of a page's headings, as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Files and headings of this project; addresses outside are not asked."""
    broken = []
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        name, _, heading = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (heading and heading not in anchors(path)):
            broken.append(target)
    assert broken == []


def test_pictures_are_small_and_readable_in_light_and_dark() -> None:
    assert (ROOT / "docs" / "view.png").stat().st_size < 200_000
    assert "prefers-color-scheme: dark" in (ROOT / "docs" / "how-it-works.svg").read_text()
