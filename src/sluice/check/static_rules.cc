#include "sluice/check/static_rules.h"

#include <algorithm>
#include <map>
#include <set>

#include "sluice/base/sys.h"
#include "sluice/check/function_facts.h"
#include "sluice/exe/text.h"
#include "sluice/exe/visit_step.h"
#include "sluice/exe/words.h"

namespace sluice::check {
namespace {

/// a + b and a · b of sizes, at most INT64_MAX.
int64_t add(int64_t a, int64_t b) {
  int64_t r = 0;
  return __builtin_add_overflow(a, b, &r) ? INT64_MAX : r;
}
int64_t multiply(int64_t a, int64_t b) {
  int64_t r = 0;
  return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

/// Whether so many bytes can hold a tensor. A layout may add padding, which only its target can tell.
bool holds(int64_t bytes, const TensorSpec& spec) { return bytes >= spec.bytes(); }

class StaticChecker {
 public:
  StaticChecker(const exe::Executable& e, Findings& findings)
      : e_(e), out_(findings), facts_(function_facts(e)) {}

  void run() {
    spaces();
    budgets();
    workspaces();
    persistent_bytes();
    file_access();
    for (const exe::Function& f : e_.functions) function(f);
    programs();
  }

 private:
  static bool on_device(const exe::Arena& a) {
    return a.device >= 0 && (a.space == exe::Space::kDevice || a.space == exe::Space::kPinned);
  }

  /// Every arena lies where some budget counts it. What helps with files has a rule of its own.
  void spaces() {
    for (const exe::Arena& a : e_.arenas) {
      if (a.kind == exe::ArenaKind::kStaging || a.kind == exe::ArenaKind::kChecksums) continue;
      const bool tier = a.kind == exe::ArenaKind::kTier;
      const bool remote = a.space == exe::Space::kHost || a.space == exe::Space::kFile;
      const bool pinned_tier = tier && a.space == exe::Space::kPinned;
      if (tier ? !remote && !pinned_tier : !on_device(a)) {
        out_.add("bounds", "arena '{}' is '{}', which does not lie in '{}' of device {}", a.name,
                 exe::word(a.kind), exe::word(a.space), a.device);
      }
      const auto counts = [&](const exe::Tier& t) { return t.space == a.space; };
      if (remote && std::none_of(e_.tiers.begin(), e_.tiers.end(), counts))
        out_.add("budget", "arena '{}' lies in '{}', which is no tier", a.name, exe::word(a.space));
    }
    for (const exe::Channel& c : e_.channels) {
      const exe::Arena& a = e_.arenas[static_cast<size_t>(c.arena)];
      if (a.kind != exe::ArenaKind::kSlots || a.device != c.to)
        out_.add("channel", "channel '{}' lies in '{}', which are no slots of device {}", c.name,
                 a.name, c.to);
    }
  }

  void budgets() {
    for (size_t d = 0; d < e_.devices.size(); ++d) {
      int64_t total = 0;
      for (const exe::Arena& a : e_.arenas) {
        if (a.device == static_cast<int32_t>(d) && a.space == exe::Space::kDevice)
          total = add(total, a.bytes);
      }
      const int64_t budget = e_.devices[d].memory_budget;
      if (budget >= 0 && total > budget) {
        out_.add("budget", "device {}: arenas take {} bytes of a budget of {}", d, total, budget);
      }
    }
    for (const exe::Tier& t : e_.tiers) {
      int64_t total = 0;
      for (const exe::Arena& a : e_.arenas) {
        const bool pinned = a.space == exe::Space::kPinned && t.space == exe::Space::kHost;
        if (a.space == t.space || pinned) total = add(total, multiply(a.bytes, e_.replicas));
      }
      if (t.budget >= 0 && total > t.budget) {
        out_.add("budget", "tier '{}': arenas take {} bytes of a budget of {}", t.name, total,
                 t.budget);
      }
    }
  }

  void workspaces() {
    for (const exe::Arena& a : e_.arenas) {
      if (a.kind != exe::ArenaKind::kWorkspace) continue;
      if (a.device < 0) {
        out_.add("workspace", "arena '{}' belongs to no device", a.name);
        continue;
      }
      const int32_t workers = e_.devices[static_cast<size_t>(a.device)].workers;
      if (a.bytes < multiply(workers, a.stride)) {
        out_.add("workspace", "arena '{}': {} workers of {} bytes each share {} bytes", a.name,
                 workers, a.stride, a.bytes);
      }
      if (!slices_.emplace(a.device, a.stride).second) {
        out_.add("workspace", "device {} has two workspace arenas", a.device);
      }
    }
  }

  struct Owned {
    int32_t arena;
    int64_t begin;
    int64_t end;
    std::string what;
  };

  /// Bytes that something owns for as long as the executable is loaded.
  void persistent_bytes() {
    std::vector<Owned> owned;
    std::set<std::pair<int32_t, int64_t>> entries;
    for (const exe::VariablePlan& v : e_.variables) {
      const std::string what = fmt::format("variable '{}'", v.path);
      if (!holds(v.bytes, v.spec)) {
        out_.add("bounds", "{} has {} bytes, too few for {} '{}'", what, v.bytes, to_string(v.spec),
                 v.layout);
      }
      if (v.buffer < 0) {
        owned.push_back({v.arena, v.offset, v.offset + v.bytes, what});
        continue;
      }
      const exe::RemoteBufferPlan& b = e_.remote_buffers[static_cast<size_t>(v.buffer)];
      if (v.bytes > b.entry_stride)
        out_.add("remote", "{} is larger than an entry of '{}'", what, b.name);
      if (!entries.insert({v.buffer, v.entry}).second) {
        out_.add("overlap", "{}: another variable lives in entry {} of '{}'", what, v.entry,
                 b.name);
      }
    }
    for (const exe::ConstantPlan& c : e_.constants) {
      owned.push_back({c.arena, c.offset, c.offset + static_cast<int64_t>(c.data.size()),
                       fmt::format("constant '{}'", c.name)});
    }
    for (const exe::RemoteBufferPlan& b : e_.remote_buffers) {
      owned.push_back({b.arena, b.offset, b.offset + b.entries * b.entry_stride,
                       fmt::format("remote buffer '{}'", b.name)});
      if (e_.arenas[static_cast<size_t>(b.arena)].kind != exe::ArenaKind::kTier) {
        out_.add("remote", "remote buffer '{}' lies in '{}', which is no tier", b.name,
                 e_.arenas[static_cast<size_t>(b.arena)].name);
      }
      if (b.entry_stride < b.spec.bytes()) {
        out_.add("remote", "entries of '{}' take {} bytes, its spec {}", b.name, b.entry_stride,
                 b.spec.bytes());
      }
    }
    for (const exe::Channel& c : e_.channels) {
      owned.push_back({c.arena, c.offset, c.offset + c.capacity * c.slot_bytes,
                       fmt::format("channel '{}'", c.name)});
    }
    for (const Owned& o : owned) {
      const exe::Arena& a = e_.arenas[static_cast<size_t>(o.arena)];
      if (o.end > a.bytes)
        out_.add("bounds", "{} ends at byte {} of '{}', which has {}", o.what, o.end, a.name,
                 a.bytes);
      if (a.kind == exe::ArenaKind::kWorkspace)
        out_.add("workspace", "{} lies in the workspace", o.what);
    }
    std::sort(owned.begin(), owned.end(), [](const Owned& a, const Owned& b) {
      return std::tie(a.arena, a.begin, a.end, a.what) < std::tie(b.arena, b.begin, b.end, b.what);
    });
    const Owned* furthest = nullptr;
    for (const Owned& o : owned) {
      if (o.begin == o.end) continue;
      if (furthest != nullptr && furthest->arena == o.arena && o.begin < furthest->end) {
        out_.add("overlap", "{} and {} share bytes of '{}' from {}", furthest->what, o.what,
                 e_.arenas[static_cast<size_t>(o.arena)].name, o.begin);
      }
      if (furthest == nullptr || furthest->arena != o.arena || o.end > furthest->end) furthest = &o;
    }
  }

  /// What direct transfers pass through, and checksums.
  void file_access() {
    int64_t checksums = 0;
    for (const exe::RemoteBufferPlan& b : e_.remote_buffers)
      checksums = add(checksums, multiply(exe::checksums_of_entry(b), b.entries));
    bool direct = false;
    for (const exe::Arena& a : e_.arenas) {
      const bool staging = a.kind == exe::ArenaKind::kStaging;
      direct = direct || staging;
      const int64_t need =
          staging ? sys::kFilePage : multiply(checksums, static_cast<int64_t>(sizeof(uint64_t)));
      if (!staging && a.kind != exe::ArenaKind::kChecksums) continue;
      if (a.space != exe::Space::kHost || a.bytes < need || (staging && a.bytes % need != 0)) {
        out_.add("remote", "arena '{}' has {} bytes of {} memory; {} {} of host memory are right",
                 a.name, a.bytes, exe::word(a.space), staging ? "some times" : "at least", need);
      }
    }
    if (!direct) return;
    for (const exe::RemoteBufferPlan& b : e_.remote_buffers) {
      if (b.offset % sys::kFilePage != 0 || b.entry_stride % sys::kFilePage != 0) {
        out_.add("remote",
                 "direct transfers of '{}' would reach into other entries: offset {}, "
                 "stride {}",
                 b.name, b.offset, b.entry_stride);
      }
    }
  }

  void function(const exe::Function& f) {
    function_ = &f;
    for (size_t s = 0; s < f.steps.size(); ++s) {
      number_ = s;
      const exe::Step& step = f.steps[s];
      exe::for_each_operand(step, [&](const exe::Operand& o) { operand(o); });
      exe::for_each_call(step, [&](const exe::Call& c) { call(c); });
      if (const auto* k = std::get_if<exe::Kernel>(&step.body)) kernel(*k);
      if (const auto* l = std::get_if<exe::Loop>(&step.body)) loop(*l);
      if (const auto* i = std::get_if<exe::Issue>(&step.body)) issue(*i);
      if (const auto* m = std::get_if<exe::Send>(&step.body))
        message(m->channel, m->operand, exe::Access::kRead);
      if (const auto* m = std::get_if<exe::Receive>(&step.body))
        message(m->channel, m->operand, exe::Access::kWrite);
      if (const auto* b = std::get_if<exe::Branch>(&step.body)) {
        if (b->condition.access != exe::Access::kRead || b->condition.spec.dtype != boolean ||
            b->condition.bytes != 1) {
          bad("branch", "the condition is no bool that is read");
        }
        exe::for_each_call(step, [&](const exe::Call& c) {
          if (facts_[static_cast<size_t>(c.function)].communicates) {
            bad("branch", "the arm '{}' communicates",
                e_.functions[static_cast<size_t>(c.function)].name);
          }
        });
      }
      if (const auto* c = std::get_if<exe::Collective>(&step.body)) collective(*c);
    }
  }

  template <typename... Args>
  void bad(const char* rule, fmt::format_string<Args...> format, Args&&... args) {
    out_.add(rule, "function '{}' step {} ({}): {}", function_->name, number_,
             exe::step_title(function_->steps[number_]),
             fmt::format(format, std::forward<Args>(args)...));
  }

  void address(const exe::Address& at) {
    if (at.base != exe::Address::Base::kArena) return;
    const exe::Arena& a = e_.arenas[static_cast<size_t>(at.index)];
    if (a.kind == exe::ArenaKind::kWorkspace) {
      bad("workspace", "an operand lies in the workspace '{}'", a.name);
    } else if (a.kind == exe::ArenaKind::kTier || a.kind == exe::ArenaKind::kSlots ||
               a.device != function_->device ||
               (a.space != exe::Space::kDevice && a.space != exe::Space::kPinned)) {
      bad("bounds", "a step of device {} reaches into arena '{}'", function_->device, a.name);
    }
  }

  void operand(const exe::Operand& o) {
    address(o.at);
    if (!holds(o.bytes, o.spec)) {
      bad("bounds", "an operand has {} bytes, too few for {} '{}'", o.bytes, to_string(o.spec),
          o.layout);
    }
    if (o.access == exe::Access::kRead) return;
    if (o.at.base == exe::Address::Base::kParam) {
      const exe::Param& p = function_->params[static_cast<size_t>(o.at.index)];
      if (p.access == exe::Access::kRead)
        bad("access", "writes to the parameter '{}', which is read only", p.name);
    }
  }

  void call(const exe::Call& c) {
    const exe::Function& callee = e_.functions[static_cast<size_t>(c.function)];
    address(c.frame);
    if (c.frame.base == exe::Address::Base::kParam)
      bad("bounds", "the frame of '{}' lies in a parameter", callee.name);
    for (size_t i = 0; i < c.args.size(); ++i) {
      const exe::Operand& o = c.args[i];
      const exe::Param& p = callee.params[i];
      operand(o);
      if (o.access != p.access || o.bytes != p.bytes) {
        bad("access", "argument {} ({}, {} bytes) is not what parameter '{}' says ({}, {} bytes)",
            i, exe::word(o.access), o.bytes, p.name, exe::word(p.access), p.bytes);
      }
      if (o.layout != p.layout) {
        bad("layout", "argument {} is '{}', parameter '{}' is '{}'", i, o.layout, p.name, p.layout);
      }
    }
  }

  void kernel(const exe::Kernel& k) {
    if (k.workspace_bytes > 0) {
      const auto slice = slices_.find(function_->device);
      if (slice == slices_.end() || slice->second < k.workspace_bytes) {
        bad("workspace", "the kernel needs {} bytes, a worker has {}", k.workspace_bytes,
            slice == slices_.end() ? 0 : slice->second);
      }
    }
    for (size_t i = 0; i < k.operands.size(); ++i) {
      const exe::Operand& o = k.operands[i];
      if (o.bytes == 0) continue;
      const bool writes = o.access != exe::Access::kRead;
      if (o.task_stride == 0) {
        if (writes && k.tasks > 1)
          bad("tasks", "each of {} tasks writes all of operand {}", k.tasks, i);
      } else if (o.task_pitch != 0 && o.bytes % o.task_pitch != 0) {
        bad("tasks", "the {} bytes of operand {} are no whole rows of {}", o.bytes, i,
            o.task_pitch);
      } else if (multiply(o.task_stride, k.tasks) < (o.task_pitch != 0 ? o.task_pitch : o.bytes)) {
        bad("tasks", "{} tasks of {} bytes do not {} all {} bytes of operand {}", k.tasks,
            o.task_stride, writes ? "write" : "read", o.bytes, i);
      }
    }
  }

  void loop(const exe::Loop& l) {
    std::set<int32_t> ins;
    for (const exe::Carry& c : l.carried) {
      const exe::Access in = l.body.args[static_cast<size_t>(c.in)].access;
      const exe::Access out = l.body.args[static_cast<size_t>(c.out)].access;
      if (in == exe::Access::kWrite || out == exe::Access::kRead)
        bad("loop", "{}:{} carries nothing", c.in, c.out);
      if (!ins.insert(c.in).second) bad("loop", "argument {} is carried twice", c.in);
      if (l.body.args[static_cast<size_t>(c.in)].bytes !=
          l.body.args[static_cast<size_t>(c.out)].bytes) {
        bad("loop", "{}:{} carries between arguments of different size", c.in, c.out);
      }
    }
  }

  void issue(const exe::Issue& i) {
    const bool stream =
        i.kind == exe::TransferKind::kStreamIn || i.kind == exe::TransferKind::kStreamOut;
    const bool in =
        i.kind == exe::TransferKind::kStreamIn || i.kind == exe::TransferKind::kRemoteLoad;
    const char* rule = stream ? "stream" : "remote";
    const TensorSpec& spec = stream ? e_.streams[static_cast<size_t>(i.object)].spec
                                    : e_.remote_buffers[static_cast<size_t>(i.object)].spec;
    if (i.memory.access != (in ? exe::Access::kWrite : exe::Access::kRead)) {
      bad("access", "a transfer {} memory does not {} it", in ? "into" : "out of",
          in ? "write" : "read");
    }
    if (i.memory.bytes != spec.bytes())
      bad(rule, "moves {} bytes of {}", i.memory.bytes, spec.bytes());
    if (i.memory.layout != "row")
      bad("layout", "moves an array that is '{}', not row-major", i.memory.layout);
    if (stream && e_.streams[static_cast<size_t>(i.object)].input != in) {
      bad("stream", "stream '{}' goes the other way",
          e_.streams[static_cast<size_t>(i.object)].name);
    }
    if (stream && i.entry_from) bad("stream", "the entry of a stream is read from memory");
    if (i.entry_from && (i.entry_from->access != exe::Access::kRead || i.entry_from->bytes != 4)) {
      bad("access", "the entry is no integer of 4 bytes that is read");
    }
    if (i.found != exe::kNoValue && i.kind != exe::TransferKind::kRemoteLoad)
      bad("remote", "only a load finds a value");
  }

  void message(int32_t channel, const exe::Operand& o, exe::Access access) {
    const exe::Channel& c = e_.channels[static_cast<size_t>(channel)];
    const int32_t device = access == exe::Access::kRead ? c.from : c.to;
    if (o.access != access)
      bad("access", "a message is sent from what is read and received into what is written");
    if (device != function_->device)
      bad("channel", "channel '{}' ends at device {}", c.name, device);
    if (o.bytes > c.slot_bytes)
      bad("channel", "{} bytes do not fit a slot of {}", o.bytes, c.slot_bytes);
  }

  /// One operand updated; or an input and an output of as many elements, or of one chunk and the
  /// whole.
  void collective(const exe::Collective& c) {
    const auto& all = c.operands;
    for (const exe::Operand& o : all) {
      if (o.layout != "row") bad("layout", "an operand is '{}', not row-major", o.layout);
    }
    if (all.size() == 1 && all[0].access == exe::Access::kUpdate) return;
    if (all.size() != 2 || all[0].access != exe::Access::kRead ||
        all[1].access != exe::Access::kWrite) {
      bad("access", "a collective updates one operand, or reads one and writes one");
      return;
    }
    const int64_t size = e_.groups[static_cast<size_t>(c.group)].size;
    const int64_t in = all[0].spec.elements();
    const int64_t out = all[1].spec.elements();
    const auto chunk_of = [&](int64_t n) { return n / size + (n % size != 0); };
    if (all[0].spec.dtype != all[1].spec.dtype ||
        (in != out && in != chunk_of(out) && out != chunk_of(in))) {
      bad("collective", "{} replicas make {} of {}", size, to_string(all[1].spec),
          to_string(all[0].spec));
    }
  }

  void programs() {
    for (const exe::Program& p : e_.programs) {
      std::set<int32_t> streams;
      for (const exe::StreamCount& s : p.streams) {
        if (!streams.insert(s.stream).second)
          out_.add("stream", "program '{}': stream {} stands twice", p.name, s.stream);
      }
      std::set<std::pair<int32_t, int32_t>> groups;
      for (const exe::CollectiveCount& c : p.collectives) {
        if (!groups.emplace(c.device, c.group).second) {
          out_.add("collective", "program '{}': group {} of device {} stands twice", p.name,
                   c.group, c.device);
        }
      }
      std::set<int32_t> variables;
      for (const exe::Final& f : p.finals) {
        if (!variables.insert(f.variable).second) {
          out_.add("final", "program '{}': variable {} stands twice", p.name, f.variable);
        }
      }
      for (const exe::Start& x : p.starts) {
        const exe::Arena& a = e_.arenas[static_cast<size_t>(x.frame.index)];
        const int64_t bytes = e_.functions[static_cast<size_t>(x.function)].frame_bytes;
        if (x.frame.offset + bytes > a.bytes) {
          out_.add(
              "bounds",
              "program '{}': the frame of device {} takes [{}, {}) of '{}', which has {} bytes",
              p.name, x.device, x.frame.offset, x.frame.offset + bytes, a.name, a.bytes);
        }
        if (bytes > 0 && (a.device != x.device || a.kind == exe::ArenaKind::kWorkspace ||
                          a.kind == exe::ArenaKind::kTier || a.kind == exe::ArenaKind::kSlots ||
                          (a.space != exe::Space::kDevice && a.space != exe::Space::kPinned))) {
          out_.add("bounds", "program '{}': the frame of device {} lies in '{}'", p.name, x.device,
                   a.name);
        }
      }
    }
  }

  const exe::Executable& e_;
  Findings& out_;
  std::vector<FunctionFacts> facts_;
  std::map<int32_t, int64_t> slices_;  ///< Workspace bytes of a worker, by device.
  const exe::Function* function_ = nullptr;
  size_t number_ = 0;
};

}  // namespace

void check_each_step(const exe::Executable& executable, Findings& findings) {
  StaticChecker(executable, findings).run();
}

}  // namespace sluice::check
