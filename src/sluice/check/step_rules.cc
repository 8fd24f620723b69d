#include "sluice/check/step_rules.h"

#include <algorithm>
#include <map>
#include <set>

#include "sluice/check/saturating.h"
#include "sluice/check/tensor_bytes.h"
#include "sluice/exe/text.h"
#include "sluice/exe/visit_step.h"
#include "sluice/exe/words.h"

namespace sluice::check {
namespace {

class StepRules {
 public:
  StepRules(const exe::Executable& e, const FactsOfFunctions& facts, Findings& findings)
      : e_(e), facts_(facts), out_(findings) {
    for (const exe::Arena& a : e.arenas) {
      if (a.kind == exe::ArenaKind::kWorkspace) slices_.emplace(a.device, a.stride);
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
          bad("branch", "condition: must read 1 byte of bool, got {} of {} bytes of {}",
              exe::word(b->condition.access), b->condition.bytes, name_of(b->condition.spec.dtype));
        }
        exe::for_each_call(step, [&](const exe::Call& c) {
          if (facts_[c.function].communicates) {
            bad("branch", "the arm '{}' communicates", e_.functions[c.function].name);
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
    const exe::Arena& a = e_.arenas[at.arena()];
    if (a.kind == exe::ArenaKind::kWorkspace) {
      bad("workspace", "an operand must not be in the workspace '{}'", a.name);
    } else if (a.kind == exe::ArenaKind::kTier || a.kind == exe::ArenaKind::kSlots ||
               a.device != function_->device ||
               (a.space != exe::Space::kDevice && a.space != exe::Space::kPinned)) {
      bad("bounds", "a step of device {} must not use arena '{}'", function_->device, a.name);
    }
  }

  void operand(const exe::Operand& o) {
    address(o.at);
    if (const std::string wrong = wrong_bytes(o.bytes, o.spec, o.layout); !wrong.empty())
      bad("bounds", "an operand {}", wrong);
    if (o.access == exe::Access::kRead) return;
    if (o.at.base == exe::Address::Base::kParam) {
      const exe::Param& p = function_->params[o.at.param()];
      if (p.access == exe::Access::kRead)
        bad("access", "writes to the parameter '{}', which is read only", p.name);
    }
  }

  void call(const exe::Call& c) {
    const exe::Function& callee = e_.functions[c.function];
    address(c.frame);
    if (c.frame.base == exe::Address::Base::kParam)
      bad("bounds", "the frame of '{}' must not be in a parameter", callee.name);
    for (const exe::ParamId i : c.args.ids()) {
      const exe::Operand& o = c.args[i];
      const exe::Param& p = callee.params[i];
      operand(o);
      if (o.access != p.access || o.bytes != p.bytes) {
        bad("access", "argument {}: must {} {} bytes as parameter '{}' does, got {} of {} bytes", i,
            exe::word(p.access), p.bytes, p.name, exe::word(o.access), o.bytes);
      }
      if (!same_elements(o.spec, p.spec, p.layout)) {
        bad("access", "argument {}: must be {} as parameter '{}', got {}", i, to_string(p.spec),
            p.name, to_string(o.spec));
      }
      if (o.layout != p.layout) {
        bad("layout", "argument {}: layout must be '{}' as parameter '{}', got '{}'", i, p.layout,
            p.name, o.layout);
      }
    }
  }

  /// Returns whether two tensors have the same elements in the same order. Row-major tensors may
  /// differ in shape: a result may be a view of the tensor that a callee's kernel writes.
  static bool same_elements(const TensorSpec& a, const TensorSpec& b, const std::string& layout) {
    if (a.dtype != b.dtype) return false;
    return layout == "row" ? a.elements() == b.elements() : a.shape == b.shape;
  }

  void workspace(const char* step, int64_t bytes) {
    const auto slice = slices_.find(function_->device);
    const int64_t available = slice == slices_.end() ? 0 : slice->second;
    if (bytes > available)
      bad("workspace", "the {} needs {} bytes of workspace, a worker has {}", step, bytes,
          available);
  }

  void kernel(const exe::Kernel& k) {
    workspace("kernel", k.workspace_bytes);
    for (size_t i = 0; i < k.operands.size(); ++i) {
      const exe::Operand& o = k.operands[i];
      if (o.bytes == 0) continue;
      const bool writes = o.access != exe::Access::kRead;
      if (o.task_stride == 0) {
        if (writes && k.tasks > 1)
          bad("tasks", "each of {} tasks writes all of operand {}", k.tasks, i);
      } else if (o.task_pitch != 0 && o.bytes % o.task_pitch != 0) {
        bad("tasks", "operand {}: bytes must be a multiple of the row's {}, got {}", i,
            o.task_pitch, o.bytes);
      } else if (saturating_product(o.task_stride, k.tasks) <
                 (o.task_pitch != 0 ? o.task_pitch : o.bytes)) {
        bad("tasks", "{} tasks of {} bytes do not {} all {} bytes of operand {}", k.tasks,
            o.task_stride, writes ? "write" : "read", o.bytes, i);
      }
    }
  }

  void loop(const exe::Loop& l) {
    if (l.condition >= 0) condition(l);
    std::set<int32_t> ins;
    for (const exe::Carry& c : l.carried) {
      const exe::Operand& from = l.body.args[c.out];
      const exe::Operand& to = l.body.args[c.in];
      if (to.access == exe::Access::kWrite)
        bad("loop", "carry {}:{}: argument {} must be read or updated, got write", c.in, c.out,
            c.in);
      if (c.after != exe::kNoValue && from.access != exe::Access::kRead)
        bad("loop", "carry {}:{}: a name after the loop requires that argument {} is read, got {}",
            c.in, c.out, c.out, exe::word(from.access));
      if (!ins.insert(c.in).second) bad("loop", "argument {} is carried twice", c.in);
      if (from.layout != to.layout || !same_elements(from.spec, to.spec, to.layout)) {
        bad("loop", "carry {}:{}: carried value must be {} '{}', got {} '{}'", c.in, c.out,
            to_string(to.spec), to.layout, to_string(from.spec), from.layout);
      }
    }
  }

  /// An exit must leave every value where all other exits leave it.
  void condition(const exe::Loop& l) {
    const exe::Operand& o = l.body.args[l.condition];
    if (o.access != exe::Access::kUpdate || o.spec.dtype != boolean || o.bytes != 1) {
      bad("exit", "condition: must update 1 byte of bool, got {} of {} bytes of {}",
          exe::word(o.access), o.bytes, name_of(o.spec.dtype));
    }
    for (const exe::ParamId i : l.body.args.ids()) {
      const exe::Operand& arg = l.body.args[i];
      if (arg.access == exe::Access::kWrite) {
        bad("exit", "argument {}: must be read or updated by a loop with a condition, got write",
            i);
      } else if (arg.access == exe::Access::kUpdate &&
                 arg.at.slot.uses(exe::IndexExpr::Opcode::kIteration)) {
        bad("exit", "argument {}: must have one address in all iterations, got slot {}", i,
            to_string(arg.at.slot));
      }
    }
    for (const exe::Carry& c : l.carried) {
      if (c.in != c.out || c.after != exe::kNoValue)
        bad("exit", "carry {}:{}: must update an argument in place", c.in, c.out);
    }
  }

  void issue(const exe::Issue& i) {
    const bool stream =
        i.kind == exe::TransferKind::kStreamIn || i.kind == exe::TransferKind::kStreamOut;
    const bool in =
        i.kind == exe::TransferKind::kStreamIn || i.kind == exe::TransferKind::kRemoteLoad;
    const char* rule = stream ? "stream" : "remote";
    const TensorSpec& spec =
        stream ? e_.streams[i.stream()].spec : e_.remote_buffers[i.buffer()].spec;
    if (i.memory.access != (in ? exe::Access::kWrite : exe::Access::kRead)) {
      bad("access", "transfer {} memory: access must be {}, got {}", in ? "into" : "out of",
          in ? "write" : "read", exe::word(i.memory.access));
    }
    if (i.memory.spec.dtype != spec.dtype || i.memory.spec.shape != spec.shape)
      bad(rule, "memory: must be {} as the entries, got {}", to_string(spec),
          to_string(i.memory.spec));
    if (i.memory.layout != "row")
      bad("layout", "memory: layout must be 'row', got '{}'", i.memory.layout);
    if (stream && e_.streams[i.stream()].input != in) {
      bad("stream", "stream '{}' must be an {}, got an {}", e_.streams[i.stream()].name,
          in ? "input" : "output", in ? "output" : "input");
    }
    if (stream && i.entry_from) bad("stream", "the entry of a stream must not be read from memory");
    if (i.entry_from && (i.entry_from->access != exe::Access::kRead || i.entry_from->bytes != 4)) {
      bad("access", "entry: must read 4 bytes, got {} of {} bytes", exe::word(i.entry_from->access),
          i.entry_from->bytes);
    }
    if (i.found != exe::kNoValue && i.kind != exe::TransferKind::kRemoteLoad)
      bad("remote", "'found' requires a load from a remote buffer");
  }

  void message(exe::ChannelId channel, const exe::Operand& o, exe::Access access) {
    const exe::Channel& c = e_.channels[channel];
    const exe::DeviceId device = access == exe::Access::kRead ? c.from : c.to;
    if (o.access != access)
      bad("access", "message: access must be {}, got {}", exe::word(access), exe::word(o.access));
    if (device != function_->device)
      bad("channel", "channel '{}' must be used on device {}, got device {}", c.name, device,
          function_->device);
    if (o.bytes > c.slot_bytes)
      bad("channel", "message: must be at most {} bytes, a slot of '{}', got {}", c.slot_bytes,
          c.name, o.bytes);
  }

  /// Checks that a collective updates one operand, or reads one and writes one. Input and output
  /// must have equally many elements, or one of them must be a chunk of the other.
  void collective(const exe::Collective& c) {
    workspace("collective", c.workspace_bytes);
    const auto& all = c.operands;
    for (const exe::Operand& o : all) {
      if (o.layout != "row") bad("layout", "operands: layout must be 'row', got '{}'", o.layout);
    }
    if (all.size() == 1 && all[0].access == exe::Access::kUpdate) return;
    if (all.size() != 2 || all[0].access != exe::Access::kRead ||
        all[1].access != exe::Access::kWrite) {
      bad("access", "a collective must update one operand, or read one and write one");
      return;
    }
    const int64_t size = e_.groups[c.group].size;
    const int64_t in = all[0].spec.elements();
    const int64_t out = all[1].spec.elements();
    const auto chunk_of = [&](int64_t n) { return n / size + (n % size != 0); };
    if (all[0].spec.dtype != all[1].spec.dtype ||
        (in != out && in != chunk_of(out) && out != chunk_of(in))) {
      bad("collective", "a group of {} replicas cannot make {} from {}", size,
          to_string(all[1].spec), to_string(all[0].spec));
    }
  }

  const exe::Executable& e_;
  const FactsOfFunctions& facts_;
  Findings& out_;
  std::map<int32_t, int64_t> slices_;  ///< Workspace bytes of a worker, by device.
  const exe::Function* function_ = nullptr;
  size_t number_ = 0;
};

}  // namespace

void check_steps(const exe::Executable& executable, const FactsOfFunctions& facts,
                 Findings& findings) {
  StepRules rules(executable, facts, findings);
  for (const exe::Function& f : executable.functions) rules.function(f);
}

}  // namespace sluice::check
