#pragma once
#include <string>
#include <string_view>

#include "sluice/planner/problem.h"

namespace sluice::planner {

/// Parses MiniMalloc's CSV format: a header line, then one line for each buffer. The columns may be
/// in any order. Required: `id`, `lower`, `upper` (lifetime [lower, upper) in steps) and `size`
/// (bytes). Optional: `alignment`, `gaps` ("3-5 7-9": steps inside [lower, upper) at which the
/// buffer is not alive), `offset` (fixed; an empty field leaves it free) and `hint`. The header may
/// also call id `buffer` or `buffer_id`, and lower `begin` or `start`. Blank lines at the end, CRLF
/// and a byte order mark are accepted. The text is untrusted. Error{kBadFile} "FILE: line N: …" for
/// any other text: an unknown column, a number that is negative or exceeds int64, a duplicate id,
/// lower > upper.
Problem parse_csv(std::string_view text, std::string file_name);

/// Writes the problem in the format that parse_csv() reads. The offset column has the offsets of
/// `solution` if it is given, else the fixed offsets. A column is omitted if every buffer has its
/// default. Error{kUsage} if a name is empty, repeated or contains a comma or line break, if a
/// lifetime begins at a negative step, or if `solution` does not have one offset for each buffer.
std::string to_csv(const Problem& problem, const Solution* solution = nullptr);

}  // namespace sluice::planner
