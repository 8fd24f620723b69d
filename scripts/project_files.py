"""Lists the files of a checkout that the checks in this folder read."""

import os
from pathlib import Path

# Results of builds and runs, as in .gitignore, and folders of other tools.
SKIPPED_FOLDERS = {".git", ".cache", ".vscode", "__pycache__", "build", "dist", "runs", "data"}


def project_files(root, suffixes=None):
    """Yields the files below `root` in order, as relative paths.

    With `suffixes`, yields only names that end with one of them.
    """
    root = Path(root)
    for folder, folders, files in os.walk(root):
        at_root = Path(folder) == root
        folders[:] = sorted(
            f for f in folders
            if not (f.startswith("build-") or f in SKIPPED_FOLDERS and
                    (at_root or f.startswith((".", "_")))))
        for name in sorted(files):
            if at_root and name == ".git":  # A file in a worktree.
                continue
            if suffixes is None or name.endswith(tuple(suffixes)):
                yield (Path(folder) / name).relative_to(root)


def read_lines(root, path):
    """Returns the lines of a text file; empty for a binary file."""
    data = (Path(root) / path).read_bytes()
    if b"\0" in data:
        return []
    return data.decode("utf-8", errors="replace").splitlines()
