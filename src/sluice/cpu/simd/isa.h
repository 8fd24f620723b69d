#pragma once
#include <string_view>
#include <vector>

namespace sluice::cpu {

/// Instruction sets that vector kernels are compiled for: x86-64 as it is (one lane, fused
/// multiply-add from the C library), AVX2 with FMA and F16C (8 lanes), AVX-512 F, BW, DQ and VL (16
/// lanes).
/// Kernels give the same bits on each.
enum class Isa { kBase, kAvx2, kAvx512 };

/// "base", "avx2", "avx512".
std::string_view to_string(Isa isa);
/// The instruction set of a name; Error{kUsage} listing the names otherwise.
Isa isa_from_name(std::string_view name);

/// The widest one that this machine has.
Isa detect_isa();
/// Those that this machine has, narrowest first.
std::vector<Isa> available_isas();

/// The one in use: the last given to set_isa, else that of the environment variable SLUICE_ISA,
/// else the widest. Error{kUsage} if SLUICE_ISA names one unknown or absent.
Isa current_isa();
/// Uses `isa` from now on in this process; Error{kUsage} if the machine lacks it. For tests, before
/// programs are loaded.
void set_isa(Isa isa);

}  // namespace sluice::cpu
