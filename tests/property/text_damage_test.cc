// Damages every field of plan texts, one at a time. The text must be refused, or run with the bits
// of the undamaged text. SLUICE_DAMAGES sets the number of damages of each plan.

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "damage.h"
#include "plan_run.h"
#include "random_graph_run.h"
#include "sluice/cpu/device/cpu.h"
#include "sluice/exe/text.h"
#include "sluice/runtime/loaded_program.h"
#include "small_programs.h"
#include "text_damage.h"
#include "training_programs.h"

namespace sluice::property {
namespace {

constexpr uint64_t kDamages = 2500;  // Damages of each plan, spread over its text.

/// Damages of a plan's text. SLUICE_DAMAGES sets their number.
std::vector<Damage> damages_of(const exe::Executable& right) {
  const auto lines = std::make_shared<const std::vector<std::string>>(lines_of(to_text(right)));
  const std::vector<TextDamage> all = text_damages(*lines);
  const char* const given = std::getenv("SLUICE_DAMAGES");
  const uint64_t max = given == nullptr ? kDamages : std::strtoull(given, nullptr, 10);
  const size_t stride = std::max<size_t>(1, all.size() / std::max<uint64_t>(max, 1));
  std::vector<Damage> damages;
  for (size_t i = 0; i < all.size(); i += stride) {
    const auto parse = [lines, d = all[i]](exe::Fingerprints fingerprints) {
      return exe::parse_text(damaged(*lines, d), "damaged", fingerprints);
    };
    damages.push_back({.kind = "text",
                       .position = describe(*lines, all[i]),
                       .fingerprint_holds =
                           [parse](const exe::Executable&) {
                             try {
                               parse(exe::Fingerprints::kCompared);
                               return true;
                             } catch (const Error&) {
                               return false;
                             }
                           },
                       .parse = [parse] { return parse(exe::Fingerprints::kIgnored); }});
  }
  std::printf("%zu of %zu damages\n", damages.size(), all.size());
  return damages;
}

bool fits_cpus(const exe::Executable& plan) {
  static const auto cpu = cpu::make_device();
  for (const exe::Device& d : plan.devices) {
    // The executor requires as many workers for each device.
    if (d.kind != cpu->kind() || d.workers != plan.devices[exe::DeviceId(0)].workers) return false;
  }
  const Ids<exe::DeviceId, runtime::Device*> devices(plan.devices.size(), cpu.get());
  return runtime::refused_steps(plan, devices).empty();
}

void expect_refused_or_harmless(const exe::Executable& right) {
  const Tally tally = judge({.right = right, .runs = plan_runs(right), .fits_devices = fits_cpus},
                            damages_of(right));
  print(tally);
  for (const Verdict verdict : {Verdict::kParser, Verdict::kChecker, Verdict::kAlike})
    EXPECT_GT(tally.count(verdict), 0);
}

exe::Executable compiled_training(const train::Options& step, int replicas) {
  Ir ir(replicas);
  small_training(ir, step, nn::Optimizer::adam());
  return compiled(ir, 1).executable;
}

TEST(TextDamages, OfATrainingStep) {
  expect_refused_or_harmless(compiled_training({.accumulate = 2}, 1));
}

TEST(TextDamages, OfPhasesOfReplicasBesideTransfers) {
  expect_refused_or_harmless(compiled_training({.strategy = train::phased(),
                                                .accumulate = 2,
                                                .locations = all_remote(16),
                                                .io_mode = IoMode::kIoOverlapped},
                                               2));
}

TEST(TextDamages, OfControlFlowOnTwoDevices) {
  expect_refused_or_harmless(compiled(control_flow_program(), 2).executable);
}

TEST(TextDamages, OfCollectives) {
  expect_refused_or_harmless(compiled(data_parallel_program(2), 1).executable);
}

}  // namespace
}  // namespace sluice::property
