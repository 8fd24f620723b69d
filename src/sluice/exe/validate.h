#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::exe {

/// A part of an executable that a line of its text describes.
struct PlanPosition {
  enum class Section : uint8_t {
    kDevice,
    kTier,
    kArena,
    kStream,
    kRemoteBuffer,
    kGroup,
    kChannel,
    kProvenance,
    kValue,
    kVariable,
    kConstant,
    kFeed,
    kFunction,
    kProgram
  };
  Section section = Section::kDevice;
  int64_t index = 0;
  int64_t step = -1;  ///< Step of a function; -1: the function itself or another part.
};

/// The name of a kind of part: "device", "remote buffer", …
std::string_view word(PlanPosition::Section section);

struct Problem {
  PlanPosition position;
  std::string message;
};

/// Largest size, offset or count of an executable. A sum of a few such numbers never overflows.
inline constexpr int64_t kMaxSize = int64_t{1} << 60;
/// Largest number of index parameters of one function.
inline constexpr int32_t kMaxIndexParams = 4096;

/// Checks what must hold before any index is followed: indices in range, sizes in [0, kMaxSize],
/// calls have one argument per parameter, no function calls itself, tokens are unique, only loops
/// use `it`, and ring slots are at least 0 (negative_slots). Returns the problems, or an empty list
/// if all checks pass. The checker, not this function, decides whether the plan is correct.
std::vector<Problem> validate(const Executable& executable);

}  // namespace sluice::exe
