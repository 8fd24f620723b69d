#pragma once
#include <fmt/core.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

/// The kinds of errors. The numbers are the exit codes of the command-line tool.
enum class ErrorKind {
  kInternal = 1,      ///< A defect of Sluice itself.
  kUsage = 2,         ///< A wrong argument, flag, shape, name or order of calls.
  kBadFile = 3,       ///< A file whose contents are not what they must be.
  kDoesNotFit = 4,    ///< The program needs more memory than the budget.
  kIo = 5,            ///< The operating system refused a read, a write or space.
  kDiverged = 6,      ///< A loss became NaN or infinite, or replicas differ.
  kNoCheckpoint = 7,  ///< No usable checkpoint was found.
  kPeerLost = 8,      ///< Another replica, rank or device is gone.
  kStopped = 75,      ///< A signal or a stop request ended the work.
};

/// The name of a kind, for example "does not fit".
std::string_view to_string(ErrorKind kind);

/// The only exception type that Sluice throws. `what()` returns the message, then one line for each
/// context note.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message) : kind_(kind), text_(std::move(message)) {}

  ErrorKind kind() const { return kind_; }
  const char* what() const noexcept override { return text_.c_str(); }
  int exit_code() const { return static_cast<int>(kind_); }

  /// Appends "\n  while <note>".
  Error& note(std::string_view note);

 private:
  ErrorKind kind_;
  std::string text_;
};

/// Throws Error{kind} with the formatted text.
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// Checks the caller's input: throws Error{kUsage} with the formatted text unless `condition` is
/// true. The text names the input, the requirement, the value found and, if known, the remedy.
template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    fail(ErrorKind::kUsage, format, std::forward<Args>(args)...);
}

namespace internal {
[[noreturn]] void check_failed(const char* expression, const char* file, int line);
}

/// Checks an invariant of Sluice itself: throws Error{kInternal} if `condition` is false. User
/// input must never make it false.
#define SLUICE_CHECK(condition)                                         \
  do {                                                                  \
    if (!(condition)) [[unlikely]]                                      \
      ::sluice::internal::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)

}  // namespace sluice
