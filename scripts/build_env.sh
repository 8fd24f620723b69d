# Sourced by quickstart, selftest and .ci/run in the project's folder. Sets:
#   packages     Debian packages that the build requires
#   launcher     CMake argument that runs the compiler through ccache, if ccache is installed
#   jobs         number of parallel compilations: one for each core and 1.5 GB of memory
#   SLUICE_DATA  (exported) folder of the digits next to the project, if it exists and neither
#                SLUICE_DATA nor data/mnist is there

packages="g++ cmake ninja-build libfmt-dev zlib1g-dev libpcre2-dev libxxhash-dev nlohmann-json3-dev
  libcli11-dev"

launcher=
if command -v ccache >/dev/null 2>&1; then
  launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache
  # All builds of all checkouts share one cache: paths below the project count as relative ones.
  export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
fi

jobs=$(nproc)
memory_jobs=$(awk '/^MemTotal:/ { print int($2 / 1500000) }' /proc/meminfo 2>/dev/null ||
  echo "$jobs")
if [ "${memory_jobs:-0}" -lt "$jobs" ]; then jobs=$memory_jobs; fi
if [ "$jobs" -lt 1 ]; then jobs=1; fi

if [ -z "${SLUICE_DATA:-}" ] && [ ! -d data/mnist ] && [ -d ../shared/data/mnist ]; then
  SLUICE_DATA=$(cd ../shared/data && pwd)
  export SLUICE_DATA
fi
