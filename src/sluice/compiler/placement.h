#pragma once
#include <string>
#include <vector>

#include "sluice/compiler/body.h"
#include "sluice/target/target.h"

namespace sluice::compiler {

/// A run of bytes that several values hold one after the other.
struct Block {
  enum class Place : uint8_t { kFrame, kParam, kResult, kVariable, kConstant };
  Place place = Place::kFrame;
  int32_t index = -1;  ///< Parameter, result, variable or constant.
  int64_t bytes = 0;
  int32_t ring = 0;    ///< Slots of `bytes` rounded up; 0: no ring.
  int64_t offset = 0;  ///< In the frame, once planned.
  std::vector<int32_t> contents;
};

/// Something that lies in a block for a while: one node makes it, its values are names for it.
struct Content {
  ValueIndex root = kNone;
  int32_t block = -1;
  int32_t begin = 0;  ///< Node that makes it; -1: there at the start.
  int32_t end = 0;    ///< Last node that reads it; the number of nodes: there at the end.
  int32_t slot = 0;   ///< Of a ring.
};

/// Where every value of a body lies.
struct Placement {
  std::vector<Block> blocks;
  std::vector<Content> contents;
  std::vector<int32_t> content_of;  ///< By value; -1 for values that nothing touches.

  const Content& content(ValueIndex v) const {
    return contents[static_cast<size_t>(content_of[static_cast<size_t>(v)])];
  }
  const Block& block(ValueIndex v) const { return blocks[static_cast<size_t>(content(v).block)]; }
};

struct PlacementOptions {
  /// Let an elementwise output take the bytes of an operand that dies at it.
  enum class Aliasing : uint8_t { kOff, kOn } aliasing = Aliasing::kOn;
};

/// Chooses who shares bytes. Views share their source's unless one of the two is written while the other is still
/// read, then they become copies; a result goes straight to the caller's address unless it is an input, a variable, a
/// constant or returned twice, then it is copied; carried values of a loop get a ring of two slots. `choices` are the
/// kernels of the nodes (empty for other nodes). May append copies to the body and choices for them.
Placement place(Body& body, std::vector<KernelChoice>& choices, const PlacementOptions& options);

}  // namespace sluice::compiler
