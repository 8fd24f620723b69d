#include "bench/pytorch.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "sluice/cpu/simd/isa.h"

namespace sluice::bench {
namespace {

constexpr std::chrono::seconds kPatience{600};  // torch.compile takes minutes on a busy machine.
constexpr std::chrono::milliseconds kSettle{100};

// The environment of this process, with the variables that make PyTorch fastest.
std::vector<std::string> environment() {
  std::vector<std::string> best{"MALLOC_MMAP_THRESHOLD_=1073741824",
                                "MALLOC_TRIM_THRESHOLD_=1073741824"};
  if (cpu::detect_isa() == cpu::Isa::kAvx512) best.push_back("OPENBLAS_CORETYPE=SkylakeX");
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (const std::string& b : best) replaced = replaced || b.starts_with(name);
    if (!replaced) best.push_back(text);
  }
  return best;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Starts `python -c kPyTorchChild` with `end` as its input and output. Returns 0 or an errno.
int spawn(const std::string& python, int end, pid_t& process) {
  std::vector<std::string> words{python, "-c", kPyTorchChild}, variables = environment();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, end, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, end, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const int error = posix_spawnp(&process, python.c_str(), &actions, nullptr,
                                 pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Returns the rest of `line` if it begins with `word` and a space.
std::optional<std::string> after(const std::string& line, std::string_view word) {
  if (!line.starts_with(word) || line.size() <= word.size() || line[word.size()] != ' ') return {};
  return line.substr(word.size() + 1);
}

}  // namespace

PyTorch::PyTorch(std::string python) : python_(std::move(python)) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    trouble_ = std::strerror(errno);
    return;
  }
  socket_ = sys::File(ends[0]);
  const sys::File child(ends[1]);
  if (const int error = spawn(python_, child.fd(), process_); error != 0) {
    process_ = -1;
    end(std::strerror(error));
  }
}

PyTorch::~PyTorch() { end(""); }

std::nullopt_t PyTorch::end(std::string why) {
  trouble_ = std::move(why);
  socket_ = sys::File();
  if (process_ >= 0) {
    kill(process_, SIGKILL);
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  process_ = -1;
  return std::nullopt;
}

std::optional<std::string> PyTorch::read_line() {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + kPatience;
  for (;;) {
    if (const size_t size = received_.find('\n'); size != received_.npos) {
      std::string line = received_.substr(0, size);
      received_.erase(0, size + 1);
      return line;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd waiting{socket_.fd(), POLLIN, 0};
    const int ready = left.count() > 0 ? poll(&waiting, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return end(fmt::format("silent for {} s", kPatience.count()));
    std::array<char, 4096> buffer;
    const ssize_t got = recv(socket_.fd(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return end("its process ended");
    received_.append(buffer.data(), buffer.data() + got);
  }
}

std::optional<double> PyTorch::ask(const std::string& request) {
  if (process_ < 0) return {};
  if (version_.empty()) {
    const auto greeting = read_line();
    if (!greeting) return {};
    const auto version = after(*greeting, "version");
    if (!version) return end(after(*greeting, "none").value_or("said: " + *greeting));
    version_ = *version;
  }
  const std::string line = request + "\n";
  if (send(socket_.fd(), line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size()))
    return end("its process ended");
  const auto answer = read_line();
  if (!answer) return {};
  // PyTorch's threads spin for a while after work and would disturb the next measurement.
  std::this_thread::sleep_for(kSettle);
  const auto seconds = after(*answer, "seconds");
  if (!seconds) {
    trouble_ = fmt::format("{}: {}", request, after(*answer, "failed").value_or(*answer));
    return {};
  }
  return std::strtod(seconds->c_str(), nullptr);
}

}  // namespace sluice::bench
