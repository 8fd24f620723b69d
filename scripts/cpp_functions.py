"""Finds the functions of a C++ file and their lengths.

Understands only as much of the grammar as files formatted by clang-format require.
"""

import re

# Comments, literals and other text. Raw strings must be tried before plain strings.
TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'
    r'|R"(?P<mark>[^ ()\\\t\v\f\n]*)\(.*?\)(?P=mark)"'
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)+'"
    r'|[^"\'/R]+|.', re.S)
TEMPLATE = re.compile(r"^\s*template\s*<")
SCOPE = re.compile(r'^(?:(?:inline|static|typedef|constexpr|const|friend|export)\s+)*'
                   r'(?:namespace|class|struct|union|enum)\b|^extern\s+""$')
LABEL = re.compile(r"^\s*(?:public|private|protected)\s*:")
CONSTRUCTOR = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:)")


def without_comments(text):
    """Returns `text` with blank comments and empty literals; line numbers stay."""

    def blank(match):
        token = match[0]
        if token.startswith(("//", "/*")):
            return re.sub(r"[^\n]", " ", token)
        if token.startswith(('"', "'", 'R"')):
            return '"' + re.sub(r"[^\n]", "", token) + '"'
        return token

    return TOKEN.sub(blank, text)


def without_directives(text):
    """Returns `text` without preprocessor lines and without the branches after #else and #elif."""
    lines, skipped, depth, goes_on = [], 0, 0, False
    for line in text.split("\n"):
        directive = re.match(r"\s*#\s*(\w+)", line) if not goes_on else None
        is_directive = directive is not None or goes_on
        if directive:
            word = directive[1]
            if word in ("if", "ifdef", "ifndef"):
                depth += 1
            elif word == "endif":
                skipped = 0 if skipped == depth else skipped
                depth -= 1
            elif word.startswith("el") and not skipped:
                skipped = depth
        goes_on = is_directive and line.endswith("\\")
        lines.append("" if is_directive or skipped else line)
    return "\n".join(lines)


def without_template(head):
    """Returns `head` without the template parameter lists at its begin."""
    while TEMPLATE.match(head):
        depth = 0
        for i, c in enumerate(head):
            depth += (c == "<") - (c == ">")
            if c == ">" and depth == 0:
                break
        head = head[i + 1:]
    return head.strip()


def outside_parentheses(text):
    """Returns the text outside of parentheses, and the outermost parentheses."""
    kept, depth = [], 0
    for c in text:
        depth -= c == ")"
        if depth <= 0:
            kept.append(c)
        depth += c == "("
    return "".join(kept)


def kind_of(head):
    """Returns the kind of the brace after `head`: "scope", "function" or "value"."""
    head = without_template(LABEL.sub("", head))
    if head.count("(") > head.count(")"):
        return "value"
    if SCOPE.match(head):
        return "scope"
    flat = outside_parentheses(head)
    if re.search(r"(?<!operator)\s=\s*\[", flat):
        return "function"  # A lambda that is stored or called at once.
    if re.search(r"\s=(?:\s|$)", flat) or ")" not in flat:
        return "value"
    if CONSTRUCTOR.search(flat):
        return "function" if head[-1] in ")}" else "value"
    return "function"


def functions(text):
    """Yields (first line, last line, head) of each function of a file, except lambdas inside.

    ValueError if the braces do not match.
    """
    code = without_directives(without_comments(text))
    stack = []  # (kind, first line, head) of each open brace.
    head, begin, line = "", 1, 1  # `head` is the text since the last end of a statement.

    def reset():
        nonlocal head, begin
        head, begin = "", line

    for c in code:
        line += c == "\n"
        inside = "function" in (k for k, _, _ in stack)
        if c == "{":
            kind = "inner" if inside else kind_of(head)
            if stack and stack[-1][0] == "value":
                kind = "value"
            stack.append((kind, begin, head))
            if kind == "scope":
                reset()
            elif kind == "value":
                head += c
        elif c == "}":
            if not stack:
                raise ValueError(f"line {line}: a closing brace has no opening one")
            kind, first, of = stack.pop()
            if kind == "value":
                head += c
            elif kind == "function":
                yield first, line, " ".join(of.split())
                reset()
            elif kind == "scope":
                reset()
        elif not inside:
            in_value = stack and stack[-1][0] == "value"
            if c == ";" and head.count("(") <= head.count(")") and not in_value:
                reset()
            elif not head.strip() and c.isspace():
                begin = line
            else:
                head += c
                if LABEL.match(head):
                    reset()
    if stack:
        raise ValueError(f"line {stack[-1][1]}: an opening brace has no closing one")
