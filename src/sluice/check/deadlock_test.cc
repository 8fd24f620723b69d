// Devices that wait forever are reported with the cycle of their waits.
#include <gmock/gmock.h>

#include "sluice/check/test_checks.h"

namespace sluice::check {
namespace {

using exe::plans::plan;
using exe::plans::replaced;
using exe::plans::two_devices;
using testing::ElementsAre;

std::vector<std::string> messages(const exe::Executable& e) {
  std::vector<std::string> out;
  for (const Violation& v : violations(e)) out.push_back(v.rule + ": " + v.message);
  return out;
}

/// Devices 0, 1 and 2 pass an empty message around; device 3 sends two to device 0.
std::string ring(const std::string& first) {
  std::string text = "sluice executable 1\n";
  for (int d = 0; d < 4; ++d)
    text += fmt::format("device {} kind cpu isa avx2 memory -1 workers 1 queues compute\n", d);
  for (int d = 0; d < 4; ++d)
    text += fmt::format(
        "arena {0} \"slots {0}\" kind slots space device device {0} bytes 64 "
        "stride 0\n",
        d);
  for (int d = 0; d < 4; ++d)
    text += fmt::format(
        "arena {} \"frames {}\" kind frames space device device {} bytes 64 "
        "stride 0\n",
        d + 4, d, d);
  const int to[] = {1, 2, 0, 0};
  for (int d = 0; d < 4; ++d)
    text += fmt::format(
        "channel {0} \"{0} to {1}\" from {0} to {1} capacity 1 arena {1} offset 0 "
        "slot 0\n",
        d, to[d]);
  const auto step = [](int number, const char* what, int channel, int message) {
    return fmt::format("  {} {} {} message {}\n      {} %- at frame+0 bytes 0 float32(0) row\n",
                       number, what, channel, message,
                       std::string(what) == "send" ? "read" : "write");
  };
  const auto function = [&](int d, const std::string& steps) {
    text += fmt::format(
        "function {0} \"main {0}\" memo \"\" device {0} index_params 0 frame 0 "
        "bound 0\n{1}",
        d, steps);
  };
  function(0, first + step(2, "receive", 3, 0) + step(3, "receive", 3, 1));
  function(1, step(0, "receive", 0, 0) + step(1, "send", 1, 0));
  function(2, step(0, "receive", 1, 0) + step(1, "send", 2, 0));
  function(3, step(0, "send", 3, 0) + step(1, "send", 3, 1));
  text += "program \"run\"\n";
  for (int d = 0; d < 4; ++d)
    text += fmt::format("  entry device {0} function {0} frame arena{1}+0\n", d, d + 4);
  return text + "end\n";
}

const char* const kSend = "send 0 message 0\n      read %- at frame+0 bytes 0 float32(0) row\n";
const char* const kReceive =
    "receive 2 message 0\n      write %- at frame+0 bytes 0 float32(0) row\n";

TEST(Deadlock, NamesTheCycle) {
  EXPECT_THAT(messages(plan(ring(fmt::format("  0 {}  1 {}", kSend, kReceive)))), ElementsAre());
  // Device 3 waits for device 0, but is not part of the cycle.
  EXPECT_THAT(
      messages(plan(ring(fmt::format("  0 {}  1 {}", kReceive, kSend)))),
      ElementsAre("deadlock: program 'run': devices wait for each other: "
                  "device 0 ('main 0' step 0) waits for message 0 of channel '2 to 0' from device "
                  "2; device 2 ('main 2' step 0) waits for message 0 of channel '1 to 2' from "
                  "device 1; device 1 ('main 1' step 0) waits for message 0 of channel '0 to 1' "
                  "from device 0"));
}

TEST(Deadlock, NamesTheDeviceThatHasEnded) {
  exe::Executable no_send = plan(two_devices());
  no_send.functions[exe::FunctionId(0)].steps.pop_back();
  EXPECT_THAT(messages(no_send),
              ElementsAre("deadlock: program 'run': device 1 ('main 1' step 0 iteration 0, "
                          "'consume' step 0) waits for message 0 of channel '0 to 1' from device "
                          "0, which has ended"));
  EXPECT_THAT(messages(plan(replaced(two_devices(), "loop 1 frame frame+0 trips 5",
                                     "loop 1 frame frame+0 trips 2"))),
              testing::Contains(
                  "deadlock: program 'run': device 0 ('main 0' step 0 iteration 4, 'produce' "
                  "step 1) waits to send message 4 of channel '0 to 1' (all 2 slots are full) to "
                  "device 1, which has ended"));
}

}  // namespace
}  // namespace sluice::check
