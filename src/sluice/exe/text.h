#pragma once
#include <string>
#include <string_view>

#include "sluice/exe/executable.h"

namespace sluice::exe {

/// The executable as lines of text, parts in the order of Executable's fields, functions with a
/// line for each step and one for each of its operands:
///
///     function 1 "main" memo "" device 0 index_params 0 frame 512 bound 512
///       0 sync kernel cpu.gemm MatMul tasks 2 workspace 4096 origin 104 where "fc1 (mlp.cc:7)"
///         read %0 at arena0+0 bytes 256 float32(8,8) row task 128  # x v0
///         write %3 at frame+256@ring(2,128,(it+1)) bytes 128 float32(4,8) row  # y v0
///
/// `%v` is a value, `%v>%w` an update's value found and made, `%-` none. An address is a base
/// (arenaN, frame, paramN), an offset and, for a ring, its depth, stride and slot. What follows '#'
/// is a comment. The line `computes` holds the fingerprint of all steps (fingerprint.h): the values
/// that they compute, options of operators included. The checker and the device judge the rest of a
/// text.
std::string to_text(const Executable& executable);

/// Whether `parse_text` compares the line `computes` with the steps that it has read.
enum class Fingerprints : uint8_t {
  kCompared,
  kIgnored  ///< For texts that people write; the line may be missing.
};

/// Reads that text back to the same executable. For untrusted text: Error{kBadFile} naming `file`
/// and the line for anything that is not such text, that `validate` objects to or whose fingerprint
/// is missing or differs; allocates no more than the text's length justifies.
Executable parse_text(std::string_view text, const std::string& file,
                      Fingerprints fingerprints = Fingerprints::kCompared);

/// One step as the text has it, without its operands, for reports and messages.
std::string step_title(const Step& step);

}  // namespace sluice::exe
