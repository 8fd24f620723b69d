#pragma once
#include <string>
#include <vector>

#include "sluice/compiler/body.h"
#include "sluice/target/target.h"

namespace sluice::compiler {

/// Index into Storage::blocks.
using BlockId = Id<struct BlockTag>;
/// Index into Storage::tenants.
using TenantId = Id<struct TenantTag>;

/// A range of bytes that holds one or more tenants, one after the other.
struct Block {
  enum class Location : uint8_t { kFrame, kParam, kResult, kVariable, kConstant };
  Location location = Location::kFrame;
  int32_t index = -1;  ///< Index of the parameter, result, variable or constant.
  int64_t bytes = 0;
  int32_t ring = 0;    ///< Number of slots of `bytes` rounded up; 0: not a ring.
  int64_t offset = 0;  ///< Offset in the frame; written by the pass "offsets".
  std::vector<TenantId> tenants;
};

/// The use of a block from the node that writes it to its last reader. The written value and its
/// views share one tenant.
struct Tenant {
  ValueIndex root;
  BlockId block;
  NodeId begin;      ///< Node that writes it; invalid: available at the start.
  NodeId end;        ///< Last node that reads it; end_id() of the nodes: needed at the end.
  int32_t slot = 0;  ///< Slot in a ring.
};

/// The bytes of every value of a body.
struct Storage {
  Ids<BlockId, Block> blocks;
  Ids<TenantId, Tenant> tenants;
  Ids<ValueIndex, TenantId> tenant_of;  ///< Invalid: unused value.

  const Tenant& tenant(ValueIndex v) const { return tenants[tenant_of[v]]; }
  const Block& block(ValueIndex v) const { return blocks[tenant(v).block]; }
  /// Moves the tenants of block `from` to block `into`.
  void join(BlockId from, BlockId into);
};

/// Decides which values share bytes, as follows.
/// - A view shares the bytes of its source. It becomes a copy if the source is overwritten while
///   the view is still read, or if the view is overwritten.
/// - A result is written at the caller's address. An input, a variable, a constant, a carried
///   value, or a result that is returned twice is copied there.
/// - The carried values of a rotation share a ring. The first values are written there if the loop
///   reads them last, else copied. Those of loops without rotations are all copied if fewer bytes
///   are in use then: a ring that has its first values is in use from there on.
/// Adds copies to the body, and empty choices for these copies.
Storage assign_storage(Body& body, Ids<NodeId, KernelChoice>& choices, const Target& target);

/// Lets an output overwrite in place an operand that its node reads last, if the node's kernel
/// allows it. Returns the number of these outputs.
int64_t reuse_dying_operands(const Body& body, const Ids<NodeId, KernelChoice>& choices,
                             Storage& storage);

}  // namespace sluice::compiler
