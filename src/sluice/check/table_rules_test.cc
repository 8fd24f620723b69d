// Damage of tables and specs that a run without data does not reveal.

#include "sluice/check/test_checks.h"
#include "sluice/exe/visit_step.h"

namespace sluice::check {
namespace {

using exe::plans::overlapped_loop;
using exe::plans::plan;
using exe::plans::replaced;
using exe::plans::train_step;

TEST(TableRules, VariablesLieInPersistentArenas) {
  // The spare variable needs bytes after the frame that no other object uses.
  const std::string text = replaced(train_step(), "device 0 bytes 192", "device 0 bytes 256");
  const std::string spare =
      "variable 1 \"spare\" float32(16) arena 0 offset 128 bytes 64 row value %- shard 0 group -1 "
      "buffer -1 entry 0 init \"zeros\"\n";
  const std::string with = replaced(replaced(text, "constant 0", spare + "constant 0"),
                                    "device 0 bytes 128", "device 0 bytes 192");
  EXPECT_EQ(all_of(violations(plan(with))), "");
  refuse(with,
         {{"bounds", "arena 0 offset 128 bytes 64", "arena 1 offset 192 bytes 64"},
          {"workspace", "arena 0 offset 128 bytes 64", "arena 2 offset 128 bytes 64"},
          {"bounds", "arena 0 offset 128 bytes 64", "arena 0 offset 128 bytes 32"},
          {"bounds", "\"spare\" float32(16)", "\"spare\" float32(8)"},
          {"bounds", "value %- shard 0", "value %- shard 2"},
          {"remote", "buffer -1 entry 0 init \"zeros\"", "buffer -1 entry 1 init \"zeros\""}});
  refuse(text, {{"bounds", "float32(2) arena 0 offset 64", "float32(2) arena 1 offset 192"}});
}

TEST(TableRules, ShardsHaveTheElementsOfAChunk) {
  const std::string text =
      replaced(replaced(replaced(train_step(), "constant 0",
                                 "variable 1 \"s\" float32(3)of(5) arena 0 offset 72 bytes 12 row "
                                 "value %- shard 2 group -1 buffer -1 entry 0 init \"zeros\"\n"
                                 "constant 0"),
                        "sluice executable 1", "sluice executable 1\nreplicas 2"),
               "stream 0 \"image\"", "group 0 stride 1 size 2\nstream 0 \"image\"");
  EXPECT_EQ(all_of(violations(plan(text))), "");
  refuse(text, {{"bounds", "shard 2", "shard 3"}, {"bounds", "(3)of(5)", "(3)of(9)"}});
}

TEST(TableRules, RemoteVariablesLieInTheirEntries) {
  const std::string text = replaced(
      replaced(overlapped_loop(), "value 0 \"x\" 0",
               "variable 0 \"v\" float32(16) arena 1 offset 64 bytes 64 row value %- shard 0 "
               "group -1 buffer 0 entry 1 init \"zeros\"\nvalue 0 \"x\" 0"),
      "found 2321755625203056276", "found 3203575602268287916");
  EXPECT_EQ(all_of(violations(plan(text))), "");
  refuse(text, {{"remote", "arena 1 offset 64 bytes", "arena 1 offset 128 bytes"},
                {"remote", "arena 1 offset 64 bytes", "arena 0 offset 64 bytes"},
                {"remote", "\"v\" float32(16)", "\"v\" int32(16)"},
                {"remote", "\"v\" float32(16)", "\"v\" float32(4,4)"}});
}

TEST(TableRules, ArenasAndTiers) {
  refuse(train_step(), {{"workspace", "device 0 bytes 192 stride 0", "device 0 bytes 192 stride 8"},
                        {"bounds", "kind frames", "kind persistent"},
                        {"index", "program \"train\"", "program \"train\"\nprogram \"train\""}});
  refuse(overlapped_loop(),
         {{"budget", "tier 0 \"host\" space host budget 4096\n",
           "tier 0 \"host\" space host budget 4096\ntier 1 \"more\" space host budget -1\n"},
          {"bounds", "space host device -1", "space host device 0"}});
}

TEST(Listings, NameTheBuffersOfAFrame) {
  refuse(train_step(), {{"listing", "\"dw\" offset 128 bytes 64", "\"dw\" offset 160 bytes 64"},
                        {"listing", "\"dw\" offset 128 bytes 64", "\"dw\" offset 128 bytes 32"},
                        {"listing", "steps 4 7", "steps 5 7"},
                        {"listing", "steps 4 7", "steps 4 6"},
                        {"listing", "steps 4 7", "steps 4 8"},
                        {"listing", "steps 4 7", "steps -1 7"},
                        {"listing", "frame 192 bound 192", "frame 192 bound 193"}});
}

TEST(StepRules, BytesAreThoseOfTheSpec) {
  const char* const dw = "write %5 at frame+128 bytes 64 float32(4,4) row";
  refuse(train_step(), {{"bounds", dw, "write %5 at frame+128 bytes 64 float32(4,2) row"},
                        {"value", dw, "write %5 at frame+128 bytes 64 int32(4,4) row"},
                        {"stream", "write %2 at frame+0 bytes 64 float32(4,4)",
                         "write %2 at frame+0 bytes 64 float32(16)"},
                        {"stream", "write %2 at frame+0 bytes 64 float32(4,4)",
                         "write %2 at frame+0 bytes 64 int32(4,4)"}});
  refuse(overlapped_loop(), {{"remote", "write %0 at frame+64@ring(2,64,0) bytes 64 float32(16)",
                              "write %0 at frame+64@ring(2,64,0) bytes 64 float32(4,4)"},
                             {"bounds", "param 0 \"x\" read %2 bytes 64 float32(16)",
                              "param 0 \"x\" read %2 bytes 64 float32(8)"},
                             {"access", "param 0 \"x\" read %2 bytes 64 float32(16)",
                              "param 0 \"x\" read %2 bytes 64 int32(16)"},
                             {"access", "read %0 at frame+64@ring(2,64,it) bytes 64 float32(16)",
                              "read %0 at frame+64@ring(2,64,it) bytes 64 int32(16)"},
                             {"loop",
                              "      carry 0:1\n      index it\n      read %0 at "
                              "frame+64@ring(2,64,it) bytes 64 float32(16)",
                              "      carry 0:1\n      index it\n      read %0 at "
                              "frame+64@ring(2,64,it) bytes 64 int32(16)"}});
  refuse(exe::plans::two_devices(),
         {{"channel", "0 receive 0 message p0\n      write %0 at frame+0 bytes 64 float32(16)",
           "0 receive 0 message p0\n      write %0 at frame+0 bytes 64 int32(16)"}});
}

TEST(StepRules, OperandsBeginAtAWholeElement) {
  refuse(train_step(), "bounds", "one byte further", [](exe::Executable& e) {
    exe::Function& f = e.functions[exe::FunctionId(0)];
    e.arenas[exe::ArenaId(1)].bytes = f.frame_bytes = 193;
    f.buffers[2].offset = 129;
    for (exe::Step& step : f.steps) {
      exe::for_each_operand(step, [](exe::Operand& o) {
        if (o.at.base == exe::Address::Base::kFrame && o.at.offset == 128) o.at.offset = 129;
      });
    }
  });
}

/// Returns a plan whose loop reads `trips` entries of a stream while the program announces
/// `entries`.
exe::Executable long_loop(const std::string& trips, const std::string& entries,
                          const std::string& entry = "p0") {
  return plan(
      "sluice executable 1\ndevice 0 kind cpu isa avx2 memory -1 workers 1 queues compute\n"
      "arena 0 \"frames\" kind frames space device device 0 bytes 64 stride 0\n"
      "stream 0 \"x\" in float32(16)\nvalue 0 \"x\" 0\n"
      "function 0 \"body\" memo \"\" device 0 index_params 1 frame 64 bound 64\n"
      "  0 issue stream_in 0 entry " +
      entry +
      " queue 0 token 0\n"
      "      write %0 at frame+0 bytes 64 float32(16) row\n"
      "function 1 \"main\" memo \"\" device 0 index_params 0 frame 64 bound 64\n"
      "  0 loop 0 frame frame+0 trips " +
      trips +
      "\n      index it\n"
      "program \"run\"\n  entry device 0 function 1 frame arena0+0\n  stream 0 entries " +
      entries + "\nend\n");
}

// Without a limit of steps, the simulation of these loops would take too long.
TEST(Counts, AreComparedWithoutAWalk) {
  const Options endless{.max_steps = INT64_MAX};
  const auto expect = [&](const exe::Executable& e, const std::string& rule,
                          const std::string& part) {
    const std::string found = all_of(violations(e, endless));
    EXPECT_NE(found.find(rule + ": "), std::string::npos) << found;
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  EXPECT_EQ(all_of(violations(long_loop("3", "3"))), "");
  expect(long_loop("2147483648", "3"), "stream",
         "program 'run': stream 'x': must use 3 entries, got 2147483648");
  expect(long_loop("3", "2147483648"), "stream", "stream 'x': must use 2147483648 entries, got 3");
  // The counts are right. The simulation stops soon after the first wrong entry.
  expect(long_loop("2147483648", "2147483648", "(p0%3)"), "stream",
         "'main' step 0 iteration 3, 'body' step 0");
}

TEST(Counts, StepsBeyondTheLimitAreNotWalked) {
  // The entries are right, but a quotient in their number keeps the checker from leaving the loop.
  const std::vector<Violation> found =
      violations(long_loop("2147483648", "2147483648", "((p0/5)+(p0-(p0/5)))"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rule, "limit");
  EXPECT_EQ(found[0].message, "program 'run': more than 50000000 steps");
}

TEST(Counts, OfCollectivesAndRemoteTransfers) {
  refuse(exe::plans::collectives(), {{"collective", "trips 3", "trips 2147483648"},
                                     {"collective", "collectives 3 device 0 group 1\n", ""}});
  refuse(overlapped_loop(), {{"remote", "trips 5", "trips 2147483648"},
                             {"remote", "loads 6 stores 0", "loads 5 stores 0"},
                             {"remote", "loads 1 stores 6", "loads 1 stores 5"}});
}

}  // namespace
}  // namespace sluice::check
