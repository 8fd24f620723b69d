// Tests with random bodies: passes that move nodes do not change the computed values, and storage
// does not overwrite bytes that are still read.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "sluice/base/hash.h"
#include "sluice/base/ids/ids_format.h"
#include "sluice/compiler/analysis/body_facts.h"
#include "sluice/compiler/lower/kernels.h"
#include "sluice/compiler/passes/dead_code.h"
#include "sluice/compiler/passes/fusion/fuse.h"
#include "sluice/compiler/passes/inline_calls.h"
#include "sluice/compiler/passes/project.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

constexpr int kRuns = 400;

class Dice {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  size_t below(size_t n) { return engine_() % n; }

 private:
  std::minstd_rand engine_;
};

// The text of a random body on f32(4): two parameters or variables, which it updates, nodes and a
// result.
std::string random_nodes(unsigned seed, bool params, bool devices) {
  Dice dice(seed);
  std::vector<int32_t> alive{0, 1};  // Values that no node has overwritten.
  int32_t last[] = {0, 1};           // The last version of each parameter.
  std::string nodes;
  int32_t next = 2;
  for (size_t count = 4 + dice.below(10); count > 0; --count) {
    const int32_t x = alive[dice.below(alive.size())];
    const int32_t y = alive[dice.below(alive.size())];
    const size_t kind = dice.below(7);
    const char* const unary[] = {"kernel Neg", "kernel Relu", "view", "copy"};
    if (kind < 4) nodes += fmt::format("{} in %{} out %{} f32(4)", unary[kind], x, next);
    if (kind == 4) nodes += fmt::format("kernel Add in %{} %{} out %{} f32(4)", x, y, next);
    if (kind > 4) {
      nodes += kind == 5 ? fmt::format("kernel AddLhsInplace in %{} %{}", x, y)
                         : fmt::format("copy in %{}", y);
      nodes += fmt::format(" out %{} f32(4) tie 0 %{}", next, x);
      if (kind == 6 && x == y) return random_nodes(seed + kRuns, params, devices);
      std::erase(alive, x);
      for (int32_t& v : last) v = v == x ? next : v;
    }
    if (devices) nodes += fmt::format(" device {}", dice.below(3));
    nodes += '\n';
    alive.push_back(next++);
  }
  const std::string result = fmt::format("results %{}\n", alive[dice.below(alive.size())]);
  std::string leaves;
  for (int32_t v = 0; v < 2; ++v) {
    leaves += params ? fmt::format("param %{} f32(4) p last %{}\n", v, last[v])
                     : fmt::format("variable {} %{} f32(4)\n", v, v);
    if (!params && last[v] != v) leaves += fmt::format("last {} %{}\n", v, last[v]);
  }
  return leaves + nodes + result;
}

using Hash = uint64_t;  // Hash of the op that computes a value, and of its inputs.
using Hashes = Ids<ValueIndex, Hash>;

Hash meaning_of(const OpDef& op, const std::vector<Hash>& inputs) {
  std::string text = op.type;
  for (const Hash x : inputs) text += fmt::format(" {}", x);
  return hash64(text);
}

class Runner {
 public:
  explicit Runner(const Program& program) : program_(program) {}

  // Runs a body from node `node` until its end or until a node must wait for a channel. Returns the
  // index of the next node.
  NodeId run(const Body& body, Hashes& values, NodeId node = NodeId(0)) {
    for (; node < body.nodes.end_id(); ++node) {
      if (!run(body.nodes[node], values)) break;
    }
    return node;
  }

  // The values that exist before the body runs; its parameters are `arguments`.
  static Hashes leaves(const Body& body, const std::vector<Hash>& arguments) {
    Hashes values(body.values.size());
    for (const ValueIndex v : values.ids()) {
      const BodyValue& value = body.values[v];
      if (value.source == BodyValue::Source::kParam) values[v] = at(arguments, value.index);
      if (value.source == BodyValue::Source::kVariable)
        values[v] = 100 + static_cast<uint64_t>(value.index);
    }
    return values;
  }

 private:
  bool run(const Node& node, Hashes& values) {
    std::vector<Hash> in;
    for (const ValueIndex v : node.inputs) in.push_back(values[v]);
    std::vector<Hash> out(node.outputs.size(), 0);
    if (const auto* kernel = node.as<Node::Kernel>()) {
      std::vector<Hash> stages;
      for (const OpStage& stage : kernel->stages) {
        std::vector<Hash> read;
        for (const int32_t i : stage.inputs) read.push_back(i < 0 ? at(stages, ~i) : at(in, i));
        stages.push_back(meaning_of(*stage.op, read));
        if (stage.output >= 0) at(out, stage.output - std::ssize(in)) = stages.back();
      }
      if (kernel->stages.empty()) out[0] = meaning_of(*node.def, in);
    } else if (const auto* call = node.as<Node::Call>()) {
      const Body& callee = program_.body(call->callee);
      Hashes inner = leaves(callee, in);
      run(callee, inner);
      for (size_t r = 0; r < callee.results.size(); ++r) out[r] = inner[callee.results[r]];
      for (size_t u = 0; u < call->updated.size(); ++u) {
        const BodyParam& p = at(callee.params, call->updated[u]);
        out[callee.results.size() + u] = inner[p.out];
      }
    } else if (const auto* send = node.as<Node::Send>()) {
      auto& queue = queues_[send->channel];
      const auto& channel = program_.channels[send->channel];
      if (static_cast<int64_t>(queue.size()) == channel.capacity) return false;
      queue.emplace_back(send->message, in[0]);
    } else if (const auto* receive = node.as<Node::Receive>()) {
      auto& queue = queues_[receive->channel];
      if (queue.empty()) return false;
      EXPECT_EQ(queue.front().first, receive->message);
      out[0] = queue.front().second;
      queue.pop_front();
    } else {
      out[0] = in[0];  // A view or a copy.
    }
    for (size_t o = 0; o < out.size(); ++o) {
      if (node.outputs[o] != kNone) values[node.outputs[o]] = out[o];
    }
    return true;
  }

  const Program& program_;
  std::map<int32_t, std::deque<std::pair<int32_t, uint64_t>>> queues_;
};

// Runs the parts of entry 0, which has no parameters, on all devices. Returns the last values of
// its result and of its variables.
std::map<std::string, uint64_t> run_entry(const Program& program) {
  Runner runner(program);
  std::vector<std::pair<const Body*, Hashes>> parts;
  for (const BodyId id : program.entries[0].bodies)
    parts.emplace_back(&program.body(id), Runner::leaves(program.body(id), {}));
  std::vector<NodeId> next(parts.size(), NodeId(0));
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t p = 0; p < parts.size(); ++p) {
      const NodeId from = next[p];
      next[p] = runner.run(*parts[p].first, parts[p].second, from);
      moved = moved || next[p] != from;
    }
  }
  std::map<std::string, uint64_t> left;
  for (size_t p = 0; p < parts.size(); ++p) {
    const auto& [body, values] = parts[p];
    EXPECT_EQ(next[p], body->nodes.end_id()) << "device " << body->device << " waits for ever";
    for (const ValueIndex v : body->results) left["result"] = values[v];
    for (const auto& [variable, v] : body->variables)
      left[fmt::format("variable {}", variable)] = values[v];
  }
  return left;
}

std::string entry(unsigned seed, bool devices = false) {
  return "body main entry\n" + random_nodes(seed, false, devices) + "end";
}

// A target that can run any ops as one kernel.
struct Eager : TestTarget {
  bool fuses(const FusedOp&) const override { return true; }
};

TEST(RandomBodies, FuseAndDeadCodeKeepTheMeaning) {
  int64_t joined = 0;
  for (unsigned seed = 0; seed < kRuns; ++seed) {
    TestProgram p(entry(seed));
    SCOPED_TRACE(p.text());
    const auto before = run_entry(p.program);
    if (seed % 2 == 0) remove_dead_code(p.program, p.context);
    joined += fuse(p.body(), Eager(), p.program.fusions);
    verify(p.program, "fuse");
    EXPECT_EQ(run_entry(p.program), before);
  }
  EXPECT_GT(joined, kRuns / 2);
}

TEST(RandomBodies, InlineKeepsTheMeaning) {
  for (unsigned seed = 0; seed < kRuns; ++seed) {
    TestProgram p(R"(
    body main entry
      variable 0 %0 f32(4)
      variable 1 %1 f32(4)
      call 1 updated 0 updated 1 in %0 %1 out %2 f32(4) %3 f32(4) %4 f32(4) tie 1 %0 tie 2 %1
      kernel AddLhsInplace in %2 %3 out %5 f32(4) tie 0 %2
      results %5
      last 0 %3
      last 1 %4
    end
    body f function
)" + random_nodes(seed, true, false) +
                  "end");
    SCOPED_TRACE(p.text());
    const auto before = run_entry(p.program);
    EXPECT_EQ(inline_calls(p.program, p.context), 1);
    verify(p.program, "inline");
    EXPECT_EQ(run_entry(p.program), before);
  }
}

TEST(RandomBodies, ProjectKeepsTheMeaningAndNothingWaitsForEver) {
  int64_t messages = 0;
  for (unsigned seed = 0; seed < kRuns; ++seed) {
    TestProgram p(entry(seed, true), {}, 3);
    SCOPED_TRACE(p.text());
    const auto before = run_entry(p.program);
    messages += project(p.program, p.context);
    verify(p.program, "project");
    EXPECT_EQ(run_entry(p.program), before);
  }
  EXPECT_GT(messages, kRuns);
}

// Follows the contents of the blocks: each read must find the value that it names.
void expect_sound(const Body& body, const Storage& storage) {
  std::map<const Block*, TenantId> holds;
  const auto at = [&](ValueIndex v) -> TenantId& { return holds[&storage.block(v)]; };
  const auto expect_found = [&](ValueIndex v, const std::string& reader) {
    EXPECT_EQ(at(v), storage.tenant_of[v]) << reader << " reads %" << v;
  };
  for (const ValueIndex v : body.values.ids()) {
    if (body.values[v].source != BodyValue::Source::kNode && storage.tenant_of[v].valid())
      at(v) = storage.tenant_of[v];
  }
  for (const NodeId n : body.nodes.ids()) {
    const Node& node = body.nodes[n];
    if (node.is<Node::View>()) continue;
    for (const ValueIndex v : node.inputs) expect_found(v, fmt::format("node {}", n));
    for (const ValueIndex v : node.outputs) at(v) = storage.tenant_of[v];
  }
  for (const ValueIndex v : body.results) expect_found(v, "the caller");
  for (const auto& [variable, v] : body.variables) {
    expect_found(v, "the next run");
    EXPECT_EQ(storage.block(v).location, Block::Location::kVariable);
    EXPECT_EQ(storage.block(v).index, variable);
  }
}

TEST(RandomBodies, StorageKeepsTheBytesThatAreRead) {
  int64_t reused = 0;
  for (unsigned seed = 0; seed < kRuns; ++seed) {
    TestProgram p(entry(seed));
    SCOPED_TRACE(p.text());
    const auto before = run_entry(p.program);
    LoweredBody lowered;
    choose_kernels(p.body(), *p.target, lowered);
    Storage storage = assign_storage(p.body(), lowered.choices, *p.target);
    reused += reuse_dying_operands(p.body(), lowered.choices, storage);
    verify(p.program, "storage");
    expect_sound(p.body(), storage);
    EXPECT_EQ(run_entry(p.program), before);
  }
  EXPECT_GT(reused, kRuns / 4);
}

}  // namespace
}  // namespace sluice::compiler
