#pragma once
#include <string>
#include <string_view>

#include "sluice/planner/problem.h"

namespace sluice::planner {

/// Reads MiniMalloc's format: a header line, then a line a buffer. Columns in any order: `id`,
/// `lower`, `upper` (half open) and `size`; optionally `alignment`, `gaps` ("3-5 7-9": steps inside
/// [lower, upper) at which it is not alive), `offset` (fixed; an empty field is none) and `hint`.
/// Also known: `buffer` and `buffer_id` for id, `begin` and `start` for lower. Blank lines at the
/// end and CRLF are fine. The text is untrusted: Error{kBadFile} "FILE: line N: …" for anything
/// else, e.g. an unknown column, a number that is negative or leaves int64, a duplicate id, lower >
/// upper.
Problem parse_csv(std::string_view text, std::string file_name);

/// The problem in the same format, with the solution's offsets if one is given (else the fixed ones
/// if there are any). Columns that say nothing are left out. parse_csv reads it back. Error{kUsage}
/// if a name is empty, repeated or has a comma or a line break, or if the solution has another
/// number of offsets.
std::string to_csv(const Problem& problem, const Solution* solution = nullptr);

}  // namespace sluice::planner
