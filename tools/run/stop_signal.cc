#include "tools/run/stop_signal.h"

#include <csignal>

namespace sluice::tool {
namespace {

volatile std::sig_atomic_t received = 0;
volatile std::sig_atomic_t save_received = 0;

constexpr int kStop[] = {SIGHUP, SIGINT, SIGTERM};
volatile std::sig_atomic_t ignores_hangup = 0;

extern "C" void remember(int signal) {
  received = signal;
  for (const int each : kStop) {
    if (each != SIGHUP || ignores_hangup == 0) std::signal(each, SIG_DFL);
  }
}

extern "C" void remember_save(int) { save_received = 1; }

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = remember;
  sigemptyset(&action.sa_mask);
  for (const int signal : kStop) {
    struct sigaction old {};
    sigaction(signal, nullptr, &old);
    // Under nohup, SIGHUP is ignored, and the run continues after its terminal has closed.
    if (signal == SIGHUP && old.sa_handler == SIG_IGN) {
      ignores_hangup = 1;
    } else {
      sigaction(signal, &action, nullptr);
    }
  }
}

int stop_signal() { return received; }

void catch_save_signal() {
  struct sigaction action {};
  action.sa_handler = remember_save;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
}

bool take_save_signal() {
  const bool was = save_received != 0;
  save_received = 0;
  return was;
}

}  // namespace sluice::tool
