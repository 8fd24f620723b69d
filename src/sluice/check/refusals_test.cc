// Each edit makes a correct plan wrong. The checker must report the rule that it breaks.

#include "sluice/base/test_refusals.h"
#include "sluice/check/checker.h"
#include "sluice/exe/test_plans.h"
#include "sluice/exe/text.h"

namespace sluice::check {
namespace {

struct Defect {
  std::string rule;
  std::string from;
  std::string to;
  std::string part;  ///< Expected part of the violation's message.
};

void expect_defects(const std::string& text, const std::vector<Defect>& defects,
                    const Options& options = {}) {
  for (const Defect& d : defects) {
    const exe::Executable e =
        exe::plans::plan(d.from.empty() ? text : exe::plans::replaced(text, d.from, d.to));
    bool found = false;
    std::string all;
    for (const Violation& v : violations(e, options)) {
      found |= v.rule == d.rule && v.message.find(d.part) != std::string::npos;
      all += "\n  [" + v.rule + "] " + v.message;
    }
    EXPECT_TRUE(found) << d.from << " -> " << d.to << "\n  expected: [" << d.rule << "] " << d.part
                       << all;
  }
}

TEST(CheckRefusals, DefectsOfArenas) {
  expect_defects(
      exe::plans::train_step(),
      {
          {"workspace", "workspace space device device 0", "workspace space device device -1",
           "arena 'workspace': a workspace must belong to a device"},
          {"workspace", "stream 0 \"image\"",
           "arena 3 \"more\" kind workspace space device device 0 bytes 256 stride 128\n"
           "stream 0 \"image\"",
           "device 0 has two workspace arenas"},
          {"workspace", "arena 0 offset 64 value", "arena 2 offset 64 value",
           "constant 'scale' must not be in the workspace"},
          {"budget", "memory 1024", "memory 575",
           "device 0: arenas need 576 bytes, the budget is 575"},
      });
  expect_defects(exe::plans::overlapped_loop(),
                 {{"budget", "budget 4096", "budget 1023",
                   "tier 'host': arenas need 1024 bytes, the budget is 1023"}});
  expect_defects(exe::plans::two_devices(),
                 {{"bounds", "row\nfunction 1",
                   "row\n  2 kernel cpu.neg Neg tasks 1 workspace 0\n"
                   "      read %- at arena1+0 bytes 64 float32(16) row\nfunction 1",
                   "a step of device 0 must not use arena 'frames 1'"}});
}

TEST(CheckRefusals, DefectsOfRemoteVariables) {
  const auto variable = [](int number, int bytes) {
    return fmt::format(
        "variable {0} \"v{0}\" float32(16) arena 1 offset 0 bytes {1} row value %- "
        "shard 0 group -1 buffer 0 entry 1 init \"zeros\"\n",
        number, bytes);
  };
  expect_defects(
      exe::plans::overlapped_loop(),
      {
          {"remote", "value 0 \"x\" 0", variable(0, 128) + "value 0 \"x\" 0",
           "variable 'v0' must be at most 64 bytes, an entry of 'acts', got 128"},
          {"overlap", "value 0 \"x\" 0", variable(0, 64) + variable(1, 64) + "value 0 \"x\" 0",
           "variable 'v1': entry 1 of 'acts' already holds another variable"},
      });
}

TEST(CheckRefusals, DefectsOfTransfersAndCalls) {
  const std::string image = "write %2 at frame+0 bytes 64 float32(4,4) row\n";
  expect_defects(exe::plans::train_step(),
                 {
                     {"stream", image,
                      image + "      entry_from read %1 at arena0+64 bytes 4 float32(1) row\n",
                      "the entry of a stream must not be read from memory"},
                     {"remote", "entry 0 queue 1 token 0", "entry 0 queue 1 token 0 found %2",
                      "'found' requires a load from a remote buffer"},
                 });
  const std::string next = "write %3 at param1+0 bytes 64 float32(16) row\n";
  expect_defects(
      exe::plans::overlapped_loop(),
      {{"access", next, next + "      entry_from read %2 at param0+0 bytes 64 float32(16) row\n",
        "entry: must read 4 bytes, got read of 64 bytes"}});
  expect_defects(exe::plans::two_devices(),
                 {{"access", "read %0 at frame+0 bytes 64 float32(16) row\nfunction 1",
                   "write %0 at frame+0 bytes 64 float32(16) row\nfunction 1",
                   "message: access must be read, got write"}});
  const std::string x = "read %8 at param1+0 bytes 64 float32(16) row\nfunction 1";
  expect_defects(exe::plans::by_reference(),
                 {{"overlap", x, "write %- at param0+0 bytes 64 float32(16) row\nfunction 1",
                   "operands 0 and 1 are both written and share bytes"}});
  expect_defects(exe::plans::branch(), {{"bounds", "then 0 frame frame+0", "then 0 frame param1+0",
                                         "the frame of 'then' must not be in a parameter"}});
}

TEST(CheckRefusals, DefectsOfBranches) {
  expect_defects(exe::plans::two_devices(),
                 {{"branch", "0 sync loop 1 frame frame+0 trips 5\n      index it",
                   "0 sync branch then 1 frame frame+0 else 1 frame frame+0\n"
                   "      condition read %- at frame+0 bytes 1 bool(1) row\n"
                   "      then\n      index 0\n      else\n      index 0",
                   "an arm waits for another device"},
                  {"branch", "0 sync loop 1 frame frame+0 trips 5\n      index it",
                   "0 sync branch then 1 frame frame+0 else 1 frame frame+0\n"
                   "      condition read %- at frame+0 bytes 1 bool(1) row\n"
                   "      then\n      index 0\n      else\n      index 0",
                   "the arm 'consume' communicates"}});
}

TEST(CheckRefusals, Limits) {
  expect_defects(exe::plans::by_reference(), {{"limit", "", "", "more than 1 nested calls"}},
                 {.max_depth = 1});
  expect_defects(exe::plans::carried_ring(), {{"limit", "", "", "more than 2 steps"}},
                 {.max_steps = 2});
  // Each replica adds the steps of its program, and a file may name two billion replicas.
  const std::string many =
      exe::plans::replaced(exe::plans::replaced(exe::plans::two_devices(), "sluice executable 1",
                                                "sluice executable 1\nreplicas 2147483647"),
                           "1 send 0 message p0", "1 send 0 message ((p0+rep)-rep)");
  expect_defects(many, {{"limit", "", "", "steps"}}, {.max_steps = 10'000});
}

TEST(CheckRefusals, Proofs) {
  const exe::Executable ring = exe::plans::plan(exe::plans::carried_ring());
  const exe::Executable broken = exe::plans::plan(exe::plans::replaced(
      exe::plans::two_devices(), "1 send 0 message p0", "1 send 0 message (p0+1)"));
  prove(ring);
  expect_refused(
      {{"too long", [&] { prove(ring, {.max_steps = 2}); },
        "the plan is too long to be proved; use fewer micro-batches", ErrorKind::kUsage},
       {"how long", [&] { prove(ring, {.max_steps = 2}); }, "more than 2 steps", ErrorKind::kUsage},
       {"wrong", [&] { prove(broken); }, "the plan's proof fails:\n  [channel] ",
        ErrorKind::kInternal}});
}

}  // namespace
}  // namespace sluice::check
