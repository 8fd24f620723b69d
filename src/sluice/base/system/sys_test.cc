#include "sluice/base/sys.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "sluice/base/error.h"
#include "sluice/base/failpoint.h"

namespace sluice {
namespace {

// Runs `act` in a child process and returns its status from waitpid.
template <typename F>
int in_child(F act) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      act();
    } catch (const Error& e) {
      ::_exit(e.exit_code());
    }
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

class Sys : public testing::Test {
 protected:
  ~Sys() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      result.push_back(entry.path().filename());
    return result;
  }

  const std::string folder_ = [] {
    const std::string path = testing::TempDir() + "sluice_sys_" + std::to_string(::getpid());
    sys::make_folder(path);
    return path;
  }();
  const std::vector<std::byte> old_ = std::vector<std::byte>(1000, std::byte{1});
  const std::vector<std::byte> new_ = std::vector<std::byte>(100000, std::byte{2});
};

TEST_F(Sys, AProcessThatEndsWhileItWritesLeavesNothing) {
  sys::replace_file(path("file"), old_);
  for (const int signal : {SIGINT, SIGKILL}) {
    const int status = in_child([&] {
      sys::replace_file(path("file"), [&](const sys::File& file, const std::string& name) {
        sys::write_exactly(file, name, 0, new_);
        ::raise(signal);
      });
    });
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), signal);
    EXPECT_EQ(names(), std::vector<std::string>{"file"});
    EXPECT_EQ(sys::read_file(path("file")), old_);
  }
}

// Without nameless files, the new file has a name while it is written. Signals are deferred until
// it has replaced the old file.
TEST_F(Sys, SignalsWaitForAFileThatHasANameFromTheStart) {
  for (const char* refusal : {"open@1=EOPNOTSUPP", "open@1=EINVAL"}) {
    sys::replace_file(path("file"), old_);
    const int status = in_child([&] {
      sys::set_failpoint(sys::parse_failpoint(refusal));
      sys::replace_file(path("file"), [&](const sys::File& file, const std::string& name) {
        if (names().size() != 2) ::_exit(1);
        std::thread([] { ::kill(::getpid(), SIGHUP); }).join();
        sys::write_exactly(file, name, 0, new_);
      });
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << refusal;
    EXPECT_EQ(WTERMSIG(status), SIGHUP);
    EXPECT_EQ(names(), std::vector<std::string>{"file"});
    EXPECT_EQ(sys::read_file(path("file")), new_);
  }
  sys::set_failpoint(sys::parse_failpoint("open@1=EOPNOTSUPP"));
  EXPECT_THROW(sys::replace_file(path("file"),
                                 [](const sys::File&, const std::string&) {
                                   fail(ErrorKind::kIo, "a disk breaks");
                                 }),
               Error);
  sys::clear_failpoint();
  EXPECT_EQ(names(), std::vector<std::string>{"file"});
}

TEST_F(Sys, ASignalAtAnyMomentLeavesTheOldFileOrTheNewOne) {
  int finished = 0;
  for (int i = 0; i < 100; ++i) {
    sys::replace_file(path("file"), old_);
    const pid_t child = ::fork();
    if (child == 0) {
      for (int n = 0; n < 20; ++n) sys::replace_file(path("file"), n % 2 == 0 ? new_ : old_);
      ::_exit(0);
    }
    ::usleep(static_cast<useconds_t>(i * 20));
    ::kill(child, SIGINT);
    int status = -1;
    ::waitpid(child, &status, 0);
    finished += WIFEXITED(status) ? 1 : 0;
    EXPECT_EQ(names(), std::vector<std::string>{"file"}) << i;
    const auto found = sys::read_file(path("file"));
    EXPECT_TRUE(found == old_ || found == new_) << i;
  }
  EXPECT_LT(finished, 100);
}

TEST_F(Sys, TheTargetOfALinkIsReplaced) {
  sys::make_folder(path("folder"));
  std::filesystem::create_symlink("folder/file", path("link"));
  std::filesystem::create_symlink(path("link"), path("link of a link"));
  for (const auto& bytes : {old_, new_}) {  // The first pass creates the target.
    sys::check_replaceable(path("link of a link"));
    sys::replace_file(path("link of a link"), bytes);
    EXPECT_EQ(sys::read_file(path("folder/file")), bytes);
    EXPECT_EQ(std::filesystem::read_symlink(path("link")), "folder/file");
    EXPECT_EQ(std::filesystem::read_symlink(path("link of a link")), path("link"));
  }
  std::filesystem::create_symlink("circle", path("circle"));
  EXPECT_THROW(sys::replace_file(path("circle"), old_), Error);
}

TEST_F(Sys, AFileBesideTheTargetIsNeverReused) {
  const std::string taken = fmt::format("file.{}.0.tmp", ::getpid());
  sys::replace_file(path(taken), old_);
  sys::replace_file(path("file"), new_);
  EXPECT_EQ(sys::read_file(path(taken)), old_);
  EXPECT_EQ(names().size(), 2u);
}

TEST_F(Sys, AFileAtItsSizeLimitIsAnErrorWhereTheSignalIsIgnored) {
  const int status = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    sys::replace_file(path("file"), new_);
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ErrorKind::kIo));
  EXPECT_TRUE(names().empty());
}

TEST_F(Sys, MessagesThatCannotBeWrittenAreDiscarded) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const int full = ::open("/dev/full", O_WRONLY);
  const int limited = ::open(path("log").c_str(), O_WRONLY | O_CREAT, 0600);
  for (const int to : {-1, ends[1], full, limited}) {
    const int status = in_child([&] {
      const rlimit limit{0, 0};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      if (to < 0) {
        ::close(STDERR_FILENO);
      } else {
        ::dup2(to, STDERR_FILENO);
      }
      sys::print_stderr("{} {}\n", "a message", 1);
    });
    EXPECT_TRUE(WIFEXITED(status)) << to << ": signal " << WTERMSIG(status);
  }
  for (const int descriptor : {ends[1], full, limited}) ::close(descriptor);
}

TEST_F(Sys, ClosedStandardDescriptorsAreOpened) {
  const int status = in_child([&] {
    for (const int descriptor : {0, 1, 2}) ::close(descriptor);
    sys::open_standard_descriptors();
    const bool above = ::open("/dev/null", O_RDONLY) > 2;
    char byte = 0;
    const bool nothing = ::read(0, &byte, 1) == 0 && ::write(1, &byte, 1) == 1;
    ::_exit(above && nothing ? 0 : 1);
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace sluice
