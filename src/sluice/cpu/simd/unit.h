#pragma once
#include "sluice/cpu/simd/isa.h"
#include "sluice/cpu/simd/simd_x86.h"

/// For files named x.isa.cc alone: CMake compiles each once per instruction set
/// (sluice_isa_sources), with SLUICE_UNIT_ISA 0, 1 or 2.
///
/// One rule: what such a file defines with external linkage must have the instruction set
/// (`kUnitIsa`) or its vector type among its template arguments. The linker keeps one copy of a
/// function that several files define, and a copy compiled for AVX-512 must never serve everybody;
/// a test reads the objects' symbols (check_isa_objects.cmake). So helpers go into an anonymous
/// namespace or take `V`, and nothing runs at program start.
#ifndef SLUICE_UNIT_ISA
#error "an .isa.cc file is built by sluice_isa_sources()"
#endif

namespace sluice::cpu {

constexpr Isa kUnitIsa = static_cast<Isa>(SLUICE_UNIT_ISA);

/// The vector type of an instruction set; defined for base and for the file's own.
template <Isa kIsa>
struct VectorFor;
template <>
struct VectorFor<Isa::kBase> {
  using type = simd::F1;
};
#if SLUICE_UNIT_ISA == 1
template <>
struct VectorFor<Isa::kAvx2> {
  using type = simd::F8;
};
#elif SLUICE_UNIT_ISA == 2
template <>
struct VectorFor<Isa::kAvx512> {
  using type = simd::F16;
};
#endif

}  // namespace sluice::cpu
