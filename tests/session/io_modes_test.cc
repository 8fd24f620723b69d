// Transfers on I/O queues compute the same bits. They overlap with the work of another phase and
// then need the memory of two phases.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "../support/mlp.h"
#include "sluice/base/test_refusals.h"
#include "sluice/check/checker.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/interp/interpreter.h"
#include "sluice/session/session.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

constexpr int64_t kWidth = 64;
constexpr int64_t kBytes = kWidth * kWidth * 4;

// Phases: each loads layer k's weight, computes y = tanh(x·w), and stores the updated weight. Loads
// and stores are separate graphs, as phase helpers make them.
struct Phases {
  Phases(IoMode mode, int64_t layers) {
    Graph& main = ir.main_graph();
    buffer = ir.remote_buffer(f32_spec({kWidth, kWidth}), layers);
    Graph& load = ir.create_graph(
        "load",
        [&](Graph& g, Tensor row) {
          const Graph::IoScope io(g, mode);
          return g.remote_load(buffer, row);
        },
        TensorSpec{{}, i32, {}});
    Graph& store = ir.create_graph(
        "store",
        [&](Graph& g, Tensor row, Tensor w) {
          const Graph::IoScope io(g, mode);
          g.remote_store(buffer, row, w);
          return Tensors{};
        },
        TensorSpec{{}, i32, {}}, f32_spec({kWidth, kWidth}));
    Graph& layer = ir.create_graph(
        "layer",
        [&](Graph&, Tensor x, Tensor w) {
          const Tensor y = ops::tanh(ops::matmul(x, w));
          return Tensors{y, w * 0.99 + ops::matmul(x, y, {.lhs_transposed = true}) * 0.01};
        },
        f32_spec({4, kWidth}), f32_spec({kWidth, kWidth}));
    for (int64_t k = 0; k < layers; ++k) {
      VariableInfo info;
      info.path = fmt::format("w{}", k);
      info.initializer = Initializer::normal(0, 0.2f).keyed({7, static_cast<uint32_t>(k)});
      info.location = {buffer.id, k};
      weights.push_back(main.variable(f32_spec({kWidth, kWidth}), info, info.path));
    }
    in = ir.h2d_stream(f32_spec({4, kWidth}), "x");
    const Graph::IoScope io(main, mode);
    Tensor x = main.host_load(in);
    for (int64_t k = 0; k < layers; ++k) {
      const Tensor row = main.scalar(static_cast<double>(k), i32, "row");
      const Tensor w = ops::call(main, load, {row})[0];
      const Tensors made = ops::call(main, layer, {x, w});
      ops::call(main, store, {row, made[1]});
      x = made[0];
    }
    out = main.host_store(x, "y");
  }
  HostTensor input() const {
    return Initializer::normal(0, 1).keyed({3, 4}).evaluate(f32_spec({4, kWidth}));
  }

  Ir ir;
  RemoteBuffer buffer;
  H2dStream in;
  D2hStream out;
  Tensors weights;
};

std::string file_tier() { return "file:" + testing::TempDir(); }

using IoCase = std::tuple<IoMode, std::string, int, int>;

class IoModes : public testing::TestWithParam<IoCase> {};

TEST_P(IoModes, HaveTheBitsOfTheInterpreter) {
  const auto& [mode, tier, threads, io_queues] = GetParam();
  const Phases p(mode, 5);
  const HostTensor x = p.input();
  Session session(
      p.ir, {.device = cpu_device({.threads = threads}), .remote = tier, .io_queues = io_queues});
  EXPECT_TRUE(check::violations(session.executable()).empty());
  EXPECT_EQ(session.executable().devices[exe::DeviceId(0)].queues.size(),
            mode == IoMode::kCompute ? 1u : 1u + static_cast<size_t>(io_queues));
  EXPECT_EQ(session.planned_bytes(), session.measured_bytes());
  Interpreter interpreter(p.ir);
  for (int step = 0; step < 4; ++step) {
    const HostTensor want = interpreter.run({{p.in, x}})[p.out];
    if (step < 2) {
      EXPECT_TRUE(session.run({{p.in, x}})[p.out].same_bits(want));
      continue;
    }
    HostTensor got(p.out.spec);
    Binding binding = session.bind({{p.in, x}}, {{p.out, got}});
    session.run_interleaved(binding, static_cast<uint64_t>(step));
    EXPECT_TRUE(got.same_bits(want));
  }
  for (const Tensor& w : p.weights)
    EXPECT_TRUE(session.read(w).same_bits(interpreter.read(w))) << w.name();
}

INSTANTIATE_TEST_SUITE_P(All, IoModes,
                         testing::Combine(testing::Values(IoMode::kCompute, IoMode::kIo,
                                                          IoMode::kIoOverlapped),
                                          testing::Values("host", file_tier()),
                                          testing::Values(1, 2, 3), testing::Values(1, 3)));

exe::Executable plan_of(const Ir& ir, std::vector<std::string> disable = {}) {
  return Session(ir, {.device = cpu_device({.threads = 2}), .disable = std::move(disable)})
      .executable();
}

// Lists a function's steps as words: "load 1" and "store 1" issue a transfer of entry 1; others are
// "wait load 1", "call".
std::vector<std::string> words(const exe::Function& f) {
  std::map<int32_t, std::string> flights;
  std::vector<std::string> all;
  for (const exe::Step& step : f.steps) {
    if (const auto* issue = std::get_if<exe::Issue>(&step.body)) {
      static constexpr const char* kWords[] = {"in", "out", "load", "store"};
      flights[issue->token] = fmt::format("{} {}", kWords[static_cast<size_t>(issue->kind)],
                                          exe::to_string(issue->entry));
      all.push_back(flights[issue->token]);
    } else if (const auto* wait = std::get_if<exe::Wait>(&step.body)) {
      all.push_back("wait " + flights[wait->token]);
    } else {
      all.push_back(std::holds_alternative<exe::Call>(step.body) ? "call" : "kernel");
    }
  }
  return all;
}

std::vector<std::string> words(const exe::Executable& plan) {
  return words(plan.functions[plan.programs[0].starts[0].function]);
}

TEST(IoModes, OverlapOnePhaseWithTheNext) {
  // Layers are inlined because they are small: two kernels each.
  EXPECT_THAT(words(plan_of(Phases(IoMode::kIoOverlapped, 4).ir)),
              testing::ElementsAre(
                  "in 0", "load 0", "load 1", "wait in 0", "wait load 0", "kernel", "kernel",  //
                  "store 0", "load 2", "wait load 1", "kernel", "kernel",                      //
                  "store 1", "wait store 0", "load 3", "wait load 2", "kernel", "kernel",      //
                  "store 2", "wait store 1", "wait load 3", "kernel", "kernel",                //
                  "store 3", "out 0", "wait store 2", "wait store 3", "wait out 0"));
}

TEST(IoModes, IoWaitsAtOnceAndWithoutThePassAllIsOnTheComputeQueue) {
  const exe::Executable io = plan_of(Phases(IoMode::kIo, 2).ir);
  for (const exe::Function& f : io.functions) {
    for (size_t s = 0; s < f.steps.size(); ++s) {
      const auto* issue = std::get_if<exe::Issue>(&f.steps[s].body);
      if (issue == nullptr) continue;
      EXPECT_EQ(issue->queue, 1);
      const auto* wait = std::get_if<exe::Wait>(&f.steps[s + 1].body);
      ASSERT_NE(wait, nullptr);
      EXPECT_EQ(wait->token, issue->token);
    }
  }
  const exe::Executable off = plan_of(Phases(IoMode::kIoOverlapped, 2).ir, {"transfers"});
  EXPECT_EQ(off.devices.front().queues.size(), 1u);
  for (const std::string& word : words(off)) EXPECT_FALSE(word.starts_with("wait")) << word;
}

TEST(IoModes, TwoPhasesAreThereAtOnceHoweverManyThereAre) {
  const auto frames = [](IoMode mode, int64_t layers) {
    const exe::Executable plan = plan_of(Phases(mode, layers).ir);
    return plan.functions[plan.programs[0].starts[0].function].frame_bytes;
  };
  const int64_t four = frames(IoMode::kIoOverlapped, 4);
  EXPECT_EQ(frames(IoMode::kIoOverlapped, 12), four);
  EXPECT_LE(four, frames(IoMode::kCompute, 4) + 2 * kBytes + 1024);
}

// Builds a program of transfers on one buffer of three entries, around calls of a graph that
// computes.
struct Order {
  Order() {
    Graph& main = ir.main_graph();
    x = main.variable(f32_spec({32, 32}), Initializer::constant(1), "x");
    work = &ir.create_graph(
        "work", [](Graph&, Tensor t) { return ops::tanh(ops::matmul(t, t)); }, f32_spec({32, 32}));
  }
  Tensor compute(const Tensor& t) { return ops::call(ir.main_graph(), *work, {t})[0]; }
  std::vector<std::string> finish(const Tensor& t) {
    Graph& main = ir.main_graph();
    const D2hStream out = main.host_store(t, "y");
    Interpreter interpreter(ir);
    const HostTensor want = interpreter.run()[out];
    Session session(ir, {.device = cpu_device({.threads = 2}), .io_queues = io_queues});
    EXPECT_TRUE(session.run({})[out].same_bits(want));
    return words(session.executable());
  }
  Ir ir;
  RemoteBuffer buffer = ir.remote_buffer(f32_spec({32, 32}), 3);
  Tensor x;
  Graph* work = nullptr;
  int io_queues = 1;
};

TEST(IoModes, ALoadStaysBehindTheStoreOfItsEntry) {
  Order o;
  Graph& main = o.ir.main_graph();
  const Graph::IoScope io(main, IoMode::kIoOverlapped);
  const Tensor a = o.compute(o.x);
  main.remote_store(o.buffer, 1, a);
  const Tensor b = o.compute(a);
  const Tensor other = main.remote_load(o.buffer, 2);
  const Tensor same = main.remote_load(o.buffer, 1);
  const Tensor c = o.compute(b + other + same);
  EXPECT_THAT(o.finish(c), testing::ElementsAre("load 2", "kernel", "store 1", "load 1",
                                                "wait load 2", "wait load 1", "kernel", "kernel",
                                                "out 0", "wait store 1", "wait out 0"))
      << "the io queue keeps the order of issue, so nothing waits for the store before its load";
}

// Loads, stores, and prefetches (loads issued one phase early) each have a queue. A
// transfer waits for one on another queue only if the two conflict.
TEST(IoModes, ThreeQueuesKeepPrefetchesOutOfTheWayOfLoads) {
  const auto queues = [](const Ir& ir, int io_queues) {
    Session session(
        ir,
        {.device = cpu_device({.threads = 2}), .io_queues = io_queues, .print_after = "layouts"});
    const exe::Executable& plan = session.executable();
    std::map<std::string, int32_t> found;
    for (const exe::Step& step : plan.functions[plan.programs[0].starts[0].function].steps) {
      if (const auto* issue = std::get_if<exe::Issue>(&step.body)) {
        static constexpr const char* kWords[] = {"in", "out", "load", "store"};
        found[fmt::format("{} {}", kWords[static_cast<size_t>(issue->kind)],
                          exe::to_string(issue->entry))] = issue->queue;
      }
    }
    return found;
  };
  using Queues = std::map<std::string, int32_t>;
  const Phases p(IoMode::kIoOverlapped, 3);
  EXPECT_EQ(queues(p.ir, 3), (Queues{{"in 0", 1},
                                     {"load 0", 1},
                                     {"load 1", 3},
                                     {"load 2", 3},
                                     {"out 0", 2},
                                     {"store 0", 2},
                                     {"store 1", 2},
                                     {"store 2", 2}}));
  for (const auto& [word, queue] : queues(p.ir, 1)) EXPECT_EQ(queue, 1) << word;
  Order o;
  Graph& main = o.ir.main_graph();
  const Graph::IoScope io(main, IoMode::kIoOverlapped);
  const Tensor a = o.compute(o.x);
  main.remote_store(o.buffer, 1, a);
  const Tensor b = o.compute(o.compute(a));
  const Tensor c = o.compute(b + main.remote_load(o.buffer, 1));
  main.remote_store(o.buffer, 1, c);
  o.io_queues = 3;
  EXPECT_THAT(o.finish(c), testing::ElementsAre("kernel", "store 1", "kernel", "wait store 1",
                                                "load 1", "wait load 1", "kernel", "kernel",
                                                "store 1", "out 0", "wait store 1", "wait out 0"));
}

TEST(IoModes, RefuseQueuesThatAreNotThere) {
  const auto compiled = [](IoMode mode, int io_queues) {
    return [=] {
      const Phases p(mode, 2);
      Session session(p.ir, {.device = cpu_device({.threads = 1}), .io_queues = io_queues});
      EXPECT_EQ(session.executable().devices[exe::DeviceId(0)].queues.size(), 1u);
    };
  };
  compiled(IoMode::kCompute, 0)();
  expect_refused({
      {"two queues", compiled(IoMode::kCompute, 2),
       "session: io_queues: must be one of 0, 1, 3, got '2'"},
      {"io without a queue", compiled(IoMode::kIo, 0),
       "io queues: HostLoad in graph main requires at least 1, got 0 (made at"},
      {"overlapped io without a queue", compiled(IoMode::kIoOverlapped, 0),
       "requires at least 1, got 0 (made at"},
  });
}

TEST(IoModes, ALoadOverOldBytesComesEarlyTooButBehindTheirReaders) {
  Order o;
  Graph& main = o.ir.main_graph();
  const Graph::IoScope io(main, IoMode::kIoOverlapped);
  const Tensor t = main.remote_load(o.buffer, 0);
  const Tensor a = o.compute(t + o.x);
  main.remote_store(o.buffer, 2, t);
  const Tensor b = o.compute(o.compute(a));
  main.remote_load_(o.buffer, 1, t);
  const std::vector<std::string> steps = o.finish(o.compute(b + t));
  const auto at = [&](const std::string& word) {
    return std::find(steps.begin(), steps.end(), word) - steps.begin();
  };
  EXPECT_LT(at("wait store 2"), at("load 1")) << "its source is overwritten";
  EXPECT_LT(at("store 2"), at("wait store 2"));
  EXPECT_GT(at("wait load 1"), at("load 1") + 1) << "beside the kernels that do not need it";
}

TEST(IoModes, TransfersOfOtherQueuesWaitForThoseTheyConflictWith) {
  Order o;
  Graph& main = o.ir.main_graph();
  const Tensor a = o.compute(o.x);
  Tensor far;
  {
    const Graph::IoScope io(main, IoMode::kIoOverlapped);
    main.remote_store(o.buffer, 0, a);
    main.remote_store(o.buffer, 1, a);
  }
  const Tensor near = main.remote_load(o.buffer, 1);
  const std::vector<std::string> steps = o.finish(o.compute(near));
  const auto at = [&](const std::string& word) {
    return std::find(steps.begin(), steps.end(), word) - steps.begin();
  };
  EXPECT_LT(at("wait store 1"), at("load 1"));
  EXPECT_GT(at("wait store 0"), at("load 1"));
}

TEST(IoModes, WhatOverwritesTheBytesOfAStoreWaitsForIt) {
  Order o;
  Graph& main = o.ir.main_graph();
  const Graph::IoScope io(main, IoMode::kIoOverlapped);
  main.remote_store(o.buffer, 0, o.x);
  const Tensor a = o.compute(o.x);
  ops::scaled_add_(o.x, a);
  const Tensor b = o.compute(o.x) + main.remote_load(o.buffer, 0);
  const std::vector<std::string> steps = o.finish(b);
  EXPECT_THAT(std::vector(steps.begin(), steps.begin() + 5),
              testing::ElementsAre("store 0", "load 0", "kernel", "wait store 0", "kernel"));
}

// A loop over layers loads the weight of the next layer while it computes a layer. The load uses
// the other slot of the ring and ends within the iteration.
TEST(IoModes, ASkewedLoopLoadsALayerWhileTheOneBeforeComputes) {
  constexpr int64_t kLayers = 6;
  Ir ir;
  Graph& main = ir.main_graph();
  const TensorSpec spec = f32_spec({32, 32});
  const RemoteBuffer buffer = ir.remote_buffer(spec, kLayers);
  for (int64_t k = 0; k < kLayers; ++k) {
    VariableInfo info;
    info.path = fmt::format("w{}", k);
    info.initializer = Initializer::normal(0, 0.2f).keyed({9, static_cast<uint32_t>(k)});
    info.location = {buffer.id, k};
    main.variable(spec, info, info.path);
  }
  Graph& body = ir.create_empty_graph("turn");
  {
    const Graph::IoScope io(body, IoMode::kIoOverlapped);
    const Tensor row = body.input({{}, i32, {}}, "row");
    const Tensor x = body.input(spec, "x");
    const Tensor w = body.input(spec, "w");
    const Tensor y = ops::tanh(ops::matmul(x, w));
    const Tensor next = body.remote_load(buffer, row + 1);
    body.remote_store(buffer, row, w - y * 0.1);
    body.set_outputs({row + 1, y, next});
  }
  const Tensor x = main.variable(spec, Initializer::constant(0.1), "x");
  const Tensors last = ops::repeat(main, body, kLayers - 1,
                                   {main.scalar(0, i32, "row"), x, main.remote_load(buffer, 0)});
  const D2hStream out = main.host_store(ops::matmul(last[1], last[2]), "y");
  Interpreter interpreter(ir);
  const HostTensor want = interpreter.run()[out];
  for (const int threads : {1, 2, 3}) {
    Session session(ir, {.device = cpu_device({.threads = threads})});
    EXPECT_TRUE(session.run({})[out].same_bits(want));
    const exe::Executable& plan = session.executable();
    EXPECT_THAT(words(plan.functions[exe::FunctionId(0)]),
                testing::ElementsAre("load (p0+1)", "kernel", "kernel", "store p0",
                                     "wait load (p0+1)", "wait store p0"));
  }
}

// --- errors ---

// Returns the descriptors of scratch files in a folder. These files have no name any more.
std::vector<int> scratch_files(const std::string& folder) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with(folder) && target.ends_with("(deleted)"))
      found.push_back(std::stoi(entry.path().filename().string()));
  }
  return found;
}

// Replaces the scratch files of a folder while it exists, so that every read and write fails.
class BrokenFiles {
 public:
  explicit BrokenFiles(const std::string& folder) {
    const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
    for (const int fd : scratch_files(folder)) {
      saved_.emplace_back(fd, ::dup(fd));
      ::dup2(full, fd);
    }
    ::close(full);
  }
  ~BrokenFiles() {
    for (const auto& [fd, copy] : saved_) {
      ::dup2(copy, fd);
      ::close(copy);
    }
  }
  size_t count() const { return saved_.size(); }

 private:
  std::vector<std::pair<int, int>> saved_;
};

TEST(IoModes, AFileThatFailsStopsTheRunAndNamesTheEntry) {
  const std::string folder = testing::TempDir() + "sluice_broken_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  for (const IoMode mode : {IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}) {
    for (const int threads : {1, 3}) {
      const Phases p(mode, 3);
      const HostTensor x = p.input();
      Session session(p.ir,
                      {.device = cpu_device({.threads = threads}), .remote = "file:" + folder});
      Interpreter interpreter(p.ir);
      {
        const BrokenFiles broken(folder);
        ASSERT_EQ(broken.count(), 1u);
        for (int i = 0; i < 3; ++i) {
          const std::string what = error_of(ErrorKind::kIo, [&] { session.run({{p.in, x}}); });
          EXPECT_THAT(what, testing::AllOf(testing::HasSubstr(folder),
                                           testing::HasSubstr("entry 0 of remote buffer remote1"),
                                           testing::HasSubstr("running RemoteLoad")));
        }
      }
      // No store was done, so the next run behaves as the first.
      EXPECT_TRUE(session.run({{p.in, x}})[p.out].same_bits(interpreter.run({{p.in, x}})[p.out]));
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(IoModes, AStoreThatFailsSaysSo) {
  const std::string folder = testing::TempDir() + "sluice_full_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  for (const IoMode mode : {IoMode::kCompute, IoMode::kIoOverlapped}) {
    Ir ir;
    Graph& main = ir.main_graph();
    const RemoteBuffer buffer = ir.remote_buffer(f32_spec({kWidth}), 3);
    const Tensor x = main.variable(f32_spec({kWidth}), Initializer::constant(1), "x");
    const Graph::IoScope io(main, mode);
    main.remote_store(buffer, 2, x);
    main.host_store(ops::tanh(x), "y");
    Session session(ir, {.device = cpu_device({.threads = 1}), .remote = "file:" + folder});
    {
      const BrokenFiles broken(folder);
      EXPECT_THAT(
          error_of(ErrorKind::kIo, [&] { session.run({}); }),
          testing::AllOf(testing::HasSubstr("No space left on device"),
                         testing::HasSubstr("while storing entry 2 of remote buffer remote1"),
                         testing::HasSubstr("while running RemoteStore")));
    }
    session.run({});
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::test
