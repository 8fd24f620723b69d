#include <fmt/core.h>

#include <memory>

#include "bench/cases/one_operator.h"

namespace sluice::bench {
namespace {

constexpr double kMemorySeconds = 3e-2;
constexpr double kMemoryGoal = 0.85;

// 16 MiB of f32.
constexpr int64_t kRows = 1024, kCols = 4096;
constexpr int64_t kElements = kRows * kCols;

Tensor variable(Graph& main, const char* name, DType dtype = f32) {
  static constexpr uint32_t kKey = 3;
  return main.variable(TensorSpec{{kRows, kCols}, dtype, {}},
                       Initializer::uniform(-1, 1).keyed({kKey, static_cast<uint32_t>(name[0])}),
                       name);
}

void update(Graph& main, nn::Optimizer optimizer) {
  const Tensor w = variable(main, "w"), g = variable(main, "g");
  optimizer.apply(main, nn::NamedTensors::from_dict({{"w", w}}),
                  nn::NamedTensors::from_dict({{"w", g}}), 1e-6);
}

// A batch of images of 32 x 32 elements.
Tensor images(Graph& main) {
  constexpr int64_t kSide = 32, kChannels = 16;
  return ops::reshape(variable(main, "a"),
                      {kElements / (kChannels * kSide * kSide), kChannels, kSide, kSide});
}

const ops::PoolOptions kHalves{.kernel = {2, 2}};
const ops::PoolOptions kOverlapping{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};

// The ops of a maximum and its gradient, for the gradient y of the result.
void pool_gradient(Graph& main, const ops::PoolOptions& options) {
  const Tensor x = images(main);
  const Tensor y = ops::max_pool(x, options);
  keep(ops::max_pool_grad(y, ops::max_pool_taps(x, options), x.shape(), options));
}

// One operator on tensors of 16 MiB.
struct Op {
  const char* name;  // Name for pytorch_child.py.
  double moved;      // Bytes for each element that must be read and written.
  double held;       // Bytes for each element of all memory that is touched.
  void (*build)(Graph& main);
};

constexpr Op kOps[] = {
    {"add", 12, 12, [](Graph& m) { keep(variable(m, "a") + variable(m, "b")); }},
    {"scale", 8, 8, [](Graph& m) { keep(variable(m, "a") * 0.5); }},
    {"relu", 8, 8, [](Graph& m) { keep(ops::relu(variable(m, "a"))); }},
    {"gelu", 8, 8, [](Graph& m) { keep(ops::gelu(variable(m, "a"))); }},
    {"add-scale-relu", 12, 12,
     [](Graph& m) { keep(ops::relu((variable(m, "a") + variable(m, "b")) * 0.5)); }},
    {"sum-of-rows", 4, 4, [](Graph& m) { keep(ops::sum(variable(m, "a"), {.axes = {1}})); }},
    {"sum-of-columns", 4, 4, [](Graph& m) { keep(ops::sum(variable(m, "a"), {.axes = {0}})); }},
    {"sum-of-all", 4, 4, [](Graph& m) { keep(ops::sum(variable(m, "a"))); }},
    {"softmax-of-rows", 8, 8, [](Graph& m) { keep(ops::softmax(variable(m, "a"))); }},
    {"max-pool-2x2", 5, 5, [](Graph& m) { keep(ops::max_pool(images(m), kHalves)); }},
    {"max-pool-3x3", 5, 5, [](Graph& m) { keep(ops::max_pool(images(m), kOverlapping)); }},
    {"average-of-planes", 4, 4, [](Graph& m) { keep(ops::global_average_pool(images(m))); }},
    {"max-pool-2x2-and-gradient", 14.5, 9, [](Graph& m) { pool_gradient(m, kHalves); }},
    {"max-pool-3x3-and-gradient", 14.5, 9, [](Graph& m) { pool_gradient(m, kOverlapping); }},
    {"sgd", 12, 8, [](Graph& m) { update(m, nn::Optimizer::sgd()); }},
    {"adam", 28, 16, [](Graph& m) { update(m, nn::Optimizer::adam()); }},
    {"f32-to-f16-and-back", 12, 10,
     [](Graph& m) { keep(ops::cast(ops::cast(variable(m, "a"), f16), f32)); }},
    {"f16-to-f32", 6, 6, [](Graph& m) { keep(ops::cast(variable(m, "a", f16), f32)); }},
};

Case memory_case(Machine& machine, const Op& op, int threads) {
  const double bytes = op.moved * static_cast<double>(kElements);
  return {.group = "memory",
          .name = op.name,
          .threads = threads,
          .unit = Unit::kGigabytes,
          .work = bytes,
          .goals = {{Goal::Of::kPart, kMemoryGoal}},
          .pytorch = fmt::format("memory {} {} {} {}", op.name, kRows, kCols, threads),
          .start = [&machine, op, threads, bytes]() -> std::function<Round()> {
            const auto held = static_cast<int64_t>(op.held * static_cast<double>(kElements));
            auto running = std::make_shared<OneOperator>(op.build, held, threads);
            return [&machine, running, bytes] {
              return running->measure(machine, bytes, kMemorySeconds);
            };
          }};
}

}  // namespace

std::vector<Case> memory_cases(Machine& machine) {
  std::vector<Case> cases;
  for (const Op& op : kOps) {
    for (int threads = 1; threads <= kMaxThreads; ++threads)
      cases.push_back(memory_case(machine, op, threads));
  }
  return cases;
}

}  // namespace sluice::bench
