#include "sluice/planner/csv.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "sluice/base/error.h"
#include "sluice/base/ids/ids.h"
#include "sluice/planner/intervals.h"

namespace sluice::planner {
namespace {

enum Column { kId, kLower, kUpper, kSize, kAlignment, kGaps, kOffset, kHint, kColumns };
constexpr std::array<std::string_view, kColumns> kNames = {"id",        "lower", "upper",  "size",
                                                           "alignment", "gaps",  "offset", "hint"};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// Returns the text as an error quotes it: at most 40 bytes, with '?' for each byte that is not
// printable ASCII.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) out += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > 40 ? out + "…" : out;
}

class Parser {
 public:
  Parser(std::string_view text, std::string file_name) : text_(text), file_(std::move(file_name)) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  }

  Problem parse() {
    std::string_view line;
    if (!next(line)) bad("the header line is missing");
    read_header(line);
    Problem problem;
    while (next(line)) {
      if (line.empty()) {
        if (text_.find_first_not_of("\r\n") != std::string_view::npos)
          bad("must be a buffer, got an empty line");
        break;
      }
      problem.buffers.push_back(read_buffer(line));
    }
    return problem;
  }

 private:
  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kBadFile, "{}: line {}: {}", file_, line_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  bool next(std::string_view& line) {
    ++line_;
    if (text_.empty()) return false;
    const size_t at = text_.find('\n');
    line = text_.substr(0, at);
    text_.remove_prefix(at == std::string_view::npos ? text_.size() : at + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    return true;
  }

  void read_header(std::string_view line) {
    column_of_.fill(-1);
    const auto names = split(line, ',');
    for (std::string_view name : names) {
      if (name == "buffer" || name == "buffer_id") name = "id";
      if (name == "begin" || name == "start") name = "lower";
      const auto found = std::find(kNames.begin(), kNames.end(), name);
      if (found == kNames.end())
        bad("column: must be one of {}, got '{}'", fmt::join(kNames, ", "), shown(name));
      int& column_number = *(column_of_.begin() + (found - kNames.begin()));
      if (column_number >= 0) bad("column '{}' must occur once", name);
      column_number = columns_++;
    }
    for (const Column column : {kId, kLower, kUpper, kSize}) {
      if (column_of_[column] < 0) bad("column '{}' is missing", kNames[column]);
    }
  }

  int64_t number(std::string_view field, std::string_view what) const {
    int64_t value = 0;
    const char* end = field.data() + field.size();
    const auto [stop, error] = std::from_chars(field.data(), end, value);
    if (error == std::errc::result_out_of_range) bad("{} '{}' exceeds 63 bits", what, shown(field));
    if (error != std::errc() || stop != end) {
      bad("{}: must be an integer, got '{}'", what, shown(field));
    }
    if (value < 0) bad("{}: must be at least 0, got {}", what, value);
    return value;
  }

  Buffer read_buffer(std::string_view line) {
    const auto fields = split(line, ',');
    if (static_cast<int>(fields.size()) != columns_) {
      bad("must have {} fields like the header, got {}", columns_, fields.size());
    }
    const auto field = [&](Column column) {
      return column_of_[column] < 0 ? std::string_view() : at(fields, column_of_[column]);
    };
    const auto read = [&](Column column) { return number(field(column), kNames[column]); };

    Buffer buffer;
    buffer.name = field(kId);
    if (buffer.name.empty()) bad("id: must not be empty");
    const auto [first, is_new] = names_.emplace(buffer.name, line_);
    if (!is_new)
      bad("id: must be unique, got '{}' as in line {}", shown(buffer.name), first->second);
    const Interval whole{read(kLower), read(kUpper)};
    if (whole.begin > whole.end) bad("lower {} exceeds upper {}", whole.begin, whole.end);
    buffer.lifetime = without_gaps(whole, field(kGaps));
    buffer.size = read(kSize);
    if (column_of_[kAlignment] >= 0) buffer.alignment = read(kAlignment);
    if (buffer.alignment < 1) bad("alignment: must be at least 1, got {}", buffer.alignment);
    if (!field(kHint).empty()) buffer.hint = read(kHint);
    if (!field(kOffset).empty()) {
      buffer.fixed_offset = read(kOffset);
      if (*buffer.fixed_offset % buffer.alignment != 0) {
        bad("offset {} is not a multiple of alignment {}", *buffer.fixed_offset, buffer.alignment);
      }
      int64_t end = 0;
      if (__builtin_add_overflow(*buffer.fixed_offset, buffer.size, &end)) {
        bad("offset {} + size {} exceeds 63 bits", *buffer.fixed_offset, buffer.size);
      }
    }
    return buffer;
  }

  std::vector<Interval> without_gaps(Interval whole, std::string_view text) const {
    std::vector<Interval> gaps;
    for (const std::string_view gap : split(text, ' ')) {
      if (gap.empty()) continue;
      const auto ends = split(gap, '-');
      if (ends.size() != 2) bad("gap: must be BEGIN-END, got '{}'", shown(gap));
      gaps.push_back({number(ends[0], "gap"), number(ends[1], "gap")});
      const Interval& last = gaps.back();
      if (last.begin > last.end || last.begin < whole.begin || last.end > whole.end) {
        bad("gap: must be inside [{}, {}), got {}-{}", whole.begin, whole.end, last.begin,
            last.end);
      }
    }
    std::vector<Interval> lifetime;
    int64_t begin = whole.begin;
    for (const Interval& gap : normalized(gaps)) {
      if (gap.begin > begin) lifetime.push_back({begin, gap.begin});
      begin = gap.end;
    }
    if (begin < whole.end) lifetime.push_back({begin, whole.end});
    if (lifetime.empty()) lifetime.push_back({whole.end, whole.end});  // For to_csv().
    return lifetime;
  }

  std::string_view text_;
  std::string file_;
  int64_t line_ = 0;
  int columns_ = 0;
  std::array<int, kColumns> column_of_{};
  std::unordered_map<std::string, int64_t> names_;
};

}  // namespace

Problem parse_csv(std::string_view text, std::string file_name) {
  return Parser(text, std::move(file_name)).parse();
}

std::string to_csv(const Problem& problem, const Solution* solution) {
  const auto& buffers = problem.buffers;
  require(!solution || solution->offsets.size() == buffers.size(),
          "solution: must have one offset for each of {} buffers, got {}", buffers.size(),
          solution ? solution->offsets.size() : 0);
  const auto any = [&](auto&& condition) {
    return std::any_of(buffers.begin(), buffers.end(), condition);
  };
  const bool alignments = any([](const Buffer& b) { return b.alignment != 1; });
  const bool gaps = any([](const Buffer& b) { return normalized(b.lifetime).size() > 1; });
  const bool hints = any([](const Buffer& b) { return b.hint.has_value(); });
  const bool offsets = solution || any([](const Buffer& b) { return b.fixed_offset.has_value(); });

  std::string text = "id,lower,upper,size";
  if (alignments) text += ",alignment";
  if (gaps) text += ",gaps";
  if (hints) text += ",hint";
  text += offsets ? ",offset\n" : "\n";
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& buffer = buffers[i];
    require(!buffer.name.empty() && buffer.name.find_first_of(",\r\n") == std::string::npos,
            "buffer name: must not be empty or contain a comma or line break, got '{}'",
            buffer.name);
    require(names.insert(buffer.name).second, "buffer name: must be unique, got '{}' twice",
            buffer.name);
    const auto lifetime = normalized(buffer.lifetime);
    // A buffer that is never alive keeps the step at which it would begin.
    const int64_t never = buffer.lifetime.empty() ? 0 : buffer.lifetime.front().begin;
    const int64_t begin = lifetime.empty() ? never : lifetime.front().begin;
    require(begin >= 0, "buffer '{}': must begin at step 0 or later, got {}", buffer.name, begin);
    text += fmt::format("{},{},{},{}", buffer.name, begin,
                        lifetime.empty() ? begin : lifetime.back().end, buffer.size);
    if (alignments) text += fmt::format(",{}", buffer.alignment);
    if (gaps) {
      text += ',';
      for (size_t k = 1; k < lifetime.size(); ++k) {
        text += fmt::format("{}{}-{}", k > 1 ? " " : "", lifetime[k - 1].end, lifetime[k].begin);
      }
    }
    if (hints) text += buffer.hint && *buffer.hint >= 0 ? fmt::format(",{}", *buffer.hint) : ",";
    if (solution) {
      text += fmt::format(",{}", solution->offsets[i]);
    } else if (offsets) {
      text += buffer.fixed_offset ? fmt::format(",{}", *buffer.fixed_offset) : ",";
    }
    text += '\n';
  }
  return text;
}

}  // namespace sluice::planner
