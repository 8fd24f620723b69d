#!/usr/bin/env python3
"""Writes docs/cli.md and the completions of the shells from the help of the command line.

usage: write_cli_docs.py PROGRAM [--check]

PROGRAM is the built `sluice`. With --check, no file is written; the exit code is 1 if one differs.
"""

import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENTRY = re.compile(r"^  (\S+)(?: ([A-Z]+|\S+\|\S+))?(?: +(\S.*))?$")
COLUMNS = 100


def help_of(program, *arguments):
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


class Command:
    """A command: its name, its help, and its options with the kinds of their values."""

    def __init__(self, program, name):
        self.name = name
        self.text = help_of(program, name, "--help-all")
        self.options = {}
        lines = self.text.splitlines()
        for at, line in enumerate(lines):
            match = ENTRY.match(line)
            if not match or not match[1].startswith("--"):
                continue
            words = [match[3] or ""]
            for more in lines[at + 1:]:
                if not more.startswith(" " * 26):
                    break
                words.append(more.strip())
            self.options[match[1]] = (match[2] or "", " ".join(words).strip())

    def choices(self, option):
        """Returns the words that an option accepts; empty if it accepts other values."""
        kind = self.options[option][0]
        return kind.replace("|", " ") if "|" in kind else ""


def documentation(program, commands):
    parts = [
        "# The command line\n",
        "The help of sluice and of its commands, with every option. "
        "`scripts/write_cli_docs.py` writes\nthis page; a test compares it with the program.\n",
        f"```\n{help_of(program, '--help')}```\n"
    ]
    for command in commands:
        parts.append(f"## sluice {command.name}\n\n```\n{command.text}```\n")
    return "\n".join(parts)


def wrapped_pattern(options):
    """Returns a pattern of bash for any of the options, on lines of at most 100 columns."""
    lines = textwrap.wrap(" ".join(options), 90, break_on_hyphens=False)
    return "|\\\n".join("    " + line.replace(" ", "|") for line in lines) + ")"


def wrapped(text, indent):
    """Returns `text` cut at spaces into lines that leave room for a quote and a backslash."""
    return textwrap.fill(text, COLUMNS - 4, subsequent_indent=" " * indent, break_on_hyphens=False,
                         break_long_words=False)


def bash_completion(commands, models):
    cases, values = [], {}
    for c in commands:
        options = " ".join([*c.options, "--help", "--help-all"])
        cases.append(wrapped(f'    {c.name}) options="{options}" ;;', 6))
        values.update({o: c.choices(o) for o in c.options if c.choices(o)})
    files = sorted({o for c in commands for o, (kind, _) in c.options.items()
                    if kind in ("FILE", "PROGRAM")})
    folders = sorted({o for c in commands for o, (kind, _) in c.options.items() if kind == "DIR"})
    lines = [
        "# Completion of sluice for bash, written by scripts/write_cli_docs.py.", "_sluice() {",
        '  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} options',
        '  case $before in'
    ]
    for o, v in sorted(values.items()):
        lines += [
            f'    {o})', wrapped(f'      options="{v}"', 8),
            '      COMPREPLY=($(compgen -W "$options" -- "$word"))', '      return ;;'
        ]
    lines += [
        wrapped_pattern(files), '      COMPREPLY=($(compgen -f -- "$word"))', '      return ;;',
        f'    {"|".join(folders)})', '      COMPREPLY=($(compgen -d -- "$word"))',
        '      return ;;', "  esac",
        "  if [ \"$COMP_CWORD\" -eq 1 ]; then",
        wrapped(f'    options="{" ".join(c.name for c in commands)} --list --version --help '
                '--help-all"', 6),
        '    COMPREPLY=($(compgen -W "$options" -- "$word"))', "    return", "  fi",
        "  case ${COMP_WORDS[1]} in", *cases, '    *) return ;;', "  esac",
        "  case ${COMP_WORDS[1]}:$word in",
        '    inspect:[!-]*|inspect:) COMPREPLY=($(compgen -f -- "$word")) ;;',
        '    *:-*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;',
        "    *)", wrapped(f'      options="{" ".join(models)}"', 8),
        '      COMPREPLY=($(compgen -W "$options" -- "$word")) ;;', "  esac", "}",
        "complete -F _sluice sluice", ""
    ]
    return "\n".join(lines)


def zsh_completion(commands, models):
    def quoted(text):
        text = text.replace("'", "'\\''").replace("[", "\\[")
        return text.replace("]", "\\]").replace(":", "\\:")

    lines = [
        "#compdef sluice", "# Completion of sluice for zsh, written by scripts/write_cli_docs.py.",
        "_sluice() {", "  local -a commands", "  commands=("
    ]
    for c in commands:
        lines.append(f"    '{c.name}:{quoted(c.text.splitlines()[0])}'")
    lines += [
        "  )", "  if (( CURRENT == 2 )); then",
        "    _describe command commands -- '(--list --version --help --help-all)'", "    return",
        "  fi", "  case $words[2] in"
    ]
    for c in commands:
        lines.append(f"    {c.name})\n      _arguments \\")
        for option, (kind, text) in c.options.items():
            actions = {"FILE": ":file:_files", "DIR": ":folder:_files -/",
                       "PROGRAM": ":program:_files"}
            action = actions.get(kind, f":value:({c.choices(option)})" if kind else "")
            entry = wrapped(f"        '{option}[{quoted(text)}]{action}' \\", 0)
            # A quoted string continues after a backslash and the line's end.
            lines.append(entry.replace("\n", " '\\\n'"))
        arguments = {"inspect": "'*:file:_files'", "doctor": "'--help[Print the common options]'"}
        argument = arguments.get(c.name, f"'*:model:({' '.join(models)})'")
        lines.append(f"        {argument} ;;")
    lines += ["  esac", "}", '_sluice "$@"', ""]
    return "\n".join(lines)


def main():
    program, check = sys.argv[1], sys.argv[2:] == ["--check"]
    top = help_of(program, "--help")
    names = re.findall(r"^  ([a-z]+)  ", top.split("Commands:")[1].split("\n\n")[0], re.M)
    commands = [Command(program, name) for name in names]
    models = [line.split()[0] for line in help_of(program, "--list").splitlines()]
    differs = False
    for path, text in (("docs/cli.md", documentation(program, commands)),
                       ("tools/completion/sluice.bash", bash_completion(commands, models)),
                       ("tools/completion/_sluice", zsh_completion(commands, models))):
        file = ROOT / path
        if file.exists() and file.read_text() == text:
            continue
        differs = True
        if check:
            print(f"{path}: must be what scripts/write_cli_docs.py PROGRAM writes")
        else:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
    sys.exit(1 if check and differs else 0)


main()
