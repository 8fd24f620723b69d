// Prints the plans of random programs for bench/plan_oracle.py: random_plans FIRST LAST. Each seed
// also has a program on two devices. Every third seed also has one plan without each optional pass.

#include <fmt/core.h>

#include <cstdlib>

#include "random_graph_run.h"
#include "sluice/base/sys.h"
#include "sluice/compiler/compile.h"
#include "sluice/exe/text.h"

namespace sluice::property {
namespace {

void print_plan(const std::string& title, const RandomProgram& program, int devices,
                const std::vector<std::string>& disable) {
  std::string text;
  try {
    text = exe::to_text(compiled(program.ir, devices, disable).executable);
  } catch (const Error& e) {
    text = e.what();
  }
  fmt::print("=== {}\n{}\n", title, text);
}

void print_plans(uint64_t seed) {
  const RandomProgram program = random_program({seed, {}});
  print_plan(fmt::format("{}", seed), program, 1, {});
  print_plan(fmt::format("{} on two devices", seed), random_program({seed, {}, 2}), 2, {});
  if (seed % 3 != 0) return;
  for (const PassDoc& pass : compiler_passes()) {
    if (pass.optional)
      print_plan(fmt::format("{} without {}", seed, pass.name), program, 1, {pass.name});
  }
}

}  // namespace
}  // namespace sluice::property

int main(int argc, char** argv) {
  if (argc != 3) {
    sluice::sys::print_stderr("usage: random_plans FIRST LAST\n");
    return 2;
  }
  for (uint64_t seed = std::strtoull(argv[1], nullptr, 10),
                last = std::strtoull(argv[2], nullptr, 10);
       seed < last; ++seed) {
    sluice::property::print_plans(seed);
  }
  return 0;
}
