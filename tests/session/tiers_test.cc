// Tests the ways to access remote memory: throttled, without the page cache, with checksums. The
// bits are those of host memory.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "../support/mlp.h"
#include "sluice/base/failpoint.h"
#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "sluice/base/test_refusals.h"
#include "sluice/check/checker.h"
#include "sluice/compiler/compile.h"
#include "sluice/exe/memory_needs.h"
#include "sluice/exe/text.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

constexpr int64_t kEntries = 2;

// Large entries need several pieces of staging memory and many checksums, and do not end on a page.
// Small entries are less than a page. Each replica loads, changes and stores all of them.
struct TieredProgram {
  explicit TieredProgram(IoMode mode, int replicas = 1) : ir(replicas) {
    Graph& main = ir.main_graph();
    in = ir.h2d_stream(f32_spec({}), "x");
    const Tensor x = main.host_load(in);
    Tensor sum = x;
    const Graph::IoScope io(main, mode);
    for (const Shape& shape : {Shape{301, 1003}, Shape{10}}) {
      const RemoteBuffer buffer = ir.remote_buffer({shape, f32, {}}, kEntries);
      for (int64_t k = 0; k < kEntries; ++k) {
        VariableInfo info;
        info.path = fmt::format("w{}", variables.size());
        info.initializer =
            Initializer::normal(0, 1).keyed({5, static_cast<uint32_t>(variables.size())});
        info.location = {buffer.id, k};
        variables.push_back(main.variable({shape, f32, {}}, info, info.path));
        const Tensor w = main.remote_load(buffer, k) * 0.5 + x;
        main.remote_store(buffer, k, w);
        sum = sum + ops::sum(w);
        bytes += 2 * replicas * w.spec().bytes();
      }
    }
    out = main.host_store(sum, "sum");
  }
  HostTensor input(int replicas = 1) const {
    HostTensor x({entries_shape({}, 1, replicas), f32, {}});
    for (size_t r = 0; r < x.as<float>().size(); ++r)
      x.as<float>()[r] = 0.25f * static_cast<float>(r + 1);
    return x;
  }

  Ir ir;
  H2dStream in;
  D2hStream out;
  Tensors variables;
  int64_t bytes = 0;  // Bytes that a run transfers in all replicas.
};

class Folder {
 public:
  Folder() { sys::make_folder(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string remote() const { return "file:" + path; }
  bool supports_direct_io() const { return sys::can_bypass_page_cache(path); }
  // Flips a bit at `offset` of the scratch file in the folder, which has no name.
  void damage(int64_t offset) const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
      if (!target.starts_with(path)) continue;
      const int fd = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
      char byte = 0;
      ASSERT_EQ(::pread(fd, &byte, 1, offset), 1);
      byte = static_cast<char>(byte ^ 4);
      ASSERT_EQ(::pwrite(fd, &byte, 1, offset), 1);
      ::fsync(fd);
      ::close(fd);
      return;
    }
    FAIL() << "no file in " << path;
  }

  const std::string path = testing::TempDir() + "sluice_tiers_" + std::to_string(::getpid());
};

using Access = std::tuple<bool, bool, IoMode, int>;  // Direct, verified, io mode, replicas.

class FileAccess : public testing::TestWithParam<Access> {};

TEST_P(FileAccess, HasTheBitsOfHostMemoryAndThePlannedBytes) {
  const auto& [direct, verify, mode, replicas] = GetParam();
  const Folder folder;
  if (direct && !folder.supports_direct_io())
    GTEST_SKIP() << "requires O_DIRECT in " << folder.path << "; set TMPDIR to a disk's folder";
  const TieredProgram p(mode, replicas);
  const HostTensor x = p.input(replicas);
  Session expected(p.ir, {.device = cpu_device({.threads = 2})});
  Session session(p.ir, {.device = cpu_device({.threads = 2}),
                         .remote = folder.remote(),
                         .remote_direct = direct,
                         .verify_remote = verify});
  const exe::Executable& plan = session.executable();
  EXPECT_EQ(exe::parse_text(exe::to_text(plan), "plan"), plan);
  for (int step = 0; step < 3; ++step) {
    EXPECT_TRUE(session.run({{p.in, x}})[p.out].same_bits(expected.run({{p.in, x}})[p.out]));
    // Also read and write parts of entries, at arbitrary elements.
    for (const Tensor& w : p.variables) {
      const int64_t n = w.spec().elements();
      HostTensor part(f32_spec({n / 3}));
      expected.read_chunk(w, n / 5, n / 3, part.bytes());
      for (float& v : part.as<float>()) v += 1;
      expected.write_chunk(w, n / 7, part.bytes());
      session.write_chunk(w, n / 7, part.bytes());
      HostTensor found(part.spec());
      session.read_chunk(w, n / 7, n / 3, found.bytes());
      EXPECT_TRUE(found.same_bits(part));
      EXPECT_TRUE(session.read(w).same_bits(expected.read(w))) << w.name();
    }
  }
  int64_t host = 0;
  for (const exe::MemoryNeeds& m : exe::memory_needs(plan)) {
    if (m.name == "tier host") host = m.total_bytes;
  }
  // 301 x 1003 floats are 1,207,612 bytes, that is 19 pieces.
  EXPECT_EQ(host, replicas * ((direct ? 1 << 20 : 0) + (verify ? 8 * kEntries * (19 + 1) : 0)));
  EXPECT_EQ(session.measured_bytes(), session.planned_bytes());
}

INSTANTIATE_TEST_SUITE_P(All, FileAccess,
                         testing::Combine(testing::Bool(), testing::Bool(),
                                          testing::Values(IoMode::kCompute, IoMode::kIo,
                                                          IoMode::kIoOverlapped),
                                          testing::Values(1, 2)));

TEST(Checksums, FindWhatChangedBehindTheProgramsBack) {
  const TieredProgram p(IoMode::kIo);
  const HostTensor x = p.input();
  for (const bool direct : {false, true}) {
    const Folder folder;
    if (direct && !folder.supports_direct_io()) continue;
    const SessionOptions options{.device = cpu_device({.threads = 2}),
                                 .remote = folder.remote(),
                                 .remote_direct = direct,
                                 .verify_remote = true};
    Session session(p.ir, options);
    session.run({{p.in, x}});
    // Byte 70,000 of the second entry of the first buffer.
    const exe::RemoteBufferPlan& buffer = session.executable().remote_buffers[exe::BufferId(0)];
    const int64_t at = buffer.offset + buffer.entry_stride + 70000;
    const std::string text = "a file in " + folder.path +
                             ": bytes [65536, 131072) of an entry differ from the bytes written";
    folder.damage(at);
    const std::string run = error_of(ErrorKind::kIo, [&] { session.run({{p.in, x}}); });
    EXPECT_THAT(run, testing::AllOf(testing::HasSubstr(text),
                                    testing::HasSubstr("loading entry 1 of remote buffer remote1"),
                                    testing::HasSubstr("running RemoteLoad")));
    const std::string read = error_of(ErrorKind::kIo, [&] { session.read(p.variables[1]); });
    EXPECT_THAT(read, testing::AllOf(testing::HasSubstr(text),
                                     testing::HasSubstr("entry 1 of remote buffer remote1")));
    // The error also occurs if only a part of the piece is read or written.
    HostTensor some(f32_spec({3}));
    error_of(ErrorKind::kIo, [&] { session.read_chunk(p.variables[1], 20000, 3, some.bytes()); });
    error_of(ErrorKind::kIo, [&] { session.write_chunk(p.variables[1], 20000, some.bytes()); });
    // Other pieces are still correct, and writing a new value repairs the damaged one.
    session.read_chunk(p.variables[1], 1000, 3, some.bytes());
    session.write(p.variables[1], HostTensor(p.variables[1].spec()));
    session.run({{p.in, x}});
  }
}

TEST(Checksums, WithoutThemNothingIsFound) {
  const TieredProgram p(IoMode::kIo);
  const Folder folder;
  Session session(p.ir, {.device = cpu_device(), .remote = folder.remote()});
  folder.damage(70000);
  session.run({{p.in, p.input()}});
}

TEST(Tiers, VariablesAreSavedAndLoadedInParts) {
  const TieredProgram p(IoMode::kIo, 2);
  const Folder folder;
  const std::string path = folder.path + "/w.safetensors";
  Session session(p.ir, {.device = cpu_device(), .remote = folder.remote(), .verify_remote = true});
  session.run({{p.in, p.input(2)}});
  session.save(path);
  std::vector<NamedArray> all;
  session.each_variable([&](const std::string& name, HostTensor value) {
    all.push_back({name, std::move(value)});
  });
  EXPECT_EQ(sys::read_file(path), write_safetensors(all));
  Session other(p.ir, {.device = cpu_device({.threads = 2})});
  EXPECT_TRUE(other.load(path).empty());
  for (const Tensor& w : p.variables)
    EXPECT_TRUE(other.read(w).same_bits(session.read(w))) << w.name();
}

double seconds_of_run(Session& session, const TieredProgram& p, const HostTensor& x,
                      HostTensor& out) {
  Binding binding = session.bind({{p.in, x}}, {{p.out, out}});
  const auto begin = std::chrono::steady_clock::now();
  session.run_into(binding);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The rate is the contract, so that time is compared. Another load of the machine only adds to it.
TEST(Throttle, TransfersOfAllReplicasTogetherTakeTheTimeOfTheirBytes) {
  constexpr int64_t kBandwidth = 100'000'000;
  for (const IoMode mode : {IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}) {
    for (const int replicas : {1, 2}) {
      const Folder folder;
      for (const std::string& remote : {std::string("host"), folder.remote()}) {
        const TieredProgram p(mode, replicas);
        const HostTensor x = p.input(replicas);
        HostTensor want({entries_shape({}, 1, replicas), f32, {}}), got(want.spec());
        Session expected(p.ir, {.device = cpu_device({.threads = 2})});
        Session session(p.ir, {.device = cpu_device({.threads = 2}),
                               .remote = remote,
                               .remote_bandwidth = kBandwidth});
        for (int step = 0; step < 2; ++step) {
          seconds_of_run(expected, p, x, want);
          EXPECT_GE(seconds_of_run(session, p, x, got), static_cast<double>(p.bytes) / kBandwidth);
          EXPECT_TRUE(got.same_bits(want));
        }
      }
    }
  }
}

TEST(Throttle, AnErrorEndsTheWait) {
  const Folder folder;
  for (const IoMode mode : {IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}) {
    const TieredProgram p(mode, 2);
    const HostTensor x = p.input(2);
    HostTensor out(f32_spec({2}));
    Session session(p.ir, {.device = cpu_device({.threads = 2}),
                           .remote = folder.remote(),
                           .remote_bandwidth = 1});  // A run would take days.
    sys::set_failpoint(sys::parse_failpoint("pread@2=EIO"));
    // One replica sleeps while the other one fails. A sleep that does not end hangs.
    error_of(ErrorKind::kIo, [&] { seconds_of_run(session, p, x, out); });
    sys::clear_failpoint();
  }
}

TEST(Tiers, Refusals) {
  const TieredProgram p(IoMode::kCompute);
  const auto with = [&](SessionOptions options) {
    options.device = cpu_device();
    return [&p, options] { Session(p.ir, options); };
  };
  const Folder folder;
  expect_refused({
      {"no bytes", with({.remote_bandwidth = 0}),
       "session: remote_bandwidth: must be none or bytes from 1 to "},
      {"fewer", with({.remote_bandwidth = -2}), "got '-2'"},
      {"direct", with({.remote_direct = true}),
       "session: remote_direct requires remote file:DIR (it is host)"},
      {"checksums", with({.verify_remote = true}),
       "session: verify_remote requires remote file:DIR (it is host)"},
  });
  sys::set_failpoint(sys::parse_failpoint("fcntl@1=EINVAL"));
  expect_refused(
      {{"a file system in memory", with({.remote = folder.remote(), .remote_direct = true}),
        "cannot bypass the page cache (O_DIRECT) for a file in " + folder.path, ErrorKind::kIo}});
  sys::clear_failpoint();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST(Tiers, DamagedPlansAreRejected) {
  const TieredProgram p(IoMode::kIo);
  const Compiled compiled = compile(p.ir, compile_options({.device = cpu_device(),
                                                           .remote = "file:/tmp",
                                                           .remote_direct = true,
                                                           .verify_remote = true}));
  const auto arena = [](exe::Executable& e, exe::ArenaKind kind) -> exe::Arena& {
    return *std::find_if(e.arenas.begin(), e.arenas.end(),
                         [&](const exe::Arena& a) { return a.kind == kind; });
  };
  const auto rejected = [&](const char* text, auto damage) {
    exe::Executable e = compiled.executable;
    damage(e);
    std::string found;
    for (const check::Violation& v : check::violations(e)) {
      if (v.rule == "remote") found += v.message + "\n";
    }
    EXPECT_THAT(found, testing::HasSubstr(text));
  };
  EXPECT_TRUE(check::violations(compiled.executable).empty());
  using exe::ArenaKind;
  rejected("'staging' must have a multiple of 4096 bytes of host memory, got 0 bytes of host",
           [&](exe::Executable& e) { arena(e, ArenaKind::kStaging).bytes = 0; });
  rejected("got 5000 bytes",
           [&](exe::Executable& e) { arena(e, ArenaKind::kStaging).bytes = 5000; });
  rejected("bytes of device memory",
           [&](exe::Executable& e) { arena(e, ArenaKind::kStaging).space = exe::Space::kDevice; });
  rejected("'checksums' must have at least 320 bytes of host memory, got 319 bytes",
           [&](exe::Executable& e) { arena(e, ArenaKind::kChecksums).bytes -= 1; });
  rejected("'remote2': direct transfers require an offset and a stride of whole pages",
           [&](exe::Executable& e) { e.remote_buffers[exe::BufferId(1)].entry_stride = 64; });
}

}  // namespace
}  // namespace sluice::test
