// Collectives of opaque devices: what they refuse, and what happens when a device is lost.
#include <gmock/gmock.h>

#include "../../replicas/thread_group.h"
#include "../device.h"
#include "../target.h"
#include "sluice/runtime/loaded_program.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Computes the sum and the parts of x over the replicas.
struct Sum {
  explicit Sum(int replicas, int64_t elements) : ir(replicas) {
    Graph& main = ir.main_graph();
    in = ir.h2d_stream({{elements}, f32, {}}, "x");
    const Tensor x = ops::replicated_all_reduce(main.host_load(in));
    out = main.host_store(ops::replicated_all_gather(x), "y");
  }
  Ir ir;
  H2dStream in;
  D2hStream out;
};

TEST(OpaqueReplicas, RunInOneProcess) {
  for_each_process(2, [](const auto& group) {
    try {
      Session session(Sum(2, 8).ir, {.device = cpu_device(), .group = group});
      ADD_FAILURE() << "a session of two processes";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUsage);
      EXPECT_THAT(e.what(), HasSubstr("device 0: devices with queues must run in one "
                                      "process, got 2 processes"));
    }
  });
}

// Member 0 of 4 reads 64 of 200 elements of each of the other members. A gather reads all of them.
TEST(OpaqueReplicas, HaveRoomForWhatAShareReads) {
  const DeviceChoice choice = cpu_device();
  exe::Executable e = Session(Sum(4, 200).ir, {.device = choice}).executable();
  std::vector<exe::Collective*> collectives;
  for (exe::Step& step : e.functions[exe::FunctionId(0)].steps) {
    if (auto* c = std::get_if<exe::Collective>(&step.body)) collectives.push_back(c);
  }
  ASSERT_EQ(collectives.size(), 2u);
  EXPECT_EQ(collectives[0]->workspace_bytes, 3 * 256);
  EXPECT_EQ(collectives[1]->workspace_bytes, 3 * 1024);
  EXPECT_THAT(runtime::refused_steps(e, {choice.device.get()}), ElementsAre());
  --collectives[1]->workspace_bytes;
  EXPECT_THAT(runtime::refused_steps(e, {choice.device.get()}),
              ElementsAre(HasSubstr("collective ReplicatedAllGather: workspace must be at least "
                                    "3072 bytes, got 3071")));
}

// If any call loses a device, the run ends with one error, and no replica hangs.
TEST(OpaqueReplicas, EndWhenADeviceIsLost) {
  const Sum sum(3, 200);
  const HostTensor x = HostTensor(TensorSpec{{3, 200}, f32, {}});
  for (const opaque::Mode mode : {opaque::Mode::kLazy, opaque::Mode::kThreads}) {
    int failures = 0;
    for (int64_t call = 1;; call += 1 + call / 20) {
      try {
        Session session(sum.ir,
                        {.device = {opaque::make_target(),
                                    opaque::make_device({.mode = mode, .fail_at = call}), -1, 1}});
        session.run({{sum.in, x}});
        break;
      } catch (const Error& e) {
        ASSERT_TRUE(e.kind() == ErrorKind::kPeerLost || e.kind() == ErrorKind::kDoesNotFit)
            << e.what();
        ++failures;
      }
    }
    EXPECT_GT(failures, 20);
  }
}

}  // namespace
}  // namespace sluice::test
