// One row for each input that this layer rejects, with the kind and part of the message of the
// error.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include <limits>

#include "sluice/base/attrs.h"
#include "sluice/base/bytes.h"
#include "sluice/base/checked.h"
#include "sluice/base/host_tensor.h"
#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "sluice/base/test_refusals.h"

namespace sluice {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(BaseRefusals, Shapes) {
  const Shape huge{int64_t{1} << 40, int64_t{1} << 40};
  expect_refused({
      {"dtype", [] { dtype_from_name("float8"); }, "unknown dtype 'float8'; known: float32"},
      {"dimension",
       [] {
         Shape({2, 3}).dim(2);
       },
       "axis 2 is outside [-2, 2)"},
      {"dimension from the end",
       [] {
         Shape({2, 3}).dim(-3);
       },
       "axis -3 is outside [-2, 2)"},
      {"dimension of a scalar", [] { Shape().dim(0); }, "axis 0 is outside [0, 0)"},
      {"axis", [] { normalize_axis(int64_t{1} << 40, 2, "sum"); },
       "sum: axis 1099511627776 is outside [-2, 2)"},
      {"elements", [&] { (void)huge.elements(); },
       "size 1099511627776 x 1099511627776 exceeds 63 bits"},
      {"bytes",
       [] {
         (void)TensorSpec{{kMax}, f32, {}}.bytes();
       },
       "size 9223372036854775807 x 4 exceeds 63 bits"},
      {"an array",
       [&] {
         HostTensor t(TensorSpec{huge, f32, {}});
       },
       "exceeds 63 bits"},
      {"broadcast",
       [] {
         broadcast({2, 4}, {3}, "add");
       },
       "add: shapes (2, 4) and (3,) do not broadcast"},
      {"sum", [] { checked_add(kMax, 1); }, "size 9223372036854775807 + 1 exceeds 63 bits"},
      {"sum in a file", [] { checked_add(kMax, 1, ErrorKind::kBadFile); }, "exceeds 63 bits",
       ErrorKind::kBadFile},
      {"product in a file", [] { checked_mul(kMax, 2, ErrorKind::kBadFile); },
       "size 9223372036854775807 x 2 exceeds 63 bits", ErrorKind::kBadFile},
  });
}

TEST(BaseRefusals, HostArrays) {
  const HostTensor t(TensorSpec{{2, 3}, f32, {}});
  expect_refused({
      {"values",
       [] {
         HostTensor::of<float>({2, 2}, f32, {1, 2, 3});
       },
       "array (2, 2) needs 4 values, got 3"},
      {"a negative dimension",
       [] {
         HostTensor negative({{2, -1}, f32, {}});
       },
       "array: dimensions must be at least 0, got shape (2, -1)"},
      {"more memory than an address space",
       [] {
         HostTensor large({{int64_t{1} << 50}, u8, {}});
       },
       "array: (1125899906842624,) uint8 needs 1125899906842624 bytes, which the system refuses",
       ErrorKind::kDoesNotFit},
      {"another type", [] { HostTensor::of<int32_t>({1}, f32, {1}); },
       "array is float32: must be read as the C++ type that stores this dtype"},
      {"seen as", [&] { (void)t.as<int64_t>(); }, "array is float32"},
      {"reshape", [&] { (void)t.reshaped({7}); },
       "array (2, 3): the new shape must have 6 elements, got (7,)"},
  });
}

struct Numbers {
  int64_t a = 0;
  double b = 0;
  static auto fields(auto&& use) { return use(field("a", &Numbers::a), field("b", &Numbers::b)); }
};

TEST(BaseRefusals, Options) {
  const auto parse = [](const char* text) { return [=] { parse_attrs(text); }; };
  const auto read = [](const char* text) {
    return [=] { from_attrs<Numbers>(parse_attrs(text)); };
  };
  expect_refused({
      {"no name", parse("=1"), "'name=value' expected at '=1'"},
      {"no value", parse("a=1 b"), "'name=value' expected at 'b'"},
      {"nothing after =", parse("a="), "a value is missing"},
      {"no dtype", parse("a=float8"), "unknown dtype 'float8'"},
      {"integer", parse("a=12x"), "'12x' is not an integer"},
      {"integer beyond 64 bits", parse("a=9223372036854775808"), "is not an integer"},
      {"number", parse("a=1.5.2"), "'1.5.2' is not a number"},
      {"list without an end", parse("a=[1,2"), "']' is missing"},
      {"hole in a list", parse("a=[1,,2]"), "a value is missing"},
      {"word in a list", parse("a=[1,x]"), "'x' is not an integer"},
      {"mixed list", parse("a=[1,2.0]"), "a list must not mix integers and floating-point"},
      {"string without an end", parse("a=\"x"), "text ends inside a string"},
      {"string that ends in \\", parse("a=\"x\\"), "text ends inside a string"},
      {"missing field", read("a=1"), "the next field must be 'b', got 'nothing'"},
      {"wrong order", read("b=1.0 a=1"), "the next field must be 'a', got 'b'"},
      {"wrong type", read("a=1 b=2"), "field 'b' has the wrong type, got b=2"},
      {"unknown field", read("a=1 b=2.0 c=3"), "unknown field 'c'"},
  });
}

TEST(BaseRefusals, Bytes) {
  const std::byte bytes[3]{};
  ByteReader reader("f.bin", bytes);
  reader.u8("the kind");
  expect_refused({
      {"too few", [&] { reader.u32_be("the size"); },
       "f.bin: byte 1: the size needs 4 bytes, 2 are left in the file", ErrorKind::kBadFile},
      {"a negative count", [&] { reader.take(-1, "the data"); },
       "f.bin: byte 1: the data needs -1 bytes", ErrorKind::kBadFile},
  });
  EXPECT_EQ(reader.remaining(), 2);
}

TEST(BaseRefusals, WritingSafetensors) {
  const auto write = [](std::vector<NamedArray> arrays, SafetensorsMetadata metadata = {}) {
    return [=] { write_safetensors(arrays, metadata); };
  };
  HostTensor odd(TensorSpec{{1}, boolean, {}});
  odd.bytes()[0] = std::byte{2};
  expect_refused({
      {"twice", write({{"a", HostTensor::scalar(1)}, {"a", HostTensor::scalar(2)}}),
       "the name 'a' appears twice"},
      {"reserved", write({{"__metadata__", HostTensor::scalar(1)}}),
       "the name '__metadata__' is reserved"},
      {"name", write({{"\xff", HostTensor::scalar(1)}}), "must be UTF-8"},
      {"metadata", write({}, {{"k", "\xc0\x80"}}), "must be UTF-8"},
      {"a bool of 2", write({{"odd", odd}}), "the bools of 'odd' must be 0 or 1"},
      {"a large header", write({{std::string(100'000'001, 'n'), HostTensor::scalar(1)}}),
       "must have at most 100000000 bytes"},
  });
}

// Binds a socket to a path. The path still exists after the socket is closed.
std::string make_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  SLUICE_CHECK(path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const sys::File socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  EXPECT_EQ(::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return path;
}

TEST(BaseRefusals, TheSystemRefuses) {
  const std::string folder = testing::TempDir() + "sluice_refusals_" + std::to_string(::getpid());
  sys::make_folder(folder);
  sys::make_folder(folder);  // An existing folder is fine.
  const std::string file = folder + "/file";
  const std::byte bytes[8]{};
  sys::replace_file(file, bytes);
  const std::string pipe = folder + "/pipe";
  ::mkfifo(pipe.c_str(), 0600);
  const std::string socket = make_socket(folder + "/socket");
  const ErrorKind io = ErrorKind::kIo, bad = ErrorKind::kBadFile;
  expect_refused({
      {"open", [&] { sys::read_file(folder + "/none"); },
       "cannot open " + folder + "/none: No such file or directory", io},
      {"a folder", [&] { sys::read_file(folder); },
       "cannot read " + folder + ": must be a regular file, got a folder", bad},
      {"a device", [] { sys::read_file("/dev/zero"); },
       "cannot read /dev/zero: must be a regular file, got a device", bad},
      {"a pipe that nobody writes", [&] { sys::read_file(pipe); },
       "cannot read " + pipe + ": must be a regular file, got a pipe", bad},
      {"a socket", [&] { sys::read_file(socket); },
       "cannot read " + socket + ": must be a regular file, got a socket", bad},
      {"no folder", [&] { sys::check_folder(file); },
       "cannot read " + file + ": must be a folder, got a file", bad},
      {"a short file",
       [&] {
         std::byte out[4];
         sys::read_exactly(sys::open_for_read(file), file, 6, out);
       },
       "it ends at byte 8, 2 more were expected", io},
      {"read",
       [&] {
         std::byte out[4];
         sys::read_exactly(sys::File(::open(file.c_str(), O_WRONLY)), file, 0, out);
       },
       "cannot read " + file + ": Bad file descriptor", io},
      {"create", [&] { sys::replace_file(folder + "/no/file", bytes); },
       "cannot create " + folder + "/no/file: No such file or directory", io},
      {"replace", [&] { sys::replace_file(folder, bytes); },
       "cannot replace " + folder + ": must be a regular file, got a folder", io},
      {"replace a pipe", [&] { sys::replace_file(pipe, bytes); },
       "cannot replace " + pipe + ": must be a regular file, got a pipe", io},
      {"a pipe is not replaceable", [&] { sys::check_replaceable(pipe); },
       "cannot replace " + pipe + ": must be a regular file, got a pipe", io},
      {"nor what is in no folder", [&] { sys::check_replaceable(folder + "/no/file"); },
       "cannot create " + folder + "/no/file", io},
      {"sync", [] { sys::sync(sys::File(::open("/dev/null", O_WRONLY)), "/dev/null"); },
       "cannot sync /dev/null", io},
      {"examine", [] { sys::size(sys::File(), "closed"); }, "cannot examine closed", io},
      {"make a folder", [&] { sys::make_folder(folder + "/no/folder"); },
       "cannot make folder " + folder + "/no/folder", io},
  });
  if (sys::exists("/dev/full")) {
    expect_refused({
        {"a full disk",
         [&] {
           sys::write_exactly(sys::File(::open("/dev/full", O_WRONLY)), "/dev/full", 0, bytes);
         },
         "cannot write /dev/full: No space left on device", io},
    });
  }
  ::unlink(file.c_str());
  ::unlink(pipe.c_str());
  ::unlink(socket.c_str());
  EXPECT_EQ(::rmdir(folder.c_str()), 0) << "a temporary file was left";
}

}  // namespace
}  // namespace sluice
