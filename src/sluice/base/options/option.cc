#include "sluice/base/options/option.h"

#include <fmt/ranges.h>

#include <cmath>

#include "sluice/base/options/words.h"

namespace sluice {
namespace {

std::string range_text(const forms::Interval& i) {
  const std::string low = fmt::format("{}{:.15g}", i.excludes_min ? "above " : "", i.min);
  if (!i.max) return i.excludes_min ? low : "of at least " + low;
  return fmt::format("{}{} to {}{:.15g}", i.excludes_min ? "" : "from ", low,
                     i.excludes_max ? "below " : "", *i.max);
}

bool holds(const forms::Interval& i, double value) {
  if (value < i.min || (i.excludes_min && value == i.min)) return false;
  return !i.max || value < *i.max || (value == *i.max && !i.excludes_max);
}

TextForm<double> numbers(const forms::Interval& interval, const char* placeholder, const char* what,
                         bool rounds) {
  return {OptionType::kNumber, placeholder, fmt::format("{} {}", what, range_text(interval)),
          [](const double& value) { return fmt::format("{}", value); },
          [=](const std::string& text) -> std::optional<double> {
            const std::optional<double> value = read_real(text);
            if (!value || !holds(interval, *value)) return std::nullopt;
            const auto narrow = static_cast<float>(*value);
            const bool fits = std::isfinite(narrow) && (narrow != 0 || *value == 0);
            return !rounds || (fits && holds(interval, narrow)) ? value : std::nullopt;
          }};
}

}  // namespace

namespace forms {

TextForm<double> reals(const Interval& interval, const char* placeholder) {
  return numbers(interval, placeholder, "a finite number", false);
}

TextForm<double> floats(const Interval& interval, const char* placeholder) {
  return numbers(interval, placeholder, "a finite float32 number", true);
}

TextForm<int64_t> bytes(int64_t min) {
  return {OptionType::kInteger, "BYTES",
          fmt::format("bytes from {} to {} (4096, 512K, 64M, 2G, 1T)", min,
                      std::numeric_limits<int64_t>::max()),
          [](const int64_t& value) { return fmt::format("{}", value); },
          [min](const std::string& text) {
            const std::optional<int64_t> bytes = read_bytes(text);
            return bytes && *bytes >= min ? bytes : std::nullopt;
          }};
}

TextForm<bool> flags() {
  TextForm<bool> form = words<bool>({{"false", false}, {"true", true}});
  form.type = OptionType::kFlag;
  form.placeholder = "";
  return form;
}

TextForm<std::string> texts(const char* placeholder) {
  return {
      OptionType::kText, placeholder, "a text that is not empty",
      [](const std::string& value) { return value.empty() ? "absent" : value; },
      [](const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }};
}

}  // namespace forms

namespace internal {

void refuse_text(const std::string& values, const std::string& text,
                 const std::vector<std::string>& words) {
  fail(ErrorKind::kUsage, "must be {}, got '{}'{}", values, text, suggestion(text, words));
}

const std::string& only_text(const OptionTexts& texts) {
  require(texts.size() == 1, "must have one value, got {}", texts.size());
  return texts[0];
}

std::string list_text(const OptionTexts& texts) {
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "));
}

std::string usual_flag(const std::string& name) {
  std::string flag = "--" + name.substr(name.rfind('.') + 1);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string name_in_braces(const std::string& text) {
  const size_t open = text.find('{');
  return open == text.npos ? "" : text.substr(open + 1, text.find('}') - open - 1);
}

std::string replace_braces(const std::string& text,
                           const std::function<std::string(const std::string&)>& name_of) {
  const std::string name = name_in_braces(text);
  return name.empty() ? text
                      : std::string(text).replace(text.find('{'), name.size() + 2, name_of(name));
}

std::string prefix_braces(const std::string& text, const std::string& prefix) {
  return replace_braces(text, [&](const std::string& name) { return "{" + prefix + name + "}"; });
}

}  // namespace internal
}  // namespace sluice
