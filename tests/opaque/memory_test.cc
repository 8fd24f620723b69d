// Tests the memory of the opaque device, and the calls of an open device that copy at once.
#include "memory.h"

#include "opaque_test_util.h"
#include "sluice/cpu/layout/layouts.h"

namespace sluice::opaque {
namespace {

TEST(OpaqueMemory, KillsAHostThatTouchesIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto device = make_device()->open();
  const DeviceAddress at = device->allocate(64);
  const auto* const pointer = reinterpret_cast<const volatile char*>(at.in_device());
  EXPECT_DEATH(static_cast<void>(*pointer), "");
  EXPECT_DEATH(static_cast<void>(pointer[63]), "");
}

TEST(OpaqueMemory, IsGarbageAtFirstAndAlignedToNoMoreThanPromised) {
  Rig rig(Mode::kLazy);
  EXPECT_EQ(rig.read(0, rig.memory(), 64), bytes(64, 0xff));
  EXPECT_EQ(rig.memory().in_device() % kAlignment, 0u);
  EXPECT_NE(rig.memory().in_device() % (2 * kAlignment), 0u);
}

TEST(OpaqueMemory, ChecksBounds) {
  Memory memory;
  const DeviceAddress at = memory.allocate(64);
  EXPECT_NO_THROW(memory.bytes_at(at, 64));
  EXPECT_NO_THROW(memory.bytes_at(at + 60, 4));
  EXPECT_NO_THROW(memory.bytes_at(at + 64, 0));
  for (const auto& [begin, size] : {std::pair<int64_t, int64_t>{-1, 1}, {60, 5}, {65, 0}, {0, -1}})
    EXPECT_NE(error_of([&] { memory.bytes_at(at + begin, size); }).find("must lie in one"),
              std::string::npos);
  EXPECT_THROW(memory.bytes_at({}, 1), Error);
}

TEST(OpaqueMemory, RefusesMoreThanTheSystemHas) {
  Memory memory;
  const std::string error = error_of([&] { memory.allocate(int64_t{1} << 60); });
  EXPECT_NE(error.find("does not fit: the system refuses"), std::string::npos) << error;
}

TEST(OpaqueMemory, PinsMemoryOnce) {
  Rig rig(Mode::kLazy);
  EXPECT_THROW(rig.device().pin({rig.host() + 8, 8}), Error);
  EXPECT_THROW(rig.device().pin({}), Error);
  std::byte more[8];
  EXPECT_NO_THROW(rig.device().pin(more));
}

TEST(OpaqueMemory, ReadsAndWritesElementsInEachLayout) {
  Rig rig(Mode::kLazy);
  const auto target = make_target();
  for (const auto& [text, spec] :
       std::map<std::string, TensorSpec>{{"row", {{3, 5}, f32, {}}},
                                         {"strips16", {{3, 5}, f32, {}}},
                                         {"planes", {{3, 5, 2, 2}, f32, {}}}}) {
    const int64_t size = target->buffer_bytes(spec, parse_layout(text));
    const DeviceAddress at = rig.device().allocate(size);
    HostTensor in(spec), out(spec);
    for (size_t i = 0; i < in.as<float>().size(); ++i) in.as<float>()[i] = static_cast<float>(i);
    rig.device().write(at, spec, text, 0, in.bytes());
    rig.device().read(at, spec, text, 0, out.bytes());
    EXPECT_TRUE(in.same_bits(out)) << text;
    float seventh = 0;
    rig.device().read(at, spec, text, 7, std::as_writable_bytes(std::span(&seventh, 1)));
    EXPECT_EQ(seventh, 7.0f) << text;
  }
  const TensorSpec matrix{{2, 2}, f32, {}};
  std::vector<std::byte> out(16);
  for (const char* wrong : {"panels16", "taps", "tiles4", ""}) {
    const std::string error =
        error_of([&] { rig.device().read(rig.memory(), matrix, wrong, 0, out); });
    EXPECT_TRUE(error.starts_with("usage: layout")) << error;
  }
}

TEST(OpaqueMemory, IsNotHostMemory) {
  Rig rig(Mode::kLazy);
  const std::string error = error_of([&] { rig.device().host_bytes(rig.memory(), 4); });
  EXPECT_NE(error.find("usage: opaque: the host cannot touch"), std::string::npos) << error;
  EXPECT_NE(error.find("read() and write()"), std::string::npos) << error;
}

}  // namespace
}  // namespace sluice::opaque
