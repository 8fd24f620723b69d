#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::exe {

/// A part of an executable that a line of its text describes.
struct Place {
  enum class Part : uint8_t {
    kDevice,
    kTier,
    kArena,
    kStream,
    kRemoteBuffer,
    kGroup,
    kChannel,
    kValue,
    kVariable,
    kConstant,
    kFunction,
    kProgram
  };
  Part part = Part::kDevice;
  int64_t index = 0;
  int64_t step = -1;  ///< A step of a function.
};

/// "device", "remote buffer", …
std::string_view word(Place::Part part);

struct Problem {
  Place place;
  std::string message;
};

/// Sizes, offsets and counts of an executable are in [0, kMaxSize], so that sums of a few never
/// overflow.
inline constexpr int64_t kMaxSize = int64_t{1} << 60;
/// Index parameters of one function.
inline constexpr int32_t kMaxIndexParams = 4096;

/// What a reader may rely on before it follows anything: every index is in range, sizes are in [0,
/// kMaxSize], calls have the arguments that their functions have parameters, nothing calls itself,
/// tokens are unique, `it` stands in loops only. Empty: all of it holds. Says nothing about whether
/// the plan is right: that is the checker's.
std::vector<Problem> validate(const Executable& executable);

}  // namespace sluice::exe
