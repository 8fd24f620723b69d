#include "sluice/comm/launcher.h"

#include <fmt/format.h>

#include <cstdlib>

namespace sluice::comm {

Launch launch() {
  struct Variable {
    const char* name;
    bool is_exact;
    int more;  ///< Processes in addition to the number.
  };
  constexpr Variable kVariables[] = {{"OMPI_COMM_WORLD_SIZE", true, 0},
                                     {"PMI_SIZE", true, 0},
                                     {"PMIX_SIZE", true, 0},
                                     {"SLURM_STEP_NUM_TASKS", false, 0},
                                     {"PMIX_RANK", false, 1}};
  for (const Variable& v : kVariables) {
    const char* const text = std::getenv(v.name);
    const int processes = text == nullptr ? 0 : std::atoi(text) + v.more;
    if (processes > 0) return {processes, v.is_exact, fmt::format("{}={}", v.name, text)};
  }
  return {};
}

}  // namespace sluice::comm
