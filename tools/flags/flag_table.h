#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/options/option.h"
#include "tools/options.h"

namespace sluice::tool {

/// The commands, as bits of Flag::commands.
enum Command : unsigned {
  kTrain = 1,
  kEval = 2,
  kPredict = 4,
  kPlan = 8,
  kBench = 16,
  kInspect = 32,
  kDoctor = 64,
  kGenerate = 128
};
inline constexpr unsigned kWithModel = kTrain | kEval | kPredict | kPlan | kBench;

/// Group of the help with the flags of `sluice plan` and `sluice bench` without a model.
inline constexpr const char* kSuiteGroup = "Without a model";

/// Flag of every command that main() reads, see is_single_process().
inline constexpr const char* kSingleProcess = "--single-process";

/// Whether `--help` shows a flag; `--help-all` shows every one.
enum class Common : uint8_t { kNo, kYes };

/// Whether --sweep may vary a flag, and whether the flag may be given with --sweep.
enum class InSweep : uint8_t { kVaried, kAllowed, kRefused };

/// A flag of some commands. The option of the same index in FlagTable has its name, help and value.
struct Flag {
  unsigned commands = 0;   ///< Bits of Command.
  std::string group = {};  ///< Group of the help.
  Common common = Common::kYes;
  bool required = false;
  bool splits = true;        ///< The values of a list may be joined by commas.
  std::string implied = {};  ///< Value of a flag that may stand without one.
  InSweep in_sweep = InSweep::kVaried;
  std::string sets = {};  ///< Option of train::Options that it sets, by name; empty: none.
};

/// All flags of all commands, in the order of the help. A flag follows those that it requires.
struct FlagTable {
  OptionTable<ToolOptions> options;
  std::vector<Flag> flags;
  /// Flags that exclude each other.
  std::vector<std::pair<std::string, std::string>> exclusions;
};
const FlagTable& flag_table();

/// Returns whether --sweep may vary a flag of `sluice plan`.
InSweep in_sweep(const std::string& flag);

/// Flags of a group of the help, for some commands.
class Section {
 public:
  Section(FlagTable& table, unsigned commands, const char* group, Common common)
      : table_(table), flag_{commands, group, common} {}

  /// Adds a flag with an option of its own; arguments of OptionTable::add().
  template <typename Member, typename... Args>
  Option<ToolOptions>& add(const char* name, Member member, Args&&... args) {
    table_.flags.push_back(flag_);
    return table_.options.add(name, member, std::forward<Args>(args)...);
  }
  Option<ToolOptions>& add(Option<ToolOptions> option) {
    table_.flags.push_back(flag_);
    return table_.options.add(std::move(option));
  }
  template <typename... Args>
  Option<ToolOptions>& add_list(Args&&... args) {
    table_.flags.push_back(flag_);
    return table_.options.add_list(std::forward<Args>(args)...);
  }
  /// Adds the flag of an option of train::Options.
  Option<ToolOptions>& add_library(std::string_view name);
  /// Adds a flag without a value that sets a member to `value`.
  template <typename Member, typename T>
  Option<ToolOptions>& add_setter(const char* name, Member member, T value, const char* help) {
    return add({name, OptionType::kFlag, "", help,
                [=](const ToolOptions& o) {
                  return std::string(std::invoke(member, o) == value ? "true" : "false");
                },
                [=](ToolOptions& o, const OptionTexts& texts) {
                  if (texts == OptionTexts{"true"}) std::invoke(member, o) = value;
                }});
  }
  /// The last flag that was added.
  Flag& last() { return table_.flags.back(); }

 private:
  FlagTable& table_;
  Flag flag_;
};

void add_model_flags(FlagTable& table);
void add_data_flags(FlagTable& table);
void add_predict_flags(FlagTable& table);
void add_generate_flags(FlagTable& table);
void add_training_flags(FlagTable& table);
void add_memory_flags(FlagTable& table);
void add_strategy_flags(FlagTable& table);
void add_output_flags(FlagTable& table);

}  // namespace sluice::tool
