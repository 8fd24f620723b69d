#include "python/bindings/interrupts.h"

#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "sluice/session/session.h"

/// Session::stop() may not be called from a signal handler. A handler posts a semaphore instead,
/// and a thread, which starts with the first run of a process, calls stop(). Python's own handler
/// is called too: it remembers the signal until the main thread has the interpreter's lock.
namespace sluice::python {
namespace {

sem_t interrupted;
struct sigaction python_action;

void on_interrupt(int signal, siginfo_t* info, void* context) {
  sem_post(&interrupted);
  if ((python_action.sa_flags & SA_SIGINFO) != 0) {
    python_action.sa_sigaction(signal, info, context);
  } else if (python_action.sa_handler != SIG_DFL && python_action.sa_handler != SIG_IGN) {
    python_action.sa_handler(signal);
  }
}

/// Stops the run of the main thread when a signal arrives.
class Watcher {
 public:
  /// Requires Python's main thread. A child of fork() gets a watcher of its own.
  static Watcher& get() {
    static Watcher* watcher = nullptr;  // Its thread may outlive static objects.
    if (watcher == nullptr || watcher->process_ != getpid()) watcher = new Watcher();
    return *watcher;
  }

  void begin(Session& session) {
    const std::lock_guard hold(lock_);
    session_ = &session;
  }
  void end() {
    const std::lock_guard hold(lock_);
    session_ = nullptr;
  }

 private:
  Watcher() {
    sem_init(&interrupted, 0, 0);
    std::thread([this] { watch(); }).detach();
  }

  void watch() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    while (true) {
      if (sem_wait(&interrupted) != 0) continue;
      // A run that has not begun yet is stopped once it has.
      while (!stop()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  /// Returns whether no run remains to be stopped.
  bool stop() {
    const std::lock_guard hold(lock_);
    return session_ == nullptr || session_->stop();
  }

  const pid_t process_ = getpid();
  std::mutex lock_;
  Session* session_ = nullptr;
};

/// Whether this is Python's main thread and Ctrl-C has Python's default handler.
bool interrupt_stops() {
  static const unsigned long main_thread = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  if (PyThread_get_thread_ident() != main_thread) return false;
  static const nb::object* const signals = new nb::object(nb::module_::import_("signal"));
  static const nb::object* const get = new nb::object(signals->attr("getsignal"));
  static const nb::object* const usual = new nb::object(signals->attr("default_int_handler"));
  return (*get)(SIGINT).is(*usual);
}

/// While it exists, SIGINT stops a session.
class StopsOnInterrupt {
 public:
  explicit StopsOnInterrupt(Session& session) {
    Watcher::get().begin(session);
    struct sigaction action {};
    action.sa_sigaction = on_interrupt;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, nullptr, &python_action);
    sigaction(SIGINT, &action, nullptr);
  }
  ~StopsOnInterrupt() {
    sigaction(SIGINT, &python_action, nullptr);
    Watcher::get().end();
  }
  StopsOnInterrupt(const StopsOnInterrupt&) = delete;
  StopsOnInterrupt& operator=(const StopsOnInterrupt&) = delete;
};

}  // namespace

void run_interruptibly(Session& session, const std::function<void()>& run) {
  if (!interrupt_stops()) {
    const nb::gil_scoped_release release;
    return run();
  }
  try {
    const nb::gil_scoped_release release;
    const StopsOnInterrupt stops(session);
    run();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kStopped && PyErr_CheckSignals() != 0) throw nb::python_error();
    throw;
  }
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace sluice::python
