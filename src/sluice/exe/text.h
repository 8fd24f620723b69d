#pragma once
#include <string>
#include <string_view>

#include "sluice/exe/executable.h"

namespace sluice::exe {

/// Formats an executable as lines of text, in the order of Executable's fields. A function has a
/// line for each step and a line for each operand of a step:
///
///     function 1 "main" memo "" device 0 index_params 0 frame 512 bound 512
///       0 sync kernel cpu.gemm MatMul tasks 2 workspace 4096 origin 104 where "fc1 (mlp.cc:7)"
///         read %0 at arena0+0 bytes 256 float32(8,8) row task 128  # x v0
///         write %3 at frame+256@ring(2,128,(it+1)) bytes 128 float32(4,8) row  # y v0
///
/// `%v` is a value. `%v>%w` are the values that an update finds and makes. `%-` is no value. An
/// address is a base (arenaN, frame, paramN), an offset and, for a ring, its depth, stride and
/// slot. '#' begins a comment. The line `computes` holds the fingerprint of the executable
/// (fingerprint.h), which covers the values that the steps compute, options of operators included.
/// A line `provenance` is a row of Origins; steps and values end in `provenance` and a row.
/// The checker and the device check the rest of a text.
std::string to_text(const Executable& executable);

/// Whether `parse_text` compares the line `computes` with the fingerprint of the text.
enum class Fingerprints : uint8_t {
  kCompared,
  kIgnored  ///< For texts that people write; the line may be missing.
};

/// Parses the text of to_text to an equal executable. The text need not be trusted: the function
/// allocates no more memory than the length of the text justifies. Error{kBadFile} naming `file`
/// and the line if the text is malformed, `validate` finds a problem, or the fingerprint is missing
/// or differs.
Executable parse_text(std::string_view text, const std::string& file,
                      Fingerprints fingerprints = Fingerprints::kCompared);

/// Formats one step as in to_text, without its operands, for reports and messages.
std::string step_title(const Step& step);

}  // namespace sluice::exe
