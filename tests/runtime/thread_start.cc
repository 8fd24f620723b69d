#include "thread_start.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "sluice/base/rng.h"

namespace sluice::test {
namespace {

std::atomic<int64_t> longest{0};
std::atomic<uint64_t> key{0};
std::atomic<int64_t> delayed{0};

struct Start {
  void* (*run)(void*);
  void* argument;
  int64_t microseconds;
};

void* run_later(void* start) {
  const std::unique_ptr<Start> owned(static_cast<Start*>(start));
  std::this_thread::sleep_for(std::chrono::microseconds(owned->microseconds));
  return owned->run(owned->argument);
}

}  // namespace

DelayedThreadStarts::DelayedThreadStarts(int64_t max, uint64_t seed) {
  key = seed;
  longest = max;
}
DelayedThreadStarts::~DelayedThreadStarts() { longest = 0; }
int64_t DelayedThreadStarts::count() { return delayed.load(); }

}  // namespace sluice::test

// Replaces the function of the C library or of the sanitizer, and calls it.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
  using namespace sluice;        // NOLINT: a C function lies outside
  using namespace sluice::test;  // NOLINT
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  const int64_t max = longest.load();
  if (max == 0) return create(thread, attributes, run, argument);
  const uint64_t seed = key.load();
  const auto number = static_cast<uint64_t>(delayed.fetch_add(1));
  const Seed both{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
  auto start = std::make_unique<Start>(Start{run, argument, random_bits(both, number) % max});
  const int error = create(thread, attributes, run_later, start.get());
  if (error == 0) (void)start.release();
  return error;
}
