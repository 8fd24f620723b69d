#pragma once
#include <functional>

#include "python/bindings/bindings.h"

namespace sluice {
class Session;
}

namespace sluice::python {

/// Calls `run` without the interpreter's lock. While it runs on Python's main thread, the first
/// Ctrl-C (SIGINT) stops the session, if Python's handler is the default one. Then the call raises
/// KeyboardInterrupt. Another handler of the program is called after the run.
void run_interruptibly(Session& session, const std::function<void()>& run);

}  // namespace sluice::python
