#include <fmt/core.h>

#include <cmath>
#include <fstream>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "bench/figure.h"
#include "bench/program.h"
#include "sluice/compiler/compile.h"

namespace sluice::bench {
namespace {

// A block of a transformer: attention with `heads` heads and a perceptron of four times the width,
// each after a normalisation and added to its input.
class Block : public nn::Module {
 public:
  Block(int64_t width, int64_t heads)
      : heads_(heads),
        qkv_(*this, "qkv", 3 * width),
        out_(*this, "out", width),
        up_(*this, "up", 4 * width),
        down_(*this, "down", width) {}

  Tensor build(nn::Builder& b, Tensor x) const {
    x = x + attend(b, normalised(b, "norm1", x));
    return x + down_(b, ops::gelu(up_(b, normalised(b, "norm2", x))));
  }

 private:
  static Tensor normalised(nn::Builder& b, const char* name, const Tensor& x) {
    const Tensor scale = b.add_variable_input(name, nn::ones(), {x.dim(-1)});
    const ops::ReduceOptions last{.axes = {-1}, .keepdims = true};
    const Tensor centred = x - ops::mean(x, last);
    return centred / ops::sqrt(ops::mean(centred * centred, last) + 1e-5) * scale;
  }

  Tensor attend(nn::Builder& b, const Tensor& x) const {
    const int64_t rows = x.dim(0), width = x.dim(1), size = width / heads_;
    const Tensor qkv = ops::reshape(qkv_(b, x), {rows, 3, heads_, size});
    const auto part = [&](int64_t i) {  // (heads, rows, size)
      const Tensor one = ops::slice(qkv, {i}, {i + 1}, {}, {1});
      return ops::transpose(ops::reshape(one, {rows, heads_, size}), {1, 0, 2});
    };
    const Tensor keys = ops::transpose(part(1), {0, 2, 1});
    const Tensor scores = ops::matmul(part(0), keys) * (1 / std::sqrt(static_cast<double>(size)));
    const Tensor mixed = ops::matmul(ops::softmax(scores), part(2));
    return out_(b, ops::reshape(ops::transpose(mixed, {1, 0, 2}), {rows, width}));
  }

  int64_t heads_;
  nn::Child<nn::Linear> qkv_, out_, up_, down_;
};

// Blocks that all call one graph, followed by a classifier.
class Transformer : public nn::Module {
 public:
  explicit Transformer(int64_t layers) : layers_(layers), head_(*this, "head", 64) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    const auto [factories, block] = nn::create_graph(b.ir(), Block(x.dim(1), 4), x);
    for (int64_t i = 0; i < layers_; ++i)
      x = block.bind(b.add_variable_inputs(fmt::format("block{}", i), factories)).call(x)[0];
    return head_(b, x);
  }

 private:
  int64_t layers_;
  nn::Child<nn::Linear> head_;
};

constexpr int64_t kManyLayers = 11'200;  // About 100,000 ops.
constexpr int64_t kWidth = 16;           // Any width: compile time does not depend on it.

Ir transformer(int64_t layers) { return Program(Transformer(layers), 64, 128, Update::kSgd).ir(); }

// Builds a perceptron with `hidden` layers of `width`, trained with SGD. Each layer has its own
// ops.
Ir perceptron(int64_t hidden, int64_t width) {
  std::vector<int64_t> sizes(static_cast<size_t>(hidden) + 1, width);
  sizes.front() = 784;
  sizes.push_back(10);
  return Program(Mlp(sizes), 8, sizes.front(), Update::kSgd).ir();
}

int64_t count_ops(const Ir& ir) {
  int64_t count = 0;
  for (const GraphId id : ir.graph_ids()) count += static_cast<int64_t>(ir.graph(id).ops().size());
  return count;
}

Compiled compile_for_cpu(const Ir& ir) {
  return compile(ir, {.devices = {{.target = cpu_device().target, .threads = 2}}});
}

Case time_case(std::string name, double max_milliseconds, std::function<Ir()> build) {
  return {.group = "compile",
          .name = std::move(name),
          .unit = Unit::kMilliseconds,
          .goals = {{Goal::Of::kAtMost, max_milliseconds}},
          .start = [build]() -> std::function<Round()> {
            return [ir = build()] {
              const double begin = seconds_now();
              compile_for_cpu(ir);
              return Round{seconds_now() - begin, {}};
            };
          }};
}

// Resident bytes of this process, now and at most since the peak was reset; 0 if the system does
// not report them.
struct Resident {
  double now = 0, peak = 0;
};
Resident resident() {
  Resident r;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") status >> r.peak;
    if (word == "VmRSS:") status >> r.now;
  }
  return {r.now * 1024, r.peak * 1024};
}

double compile_bytes_an_op(const Ir& ir) {
#ifdef __GLIBC__
  malloc_trim(0);  // Return freed memory first: it would hide new allocations.
#endif
  std::ofstream("/proc/self/clear_refs") << "5";  // Resets the peak.
  const double before = resident().now;
  compile_for_cpu(ir);
  return (resident().peak - before) / static_cast<double>(count_ops(ir));
}

// Memory to compile a program, per op, compared with a program a tenth as long.
Case memory_case() {
  return {.group = "compile",
          .name = "memory an op, 100,000 against 10,000",
          .unit = Unit::kBytes,
          .goals = {{Goal::Of::kPart, 0.8}},
          .start = []() -> std::function<Round()> {
            return [few = perceptron(kManyLayers / 10, kWidth),
                    many = perceptron(kManyLayers, kWidth)] {
              const double limit = compile_bytes_an_op(few);
              return Round{compile_bytes_an_op(many), limit};
            };
          }};
}

}  // namespace

std::vector<Case> compile_cases() {
  return {time_case("perceptron of 4 layers", 100, [] { return perceptron(3, 512); }),
          time_case("transformer of 100 outlined layers", 1000, [] { return transformer(100); }),
          time_case("100,000 ops in a row", 10'000,
                    [] {
                      Ir ir = perceptron(kManyLayers, kWidth);
                      SLUICE_CHECK(count_ops(ir) >= 100'000);
                      return ir;
                    }),
          memory_case()};
}

}  // namespace sluice::bench
