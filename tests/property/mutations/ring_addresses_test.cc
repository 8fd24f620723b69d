// The checker and the runtime compute the address of a ring slot separately. Both must follow the
// contract of exe::Address for any expression.
#include <gtest/gtest.h>

#include <string>

#include "../plan_run.h"
#include "sluice/base/rng.h"
#include "sluice/check/checker.h"
#include "sluice/cpu/device/cpu.h"
#include "sluice/exe/ring_slots.h"
#include "sluice/exe/test_plans.h"
#include "sluice/exe/text.h"
#include "sluice/runtime/loaded_program.h"

namespace sluice::property {
namespace {

constexpr int64_t kDepth = 5;

/// A function fills the slots of a ring with values 0 to kDepth - 1. It then stores slot `slot`,
/// and names the value there `value`.
std::string ring_plan(const std::string& slot, int64_t value, int64_t p0, int64_t p1) {
  std::string text = R"(sluice executable 1
device 0 kind cpu isa avx2 memory -1 workers 1 queues compute
arena 0 "frames" kind frames space device device 0 bytes 128 stride 0
stream 0 "in" in float32(4)
stream 1 "out" out float32(4)
)";
  for (int64_t k = 0; k < kDepth; ++k) text += fmt::format("value {} \"slot{}\" 0\n", k, k);
  text += "function 0 \"inner\" memo \"\" device 0 index_params 2 frame 80 bound 80\n";
  for (int64_t k = 0; k < kDepth; ++k) {
    text += fmt::format(
        "  {} issue stream_in 0 entry {} queue 0 token {}\n"
        "      write %{} at frame+{} bytes 16 float32(4) row\n",
        k, k, k, k, 16 * k);
  }
  text += fmt::format(
      "  {0} issue stream_out 1 entry 0 queue 0 token {0}\n"
      "      read %{1} at frame+0@ring({0},16,{2}) bytes 16 float32(4) row\n"
      "function 1 \"main\" memo \"\" device 0 index_params 0 frame 80 bound 0\n"
      "  0 call 0 frame frame+0\n"
      "      index {3} {4}\n"
      "program \"run\"\n"
      "  entry device 0 function 1 frame arena0+0\n"
      "  stream 0 entries {0}\n"
      "  stream 1 entries 1\n"
      "end\n",
      kDepth, value, slot, p0, p1);
  return text;
}

/// Draws an expression of both parameters.
std::string random_expression(const Seed& key, uint64_t& draws, int depth) {
  const auto draw = [&](uint64_t n) { return random_bits(key, draws++) % n; };
  const uint64_t leaf = draw(4);
  if (depth == 0 || leaf == 0) {
    if (draw(3) == 0) return std::to_string(static_cast<int64_t>(draw(15)) - 4);
    return draw(2) == 0 ? "p0" : "p1";
  }
  const char op = "+-*/%"[draw(5)];
  const std::string left = random_expression(key, draws, depth - 1);
  const std::string right = op == '/' || op == '%' ? std::to_string(1 + draw(6))
                                                   : random_expression(key, draws, depth - 1);
  return "(" + left + op + right + ")";
}

exe::Executable without_check(const std::string& slot, int64_t p0, int64_t p1) {
  exe::Executable e = exe::plans::plan(ring_plan("0", 0, p0, p1));
  auto& last = std::get<exe::Issue>(e.functions[exe::FunctionId(0)].steps.back().body);
  last.memory.at.slot = exe::parse_index_expr(slot);
  return e;
}

TEST(RingAddresses, CheckerAndRuntimeFollowTheContractForRandomExpressions) {
  std::vector<RunBytes> of_slots;
  for (int64_t k = 0; k < kDepth; ++k)
    of_slots.push_back(run_plan(exe::plans::plan(ring_plan(std::to_string(k), k, 0, 0)), 0));
  EXPECT_NE(of_slots[0], of_slots[1]);
  const std::vector<std::shared_ptr<runtime::Device>> cpus{cpu::make_device()};
  int accepted = 0, refused = 0;
  for (uint32_t i = 0; i < 300; ++i) {
    const Seed key{i, 35};
    uint64_t draws = 0;
    const auto p0 = static_cast<int64_t>(random_bits(key, draws++) % 13) - 3;
    const auto p1 = static_cast<int64_t>(random_bits(key, draws++) % 13) - 3;
    const std::string text = random_expression(key, draws, 3);
    SCOPED_TRACE(fmt::format("slot {}, p0 {}, p1 {}", text, p0, p1));
    const int64_t params[] = {p0, p1};
    const int64_t slot = exe::parse_index_expr(text).evaluate({params, 0, 0});
    if (slot < 0) {
      ++refused;
      const exe::Executable e = without_check(text, p0, p1);
      EXPECT_FALSE(check::violations(e).empty());
      EXPECT_THROW(runtime::load(e, {cpus[0].get()}), Error);
      EXPECT_THROW(exe::plans::plan(ring_plan(text, 0, p0, p1)), Error);
      continue;
    }
    ++accepted;
    const int64_t at = slot % kDepth;
    const exe::Executable right = exe::plans::plan(ring_plan(text, at, p0, p1));
    EXPECT_TRUE(check::violations(right).empty());
    EXPECT_EQ(run_plan(right, 0), of_slots[static_cast<size_t>(at)]);
    const int64_t other = (at + 1) % kDepth;
    EXPECT_FALSE(check::violations(exe::plans::plan(ring_plan(text, other, p0, p1))).empty());
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 50);
}

// Bounds hold for all iterations and calls, also those that the checker skips.
TEST(RingAddresses, SlotsThatFallBelow0LateAreRefused) {
  const std::string right = exe::plans::carried_ring();
  const std::string late =
      exe::plans::replaced(right, "@ring(2,64,it)", "@ring(2,64,(1000000-it))");
  EXPECT_NO_THROW(exe::plans::plan(late));
  try {
    exe::plans::plan(exe::plans::replaced(late, "(1000000-it)", "(999998-it)"));
    ADD_FAILURE() << "the plan is accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("ring slot (999998-it) must be at least 0, got -2"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace sluice::property
