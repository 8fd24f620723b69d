#!/usr/bin/env python3
"""Shows where the time of a build and of a test run goes.

    scripts/measure_build.py build [--target T] [--jobs N] [--phases] [-D...]
    scripts/measure_build.py headers [--top N]
    scripts/measure_build.py tests BUILD [--top N]

`build` configures a new folder, build/measured, with the given definitions, builds the target, and
prints CPU seconds (user and system) for each folder and for the most expensive commands. With
`--phases`, it adds GCC's own phases from -ftime-report. `headers` prints the preprocessed lines of
each source without unity units and precompiled headers, and the most expensive headers: the lines
that a header adds by itself, times the number of sources that read it, with the seconds to parse it
once. `tests` reads the log of the last ctest run in the folder BUILD and prints the seconds of each
entry, program and suite.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "measured"
PHASES = ["phase parsing", "phase lang. deferred", "phase opt and generate",
          "template instantiation"]


def launch(log, command):
    """Runs one command of a build and appends its CPU seconds, as a JSON line, to `log`."""
    start = time.time()
    phases = {}
    if os.environ.get("SLUICE_PHASES") and {"-c", "-o"} <= set(command):
        done = subprocess.Popen([*command, "-ftime-report"], stderr=subprocess.PIPE, text=True)
        errors = done.stderr.read()
        for phase in PHASES:
            found = re.search(rf"^ {re.escape(phase)} *: *([\d.]+)", errors, re.MULTILINE)
            phases[phase] = float(found[1]) if found else 0
        process = done.pid
    else:
        process = os.fork()
        if process == 0:
            os.execvp(command[0], command)
    _, status, used = os.wait4(process, 0)
    if status != 0 and phases:
        sys.stderr.write(errors)
    line = {"cpu": used.ru_utime + used.ru_stime, "wall": time.time() - start,
            "megabytes": used.ru_maxrss // 1024, "phases": phases, "command": command}
    with open(log, "a") as f:
        f.write(json.dumps(line) + "\n")
    return os.waitstatus_to_exitcode(status)


def configure(folder, definitions, log=None):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    arguments = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja",
                 "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
                 "--log-level=WARNING", *definitions]
    if log:
        hook = folder / "launch.cmake"
        runner = f"{sys.executable} -S -E {Path(__file__).resolve()} launch {log}"
        hook.write_text(f'set_property(GLOBAL PROPERTY RULE_LAUNCH_COMPILE "{runner}")\n'
                        f'set_property(GLOBAL PROPERTY RULE_LAUNCH_LINK "{runner}")\n')
        arguments.append(f"-DCMAKE_PROJECT_INCLUDE={hook}")
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)


def group_of(command):
    """Returns (group, name) of a command of a build."""
    if "-c" not in command:
        result = command[command.index("-o") + 1] if "-o" in command else command[2]
        return ("archives" if command[0].endswith(("ar", "ranlib")) else "links"), result
    result = command[command.index("-o") + 1]
    source = Path(command[command.index("-c") + 1])
    folder = result.split("/CMakeFiles/")[0] if "/CMakeFiles/" in result else "."
    if result.endswith(".gch"):
        return "precompiled headers", result
    tests = "_test" in result.split("/CMakeFiles/")[-1]
    group = folder + (" (tests)" if tests and not folder.startswith("tests") else "")
    group += " (isa)" if ".isa." in source.name else ""
    name = f"{source.parent.parent.name} {source.stem}" if "Unity" in str(source) else source.name
    return group, f"{folder}/{name}"


def print_table(title, rows, top=None):
    print(f"\n{title}")
    for cells in rows[:top]:
        print("  " + "  ".join(f"{c:9.1f}" if isinstance(c, float) else f"{c:>9}"
                               if isinstance(c, int) else str(c) for c in cells))


def build(options, definitions):
    log = FOLDER / "commands.jsonl"
    configure(FOLDER, definitions, log)
    environment = dict(os.environ, CCACHE_DISABLE="1")
    if options.phases:
        environment["SLUICE_PHASES"] = "1"
    command = ["cmake", "--build", str(FOLDER), "-j", str(options.jobs)]
    start = time.time()
    subprocess.run([*command, *(["--target", options.target] if options.target else [])],
                   check=True, env=environment)
    wall = time.time() - start
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    seconds, counts, phases = collections.Counter(), collections.Counter(), {}
    names = []
    for line in lines:
        group, name = group_of(line["command"])
        seconds[group] += line["cpu"]
        counts[group] += 1
        names.append((line["cpu"], line["megabytes"], name))
        for phase, value in line["phases"].items():
            phases.setdefault(group, collections.Counter())[phase] += value
    heading = "CPU seconds and commands of each folder"
    if options.phases:
        heading += "; user seconds of: " + ", ".join(PHASES)
    rows = []
    for group, value in seconds.most_common():
        rows.append((value, counts[group], *(phases[group][p] for p in PHASES if group in phases),
                     group))
    print_table(heading, rows)
    print_table("CPU seconds and megabytes of the most expensive commands",
                sorted(names, reverse=True), options.top)
    print(f"\n{sum(seconds.values()):.1f} CPU seconds in {len(lines)} commands, "
          f"{wall:.1f} seconds of wall clock with {options.jobs} jobs")


def preprocess(entry, flags):
    command = shlex.split(entry["command"])
    at = command.index("-o")
    del command[at:at + 2]
    command.remove("-c")
    return subprocess.run([*command, *flags], cwd=entry["directory"], capture_output=True,
                          text=True, check=True)


def headers(options, definitions):
    configure(FOLDER, ["-DSLUICE_UNITY=OFF", "-DSLUICE_PCH=OFF", *definitions])
    entries = json.loads((FOLDER / "compile_commands.json").read_text())
    entries = list({e["file"]: e for e in entries if Path(e["file"]).exists()}.values())
    readers, sources, markers = collections.Counter(), [], collections.Counter()
    marker = re.compile(r'^# \d+ "([^"]+)"')

    def measure(entry):
        text = preprocess(entry, ["-E"]).stdout
        own, current = collections.Counter(), ""
        for line in text.splitlines():
            found = marker.match(line)
            if found:
                current = found[1]
            elif line.strip():
                own[os.path.normpath(os.path.join(entry["directory"], current))] += 1
        return entry["file"], own

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, own in pool.map(measure, entries):
            sources.append((sum(own.values()), os.path.relpath(name, ROOT)))
            for header, lines in own.items():
                if not header.endswith((".cc", ".cxx")) and not header.endswith(">"):
                    readers[header] += 1
                    markers[header] = max(markers[header], lines)
    print_table("Preprocessed lines of the largest sources", sorted(sources, reverse=True),
                options.top)
    costs = sorted(((markers[h] * n, n, markers[h], h) for h, n in readers.items()), reverse=True)
    print_table("Headers by lines of their own times the sources that read them", costs,
                options.top)
    own = [(n, h) for h, n in readers.items() if h.startswith(str(ROOT / "src"))]
    rows = []
    for n, header in sorted(own, reverse=True)[:4 * options.top]:
        source = f'#include "{header}"\n'
        command = ["c++", "-std=c++20", f"-I{ROOT / 'src'}", f"-I{FOLDER / 'include'}",
                   "-fsyntax-only", "-x", "c++", "-"]
        before = os.times()
        subprocess.run(command, input=source, text=True, check=True)
        after = os.times()
        once = after.children_user + after.children_system - before.children_user - \
            before.children_system
        rows.append((once * n, n, once, os.path.relpath(header, ROOT)))
    print_table("The project's headers: seconds to parse times readers, readers, seconds to parse",
                sorted(rows, reverse=True), options.top)
    print(f"\n{len(sources)} sources, {sum(s[0] for s in sources)} preprocessed lines")


def tests(options):
    text = (Path(options.build) / "Testing/Temporary/LastTest.log").read_text(errors="replace")
    entries, suites, programs = [], collections.Counter(), collections.Counter()
    for part in re.split(r"^\d+/\d+ Test: ", text, flags=re.MULTILINE)[1:]:
        name = part.split("\n", 1)[0]
        found = re.search(r"^Test time = +([\d.]+) sec", part, re.MULTILINE)
        if not found:
            continue
        command = re.search(r'^Command: "([^"]+)"', part, re.MULTILINE)
        program = Path(command[1]).name if command else name
        entries.append((float(found[1]), name))
        programs[program] += float(found[1])
        for suite, ms in re.findall(r"^\[-+\] \d+ tests? from (\S+).* \((\d+) ms total\)", part,
                                    re.MULTILINE):
            suites[f"{program} {suite}"] += int(ms) / 1000
    print_table("Seconds of each entry of CTest", sorted(entries, reverse=True), options.top)
    print_table("Seconds of each program", [(v, k) for k, v in programs.most_common()], options.top)
    print_table("Seconds of each suite of GoogleTest", [(v, k) for k, v in suites.most_common()],
                options.top)
    print(f"\n{sum(e[0] for e in entries):.1f} seconds in {len(entries)} entries")


def main():
    if sys.argv[1:2] == ["launch"]:
        return launch(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "headers", "tests"])
    parser.add_argument("build", nargs="?", help="the folder of the tests' build")
    parser.add_argument("--target", help="build only this target")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="parallel commands")
    parser.add_argument("--phases", action="store_true", help="add the phases of GCC")
    parser.add_argument("--top", type=int, default=20, help="rows of a long table (default: 20)")
    options, definitions = parser.parse_known_args()
    if options.what == "build":
        build(options, definitions)
    elif options.what == "headers":
        headers(options, definitions)
    else:
        if not options.build:
            parser.error("tests requires the folder of a build")
        tests(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
