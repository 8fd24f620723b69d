#include <fmt/core.h>

#include <memory>
#include <utility>

#include "bench/figure.h"

namespace sluice::bench {
namespace {

struct Copy {
  const char* where;
  int64_t bytes;  // Bytes for each thread, or for all threads if they share the cache.
  bool own_cache;
};
constexpr Copy kCopies[] = {{"second cache, 256 KiB", int64_t{256} << 10, true},
                            {"third cache, 4 MiB", int64_t{4} << 20, false},
                            {"16 MiB", int64_t{16} << 20, false},
                            {"RAM, 128 MiB", int64_t{128} << 20, false}};

Case copy_case(Machine& machine, const Copy& copy, CopyWith with, int threads) {
  const int64_t bytes = copy.own_cache ? copy.bytes * threads : copy.bytes;
  return {.group = "limit",
          .name = fmt::format("copy, {}, {}", copy.where,
                              with == CopyWith::kMemcpy ? "memcpy" : "plain stores"),
          .threads = threads,
          .unit = Unit::kGigabytes,
          .work = 2.0 * static_cast<double>(bytes),
          .start = [&machine, bytes, with, threads]() -> std::function<Round()> {
            auto from = std::make_shared<const Memory>(bytes);
            auto to = std::make_shared<const Memory>(bytes);
            return [&machine, from, to, bytes, with, threads] {
              return Round{machine.copy_seconds(with, *from, *to, bytes, threads, 2e-2), {}};
            };
          }};
}

// A limit that needs no preparation.
template <typename F>
Case plain_case(std::string name, int threads, Unit unit, double work, F amount) {
  return {.group = "limit",
          .name = std::move(name),
          .threads = threads,
          .unit = unit,
          .work = work,
          .start = [amount] { return [amount] {
                                return Round{amount(), {}};
                              }; }};
}

}  // namespace

std::vector<Case> limit_cases(Machine& machine) {
  std::vector<Case> cases;
  for (int threads = 1; threads <= kMaxThreads; ++threads) {
    cases.push_back(plain_case("fused multiply-adds, no memory", threads, Unit::kGigaflops, 1,
                               [&machine, threads] { return 1 / machine.peak(threads); }));
  }
  for (const Copy& copy : kCopies) {
    for (const CopyWith with : {CopyWith::kMemcpy, CopyWith::kPlainStores}) {
      for (int threads = 1; threads <= kMaxThreads; ++threads)
        cases.push_back(copy_case(machine, copy, with, threads));
    }
  }
  cases.push_back(plain_case("barrier of spinning workers", 2, Unit::kNanoseconds, 0,
                             [&machine] { return machine.barrier_seconds(2); }));
  cases.push_back(plain_case("hand-over between spinning threads", 2, Unit::kNanoseconds, 0,
                             [&machine] { return machine.hand_over_seconds(); }));
  cases.push_back(plain_case("job of the team with nothing to do", 2, Unit::kNanoseconds, 0,
                             [&machine] { return machine.empty_job_seconds(2); }));
  return cases;
}

}  // namespace sluice::bench
