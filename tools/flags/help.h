#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace sluice::tool {

/// Ends the name of a group of options that only --help-all shows.
inline constexpr char kHidden = '*';

/// Returns the models in which an option has another default than `usual`, with that default:
/// "mnist-rts: 8, mnist-phased: 4".
std::string defaults_of_models(std::string_view flag, std::string_view usual);

/// The help of `sluice` and of its commands: a line for each option, in groups.
class Help : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

}  // namespace sluice::tool
