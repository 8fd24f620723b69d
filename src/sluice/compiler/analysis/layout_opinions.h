#pragma once
#include <map>
#include <vector>

#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Whether a node reads input i, or overwrites a tie's value, as a tensor of the value's own shape: an alias may have
/// another.
bool has_own_shape(const Body& body, const Node& node, size_t i);
bool has_own_shape(const Body& body, const Node& node, const Tie& t);
/// Whether the op runs in every layout that its result, and the operands of the result's shape, may have.
bool follows_layouts(const Body& body, const Node& node, const Target& target);

/// The demands of a value's uses on its layout.
struct LayoutOpinion {
  Layout wish;
  bool refuses = false;  ///< A use needs it row-major.
  void add(const LayoutOpinion& other) {
    if (wish == Layout{}) wish = other.wish;
    refuses = refuses || other.refuses;
  }
};

/// Opinions on the values of bodies with one op a node; values in the same bytes share one.
class LayoutOpinions {
 public:
  LayoutOpinions(const Program& program, const Context& context)
      : program_(program), context_(context) {}

  const std::vector<LayoutOpinion>& of(BodyId id);
  LayoutOpinion of_param(BodyId body, size_t param);

 private:
  LayoutOpinion of_use(const Body& body, const Node& node, size_t i);

  const Program& program_;
  const Context& context_;
  std::map<BodyId, std::vector<LayoutOpinion>> known_;
};

}  // namespace sluice::compiler
