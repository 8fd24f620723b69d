#pragma once
#include <string>

#include "python/bindings/callbacks.h"
#include "sluice/session/session.h"

namespace sluice::python {

/// A session as Python holds it. It keeps the sources and sinks of its feeds. Its destructor waits
/// for threads that may call them, without the interpreter's lock.
class SessionHandle : public KeepsObjects, private ReleasesLock, public Session {
 public:
  using Session::Session;
  ~SessionHandle() { release(); }

  /// Keeps `end`, the source or sink of a feed, and drops the earlier one.
  void keep_end(const std::string& feed, nb::object end);

 private:
  std::vector<std::string> feeds_;  ///< Names of feeds, one for each object of `kept`.
};

/// Binds an infeed or an outfeed to an object of Python.
void bind_feed(SessionHandle& session, const nb::object& feed, const nb::object& end);

}  // namespace sluice::python
