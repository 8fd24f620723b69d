#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/runtime/strand.h"

namespace sluice::runtime {

/// Tasks [begin, end) of a kernel.
struct TaskRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool empty() const { return begin == end; }
};

/// Results of StepRunner::issue() that are no numbers of transfers.
inline constexpr int64_t kNotYet = -1;
inline constexpr int64_t kEnded = -2;

/// The walk over the steps of a program, for any kind of device. A `StepRunner` runs the steps for
/// one worker of a device. Its calls are inlined, so a step costs no virtual call. No call may
/// block. It has:
///
///     using Address                          device memory; the walk only adds bytes to it
///     StepRunner(run, device, ...)
///     static Address address(DeviceAddress)
///     void start()                           begins a run
///     bool leads() const                     this worker runs the steps that are no kernels
///     bool barrier()                         false until all workers have come
///     TaskRange share_of(kernel)             tasks for this worker; the walk skips an empty share
///     void run(kernel, operands, scalars, share)
///     std::optional<uint32_t> read(at, bytes, step)   up to four bytes; empty until they are there
///     int64_t issue(issue, memory, entry, step, awaited_next)   number of the transfer,
///                                            kNotYet if it cannot begin, kEnded if it has ended
///     bool wait(queue, number)               false until the transfer has ended
///     bool send(send, operand, message, step), bool receive(receive, operand, message, step)
///                                            false if the channel is not ready
///     bool collective(collective, bound, input, output, number, step)   false until it has ended
///     bool finish()                          false until all steps have ended
///     bool has_room()                        false while too many commands have not ended
///     const Step* blamed() const             step that failed, if not the current one
///     bool park() const, bool waits_for_device() const, void settle(), bool drained()
///                                            see Strand
///     Counters counters
template <typename StepRunner>
class Walk final : public Strand {
 public:
  using Address = typename StepRunner::Address;

  /// `args` are the last arguments of the constructor of StepRunner.
  template <typename... Args>
  Walk(RunState& run, exe::DeviceId device, Args&&... args)
      : run_(run), device_(device), runner_(run, device, std::forward<Args>(args)...) {
    const StackNeeds& needs = run.loaded->needs;
    stack_.resize(static_cast<size_t>(needs.depth) + 1);
    bases_.resize(needs.params + static_cast<size_t>(needs.depth) + 1);
    index_params_.resize(needs.index_params + 1);
    operands_.resize(needs.operands + 1);
    scalars_.resize(needs.scalars + 1);
    tokens_.reserve(64);
    messages_.resize(run.executable->channels.size());
    collectives_.resize(run.executable->groups.size());
    moves_.resize(run.loaded->moves.size());
    for (const LoadedFunction& f : run.loaded->functions) fixed_.push_back(fixed_arguments(f));
  }

  void start(const exe::Program& program) override;
  bool advance() override;
  bool finished() const override { return ended_; }
  const exe::Step* current() const override;
  bool park() const override { return runner_.park(); }
  void settle() override { runner_.settle(); }
  bool drained() override { return runner_.drained(); }
  exe::DeviceId device() const override { return device_; }
  bool waits_for_device() const override { return !ended_ && runner_.waits_for_device(); }
  const Counters& counters() const override { return runner_.counters; }
  const std::vector<int64_t>& moves() const override { return moves_; }
  void record(EventRing* events) override { events_ = events; }

 private:
  struct Frame {
    const LoadedFunction* function = nullptr;
    size_t pc = 0;
    const Address* fixed = nullptr;   ///< fixed_arguments() of the function, or null.
    size_t bases = 0;                 ///< Index of its frame in bases_; parameters follow.
    size_t index_params = 0;          ///< Index of its first parameter in index_params_.
    const exe::Loop* loop = nullptr;  ///< Loop that this activation is running, or null.
    int64_t iteration = 0;
  };

  std::vector<Address> fixed_arguments(const LoadedFunction& function) const;
  Address arena(exe::ArenaId index) const { return StepRunner::address(run_.arenas[index]); }
  const Address* arguments_of(const LoadedKernel& kernel);
  /// Returns whether this worker has tasks of the kernel.
  bool run_kernel(const LoadedKernel& kernel);
  void enter(const exe::Call& call, int64_t iteration);
  /// Each of these steps returns false if it cannot run yet.
  bool communicate(const LoadedStep& loaded, const Frame& frame);
  bool branch(const exe::Branch& branch);
  /// Returns whether another iteration of a loop begins; empty while the condition is not read.
  std::optional<bool> goes_on(const exe::Loop& loop, const Frame& frame);
  bool issue(const exe::Issue& issue);
  bool wait(const exe::Wait& wait);
  bool collective(const exe::Collective& collective, const BoundCollective& bound);
  /// Returns whether the next step waits for this transfer.
  bool is_awaited_next(const exe::Issue& issue) const;
  bool stopped() const { return run_.stop->load(std::memory_order_relaxed); }
  /// Ends the walk if the run is stopped. Returns whether it has ended.
  bool ends() {
    if (!stopped()) return false;
    depth_ = 0;
    return ended_ = true;
  }
  Address address(const exe::Address& at, int64_t iteration) const;
  /// Loading has refused slots below 0, whose remainder would be negative.
  Address slot_of_ring(Address base, const exe::Address& at, int64_t iteration) const {
    return at.depth > 0 ? base + evaluate(at.slot, iteration) % at.depth * at.stride : base;
  }
  int64_t evaluate(const exe::IndexExpr& expr, int64_t iteration) const;
  auto token(int32_t number) {
    const int64_t key = static_cast<int64_t>(depth_) << 32 | number;
    return std::find_if(tokens_.begin(), tokens_.end(),
                        [&](const auto& e) { return e.first == key; });
  }

  RunState& run_;
  exe::DeviceId device_;
  StepRunner runner_;
  EventRing* events_ = nullptr;
  Ids<exe::FunctionId, std::vector<Address>> fixed_;
  std::vector<Frame> stack_;
  size_t depth_ = 0;
  std::vector<Address> bases_;
  std::vector<int64_t> index_params_;
  std::vector<Address> operands_;
  std::vector<int64_t> scalars_;
  /// (token key, transfer number) of transfers that no step has waited for.
  std::vector<std::pair<int64_t, int64_t>> tokens_;
  /// Number of the next message, by channel, and of the next collective, by group. The walk counts,
  /// because a loop that exits takes the numbers of its other iterations with it.
  Ids<exe::ChannelId, int64_t> messages_;
  Ids<exe::GroupId, int64_t> collectives_;
  std::vector<int64_t> moves_;  ///< Indexed by step of LoadedProgram::moves: its runs in this run.
  bool synced_ = false;
  bool ended_ = true;
};

/// Returns the addresses of a function's arguments, by argument. Empty unless the frame of the
/// function is fixed. Null for an argument whose address varies.
template <typename StepRunner>
auto Walk<StepRunner>::fixed_arguments(const LoadedFunction& function) const
    -> std::vector<Address> {
  std::vector<Address> addresses;
  if (function.entry_frame == nullptr || function.function->device != device_) return addresses;
  const Address frame = arena(function.entry_frame->arena()) + function.entry_frame->offset;
  for (const Argument& a : function.arguments) {
    const Address base = a.base < 0 ? arena(exe::ArenaId(~a.base)) : frame;
    addresses.push_back(a.is_fixed() ? base + a.offset : Address{});
  }
  return addresses;
}

template <typename StepRunner>
void Walk<StepRunner>::start(const exe::Program& program) {
  depth_ = 0;
  synced_ = false;
  tokens_.clear();
  std::fill(messages_.begin(), messages_.end(), 0);
  std::fill(collectives_.begin(), collectives_.end(), 0);
  std::fill(moves_.begin(), moves_.end(), 0);
  runner_.start();
  for (const exe::Start& start : program.starts) {
    if (start.device != device_) continue;
    stack_[0] = {};
    stack_[0].function = &run_.loaded->functions[start.function];
    if (stack_[0].function->entry_frame != nullptr) stack_[0].fixed = fixed_[start.function].data();
    bases_[0] = arena(start.frame.arena()) + start.frame.offset;
    depth_ = 1;
  }
  ended_ = depth_ == 0;
}

template <typename StepRunner>
const exe::Step* Walk<StepRunner>::current() const {
  if (runner_.blamed() != nullptr) return runner_.blamed();
  if (depth_ == 0) return nullptr;
  const Frame& frame = stack_[depth_ - 1];
  return frame.pc < frame.function->steps.size() ? frame.function->steps[frame.pc].step : nullptr;
}

template <typename StepRunner>
int64_t Walk<StepRunner>::evaluate(const exe::IndexExpr& expr, int64_t iteration) const {
  if (expr.is_constant()) return expr.constant();
  const Frame& frame = stack_[depth_ - 1];
  exe::IndexContext context;
  context.params = {index_params_.data() + frame.index_params,
                    static_cast<size_t>(frame.function->function->index_params)};
  context.iteration = iteration;
  context.replica = run_.replica;
  return expr.evaluate(context);
}

template <typename StepRunner>
auto Walk<StepRunner>::address(const exe::Address& at, int64_t iteration) const -> Address {
  const Frame& frame = stack_[depth_ - 1];
  Address base{};
  switch (at.base) {
    case exe::Address::Base::kArena:
      base = arena(at.arena());
      break;
    case exe::Address::Base::kFrame:
      base = bases_[frame.bases];
      break;
    case exe::Address::Base::kParam:
      base = bases_[frame.bases + 1 + at.index];
      break;
  }
  return slot_of_ring(base + at.offset, at, iteration);
}

template <typename StepRunner>
auto Walk<StepRunner>::arguments_of(const LoadedKernel& kernel) -> const Address* {
  const Frame& frame = stack_[depth_ - 1];
  if (kernel.fixed && frame.fixed != nullptr) return frame.fixed + kernel.first;
  const Argument* a = frame.function->arguments.data() + kernel.first;
  const Address* const bases = bases_.data() + frame.bases;
  for (size_t i = 0; i < kernel.arguments; ++i, ++a) {
    const Address base = a->base < 0 ? arena(exe::ArenaId(~a->base)) : bases[a->base];
    operands_[i] = base + a->offset;
    if (a->ring != nullptr) operands_[i] = slot_of_ring(operands_[i], *a->ring, 0);
  }
  return operands_.data();
}

template <typename StepRunner>
bool Walk<StepRunner>::run_kernel(const LoadedKernel& kernel) {
  const TaskRange share = runner_.share_of(kernel);
  if (share.empty()) return false;
  for (size_t i = 0; i < kernel.scalars->size(); ++i)
    scalars_[i] = evaluate((*kernel.scalars)[i], 0);
  runner_.run(kernel, arguments_of(kernel), scalars_.data(), share);
  return true;
}

template <typename StepRunner>
void Walk<StepRunner>::enter(const exe::Call& call, int64_t iteration) {
  const Frame& caller = stack_[depth_ - 1];
  Frame callee;
  callee.function = &run_.loaded->functions[call.function];
  callee.bases = caller.bases + 1 + caller.function->function->params.size();
  bases_[callee.bases] = address(call.frame, iteration);
  callee.index_params =
      caller.index_params + static_cast<size_t>(caller.function->function->index_params);
  for (size_t i = 0; i < call.args.size(); ++i)
    bases_[callee.bases + 1 + i] = address(call.args[exe::ParamId(i)].at, iteration);
  for (size_t i = 0; i < call.index_args.size(); ++i) {
    index_params_[callee.index_params + i] = evaluate(call.index_args[i], iteration);
  }
  stack_[depth_++] = callee;
}

template <typename StepRunner>
bool Walk<StepRunner>::issue(const exe::Issue& issue) {
  if (!runner_.leads()) return true;
  int64_t entry = evaluate(issue.entry, 0);
  if (issue.entry_from) {
    const std::optional<uint32_t> value =
        runner_.read(address(issue.entry_from->at, 0), 4, current());
    if (!value) return false;
    entry = issue.entry_from->spec.dtype == i32 ? int64_t{static_cast<int32_t>(*value)}
                                                : int64_t{*value};
  }
  if (issue.kind == exe::TransferKind::kRemoteLoad ||
      issue.kind == exe::TransferKind::kRemoteStore) {
    const exe::RemoteBufferPlan& buffer =
        run_.executable->remote_buffers[exe::BufferId(issue.object)];
    require(entry >= 0 && entry < buffer.entries,
            "remote buffer {}: entry {} is outside its {} entries", buffer.name, entry,
            buffer.entries);
  }
  const int64_t number =
      runner_.issue(issue, address(issue.memory.at, 0), entry, current(), is_awaited_next(issue));
  if (number == kNotYet) return false;
  runner_.counters.bytes += issue.memory.bytes;
  if (number == kEnded) return true;
  const auto old = token(issue.token);
  if (old != tokens_.end()) {
    old->second = number;
  } else {
    tokens_.emplace_back(static_cast<int64_t>(depth_) << 32 | issue.token, number);
  }
  return true;
}

template <typename StepRunner>
bool Walk<StepRunner>::is_awaited_next(const exe::Issue& issue) const {
  const Frame& frame = stack_[depth_ - 1];
  if (frame.pc + 1 >= frame.function->steps.size()) return false;
  const auto* next = std::get_if<exe::Wait>(&frame.function->steps[frame.pc + 1].step->body);
  return next != nullptr && next->queue == issue.queue && next->token == issue.token;
}

template <typename StepRunner>
bool Walk<StepRunner>::wait(const exe::Wait& wait) {
  if (!runner_.leads()) return true;
  const auto entry = token(wait.token);
  SLUICE_CHECK(entry != tokens_.end());
  if (!runner_.wait(wait.queue, entry->second)) return false;
  tokens_.erase(entry);
  return true;
}

template <typename StepRunner>
bool Walk<StepRunner>::collective(const exe::Collective& collective, const BoundCollective& bound) {
  int64_t& number = collectives_[collective.group];
  if (!runner_.collective(collective, bound, address(collective.operands.front().at, 0),
                          address(collective.operands.back().at, 0), number, current()))
    return false;
  ++number;
  return true;
}

template <typename StepRunner>
bool Walk<StepRunner>::branch(const exe::Branch& branch) {
  const std::optional<uint32_t> taken = runner_.read(address(branch.condition.at, 0), 1, current());
  if (!taken) return false;
  synced_ = false;
  ++stack_[depth_ - 1].pc;
  enter(*taken != 0 ? branch.then_call : branch.else_call, 0);
  return true;
}

template <typename StepRunner>
bool Walk<StepRunner>::communicate(const LoadedStep& loaded, const Frame& frame) {
  const exe::Step& step = *loaded.step;
  if (const auto* i = std::get_if<exe::Issue>(&step.body)) return issue(*i);
  if (const auto* w = std::get_if<exe::Wait>(&step.body)) return wait(*w);
  if (const auto* c = std::get_if<exe::Collective>(&step.body))
    return collective(*c, at(frame.function->collectives, loaded.collective));
  if (!runner_.leads()) return true;
  const auto* s = std::get_if<exe::Send>(&step.body);
  const auto* r = std::get_if<exe::Receive>(&step.body);
  int64_t& number = messages_[s != nullptr ? s->channel : r->channel];
  const bool done = s != nullptr ? runner_.send(*s, address(s->operand.at, 0), number, &step)
                                 : runner_.receive(*r, address(r->operand.at, 0), number, &step);
  if (done) ++number;
  return done;
}

template <typename StepRunner>
std::optional<bool> Walk<StepRunner>::goes_on(const exe::Loop& loop, const Frame& frame) {
  if (frame.iteration >= loop.trips) return false;
  if (loop.condition < 0) return true;
  const exe::Operand& condition = loop.body.args[exe::ParamId(loop.condition)];
  const std::optional<uint32_t> value =
      runner_.read(address(condition.at, frame.iteration), 1, current());
  if (!value) return {};
  return *value != 0;
}

template <typename StepRunner>
bool Walk<StepRunner>::advance() {
  bool progress = false;
  if (events_ != nullptr) events_->resume();
  const auto waits = [&] {
    if (ends()) return true;
    if (events_ != nullptr) events_->block();
    ++runner_.counters.waits;
    return progress;
  };
  while (depth_ > 0) {
    Frame& frame = stack_[depth_ - 1];
    if (frame.pc == frame.function->steps.size()) {
      --depth_;
      progress = true;
      continue;
    }
    const LoadedStep& loaded = frame.function->steps[frame.pc];
    const exe::Step& step = *loaded.step;
    const bool at_loop = frame.loop != nullptr && frame.loop->condition < 0;
    if (loaded.sync && !synced_ && !at_loop) {
      if (ends()) return true;
      if (!runner_.barrier()) return waits();
      synced_ = true;
      progress = true;
    }
    if (!runner_.has_room()) return waits();
    bool records = events_ != nullptr;
    if (loaded.kernel >= 0) {
      records = run_kernel(at(frame.function->kernels, loaded.kernel)) && records;
    } else if (const auto* call = std::get_if<exe::Call>(&step.body)) {
      synced_ = false;
      ++frame.pc;
      progress = true;
      enter(*call, 0);
      continue;
    } else if (const auto* loop = std::get_if<exe::Loop>(&step.body)) {
      if (frame.loop == nullptr) {
        frame.loop = loop;
        frame.iteration = 0;
      }
      const std::optional<bool> next = goes_on(*loop, frame);
      if (!next) return waits();
      if (*next) {
        if (ends()) return true;
        progress = true;
        enter(loop->body, frame.iteration++);
        synced_ = false;
        continue;  // After the iteration this step runs again. Only a condition needs its barrier.
      }
      frame.loop = nullptr;
      records = false;
    } else if (const auto* branch_step = std::get_if<exe::Branch>(&step.body)) {
      if (!branch(*branch_step)) return waits();
      progress = true;
      continue;
    } else if (!communicate(loaded, frame)) {
      return waits();
    } else if (loaded.moved >= 0 && runner_.leads()) {
      ++at(moves_, loaded.moved);
    }
    if (records) events_->end(&step);
    synced_ = false;
    ++frame.pc;
    progress = true;
  }
  ended_ = ended_ || runner_.finish() || ends();
  return progress || ended_;
}

}  // namespace sluice::runtime
