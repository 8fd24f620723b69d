#pragma once
#include <map>
#include <vector>

#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Whether input i or the output of tie `t` has the shape of the value that it reads or overwrites.
/// An alias may have another shape.
bool has_own_shape(const Body& body, const Node& node, size_t i);
bool has_own_shape(const Body& body, const Node& node, const Tie& t);
/// Whether the op runs in any layout of the target that its result has. Operands that must be laid
/// out like the result (FusedOp::result_like) have that layout too.
bool follows_layouts(const Body& body, const Node& node, const Target& target);

/// Demands of a value's uses on its layout.
struct LayoutOpinion {
  Layout wish;
  bool refuses = false;  ///< Whether a use needs the value row-major.
  void add(const LayoutOpinion& other) {
    if (wish == Layout{}) wish = other.wish;
    refuses = refuses || other.refuses;
  }
};

/// Computes the opinions on the values of bodies whose kernels are single ops. An overwritten value
/// also gets the opinion on the value that overwrites it.
class LayoutOpinions {
 public:
  LayoutOpinions(const Program& program, const Context& context)
      : program_(program), context_(context) {}

  const Ids<ValueIndex, LayoutOpinion>& of(BodyId id);
  LayoutOpinion of_param(BodyId body, size_t param);

 private:
  LayoutOpinion of_use(const Body& body, const Node& node, size_t i);

  const Program& program_;
  const Context& context_;
  std::map<BodyId, Ids<ValueIndex, LayoutOpinion>> known_;
};

}  // namespace sluice::compiler
