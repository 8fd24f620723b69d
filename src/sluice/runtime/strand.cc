#include "sluice/runtime/strand.h"

#include <algorithm>
#include <cstring>

#include "sluice/base/error.h"

namespace sluice::runtime {

void Transfer::run() const {
  const auto size = static_cast<size_t>(bytes);
  if (remote == nullptr) {
    std::memcpy(in ? memory : other, in ? other : memory, size);
  } else if (in) {
    remote->load(buffer, entry, {memory, size});
  } else {
    remote->store(buffer, entry, {memory, size});
  }
}

int64_t IoQueue::issue(const Transfer& transfer) {
  const int64_t number = issued_.load(std::memory_order_relaxed);
  if (number - ended_.load(std::memory_order_acquire) >= static_cast<int64_t>(ring_.size()))
    return -1;
  ring_[static_cast<size_t>(number) % ring_.size()] = transfer;
  issued_.store(number + 1, std::memory_order_release);
  return number;
}

bool IoQueue::advance(int64_t last) {
  if (advancing_.exchange(true, std::memory_order_acquire)) return false;
  struct Done {
    std::atomic<bool>& flag;
    ~Done() { flag.store(false, std::memory_order_release); }
  } const done{advancing_};
  int64_t next = ended_.load(std::memory_order_relaxed);
  const int64_t end = std::min(issued_.load(std::memory_order_acquire) - 1, last) + 1;
  if (next >= end) return false;
  for (; next < end; ++next) {
    ring_[static_cast<size_t>(next) % ring_.size()].run();
    ended_.store(next + 1, std::memory_order_release);
    rouse();
  }
  return true;
}

void IoQueue::rouse() {
  signal_.fetch_add(1);
  signal_.notify_all();
}

void IoQueue::await(int64_t number, const std::atomic<bool>& stop) const {
  for (;;) {
    const uint32_t seen = signal_.load();
    if (done(number) || stop.load()) return;
    signal_.wait(seen);
  }
}

const exe::Step* IoQueue::current() const {
  return ring_[static_cast<size_t>(ended_.load()) % ring_.size()].step;
}

void IoQueue::reset() {
  issued_ = 0;
  ended_ = 0;
}

Counters& Counters::operator+=(const Counters& other) {
  kernels += other.kernels;
  bytes += other.bytes;
  flops += other.flops;
  barriers += other.barriers;
  waits += other.waits;
  return *this;
}

Strand::Strand(RunState& run, int device, int worker)
    : run_(run), device_(device), worker_(worker) {
  const StackNeeds& needs = run.loaded->needs;
  stack_.resize(static_cast<size_t>(needs.depth) + 1);
  bases_.resize(needs.params + static_cast<size_t>(needs.depth) + 1);
  index_params_.resize(needs.index_params + 1);
  operands_.resize(needs.operands + 1);
  scalars_.resize(needs.scalars + 1);
  tokens_.reserve(64);
  for (size_t a = 0; a < run.executable->arenas.size(); ++a) {
    const exe::Arena& arena = run.executable->arenas[a];
    if (arena.kind == exe::ArenaKind::kWorkspace && arena.device == device) {
      workspace_ = run.arenas[a] + worker * arena.stride;
    }
  }
}

void Strand::start(const exe::Program& program) {
  depth_ = 0;
  awaited_ = nullptr;
  blamed_ = nullptr;
  at_barrier_ = false;
  stage_ = Stage::kOutside;
  synced_ = false;
  barriers_ = 0;
  tokens_.clear();
  for (const exe::Start& start : program.starts) {
    if (start.device != device_) continue;
    stack_[0] = {};
    const auto function = static_cast<size_t>(start.function);
    stack_[0].function = &run_.loaded->functions[function];
    if (stack_[0].function->entry_frame != nullptr)
      stack_[0].fixed = run_.arguments[function].data();
    bases_[0] = run_.arenas[static_cast<size_t>(start.frame.index)] + start.frame.offset;
    depth_ = 1;
  }
}

const exe::Step* Strand::current() const {
  if (blamed_ != nullptr || depth_ == 0) return blamed_;
  const Frame& frame = stack_[depth_ - 1];
  return frame.pc < frame.function->steps.size() ? frame.function->steps[frame.pc].step : nullptr;
}

int64_t Strand::evaluate(const exe::IndexExpr& expr, int64_t iteration) const {
  if (expr.is_constant()) return expr.constant();
  const Frame& frame = stack_[depth_ - 1];
  exe::IndexContext context;
  context.params = {index_params_.data() + frame.index_params,
                    static_cast<size_t>(frame.function->function->index_params)};
  context.iteration = iteration;
  context.replica = run_.replica;
  return expr.evaluate(context);
}

bool Strand::park() const {
  if (awaited_ == nullptr) return false;
  awaited_->await(awaited_number_, *run_.stop);
  return true;
}

std::byte* Strand::address(const exe::Address& at, int64_t iteration) const {
  const Frame& frame = stack_[depth_ - 1];
  std::byte* base = nullptr;
  switch (at.base) {
    case exe::Address::Base::kArena:
      base = run_.arenas[static_cast<size_t>(at.index)];
      break;
    case exe::Address::Base::kFrame:
      base = bases_[frame.bases];
      break;
    case exe::Address::Base::kParam:
      base = bases_[frame.bases + 1 + static_cast<size_t>(at.index)];
      break;
  }
  return slot_of_ring(base + at.offset, at, iteration);
}

std::byte* Strand::slot_of_ring(std::byte* base, const exe::Address& at, int64_t iteration) const {
  return at.depth > 0 ? base + evaluate(at.slot, iteration) % at.depth * at.stride : base;
}

bool Strand::barrier() {
  if (run_.workers == 1) return true;
  std::atomic<int64_t>& arrived = *run_.arrived[static_cast<size_t>(device_)];
  if (!at_barrier_) {
    at_barrier_ = true;
    ++barriers_;
    ++counters_.barriers;
    arrived.fetch_add(1, std::memory_order_acq_rel);
  }
  if (arrived.load(std::memory_order_acquire) < barriers_ * run_.workers) return false;
  at_barrier_ = false;
  return true;
}

std::byte* const* Strand::arguments_of(const LoadedKernel& kernel) {
  const Frame& frame = stack_[depth_ - 1];
  if (kernel.fixed && frame.fixed != nullptr) return frame.fixed + kernel.first;
  const Argument* a = frame.function->arguments.data() + kernel.first;
  std::byte* const* const bases = bases_.data() + frame.bases;
  for (size_t i = 0; i < kernel.arguments; ++i, ++a) {
    std::byte* const base =
        a->base < 0 ? run_.arenas[static_cast<size_t>(~a->base)] : bases[a->base];
    operands_[i] = base + a->offset;
    if (a->ring != nullptr) operands_[i] = slot_of_ring(operands_[i], *a->ring, 0);
  }
  return operands_.data();
}

void Strand::run_kernel(const LoadedKernel& kernel) {
  const int64_t workers = run_.workers;
  const int64_t begin = kernel.tasks == 1 ? 0 : kernel.tasks * worker_ / workers;
  const int64_t end =
      kernel.tasks == 1 ? (worker_ == 0 ? 1 : 0) : kernel.tasks * (worker_ + 1) / workers;
  if (worker_ == 0) {
    counters_.bytes += kernel.operand_bytes;
    counters_.flops += kernel.flops;
  }
  if (begin == end) return;
  for (size_t i = 0; i < kernel.scalars->size(); ++i)
    scalars_[i] = evaluate((*kernel.scalars)[i], 0);
  const KernelBlock block{arguments_of(kernel), workspace_, scalars_.data()};
  for (int64_t task = begin; task < end; ++task) kernel.run(kernel.state, block, task);
  counters_.kernels += end - begin;
}

void Strand::enter(const exe::Call& call, int64_t iteration) {
  const Frame& caller = stack_[depth_ - 1];
  Frame callee;
  callee.function = &run_.loaded->functions[static_cast<size_t>(call.function)];
  callee.bases = caller.bases + 1 + caller.function->function->params.size();
  bases_[callee.bases] = address(call.frame, iteration);
  callee.index_params =
      caller.index_params + static_cast<size_t>(caller.function->function->index_params);
  for (size_t i = 0; i < call.args.size(); ++i)
    bases_[callee.bases + 1 + i] = address(call.args[i].at, iteration);
  for (size_t i = 0; i < call.index_args.size(); ++i) {
    index_params_[callee.index_params + i] = evaluate(call.index_args[i], iteration);
  }
  stack_[depth_++] = callee;
}

bool Strand::issue(const exe::Issue& issue) {
  // Only worker 0 issues transfers and waits for them, which keeps the order of its queues.
  if (worker_ != 0) return true;
  Transfer t;
  t.memory = address(issue.memory.at, 0);
  t.bytes = issue.memory.bytes;
  t.step = current();
  t.in = issue.kind == exe::TransferKind::kStreamIn || issue.kind == exe::TransferKind::kRemoteLoad;
  int64_t entry = evaluate(issue.entry, 0);
  if (issue.entry_from) {
    uint32_t value;
    std::memcpy(&value, address(issue.entry_from->at, 0), sizeof value);
    entry = issue.entry_from->spec.dtype == i32 ? static_cast<int64_t>(static_cast<int32_t>(value))
                                                : int64_t{value};
  }
  if (issue.kind == exe::TransferKind::kStreamIn || issue.kind == exe::TransferKind::kStreamOut) {
    t.other = run_.streams->entry(issue.object, entry, run_.replica);
  } else {
    const exe::RemoteBufferPlan& buffer =
        run_.executable->remote_buffers[static_cast<size_t>(issue.object)];
    require(entry >= 0 && entry < buffer.entries,
            "remote buffer {}: entry {} is outside its {} entries", buffer.name, entry,
            buffer.entries);
    t.remote = run_.remote.get();
    t.buffer = issue.object;
    t.entry = entry;
  }
  if (issue.queue == 0) {
    t.run();
    counters_.bytes += t.bytes;
    return true;
  }
  const int64_t number =
      run_.io[static_cast<size_t>(device_)][static_cast<size_t>(issue.queue)]->issue(t);
  if (number < 0) return false;
  if (!is_awaited_next(issue)) call_io_thread(issue.queue);
  counters_.bytes += t.bytes;
  const int64_t key = static_cast<int64_t>(depth_) << 32 | issue.token;
  const auto old =
      std::find_if(tokens_.begin(), tokens_.end(), [&](const auto& e) { return e.first == key; });
  if (old != tokens_.end()) {
    old->second = number;
  } else {
    tokens_.emplace_back(key, number);
  }
  return true;
}

bool Strand::is_awaited_next(const exe::Issue& issue) const {
  const Frame& frame = stack_[depth_ - 1];
  if (frame.pc + 1 >= frame.function->steps.size()) return false;
  const auto* next = std::get_if<exe::Wait>(&frame.function->steps[frame.pc + 1].step->body);
  return next != nullptr && next->queue == issue.queue && next->token == issue.token;
}

void Strand::call_io_thread(int32_t queue) const {
  if (!run_.has_io_threads) return;
  std::atomic<uint32_t>& issued = *run_.io_issued[static_cast<size_t>(queue) - 1];
  issued.fetch_add(1);
  issued.notify_one();
}

bool Strand::wait(const exe::Wait& wait) {
  if (worker_ != 0) return true;
  const int64_t key = static_cast<int64_t>(depth_) << 32 | wait.token;
  const auto entry =
      std::find_if(tokens_.begin(), tokens_.end(), [&](const auto& e) { return e.first == key; });
  SLUICE_CHECK(entry != tokens_.end());
  IoQueue& queue = *run_.io[static_cast<size_t>(device_)][static_cast<size_t>(wait.queue)];
  if (run_.has_io_threads && !queue.done(entry->second)) {
    // Run transfers that have not begun on this thread. Waking an io thread and this thread again
    // would take longer.
    try {
      queue.advance(entry->second);
    } catch (...) {
      blamed_ = queue.current();
      throw;
    }
    if (queue.pending()) call_io_thread(wait.queue);
  }
  awaited_ = queue.done(entry->second) ? nullptr : &queue;
  awaited_number_ = entry->second;
  if (awaited_ != nullptr) return false;
  tokens_.erase(entry);
  return true;
}

bool Strand::send(const exe::Send& send) {
  if (worker_ != 0) return true;
  ChannelState& state = (*run_.channels)[static_cast<size_t>(send.channel)];
  const int64_t message = evaluate(send.message, 0);
  if (!state.can_send(message)) return false;
  const exe::Channel& channel = run_.executable->channels[static_cast<size_t>(send.channel)];
  std::memcpy(run_.arenas[static_cast<size_t>(channel.arena)] + channel.offset +
                  message % channel.capacity * channel.slot_bytes,
              address(send.operand.at, 0), static_cast<size_t>(send.operand.bytes));
  state.sent.store(message + 1, std::memory_order_release);
  return true;
}

bool Strand::receive(const exe::Receive& receive) {
  if (worker_ != 0) return true;
  ChannelState& state = (*run_.channels)[static_cast<size_t>(receive.channel)];
  const int64_t message = evaluate(receive.message, 0);
  if (!state.can_receive(message)) return false;
  const exe::Channel& channel = run_.executable->channels[static_cast<size_t>(receive.channel)];
  std::memcpy(address(receive.operand.at, 0),
              run_.arenas[static_cast<size_t>(channel.arena)] + channel.offset +
                  message % channel.capacity * channel.slot_bytes,
              static_cast<size_t>(receive.operand.bytes));
  state.received.store(message + 1, std::memory_order_release);
  return true;
}

bool Strand::wait_for_peers() const {
  run_.communicator->check();
  return false;
}

// A share may read inputs once all workers of all members have arrived. A worker continues once all
// workers have finished.
bool Strand::collective(const exe::Collective& collective, const BoundCollective& bound) {
  const auto [meeting, member] =
      run_.communicator->membership(device_, collective.group, run_.replica);
  const int64_t number = evaluate(collective.sequence, 0);
  if (stage_ == Stage::kOutside) {
    if (worker_ == 0) {
      const auto m = static_cast<size_t>(member);
      meeting->inputs[m] = address(collective.operands.front().at, 0);
      meeting->outputs[m] = address(collective.operands.back().at, 0);
      if (member == meeting->first_member()) meeting->collective = &bound;
    }
    meeting->come();
    stage_ = Stage::kCame;
  }
  if (stage_ == Stage::kCame) {
    if (!meeting->all_came(number)) return wait_for_peers();
    bound.run(bound.state.get(),
              {meeting->inputs.data(), meeting->outputs.data(), member, worker_, run_.workers});
    if (worker_ == 0) {
      for (const exe::Operand& o : collective.operands) counters_.bytes += o.bytes;
    }
    meeting->be_done();
    stage_ = Stage::kDone;
  }
  if (!meeting->all_done(number)) return wait_for_peers();
  stage_ = Stage::kOutside;
  return true;
}

void Strand::branch(const exe::Branch& branch) {
  const bool taken = *address(branch.condition.at, 0) != std::byte{0};
  enter(taken ? branch.then_call : branch.else_call, 0);
}

bool Strand::advance() {
  bool progress = false;
  while (depth_ > 0) {
    Frame& frame = stack_[depth_ - 1];
    if (frame.pc == frame.function->steps.size()) {
      --depth_;
      progress = true;
      continue;
    }
    const LoadedStep& loaded = frame.function->steps[frame.pc];
    const exe::Step& step = *loaded.step;
    if (loaded.sync && !synced_ && frame.loop == nullptr) {
      if (stopped()) {
        depth_ = 0;
        return true;
      }
      if (!barrier()) {
        ++counters_.waits;
        return progress;
      }
      synced_ = true;
      progress = true;
    }
    if (loaded.kernel >= 0) {
      run_kernel(frame.function->kernels[static_cast<size_t>(loaded.kernel)]);
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
      if (frame.iteration < loop->trips) {
        progress = true;
        enter(loop->body, frame.iteration++);
        synced_ = false;
        continue;  // After the iteration this step runs again, without its barrier.
      }
      frame.loop = nullptr;
    } else if (const auto* branch_step = std::get_if<exe::Branch>(&step.body)) {
      synced_ = false;
      ++frame.pc;
      progress = true;
      branch(*branch_step);
      continue;
    } else {
      bool done = true;
      if (const auto* i = std::get_if<exe::Issue>(&step.body)) {
        done = issue(*i);
      } else if (const auto* w = std::get_if<exe::Wait>(&step.body)) {
        done = wait(*w);
      } else if (const auto* s = std::get_if<exe::Send>(&step.body)) {
        done = send(*s);
      } else if (const auto* r = std::get_if<exe::Receive>(&step.body)) {
        done = receive(*r);
      } else {
        done = collective(std::get<exe::Collective>(step.body),
                          frame.function->collectives[static_cast<size_t>(loaded.collective)]);
      }
      if (!done) {
        if (stopped()) {
          depth_ = 0;
          return true;
        }
        ++counters_.waits;
        return progress;
      }
    }
    synced_ = false;
    ++frame.pc;
    progress = true;
  }
  return progress;
}

}  // namespace sluice::runtime
