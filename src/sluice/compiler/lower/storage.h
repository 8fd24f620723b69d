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

/// Bytes of a block for a part of its life: one node makes them, values are names for them.
struct Content {
  ValueIndex root = kNone;
  int32_t block = -1;
  int32_t begin = 0;  ///< Node that makes it; -1: there at the start.
  int32_t end = 0;    ///< Last node that reads it; the number of nodes: there at the end.
  int32_t slot = 0;   ///< Of a ring.
};

/// The bytes of every value of a body.
struct Storage {
  std::vector<Block> blocks;
  std::vector<Content> contents;
  std::vector<int32_t> content_of;  ///< By value; -1 for values that nothing touches.

  const Content& content(ValueIndex v) const {
    return contents[static_cast<size_t>(content_of[static_cast<size_t>(v)])];
  }
  const Block& block(ValueIndex v) const { return blocks[static_cast<size_t>(content(v).block)]; }
  /// Makes block `from` a part of block `into`.
  void join(int32_t from, int32_t into);
};

/// Decides which values share bytes. A view shares those of its source unless one of the two is written while the other
/// is still read; then it becomes a copy. A result goes to the caller's address unless it is an input, a variable, a
/// constant or returned twice; then it is copied. A carried value of a loop gets a ring of two slots. Adds copies to the
/// body, and empty choices for them.
Storage assign_storage(Body& body, std::vector<KernelChoice>& choices, const Target& target);

/// Lets an output take the bytes of an operand that dies at its node, where the node's kernel allows it. Returns the
/// number of outputs that do.
int64_t reuse_dying_operands(const Body& body, const std::vector<KernelChoice>& choices,
                             Storage& storage);

}  // namespace sluice::compiler
