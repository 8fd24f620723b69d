#include "sluice/check/table_rules.h"

#include <algorithm>
#include <map>
#include <set>

#include "sluice/base/sys.h"
#include "sluice/check/saturating.h"
#include "sluice/check/tensor_bytes.h"
#include "sluice/exe/words.h"

namespace sluice::check {
namespace {

class TableRules {
 public:
  TableRules(const exe::Executable& e, Findings& findings) : e_(e), out_(findings) {}

  void run() {
    spaces();
    budgets();
    workspaces();
    variables();
    remote_buffers();
    persistent_bytes();
    file_access();
    pinned_staging();
    feeds();
    for (const exe::Function& f : e_.functions) function(f);
    programs();
  }

 private:
  static bool on_device(const exe::Arena& a) {
    return a.device >= 0 && (a.space == exe::Space::kDevice || a.space == exe::Space::kPinned);
  }

  /// Checks that a budget counts every arena. `file_access` checks the arenas for file transfers.
  void spaces() {
    std::set<exe::Space> spaces;
    for (const exe::Tier& t : e_.tiers) {
      if (!spaces.insert(t.space).second)
        out_.add("budget", "tier '{}': another tier already has '{}' memory", t.name,
                 exe::word(t.space));
    }
    for (const exe::Arena& a : e_.arenas) {
      const bool tasks = a.kind == exe::ArenaKind::kWorkspace;
      if (!tasks && a.stride != 0)
        out_.add("workspace", "arena '{}': stride must be 0 outside a workspace, got {}", a.name,
                 a.stride);
      if (!on_device(a) && a.device != -1)
        out_.add("bounds", "arena '{}': device must be -1 outside device memory, got {}", a.name,
                 a.device);
      if (a.kind == exe::ArenaKind::kStaging || a.kind == exe::ArenaKind::kChecksums) continue;
      const bool tier = a.kind == exe::ArenaKind::kTier;
      const bool remote = a.space == exe::Space::kHost || a.space == exe::Space::kFile;
      const bool pinned_tier = tier && a.space == exe::Space::kPinned;
      const bool rings = a.kind == exe::ArenaKind::kRings;
      const bool wrong_rings = rings && a.space != exe::Space::kHost;
      if (wrong_rings || (tier ? !remote && !pinned_tier : !rings && !on_device(a))) {
        out_.add("bounds", "arena '{}': kind '{}' must not be in '{}' memory of device {}", a.name,
                 exe::word(a.kind), exe::word(a.space), a.device);
      }
      const auto counts = [&](const exe::Tier& t) { return t.space == a.space; };
      if (remote && std::none_of(e_.tiers.begin(), e_.tiers.end(), counts))
        out_.add("budget", "arena '{}': '{}' memory requires a tier", a.name, exe::word(a.space));
    }
    for (const exe::Channel& c : e_.channels) {
      const exe::Arena& a = e_.arenas[c.arena];
      const exe::SlotMemory memory = exe::slot_memory(e_, c.from, c.to);
      if (a.kind != exe::ArenaKind::kSlots || a.space != memory.space || a.device != memory.device)
        out_.add(
            "channel",
            "channel '{}': slots must be in {} memory of device {}, got arena '{}' ('{}' in {} "
            "memory of device {})",
            c.name, exe::word(memory.space), memory.device, a.name, exe::word(a.kind),
            exe::word(a.space), a.device);
    }
  }

  void budgets() {
    for (const exe::DeviceId d : e_.devices.ids()) {
      int64_t total = 0;
      for (const exe::Arena& a : e_.arenas) {
        if (a.device == d && a.space == exe::Space::kDevice) total = saturating_sum(total, a.bytes);
      }
      const int64_t budget = e_.devices[d].memory_budget;
      if (budget >= 0 && total > budget) {
        out_.add("budget", "device {}: arenas need {} bytes, the budget is {}", d, total, budget);
      }
    }
    for (const exe::Tier& t : e_.tiers) {
      int64_t total = 0;
      for (const exe::Arena& a : e_.arenas) {
        const bool pinned = a.space == exe::Space::kPinned && t.space == exe::Space::kHost;
        if (a.space == t.space || pinned)
          total = saturating_sum(total, saturating_product(a.bytes, e_.replicas));
      }
      if (t.budget >= 0 && total > t.budget) {
        out_.add("budget", "tier '{}': arenas need {} bytes, the budget is {}", t.name, total,
                 t.budget);
      }
    }
  }

  void workspaces() {
    std::set<exe::DeviceId> devices;
    for (const exe::Arena& a : e_.arenas) {
      if (a.kind != exe::ArenaKind::kWorkspace) continue;
      if (a.device < 0) {
        out_.add("workspace", "arena '{}': a workspace must belong to a device", a.name);
        continue;
      }
      const int32_t workers = e_.devices[a.device].workers;
      if (a.bytes < saturating_product(workers, a.stride)) {
        out_.add("workspace", "arena '{}' must have {} bytes for each of {} workers, got {} bytes",
                 a.name, a.stride, workers, a.bytes);
      }
      if (!devices.insert(a.device).second) {
        out_.add("workspace", "device {} has two workspace arenas", a.device);
      }
    }
  }

  void variables() {
    std::set<std::pair<exe::BufferId, int64_t>> entries;
    for (const exe::VariablePlan& v : e_.variables) {
      const std::string what = fmt::format("variable '{}'", v.path);
      size(what, v.bytes, v.spec, v.layout);
      shard(what, v);
      if (v.buffer < 0) {
        persistent(what, v.arena);
        if (v.entry != 0)
          out_.add("remote", "{}: entry must be 0 on a device, got {}", what, v.entry);
        continue;
      }
      const exe::RemoteBufferPlan& b = e_.remote_buffers[v.buffer];
      const int64_t begin = b.offset + v.entry * b.entry_stride;
      if (v.arena != b.arena || v.offset != begin) {
        out_.add("remote",
                 "{} must be at byte {} of arena {} (entry {} of '{}'), got byte {} of arena {}",
                 what, begin, b.arena, v.entry, b.name, v.offset, v.arena);
      }
      if (v.bytes > b.entry_stride)
        out_.add("remote", "{} must be at most {} bytes, an entry of '{}', got {}", what,
                 b.entry_stride, b.name, v.bytes);
      if (v.layout != "row" || v.spec.dtype != b.spec.dtype || v.spec.shape != b.spec.shape) {
        out_.add("remote", "{} must be {} 'row' as entries of '{}', got {} '{}'", what,
                 to_string(b.spec), b.name, to_string(v.spec), v.layout);
      }
      if (!entries.insert({v.buffer, v.entry}).second) {
        out_.add("overlap", "{}: entry {} of '{}' already holds another variable", what, v.entry,
                 b.name);
      }
    }
  }

  /// Checks that a shard has the elements of the whole tensor divided by the number of chunks,
  /// rounded up.
  void shard(const std::string& what, const exe::VariablePlan& v) {
    if (v.shard == 0) return;
    const int64_t whole = v.spec.meta_shape.elements();
    const int64_t chunk = whole / v.shard + (whole % v.shard != 0);
    if (v.spec.meta_shape.empty() || v.spec.elements() != chunk) {
      out_.add("bounds", "{}: one of {} chunks must have {} elements, got {}", what, v.shard, chunk,
               to_string(v.spec));
    }
  }

  void size(const std::string& what, int64_t bytes, const TensorSpec& spec,
            const std::string& layout) {
    if (const std::string wrong = wrong_bytes(bytes, spec, layout); !wrong.empty())
      out_.add("bounds", "{} {}", what, wrong);
  }

  void persistent(const std::string& what, exe::ArenaId arena) {
    const exe::Arena& a = e_.arenas[arena];
    if (a.kind == exe::ArenaKind::kWorkspace)
      out_.add("workspace", "{} must not be in the workspace", what);
    else if (a.kind != exe::ArenaKind::kPersistent)
      out_.add("bounds", "{} must be in a persistent arena, got '{}'", what, a.name);
  }

  void remote_buffers() {
    for (const exe::RemoteBufferPlan& b : e_.remote_buffers) {
      if (e_.arenas[b.arena].kind != exe::ArenaKind::kTier) {
        out_.add("remote", "remote buffer '{}' must be in a tier, got arena '{}'", b.name,
                 e_.arenas[b.arena].name);
      }
      if (b.entry_stride < b.spec.bytes()) {
        out_.add("remote", "'{}': stride of entries must be at least {} bytes, got {}", b.name,
                 b.spec.bytes(), b.entry_stride);
      }
    }
  }

  struct Owned {
    exe::ArenaId arena;
    int64_t begin;
    int64_t end;
    std::string what;
  };

  /// Checks the bytes that an object owns while the executable is loaded: they must be inside their
  /// arena and disjoint.
  void persistent_bytes() {
    std::vector<Owned> owned;
    for (const exe::VariablePlan& v : e_.variables) {
      if (v.buffer >= 0) continue;
      owned.push_back(
          {v.arena, v.offset, v.offset + v.bytes, fmt::format("variable '{}'", v.path)});
    }
    for (const exe::ConstantPlan& c : e_.constants) {
      const std::string what = fmt::format("constant '{}'", c.name);
      persistent(what, c.arena);
      owned.push_back({c.arena, c.offset, c.offset + static_cast<int64_t>(c.data.size()), what});
    }
    for (const exe::RemoteBufferPlan& b : e_.remote_buffers) {
      owned.push_back({b.arena, b.offset, b.offset + b.entries * b.entry_stride,
                       fmt::format("remote buffer '{}'", b.name)});
    }
    for (const exe::Channel& c : e_.channels) {
      owned.push_back({c.arena, c.offset, c.offset + c.capacity * c.slot_bytes,
                       fmt::format("channel '{}'", c.name)});
    }
    for (const exe::Feed& f : e_.feeds) {
      for (const exe::FeedRing& r : f.rings) {
        owned.push_back({r.arena, r.offset, r.offset + r.slots * r.slot_bytes,
                         fmt::format("ring of '{}'", stream_name(r.stream))});
      }
    }
    for (const Owned& o : owned) {
      const exe::Arena& a = e_.arenas[o.arena];
      if (o.end > a.bytes)
        out_.add("bounds", "{} must be inside the {} bytes of '{}', got end {}", o.what, a.bytes,
                 a.name, o.end);
    }
    std::sort(owned.begin(), owned.end(), [](const Owned& a, const Owned& b) {
      return std::tie(a.arena, a.begin, a.end, a.what) < std::tie(b.arena, b.begin, b.end, b.what);
    });
    const Owned* furthest = nullptr;
    for (const Owned& o : owned) {
      if (o.begin == o.end) continue;
      if (furthest != nullptr && furthest->arena == o.arena && o.begin < furthest->end) {
        out_.add("overlap", "{} and {} share bytes of '{}' from {}", furthest->what, o.what,
                 e_.arenas[o.arena].name, o.begin);
      }
      if (furthest == nullptr || furthest->arena != o.arena || o.end > furthest->end) furthest = &o;
    }
  }

  /// Returns the number of pieces of an entry; each piece has its own checksum.
  static int64_t pieces(int64_t bytes) {
    return bytes / exe::kChecksumPiece + (bytes % exe::kChecksumPiece != 0);
  }

  /// Checks the staging memory of direct file transfers and the memory of checksums.
  void file_access() {
    int64_t checksums = 0;
    for (const exe::RemoteBufferPlan& b : e_.remote_buffers)
      checksums = saturating_sum(checksums, saturating_product(pieces(b.spec.bytes()), b.entries));
    bool direct = false;
    for (const exe::Arena& a : e_.arenas) {
      const bool staging = a.kind == exe::ArenaKind::kStaging;
      if (is_pinned_staging(a)) continue;
      direct = direct || staging;
      const int64_t need =
          staging ? sys::kFilePage
                  : saturating_product(checksums, static_cast<int64_t>(sizeof(uint64_t)));
      if (!staging && a.kind != exe::ArenaKind::kChecksums) continue;
      if (a.space != exe::Space::kHost || a.bytes < need || (staging && a.bytes % need != 0)) {
        out_.add("remote",
                 "arena '{}' must have {} {} bytes of host memory, got {} bytes of {} memory",
                 a.name, staging ? "a multiple of" : "at least", need, a.bytes, exe::word(a.space));
      }
    }
    if (!direct) return;
    for (const exe::RemoteBufferPlan& b : e_.remote_buffers) {
      if (b.offset % sys::kFilePage != 0 || b.entry_stride % sys::kFilePage != 0) {
        out_.add("remote",
                 "'{}': direct transfers require an offset and a stride of whole pages of {} "
                 "bytes, got {} and {}",
                 b.name, sys::kFilePage, b.offset, b.entry_stride);
      }
    }
  }

  /// Checks the worker and the staging memory of queued devices: one arena for each queue, with
  /// slots for all its transfers, and a word. Other devices have none.
  void pinned_staging() {
    for (const exe::DeviceId d : e_.devices.ids()) {
      std::vector<const exe::Arena*> staging;  // Indexed by queue.
      for (const exe::Arena& a : e_.arenas) {
        if (is_pinned_staging(a) && a.device == d) staging.push_back(&a);
      }
      const exe::Device& device = e_.devices[d];
      if (!device.queued) {
        if (!staging.empty())
          out_.add("bounds", "device {} must have no staging memory, as it is not queued, got '{}'",
                   d, staging.front()->name);
        continue;
      }
      if (device.workers != 1)
        out_.add("bounds", "device {} must have 1 worker, as it is queued, got {}", d,
                 device.workers);
      if (staging.size() != device.queues.size()) {
        out_.add("bounds", "device {} must have staging memory for each of its {} queues, got {}",
                 d, device.queues.size(), staging.size());
        continue;
      }
      for (const exe::Arena* a : staging) staging_slots(*a);
      for (const exe::Function& f : e_.functions) {
        if (f.device == d) staging_of_transfers(f, staging);
      }
    }
  }

  static bool is_pinned_staging(const exe::Arena& a) {
    return a.kind == exe::ArenaKind::kStaging && a.space == exe::Space::kPinned && a.device >= 0;
  }

  void staging_slots(const exe::Arena& a) {
    constexpr int64_t kWord = exe::StagingPlan::kWord;
    const int64_t slot = exe::StagingPlan::of_arena(a.bytes).slot;
    if (slot % kWord != 0 || (a.bytes != 0 && a.bytes != exe::StagingPlan{slot}.bytes())) {
      out_.add(
          "bounds",
          "arena '{}' must have {} bytes and two slots of a multiple of {} bytes, got {} bytes",
          a.name, kWord, kWord, a.bytes);
    }
  }

  void staging_of_transfers(const exe::Function& f, const std::vector<const exe::Arena*>& staging) {
    const auto require_bytes = [&](const exe::Arena& a, int64_t bytes) {
      const int64_t need = exe::StagingPlan::of_transfers(bytes).bytes();
      if (a.bytes < need)
        out_.add("bounds", "arena '{}' must have at least {} bytes for function '{}', got {}",
                 a.name, need, f.name, a.bytes);
    };
    for (const exe::Step& step : f.steps) {
      if (const auto* issue = std::get_if<exe::Issue>(&step.body);
          issue != nullptr && issue->queue < std::ssize(staging))
        require_bytes(*at(staging, issue->queue), issue->memory.bytes);
      if (exe::reads_on_host(step)) require_bytes(*staging.front(), 0);
    }
  }

  const std::string& stream_name(exe::StreamId stream) const { return e_.streams[stream].name; }

  /// Checks the fields of feeds. Their order is that of the streams, so two fields cannot be
  /// swapped.
  void feeds() {
    std::set<std::string> names;
    std::set<exe::StreamId> streams;
    for (const exe::Feed& f : e_.feeds) {
      if (!names.insert(f.name).second) out_.add("index", "two feeds have the name '{}'", f.name);
      exe::StreamId before;
      for (const exe::FeedRing& r : f.rings) {
        const exe::StreamPort& port = e_.streams[r.stream];
        const std::string what = fmt::format("feed '{}': field '{}'", f.name, port.name);
        if (port.input != f.input)
          out_.add("stream", "{} must be an {} stream", what, f.input ? "input" : "output");
        if (!streams.insert(r.stream).second) out_.add("stream", "{} is listed twice", what);
        if (r.stream < before)
          out_.add("stream", "{} must be listed in ascending order of streams", what);
        before = r.stream;
        ring(what, r, port);
      }
    }
  }

  void ring(const std::string& what, const exe::FeedRing& r, const exe::StreamPort& port) {
    const exe::Arena& a = e_.arenas[r.arena];
    if (a.kind != exe::ArenaKind::kRings)
      out_.add("bounds", "{} must be in an arena of rings, got '{}'", what, a.name);
    if (r.slot_bytes < port.spec.bytes() || r.slot_bytes % kRingAlignment != 0 ||
        r.offset % kRingAlignment != 0) {
      out_.add("bounds",
               "{} must have slots of at least {} bytes, at multiples of {}, got {} bytes at {}",
               what, port.spec.bytes(), kRingAlignment, r.slot_bytes, r.offset);
    }
  }
  static constexpr int64_t kRingAlignment = 64;

  /// Checks that a program uses all fields of a feed equally often.
  void fields_of(const exe::Program& p) {
    std::map<exe::StreamId, int64_t> entries;
    for (const exe::StreamCount& s : p.streams) entries[s.stream] = s.entries;
    for (const exe::Feed& f : e_.feeds) {
      for (const exe::FeedRing& r : f.rings) {
        const int64_t first = entries[f.rings.front().stream];
        if (entries[r.stream] == first) continue;
        out_.add("stream", "program '{}': feed '{}': '{}' must use {} entries as '{}', got {}",
                 p.name, f.name, stream_name(r.stream), first, stream_name(f.rings.front().stream),
                 entries[r.stream]);
      }
    }
  }

  /// Checks that parameters have the bytes of their tensors.
  void function(const exe::Function& f) {
    for (const exe::Param& p : f.params)
      size(fmt::format("function '{}': parameter '{}'", f.name, p.name), p.bytes, p.spec, p.layout);
  }

  void programs() {
    std::set<std::string> names;
    for (const exe::Program& p : e_.programs) {
      if (!names.insert(p.name).second)
        out_.add("index", "two programs have the name '{}'", p.name);
      std::set<exe::StreamId> streams;
      for (const exe::StreamCount& s : p.streams) {
        if (!streams.insert(s.stream).second)
          out_.add("stream", "program '{}': stream {} is listed twice", p.name, s.stream);
      }
      fields_of(p);
      std::set<std::pair<exe::DeviceId, exe::GroupId>> groups;
      for (const exe::CollectiveCount& c : p.collectives) {
        if (!groups.emplace(c.device, c.group).second) {
          out_.add("collective", "program '{}': group {} of device {} is listed twice", p.name,
                   c.group, c.device);
        }
      }
      std::set<exe::VariableId> variables;
      for (const exe::Final& f : p.finals) {
        if (!variables.insert(f.variable).second) {
          out_.add("final", "program '{}': variable {} is listed twice", p.name, f.variable);
        }
      }
      for (const exe::Start& x : p.starts) {
        const exe::Arena& a = e_.arenas[x.frame.arena()];
        const int64_t bytes = e_.functions[x.function].frame_bytes;
        if (x.frame.offset + bytes > a.bytes) {
          out_.add(
              "bounds",
              "program '{}': the frame of device {} occupies [{}, {}) of '{}', which has {} bytes",
              p.name, x.device, x.frame.offset, x.frame.offset + bytes, a.name, a.bytes);
        }
        if (bytes > 0 && (a.device != x.device || a.kind != exe::ArenaKind::kFrames)) {
          out_.add("bounds",
                   "program '{}': the frame of device {} must be in its frames, got arena '{}'",
                   p.name, x.device, a.name);
        }
      }
    }
  }

  const exe::Executable& e_;
  Findings& out_;
};

}  // namespace

void check_tables(const exe::Executable& executable, Findings& findings) {
  TableRules(executable, findings).run();
}

}  // namespace sluice::check
