#include "tools/flags/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tools/flags/model_flags.h"

namespace sluice::tool {
namespace {

// The name of a group of options that only --help-all shows ends with this mark.
constexpr char kHidden = '*';
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

std::string default_of(const CLI::Option& option) {
  return option.get_expected_max() == 0 ? "off" : option.get_default_str();
}

Flags& Flags::group(std::string name, Common common) {
  group_ = std::move(name);
  if (common == Common::kNo) group_ += kHidden;
  return *this;
}

CLI::Option* Flags::finish(CLI::Option* option, const Doc& help) {
  return option->description(help.text)->default_str(help.usual)->group(group_);
}

CLI::Option* Flags::value(const char* name, const std::string& type, const Doc& help,
                          std::function<void(const std::string& text)> set) {
  const std::function<void(const std::string&)> read =
      [name, set = std::move(set)](const std::string& text) {
        require(!text.empty(), "{}: must not be empty", name);
        set(text);
      };
  return finish(app_.add_option_function<std::string>(name, read), help)->type_name(type);
}

CLI::Option* Flags::list(const char* name, const std::string& type, const Doc& help,
                         std::function<void(const std::vector<std::string>& texts)> set) {
  const std::function<void(const std::vector<std::string>&)> read =
      [name, set = std::move(set)](const std::vector<std::string>& texts) {
        std::vector<std::string> parts;
        for (const std::string& text : texts) {
          for (std::string& part : split_list(name, text)) parts.push_back(std::move(part));
        }
        set(parts);
      };
  CLI::Option* const option = app_.add_option_function<std::vector<std::string>>(name, read);
  return finish(option->allow_extra_args(false), help)->type_name(type);
}

CLI::Option* Flags::repeated(const char* name, const std::string& type, const Doc& help,
                             std::vector<std::string>& field) {
  return finish(app_.add_option(name, field)->allow_extra_args(false), help)->type_name(type);
}

CLI::Option* Flags::flag(const char* name, const Doc& help, std::function<void()> set) {
  return finish(app_.add_flag_callback(name, std::move(set)), help);
}

CLI::Option* Flags::optional_text(const char* name, const std::string& otherwise,
                                  std::string& field, const Doc& help) {
  return finish(app_.add_flag(fmt::format("{}{{{}}}", name, otherwise), field), help);
}

CLI::Option* Flags::bytes(const char* name, int64_t& field, const Doc& help) {
  return value(name, "BYTES", help,
               [name, &field](const std::string& text) { field = parse_bytes(name, text); });
}

CLI::Option* Flags::text(const char* name, const std::string& type, std::string& field,
                         const Doc& help) {
  return value(name, type, help, [&field](const std::string& text) { field = text; });
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
