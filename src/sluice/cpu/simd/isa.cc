#include "sluice/cpu/simd/isa.h"

#include <atomic>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "sluice/base/error.h"

namespace sluice::cpu {
namespace {

constexpr Isa kAll[] = {Isa::kBase, Isa::kAvx2, Isa::kAvx512};

#if defined(__x86_64__)
/// Returns whether the processor has F16C. __builtin_cpu_supports knows F16C only in new compilers.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

bool supports(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  switch (isa) {
    case Isa::kBase:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
#endif
  return isa == Isa::kBase;
}

void require_available(Isa isa, std::string_view source) {
  require(supports(isa), "{}: this machine lacks {}; its widest instruction set is {}", source,
          to_string(isa), to_string(detect_isa()));
}

Isa initial_isa() {
  const char* name = std::getenv("SLUICE_ISA");
  if (name == nullptr || *name == '\0') return detect_isa();
  Isa isa = Isa::kBase;
  try {
    isa = isa_from_name(name);
  } catch (const Error& e) {
    fail(e.kind(), "SLUICE_ISA: {}", e.what());
  }
  require_available(isa, "SLUICE_ISA");
  return isa;
}

/// The number of the Isa given to set_isa(); -1 before the first call.
std::atomic<int> chosen{-1};

}  // namespace

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::kBase:
      return "base";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      break;
  }
  return "avx512";
}

Isa isa_from_name(std::string_view name) {
  for (const Isa isa : kAll) {
    if (to_string(isa) == name) return isa;
  }
  fail(ErrorKind::kUsage, "instruction set: must be base, avx2 or avx512, got '{}'", name);
}

Isa detect_isa() { return available_isas().back(); }

std::vector<Isa> available_isas() {
  std::vector<Isa> result;
  for (const Isa isa : kAll) {
    if (supports(isa)) result.push_back(isa);
  }
  return result;
}

Isa current_isa() {
  const int isa = chosen.load(std::memory_order_relaxed);
  if (isa >= 0) return static_cast<Isa>(isa);
  static const Isa initial = initial_isa();
  return initial;
}

void set_isa(Isa isa) {
  require_available(isa, "set_isa");
  chosen.store(static_cast<int>(isa), std::memory_order_relaxed);
}

}  // namespace sluice::cpu
