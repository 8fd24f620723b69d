#include "tools/flags/flag_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "sluice/base/options/words.h"
#include "tools/flags/help.h"

namespace sluice::tool {
namespace {

// Calls `use` with each flag of a command and its option.
template <typename Use>
void for_flags(Command command, const Use& use) {
  const FlagTable& table = flag_table();
  size_t i = 0;
  for (const Option<ToolOptions>& option : table.options) {
    const Flag& flag = table.flags[i++];
    if ((flag.commands & command) != 0) use(flag, option);
  }
}

std::string help_of(const Option<ToolOptions>& option) {
  std::vector<std::string> texts;
  for (const Requirement<ToolOptions>& r : option.requirements)
    texts.push_back(flag_table().options.text_of(r, OptionNames::kFlags));
  return texts.empty() ? option.help
                       : fmt::format("{}; requires {}", option.help, fmt::join(texts, " and "));
}

std::string default_of(const Option<ToolOptions>& option) {
  if (!option.default_text.empty()) return option.default_text;
  static const ToolOptions defaults;
  const std::string text = option.print(defaults);
  const bool has_value = option.type == OptionType::kList ? text != "none" : text != "absent";
  return option.type != OptionType::kFlag && has_value ? text : "";
}

CLI::Option* add_flag(CLI::App& app, const Flag& flag, const Option<ToolOptions>& option) {
  const std::string name = flag_of(option);
  if (!flag.implied.empty()) {
    static std::string unused;  // The texts are read from the parser.
    return app.add_flag(fmt::format("{}{{{}}}", name, flag.implied), unused);
  }
  if (option.type == OptionType::kFlag) return app.add_flag(name);
  CLI::Option* const added = app.add_option(name)->type_name(option.placeholder);
  added->each(
      [name](const std::string& text) { require(!text.empty(), "{}: must not be empty", name); });
  if (option.type == OptionType::kList)
    added->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false);
  return added;
}

// The texts of a flag on the command line.
OptionTexts texts_of(const std::string& name, const Flag& flag, OptionType type,
                     const std::vector<std::string>& results) {
  if (type == OptionType::kFlag) return {results.back() == "false" ? "false" : "true"};
  if (type != OptionType::kList || !flag.splits) return results;
  OptionTexts texts;
  for (const std::string& result : results) {
    for (std::string& part : split_list(name, result)) texts.push_back(std::move(part));
  }
  return texts;
}

// Sets an option if a parsed command names it. Returns whether it does.
bool set_given(const CLI::App& app, const Flag& flag, const Option<ToolOptions>& option,
               ToolOptions& o) {
  const std::string name = flag_of(option);
  const CLI::Option& parsed = *app.get_option(name);
  if (parsed.count() > 0)
    flag_table().options.set(option, o, texts_of(name, flag, option.type, parsed.results()),
                             OptionNames::kFlags);
  return parsed.count() > 0;
}

}  // namespace

void add_flags(CLI::App& app, Command command) {
  for_flags(command, [&](const Flag& flag, const Option<ToolOptions>& option) {
    add_flag(app, flag, option)
        ->description(help_of(option))
        ->default_str(default_of(option))
        ->required(flag.required)
        ->group(flag.common == Common::kYes ? flag.group : flag.group + kHidden);
  });
}

void set_options(const CLI::App& app, Command command, bool has_model, ToolOptions& o) {
  std::optional<std::vector<models::Default>> defaults;
  for_flags(command, [&](const Flag& flag, const Option<ToolOptions>& option) {
    if (set_given(app, flag, option, o) || !has_model) return;
    if (!defaults) defaults = model_defaults(app, o);  // The model is the first option.
    for (const models::Default& d : *defaults) {
      if (d.flag == flag_of(option)) option.read(o, {std::string(d.text)});
    }
  });
}

void set_sweep_options(const CLI::App& plan, ToolOptions& o) {
  for_flags(kPlan, [&](const Flag& flag, const Option<ToolOptions>& option) {
    if (flag.in_sweep == InSweep::kAllowed) set_given(plan, flag, option, o);
  });
}

std::vector<models::Default> model_defaults(const CLI::App& app, const ToolOptions& o) {
  const std::vector<models::Default>& all = models::find_model(o.model.name).defaults;
  const auto own = std::find_if(all.begin(), all.end(),
                                [](const models::Default& d) { return d.flag == "--strategy"; });
  const CLI::Option& strategy = *app.get_option("--strategy");
  const bool phased = strategy.count() > 0 ? strategy.results()[0] == "phased"
                                           : own != all.end() && own->text == "phased";
  const CLI::Option* const steps = app.get_option_no_throw("--steps");
  std::vector<models::Default> defaults;
  for (const models::Default& d : all) {
    if (d.flag == "--device-iterations" && (phased || (steps != nullptr && steps->count() > 0)))
      continue;
    if (d.flag == "--offload" && !o.trains) continue;  // Only training has tensors to move.
    defaults.push_back(d);
  }
  return defaults;
}

std::string default_of(const CLI::Option& option) {
  return option.get_expected_max() == 0 ? "off" : option.get_default_str();
}

}  // namespace sluice::tool
