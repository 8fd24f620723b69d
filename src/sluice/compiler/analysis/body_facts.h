#pragma once
#include <compare>
#include <set>
#include <vector>

#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// A stream, a grouping of the replicas or a channel. Its uses (entries, collectives or messages)
/// are numbered in the order of the program.
struct Sequence {
  enum class Of : uint8_t { kStream, kGroup, kChannel };
  Of of = Of::kStream;
  int32_t id = 0;  ///< Stream, or index into Program::groups or Program::channels.
  auto operator<=>(const Sequence&) const = default;
};

/// Number of times that one run of a body uses a sequence.
struct SequenceUse {
  Sequence sequence;
  int64_t count = 0;
};

/// Effects of one run of a body, including those of its callees.
struct BodyFacts {
  bool has_effects = false;  ///< Whether it uses a stream or remote buffer, communicates or prints.
  std::vector<SequenceUse> sequences;  ///< Ascending; without unused sequences.
  std::set<int32_t> stores_to;         ///< Remote buffers that the body stores to.
  std::set<int32_t> loads_from;        ///< Remote buffers that the body loads from.
};

/// Returns the sequence that a node itself uses once, if any. Callees do not count.
std::optional<Sequence> sequence_of(const Node& node);

/// Facts of all bodies that the entries reach. Error{kUsage} if a branch of a conditional uses a
/// stream, a channel or a collective, or if a sequence has more than exe::kMaxSize uses.
class FactTable {
 public:
  explicit FactTable(const Program& program);
  const BodyFacts& operator[](BodyId id) const { return facts_[id]; }

 private:
  BodyFacts facts_of(const Program& program, const Body& body) const;

  Ids<BodyId, BodyFacts> facts_;
};

/// Whether a node does more than compute its outputs.
bool has_effect(const Node& node, const FactTable& facts);

}  // namespace sluice::compiler
