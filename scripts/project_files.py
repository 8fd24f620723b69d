"""The files of a checkout that the checks of this folder look at."""

import os
from pathlib import Path

# Results of builds and runs, as in .gitignore, and what is not ours.
SKIPPED_FOLDERS = {".git", ".cache", ".vscode", "__pycache__", "build", "dist", "runs", "data"}


def project_files(root, suffixes=None):
    """Yields files below `root`, as paths relative to it, in order. `suffixes` keeps only names that end so."""
    root = Path(root)
    for folder, folders, files in os.walk(root):
        at_root = Path(folder) == root
        folders[:] = sorted(
            f for f in folders
            if not (f.startswith("build-") or f in SKIPPED_FOLDERS and (at_root or f.startswith((".", "_")))))
        for name in sorted(files):
            if name == ".git":  # A worktree names its repository in a file.
                continue
            if suffixes is None or name.endswith(tuple(suffixes)):
                yield (Path(folder) / name).relative_to(root)


def read_lines(root, path):
    """The lines of a text file; none if it is not text."""
    data = (Path(root) / path).read_bytes()
    if b"\0" in data:
        return []
    return data.decode("utf-8", errors="replace").splitlines()
