#!/usr/bin/env python3
"""Checks who includes whom: a folder may include itself, folders of its own layer and of lower ones, and nothing
upward; neither files nor folders may include one another in a circle. Warns of files over 400 lines.

    scripts/check_includes.py [root of the repository]
"""

import re
import sys
from pathlib import Path

# From the bottom up: docs/architecture.md shows the same.
LAYERS = [
    {"src/base"},
    {"src/bootstrap", "src/topology", "src/plan", "src/transport"},
    {"algorithms", "transports", "src/select", "src/executor", "src/kernels"},
    {"include"},
    {"src/calls"},
    {"src/launches"},
    {"src/device", "src/network"},
    {"src/communicator"},
    {"src/api"},
    {"src/nccl"},
    {"tools", "perf", "tests", "examples"},
]
LAYER = {folder: number for number, layer in enumerate(LAYERS) for folder in layer}
# What a user can write must need nothing but what is installed.
PUBLIC_ONLY = {"include", "src/nccl", "examples"}
SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".inl", ".cu", ".cuh"}
MOST_LINES = 400
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<(strait/[^>]+)>)', re.MULTILINE)


def folder_of(path):
    """The folder of LAYERS that a path (relative to the root) belongs to."""
    parts = Path(path).parts
    return "/".join(parts[:2]) if parts[0] == "src" else parts[0]


def sources(root):
    for top in sorted({folder.split("/")[0] for folder in LAYER}):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path.relative_to(root).as_posix()


def resolve(root, includer, name):
    """The file of the repository that an #include means, or None."""
    for base in ((root / includer).parent, root / "src", root / "include", root / "tools", root):
        path = base / name
        if path.is_file() and path.resolve().is_relative_to(root):
            return path.resolve().relative_to(root).as_posix()
    return None


def include_graph(root):
    """{file: [files it includes]}, of the repository's own files."""
    graph = {}
    for path in sources(root):
        text = (root / path).read_text(encoding="utf-8")
        names = [quoted or public for quoted, public in INCLUDE.findall(text)]
        graph[path] = [target for name in names if (target := resolve(root, path, name))]
    return graph


def folder_graph(graph):
    folders = {}
    for path, targets in graph.items():
        others = folders.setdefault(folder_of(path), [])
        others.extend(f for target in targets if (f := folder_of(target)) != folder_of(path) and f not in others)
    return folders


def find_cycle(graph):
    """A circle in the graph as a list that ends where it begins, or None."""
    done, trail = set(), []

    def visit(node):
        if node in trail:
            return trail[trail.index(node):] + [node]
        if node in done:
            return None
        trail.append(node)
        for target in graph.get(node, []):
            if cycle := visit(target):
                return cycle
        trail.pop()
        done.add(node)
        return None

    for start in graph:
        if cycle := visit(start):
            return cycle
    return None


def forbidden(includer, target):
    """Why `includer` may not include `target`; None if it may."""
    own, other = folder_of(includer), folder_of(target)
    if own == other:
        return None
    for path, folder in ((includer, own), (target, other)):
        if folder not in LAYER:
            return f"{path}: {folder} is in no layer; add it to LAYERS in scripts/check_includes.py"
    if own in PUBLIC_ONLY and other != "include":
        return f"{includer} includes {target}: {own} may include public headers only"
    if LAYER[other] > LAYER[own]:
        return f"{includer} includes {target}: upward, from {own} to {other}"
    return None


def check(root):
    """All that is wrong, one line each."""
    graph = include_graph(root)
    problems = [problem for path, targets in graph.items() for target in targets
                if (problem := forbidden(path, target))]
    for cycle in (find_cycle(graph), find_cycle(folder_graph(graph))):
        if cycle:
            problems.append("a circle of includes: " + " -> ".join(cycle))
    return problems, graph


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    problems, graph = check(root)
    if not graph:
        problems.append(f"no sources under {root}")
    for path in graph:
        lines = (root / path).read_text(encoding="utf-8").count("\n")
        if lines > MOST_LINES:
            print(f"warning: {path}: {lines} lines; split files over {MOST_LINES}")
    for problem in problems:
        print(f"error: {problem}")
    print(f"check_includes: {len(graph)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
