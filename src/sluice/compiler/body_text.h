#pragma once
#include <deque>
#include <string>
#include <string_view>

#include "sluice/compiler/program.h"

/// The text of a body: a line for the body, one for each index parameter, parameter, variable,
/// constant and node, and one for its results. A node's line says its kind and its own fields, the
/// values that it reads (`in %0 %1`, with `as` and a spec where it sees another one), the values
/// that it makes with their specs (`out %2 f32(4)`) and its ties. These may be left out: the device
/// of a body (0) and of a node (its body's), the name of a value or a parameter, the number of a
/// call's results (its outputs without updates), and fields that have the default of body.h.
///
///   body main entry
///     variable 0 %0 f32(2,3)
///     param %1 f32(4,2) x
///     kernel MatMul in %1 %0 out %2 f32(4,3)
///     results %2
///   end
namespace sluice::compiler {

std::string to_text(const Body& body);
/// The bodies that the entries of a program reach, callees first.
std::string to_text(const Program& program);
/// The body of a text; attributes that are left out are the operator's defaults. Error{kBadFile}
/// naming the line.
Body parse_body(std::string_view text);
/// The bodies of a program's text by their numbers; a body without one gets the next. Numbers that
/// the text leaves out are empty bodies. Errors as parse_body.
std::deque<Body> parse_bodies(std::string_view text);

}  // namespace sluice::compiler
