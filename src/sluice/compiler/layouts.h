#pragma once
#include <functional>
#include <vector>

#include "sluice/compiler/body.h"
#include "sluice/target/target.h"

namespace sluice::compiler {

using TargetOf = std::function<const Target&(int32_t device)>;
using BodyOf = std::function<const Body&(GraphId)>;

/// Layouts of the executable's variables, by index. A variable lies as the kernels that read it like best, if every use
/// of it in every entry can take that; so do those that updates combine with it element by element. `entries` are the
/// bodies of the entries with one op a node, `body_of` gives such a body of any graph.
std::vector<Layout> choose_variable_layouts(const std::vector<const Body*>& entries,
                                            size_t variables, const BodyOf& body_of,
                                            const TargetOf& target_of);

/// Gives variables their layouts, and what overwrites a variable or a parameter the layout of that.
void apply_layouts(Body& body, const std::vector<Layout>& variables);

/// Before: apply_layouts(). After: every value has one that its maker and, perhaps through
/// a conversion, its readers can take; what leaves the body (results, streams, remote entries) is row-major. What the body
/// of a loop would convert, and does not change, is converted before the loop. Returns how many conversions were added.
int64_t assign_layouts(Body& body, const BodyOf& body_of, const TargetOf& target_of);

}  // namespace sluice::compiler
