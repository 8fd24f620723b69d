#include "sluice/base/failpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "sluice/base/sys.h"
#include "sluice/base/test_refusals.h"

namespace sluice {
namespace {

class Failpoints : public testing::Test {
 protected:
  ~Failpoints() override {
    sys::clear_failpoint();
    std::filesystem::remove_all(folder_);
  }
  void arm(const std::string& text) { sys::set_failpoint(sys::parse_failpoint(text)); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  const std::string folder_ = [] {
    const std::string path = testing::TempDir() + "sluice_failpoints_" + std::to_string(::getpid());
    sys::make_folder(path);
    return path;
  }();
  const std::vector<std::byte> bytes_ = std::vector<std::byte>(1000, std::byte{7});
};

TEST_F(Failpoints, EveryCallOfAFileThatIsReplacedMayFail) {
  sys::replace_file(path("file"), bytes_);
  int64_t number = 0;
  for (bool failed = true; failed;) {
    sys::set_failpoint({.number = ++number, .code = EIO});
    failed = false;
    try {
      sys::replace_file(path("file"), bytes_);
    } catch (const Error& e) {
      failed = true;
      EXPECT_EQ(e.kind(), ErrorKind::kIo);
      EXPECT_NE(std::string(e.what()).find(path("file")), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("Input/output error"), std::string::npos) << e.what();
    }
    sys::clear_failpoint();
    EXPECT_EQ(sys::read_file(path("file")), bytes_) << "the old file or the new one";
    for (const auto& left : std::filesystem::directory_iterator(path("")))
      EXPECT_EQ(left.path().filename(), "file");
  }
  EXPECT_EQ(number, 6) << "open, pwrite, fdatasync, linkat and rename";
}

TEST_F(Failpoints, InterruptedAndShortCallsGoOn) {
  for (const char* text : {"any@1=EINTR", "any@2=EINTR", "any@3=EINTR", "any@4=EINTR",
                           "any@5=EINTR", "pwrite@1=short", "pwrite@2=short"}) {
    arm(text);
    sys::replace_file(path("file"), bytes_);
    EXPECT_GE(sys::failpoint_calls(), 1) << text;
  }
  for (const char* text :
       {"open@1=EINTR", "fstat@1=EINTR", "fstat@2=EINTR", "pread@1=EINTR", "pread@1=short"}) {
    arm(text);
    EXPECT_EQ(sys::read_file(path("file")), bytes_) << text;
  }
  for (const char* text : {"mkostemp@1=EINTR", "fallocate@1=EINTR"}) {
    arm(text);
    const sys::File file = sys::scratch_file(folder_, 4096);
    sys::write_exactly(file, "scratch", 0, bytes_);
  }
}

TEST_F(Failpoints, AFileSystemMayRefuseToGoPastThePageCache) {
  arm("fcntl@1=EINVAL");
  expect_refused(
      {{"tmpfs and others", [&] { sys::scratch_file(folder_, 4096, sys::PageCache::kBypass); },
        "cannot bypass the page cache (O_DIRECT) for a file in " + folder_ +
            ": Invalid argument; choose a folder on a disk",
        ErrorKind::kIo}});
  arm("fcntl@1=EINVAL");
  EXPECT_FALSE(sys::can_bypass_page_cache(folder_));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Failpoints, NoSpaceIsRefusedAtTheStart) {
  arm("fallocate@1=ENOSPC");
  expect_refused({{"a full disk", [&] { sys::scratch_file(folder_, 4096); },
                   "cannot allocate 4096 bytes for a file in " + folder_ + ": No space left",
                   ErrorKind::kIo}});
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Failpoints, Refusals) {
  for (const char* text : {"", "pread", "pread@0=EIO", "pread@x=EIO", "pread@1", "pread@1=EWHAT",
                           "unknown@1=EIO", "pread=EIO@1"}) {
    expect_refused({{text, [&] { sys::parse_failpoint(text); },
                     std::string("failpoint: must be CALL@NUMBER=CODE, got '") + text + "'"}});
  }
}

}  // namespace
}  // namespace sluice
