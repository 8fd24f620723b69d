#pragma once
#include <string>

namespace sluice {

namespace exe {
struct Executable;
}

namespace report {

/// The bytes that a plan needs of each memory, with the largest holders of the peak, and its functions, as text.
std::string summary(const exe::Executable& executable);

}  // namespace report
}  // namespace sluice
