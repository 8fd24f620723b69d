#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace sluice::runtime {

/// Whether an idle worker spins for a while before it sleeps. Choose kSpin only if every worker has
/// a core.
enum class Idle : uint8_t { kSpin, kSleep };

/// A fixed team of workers. The calling thread is worker 0. The other workers sleep between jobs.
class Pool {
 public:
  static constexpr int kMaxWorkers = 1024;

  /// Starts the workers. `workers` counts all workers, with the caller, from 1 to kMaxWorkers;
  /// Error{kUsage} otherwise.
  explicit Pool(int workers, Idle idle = Idle::kSleep);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int workers() const { return static_cast<int>(threads_.size()) + 1; }
  /// Calls job(argument, worker) on every worker and returns when all calls have returned. The job
  /// must not throw.
  void run(void (*job)(void*, int), void* argument);
  /// As run(), but returns as soon as the call on this thread, of worker 0, has returned. Calls on
  /// other workers may begin and end later, so a pool that leads gets the same job and argument in
  /// all calls, and the job must tell whether it comes too late.
  void lead(void (*job)(void*, int), void* argument);

 private:
  void serve(int worker);
  /// Waits until `word` differs from `old`, and returns its new value.
  uint32_t wait_while(const std::atomic<uint32_t>& word, uint32_t old) const;

  Idle idle_;
  std::vector<std::thread> threads_;
  std::atomic<uint32_t> generation_{0};
  std::atomic<uint32_t> finished_{0};
  std::atomic<bool> quit_{false};
  void (*job_)(void*, int) = nullptr;
  void* argument_ = nullptr;
};

/// One iteration of a busy wait.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace sluice::runtime
