#include "tools/plan/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "sluice/base/error.h"
#include "sluice/base/options/words.h"
#include "tools/flags/flag_table.h"
#include "tools/flags/help.h"
#include "tools/json_record.h"

namespace sluice::tool {
namespace {

constexpr size_t kMaxPlans = 1000;

/// A flag and its values, one for each plan.
struct Sweep {
  std::string flag;
  std::vector<std::string> values;
  bool has_value = true;  ///< Else the values are "on" and "off".
};

struct Column {
  const char* name;
  int64_t SweepFigures::*figure;
};

constexpr Column kFigureColumns[] = {{"device_bytes", &SweepFigures::device_bytes},
                                     {"tier_bytes", &SweepFigures::tier_bytes},
                                     {"remote_bytes", &SweepFigures::remote_bytes},
                                     {"collective_bytes", &SweepFigures::collective_bytes},
                                     {"message_bytes", &SweepFigures::message_bytes},
                                     {"state_bytes", &SweepFigures::state_bytes}};

/// A combination of values with its plan, or with the reason why it does not have a plan.
struct SweepRow {
  std::vector<size_t> choices;  ///< For each sweep: the index of its value.
  std::optional<SweepFigures> figures;
  std::string refusal;
  int exit_code = 0;
  bool in_front = false;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != text.npos; begin = end + 1)
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

Sweep parse_sweep(const CLI::App& command, const std::string& text) {
  const size_t equals = text.find('=');
  require(equals != text.npos && equals > 0,
          "--sweep: must be 'flag=value;value', for example 'micro-batch=8;16', got '{}'", text);
  const std::string name = text.substr(0, equals);
  Sweep sweep{name.starts_with("--") ? name : "--" + name, split(text.substr(equals + 1), ';')};
  std::vector<std::string> names;
  for (const CLI::Option* o : command.get_options()) {
    if (o->get_positional() || in_sweep(o->get_name()) != InSweep::kVaried) continue;
    names.push_back(o->get_name());
    if (o->get_name() == sweep.flag) sweep.has_value = o->get_items_expected_max() > 0;
  }
  require(std::find(names.begin(), names.end(), sweep.flag) != names.end(),
          "--sweep: must be of a flag of sluice plan that changes the plan, got '{}'{}", sweep.flag,
          suggestion(sweep.flag, names));
  require(command.count(sweep.flag) == 0, "{} cannot be combined with --sweep of it", sweep.flag);
  std::set<std::string> seen;
  for (const std::string& value : sweep.values) {
    require(!value.empty(), "--sweep {}: must have a value on each side of ';', got '{}'",
            sweep.flag, text.substr(equals + 1));
    require(seen.insert(value).second, "--sweep {}: must have each value once, got '{}' twice",
            sweep.flag, value);
    require(sweep.has_value || value == "on" || value == "off",
            "--sweep {}: must be of on and off, as the flag has no value, got '{}'", sweep.flag,
            value);
  }
  return sweep;
}

std::vector<Sweep> parse_sweeps(const CLI::App& command, const std::vector<std::string>& texts) {
  std::vector<Sweep> sweeps;
  size_t plans = 1;
  for (const std::string& text : texts) {
    Sweep sweep = parse_sweep(command, text);
    for (const Sweep& other : sweeps)
      require(other.flag != sweep.flag, "--sweep {}: must be given once", sweep.flag);
    plans *= sweep.values.size();
    require(plans <= kMaxPlans, "--sweep: must have at most {} combinations, got {}", kMaxPlans,
            plans);
    sweeps.push_back(std::move(sweep));
  }
  return sweeps;
}

/// The words of the command line without --sweep, --sort and --json.
std::vector<std::string> words_of_all(const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--sweep" || word == "--sort") {
      ++i;  // Its value.
    } else if (word != "--json" && !word.starts_with("--sweep=") && !word.starts_with("--sort=")) {
      kept.push_back(word);
    }
  }
  return kept;
}

/// All combinations; the last sweep changes first.
std::vector<SweepRow> combinations(const std::vector<Sweep>& sweeps) {
  std::vector<SweepRow> rows{{}};
  for (const Sweep& sweep : sweeps) {
    std::vector<SweepRow> longer;
    for (const SweepRow& row : rows) {
      for (size_t i = 0; i < sweep.values.size(); ++i) {
        longer.push_back(row);
        longer.back().choices.push_back(i);
      }
    }
    rows = std::move(longer);
  }
  return rows;
}

void mark_front(std::vector<SweepRow>& rows) {
  const auto beats = [](const SweepFigures& a, const SweepFigures& b) {
    return a.device_bytes <= b.device_bytes && a.seconds <= b.seconds &&
           (a.device_bytes < b.device_bytes || a.seconds < b.seconds);
  };
  for (SweepRow& row : rows) {
    row.in_front =
        row.figures && std::none_of(rows.begin(), rows.end(), [&](const SweepRow& other) {
          return other.figures && beats(*other.figures, *row.figures);
        });
  }
}

/// Rows without a plan come last. Equal ones keep their order.
void sort_rows(const std::string& by, const std::vector<Sweep>& sweeps,
               std::vector<SweepRow>& rows) {
  std::function<double(const SweepRow&)> key;
  std::vector<std::string> names;
  for (const Column& c : kFigureColumns) {
    names.emplace_back(c.name);
    if (by == c.name)
      key = [&c](const SweepRow& r) { return static_cast<double>((*r.figures).*c.figure); };
  }
  names.emplace_back("seconds");
  if (by == "seconds") key = [](const SweepRow& r) { return r.figures->seconds; };
  for (size_t s = 0; s < sweeps.size(); ++s) {
    names.push_back(sweeps[s].flag.substr(2));
    if (by == names.back() || by == sweeps[s].flag)
      key = [s](const SweepRow& r) { return static_cast<double>(r.choices[s]); };
  }
  if (!key) require_one_of("--sort", by, names);
  std::stable_sort(rows.begin(), rows.end(), [&](const SweepRow& a, const SweepRow& b) {
    if (!a.figures || !b.figures) return a.figures && !b.figures;
    return key(a) < key(b);
  });
}

void print_json(const std::vector<Sweep>& sweeps, const std::vector<SweepRow>& rows) {
  std::vector<JsonRecord> records;
  for (const SweepRow& row : rows) {
    JsonRecord& record = records.emplace_back();
    for (size_t s = 0; s < sweeps.size(); ++s)
      record.add(sweeps[s].flag.substr(2), sweeps[s].values[row.choices[s]]);
    if (!row.figures) {
      record.add("refusal", row.refusal);
      continue;
    }
    for (const Column& c : kFigureColumns) record.add(c.name, (*row.figures).*c.figure);
    record.add("seconds", row.figures->seconds);
    record.add("pareto", row.in_front);
  }
  JsonRecord all;
  all.add("plans", std::move(records));
  fmt::print("{}\n", all.text());
}

void print_table(const std::vector<Sweep>& sweeps, const std::vector<SweepRow>& rows) {
  std::vector<size_t> widths;
  for (const Sweep& sweep : sweeps) {
    widths.push_back(sweep.flag.size() - 2);
    for (const std::string& v : sweep.values) widths.back() = std::max(widths.back(), v.size());
    fmt::print("{:<{}}  ", sweep.flag.substr(2), widths.back());
  }
  for (const Column& c : kFigureColumns) fmt::print("{:>18}", c.name);
  fmt::print("{:>14}\n", "seconds");
  for (const SweepRow& row : rows) {
    for (size_t s = 0; s < sweeps.size(); ++s)
      fmt::print("{:<{}}  ", sweeps[s].values[row.choices[s]], widths[s]);
    if (!row.figures) {
      fmt::print("  {}\n", row.refusal);
      continue;
    }
    for (const Column& c : kFigureColumns) fmt::print("{:>18}", (*row.figures).*c.figure);
    fmt::print("{:>14.6f}{}\n", row.figures->seconds, row.in_front ? " *" : "");
  }
  fmt::print("* no other plan needs both fewer bytes of a device and fewer seconds\n");
}

}  // namespace

int run_sweep(const CLI::App& command, const ToolOptions& o, const std::vector<std::string>& words,
              const std::function<SweepFigures(const std::vector<std::string>&)>& plan) {
  for (const CLI::Option* option : command.get_options())
    require(option->count() == 0 || in_sweep(option->get_name()) != InSweep::kRefused,
            "{} cannot be combined with --sweep", option->get_name());
  const std::vector<Sweep> sweeps = parse_sweeps(command, o.plan.sweeps);
  std::vector<SweepRow> rows = combinations(sweeps);
  if (!o.plan.sort.empty()) sort_rows(o.plan.sort, sweeps, rows);  // Refuses unknown columns first.
  for (SweepRow& row : rows) {
    std::vector<std::string> all = words_of_all(words);
    for (size_t s = 0; s < sweeps.size(); ++s) {
      const std::string& value = sweeps[s].values[row.choices[s]];
      if (sweeps[s].has_value) {
        all.push_back(sweeps[s].flag + "=" + value);
      } else if (value == "on") {
        all.push_back(sweeps[s].flag);
      }
    }
    try {
      row.figures = plan(all);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage && e.kind() != ErrorKind::kDoesNotFit) throw;
      const std::string text = e.what();
      row.refusal = text.substr(0, text.find('\n'));
      row.exit_code = e.exit_code();
    }
  }
  mark_front(rows);
  if (!o.plan.sort.empty()) sort_rows(o.plan.sort, sweeps, rows);
  o.output.json ? print_json(sweeps, rows) : print_table(sweeps, rows);
  const bool planned =
      std::any_of(rows.begin(), rows.end(), [](const SweepRow& row) { return row.figures; });
  int code = 0;  // The code of kDoesNotFit is larger than that of kUsage.
  for (const SweepRow& row : rows) code = std::max(code, row.exit_code);
  return planned ? 0 : code;
}

}  // namespace sluice::tool
