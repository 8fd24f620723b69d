#include "sluice/base/system/file_version.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "sluice/base/error.h"
#include "sluice/base/failpoint.h"

namespace sluice::sys {

FileVersion version_of(const File& file, const std::string& path) {
  struct stat info {};
  int result = 0;
  do {
    result = internal::fails("fstat") ? -1 : ::fstat(file.fd(), &info);
  } while (result != 0 && errno == EINTR);
  if (result != 0) fail(ErrorKind::kIo, "cannot examine {}: {}", path, std::strerror(errno));
  return {static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino),
          static_cast<int64_t>(info.st_size),
          int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

}  // namespace sluice::sys
