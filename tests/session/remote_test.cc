// Variables in a remote buffer: the device holds one layer at a time, and the bits are the same.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "../support/mlp.h"
#include "sluice/base/test_refusals.h"
#include "sluice/check/checker.h"
#include "sluice/exe/memory_needs.h"
#include "sluice/interp/interpreter.h"

namespace sluice::test {
namespace {

constexpr int64_t kLayers = 6;
constexpr int64_t kLayerWidth = 48;

HostTensor input() {
  return Initializer::normal(0, 1).keyed({3, 4}).evaluate(f32_spec({8, kLayerWidth}));
}

Initializer weight(int64_t layer) {
  return Initializer::normal(0, 0.2f).keyed({7, static_cast<uint32_t>(layer)});
}

// Layers w ← w·0.99 + 0.01·xᵀ·y with y = tanh(x·w). Each layer reads the output of the layer
// before. Every weight is read and changed.
struct Program {
  enum class Weights { kResident, kRemote, kRemoteInLoop };

  explicit Program(Weights where) {
    Graph& main = ir.main_graph();
    x_stream = ir.h2d_stream(f32_spec({8, kLayerWidth}), "x");
    Tensor x = main.host_load(x_stream);
    const TensorSpec spec = f32_spec({kLayerWidth, kLayerWidth});
    if (where != Weights::kResident) buffer = ir.remote_buffer(spec, kLayers);
    for (int64_t k = 0; k < kLayers; ++k) {
      VariableInfo info;
      info.path = fmt::format("w{}", k);
      info.initializer = weight(k);
      if (where != Weights::kResident) info.location = {buffer.id, k};
      weights.push_back(main.variable(spec, info, info.path));
    }
    if (where == Weights::kRemoteInLoop) {
      Graph& layer = ir.create_graph(
          "layer",
          [&](Graph& g, Tensor row, Tensor t) {
            const Tensor w = g.remote_load(buffer, row);
            const Tensor y = ops::tanh(ops::matmul(t, w));
            g.remote_store(buffer, row, next(w, t, y));
            return Tensors{row + 1, y};
          },
          TensorSpec{{}, i32, {}}, x.spec());
      x = ops::repeat(main, layer, kLayers, {main.scalar(0, i32, "row"), x})[1];
    } else {
      for (int64_t k = 0; k < kLayers; ++k) {
        const bool remote = where == Weights::kRemote;
        const Tensor w = remote ? main.remote_load(buffer, k) : weights[static_cast<size_t>(k)];
        const Tensor y = ops::tanh(ops::matmul(x, w));
        if (remote) {
          main.remote_store(buffer, k, next(w, x, y));
        } else {
          ops::copy_var_update_(w, next(w, x, y));
        }
        x = y;
      }
    }
    y_stream = main.host_store(x, "y");
  }

  static Tensor next(const Tensor& w, const Tensor& x, const Tensor& y) {
    return w * 0.99 + ops::matmul(x, y, {.lhs_transposed = true}) * 0.01;
  }

  Ir ir;
  RemoteBuffer buffer;
  H2dStream x_stream;
  D2hStream y_stream;
  Tensors weights;
};

using Weights = Program::Weights;

std::string remote_file_tier() { return "file:" + testing::TempDir(); }

using RemoteCase = std::tuple<Weights, std::string, int>;

class RemotePlaces : public testing::TestWithParam<RemoteCase> {};

TEST_P(RemotePlaces, HaveTheBitsOfResidentWeightsAndOfTheInterpreter) {
  const auto& [where, tier, threads] = GetParam();
  const Program resident(Weights::kResident);
  const HostTensor x = input();
  const Program remote(where);
  Session expected(resident.ir, {.device = cpu_device({.threads = threads})});
  Session session(remote.ir, {.device = cpu_device({.threads = threads}), .remote = tier});
  Interpreter interpreter(remote.ir);
  for (int step = 0; step < 3; ++step) {
    const auto y = session.run({{remote.x_stream, x}});
    EXPECT_TRUE(
        y[remote.y_stream].same_bits(expected.run({{resident.x_stream, x}})[resident.y_stream]));
    EXPECT_TRUE(
        y[remote.y_stream].same_bits(interpreter.run({{remote.x_stream, x}})[remote.y_stream]));
  }
  for (size_t k = 0; k < kLayers; ++k) {
    const HostTensor w = session.read(remote.weights[k]);
    EXPECT_TRUE(w.same_bits(expected.read(resident.weights[k]))) << k;
    EXPECT_TRUE(w.same_bits(interpreter.read(remote.weights[k]))) << k;
    EXPECT_FALSE(w.same_bits(weight(static_cast<int64_t>(k)).evaluate(w.spec())));
  }
}

INSTANTIATE_TEST_SUITE_P(All, RemotePlaces,
                         testing::Combine(testing::Values(Weights::kRemote, Weights::kRemoteInLoop),
                                          testing::Values("host", remote_file_tier()),
                                          testing::Values(1, 2)));

TEST(Remote, AFileTierTakesItsSpaceAtOnceAndLeavesNothing) {
  const std::string folder = testing::TempDir() + "sluice_tier_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  const Program remote(Weights::kRemote);
  {
    Session session(remote.ir, {.device = cpu_device({.threads = 1}), .remote = "file:" + folder});
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    const auto memories = exe::memory_needs(session.executable());
    EXPECT_EQ(memories[1].name, "tier file");
    EXPECT_EQ(memories[1].total_bytes, kLayers * 12288);  // 9,216 bytes in pages of 4,096.
  }
  std::filesystem::remove_all(folder);
  expect_refused(
      {{"a folder that is not there",
        [&] { Session(remote.ir, {.device = cpu_device(), .remote = "file:" + folder}); },
        "cannot make a file in " + folder + ": No such file or directory", ErrorKind::kIo},
       {"no tier", [&] { Session(remote.ir, {.device = cpu_device(), .remote = "disk"}); },
        "remote memory: must be \"host\" or \"file:FOLDER\", got \"disk\""},
       {"no folder", [&] { Session(remote.ir, {.device = cpu_device(), .remote = "file:"}); },
        "got \"file:\""},
       {"no space",
        [&] {
          Ir ir;
          const RemoteBuffer huge = ir.remote_buffer(f32_spec({1 << 20}), 1 << 22);
          ir.main_graph().host_store(ir.main_graph().remote_load(huge, 0), "y");
          Session(ir, {.device = cpu_device(), .remote = remote_file_tier()});
        },
        "cannot allocate 17592186044416 bytes for a file in", ErrorKind::kIo}});
}

TEST(Remote, TheDeviceHoldsALayerTheTierAllOfThem) {
  constexpr int64_t kBytes = kLayerWidth * kLayerWidth * 4;
  const Program resident(Weights::kResident);
  const Program remote(Weights::kRemote);
  const int64_t all = Session(resident.ir, {.device = cpu_device({.threads = 1})}).planned_bytes();
  Session session(remote.ir,
                  {.device = cpu_device({.threads = 1}), .remote_memory = kLayers * kBytes});
  EXPECT_EQ(session.planned_bytes(), session.measured_bytes());
  EXPECT_LE(session.planned_bytes(), all - (kLayers - 2) * kBytes);
  const auto memories = exe::memory_needs(session.executable());
  ASSERT_EQ(memories.size(), 2u);
  EXPECT_EQ(memories[1].total_bytes, kLayers * kBytes);
  expect_refused({{"a byte short",
                   [&] {
                     Session(remote.ir, {.device = cpu_device({.threads = 1}),
                                         .remote_memory = kLayers * kBytes - 1});
                   },
                   "tier host needs", ErrorKind::kDoesNotFit}});
}

TEST(Remote, VariablesAreWrittenSavedAndLoaded) {
  const std::string file =
      testing::TempDir() + "sluice_remote_" + std::to_string(::getpid()) + ".safetensors";
  const Program remote(Weights::kRemote);
  const Program resident(Weights::kResident);
  Session session(remote.ir, {.device = cpu_device({.threads = 1})});
  Session other(resident.ir, {.device = cpu_device({.threads = 1})});
  session.write(remote.weights[2], session.read(remote.weights[4]));
  session.save(file);
  EXPECT_TRUE(other.load(file).empty());
  std::filesystem::remove(file);
  EXPECT_TRUE(
      other.read(resident.weights[2]).same_bits(weight(4).evaluate(resident.weights[2].spec())));
  const HostTensor x = input();
  EXPECT_TRUE(session.run({{remote.x_stream, x}})[remote.y_stream].same_bits(
      other.run({{resident.x_stream, x}})[resident.y_stream]));
}

TEST(Remote, TheProofKnowsWhatAVariableHoldsInTheEnd) {
  Session session(Program(Weights::kRemote).ir, {.device = cpu_device({.threads = 1})});
  exe::Executable damaged = session.executable();
  EXPECT_TRUE(check::violations(damaged).empty());
  // Removes a store.
  for (exe::Function& f : damaged.functions) {
    const auto store = std::find_if(f.steps.begin(), f.steps.end(), [](const exe::Step& s) {
      const auto* issue = std::get_if<exe::Issue>(&s.body);
      return issue != nullptr && issue->kind == exe::TransferKind::kRemoteStore;
    });
    ASSERT_NE(store, f.steps.end());
    f.steps.erase(store);
  }
  const auto found = check::violations(damaged);
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](const check::Violation& v) {
    return v.rule == "final" && v.message.find("variable 'w0'") != std::string::npos;
  }));
}

}  // namespace
}  // namespace sluice::test
