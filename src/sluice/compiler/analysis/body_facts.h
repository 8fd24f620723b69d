#pragma once
#include <compare>
#include <set>
#include <vector>

#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Something whose uses are numbered in the order of the program: the entries of a stream, the collectives of a
/// grouping of the replicas, the messages of a channel.
struct Sequence {
  enum class Of : uint8_t { kStream, kGroup, kChannel };
  Of of = Of::kStream;
  int32_t id = 0;  ///< Stream, index into Program::groups, or index into Program::channels.
  auto operator<=>(const Sequence&) const = default;
};

/// How often one run of a body uses a sequence.
struct SequenceUse {
  Sequence sequence;
  int64_t count = 0;
};

/// Effects of one run of a body, callees included.
struct BodyFacts {
  bool has_effects = false;  ///< It touches a stream or remote buffer, communicates or prints.
  std::vector<SequenceUse> sequences;  ///< Ascending; none with 0 uses.
  std::set<int32_t> stores_to;         ///< Remote buffers that it stores to.
  std::set<int32_t> loads_from;        ///< Remote buffers that it loads from.
};

/// The sequence that a node uses once itself, if any.
std::optional<Sequence> sequence_of(const Node& node);

/// Facts of all bodies that the entries reach, by BodyId. Error{kUsage} for a conditional with a branch that uses a
/// stream, a channel or a collective, and for sequences beyond exe::kMaxSize.
class FactTable {
 public:
  explicit FactTable(const Program& program);
  const BodyFacts& operator[](BodyId id) const { return facts_[static_cast<size_t>(id)]; }

 private:
  BodyFacts facts_of(const Program& program, const Body& body) const;

  std::vector<BodyFacts> facts_;
};

/// Whether a node does more than make its outputs.
bool has_effect(const Node& node, const FactTable& facts);

}  // namespace sluice::compiler
