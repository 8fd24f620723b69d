#include "dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/hash.h"
#include "sluice/exe/text.h"

namespace sluice::property {
namespace {

using namespace exe;  // NOLINT: everything here is about executables

constexpr int64_t kWorkers = 3;
constexpr int64_t kMaxBytes = int64_t{1} << 28;
constexpr int64_t kMaxSteps = 200'000;

/// One order in which the workers, queues and devices of a machine may run.
struct DryRunOptions {
  /// Seed of the data of variables and streams, and of memory before it is written.
  uint64_t seed = 1;
  bool late_transfers = false;  ///< Transfers on I/O queues run at their wait, not at their issue.
  /// True: until the next barrier, worker 0 runs after the other workers. False: before them.
  bool worker0_last = false;
};

/// The visible results of a run: a hash of every stream entry written, variable and remote buffer.
struct DryRun {
  std::string fault;  ///< Reason why the run stopped; empty if it ended.
  std::map<std::string, uint64_t> seen;
};

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15U)) * 0xbf58476d1ce4e5b9U;
  x ^= x >> 29;
  return x * 0x94d049bb133111ebU ^ (x >> 32);
}

uint64_t hash_bytes(uint64_t h, const uint8_t* p, int64_t n) {
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    h = mix(h, word);
  }
  for (; n > 0; --n, ++p) h = mix(h, *p);
  return h;
}

void fill_bytes(uint64_t h, uint8_t* p, int64_t n) {
  for (int64_t i = 0; i < n; i += 8) {
    const uint64_t word = mix(h, static_cast<uint64_t>(i));
    std::memcpy(p + i, &word, static_cast<size_t>(std::min<int64_t>(8, n - i)));
  }
}

struct ByteRange {
  ArenaId arena{0};
  int64_t begin = 0;
  int64_t bytes = 0;
};

/// A step in which everything is resolved except a branch's condition.
struct Op {
  const Step* step = nullptr;
  std::vector<ByteRange> operands;
  uint64_t hash = 0;   ///< Hash of a kernel and its scalars.
  int64_t number = 0;  ///< Number of the transfer's entry or of the message.
  int64_t token = 0;
  std::vector<Op> arms[2];
};

/// Expands calls and loops, and resolves addresses.
class Unroller {
 public:
  Unroller(const Executable& e, int64_t replica) : e_(e), replica_(replica) {}

  /// Returns the steps of each device.
  std::vector<std::vector<Op>> unroll(const Program& program) {
    std::vector<std::vector<Op>> devices;
    for (const Start& x : program.starts) devices.push_back(unroll(x));
    return devices;
  }

 private:
  std::vector<Op> unroll(const Start& x) {
    const Function& f = e_.functions[x.function];
    std::vector<Op> out;
    function(f, {inside({x.frame.arena(), x.frame.offset, f.frame_bytes}), {}, {}, 0}, out);
    return out;
  }

  struct Scope {
    ByteRange frame;
    std::vector<ByteRange> params;
    std::vector<int64_t> numbers;
    int64_t iteration = 0;
  };

  ByteRange inside(ByteRange p) const {
    const Arena& a = e_.arenas[p.arena];
    if (p.begin + p.bytes > a.bytes) fail(ErrorKind::kUsage, "reaches beyond arena '{}'", a.name);
    return p;
  }

  int64_t number(const IndexExpr& x, const Scope& s) const {
    return x.evaluate({s.numbers, s.iteration, replica_});
  }

  ByteRange range_of(const Address& at, int64_t bytes, const Scope& s) const {
    int64_t begin = at.offset;
    if (at.depth > 0) {
      const int64_t slot = number(at.slot, s);
      if (slot < 0) fail(ErrorKind::kUsage, "a slot is below 0");
      begin += slot % at.depth * at.stride;
    }
    ByteRange whole{at.arena(), 0,
                    at.base == Address::Base::kArena ? e_.arenas[at.arena()].bytes : 0};
    if (at.base == Address::Base::kFrame) whole = s.frame;
    if (at.base == Address::Base::kParam) whole = s.params[static_cast<size_t>(at.index)];
    if (begin + bytes > whole.bytes)
      fail(ErrorKind::kUsage, "reaches beyond its frame, parameter or arena");
    return {whole.arena, whole.begin + begin, bytes};
  }

  void call(const Call& c, const Scope& s, std::vector<Op>& out) {
    const Function& f = e_.functions[c.function];
    Scope inner;
    inner.frame = range_of(c.frame, f.frame_bytes, s);
    for (const Operand& o : c.args) inner.params.push_back(range_of(o.at, o.bytes, s));
    for (const IndexExpr& x : c.index_args) inner.numbers.push_back(number(x, s));
    function(f, inner, out);
  }

  void function(const Function& f, const Scope& s, std::vector<Op>& out) {
    const int64_t activation = ++activations_;
    for (const Step& step : f.steps) {
      require(--left_ >= 0, "the plan takes too many steps");
      if (step.sync) out.push_back({});  // A barrier.
      Op op;
      op.step = &step;
      if (const auto* k = std::get_if<Kernel>(&step.body)) {
        op.hash = hash_of(*k);
        for (const IndexExpr& x : k->scalars)
          op.hash = mix(op.hash, static_cast<uint64_t>(number(x, s)));
        for (const Operand& o : k->operands) op.operands.push_back(range_of(o.at, o.bytes, s));
        workspace(*k, f.device);
      } else if (const auto* c = std::get_if<Call>(&step.body)) {
        call(*c, s, out);
        continue;
      } else if (const auto* l = std::get_if<Loop>(&step.body)) {
        Scope inside = s;
        for (inside.iteration = 0; inside.iteration < l->trips; ++inside.iteration)
          call(l->body, inside, out);
        continue;
      } else if (const auto* b = std::get_if<Branch>(&step.body)) {
        op.operands.push_back(range_of(b->condition.at, b->condition.bytes, s));
        call(b->then_call, s, op.arms[0]);
        call(b->else_call, s, op.arms[1]);
      } else if (const auto* i = std::get_if<Issue>(&step.body)) {
        op.operands.push_back(range_of(i->memory.at, i->memory.bytes, s));
        if (i->entry_from)
          op.operands.push_back(range_of(i->entry_from->at, i->entry_from->bytes, s));
        op.number = number(i->entry, s);
        op.token = activation << 32 | i->token;
      } else if (const auto* w = std::get_if<Wait>(&step.body)) {
        op.token = activation << 32 | w->token;
      } else if (const auto* m = std::get_if<Send>(&step.body)) {
        op.operands.push_back(range_of(m->operand.at, m->operand.bytes, s));
        op.number = number(m->message, s);
      } else if (const auto* r = std::get_if<Receive>(&step.body)) {
        op.operands.push_back(range_of(r->operand.at, r->operand.bytes, s));
        op.number = number(r->message, s);
      } else {
        const auto& x = std::get<Collective>(step.body);
        op.hash = hash64(x.op + to_string(x.attrs));
        for (const Operand& o : x.operands) op.operands.push_back(range_of(o.at, o.bytes, s));
        op.number = number(x.sequence, s);
      }
      out.push_back(std::move(op));
    }
  }

  uint64_t hash_of(const Kernel& k) {
    const auto [entry, added] = hashes_.emplace(&k, 0);
    if (added) entry->second = hash64(k.key + k.op + to_string(k.attrs));
    return entry->second;
  }

  /// Throws if two workers would share a slice of the workspace.
  void workspace(const Kernel& k, int32_t device) const {
    if (k.workspace_bytes == 0) return;
    const int64_t workers = e_.devices[exe::DeviceId(device)].workers;
    for (const Arena& a : e_.arenas) {
      if (a.kind != ArenaKind::kWorkspace || a.device != device) continue;
      if (workers > 1 && k.workspace_bytes > a.stride)
        fail(ErrorKind::kUsage, "two workers share workspace");
      if ((workers - 1) * a.stride + k.workspace_bytes > a.bytes)
        fail(ErrorKind::kUsage, "the workspace is too small");
      return;
    }
    fail(ErrorKind::kUsage, "the workspace is missing");
  }

  const Executable& e_;
  int64_t replica_;
  int64_t left_ = kMaxSteps;
  int64_t activations_ = 0;
  std::unordered_map<const Kernel*, uint64_t> hashes_;
};

class DryRunner {
 public:
  /// `devices`: the unrolled steps of each device.
  DryRunner(const Executable& e, const std::vector<std::vector<Op>>& devices,
            const DryRunOptions& options)
      : e_(e), options_(options) {
    for (const std::vector<Op>& ops : devices) devices_.emplace_back().stack.emplace_back(&ops, 0);
  }

  DryRun run() {
    try {
      prepare();
      bool progress = true;
      while (progress) {
        progress = false;
        for (DeviceRun& d : devices_) progress |= advance(d);
      }
      for (DeviceRun& d : devices_) {
        require(d.stack.empty(), "all devices wait for each other");
        for (const Flight& f : d.flights) transfer(*f.op, f.entry);
      }
      look();
    } catch (const Error& error) {
      out_.fault = error.what();
    }
    return std::move(out_);
  }

 private:
  struct Work {
    const Op* op;
    int64_t begin;
    int64_t end;
  };
  struct Flight {
    const Op* op;
    int32_t queue;
    int64_t entry;
  };
  struct DeviceRun {
    std::vector<std::pair<const std::vector<Op>*, size_t>> stack;
    std::vector<Work> pending[kWorkers];
    std::vector<int64_t> tokens;
    std::deque<Flight> flights;
  };
  struct ChannelState {
    int64_t sent = 0;
    int64_t received = 0;
  };

  uint8_t* at(const ByteRange& p) { return memory_[static_cast<size_t>(p.arena)].data() + p.begin; }

  ByteRange bytes_of(const VariablePlan& v) const {
    if (v.buffer < 0) return {v.arena, v.offset, v.bytes};
    const RemoteBufferPlan& b = e_.remote_buffers[v.buffer];
    return {b.arena, b.offset + v.entry * b.entry_stride, v.bytes};
  }

  void prepare() {
    for (const Arena& a : e_.arenas) {
      require(a.bytes <= kMaxBytes, "dry run: an arena must have at most {} bytes, got {}",
              kMaxBytes, a.bytes);
      memory_.emplace_back(static_cast<size_t>(a.bytes));
      fill_bytes(mix(options_.seed, memory_.size()), memory_.back().data(), a.bytes);
    }
    for (size_t v = 0; v < e_.variables.size(); ++v) {
      const ByteRange p = bytes_of(e_.variables[exe::VariableId(v)]);
      require(p.begin + p.bytes <= e_.arenas[p.arena].bytes, "a variable reaches beyond its arena");
      fill_bytes(mix(options_.seed + 77, v), at(p), p.bytes);
    }
    for (const ConstantPlan& c : e_.constants) {
      const auto bytes = static_cast<int64_t>(c.data.size());
      require(c.offset + bytes <= e_.arenas[c.arena].bytes, "a constant reaches beyond its arena");
      std::memcpy(at({c.arena, c.offset, bytes}), c.data.data(), c.data.size());
    }
    channels_.resize(e_.channels.size());
  }

  bool advance(DeviceRun& d) {
    bool progress = false;
    while (!d.stack.empty()) {
      auto& [ops, next] = d.stack.back();
      if (next == ops->size()) {
        d.stack.pop_back();
        if (d.stack.empty()) catch_up(d);
        progress = true;
        continue;
      }
      const Op& op = (*ops)[next];
      if (!step(d, op)) return progress;
      progress = true;
    }
    return progress;
  }

  void catch_up(DeviceRun& d) {
    for (int64_t w = 0; w < kWorkers; ++w) catch_up(d, w);
  }
  void catch_up(DeviceRun& d, int64_t worker) {
    for (const Work& w : d.pending[worker]) {
      if (!std::holds_alternative<Kernel>(w.op->step->body)) move(d, *w.op);
      for (int64_t t = w.begin; t < w.end; ++t) task(*w.op, t);
    }
    d.pending[worker].clear();
  }

  void work(DeviceRun& d, int64_t worker, const Work& w) {
    d.pending[worker].push_back(w);
    if ((worker == 0) != options_.worker0_last) catch_up(d, worker);
  }

  /// Returns false if the step cannot run yet.
  bool step(DeviceRun& d, const Op& op) {
    size_t& next = d.stack.back().second;
    if (op.step == nullptr) {
      catch_up(d);
      ++next;
      return true;
    }
    if (const auto* k = std::get_if<Kernel>(&op.step->body)) {
      for (int64_t w = 0; w < kWorkers; ++w) {
        Work share{&op, k->tasks * w / kWorkers, k->tasks * (w + 1) / kWorkers};
        if (k->tasks == 1) share = {&op, 0, w == 0 ? 1 : 0};
        if (share.begin != share.end) work(d, w, share);
      }
      ++next;
      return true;
    }
    if (std::holds_alternative<Branch>(op.step->body)) {
      const bool taken = (*at(op.operands[0]) & 1) != 0;
      ++next;
      d.stack.emplace_back(&op.arms[taken ? 0 : 1], 0);
      return true;
    }
    if (std::holds_alternative<Collective>(op.step->body)) {
      catch_up(d);
      collective(op);
      ++next;
      return true;
    }
    // Worker 0 alone runs all other steps.
    if (std::holds_alternative<Issue>(op.step->body) ||
        std::holds_alternative<Wait>(op.step->body)) {
      work(d, 0, {&op, 0, 0});
      ++next;
      return true;
    }
    catch_up(d, 0);
    if (const auto* s = std::get_if<Send>(&op.step->body)) {
      const Channel& c = e_.channels[s->channel];
      ChannelState& state = channels_[static_cast<size_t>(s->channel)];
      if (op.number != state.sent || state.sent - state.received >= c.capacity) return false;
      std::memcpy(at(slot(c, op)), at(op.operands[0]), static_cast<size_t>(op.operands[0].bytes));
      ++state.sent;
    } else if (const auto* r = std::get_if<Receive>(&op.step->body)) {
      const Channel& c = e_.channels[r->channel];
      ChannelState& state = channels_[static_cast<size_t>(r->channel)];
      if (op.number != state.received || state.sent <= op.number) return false;
      std::memcpy(at(op.operands[0]), at(slot(c, op)), static_cast<size_t>(op.operands[0].bytes));
      ++state.received;
    }
    ++next;
    return true;
  }

  /// Only one replica runs. Its output of a collective is a hash of its input, the group, the kind
  /// of collective and the sequence number. The inputs of other replicas have other bytes at the
  /// same addresses, so they would show nothing more.
  void collective(const Op& op) {
    const auto& c = std::get<Collective>(op.step->body);
    const ReplicaGroup& group = e_.groups[c.group];
    uint64_t h = mix(op.hash, static_cast<uint64_t>(op.number));
    h = mix(mix(h, static_cast<uint64_t>(group.stride)), static_cast<uint64_t>(group.size));
    const ByteRange& in = op.operands.front();
    const ByteRange& out = op.operands.back();
    fill_bytes(hash_bytes(h, at(in), in.bytes), at(out), out.bytes);
  }

  ByteRange slot(const Channel& c, const Op& op) const {
    const ByteRange p{c.arena, c.offset + op.number % c.capacity * c.slot_bytes,
                      op.operands[0].bytes};
    require(p.bytes <= c.slot_bytes && p.begin + p.bytes <= e_.arenas[p.arena].bytes,
            "a message reaches beyond its slot");
    return p;
  }

  /// Runs an issue or a wait.
  void move(DeviceRun& d, const Op& op) {
    if (const auto* i = std::get_if<Issue>(&op.step->body)) {
      const int64_t entry = entry_of(op);
      if (i->queue == 0 || !options_.late_transfers) {
        transfer(op, entry);
      } else {
        d.flights.push_back({&op, i->queue, entry});
      }
      if (i->queue != 0) d.tokens.push_back(op.token);
      return;
    }
    const auto token = std::find(d.tokens.begin(), d.tokens.end(), op.token);
    require(token != d.tokens.end(), "a wait is for a transfer that was not issued");
    d.tokens.erase(token);
    land(d, op.token, std::get<Wait>(op.step->body).queue);
  }

  void land(DeviceRun& d, int64_t token, int32_t queue) {
    const bool flying = std::any_of(d.flights.begin(), d.flights.end(), [&](const Flight& f) {
      return f.queue == queue && f.op->token == token;
    });
    for (auto f = d.flights.begin(); flying && f != d.flights.end();) {
      if (f->queue != queue) {
        ++f;
        continue;
      }
      transfer(*f->op, f->entry);
      const bool last = f->op->token == token;
      f = d.flights.erase(f);
      if (last) return;
    }
  }

  /// The entry of a transfer. An entry that a tensor holds is read when the transfer is issued.
  int64_t entry_of(const Op& op) {
    const auto& i = std::get<Issue>(op.step->body);
    if (!i.entry_from) return op.number;
    uint32_t word;
    std::memcpy(&word, at(op.operands[1]), sizeof word);
    return word % e_.remote_buffers[exe::BufferId(i.object)].entries;
  }

  void transfer(const Op& op, int64_t entry) {
    const auto& i = std::get<Issue>(op.step->body);
    const ByteRange& memory = op.operands[0];
    if (i.kind == TransferKind::kStreamIn) {
      fill_bytes(mix(mix(options_.seed, static_cast<uint64_t>(i.object)),
                     static_cast<uint64_t>(op.number)),
                 at(memory), memory.bytes);
      return;
    }
    if (i.kind == TransferKind::kStreamOut) {
      uint64_t& seen = out_.seen[fmt::format("stream {} entry {}", i.object, op.number)];
      seen = hash_bytes(seen, at(memory), memory.bytes);
      return;
    }
    const RemoteBufferPlan& b = e_.remote_buffers[exe::BufferId(i.object)];
    require(entry >= 0 && entry < b.entries, "a transfer reaches beyond its remote buffer");
    const ByteRange there{b.arena, b.offset + entry * b.entry_stride, memory.bytes};
    require(there.begin + there.bytes <= e_.arenas[there.arena].bytes,
            "a remote buffer reaches beyond its arena");
    const bool load = i.kind == TransferKind::kRemoteLoad;
    std::memmove(at(load ? memory : there), at(load ? there : memory),
                 static_cast<size_t>(memory.bytes));
  }

  /// Calls f(bytes) for the parts of an operand that a task touches.
  template <typename F>
  static void parts(const Operand& o, const ByteRange& all, int64_t t, F&& f) {
    if (o.task_stride == 0) return f(all);
    const int64_t row = o.task_pitch != 0 ? o.task_pitch : all.bytes;
    if (row == 0 || t > row / o.task_stride) return;
    for (int64_t begin = 0; begin < all.bytes; begin += row) {
      const int64_t from = begin + t * o.task_stride;
      const int64_t to = std::min({from + o.task_stride, begin + row, all.bytes});
      if (from < to) f(ByteRange{all.arena, all.begin + from, to - from});
    }
  }

  void task(const Op& op, int64_t t) {
    const auto& k = std::get<Kernel>(op.step->body);
    uint64_t h = mix(op.hash, static_cast<uint64_t>(t));
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (k.operands[i].access == Access::kWrite) continue;
      parts(k.operands[i], op.operands[i], t,
            [&](const ByteRange& p) { h = hash_bytes(mix(h, i), at(p), p.bytes); });
    }
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (k.operands[i].access == Access::kRead) continue;
      uint64_t row = mix(h, i);
      parts(k.operands[i], op.operands[i], t,
            [&](const ByteRange& p) { fill_bytes(row = mix(row, 1), at(p), p.bytes); });
    }
  }

  void look() {
    for (const VariablePlan& v : e_.variables) {
      out_.seen["variable " + v.path] = hash_bytes(0, at(bytes_of(v)), v.bytes);
    }
    for (const RemoteBufferPlan& b : e_.remote_buffers) {
      uint64_t h = 0;
      for (int64_t i = 0; i < b.entries; ++i) {
        const ByteRange p{b.arena, b.offset + i * b.entry_stride,
                          std::min(b.entry_stride, b.spec.bytes())};
        require(p.begin + p.bytes <= e_.arenas[p.arena].bytes,
                "a remote buffer reaches beyond its arena");
        h = hash_bytes(h, at(p), p.bytes);
      }
      out_.seen["remote " + b.name] = h;
    }
  }

  const Executable& e_;
  const DryRunOptions& options_;
  std::vector<std::vector<uint8_t>> memory_;
  std::vector<ChannelState> channels_;
  std::deque<DeviceRun> devices_;
  DryRun out_;
};

/// Runs one program of a plan in every order. `compare` receives each run in turn and returns false
/// to stop. Returns false if it was stopped.
template <typename F>
bool run_all_orders(const Executable& e, const std::string& name, F&& compare) {
  std::vector<std::vector<Op>> devices;
  std::string fault;
  int64_t unrolled = -1;
  for (const uint64_t seed : {1, 2}) {
    const int64_t replica = seed == 1 ? 0 : e.replicas - 1;
    if (std::exchange(unrolled, replica) != replica) {
      try {
        devices = Unroller(e, replica).unroll(e.program(name));
      } catch (const Error& error) {
        return compare(seed, DryRun{error.what(), {}});
      }
    }
    for (const bool worker0_last : {false, true}) {
      for (const bool late : {false, true}) {
        if (!compare(seed, DryRunner(e, devices, {seed, late, worker0_last}).run())) return false;
      }
    }
  }
  return true;
}

std::string difference(const DryRun& right, const DryRun& got) {
  if (!got.fault.empty()) return got.fault;
  if (got.seen == right.seen) return "";
  for (const auto& [what, hash] : right.seen) {
    const auto found = got.seen.find(what);
    if (found == got.seen.end()) return what + " is missing";
    if (found->second != hash) return what + " differs";
  }
  return "more is written";
}

}  // namespace

Comparison dry_runs(const Executable& right) {
  using Runs = std::map<std::string, std::map<uint64_t, DryRun>>;  // Indexed by program and seed.
  const auto runs = std::make_shared<Runs>();
  for (const Program& p : right.programs) {
    run_all_orders(right, p.name, [&](uint64_t seed, DryRun run) {
      (*runs)[p.name].try_emplace(seed, std::move(run));
      return true;
    });
  }
  return [runs](const Executable& other) {
    std::string found;
    for (const auto& [program, by_seed] : *runs) {
      run_all_orders(other, program, [&](uint64_t seed, const DryRun& run) {
        found = difference(by_seed.at(seed), run);
        return found.empty();
      });
      if (!found.empty()) break;
    }
    return found;
  };
}

}  // namespace sluice::property
