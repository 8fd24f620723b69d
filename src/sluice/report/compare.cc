#include "sluice/report/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "sluice/base/error.h"
#include "sluice/report/report.h"

namespace sluice::report {
namespace {

using SortedJson = nlohmann::json;

constexpr size_t kMaxRows = 20;  // Maximum number of rows of a group.

[[noreturn]] void bad(const std::string& path, const std::string& why) {
  fail(ErrorKind::kBadFile, "{}: {}", path, why);
}

/// Bytes and operations of kernels and collectives, by op.
using Ops = std::map<std::string, std::pair<int64_t, int64_t>>;

class FactReader {
 public:
  FactReader(const SortedJson& json, const std::string& path) : json_(json), path_(path) {}

  ReportFacts run() {
    ReportFacts facts{path_, json_.at("model").get<std::string>(), {}};
    for (const SortedJson& m : json_.at("memories")) facts.groups.push_back(memory(m));
    facts.groups.push_back(objects());
    for (const SortedJson& p : json_.at("programs")) program(p, facts);
    return facts;
  }

 private:
  /// The columns of a table by name.
  class Columns {
   public:
    explicit Columns(const SortedJson& table) {
      const SortedJson& names = table.at("columns");
      for (size_t i = 0; i < names.size(); ++i) columns_[names.at(i).get<std::string>()] = i;
    }
    const SortedJson& of(const SortedJson& row, const char* name) const {
      return row.at(columns_.at(name));
    }

   private:
    std::map<std::string, size_t> columns_;
  };

  static void add(int64_t& sum, int64_t more) { sum = bounded_sum(sum, more); }

  // Objects of one arena with the same model name share a row, which has the sum of their bytes.
  FactGroup objects() const {
    const SortedJson& table = json_.at("objects");
    const Columns columns(table);
    std::map<std::string, int64_t> bytes;
    for (const SortedJson& row : table.at("rows")) {
      const SortedJson& arena = json_.at("arenas").at(columns.of(row, "arena").get<size_t>());
      const std::string name = fmt::format("{} in {}", columns.of(row, "place").get<std::string>(),
                                           arena.at("name").get<std::string>());
      add(bytes[name], columns.of(row, "bytes").get<int64_t>());
    }
    return {"objects that live as long as the program", {bytes.begin(), bytes.end()}};
  }

  static FactGroup memory(const SortedJson& m) {
    FactGroup group{m.at("name").get<std::string>() + ", bytes", {}};
    for (const auto& [name, key] : std::initializer_list<std::pair<const char*, const char*>>{
             {"planned", "planned_bytes"},
             {"always live", "always_live_bytes"},
             {"peak of the rest", "peak_live_bytes"},
             {"gaps", "gap_bytes"},
             {"program (on the host)", "program_bytes"}})
      group.rows.emplace_back(name, m.at(key).get<int64_t>());
    for (const SortedJson& k : m.at("kinds"))
      group.rows.emplace_back("at the peak: " + k.at("kind").get<std::string>(),
                              k.at("bytes").get<int64_t>());
    return group;
  }

  void program(const SortedJson& p, ReportFacts& facts) {
    const auto name = p.at("name").get<std::string>();
    FactGroup bytes{"a run of '" + name + "', bytes by op", {}};
    FactGroup flops{"a run of '" + name + "', flops by op", {}};
    FactGroup other{"a run of '" + name + "'", {}};
    Ops ops;
    for (const SortedJson& s : p.at("starts"))
      merge(ops_of(s.at("function").get<size_t>()), 1, ops);
    for (const auto& [op, sums] : ops) {
      bytes.rows.emplace_back(op, sums.first);
      if (sums.second > 0) flops.rows.emplace_back(op, sums.second);
    }
    other.rows.emplace_back("forecast, ns", std::llround(p.at("seconds").get<double>() * 1e9));
    measured(p, name, other, facts);
    for (const auto& [kind, count] : std::initializer_list<std::pair<const char*, const char*>>{
             {"transfers", "transfers"},
             {"messages", "messages"},
             {"collectives", "collectives"}}) {
      int64_t number = 0, moved = 0;
      for (const SortedJson& row : p.at(kind)) {
        add(number, row.at(count).get<int64_t>());
        add(moved, row.at("bytes").get<int64_t>());
      }
      other.rows.emplace_back(kind, number);
      other.rows.emplace_back(std::string(kind) + ", bytes", moved);
    }
    for (FactGroup* group : {&other, &bytes, &flops}) facts.groups.push_back(std::move(*group));
  }

  // The measured times of a program. A report of an earlier version does not have them.
  static void measured(const SortedJson& p, const std::string& name, FactGroup& other,
                       ReportFacts& facts) {
    if (p.value("measured_runs", int64_t{0}) == 0) return;
    const auto min = p.at("measured_ns").get<int64_t>();
    if (min >= 0) other.rows.emplace_back("measured, ns", min);
    const SortedJson& table = p.at("kernels");
    const Columns columns(table);
    std::map<std::string, int64_t> times;
    for (const SortedJson& row : table.at("rows")) {
      const auto text = [&](const char* column) {
        return columns.of(row, column).get<std::string>();
      };
      const auto ns = columns.of(row, "measured_ns").get<int64_t>();
      const bool reference = columns.of(row, "reference").get<bool>();
      if (ns >= 0)
        add(times[fmt::format("{} {} {}{}", text("name"), text("layer"), text("source"),
                              reference ? ", reference" : "")],
            ns);
    }
    facts.groups.push_back(
        {fmt::format("a run of '{}', measured ns by kernel", name), {times.begin(), times.end()}});
  }

  static void merge(const Ops& from, int64_t iterations, Ops& to) {
    for (const auto& [op, sums] : from) {
      add(to[op].first, bounded_product(sums.first, iterations));
      add(to[op].second, bounded_product(sums.second, iterations));
    }
  }

  // Returns the sums of a function and its callees. Both arms of a branch count.
  const Ops& ops_of(size_t function) {
    const auto known = ops_.find(function);
    if (known != ops_.end()) return known->second;
    if (!open_.insert(function).second)
      bad(path_, fmt::format("function {} calls itself", function));
    const SortedJson& steps = json_.at("functions").at(function).at("steps");
    const Columns columns(steps);
    const auto number = [&](const SortedJson& row, const char* name) {
      return std::max<int64_t>(columns.of(row, name).get<int64_t>(), 0);
    };
    Ops sums;
    for (const SortedJson& row : steps.at("rows")) {
      const auto kind = columns.of(row, "kind").get<std::string>();
      const auto trips = number(row, "trips");
      for (const SortedJson& callee : columns.of(row, "calls"))
        merge(ops_of(callee.get<size_t>()), trips, sums);
      if (kind != "kernel" && kind != "collective") continue;
      auto& [bytes, flops] = sums[columns.of(row, "name").get<std::string>()];
      add(bytes, number(row, "bytes"));
      add(flops, number(row, "flops"));
    }
    open_.erase(function);
    return ops_[function] = std::move(sums);
  }

  const SortedJson& json_;
  const std::string& path_;
  std::map<size_t, Ops> ops_;
  std::set<size_t> open_;  ///< Functions whose sums are being computed.
};

std::string signed_text(int64_t n) { return (n < 0 ? "-" : "+") + grouped(std::abs(n)); }

std::string more_text(size_t rows) {
  return rows > kMaxRows ? fmt::format("  and {} more\n", rows - kMaxRows) : "";
}

/// A row of two reports. A report that does not have the name counts as 0.
struct Difference {
  std::string name;
  int64_t a = 0, b = 0;
  int64_t by() const { return b - a; }
};

std::vector<Difference> differences(const FactGroup* a, const FactGroup* b) {
  std::map<std::string, Difference> rows;
  const auto read = [&](const FactGroup* group, int64_t Difference::*side) {
    if (group == nullptr) return;
    for (const auto& [name, n] : group->rows) {
      rows[name].name = name;
      rows[name].*side = n;
    }
  };
  read(a, &Difference::a);
  read(b, &Difference::b);
  std::vector<Difference> all;
  for (const auto& [name, row] : rows) {
    if (row.by() != 0) all.push_back(row);
  }
  std::stable_sort(all.begin(), all.end(), [](const Difference& x, const Difference& y) {
    return std::abs(x.by()) > std::abs(y.by());
  });
  return all;
}

const FactGroup* find(const ReportFacts& facts, const std::string& title) {
  for (const FactGroup& group : facts.groups) {
    if (group.title == title) return &group;
  }
  return nullptr;
}

}  // namespace

ReportFacts read_facts(std::string_view text, const std::string& path) {
  try {
    const SortedJson json = SortedJson::parse(text);
    if (!json.is_object() || json.value("schema", "") != "sluice-report")
      bad(path, "must be a report.json of --profile");
    const int version = json.at("version").get<int>();
    if (version != kReportVersion)
      bad(path, fmt::format("version must be {}, got {}; write the report again with this program",
                            kReportVersion, version));
    return FactReader(json, path).run();
  } catch (const SortedJson::exception& e) {
    bad(path, fmt::format("must be a report.json of --profile: {}", e.what()));
  } catch (const std::out_of_range&) {
    bad(path, "must be a report.json of --profile: a column is missing");
  }
}

std::string describe(const ReportFacts& facts) {
  std::string text = fmt::format("{}: report of {}\n", facts.path, facts.model);
  for (const FactGroup& group : facts.groups) {
    auto rows = group.rows;
    std::stable_sort(rows.begin(), rows.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    text += group.title + "\n";
    for (size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i)
      text += fmt::format("  {:<50} {:>18}\n", rows[i].first, grouped(rows[i].second));
    text += more_text(rows.size());
  }
  return text;
}

std::string compare(const ReportFacts& a, const ReportFacts& b) {
  require(a.model == b.model, "inspect: must compare reports of one model, got {} and {}", a.model,
          b.model);
  std::vector<std::string> titles;
  for (const ReportFacts* facts : {&a, &b}) {
    for (const FactGroup& group : facts->groups) {
      if (std::find(titles.begin(), titles.end(), group.title) == titles.end())
        titles.push_back(group.title);
    }
  }
  std::string text;
  for (const std::string& title : titles) {
    const std::vector<Difference> rows = differences(find(a, title), find(b, title));
    if (rows.empty()) continue;
    text += title + "\n";
    for (size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i)
      text += fmt::format("  {:<40} {:>16} {:>16} {:>16}\n", rows[i].name, grouped(rows[i].a),
                          grouped(rows[i].b), signed_text(rows[i].by()));
    text += more_text(rows.size());
  }
  if (text.empty()) return fmt::format("{} and {} have equal numbers\n", a.path, b.path);
  return fmt::format("{}: {} against {}\n", a.model, a.path, b.path) + text;
}

}  // namespace sluice::report
