// Tests with random bodies: whatever time each transfer takes, a scheduled body reads and writes
// the same data.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "sluice/base/hash.h"
#include "sluice/compiler/passes/transfers.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

using Engine = std::minstd_rand;

// The text of a random body: kernels on f32(4), transfers of two streams and of three entries of
// remote buffer 1.
std::string random_body(unsigned seed) {
  Engine dice(seed);
  const auto below = [&](size_t n) { return dice() % n; };
  std::vector<int32_t> alive{0, 1};  // Values that no node has overwritten.
  std::string nodes;
  int32_t next = 2;
  int token = 0;
  for (size_t count = 5 + below(14); count > 0; --count) {
    const int32_t x = alive[below(alive.size())];
    const size_t kind = below(9);
    const auto transfer = [&](const char* what, size_t at) {
      static constexpr const char* kModes[] = {"compute", "io", "io_overlapped", "io_overlapped"};
      return fmt::format("transfer HostLoad {} {} at {} token {}", what, kModes[below(4)], at,
                         token++);
    };
    const bool makes = kind != 4 && kind != 5;
    if (kind < 2) nodes += transfer("remote_load 1", below(3));
    if (kind == 2) nodes += transfer("stream_in 0", 0);
    if (kind == 3) {  // The load overwrites x.
      nodes +=
          transfer("remote_load 1", below(3)) + fmt::format(" out %{} f32(4) tie 0 %{}\n", next, x);
      std::erase(alive, x);
      alive.push_back(next++);
      continue;
    }
    if (kind == 4) nodes += transfer("remote_store 1", below(3)) + fmt::format(" in %{}", x);
    if (kind == 5) nodes += transfer("stream_out 1", 0) + fmt::format(" in %{}", x);
    if (kind == 6) nodes += fmt::format("view in %{}", x);
    if (kind == 7) nodes += fmt::format("kernel Neg in %{}", x);
    if (kind == 8)
      nodes += fmt::format("kernel AddLhsInplace in %{} %{}", x, alive[below(alive.size())]);
    if (makes) nodes += fmt::format(" out %{} f32(4)", next);
    if (kind == 8) {
      nodes += fmt::format(" tie 0 %{}", x);
      std::erase(alive, x);
    }
    nodes += '\n';
    if (makes) alive.push_back(next++);
    if (alive.empty()) break;
  }
  return "body main entry\nvariable 0 %0 f32(4)\nvariable 1 %1 f32(4)\n" + nodes +
         fmt::format("results %{}\nend", alive.back());
}

// Simulates a body. A transfer on an I/O queue ends at a random time between its issue and its
// wait, in the order of the queue.
class TransferRunner {
 public:
  TransferRunner(const Body& body, unsigned seed)
      : body_(body), dice_(seed), values_(body.values.size()) {
    for (const ValueIndex v : values_.ids()) {
      if (body.values[v].source == BodyValue::Source::kVariable)
        values_[v] = 100 + static_cast<uint64_t>(v);
    }
  }

  // Runs the body. Returns the tensors of stream 1, the result and the entries of the buffer.
  std::vector<uint64_t> run() {
    for (const Node& node : body_.nodes) {
      while (dice_() % 3 == 0 && end_one()) {
      }
      run(node);
    }
    for (const auto& [queue, flights] : flights_)
      EXPECT_TRUE(flights.empty()) << "in flight at the end";
    std::vector<uint64_t> left = out_;
    left.push_back(read(body_.results[0]));
    for (int64_t entry = 0; entry < 3; ++entry) left.push_back(remote(entry));
    return left;
  }

 private:
  uint64_t& remote(int64_t entry) {
    return remote_.try_emplace(entry, 1000 + static_cast<uint64_t>(entry)).first->second;
  }
  uint64_t read(ValueIndex v) const {
    EXPECT_TRUE(values_[v]) << "value " << v << " is not there yet";
    return values_[v].value_or(0);
  }

  bool end_one() {
    for (auto& [queue, flights] : flights_) {
      if (flights.empty() || dice_() % 2 == 0) continue;
      end(flights);
      return true;
    }
    return false;
  }

  void end(std::deque<const Node*>& flights) {
    move(*flights.front());
    flights.pop_front();
  }

  // Does the work of a transfer. The value of a load on an I/O queue is available after its wait.
  void move(const Node& node) {
    const Node::Transfer& t = *node.as<Node::Transfer>();
    switch (t.effect.kind) {
      case Effect::Action::kRemoteLoad:
        loaded_[t.token] = remote(t.effect.entry);
        break;
      case Effect::Action::kStreamRead:
        loaded_[t.token] = 2000 + in_++;
        break;
      case Effect::Action::kRemoteStore:
        remote(t.effect.entry) = read(node.inputs[0]);
        break;
      case Effect::Action::kStreamWrite:
        out_.push_back(read(node.inputs[0]));
        break;
      case Effect::Action::kPrint:
        ADD_FAILURE() << "a print is no transfer";
    }
    if (t.queue == 0 && !node.outputs.empty()) values_[node.outputs[0]] = loaded_[t.token];
  }

  void run(const Node& node) {
    if (const auto* t = node.as<Node::Transfer>()) {
      if (t->queue == 0) return move(node);
      flights_[t->queue].push_back(&node);
    } else if (const auto* w = node.as<Node::Wait>()) {
      auto& flights = flights_[w->queue];
      const auto in_flight = [&](const Node* n) {
        return n->as<Node::Transfer>()->token == w->token;
      };
      while (std::any_of(flights.begin(), flights.end(), in_flight)) end(flights);
      const auto found = loaded_.find(w->token);
      if (found != loaded_.end()) values_[node.inputs[0]] = found->second;
    } else {
      std::string text = node.is<Node::Kernel>() ? node.def->type : "";
      for (const ValueIndex v : node.inputs) text += fmt::format(" {}", read(v));
      values_[node.outputs[0]] = node.is<Node::View>() ? read(node.inputs[0]) : hash64(text);
    }
  }

  const Body& body_;
  Engine dice_;
  Ids<ValueIndex, std::optional<uint64_t>> values_;
  std::map<int32_t, std::deque<const Node*>> flights_;  // Indexed by queue.
  std::map<int32_t, uint64_t> loaded_;                  // Keyed by token.
  std::map<int64_t, uint64_t> remote_;                  // Indexed by entry.
  std::vector<uint64_t> out_;
  uint64_t in_ = 0;
};

class RandomTransfers : public testing::TestWithParam<int> {};

TEST_P(RandomTransfers, MayTakeAnyTime) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    TestProgram p(random_body(seed));
    SCOPED_TRACE(p.text());
    const auto before = TransferRunner(p.body(), 0).run();
    schedule_transfers(p.body(), FactTable(p.program), GetParam());
    verify(p.program, "transfers");
    for (unsigned run = 0; run < 8; ++run) EXPECT_EQ(TransferRunner(p.body(), run).run(), before);
    if (HasFailure()) FAIL() << "after the pass:\n" << p.text();
  }
}

INSTANTIATE_TEST_SUITE_P(Queues, RandomTransfers, testing::Values(1, 3));

}  // namespace
}  // namespace sluice::compiler
