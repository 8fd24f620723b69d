#pragma once
#include <string>

namespace sluice {

namespace exe {
struct Executable;
}

namespace report {

/// Formats as text the bytes that a plan needs of each memory, the largest holders of the peak, its
/// transfers and its functions.
std::string summary(const exe::Executable& executable);

}  // namespace report
}  // namespace sluice
