#pragma once
#include <string>
#include <vector>

namespace sluice::tool {

/// Replaces the names of options in document 002 by those of the command line.
std::vector<std::string> without_aliases(std::vector<std::string> words);

/// Returns the list of these names for the help.
std::string aliases_text();

}  // namespace sluice::tool
