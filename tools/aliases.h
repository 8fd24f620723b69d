#pragma once
#include <string>
#include <vector>

namespace sluice::tool {

/// Replaces the names that document 002 gives to options by those of the command line.
std::vector<std::string> without_aliases(std::vector<std::string> words);

/// Returns the list of these names for the help.
std::string aliases_text();

}  // namespace sluice::tool
