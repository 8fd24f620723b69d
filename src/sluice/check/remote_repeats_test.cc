// Loops over remote entries are left early once the stores that loads find repeat.
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "sluice/check/test_checks.h"
#include "sluice/exe/remote_trace.h"

namespace sluice::check {
namespace {

constexpr int64_t kEntries = 6;
constexpr int64_t kLong = exe::kLongLoop / 2 + 1;  // Iterations with two transfers each.

/// A loop that loads entry `load` of its counter p0 and stores to entry `store`, with overlap.
std::string shelf_loop(int64_t trips, const std::string& load, const std::string& store) {
  return fmt::format(R"plan(sluice executable 1
device 0 kind cpu isa avx2 memory 512 workers 2 queues compute load store
tier 0 "host" space host budget 4096
arena 0 "frames" kind frames space device device 0 bytes 256 stride 0
arena 1 "host" kind tier space host device -1 bytes 1024 stride 0
remote 0 "shelf" float32(16) entries 6 arena 1 offset 0 stride 64
value 0 "old" 0
value 1 "new" 0
function 0 "body" memo "" device 0 index_params 1 frame 128 bound 128
  0 sync issue remote_load 0 entry {} queue 1 token 0
      write %0 at frame+0 bytes 64 float32(16) row
  1 wait queue 1 token 0
  2 sync kernel cpu.neg Neg tasks 2 workspace 0
      read %0 at frame+0 bytes 64 float32(16) row task 32
      write %1 at frame+64 bytes 64 float32(16) row task 32
  3 sync issue remote_store 0 entry {} queue 2 token 1
      read %1 at frame+64 bytes 64 float32(16) row
  4 wait queue 2 token 1
function 1 "main" memo "" device 0 index_params 0 frame 128 bound 128
  0 loop 0 frame frame+0 trips {}
      index it
program "run"
  entry device 0 function 1 frame arena0+0
  remote 0 loads {} stores {} found 0
end
)plan",
                     load, store, trips, trips, trips);
}

uint64_t mix(uint64_t a, uint64_t b) {
  const uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
  const uint64_t y = (x ^ (x >> 29)) * 0x94d049bb133111eb;
  return y ^ (y >> 32);
}

/// Computes the digest of shelf_loop(trips, …) from the definition of exe::RemoteTrace, iteration
/// by iteration.
int64_t digest(int64_t trips, const std::string& load, const std::string& store) {
  const exe::IndexExpr loaded = exe::parse_index_expr(load), stored = exe::parse_index_expr(store);
  const bool is_long = 2 * trips > exe::kLongLoop;
  std::map<int64_t, std::pair<uint64_t, int64_t>> contents;
  uint64_t sum = 0;
  const auto activation = [&](int64_t it) {
    return mix(mix(mix(2, 0), 0), static_cast<uint64_t>(is_long ? 0 : it));
  };
  for (int64_t it = 0; it < trips; ++it) {
    const std::array<int64_t, 1> params{it};
    const int64_t e = loaded.evaluate({params, 0, 0});
    uint64_t seen = mix(1, static_cast<uint64_t>(e));
    if (const auto found = contents.find(e); found != contents.end()) {
      seen = found->second.first;
      if (is_long) seen = mix(seen, static_cast<uint64_t>(it - found->second.second));
    }
    sum = (is_long ? sum * 0x9e3779b97f4a7c15 : sum) + mix(mix(activation(it), 0), seen);
    contents[stored.evaluate({params, 0, 0})] = {mix(activation(it), 1), it};
  }
  for (const auto& [e, content] : contents) {
    const uint64_t seen =
        is_long ? mix(content.first, static_cast<uint64_t>(trips - content.second)) : content.first;
    sum += mix(mix(1, static_cast<uint64_t>(e)), seen);
  }
  return static_cast<int64_t>(sum / 2);
}

/// Returns shelf_loop() with the digest of the loop from `right_load` and `right_store`.
exe::Executable announced(int64_t trips, const std::string& load, const std::string& store,
                          const std::string& right_load, const std::string& right_store) {
  exe::Executable e = exe::plans::plan(shelf_loop(trips, load, store));
  e.programs[0].remote[0].found = digest(trips, right_load, right_store);
  return e;
}

const char* const kLoad = "(p0%6)";
const char* const kStore = "((p0+2)%6)";

TEST(RemoteRepeats, AreNotWalked) {
  for (const int64_t trips : {kLong, kLong + 1, kLong + 5}) {
    EXPECT_EQ(
        all_of(violations(announced(trips, kLoad, kStore, kLoad, kStore), {.max_steps = 400})), "")
        << trips;
  }
  EXPECT_EQ(all_of(violations(announced(kLong, "0", "0", "0", "0"), {.max_steps = 100})), "");
}

// The trace of a loop that is not long names each iteration, so the loop is simulated.
TEST(RemoteRepeats, ShortLoopsAreWalked) {
  const exe::Executable e = announced(kLong - 1, kLoad, kStore, kLoad, kStore);
  EXPECT_EQ(all_of(violations(e)), "");
  EXPECT_NE(all_of(violations(e, {.max_steps = 10'000})), "");
}

// Only the digest, which this plan leaves open, is refused.
TEST(RemoteRepeats, OfManyIterationsAreNotWalked) {
  const int64_t many = int64_t{1} << 40;
  const std::string found =
      all_of(violations(exe::plans::plan(shelf_loop(many, kLoad, kStore)), {.max_steps = 400}));
  EXPECT_EQ(found.find("remote: program 'run': 'shelf' holds or loads entries of other stores"), 0)
      << found;
  EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 1) << found;
}

TEST(RemoteRepeats, DoNotHideAnotherEntry) {
  const auto refused = [](const std::string& load, const std::string& store) {
    const std::string found = all_of(violations(announced(kLong, load, store, kLoad, kStore)));
    EXPECT_EQ(found.find("remote: "), 0) << load << ", " << store << ": " << found;
  };
  // In each iteration.
  for (const char* const entry : {"((p0+1)%6)", "((p0*5)%6)", "(p0%5)", "(p0%7)", "0"}) {
    refused(entry, kStore);
    refused(kLoad, entry);
  }
  // In the last iterations only, in one in the middle, and from the middle on.
  for (const char* const entry :
       {"((p0+(p0/32760))%6)", "((p0%32761)%6)", "((((p0/20000)-(p0/20001))+p0)%6)",
        "((((p0/16384)*2)+p0)%6)", "((p0*(1+(p0/32768)))%6)"}) {
    refused(entry, kStore);
  }
  refused(kLoad, "(((p0+2)+(p0/32768))%6)");
  refused(kLoad, "((p0+2)%(6+((p0/32768)*6)))");
}

// Two patterns with the same distances, in another order, are another trace.
TEST(RemoteRepeats, KeepThePlaceOfEachIteration) {
  EXPECT_NE(digest(kLong, "((p0*5)%6)", "(p0%2)"), digest(kLong, "(((p0+1)*5)%6)", "(p0%2)"));
  EXPECT_NE(all_of(violations(announced(kLong, "(p0%2)", "0", "((p0+1)%2)", "0"))), "");
}

TEST(RemoteRepeats, DoNotHideDamage) {
  std::string text = shelf_loop(kLong, kLoad, kStore);
  text =
      exe::plans::replaced(text, "found 0", fmt::format("found {}", digest(kLong, kLoad, kStore)));
  EXPECT_EQ(all_of(violations(exe::plans::plan(text))), "");
  refuse(text, {
                   {"wait", "  4 wait queue 2 token 1\n", ""},
                   {"remote", "trips 32769", "trips 32770"},
                   {"remote", "index it", "index (it+1)"},
                   {"remote", "index it", "index (it+(it/32768))"},
                   {"remote", "index it", "index (it*(1+(it/32768)))"},
                   {"remote", "index it", "index (it%32768)"},
               });
}

}  // namespace
}  // namespace sluice::check
