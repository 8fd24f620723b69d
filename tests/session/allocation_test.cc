// A steady step allocates no memory and makes no system call.

#include <gtest/gtest.h>

#include <sys/syscall.h>
#include <unistd.h>

#include "../runtime/malloc_counter.h"
#include "../runtime/system_call_watch.h"
#include "../support/mlp.h"

namespace sluice::test {
namespace {

TEST(MallocCounter, CountsEveryWay) {
  if (!counts_allocations())
    GTEST_SKIP() << "requires a build without sanitizer, which replaces malloc";
  const int64_t before = allocations();
  void* volatile p = std::malloc(10);
  p = std::realloc(p, 1000000);
  std::free(p);
  int* volatile one = new int(1);
  delete one;
  void* volatile aligned = ::operator new (64, std::align_val_t{64});
  ::operator delete (aligned, std::align_val_t{64});
  EXPECT_EQ(allocations() - before, 4);
}

TEST(SystemCallWatch, NotesOne) {
  SystemCallWatch watch;
  if (!watch.works()) GTEST_SKIP() << "requires x86-64, Linux 5.11 and a build without sanitizer";
  const long parent = syscall(SYS_getppid);
  const int64_t found = watch.found();
  EXPECT_EQ(found, SYS_getppid);
  EXPECT_EQ(parent, getppid());
}

class Steady : public testing::TestWithParam<std::tuple<int, Layers>> {};

TEST_P(Steady, StepOfAnMlpAllocatesNothing) {
  const auto [threads, style] = GetParam();
  const MlpProgram p({.layers = 3, .width = 64, .style = style});
  Session session(p.ir, {.device = cpu_device({.threads = threads})});
  Batch batch(p.options, 0);
  HostTensor loss(p.loss.spec);
  Binding step =
      session.bind({{p.image, batch.image}, {p.labels, batch.labels}}, {{p.loss, loss}}, "train");
  session.run_into(step);
  const float first = loss.as<float>()[0];
  const int64_t before = allocations();
  for (int i = 0; i < 100; ++i) session.run_into(step);
  EXPECT_EQ(allocations() - before, 0);
  EXPECT_LT(loss.as<float>()[0], first);
}

// Uses one thread, because waiting threads of a team sleep after some time.
TEST(Steady, StepMakesNoSystemCall) {
  for (const Layers style : {Layers::kInlined, Layers::kOutlined}) {
    const MlpProgram p({.layers = 3, .width = 64, .style = style});
    Session session(p.ir, {.device = cpu_device({.threads = 1})});
    Batch batch(p.options, 0);
    HostTensor loss(p.loss.spec);
    Binding step =
        session.bind({{p.image, batch.image}, {p.labels, batch.labels}}, {{p.loss, loss}}, "train");
    session.run_into(step);
    const float first = loss.as<float>()[0];
    int64_t found = -1;
    {
      const SystemCallWatch watch;
      if (!watch.works())
        GTEST_SKIP() << "requires x86-64, Linux 5.11 and a build without sanitizer";
      for (int i = 0; i < 100; ++i) session.run_into(step);
      found = watch.found();
    }
    EXPECT_EQ(found, -1);
    EXPECT_LT(loss.as<float>()[0], first);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Steady,
                         testing::Combine(testing::Values(1, 2, 3),
                                          testing::Values(Layers::kInlined, Layers::kOutlined)));

TEST(Steady, MovingAndGatheringAllocateNothing) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor x = main.variable(f32_spec({6, 50, 40}), Initializer::uniform(-1, 1).keyed({1, 2}));
  const Tensor indices = main.constant(HostTensor::of<int32_t>({3}, i32, {4, 0, 49}));
  const Tensor seed = main.constant(HostTensor::of<uint32_t>({2}, u32, {1, 2}));
  const Tensor table = main.variable(f32_spec({50, 40}), Initializer::constant(0), "table");
  const Tensor rows = ops::gather(ops::slice(x, {1}, {2}, {}, {0}), indices, {.axis = 1});
  ops::sparse_accumulate_(table, ops::reshape(rows, {3, 40}), indices);
  const Tensor turned = ops::swap_axes(ops::slice(x, {40}, {3}, {-2}, {1}), 0, 2);
  const Tensor joined =
      ops::concat({turned, ops::where(ops::greater(turned, 0.0), turned, 2.0)}, 1);
  const Tensor top = ops::max(joined, {.axes = {1}});
  const Tensor grad = ops::reduce_max_grad(top, joined, top, {.axes = {1}});
  const D2hStream out = ir.d2h_stream(f32_spec({}), "sum");
  main.host_store(out, ops::sum(ops::dropout(grad, seed, 0.25)) + ops::sum(rows));
  Session session(ir, {.device = cpu_device({.threads = 2})});
  HostTensor sum(out.spec);
  Binding step = session.bind({}, {{out, sum}});
  session.run_into(step);
  const int64_t before = allocations();
  for (int i = 0; i < 10; ++i) session.run_into(step);
  EXPECT_EQ(allocations() - before, 0);
  EXPECT_NE(sum.as<float>()[0], 0);
}

TEST(Steady, UpdatesAllocateNothing) {
  for (nn::Optimizer optimizer :
       {nn::Optimizer::sgd({.momentum = 0.9}),
        nn::Optimizer::sgd({.momentum = 0.9, .dampening = 0.5}),
        nn::Optimizer::sgd({.momentum = 0.9, .form = nn::SgdForm::kNesterov}),
        nn::Optimizer::rmsprop({.momentum = 0.9, .centering = nn::Centering::kOn}),
        nn::Optimizer::rmsprop({.form = nn::RmspropForm::kTensorFlow}), nn::Optimizer::adam(),
        nn::Optimizer::adam_f16(), nn::Optimizer::adamax(), nn::Optimizer::lamb()}) {
    for (const bool remote : {false, true}) {
      Ir ir;
      Graph& main = ir.main_graph();
      const H2dStream in = ir.h2d_stream(f32_spec({40, 70}), "grad");
      const Tensor w = main.variable(f32_spec({40, 70}), Initializer::constant(1), "w");
      optimizer.apply(main, nn::NamedTensors::from_dict({{"w", w}}),
                      nn::NamedTensors::from_dict({{"w", main.host_load(in)}}), 0.01,
                      {.max_grad_norm = 1, .remote_state = remote});
      Session session(ir, {.device = cpu_device({.threads = 2})});
      HostTensor grad(in.spec);
      for (float& g : grad.as<float>()) g = 0.5f;
      Binding step = session.bind({{in, grad}}, {});
      session.run_into(step);
      const float once = session.read(w).as<float>()[0];
      const int64_t before = allocations();
      for (int i = 0; i < 10; ++i) session.run_into(step);
      EXPECT_EQ(allocations() - before, 0);
      EXPECT_LT(session.read(w).as<float>()[0], once);
    }
  }
}

TEST(Steady, PartsOfATensorAllocateNothing) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({300, 400}), "in");
  const Tensor x = ops::flatten(main.host_load(in));
  Tensor sum = ops::sumsquare(ops::slice(x, {0}, {50000}));
  for (int64_t begin = 50000; begin < 120000; begin += 35000)
    sum = sum + ops::sumsquare(ops::slice(x, {begin}, {begin + 35000}));
  const D2hStream out = main.host_store(sum, "sum");
  Session session(ir, {.device = cpu_device({.threads = 2})});
  HostTensor ones(in.spec), result(out.spec);
  for (float& v : ones.as<float>()) v = 1;
  Binding step = session.bind({{in, ones}}, {{out, result}});
  session.run_into(step);
  const int64_t before = allocations();
  for (int i = 0; i < 10; ++i) session.run_into(step);
  EXPECT_EQ(allocations() - before, 0);
  EXPECT_EQ(result.as<float>()[0], 120000);
}

TEST(Steady, TransfersBesideKernelsAllocateNothing) {
  for (const std::string tier : {"host", "file", "a checked file"}) {
    Ir ir;
    Graph& main = ir.main_graph();
    constexpr int64_t kRows = 40;
    const RemoteBuffer buffer = ir.remote_buffer(f32_spec({32, 32}), kRows);
    const Graph::IoScope overlapped(main, IoMode::kIoOverlapped);
    Graph& loop_body = ir.create_empty_graph("turn");
    const Graph::IoScope in_body(loop_body, IoMode::kIoOverlapped);
    const Tensor x = loop_body.input(f32_spec({32, 32}), "x");
    const Tensor row = loop_body.input({{}, i32, {}}, "row");
    Tensor y = x;
    for (int i = 0; i < 3; ++i) {
      const Tensor at = ops::increment_mod(row, i, kRows);
      y = ops::tanh(ops::matmul(y, loop_body.remote_load(buffer, at) + 0.1));
      loop_body.remote_store(buffer, at, y);
    }
    loop_body.add_output(y);
    const H2dStream in = ir.h2d_stream(f32_spec({32, 32}), "in");
    const Tensor first = main.host_load(in);
    const D2hStream out = main.host_store(
        ops::repeat(main, loop_body, kRows, {first}, {}, {.iteration = row})[0], "out");
    SessionOptions options{.device = cpu_device({.threads = 2})};
    if (tier != "host") options.remote = "file:" + testing::TempDir();
    options.verify_remote = tier == "a checked file";
    options.remote_bandwidth = 1'000'000'000;
    Session session(ir, options);
    HostTensor entry(f32_spec({32, 32})), result(out.spec);
    Binding step = session.bind({{in, entry}}, {{out, result}});
    session.run_into(step);
    const int64_t before = allocations();
    for (int i = 0; i < 10; ++i) session.run_into(step);
    EXPECT_EQ(allocations() - before, 0) << tier;
  }
}

TEST(Steady, LoopsAndBranchesAllocateNothing) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({4, 300}), "in");
  const Tensor total = main.variable(f32_spec({4, 300}), Initializer::constant(0), "total");
  Graph& body = ir.create_empty_graph("body");
  {
    const Tensor carried = body.input(f32_spec({4, 300}), "carried");
    const Tensor sum = body.input(f32_spec({4, 300}), "sum", Pass::kByReference);
    const Tensor entry = body.host_load(in);
    ops::add_(sum, entry);
    body.add_output(ops::tanh(carried + entry));
  }
  const Tensor last = ops::repeat(main, body, 5, {total, total})[0];
  Graph& up = ir.create_graph(
      "up", [](Graph&, Tensor x) { return x + 1.0; }, f32_spec({4, 300}));
  Graph& down = ir.create_graph(
      "down", [](Graph&, Tensor x) { return ops::softmax(x); }, f32_spec({4, 300}));
  const H2dStream which = ir.h2d_stream({{}, boolean, {}}, "which");
  const Tensor condition = main.host_load(which);
  const D2hStream out =
      main.host_store(ops::conditional(main, condition, up, down, {last}, {last})[0], "out");
  Session session(ir, {.device = cpu_device({.threads = 2})});
  HostTensor entries(f32_spec({5, 4, 300}));
  const HostTensor yes = HostTensor::of<bool>({}, boolean, {true});
  HostTensor result(out.spec);
  Binding step = session.bind({{in, entries}, {which, yes}}, {{out, result}});
  session.run_into(step);
  const int64_t before = allocations();
  for (int i = 0; i < 20; ++i) session.run_into(step);
  EXPECT_EQ(allocations() - before, 0);
}

TEST(Steady, CollectivesAllocateNothing) {
  for (const int threads : {1, 2, 4}) {
    Ir ir(2);
    Graph& main = ir.main_graph();
    const H2dStream in = ir.h2d_stream(f32_spec({50, 30}), "in");
    const Tensor x = main.host_load(in);
    const Tensor shard = ops::replicated_reduce_scatter(x, ops::CollectiveOp::kMean);
    ops::replicated_all_reduce_(x, ops::CollectiveOp::kMax);
    const D2hStream out =
        main.host_store(x + ops::reshape(ops::replicated_all_gather(shard), {50, 30}), "out");
    Session session(ir, {.device = cpu_device({.threads = threads})});
    const HostTensor entries(f32_spec({2, 50, 30}));
    HostTensor result(f32_spec({2, 50, 30}));
    Binding step = session.bind({{in, entries}}, {{out, result}});
    session.run_into(step);
    const int64_t before = allocations();
    for (int i = 0; i < 20; ++i) session.run_into(step);
    EXPECT_EQ(allocations() - before, 0);
  }
}

}  // namespace
}  // namespace sluice::test
