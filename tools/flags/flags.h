#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/flags/words.h"
#include "tools/numbers.h"

namespace sluice::tool {

/// Groups of the help.
inline constexpr const char* kModelGroup = "Model";
inline constexpr const char* kTrainingGroup = "Training";
inline constexpr const char* kMemoryGroup = "Memory";
inline constexpr const char* kStrategyGroup = "Strategy";
inline constexpr const char* kOutputGroup = "Output";
inline constexpr const char* kCompilerGroup = "Compiler";
inline constexpr const char* kSuiteGroup = "Without a model";
inline constexpr const char* kProcessGroup = "Processes";

/// Option of every command that main() reads, see is_single_process().
inline constexpr const char* kSingleProcess = "--single-process";

/// The largest number of an option without another limit.
inline constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

/// Whether `--help` shows an option; `--help-all` shows every one.
enum class Common { kNo, kYes };

/// The help of an option: an imperative with the unit, and its default. Help prints them as "Limit
/// device memory to BYTES (default: no limit)", with the models that have another default.
struct Doc {
  Doc() = default;
  Doc(const char* the_text) : text(the_text) {}
  Doc(std::string the_text, std::string the_default = "")
      : text(std::move(the_text)), usual(std::move(the_default)) {}

  std::string text;
  std::string usual;  ///< The default; empty if there is none. CLI::Option::get_default_str().
};

/// Returns the default of an option; "off" for one without a value, "" if there is none.
std::string default_of(const CLI::Option& option);

/// Adds options to a command, group by group. An option with one value that the command line gives
/// twice is refused; so is an empty value.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  /// Options that are added from now on belong to this group of the help.
  Flags& group(std::string name, Common common = Common::kYes);

  /// An option whose value `set` reads; `set` throws Error{kUsage} for a wrong value.
  CLI::Option* value(const char* name, const std::string& type, const Doc& help,
                     std::function<void(const std::string& text)> set);
  /// An option that takes several values, between commas or by repetition.
  CLI::Option* list(const char* name, const std::string& type, const Doc& help,
                    std::function<void(const std::vector<std::string>& texts)> set);
  /// An option that may be given several times.
  CLI::Option* repeated(const char* name, const std::string& type, const Doc& help,
                        std::vector<std::string>& field);
  /// An option with an optional value, given as "=VALUE". Without a value it means `otherwise`.
  CLI::Option* optional_text(const char* name, const std::string& otherwise, std::string& field,
                             const Doc& help);
  /// An option without a value.
  CLI::Option* flag(const char* name, const Doc& help, std::function<void()> set);

  /// An option for an integer of [least, most].
  template <typename T, typename Number>
  CLI::Option* integer(const char* name, T& field, Number least, Number most, const Doc& help) {
    return value(name, "N", help, [name, &field, least, most](const std::string& text) {
      field = parse_integer<Number>(name, text, least, most);
    });
  }
  CLI::Option* bytes(const char* name, int64_t& field, const Doc& help);
  CLI::Option* text(const char* name, const std::string& type, std::string& field, const Doc& help);

  /// An option for one of some words. Error{kUsage} names them and the nearest one.
  template <typename T>
  CLI::Option* choice(const char* name, T& field,
                      const std::vector<std::pair<std::string, std::decay_t<T>>>& words,
                      const Doc& help) {
    std::string type;
    for (const auto& [word, meaning] : words) type += (type.empty() ? "" : "|") + word;
    return value(name, type, help, [name, &field, words](const std::string& text) {
      std::vector<std::string> names;
      for (const auto& [word, meaning] : words) {
        if (word == text) field = meaning;
        names.push_back(word);
      }
      require_one_of(name, text, names);
    });
  }

 private:
  CLI::Option* finish(CLI::Option* option, const Doc& help);

  CLI::App& app_;
  std::string group_;
};

/// The help of `sluice` and of its commands: a line for each option, in groups.
class Help : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

}  // namespace sluice::tool
