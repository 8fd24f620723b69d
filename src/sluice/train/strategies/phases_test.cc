#include "sluice/train/strategies/phases.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/executable.h"

#include <gtest/gtest.h>

#include <map>

#include "sluice/exe/visit_step.h"
#include "sluice/nn/layers.h"
#include "sluice/report/traffic.h"
#include "sluice/session/session.h"

namespace sluice::train {
namespace {

// The network of document 000.
struct FourLayers : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const {
    for (const auto* layer : {&fc1, &fc2, &fc3}) x = ops::gelu((*layer)(b, x));
    return fc4(b, x);
  }
  nn::Child<nn::Linear> fc1{*this, "fc1", 512}, fc2{*this, "fc2", 512}, fc3{*this, "fc3", 512},
      fc4{*this, "fc4", 10};
};

// Number of entries by the buffer's spec and the shape of the whole tensor.
using Entries = std::multimap<std::string, int64_t>;
Entries buffers(const Ir& ir) {
  Entries all;
  for (int32_t b = 1; b <= ir.remote_buffer_count(); ++b) {
    const RemoteBufferInfo& info = ir.remote_buffer_info(b);
    std::string text = to_string(TensorSpec{info.spec.shape, info.spec.dtype, {}});
    if (!info.spec.meta_shape.empty()) text += " of " + to_string(info.spec.meta_shape);
    all.emplace(text, info.entries);
  }
  return all;
}

// Counts the collectives in one run of a function, by operator.
void count_collectives(const exe::Executable& e, int32_t function, int64_t times,
                       std::map<std::string, int64_t>& counts) {
  for (const exe::Step& step : e.functions[static_cast<size_t>(function)].steps) {
    if (const auto* c = std::get_if<exe::Collective>(&step.body)) counts[c->op] += times;
    const auto* loop = std::get_if<exe::Loop>(&step.body);
    exe::for_each_call(step, [&](const exe::Call& c) {
      count_collectives(e, c.function, loop == nullptr ? times : times * loop->trips, counts);
    });
  }
}

// Checks the remote traffic of each replica in one run of document 000's program.
void expect_traffic_of_the_document(const exe::Executable& executable) {
  const exe::Program& program = executable.program("train");
  for (const auto& s : program.streams) EXPECT_EQ(s.entries, 4);
  int64_t loads = 0, loaded = 0, stores = 0, stored = 0;
  for (const report::Traffic& t : report::TrafficCounter(executable).of(program)) {
    const bool in = t.kind == exe::TransferKind::kRemoteLoad;
    if (!in && t.kind != exe::TransferKind::kRemoteStore) continue;
    (in ? loads : stores) += t.transfers;
    (in ? loaded : stored) += t.bytes;
  }
  EXPECT_EQ(loads, 78);
  EXPECT_EQ(loaded, 7337572);
  EXPECT_EQ(stores, 64);
  EXPECT_EQ(stored, 5352036);
  std::map<std::string, int64_t> collectives;
  count_collectives(executable, program.starts[0].function, 1, collectives);
  EXPECT_EQ(collectives, (std::map<std::string, int64_t>{{"ReplicatedAllGather", 13},
                                                         {"ReplicatedReduceScatter", 7},
                                                         {"ReplicatedAllReduce", 1}}));
}

// The buffers of document 000's program are listed in appendix B of the reference's specification.
TEST(Phases, SevenPhasesHaveTheBuffersAndTheTrafficOfTheDocument) {
  Ir ir(2);
  build_training(ir, classifier(FourLayers(), f32_spec({8, 784})), nn::Optimizer::adam_f16(),
                 {.strategy = phased(),
                  .accumulate = 4,
                  .locations = {.optimizer = Location::kRemote,
                                .weights = Location::kRemote,
                                .activations = Location::kRemote,
                                .min_elements_sharded = 512}});
  const Entries variables{{"(200704,) float32 of (784, 512)", 1},
                          {"(200704,) float16 of (784, 512)", 1},
                          {"(200704,) float32 of (784, 512)", 1},
                          {"(131072,) float32 of (512, 512)", 2},
                          {"(131072,) float16 of (512, 512)", 2},
                          {"(131072,) float32 of (512, 512)", 2},
                          {"(2560,) float32 of (512, 10)", 1},
                          {"(2560,) float16 of (512, 10)", 1},
                          {"(2560,) float32 of (512, 10)", 1},
                          {"(256,) float32 of (512,)", 1},
                          {"(256,) float16 of (512,)", 1},
                          {"(256,) float32 of (512,)", 1},
                          {"(256,) float32 of (512,)", 2},
                          {"(256,) float16 of (512,)", 2},
                          {"(256,) float32 of (512,)", 2},
                          {"(10,) float32", 1},
                          {"(10,) float16", 1},
                          {"(10,) float32", 1}};
  // The inputs of fc1; those of gelu, by layer; the values and the gradients between the layers.
  Entries want{{"(8, 784) float32", 4},
               {"(8, 512) float32", 4},
               {"(8, 512) float32", 8},
               {"(8, 512) float32", 12},
               {"(8, 512) float32", 12}};
  want.insert(variables.begin(), variables.end());
  const auto sorted = [](const Entries& e) {
    std::vector<std::pair<std::string, int64_t>> list(e.begin(), e.end());
    std::sort(list.begin(), list.end());
    return list;
  };
  EXPECT_EQ(sorted(buffers(ir)), sorted(want));
  const Session session(ir, {.device = cpu_device()});  // Session verifies the plan.
  expect_traffic_of_the_document(session.executable());
}

}  // namespace
}  // namespace sluice::train
