#pragma once
#include <cstdint>
#include <string>

namespace sluice::data {

/// Generates `bytes` >= 1 bytes of ASCII text: lines of short sentences about animals, whose words
/// agree in number. The same seed generates the same text on every machine, and a longer text
/// begins with a shorter one. Error{kUsage} if bytes < 1.
std::string synthetic_text(int64_t bytes, uint64_t seed);

}  // namespace sluice::data
