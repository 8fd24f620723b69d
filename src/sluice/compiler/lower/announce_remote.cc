#include "sluice/compiler/lower/announce_remote.h"

#include <algorithm>
#include <optional>

#include "sluice/exe/call_order.h"
#include "sluice/exe/remote_ledger.h"
#include "sluice/exe/visit_step.h"

namespace sluice::compiler {
namespace {

constexpr int64_t kMostSteps = 50'000'000;

const exe::Issue* remote_transfer(const exe::Step& step) {
  const auto* issue = std::get_if<exe::Issue>(&step.body);
  const bool remote = issue != nullptr && (issue->kind == exe::TransferKind::kRemoteLoad ||
                                           issue->kind == exe::TransferKind::kRemoteStore);
  return remote ? issue : nullptr;
}

bool calls(const exe::Step& step) {
  bool found = false;
  exe::for_each_call(step, [&](const exe::Call&) { found = true; });
  return found;
}

class RemoteWalk {
 public:
  RemoteWalk(const exe::Executable& e, const std::vector<std::vector<int32_t>>& before_calls)
      : e_(e), order_(e.functions.size()), moves_(e.functions.size()), ledger_(e) {
    for (const int32_t f : exe::callees_first(e))
      sort(static_cast<size_t>(f), before_calls[static_cast<size_t>(f)]);
  }

  std::vector<exe::RemoteTrace> trace(const exe::Program& program) {
    ledger_ = exe::RemoteLedger(e_);
    left_ = kMostSteps;
    for (const exe::Entry& entry : program.entries)
      walk(entry.function, {}, exe::RemoteLedger::entry(entry.device));
    return left_ > 0 ? ledger_.traces() : std::vector<exe::RemoteTrace>();
  }

 private:
  // The remote transfers and calls of a function in the order of its graph.
  void sort(size_t f, const std::vector<int32_t>& before_calls) {
    std::vector<const exe::Step*> transfers;
    for (const exe::Step& step : e_.functions[f].steps) {
      if (remote_transfer(step) != nullptr) transfers.push_back(&step);
    }
    const auto token = [](const exe::Step* s) { return std::get<exe::Issue>(s->body).token; };
    std::sort(transfers.begin(), transfers.end(),
              [&](const exe::Step* a, const exe::Step* b) { return token(a) < token(b); });
    moves_[f] = !transfers.empty();
    auto next = transfers.begin();
    auto before = before_calls.begin();
    for (const exe::Step& step : e_.functions[f].steps) {
      if (!calls(step)) continue;
      for (; next != transfers.end() && token(*next) < *before; ++next) order_[f].push_back(*next);
      ++before;
      order_[f].push_back(&step);
      exe::for_each_call(step, [&](const exe::Call& c) {
        moves_[f] = moves_[f] || moves_[static_cast<size_t>(c.function)];
      });
    }
    order_[f].insert(order_[f].end(), next, transfers.end());
  }

  void walk(int32_t f, const std::vector<int64_t>& params, exe::RemoteLedger::Activation self) {
    if (!moves_[static_cast<size_t>(f)]) return;
    int64_t call = 0;
    for (const exe::Step* step : order_[static_cast<size_t>(f)]) {
      if (--left_ <= 0) return;
      if (const exe::Issue* issue = remote_transfer(*step)) {
        std::optional<int64_t> entry;
        if (!issue->entry_from) entry = issue->entry.evaluate({params, 0, 0});
        ledger_.move(*issue, entry, self);
        continue;
      }
      const auto turn = [&](const exe::Call& c, int64_t it) {
        if (!moves_[static_cast<size_t>(c.function)]) return;
        std::vector<int64_t> args;
        for (const exe::IndexExpr& x : c.index_args) args.push_back(x.evaluate({params, it, 0}));
        walk(c.function, args, exe::RemoteLedger::callee(self, call, it));
      };
      if (const auto* c = std::get_if<exe::Call>(&step->body)) turn(*c, 0);
      if (const auto* l = std::get_if<exe::Loop>(&step->body)) {
        const bool moves = moves_[static_cast<size_t>(l->body.function)];
        for (int64_t it = 0; moves && it < l->trips && left_ > 0; ++it) turn(l->body, it);
      }
      if (const auto* b = std::get_if<exe::Branch>(&step->body)) {
        exe::RemoteLedger::Contents before = ledger_.contents();
        turn(b->then_call, 0);
        const exe::RemoteLedger::Contents after_then = ledger_.contents();
        ledger_.start_with(std::move(before));
        turn(b->else_call, 1);
        ledger_.join(after_then);
      }
      ++call;
    }
  }

  const exe::Executable& e_;
  std::vector<std::vector<const exe::Step*>> order_;  // By function.
  std::vector<bool> moves_;                           // Itself or in a callee.
  exe::RemoteLedger ledger_;
  int64_t left_ = 0;
};

}  // namespace

void announce_remote(Program& program) {
  exe::Executable& executable = program.executable;
  if (executable.remote_buffers.empty()) return;
  std::vector<std::vector<int32_t>> before_calls(executable.functions.size());
  for (const auto& [id, lowered] : program.lowered) {
    auto& before = before_calls[static_cast<size_t>(lowered.function)];
    for (const Node& node : program.body(id).nodes) {
      if (const auto* call = node.call()) before.push_back(call->transfers_before);
      if (const auto* branch = node.as<Node::Branch>()) before.push_back(branch->transfers_before);
    }
  }
  RemoteWalk walk(executable, before_calls);
  for (exe::Program& p : executable.programs) p.remote = walk.trace(p);
}

}  // namespace sluice::compiler
