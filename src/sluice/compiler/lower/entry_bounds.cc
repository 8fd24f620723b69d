#include "sluice/compiler/lower/entry_bounds.h"

#include <algorithm>
#include <map>
#include <set>

#include "sluice/base/error.h"
#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"

namespace sluice::compiler {
namespace {

using exe::IndexExpr;

bool is_remote(const exe::Step& step) {
  const auto* issue = std::get_if<exe::Issue>(&step.body);
  return issue != nullptr && !issue->entry_from &&
         (issue->kind == exe::TransferKind::kRemoteLoad ||
          issue->kind == exe::TransferKind::kRemoteStore);
}

class EntryWalk {
 public:
  explicit EntryWalk(const exe::Executable& e) : e_(e), needs_(e.functions.size()) {}

  void run() {
    for (const int32_t f : exe::callees_first(e_)) find_needs(f);
    for (const exe::Program& program : e_.programs) {
      for (const exe::Start& start : program.starts) walk(start.function, {});
    }
    for (const exe::Function& f : e_.functions) {
      for (const exe::Step& step : f.steps) {
        if (const auto seen = seen_.find(&step); seen != seen_.end()) check(step, seen->second);
      }
    }
  }

 private:
  using Range = std::pair<int64_t, int64_t>;

  void check(const exe::Step& step, const Range& entries) const {
    const auto& issue = std::get<exe::Issue>(step.body);
    const exe::RemoteBufferPlan& buffer = e_.remote_buffers[static_cast<size_t>(issue.object)];
    const auto& [low, high] = entries;
    require(low >= 0 && high < buffer.entries,
            "remote buffer {}: entry must be 0 to {}, got {} (made at {})", buffer.name,
            buffer.entries - 1,
            low == high ? fmt::format("{}", low) : fmt::format("{} to {}", low, high), step.where);
  }

  // Whether a function moves remote entries, itself or in a callee, and the index parameters on
  // which these entries depend.
  struct Needs {
    bool remote = false;
    std::vector<bool> params;
  };

  static void add(const IndexExpr& x, Needs& needs) {
    for (const IndexExpr::Node& n : x.nodes()) {
      if (n.kind == IndexExpr::Kind::kParam) needs.params[static_cast<size_t>(n.value)] = true;
    }
  }

  void find_needs(int32_t f) {
    const exe::Function& function = e_.functions[static_cast<size_t>(f)];
    Needs& needs = needs_[static_cast<size_t>(f)];
    needs.params.resize(static_cast<size_t>(function.index_params), false);
    for (const exe::Step& step : function.steps) {
      if (is_remote(step)) {
        needs.remote = true;
        add(std::get<exe::Issue>(step.body).entry, needs);
      }
      exe::for_each_call(step, [&](const exe::Call& c) {
        const Needs& callee = needs_[static_cast<size_t>(c.function)];
        needs.remote |= callee.remote;
        for (size_t i = 0; i < c.index_args.size(); ++i) {
          if (callee.params[i]) add(c.index_args[i], needs);
        }
      });
    }
  }

  // Records the entries that function `f` moves. `params`: its index parameters, with 0 for those
  // on which no entry depends, so that equal activations are visited once.
  void walk(int32_t f, const std::vector<int64_t>& params) {
    if (!needs_[static_cast<size_t>(f)].remote || !walked_.insert({f, params}).second) return;
    for (const exe::Step& step : e_.functions[static_cast<size_t>(f)].steps) {
      if (is_remote(step)) {
        const int64_t entry = std::get<exe::Issue>(step.body).entry.evaluate({params, 0, 0});
        auto& [low, high] = seen_.try_emplace(&step, entry, entry).first->second;
        low = std::min(low, entry);
        high = std::max(high, entry);
      }
      const auto* loop = std::get_if<exe::Loop>(&step.body);
      exe::for_each_call(step, [&](const exe::Call& c) {
        const Needs& callee = needs_[static_cast<size_t>(c.function)];
        bool counts = false;
        for (size_t i = 0; i < c.index_args.size(); ++i)
          counts |= callee.params[i] && c.index_args[i].uses(IndexExpr::Kind::kIteration);
        const int64_t turns = loop == nullptr ? 1
                              : counts        ? loop->trips
                                              : std::min<int64_t>(loop->trips, 1);
        for (int64_t it = 0; callee.remote && it < turns; ++it) {
          std::vector<int64_t> args(c.index_args.size(), 0);
          for (size_t i = 0; i < args.size(); ++i) {
            if (callee.params[i]) args[i] = c.index_args[i].evaluate({params, it, 0});
          }
          walk(c.function, args);
        }
      });
    }
  }

  const exe::Executable& e_;
  std::vector<Needs> needs_;
  std::set<std::pair<int32_t, std::vector<int64_t>>> walked_;
  std::map<const exe::Step*, Range> seen_;
};

}  // namespace

void check_entries(const exe::Executable& executable) {
  if (!executable.remote_buffers.empty()) EntryWalk(executable).run();
}

}  // namespace sluice::compiler
