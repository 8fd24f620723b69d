#include "sluice/base/failpoint.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "sluice/base/error.h"

namespace sluice::sys {
namespace {

constexpr const char* kCalls[] = {"any",    "open",      "mkostemp", "fallocate", "fstat", "pread",
                                  "pwrite", "fdatasync", "linkat",   "rename",    "mkdir", "fcntl",
                                  "fsync",  "unlink",    "rmdir",    "statvfs",   "flock"};
constexpr std::pair<const char*, int> kCodes[] = {
    {"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR},
    {"EACCES", EACCES}, {"EDQUOT", EDQUOT}, {"EFBIG", EFBIG},
    {"EMFILE", EMFILE}, {"EINVAL", EINVAL}, {"EOPNOTSUPP", EOPNOTSUPP},
    {"short", 0}};

std::mutex lock;    // Guards `current`.
Failpoint current;  // Valid if `armed`.
std::atomic<bool> armed{false};
std::atomic<int64_t> counted{0};
std::once_flag looked_up;

void look_up() {
  if (const char* const text = std::getenv("SLUICE_FAILPOINT"))
    set_failpoint(parse_failpoint(text));
}

}  // namespace

Failpoint parse_failpoint(const std::string& text) {
  const size_t at = text.find('@');
  const size_t is = text.find('=', at == text.npos ? 0 : at);
  Failpoint f;
  bool good = at != text.npos && is != text.npos;
  if (good) {
    f.call = text.substr(0, at);
    const char* const end = text.data() + is;
    const auto [stop, error] = std::from_chars(text.data() + at + 1, end, f.number);
    const auto code = std::find_if(std::begin(kCodes), std::end(kCodes), [&](const auto& c) {
      return text.compare(is + 1, text.npos, c.first) == 0;
    });
    good = error == std::errc() && stop == end && f.number >= 1 && code != std::end(kCodes) &&
           std::find(std::begin(kCalls), std::end(kCalls), f.call) != std::end(kCalls);
    if (good) f.code = code->second;
  }
  require(good,
          "failpoint: must be CALL@NUMBER=CODE, got '{}'; CALL is any, open, mkostemp, fallocate, "
          "fstat, pread, pwrite, fdatasync, linkat, rename, mkdir, fcntl, fsync, unlink, rmdir, "
          "statvfs or flock; CODE is EIO, ENOSPC, "
          "EINTR, EACCES, EDQUOT, EFBIG, EMFILE, EINVAL, EOPNOTSUPP or short",
          text);
  return f;
}

void set_failpoint(const Failpoint& failpoint) {
  const std::lock_guard hold(lock);
  current = failpoint;
  counted = 0;
  armed = true;
}

void clear_failpoint() { armed = false; }

int64_t failpoint_calls() { return counted; }

bool internal::fails(const char* call, size_t* bytes) {
  std::call_once(looked_up, look_up);
  if (!armed.load(std::memory_order_relaxed)) return false;
  const std::lock_guard hold(lock);
  if (current.call != "any" && current.call != call) return false;
  if (++counted != current.number) return false;
  if (current.code == 0) {
    if (bytes != nullptr) *bytes = std::max<size_t>(*bytes / 2, 1);
    return false;
  }
  errno = current.code;
  return true;
}

}  // namespace sluice::sys
