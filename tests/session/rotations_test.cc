// Tests loops whose carried values only rotate: any number of them, after any number of iterations,
// with threads and devices. Results are compared with the interpreter.
#include <gtest/gtest.h>

#include <algorithm>

#include "../property/random_graph_run.h"
#include "../support/mlp.h"

namespace sluice::test {
namespace {

using property::RandomProgram;
using property::Way;

TensorSpec ring_row() { return f32_spec({9, 9}); }

/// Bodies of loops that carry values v0 (the newest) to vn (the oldest).
enum class Body {
  kRead,      ///< The kernel that makes the new value reads the oldest one.
  kProduct,   ///< As kRead, but the kernel cannot write over what it reads.
  kBefore,    ///< All reads of the oldest value come before the new one.
  kAfter,     ///< The oldest value is read after the new one is made.
  kReversed,  ///< The oldest value is the first input.
  kCycle,     ///< The oldest value becomes the newest one.
  kStay,      ///< All values stay except the newest one.
  kTwice      ///< The newest value becomes all others.
};
constexpr Body kBodies[] = {Body::kRead,     Body::kProduct, Body::kBefore, Body::kAfter,
                            Body::kReversed, Body::kCycle,   Body::kStay,   Body::kTwice};

Graph& body_of(Ir& ir, Body kind, int count) {
  Graph& g = ir.create_empty_graph("turn");
  Tensors v;
  for (int k = 0; k < count; ++k) v.push_back(g.input(ring_row(), fmt::format("v{}", k)));
  if (kind == Body::kReversed) std::reverse(v.begin(), v.end());
  const Tensor given = g.input(ring_row(), "given");
  const Tensor weight = g.input(ring_row(), "weight");
  const Tensor sum = g.input(ring_row(), "sum", Pass::kByReference);
  const auto add = [&](const Tensor& t) { ops::add_(sum, ops::matmul(v.back(), t) * 0.125); };
  ops::add_(sum, v[v.size() / 2] * 0.25);
  if (kind == Body::kBefore || kind == Body::kReversed) add(weight);
  Tensor next = ops::tanh(ops::matmul(sum, weight) + given);
  if (kind == Body::kRead || kind == Body::kStay)
    next = ops::tanh(v.front() * 0.5 + v.back() + given);
  if (kind == Body::kProduct) next = ops::tanh(ops::matmul(v.back(), weight));
  if (kind == Body::kCycle) next = v.back();
  if (kind == Body::kAfter) add(next);
  Tensors results{next};
  for (int k = 1; k < count; ++k) {
    const int from = kind == Body::kStay ? k : kind == Body::kTwice ? 0 : k - 1;
    results.push_back(v[static_cast<size_t>(from)]);
  }
  if (kind == Body::kReversed) std::reverse(results.begin(), results.end());
  g.set_outputs(results);
  return g;
}

/// A program with a loop of such a body. Some values before the loop are variables, some are
/// computed, some are the same tensor.
Ir loop_of(Body kind, int count, int64_t trips) {
  Ir ir;
  Graph& main = ir.main_graph();
  Graph& body = body_of(ir, kind, count);
  Tensors arguments;
  for (int k = 0; k < count + 3; ++k) {
    const Tensor t = main.variable(
        ring_row(), Initializer::normal(0, 1).keyed({static_cast<uint32_t>(k), 5}), "t");
    const bool computed = k < count && k % 3 > 0;
    arguments.push_back(!computed ? t : k % 3 == 2 ? arguments.back() : t + 1.0);
  }
  const Tensors last = ops::repeat(main, body, trips, arguments);
  for (size_t k = last.size(); k-- > 0;) main.host_store(last[k] * 1.5, "value");
  main.host_store(arguments.back(), "sum");
  return ir;
}

void expect_bits(const Ir& ir, const std::vector<Way>& ways) {
  const RandomProgram program{.ir = ir, .runs = {"main", "main"}};
  const property::Outcome want = property::interpreted(program);
  for (const Way& way : ways)
    EXPECT_EQ(property::bit_difference(want, property::executed(program, way)), "") << way.text();
  const Compiled plan = property::compiled(ir, ways.front().devices);
  EXPECT_EQ(property::bit_difference(property::interpreted(program, property::Remote::kShown),
                                     property::by_values(program, plan)),
            "");
}

// The ways alternate, so that each is combined with every body, number of values and number of
// iterations.
TEST(Rotations, RunAsTheInterpreterDoes) {
  for (const Body kind : kBodies) {
    for (int count = 1; count <= 5; ++count) {
      for (int64_t trips = 0; trips < 10; ++trips) {
        SCOPED_TRACE(fmt::format("body {} of {}, {} trips", static_cast<int>(kind), count, trips));
        expect_bits(
            loop_of(kind, count, trips),
            (count + trips) % 2 == 0
                ? std::vector<Way>{{.threads = 1}, {.threads = 3, .interleaved = true}}
                : std::vector<Way>{{.threads = 2}, {.threads = 2, .disable = {"rotations"}}});
      }
    }
  }
}

/// Copies in the functions that a plan's loops run, and the slots of their rings.
struct RotationCounts {
  int64_t copies = 0;
  int64_t slots = 0;
};

RotationCounts counts_of(const Ir& ir, const std::vector<std::string>& disable = {}) {
  const exe::Executable e = property::compiled(ir, 1, disable).executable;
  RotationCounts counts;
  for (const exe::Function& f : e.functions) {
    for (const exe::Step& step : f.steps) {
      const auto* loop = std::get_if<exe::Loop>(&step.body);
      if (loop == nullptr) continue;
      std::map<int64_t, int64_t> rings;  // Slots by offset.
      for (const exe::Operand& o : loop->body.args) {
        if (o.at.depth > 0) rings[o.at.offset] = o.at.depth;
      }
      for (const auto& [offset, slots] : rings) counts.slots += slots;
      for (const exe::Step& own : e.functions[loop->body.function].steps) {
        const auto* kernel = std::get_if<exe::Kernel>(&own.body);
        counts.copies += kernel != nullptr && kernel->op == "Copy";
      }
    }
  }
  return counts;
}

TEST(Rotations, AreNotCopied) {
  for (const Body kind : kBodies) {
    if (kind == Body::kStay || kind == Body::kTwice) continue;
    SCOPED_TRACE(static_cast<int>(kind));
    const RotationCounts counts = counts_of(loop_of(kind, 4, 9));
    EXPECT_EQ(counts.copies, 0);
    EXPECT_EQ(counts.slots, kind == Body::kProduct || kind == Body::kAfter ? 5 : 4);
    const RotationCounts without = counts_of(loop_of(kind, 4, 9), {"rotations"});
    EXPECT_EQ(without.copies, kind == Body::kCycle ? 4 : 3);
    EXPECT_EQ(without.slots, 8);
  }
}

}  // namespace
}  // namespace sluice::test
