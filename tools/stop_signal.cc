#include "tools/stop_signal.h"

#include <csignal>

namespace sluice::tool {
namespace {

volatile std::sig_atomic_t received = 0;

extern "C" void remember(int signal) {
  received = signal;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = remember;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int stop_signal() { return received; }

}  // namespace sluice::tool
