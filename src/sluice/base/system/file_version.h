#pragma once
#include <cstdint>
#include <string>

#include "sluice/base/sys.h"

namespace sluice::sys {

/// The identity and the time of the last change of a file. Two versions differ if the file was
/// replaced, cut, extended or written in between; within a tick of the system's clock, a write that
/// keeps the size may go unnoticed.
struct FileVersion {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size = 0;
  int64_t modified_ns = 0;  ///< Nanoseconds since 1970.

  bool operator==(const FileVersion&) const = default;
};

/// Returns the version of an open file. Error{kIo} with the path if the system call fails.
FileVersion version_of(const File& file, const std::string& path);

}  // namespace sluice::sys
