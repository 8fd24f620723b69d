#pragma once
#include <string_view>
#include <vector>

namespace sluice::cpu {

/// Instruction sets that vector kernels are compiled for. kBase: any processor (one lane, fused
/// multiply-add from the C library). kAvx2: AVX2 with FMA and F16C (8 lanes). kAvx512: AVX-512 F,
/// BW, DQ and VL (16 lanes). Kernels compute the same bits on each of them.
enum class Isa { kBase, kAvx2, kAvx512 };

/// Returns "base", "avx2" or "avx512".
std::string_view to_string(Isa isa);
/// Returns the instruction set with that name. Error{kUsage} lists the names if it is unknown.
Isa isa_from_name(std::string_view name);

/// Returns the widest instruction set of this machine.
Isa detect_isa();
/// Returns the instruction sets of this machine, narrowest first.
std::vector<Isa> available_isas();

/// Returns the instruction set in use: the last one given to set_isa(), otherwise the one that the
/// environment variable SLUICE_ISA names, otherwise the widest. Error{kUsage} if SLUICE_ISA names
/// an unknown one or one that this machine lacks.
Isa current_isa();
/// Uses `isa` from now on in this process. Only for tests, before programs are loaded.
/// Error{kUsage} if this machine lacks it.
void set_isa(Isa isa);

/// Calls `f(Kernels<isa>{})`. The members of Kernels are compiled for its instruction set.
template <template <Isa> typename Kernels, typename F>
void with_kernels(Isa isa, F&& f) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return f(Kernels<Isa::kAvx512>{});
  if (isa == Isa::kAvx2) return f(Kernels<Isa::kAvx2>{});
#endif
  f(Kernels<Isa::kBase>{});
}

}  // namespace sluice::cpu
