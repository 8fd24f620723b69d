#pragma once
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::sys {

/// Opens /dev/null as each standard descriptor (0 to 2) that is closed, so that no other file gets
/// its number. Call this first in a process. Error{kIo} if /dev/null cannot be opened.
void open_standard_descriptors();

/// Writes text to standard error, which only logs and errors use. Discards text that cannot be
/// written: a closed descriptor, a full disk, a pipe without a reader and a file at its size limit
/// never end a run.
void write_stderr(std::string_view text) noexcept;

/// Writes formatted text to standard error.
template <typename... Args>
void print_stderr(fmt::format_string<Args...> format, Args&&... args) noexcept {
  try {
    write_stderr(fmt::format(format, std::forward<Args>(args)...));
  } catch (...) {  // Out of memory.
    write_stderr("(a message could not be formatted)\n");
  }
}

/// Owns a file descriptor: the destructor closes it.
class File {
 public:
  File() = default;
  explicit File(int fd) : fd_(fd) {}
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// All functions below retry EINTR and repeat short transfers. They throw Error{kIo} with the path
// and the system's reason if a system call fails.

/// Opens a regular file for reading. Error{kBadFile} if `path` is a folder, pipe, socket or device;
/// the call never waits for one of them.
File open_for_read(const std::string& path);
/// Whether reads and writes use the system's page cache or bypass it. With kBypass, offsets, sizes
/// and memory addresses must be multiples of kFilePage.
enum class PageCache : uint8_t { kUse, kBypass };
inline constexpr int64_t kFilePage = 4096;
/// Creates a file of `bytes` bytes in `folder`, allocates its space and removes its name. The
/// system deletes the file when its descriptor is closed.
File scratch_file(const std::string& folder, int64_t bytes, PageCache cache = PageCache::kUse);
/// Whether files in `folder` can bypass the page cache. On most disks they can; in a file system in
/// memory they often cannot.
bool can_bypass_page_cache(const std::string& folder);
int64_t size(const File& file, const std::string& path);
void read_exactly(const File& file, const std::string& path, int64_t offset,
                  std::span<std::byte> out);
void write_exactly(const File& file, const std::string& path, int64_t offset,
                   std::span<const std::byte> in);
void sync(const File& file, const std::string& path);

/// Returns all bytes of a file. Throws the errors of open_for_read.
std::vector<std::byte> read_file(const std::string& path);
/// Creates or replaces the file at `path`: a reader finds the whole old file or the whole new one.
/// The function writes a nameless file in the folder of `path`, syncs it, names it temporarily
/// and renames it to `path`. A process that ends while it writes leaves no file. SIGHUP,
/// SIGINT, SIGQUIT, SIGTERM and SIGXCPU are deferred from before the naming until after the
/// renaming. Some file systems do not support nameless files. There the file is named
/// `path`.PID.N.tmp while it is written, and the signals are deferred until it is renamed. If
/// `path` is a symbolic link, its target is replaced. Error{kIo} if a folder, a device or a pipe is
/// at `path`.
void replace_file(const std::string& path, std::span<const std::byte> bytes);
/// Replaces a file like the function above, with the bytes that `write(file, name)` writes. `name`
/// is a path for errors.
void replace_file(const std::string& path,
                  const std::function<void(const File&, const std::string&)>& write);

/// Checks that replace_file can create its file for `path`; leaves no file. Error{kIo} if it
/// cannot.
void check_replaceable(const std::string& path);

bool exists(const std::string& path);
/// Throws Error{kBadFile} if `path` exists and is not a folder.
void check_folder(const std::string& path);
/// Creates a folder unless `path` exists. Error{kIo} if it cannot be created.
void make_folder(const std::string& path);

/// Number of cores that this process may use: the smaller of its affinity and the quota of its
/// cgroups (cgroup_limits), at least 1.
int usable_cores();

/// Bytes of a large page.
inline constexpr int64_t kLargePage = int64_t{2} << 20;
/// Asks the system to use large pages for this memory; the system may ignore it. `memory` must be
/// aligned to kLargePage and not yet touched.
void prefer_large_pages(void* memory, int64_t bytes);

}  // namespace sluice::sys
