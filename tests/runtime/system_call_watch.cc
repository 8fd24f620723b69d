#include "system_call_watch.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "malloc_counter.h"

// The operating system turns a system call into a signal (prctl(2), PR_SET_SYSCALL_USER_DISPATCH).
// The handler records the call, makes it, and permits all later calls, because its own return is a
// system call.
#if defined(__x86_64__) && defined(PR_SET_SYSCALL_USER_DISPATCH)
#define SLUICE_WATCHES_SYSTEM_CALLS 1
#endif

namespace sluice::test {
namespace {

std::atomic<int64_t> call{-1};

#ifdef SLUICE_WATCHES_SYSTEM_CALLS
constexpr char kLetThrough = 0, kHandBack = 1;
volatile char selector = kLetThrough;
struct sigaction old_action;

extern "C" void sluice_note_system_call(int, siginfo_t* info, void* context) {
  selector = kLetThrough;
  call = info->si_syscall;
  greg_t* const r = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const long result =
      syscall(r[REG_RAX], r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]);
  r[REG_RAX] = result == -1 ? -errno : result;
}
#endif

}  // namespace

SystemCallWatch::SystemCallWatch() {
  call = -1;
#ifdef SLUICE_WATCHES_SYSTEM_CALLS
  if (!counts_allocations()) return;  // Sanitizers make system calls themselves.
  struct sigaction action {};
  action.sa_sigaction = sluice_note_system_call;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(SIGSYS, &action, &old_action) != 0) return;
  works_ = prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &selector) == 0;
  if (works_) selector = kHandBack;
#endif
}

SystemCallWatch::~SystemCallWatch() {
#ifdef SLUICE_WATCHES_SYSTEM_CALLS
  selector = kLetThrough;
  if (!works_) return;
  prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
  sigaction(SIGSYS, &old_action, nullptr);
#endif
}

int64_t SystemCallWatch::found() const { return call; }

}  // namespace sluice::test
