#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "sluice/base/sys.h"

namespace sluice::data {

/// A log file that grows at its end. Other programs may read it meanwhile.
class GrowingFile {
 public:
  /// Creates the file, or cuts a file that exists to its first `kept` bytes. Error{kIo} if the
  /// system refuses it, or if `path` exists and is not a regular file.
  explicit GrowingFile(std::string path, int64_t kept = 0);

  const std::string& path() const { return path_; }
  /// Adds bytes to those that the next flush() writes.
  void append(std::string_view bytes) { pending_ += bytes; }
  /// Writes the added bytes. Error{kIo} if they cannot be written, for example on a full disk. Then
  /// the file is cut back to its bytes before the call, and the added bytes are discarded.
  void flush();
  /// Writes the added bytes as flush() does, and waits until all are on the disk.
  void sync();

 private:
  std::string path_;
  sys::File file_;
  int64_t size_ = 0;
  std::string pending_;
};

}  // namespace sluice::data
