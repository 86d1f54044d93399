#!/usr/bin/env python3
"""A preprocessor of mdBook: links that lead out of the guide become the names of the files.

The pages link to other files of the repository, which a forge follows. In the book those files are not there.
"""

import json
import re
import sys

# A link whose target climbs out of the guide's folder: [text](../../../examples/need).
OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./){2,})([^)#]+)(?:#[^)]*)?\)")


def name(match: re.Match[str]) -> str:
    """Returns the text of a link, and the file's path in the repository where the text does not say it."""
    text, above, path = match.groups()
    if above == "../../":
        path = f"docs/{path}"
    return f"`{path}`" if text.rstrip("/") in path else f"{text} (`{path}` in the repository)"


def rewrite(items: list) -> None:
    """Rewrites the links of chapters and of those below them."""
    for item in items:
        if isinstance(item, dict) and (chapter := item.get("Chapter")):
            chapter["content"] = OUTSIDE.sub(name, chapter["content"])
            rewrite(chapter["sub_items"])


def main() -> None:
    """Answers mdBook's question which output is supported, or rewrites the book on standard input."""
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    rewrite(book.get("items") or book.get("sections") or [])
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
