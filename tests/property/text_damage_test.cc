// Damages every field of plan texts, one at a time. The text must be refused, or run with the bits
// of the undamaged text. SLUICE_DAMAGES sets the number of damages of each plan.

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "plan_run.h"
#include "sluice/check/checker.h"
#include "sluice/compiler/compile.h"
#include "sluice/cpu/device/cpu.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/text.h"
#include "sluice/runtime/loaded_program.h"
#include "sluice/session/session.h"
#include "small_programs.h"
#include "text_damage.h"
#include "training_programs.h"

namespace sluice::property {
namespace {

constexpr uint64_t kDamages = 2500;  // Damages of each plan, spread over its text.

struct Tally {
  int parser = 0;
  int checker = 0;
  int device = 0;
  int fingerprint = 0;
  int harmless = 0;
};

exe::Executable compiled(const Ir& ir, int devices = 1) {
  const DeviceChoice cpu = cpu_device({.threads = 2});
  const DeviceSpec one{cpu.target, -1, cpu.threads};
  return compile(ir, {.devices = std::vector<DeviceSpec>(static_cast<size_t>(devices), one)})
      .executable;
}

exe::Executable compiled_training(const train::Options& step, int replicas) {
  Ir ir(replicas);
  small_training(ir, step, nn::Optimizer::adam());
  return compiled(ir);
}

class TextDamages : public testing::Test {
 protected:
  void expect_refused_or_harmless(const exe::Executable& right) {
    const std::vector<std::string> lines = lines_of(exe::to_text(right));
    const std::vector<TextDamage> damages = text_damages(lines);
    const char* const given = std::getenv("SLUICE_DAMAGES");
    const uint64_t most = given == nullptr ? kDamages : std::strtoull(given, nullptr, 10);
    const size_t stride = std::max<size_t>(1, damages.size() / std::max<uint64_t>(most, 1));
    ASSERT_EQ(right_.size(), 0u);
    for (const uint64_t seed : {1, 2}) right_.push_back(run_plan(right, seed));
    for (size_t i = 0; i < damages.size(); i += stride) {
      const std::string wrong = judge(damaged(lines, damages[i]));
      EXPECT_EQ(wrong, "") << describe(lines, damages[i]);
    }
    std::printf(
        "%zu of %zu damages: refused by the parser %d, the checker %d, the device %d, the "
        "fingerprint %d; harmless %d\n",
        (damages.size() + stride - 1) / stride, damages.size(), tally_.parser, tally_.checker,
        tally_.device, tally_.fingerprint, tally_.harmless);
    EXPECT_GT(tally_.parser, 0);
    EXPECT_GT(tally_.checker, 0);
    EXPECT_GT(tally_.harmless, 0);
  }

 private:
  /// Returns the fault, or an empty text if the plan is refused or computes the right bits. A plan
  /// that only its fingerprint refuses runs too: it may compute anything, but it must end.
  std::string judge(const std::string& text) {
    std::optional<exe::Executable> plan;
    try {
      plan = exe::parse_text(text, "damaged", exe::Fingerprints::kIgnored);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kBadFile) return std::string("parser: ") + e.what();
      ++tally_.parser;
      return "";
    }
    if (!check::violations(*plan).empty()) {
      ++tally_.checker;
      return "";
    }
    if (!fits_devices(*plan)) {
      ++tally_.device;
      return "";
    }
    bool held = true;
    try {
      exe::parse_text(text, "damaged");
    } catch (const Error&) {
      held = false;
    }
    ++(held ? tally_.harmless : tally_.fingerprint);
    try {
      for (size_t i = 0; i < right_.size(); ++i) {
        if (run_plan(*plan, i + 1) != right_[i] && held)
          return "the plan is accepted but computes other bits";
      }
    } catch (const Error& e) {
      if (held) return std::string("the plan is accepted but fails: ") + e.what();
    }
    return "";
  }

  static bool fits_devices(const exe::Executable& plan) {
    const auto cpu = cpu::make_device();
    for (const exe::Device& d : plan.devices) {
      // The executor requires as many workers for each device.
      if (d.kind != cpu->kind() || d.workers != plan.devices[0].workers) return false;
    }
    const std::vector<runtime::Device*> devices(plan.devices.size(), cpu.get());
    return runtime::refused_steps(plan, devices).empty();
  }

  std::vector<RunBytes> right_;
  Tally tally_;
};

TEST_F(TextDamages, OfATrainingStep) {
  expect_refused_or_harmless(compiled_training({.accumulate = 2}, 1));
}

TEST_F(TextDamages, OfPhasesOfReplicasBesideTransfers) {
  expect_refused_or_harmless(compiled_training({.strategy = train::phased(),
                                                .accumulate = 2,
                                                .locations = all_remote(16),
                                                .io_mode = IoMode::kIoOverlapped},
                                               2));
}

TEST_F(TextDamages, OfControlFlowOnTwoDevices) {
  expect_refused_or_harmless(compiled(control_flow_program(), 2));
}

TEST_F(TextDamages, OfCollectives) {
  expect_refused_or_harmless(compiled(data_parallel_program(2)));
}

}  // namespace
}  // namespace sluice::property
