#include "sluice/report/remote_access.h"

#include <map>
#include <tuple>

#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"

namespace sluice::report {
namespace {

constexpr int64_t kMaxSteps = 2'000'000;  // Steps of functions with remote accesses.

// The innermost loop around a function's steps.
struct LoopIteration {
  int64_t number = 0;
  int64_t trips = 1;
};

class Follower {
 public:
  explicit Follower(const exe::Executable& e) : e_(e), reaches_(e.functions.size()) {
    for (const exe::FunctionId f : exe::callees_first(e)) {
      for (const exe::Step& step : steps(f)) {
        bool reaches = is_remote(step);
        exe::for_each_call(step,
                           [&](const exe::Call& c) { reaches = reaches || reaches_[c.function]; });
        if (reaches) reaches_[f] = true;
      }
    }
  }

  RemoteAccesses run(const exe::Program& program) {
    for (const exe::Start& start : program.starts) follow(start.function, {}, {});
    return std::move(found_);
  }

 private:
  const std::vector<exe::Step>& steps(exe::FunctionId function) const {
    return e_.functions[function].steps;
  }

  static bool is_remote(const exe::Step& step) {
    const auto* issue = std::get_if<exe::Issue>(&step.body);
    return issue != nullptr && (issue->kind == exe::TransferKind::kRemoteLoad ||
                                issue->kind == exe::TransferKind::kRemoteStore);
  }

  void follow(exe::FunctionId function, const std::vector<int64_t>& params,
              const LoopIteration& around) {
    if (!reaches_[function]) return;
    for (size_t s = 0; s < steps(function).size(); ++s) {
      const exe::Step& step = steps(function)[s];
      if (++steps_seen_ > kMaxSteps) found_.complete = false;
      if (!found_.complete) return;
      if (is_remote(step)) add(std::get<exe::Issue>(step.body), function, s, params, around);
      if (const auto* loop = std::get_if<exe::Loop>(&step.body)) {
        for (int64_t i = 0; i < loop->trips && found_.complete; ++i) {
          if (!reaches_[loop->body.function]) break;
          enter(loop->body, params, i, loop->trips > 1 ? LoopIteration{i, loop->trips} : around);
        }
      } else {
        exe::for_each_call(step, [&](const exe::Call& c) { enter(c, params, 0, around); });
      }
    }
  }

  void enter(const exe::Call& call, const std::vector<int64_t>& params, int64_t iteration,
             const LoopIteration& around) {
    std::vector<int64_t> args;
    for (const exe::IndexExpr& arg : call.index_args)
      args.push_back(arg.evaluate({.params = params, .iteration = iteration}));
    follow(call.function, args, around);
  }

  void add(const exe::Issue& issue, exe::FunctionId function, size_t step,
           const std::vector<int64_t>& params, const LoopIteration& around) {
    const int64_t entry = issue.entry_from ? -1 : issue.entry.evaluate({.params = params});
    const auto [at, is_new] =
        rows_.try_emplace({issue.buffer(), entry, function, step}, found_.rows.size());
    if (is_new && found_.rows.size() == kMaxAccesses) {
      found_.complete = false;
      return;
    }
    if (is_new)
      found_.rows.push_back({issue.buffer(), entry, function, static_cast<int32_t>(step),
                             around.number, around.trips, 0});
    ++found_.rows[at->second].count;
  }

  const exe::Executable& e_;
  Ids<exe::FunctionId, bool> reaches_;  // Whether it or a callee accesses remote memory.
  std::map<std::tuple<exe::BufferId, int64_t, exe::FunctionId, size_t>, size_t> rows_;
  int64_t steps_seen_ = 0;
  RemoteAccesses found_;
};

}  // namespace

RemoteAccesses remote_accesses(const exe::Executable& executable, const exe::Program& program) {
  return Follower(executable).run(program);
}

}  // namespace sluice::report
