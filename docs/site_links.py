"""mkdocs hook: links from a page to files outside docs/ lead to the repository.

Pages link to ../captioner/... and ../weights/..., which works on GitHub and in an editor. The site has only docs/.
"""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(r"\]\(\.\./(?!\.\./)")


def on_page_markdown(markdown: str, *, config: Any, **_: Any) -> str:
    return OUTSIDE.sub(f"]({config['repo_url']}/blob/main/", markdown)
