// An error in a run is rethrown to the caller with the op's name, and the session can run again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "../support/mlp.h"
#include "sluice/cpu/device/cpu.h"
#include "sluice/runtime/executor.h"

namespace sluice::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RemoteEntries : public testing::Test {
 protected:
  RemoteEntries() {
    Graph& main = ir.main_graph();
    x = main.host_load(in);
    const Tensor entry = main.host_load(which);
    main.remote_store(buffer, 0, x);
    main.remote_store(buffer, entry, x + 1.0);
    main.host_store(first, main.remote_load(buffer, 0));
    main.host_store(chosen, main.remote_load(buffer, entry));
    main.host_store(last,
                    main.remote_load(buffer, main.constant(HostTensor::of<int32_t>({}, i32, {2}))));
  }
  HostTensors run(Session& session, float value, int32_t entry) {
    return session.run({{in, HostTensor::of<float>({2}, f32, {value, value})},
                        {which, HostTensor::of<int32_t>({}, i32, {entry})}});
  }

  Ir ir;
  H2dStream in = ir.h2d_stream(f32_spec({2}), "in");
  H2dStream which = ir.h2d_stream(i32_spec({}), "which");
  D2hStream first = ir.d2h_stream(f32_spec({2}), "first");
  D2hStream chosen = ir.d2h_stream(f32_spec({2}), "chosen");
  D2hStream last = ir.d2h_stream(f32_spec({2}), "last");
  RemoteBuffer buffer = ir.remote_buffer(f32_spec({2}), 3);
  Tensor x;
};

TEST_F(RemoteEntries, ConstantAndComputed) {
  for (const int threads : {1, 3}) {
    Session session(ir, {.device = cpu_device({.threads = threads})});
    HostTensors r = run(session, 5, 1);
    EXPECT_EQ(r[first].as<float>()[0], 5);
    EXPECT_EQ(r[chosen].as<float>()[1], 6);
    EXPECT_EQ(r[last].as<float>()[0], 0);  // No store has used this entry.
    r = run(session, 7, 0);                // The later store, to computed entry 0, wins.
    EXPECT_EQ(r[first].as<float>()[0], 8);
    EXPECT_EQ(r[chosen].as<float>()[0], 8);
    run(session, 9, 2);
    // Entries keep their values between runs.
    EXPECT_EQ(run(session, 1, 1)[last].as<float>()[0], 10);
  }
}

TEST_F(RemoteEntries, OutOfRangeAtRunTimeIsAnErrorAndTheSessionGoesOn) {
  for (const int threads : {1, 3}) {
    Session session(ir, {.device = cpu_device({.threads = threads})});
    for (const int32_t entry : {3, -1, 1 << 30}) {
      const std::string what = error_of(ErrorKind::kUsage, [&] { run(session, 1, entry); });
      EXPECT_THAT(what, AllOf(HasSubstr(fmt::format("entry {} is outside its 3 entries", entry)),
                              HasSubstr("remote"), HasSubstr("running RemoteStore")));
    }
    EXPECT_EQ(run(session, 5, 1)[chosen].as<float>()[0], 6);
  }
}

TEST_F(RemoteEntries, OutOfRangeConstantsAreRefusedBeforeTheyRun) {
  Graph& main = ir.main_graph();
  error_of(ErrorKind::kUsage, [&] { main.remote_load(buffer, 3); });
  error_of(ErrorKind::kUsage, [&] { main.remote_store(buffer, -1, x); });
  main.remote_store(buffer, main.constant(HostTensor::of<int32_t>({}, i32, {3})), x);
  EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { Session session(ir, {.device = cpu_device()}); }),
              HasSubstr("entry must be 0 to 2, got 3"));
}

// A CPU device that calls a hook before each task of a kernel, on any worker.
using Hook = std::function<void(const exe::Kernel&, int64_t task)>;

struct HookedKernel {
  exe::Kernel kernel;
  runtime::BoundKernel inner;
  std::shared_ptr<Hook> hook;
};

class HookedDevice : public runtime::Device {
 public:
  explicit HookedDevice(std::shared_ptr<Hook> hook) : hook_(std::move(hook)) {}
  std::string kind() const override { return cpu_->kind(); }
  std::unique_ptr<runtime::OpenDevice> open() override { return cpu_->open(); }
  runtime::BoundCollective bind(const exe::Collective& collective,
                                const exe::ReplicaGroup& group) override {
    return cpu_->bind(collective, group);
  }
  runtime::BoundKernel bind(const exe::Kernel& kernel) override {
    const auto state =
        std::make_shared<HookedKernel>(HookedKernel{kernel, cpu_->bind(kernel), hook_});
    return {[](const void* s, const runtime::KernelBlock& block, int64_t task) {
              const auto& k = *static_cast<const HookedKernel*>(s);
              if (*k.hook) (*k.hook)(k.kernel, task);
              k.inner.run(k.inner.state.get(), block, task);
            },
            state};
  }

 private:
  std::shared_ptr<runtime::Device> cpu_ = cpu::make_device();
  std::shared_ptr<Hook> hook_;
};

DeviceChoice hooked(std::shared_ptr<Hook> hook, int threads) {
  DeviceChoice choice = cpu_device({.threads = threads});
  choice.device = std::make_shared<HookedDevice>(std::move(hook));
  return choice;
}

TEST(KernelErrors, ComeBackWithTheOpsNameAndTheSessionGoesOn) {
  const MlpProgram p({.layers = 2, .width = 200});
  Session plain(p.ir, {.device = cpu_device({.threads = 1})});
  const std::vector<float> want = train(plain, p, 3);
  for (const int threads : {1, 2, 4}) {
    const auto hook = std::make_shared<Hook>();
    Session session(p.ir, {.device = hooked(hook, threads)});
    const auto before = all_bytes(session);
    *hook = [](const exe::Kernel& k, int64_t) {
      if (k.op.find("Softmax") != std::string::npos) fail(ErrorKind::kIo, "the device is gone");
    };
    EXPECT_THAT(error_of(ErrorKind::kIo, [&] { train(session, p, 1); }),
                AllOf(HasSubstr("the device is gone"), HasSubstr("running MatMul+Add+Softmax+Nll+"),
                      HasSubstr("layers.cc:")));
    *hook = [](const exe::Kernel&, int64_t) { throw std::runtime_error("foreign"); };
    EXPECT_THROW(train(session, p, 1), std::runtime_error);
    *hook = nullptr;
    EXPECT_EQ(all_bytes(session), before) << "no update had been reached";
    EXPECT_EQ(train(session, p, 3), want) << threads << " threads";
  }
}

TEST(KernelErrors, OnAnyWorkerEndTheRun) {
  const MlpProgram p({.layers = 2, .width = 512, .batch = 32});
  const auto hook = std::make_shared<Hook>();
  Session session(p.ir, {.device = hooked(hook, 3)});
  for (int64_t task = 1; task < 4; ++task) {  // Task 0 runs on worker 0.
    *hook = [task](const exe::Kernel& k, int64_t t) {
      if (k.op.starts_with("MatMul") && t == task) fail(ErrorKind::kIo, "task {} failed", t);
    };
    EXPECT_THAT(error_of(ErrorKind::kIo, [&] { train(session, p, 1); }),
                HasSubstr(fmt::format("task {} failed", task)));
  }
  *hook = nullptr;
  EXPECT_TRUE(std::isfinite(train(session, p, 1)[0]));
}

TEST(KernelErrors, OfOneDeviceStopTheOther) {
  Ir ir;
  Graph& main = ir.main_graph();
  main.set_device(0);
  const H2dStream in = ir.h2d_stream(f32_spec({4}), "in");
  const Tensor x = ops::relu(main.host_load(in));
  main.set_device(1);
  const Tensor y = ops::tanh(x);
  main.set_device(0);
  const D2hStream out = main.host_store(y + x, "out");
  const HostTensor ones = HostTensor::of<float>({4}, f32, {1, 1, 1, 1});
  for (const int threads : {1, 2}) {
    const auto hook = std::make_shared<Hook>();
    Session session(
        ir, {.device = cpu_device({.threads = threads}), .more_devices = {hooked(hook, threads)}});
    *hook = [](const exe::Kernel&, int64_t) { fail(ErrorKind::kIo, "device 1 is gone"); };
    const std::string what = error_of(ErrorKind::kIo, [&] { session.run({{in, ones}}); });
    EXPECT_THAT(what, HasSubstr("running Tanh"));
    *hook = nullptr;
    EXPECT_NEAR(session.run({{in, ones}})[out].as<float>()[0], 1 + std::tanh(1.0f), 1e-6);
  }
}

// The compiler gives the body of a loop a barrier; a plan need not have one.
TEST(Stops, EndALoopWithoutBarriers) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor x = main.variable(f32_spec({4}), Initializer::constant(1), "x");
  Graph& body = ir.create_graph(
      "turn", [](Graph&, Tensor t) { return ops::tanh(t); }, f32_spec({4}));
  const D2hStream out = main.host_store(ops::repeat(main, body, 2'000'000'000, {x})[0], "y");
  for (const int threads : {1, 2}) {
    const Session session(
        ir, {.device = cpu_device({.threads = threads}), .proof = SessionOptions::Proof::kTrust});
    exe::Executable plan = session.executable();
    for (exe::Function& f : plan.functions) {
      f.buffers.clear();  // Buffers refer to step numbers.
      std::erase_if(f.steps, [](const exe::Step& step) {
        return std::holds_alternative<exe::Kernel>(step.body);
      });
    }
    runtime::Executor executor(plan, {cpu::make_device()}, {.threads = threads});
    runtime::HostStreams streams(plan);
    HostTensor y(out.spec);
    streams.bind(exe::StreamId(out.id), y.bytes().data());
    std::thread stopper([&] {
      while (!executor.stop()) std::this_thread::yield();
    });
    error_of(ErrorKind::kStopped, [&] { executor.run(plan.program("main"), streams); });
    stopper.join();
  }
}

}  // namespace
}  // namespace sluice::test
