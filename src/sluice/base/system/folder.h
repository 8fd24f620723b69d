#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/sys.h"

/// Folders whose contents survive a crash. A file system may write changes to the disk in another
/// order than that of the calls: a file's bytes are there after sync(), and its name after
/// sync_folder() of its folder.
///
/// The functions retry EINTR. They throw Error{kIo} with the path and the system's reason if a
/// system call fails.
namespace sluice::sys {

/// Creates a file for writing. Error{kIo} also if `path` exists.
File create_file(const std::string& path);
/// Waits until the names in a folder are on the disk.
void sync_folder(const std::string& path);
/// Renames a file or folder. A folder replaces only an empty one.
void rename(const std::string& from, const std::string& to);
/// Removes a folder with its files. A folder in it is Error{kIo}. One that does not exist is
/// ignored.
void remove_folder(const std::string& path);
/// Returns the names in a folder, in ascending order.
std::vector<std::string> names_in(const std::string& path);
/// Whether `path` is a folder.
bool is_folder(const std::string& path);
/// Bytes that this process may still write to the disk of a folder.
int64_t free_bytes(const std::string& folder);

/// Locks a folder for this process by the file "lock" in it. The system releases it when the
/// process ends, however it ends.
class FolderLock {
 public:
  /// Creates the file if necessary. Error{kUsage} "<path>: must have one user at a time, got a
  /// lock of another process" if another process, or another lock of this one, has it.
  explicit FolderLock(const std::string& folder);

  static constexpr std::string_view kName = "lock";

 private:
  File file_;
};

}  // namespace sluice::sys
