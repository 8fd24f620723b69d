#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

#include "sluice/base/sys.h"

namespace sluice::bench {

/// PyTorch in a process of its own, which answers what a case costs there. It gets the environment
/// that is best for Debian's build: the OpenBLAS kernels of this processor, memory kept by malloc.
class PyTorch {
 public:
  /// Starts `python` with pytorch_child.py. Whatever goes wrong, now or later, is `trouble()`, and
  /// no error.
  explicit PyTorch(std::string python);
  ~PyTorch();
  PyTorch(const PyTorch&) = delete;
  PyTorch& operator=(const PyTorch&) = delete;

  const std::string& python() const { return python_; }
  /// Of torch; empty if it did not start.
  const std::string& version() const { return version_; }
  /// What went wrong last; empty if nothing did.
  const std::string& trouble() const { return trouble_; }
  /// Seconds of a call of what `request` names (see pytorch_child.py); nothing in trouble. A
  /// process that is silent for too long is ended.
  std::optional<double> ask(const std::string& request);

 private:
  /// A line from the process; nothing if none came in time or it is gone, which is then the
  /// trouble.
  std::optional<std::string> read_line();
  /// Ends the process.
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
