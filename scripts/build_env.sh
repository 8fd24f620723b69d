# Sourced by quickstart, selftest and .ci/run, in the project's folder. Sets:
#   packages  Debian packages that the build needs
#   launcher  a CMake argument that puts ccache before the compiler, if it is there
#   jobs      compilations at once: one a core, and 1.5 GB of memory each
#   SLUICE_DATA (exported) where the digits are, if they lie beside the project and nothing else says so

packages="g++ cmake ninja-build libfmt-dev zlib1g-dev libxxhash-dev nlohmann-json3-dev libcli11-dev"

launcher=
if command -v ccache >/dev/null 2>&1; then
  launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache
fi

jobs=$(nproc)
memory_jobs=$(awk '/^MemTotal:/ { print int($2 / 1500000) }' /proc/meminfo 2>/dev/null || echo "$jobs")
if [ "${memory_jobs:-0}" -lt "$jobs" ]; then jobs=$memory_jobs; fi
if [ "$jobs" -lt 1 ]; then jobs=1; fi

if [ -z "${SLUICE_DATA:-}" ] && [ ! -d data/mnist ] && [ -d ../shared/data/mnist ]; then
  SLUICE_DATA=$(cd ../shared/data && pwd)
  export SLUICE_DATA
fi
