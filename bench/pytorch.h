#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

#include "sluice/base/sys.h"

namespace sluice::bench {

/// A child process with PyTorch that measures the time of a case. Its environment suits Debian's
/// build best: the OpenBLAS kernels of this processor, memory kept by malloc.
class PyTorch {
 public:
  /// Starts `python` with pytorch_child.py. Failures, now or later, are not thrown but stored in
  /// trouble().
  explicit PyTorch(std::string python);
  ~PyTorch();
  PyTorch(const PyTorch&) = delete;
  PyTorch& operator=(const PyTorch&) = delete;

  const std::string& python() const { return python_; }
  /// Version of torch; empty if it did not start.
  const std::string& version() const { return version_; }
  /// The last failure; empty without one.
  const std::string& trouble() const { return trouble_; }
  /// Returns the median seconds of the call that `request` names (see pytorch_child.py), or nothing
  /// after a failure. Ends a process that is silent for too long.
  std::optional<double> ask(const std::string& request);

 private:
  /// Reads a line from the process. Returns nothing, and stores the trouble, if none arrives in
  /// time or the process has ended.
  std::optional<std::string> read_line();
  /// Ends the process and stores the reason as trouble.
  std::nullopt_t end(std::string why);

  std::string python_;
  std::string version_;
  std::string trouble_;
  std::string received_;
  sys::File socket_;
  pid_t process_ = -1;
};

/// The text of pytorch_child.py.
extern const char* const kPyTorchChild;

}  // namespace sluice::bench
