"""Count phrases that read like a translation: `python tests/plain_english.py --limit 2 FOLDER…`.

Reads docstrings, comments and messages of Python files, Markdown pages and HTML templates, without
code blocks and ``literals``. Prints ``file:line: [pattern] words`` for each hit. The exit status is
1 if a folder has more hits per 1,000 words than the limit.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

START = r"(?:^|(?<=[.;:!?] )|(?<=[.;:!?]\n))"
"""The start of a text, or of a sentence in it."""
PATTERNS = {
    "of-first": START + r"Of (?!course\b)\w+",
    "what-noun": START
    + r"What (?!to\b)\w+(?![^.?]*\?)|\b(?:of|in|with|from|by|than|but|on|at|about|behind|into|for|to|as) what (?!to\b)\w+",
    "who-noun": START
    + r"[Ww]ho(?:m|ever)? \w+(?![^.?]*\?)|(?:\b(?:for|by|of|than|and|to|only|from|but|on) |[,(] )who(?:m|ever)? \w+",
    "of-noun": r"\b(?:[Tt]hose|[Tt]hat) of\b|\b(?:is|are|was|were|be|it) of (?:an?|the|no|its|their|another|this|that|one|some|two|other|such)\b",
    "so-many": r"\b[Ss]o many\b|\b[Aa]s many\b(?! \w* ?as\b)|\bso (?:much|long)\b(?! as)|\b(?:is|are|has|have|writes?|named|all) so(?=[.,;:])",
    "is-no": r"(?<!here )\b(?:is|are|was|be) no (?!longer|more|such|less)\w+|\b(?:is|are) none\b(?! of)",
    "is-there": r"\b(?:is|are|was|were|been|be|not|lies?) there\b(?! (?:is|are|a|an|any|no|was|were|could)\b)(?! \w+\?)"
    r"|\b(?:lies?|lay) (?:open|as|so|together|aside|anywhere|in (?:a|the|its|one|their) (?:folder|file|zip|shard|archive))\b",
    "of-its-own": r"\bof (?:its|their|our|your|somebody's|one's|theirs|ours) own\b",
    "as-x-has-it": r"\bas [\w.`~:'-]+(?: [\w.`'-]+){0,2} (?:has|have|had|wants|takes|does) (?:it|them)\b"
    r"|\bas (?:it|they) (?:is|are|was|were|has|have|comes?|goes|lies?|stands?)\b(?! now)",
    "archaic": r"\bfor (?:want of|ever)\b|\bbut for\b|\b[Ii]n (?:the |its |their |whose )?place(?: of)?\b|\bsees? to it\b|\b[Ss]ee that (?!\w+ is\?)"
    r"|\banew\b|\bmeanwhile\b|\bshall\b|\ball the same\b|\bunasked\b|\bbesides?\b(?! (?:the|that|this),)|\bas far as\b",
    "asked-given": r"\basked for\b|\basks? for (?:them|it)\b|\bwas asked\b|\b(?:[Ii]s|are|was) given (?:the|all|what|to)\b|; gives\b|^Gives\b",
    "somebody": r"\b(?:[Ss]ome|[Nn]o|[Ee]very|[Aa]ny)body\b",
    "says-it": r"\b(?:says?|said|tells?) (?:it|so|nothing|of)\b|\bspeaks? of\b|\b[Ii]s said\b|\bnothing says\b|\bare told\b",
    "come-go": r"\b(?:come|came|comes) (?:to\b(?! (?:the|a|an)\b)|of\b|along\b|from\b(?=[.,;:)]))|\bbecomes? of\b|\bcame out\b"
    r"|\bgoes\b(?! (?:wrong|up|down|through))|\bgo (?:with|by|together|too|in the end)\b|\b(?:that|which|and) go(?=[.,;:])|\bmay go\b",
    "meant-made": r"\b(?:is|are|was|were) meant\b(?! (?:to|for)\b)|\bheld against\b|\b(?:makes?|made) (?:no )?sense\b|\bmakes? of\b|\bmade of\b",
    "behind": r"(?<!left )\bbehind\b|\bin front(?: of)?\b",
    "one-alone": r"(?<!this )(?<!that )(?<!first )(?<!last )(?<!next )(?<!same )(?<!only )(?<!other )(?<!smallest )\b(?:where|of|is|as|for"
    r"|to|such|from|has|than|with|each|unless) one(?=[.,;:]| (?:that|is|has|which)\b| of its\b)|\b(?:\w+s|them|it|text|one) alone\b",
    "per-unit": r"\b(?:bytes|bits|values?|numbers?|records?|lines?|labels?|images|[µm]?s|one) an? (?:object|record|line|channel|annotation|class|image|frame|pixel|second)\b",
    "where-if": r"(?:\b(?:None|empty|\d|error|only|fewer|nothing|none|one|false|but|Raises? \w+Error)|''|\"\") where\b"
    r"|\bwhere (?:no|none|nothing|one|some|(?:it|there|that|they|this) (?:is|are|has|have) (?:none|not?|one|any|so|known|missing))\b",
    "odd-start": r"^(?:Let|Have|Be|See|Say|Tell|Get behind|Lead|How|Where|Which|Why|As|By|From|So|Those|Others|Up to) \w+(?![^.]*\?)"
    r"|(?:"
    + START
    + r"Also|, also) (?:those|that|of|where|when|in|by|what|if|from|with|an?|the|on|for|after)\b",
    "other-than": r"(?<!each )\b(?:other|another|otherwise|others)(?: \w+){0,3} than\b(?<!other than)",
    "vocabulary": r"\b(?:[Uu]nsound|[Ss]ound(?!s)|libert(?:y|ies)|amiss|gravest|mend(?:s|ed)?|oddit(?:y|ies)|misspelt|learnt)\b",
}
ALLOWED = re.compile(r"\bas asked\b")
"""Idioms that a pattern matches, although they are plain English."""
MARKUP = re.compile(r"``.*?``|`[^`]*`|:\w+:`[^`]*`|\{[^{}]*\}|https?://\S+")
CODE = re.compile(
    r"(?ms)^(?:`{3}|~{3}).*?^(?:`{3}|~{3})|<pre>.*?</pre>|<script.*?</script>|\{[%#].*?[%#]\}|<[^>]*>"
)
CELL = re.compile(r"(?:(?<=\n)|^)(?=.*\S)(?:[^|\n]+\n?)+|(?<=\|)[^|\n]+")


def main() -> int:
    """Print the hits in the folders of the command line, and return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--limit", type=float, default=0, help="hits per 1,000 words")
    options = parser.parse_args()
    status = 0
    for folder in options.folders:
        hits, words = [], 0
        for path in sorted(folder.rglob("*")):
            for line, text in texts_of(path):
                words += len(text.split())
                hits += [f"{path}:{line + number}: {hit}" for number, hit in hits_in(text)]
        rate = 1000 * len(hits) / max(1, words)
        if rate > options.limit:
            print(*hits, sep="\n")
            status = 1
        print(f"{folder}: {len(hits)} phrases in {words} words, {rate:.1f} per 1,000")
    return status


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file, each with its first line."""
    if path.suffix == ".py":
        texts = python_texts(path.read_text(encoding="utf-8"))
    elif path.suffix in (".md", ".html"):
        texts = page_texts(path.read_text(encoding="utf-8"))
    else:
        return
    for line, text in texts:
        yield line, MARKUP.sub(lambda match: "X" + "\n" * match[0].count("\n"), text)


def hits_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield each phrase that a pattern matches, with the number of its line in the text."""
    if " " not in text.strip():
        return
    for name, pattern in COMPILED.items():
        for match in pattern.finditer(text):
            words = " ".join(text[max(0, match.start() - 45) : match.end() + 45].split())
            if not ALLOWED.search(words):
                yield text[: match.start()].count("\n"), f"[{name}] {words}"


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, messages and comments of Python source, each with its line."""
    nodes = list(ast.walk(ast.parse(source)))
    skipped = set()
    for node in nodes:
        if isinstance(node, ast.keyword) and node.arg in ("source", "pattern"):
            skipped.add(id(node.value))  # titles of other people's pages, and regular expressions
        elif isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in ast.walk(node) if part is not node)
    for node in nodes:
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, re.sub(r"(?<=\n)[ \t]+", "", node.value)
    yield from comments(source)


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of Python source; those on consecutive lines are one text."""
    first, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if lines and token.start[0] != first + len(lines):
            yield first, "\n".join(lines)
            lines = []
        if not lines:
            first = token.start[0]
        lines.append(token.string.lstrip("# "))
    if lines:
        yield first, "\n".join(lines)


def page_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs and table cells of a page, each with its line."""
    source = CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    for cell in CELL.finditer(source):
        text = cell[0].lstrip("#-*> \n")
        yield 1 + source[: cell.end() - len(text)].count("\n"), text


# A blank in a pattern also matches the end of a line.
COMPILED = {name: re.compile(pattern.replace(" ", r"\s")) for name, pattern in PATTERNS.items()}

if __name__ == "__main__":
    raise SystemExit(main())
