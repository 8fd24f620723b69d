#pragma once
#include <deque>
#include <string>
#include <string_view>

#include "sluice/compiler/program.h"

/// Text form of a body. It has a line for the body, for each index parameter, parameter, variable,
/// constant and node, and for the results. The line of a node contains its kind and fields, then:
/// - the values that it reads: `in %0 %1`, with `as` and a spec if the node reads another spec;
/// - the values that it produces, with their specs: `out %2 f32(4)`;
/// - its ties.
///
/// The text may omit:
/// - the device of a body (default: 0) and of a node (default: its body's),
/// - the name of a value or a parameter,
/// - the number of a call's results (default: the outputs without updates),
/// - fields with the default of body.h.
///
///   body main entry
///     variable 0 %0 f32(2,3)
///     param %1 f32(4,2) x
///     kernel MatMul in %1 %0 out %2 f32(4,3)
///     results %2
///   end
namespace sluice::compiler {

std::string to_text(const Body& body);
/// The text of the bodies that the entries of a program reach, callees first.
std::string to_text(const Program& program);
/// Parses the text of one body. Omitted attributes get the operator's defaults. Error{kBadFile}
/// naming the line if the text is malformed.
Body parse_body(std::string_view text);
/// Parses the text of a program into its bodies by number. A body without a number gets the next
/// one. Numbers that the text skips are empty bodies. Errors as in parse_body.
std::deque<Body> parse_bodies(std::string_view text);

}  // namespace sluice::compiler
