#include "bench/table.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace sluice::bench {
namespace {

std::string number(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

// Formats an amount with three or four significant digits.
std::string shown(const Case& c, const std::optional<double>& amount) {
  if (!amount) return "-";
  const double value = c.shown(*amount);
  return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 1000 ? 1 : 0);
}

std::string_view word_for(Goal::Of of) {
  switch (of) {
    case Goal::Of::kPart:
      return "part";
    case Goal::Of::kPyTorch:
      return "pytorch";
    case Goal::Of::kOneThread:
      return "one thread";
    case Goal::Of::kAtMost:
      return "at most";
  }
  return "";
}

std::string text_of(const Case& c, const Goal& goal) {
  const std::string bound = fmt::format("{:.4g}", goal.bound);
  switch (goal.of) {
    case Goal::Of::kPart:
      return bound + " of limit";
    case Goal::Of::kPyTorch:
      return bound + " x PyTorch";
    case Goal::Of::kOneThread:
      return bound + " x 1 thread";
    case Goal::Of::kAtMost:
      return fmt::format("<= {} {}", bound, to_string(c.unit));
  }
  return "";
}

bool meets(const Goal& goal, double value) {
  return goal.of == Goal::Of::kAtMost ? value <= goal.bound : value >= goal.bound;
}

std::string_view word_for(const std::optional<bool>& met) {
  return !met ? "" : *met ? "yes" : "NO";
}

}  // namespace

std::optional<double> TableRow::value(const Goal& goal) const {
  switch (goal.of) {
    case Goal::Of::kPart:
      return part;
    case Goal::Of::kPyTorch:
      return pytorch.empty() ? std::nullopt : pytorch[0].ratio;
    case Goal::Of::kOneThread:
      return of_one;
    case Goal::Of::kAtMost:
      return of->shown(amount);
  }
  return {};
}

std::optional<bool> TableRow::met() const {
  bool unknown = of->goals.empty();
  for (const Goal& goal : of->goals) {
    const auto value = this->value(goal);
    if (value && !meets(goal, *value)) return false;
    unknown = unknown || !value;
  }
  return unknown ? std::nullopt : std::optional(true);
}

std::string heading(size_t pythons) {
  std::string text = fmt::format("{:<50}{:>4}{:>10} {:<5}{:>10}{:>7}{:>7}", "case", "thr", "Sluice",
                                 "", "limit", "part", "x 1");
  for (size_t i = 0; i < pythons; ++i)
    text += fmt::format("{:>10}{:>7}", i == 0 ? "PyTorch" : fmt::format("no. {}", i + 1), "ratio");
  return text + fmt::format("  {:<4}{}", "met", "goal");
}

std::string line(const TableRow& row) {
  const Case& c = *row.of;
  std::string text = fmt::format("{:<50}{:>4}{:>10} {:<5}{:>10}{:>7}{:>7}", c.title(), c.threads,
                                 shown(c, row.amount), to_string(c.unit), shown(c, row.limit),
                                 number(row.part, 2), number(row.of_one, 2));
  for (const TableRow::Other& other : row.pytorch)
    text += fmt::format("{:>10}{:>7}", shown(c, other.amount), number(other.ratio, 2));
  std::string goals;
  for (const Goal& goal : c.goals) goals += (goals.empty() ? "" : ", ") + text_of(c, goal);
  text += fmt::format("  {:<4}{}", word_for(row.met()), goals);
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

std::string json(const std::string& isa, const std::vector<PythonInfo>& pythons,
                 const std::vector<TableRow>& rows) {
  using Json = nlohmann::ordered_json;
  const auto optional = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
  const auto amount = [](const Case& c, const std::optional<double>& v) {
    return v ? Json(c.shown(*v)) : Json(nullptr);
  };
  Json result{{"isa", isa}, {"pytorch", Json::array()}, {"rows", Json::array()}};
  for (const PythonInfo& p : pythons)
    result["pytorch"].push_back(
        {{"python", p.python}, {"version", p.version}, {"trouble", p.trouble}});
  for (const TableRow& row : rows) {
    const Case& c = *row.of;
    Json entry{{"group", c.group},
               {"case", c.name},
               {"threads", c.threads},
               {"unit", to_string(c.unit)},
               {"measured", c.shown(row.amount)},
               {"best", c.shown(row.min)},
               {"limit", amount(c, row.limit)},
               {"part", optional(row.part)},
               {"of_one_thread", optional(row.of_one)},
               {"pytorch", Json::array()},
               {"goals", Json::array()}};
    for (const TableRow::Other& other : row.pytorch)
      entry["pytorch"].push_back(
          {{"measured", amount(c, other.amount)}, {"ratio", optional(other.ratio)}});
    for (const Goal& goal : c.goals) {
      const auto value = row.value(goal);
      entry["goals"].push_back({{"of", word_for(goal.of)},
                                {"bound", goal.bound},
                                {"value", optional(value)},
                                {"met", value ? Json(meets(goal, *value)) : Json(nullptr)}});
    }
    result["rows"].push_back(std::move(entry));
  }
  return result.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice::bench
