#pragma once
#include <fmt/core.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

/// What went wrong, by who can mend it. The numbers are the exit codes of the command-line tool.
enum class ErrorKind {
  kInternal = 1,      ///< A defect of Sluice itself.
  kUsage = 2,         ///< A wrong argument, flag, shape, name or order of calls.
  kBadFile = 3,       ///< A file whose contents are not what they must be.
  kDoesNotFit = 4,    ///< The program needs more memory than the budget.
  kIo = 5,            ///< The operating system refused a read, a write or space.
  kDiverged = 6,      ///< A loss became NaN or infinite.
  kNoCheckpoint = 7,  ///< No usable checkpoint was found.
  kPeerLost = 8,      ///< Another replica or rank is gone.
  kStopped = 75,      ///< A signal ended the run after its state was saved.
};

/// The word for a kind, e.g. "does not fit".
std::string_view to_string(ErrorKind kind);

/// The one exception type of Sluice. `what()` is the message followed by its context notes, a line each.
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

/// The caller's fault: unless `condition`, throws Error{kUsage}. The text says what was wrong, what was found and
/// what would be right.
template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    fail(ErrorKind::kUsage, format, std::forward<Args>(args)...);
}

namespace internal {
[[noreturn]] void check_failed(const char* expression, const char* file, int line);
}

/// Our own fault: never reached by user input.
#define SLUICE_CHECK(condition)                                         \
  do {                                                                  \
    if (!(condition)) [[unlikely]]                                      \
      ::sluice::internal::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)

}  // namespace sluice
