#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "sluice/report/plan_report.h"

namespace sluice::report {
namespace {

constexpr size_t kMaxLines = 25;
constexpr size_t kMaxLinesOfDevice = 4;  // Added for each device if there are several.
constexpr size_t kColumns = 100;
constexpr size_t kBar = 12;
constexpr size_t kMaxKinds = 6;  // Rows of a memory.
constexpr size_t kMaxFunctions = 3;
constexpr size_t kMaxSuggestions = 3;

// Characters of UTF-8 text.
size_t columns(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// The text, or its first `max` - 1 columns and an ellipsis.
std::string cut(std::string text, size_t max) {
  if (columns(text) <= max) return text;
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if ((text[end] & 0xC0) != 0x80 && ++seen == max) break;
  }
  return text.substr(0, end) + "…";
}

// "1.250 ms", "2.500 s".
std::string time_of(double seconds) {
  return seconds < 1 ? fmt::format("{:.3f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

// Returns at most `max` rows: the largest kinds, and one row for all other kinds.
std::vector<KindBytes> largest_kinds(const MemoryShares& shares, size_t max) {
  std::vector<KindBytes> kinds = shares.kinds;
  if (kinds.size() <= max) return kinds;
  kinds[max - 1].kind = fmt::format("{} other kinds", kinds.size() - max + 1);
  for (size_t i = max; i < kinds.size(); ++i) kinds[max - 1].bytes += kinds[i].bytes;
  kinds.resize(max);
  return kinds;
}

std::string text_of(const KindBytes& buffer) {
  return fmt::format("host memory: {} bytes, {}", grouped(buffer.bytes), buffer.kind);
}

class Text {
 public:
  Text(const PlanReport& report, const Outlook& outlook) : report_(report), outlook_(outlook) {}

  std::string run() {
    std::vector<std::string> tail;
    std::swap(lines_, tail);
    phases();
    for (const std::string& line : outlook_.stages) add(line);
    functions();
    reference_steps();
    movements();
    if (!report_.feeds.empty())
      add_wrapped(fmt::format("feeds: {}; assumes that no source or sink of a feed blocks forever",
                              fmt::join(report_.feeds, "; ")));
    for (const KindBytes& b : report_.host_buffers) add(text_of(b));
    suggestions();
    add_wrapped(outlook_.offload);
    if (!outlook_.closing.empty()) add(outlook_.closing);
    std::swap(lines_, tail);
    verdict();
    const size_t used = lines_.size() + tail.size(), max = max_lines();
    memories(max > used ? max - used : 0);
    lines_.insert(lines_.end(), tail.begin(), tail.end());
    std::string text;
    for (const std::string& line : lines_) text += line + "\n";
    return text;
  }

 private:
  void add(std::string line) { lines_.push_back(cut(std::move(line), kColumns)); }

  size_t max_lines() const {
    const auto devices =
        static_cast<size_t>(std::count_if(report_.memories.begin(), report_.memories.end(),
                                          [](const exe::MemoryNeeds& m) { return m.device >= 0; }));
    return kMaxLines + (devices > 1 ? devices * kMaxLinesOfDevice : 0);
  }

  // Adds a text. Breaks it after semicolons if it is too long for one line.
  void add_wrapped(const std::string& text) {
    if (text.empty()) return;
    std::string line;
    for (size_t begin = 0; begin < text.size();) {
      const size_t at = text.find("; ", begin);
      const size_t end = at == std::string::npos ? text.size() : at + 2;
      const std::string part = text.substr(begin, end - begin);
      if (!line.empty() && columns(line + part) > kColumns) {
        line.pop_back();  // The space after the semicolon.
        add(std::exchange(line, "  "));
      }
      line += part;
      begin = end;
    }
    add(line);
  }

  void verdict() {
    std::string fits, exceeds, min;
    const bool several = report_.memories.size() > 2;  // Lines break after semicolons.
    const auto append = [&](std::string& list, const std::string& item) {
      list += (list.empty() ? "" : several ? "; " : ", ") + item;
    };
    for (const exe::MemoryNeeds& m : report_.memories) {
      const std::string name = m.device >= 0 ? fmt::format("device {}", m.device) : m.name;
      append(min, fmt::format("{} {}", name, grouped(m.smallest_budget())));
      if (m.budget_bytes < 0) continue;
      const std::string of =
          fmt::format("{} {} of {}", name, grouped(m.total_bytes), grouped(m.budget_bytes));
      append(m.fits() ? fits : exceeds, of);
    }
    const std::string answer = !exceeds.empty() ? "fits: no (" + exceeds + " bytes)"
                               : !fits.empty()  ? "fits: yes (" + fits + " bytes)"
                                                : "fits: no budget is given";
    const std::string smallest = "smallest budget: " + min + " bytes";
    add_wrapped(answer + "; " + smallest);
  }

  void memories(size_t lines) {
    const size_t count = std::min(report_.memories.size(), lines / 2);
    if (count == 0) return;
    for (size_t m = 0; m < count; ++m) {
      const size_t rows = std::min(kMaxKinds, lines / (count - m) - 1);
      const size_t before = lines_.size();
      memory(report_.memories[m], report_.shares[m], rows);
      lines -= lines_.size() - before;
    }
  }

  void memory(const exe::MemoryNeeds& m, const MemoryShares& shares, size_t max) {
    const std::string budget =
        m.budget_bytes < 0 ? "" : fmt::format(" of a budget of {}", grouped(m.budget_bytes));
    const std::string peak =
        m.peak_program.empty() ? "" : fmt::format(", peak in '{}'", m.peak_program);
    const std::string bytes =
        fmt::format("{}: {} bytes{}{}", m.name, grouped(m.total_bytes), budget, peak);
    const std::string ratio = fmt::format(", {:.3f} x the live-set bound", m.ratio);
    add(columns(bytes) + columns(ratio) <= kColumns ? bytes + ratio : bytes);
    const std::vector<KindBytes> kinds = largest_kinds(shares, max);
    const size_t rows = std::min(max, std::max(kinds.size(), shares.peak_objects.size()));
    const size_t digits = grouped(m.total_bytes).size();
    for (size_t i = 0; i < rows; ++i) {
      std::string left;
      if (i < kinds.size()) {
        const double share = static_cast<double>(kinds[i].bytes) /
                             static_cast<double>(std::max<int64_t>(m.total_bytes, 1));
        const auto full = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * kBar + 0.5);
        left = fmt::format("  {:.<{}} {:>{}} {}", std::string(full, '#'), kBar,
                           grouped(kinds[i].bytes), digits, kinds[i].kind);
      }
      std::string right;
      if (i < shares.peak_objects.size())
        right = fmt::format("| {:>{}} {}", grouped(shares.peak_objects[i].bytes), digits,
                            shares.peak_objects[i].model_name);
      add(right.empty() ? left : fmt::format("{:<{}} {}", left, kBar + digits + 23, right));
    }
  }

  // Adds one line with the phases of each program. Omits phases in the middle if they do not fit.
  void phases() {
    for (const ProgramBlocks& p : report_.blocks) {
      if (!report_.phased || !is_shown(p.program)) continue;
      const std::string head = fmt::format("phases of '{}': ", p.program);
      const auto first = p.parts.begin(), last = p.parts.end();
      std::string line = fmt::format("{}{}", head, fmt::join(first, last, ", "));
      for (auto kept = static_cast<std::ptrdiff_t>(p.parts.size() - 1) / 2;
           columns(line) > kColumns && kept > 0; --kept) {
        line = fmt::format("{}{}, …, {}", head, fmt::join(first, first + kept, ", "),
                           fmt::join(last - kept, last, ", "));
      }
      add(line);
    }
  }

  void functions() {
    std::vector<const FunctionReport*> largest;
    for (const FunctionReport& f : report_.functions) largest.push_back(&f);
    std::stable_sort(largest.begin(), largest.end(),
                     [](const auto* a, const auto* b) { return a->frame_bytes > b->frame_bytes; });
    if (largest.empty()) return;
    add(fmt::format("functions: {}, {} bytes of steps; largest frames:", largest.size(),
                    grouped(report_.program_bytes)));
    for (size_t i = 0; i < std::min(largest.size(), kMaxFunctions); ++i) {
      const FunctionReport& f = *largest[i];
      add(fmt::format("  {:>14} {}, {} steps", grouped(f.frame_bytes), f.model_name,
                      grouped(f.steps)));
    }
  }

  void reference_steps() {
    if (report_.reference_steps.empty()) return;
    std::vector<std::string> ops;
    for (const ReferenceSteps& r : report_.reference_steps)
      ops.push_back(fmt::format("{} ({} step{})", r.op, grouped(r.steps), r.steps == 1 ? "" : "s"));
    add(fmt::format("on reference kernels, which are slow: {}", fmt::join(ops, ", ")));
  }

  // Shows the program `train` alone, or every program if `train` does not exist.
  bool is_shown(const std::string& program) const {
    const auto trains = [](const auto& t) { return t.program == "train"; };
    const bool some = std::any_of(report_.transfers.begin(), report_.transfers.end(), trains) ||
                      std::any_of(outlook_.forecasts.begin(), outlook_.forecasts.end(), trains);
    return !some || program == "train";
  }

  void movements() {
    std::vector<TransferReport> sums;
    for (const TransferReport& t : report_.transfers) {
      if (!is_shown(t.program)) continue;
      auto sum = std::find_if(sums.begin(), sums.end(), [&](const TransferReport& s) {
        return s.program == t.program && s.memory == t.memory;
      });
      if (sum == sums.end()) sum = sums.insert(sum, {t.program, t.memory});
      sum->loaded_bytes += t.loaded_bytes;
      sum->stored_bytes += t.stored_bytes;
    }
    std::string program, line;
    size_t runs = 0;
    const auto flush = [&] {
      if (!line.empty() && ++runs <= 2) add_wrapped(line);
    };
    for (const TransferReport& t : sums) {
      if (t.program != program) {
        flush();
        line = fmt::format("a run of '{}' moves:", t.program);
        program = t.program;
      } else {
        line += ";";
      }
      line += fmt::format(" {} {} in, {} out", t.memory, grouped(t.loaded_bytes),
                          grouped(t.stored_bytes));
    }
    flush();
    sent();
    forecasts();
  }

  void sent() {
    size_t runs = 0;
    for (const SentReport& s : report_.sent) {
      if (!is_shown(s.program) || s.message_bytes + s.collective_bytes == 0 || ++runs > 2) continue;
      add(fmt::format("a run of '{}' sends, each replica: {} in messages, {} in collectives",
                      s.program, grouped(s.message_bytes), grouped(s.collective_bytes)));
    }
  }

  // Adds the bubble of a cluster, and the devices that compute the shortest and the longest time.
  void devices(const ProgramForecast& program) {
    const auto& all = program.devices;
    if (all.empty() || !program.in_cluster) return;
    const auto busy = [](const DeviceForecast& d) { return d.seconds - d.message_wait; };
    const auto [idle, slow] = std::minmax_element(
        all.begin(), all.end(), [&](const auto& a, const auto& b) { return busy(a) < busy(b); });
    add(fmt::format(
        "  bubble {:.1f} %; busy: device {} {}, device {} {}, of which {} in collectives",
        100 * program.bubble(), idle->device, time_of(busy(*idle)), slow->device,
        time_of(busy(*slow)), time_of(slow->collective_seconds)));
  }

  void forecasts() {
    size_t runs = 0;
    for (const ProgramForecast& p : outlook_.forecasts) {
      if (!is_shown(p.program) || ++runs > 2) continue;
      double seconds = 0, exposed = 0;
      for (const TransferForecast& t : p.transfers) {
        seconds += t.seconds;
        exposed += t.exposed_seconds;
      }
      add(fmt::format("a run of '{}' is forecast to take {}; transfers {}, of which {} exposed",
                      p.program, time_of(p.seconds), time_of(seconds), time_of(exposed)));
      devices(p);
    }
    if (runs > 0 && !outlook_.machine.empty()) add("  at " + outlook_.machine);
  }

  void suggestions() {
    size_t shown = 0;
    for (const Suggestion& s : outlook_.suggestions) {
      if (++shown > kMaxSuggestions) break;
      const std::string tiers =
          s.tier_bytes > 0 ? fmt::format(", {} in tiers", grouped(s.tier_bytes)) : "";
      const std::string bytes = s.device_bytes < 0 ? " (bytes not computed)"
                                                   : fmt::format(": {} bytes on the device{}",
                                                                 grouped(s.device_bytes), tiers);
      add(fmt::format("{} {}{}", shown == 1 ? "smaller with" : "            ", s.option, bytes));
    }
  }

  const PlanReport& report_;
  const Outlook& outlook_;
  std::vector<std::string> lines_;
};

}  // namespace

std::string grouped(int64_t n) {
  std::string text = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3) {
    text.insert(static_cast<size_t>(at), 1, ',');
  }
  return text;
}

std::string summary(const PlanReport& report, const Outlook& outlook) {
  return Text(report, outlook).run();
}

std::string memory_map(const PlanReport& report) {
  std::string out;
  const auto add = [&]<typename... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
    out += '\n';
  };
  for (const exe::MemoryNeeds& m : report.memories) {
    const std::string budget =
        m.budget_bytes < 0 ? "" : fmt::format(" of a budget of {}", grouped(m.budget_bytes));
    add("{}: {} bytes{}, {:.3f} x the live-set bound of {}", m.name, grouped(m.total_bytes), budget,
        m.ratio, grouped(m.bound_bytes));
    const std::pair<const char*, int64_t> parts[] = {
        {"variables and constants", m.persistent_bytes},
        {"frames", m.frame_bytes},
        {"workspace", m.workspace_bytes},
        {"channel slots", m.slot_bytes},
        {"remote buffers", m.tier_bytes},
        {"staging of direct transfers", m.staging_bytes},
        {"checksums of entries", m.checksum_bytes},
        {"rings of feeds", m.ring_bytes}};
    for (const auto& [what, bytes] : parts) {
      if (bytes > 0) add("  {:>15}  {}", grouped(bytes), what);
    }
    if (m.peak_objects.empty()) continue;
    add("  at the peak{}:",
        m.peak_program.empty() ? "" : fmt::format(" (program '{}')", m.peak_program));
    for (const exe::PeakObject& h : m.peak_objects) {
      add("  {:>15}  {} {}{}", grouped(h.bytes), h.kind, h.name,
          h.where.empty() ? "" : " in " + h.where);
    }
  }
  for (const KindBytes& b : report.host_buffers) add("{}", text_of(b));
  for (const TransferReport& t : report.transfers) {
    add("{} on queue {}, a run of '{}': {} in, {} bytes; {} out, {} bytes", t.memory, t.queue,
        t.program, grouped(t.loads), grouped(t.loaded_bytes), grouped(t.stores),
        grouped(t.stored_bytes));
  }
  for (const std::string& feed : report.feeds) add("feed {}", feed);
  if (!report.feeds.empty())
    add("the proof assumes that no source or sink of a feed blocks forever");
  size_t width = 8;
  for (const FunctionReport& f : report.functions) width = std::max(width, f.name.size());
  add("{:{}}  device  calls   steps  program bytes   frame bytes  place", "function", width);
  for (const FunctionReport& f : report.functions) {
    add("{:{}}  {:>6}  {:>5}  {:>6}  {:>13}  {:>12}  {}", f.name, width, f.device.value(),
        grouped(f.call_sites), grouped(f.steps), grouped(f.program_bytes), grouped(f.frame_bytes),
        f.model_name);
  }
  for (const ProgramBlocks& p : report.blocks) {
    if (!report.phased) break;
    add("phases of '{}', in order: {}", p.program, fmt::join(p.parts, ", "));
  }
  add("the program itself takes {} bytes", grouped(report.program_bytes));
  return out;
}

}  // namespace sluice::report
