#pragma once
#include "sluice/cpu/simd/isa.h"
#include "sluice/cpu/simd/simd_x86.h"

/// Included only by files named x.isa.cc. CMake compiles such a file once per instruction set
/// (sluice_isa_sources), with SLUICE_UNIT_ISA 0, 1 or 2.
///
/// Every function of such a file with external linkage must have the instruction set (`kUnitIsa`)
/// or its vector type among its template arguments. Otherwise the linker, which keeps one copy of a
/// function, might use the AVX-512 copy on machines without AVX-512. So put helpers into an
/// anonymous namespace or give them the template parameter `V`. No code may run at program start. A
/// test checks the symbols of the objects (check_isa_objects.cmake).
#ifndef SLUICE_UNIT_ISA
#error "SLUICE_UNIT_ISA is not defined: add .isa.cc files with sluice_isa_sources()"
#endif

namespace sluice::cpu {

constexpr Isa kUnitIsa = static_cast<Isa>(SLUICE_UNIT_ISA);

/// The vector type of an instruction set. Defined for kBase and for kUnitIsa.
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
