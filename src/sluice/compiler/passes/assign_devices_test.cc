#include "sluice/compiler/passes/assign_devices.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

TEST(AssignDevices, NodesThatNameNoDeviceGetThatOfTheirBody) {
  TestProgram p(R"(
    body main entry device -1
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel Neg in %1 out %2 f32(4) device 1
    end)",
                {}, 2);
  EXPECT_EQ(assign_devices(p.program, p.context), 1);
  p.expect(R"(
    body main entry device 0
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel Neg in %1 out %2 f32(4) device 1
    end)");
}

// f is called on devices 0 and 1; one of its nodes names device 0.
TEST(AssignDevices, ABodyThatIsCalledOnTwoDevicesHasACopyForEach) {
  TestProgram p(R"(
    body main entry device -1
      param %0 bool()
      call 1 in %0
      call 1 in %0 device 1
      call 1 in %0 device 1
    end
    body f function device -1
      param %0 bool()
      call 2
      branch 2 2 then 0 in %0 device 0
    end
    body g function device -1
      kernel Init out %0 f32(4)
    end)",
                {}, 2);
  assign_devices(p.program, p.context);
  p.expect(R"(
    body main entry
      param %0 bool()
      call 1 in %0
      call 3 in %0 device 1
      call 3 in %0 device 1
    end
    body f function
      param %0 bool()
      call 2
      branch 2 2 then 0 in %0
    end
    body g function
      kernel Init out %0 f32(4)
    end
    body f function device 1
      param %0 bool()
      call 4
      branch 2 2 then 0 in %0 device 0
    end
    body g function device 1
      kernel Init out %0 f32(4)
    end)");
}

TEST(AssignDevices, RefusesDevicesThatAreNotThere) {
  TestProgram p(R"(
    body main entry device -1
      kernel Init out %0 f32(4) device 2 where "line 7"
    end)",
                {}, 2);
  expect_refused({{"2", [&] { assign_devices(p.program, p.context); },
                   "Init made at line 7: there is no device 2, the program has 2"}});
}

}  // namespace
}  // namespace sluice::compiler
