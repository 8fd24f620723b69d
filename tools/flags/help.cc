#include "tools/flags/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "sluice/models/model.h"
#include "tools/flags/flag_table.h"

namespace sluice::tool {
namespace {

constexpr size_t kNameColumns = 26;
constexpr size_t kHelpColumns = 100;

// Returns lines with `name` in the first column, and `text` in the second one, broken between
// words.
std::string entry(const std::string& name, const std::string& text) {
  std::string lines = "  " + name;
  size_t column = lines.size();
  if (column + 1 >= kNameColumns) {
    lines += '\n';
    column = 0;
  }
  lines.append(kNameColumns - column, ' ');
  column = kNameColumns;
  std::istringstream words(text);
  std::string word;
  for (bool first = true; words >> word; first = false) {
    if (!first && column + 1 + word.size() > kHelpColumns) {
      lines += '\n' + std::string(kNameColumns, ' ');
      column = kNameColumns;
    } else if (!first) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += word.size();
  }
  return lines + '\n';
}

std::string name_of(const CLI::Option& option) {
  const std::string type = option.get_type_size() > 0 ? option.get_type_name() : "";
  if (option.get_positional()) return type;
  return option.get_name() + (type.empty() ? "" : " " + type);
}

// The text of an option with its default, and the models that have another one.
std::string help_of(const CLI::Option& option) {
  const std::string usual = option.get_default_str();
  if (usual.empty()) return option.get_description();
  const bool reads_model = !option.get_group().starts_with(kSuiteGroup);
  const std::string others = reads_model ? defaults_of_models(option.get_name(), usual) : "";
  return fmt::format("{} (default: {}{}{})", option.get_description(), usual,
                     others.empty() ? "" : "; ", others);
}

std::string groups_of(const CLI::App& app, bool all) {
  std::vector<std::string> groups;
  for (const std::string& name : app.get_groups()) {
    std::string group = name;
    if (!group.empty() && group.back() == kHidden) group.pop_back();
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  std::string text;
  for (const std::string& group : groups) {
    std::string lines;
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() == group || (all && option->get_group() == group + kHidden))
        lines += entry(name_of(*option), help_of(*option));
    }
    if (!lines.empty() && !group.empty()) text += fmt::format("\n{}:\n{}", group, lines);
  }
  return text;
}

}  // namespace

std::string defaults_of_models(std::string_view flag, std::string_view usual) {
  std::string text;
  std::string_view last;  // The default of the model before.
  for (const models::Model& m : models::all_models()) {
    for (const models::Default& d : m.defaults) {
      if (d.flag != flag || d.text == usual) continue;
      if (!last.empty()) text += last == d.text ? ", " : fmt::format(": {}, ", last);
      text += m.name;
      last = d.text;
    }
  }
  return last.empty() ? text : fmt::format("{}: {}", text, last);
}

std::string Help::make_help(const CLI::App* app, std::string /*name*/,
                            CLI::AppFormatMode mode) const {
  const bool all = mode == CLI::AppFormatMode::All;
  std::string text = app->get_description() + "\n";
  const auto commands = app->get_subcommands([](const CLI::App*) { return true; });
  if (!commands.empty()) {
    text += "\nUsage: sluice COMMAND [MODEL] [OPTIONS]\n\nCommands:\n";
    for (const CLI::App* command : commands)
      text += entry(command->get_name(), command->get_description());
  }
  text += groups_of(*app, all);
  if (!app->get_footer().empty()) text += "\n" + app->get_footer() + "\n";
  if (all) {
    for (const CLI::App* command : commands)
      text += fmt::format("\n\nsluice {}\n\n{}", command->get_name(), make_help(command, "", mode));
  }
  return text;
}

}  // namespace sluice::tool
