// Errors of a session for wrong calls: options, streams and arrays of a run, variables, files.

#include <unistd.h>

#include <filesystem>

#include "sluice/base/safetensors.h"
#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/session/session.h"
#include "sluice/sluice.h"

namespace sluice {
namespace {

HostTensor zeros(Shape shape, DType dtype = f32) {
  return HostTensor({std::move(shape), dtype, {}});
}

// Program y = w·x with two entries, and a second program that reads another stream.
class SessionRefusals : public testing::Test {
 protected:
  SessionRefusals() { std::filesystem::create_directories(folder); }
  ~SessionRefusals() override { std::filesystem::remove_all(folder); }

  static DeviceChoice one_thread() { return cpu_device({.threads = 1}); }
  std::function<void()> run(std::vector<StreamInput> inputs, std::string entry = "main") {
    return [this, inputs, entry] { session.run(inputs, entry); };
  }
  std::function<void()> load(const std::string& name, const std::vector<NamedArray>& arrays) {
    const std::string path = folder + "/" + name;
    write_safetensors_file(path, arrays);
    return [this, path] { session.load(path); };
  }

  Ir ir;
  Graph& main = ir.main_graph();
  H2dStream x = ir.h2d_stream(f32_spec({2}), "x");
  H2dStream z = ir.h2d_stream(f32_spec({2}), "z");
  D2hStream y = ir.d2h_stream(f32_spec({2}), "y");
  D2hStream other_y = ir.d2h_stream(f32_spec({2}), "other_y");
  Tensor w = main.variable(zeros({2}), "w");
  bool built = [this] {
    for (int i = 0; i < 2; ++i) main.host_store(y, w * main.host_load(x));
    Graph& other = ir.entry_graph("other");
    other.host_store(other_y, other.host_load(z));
    return true;
  }();
  Session session{ir, {.device = one_thread()}};
  HostTensor two = zeros({2, 2});
  std::string folder = testing::TempDir() + "sluice_session_refusals_" + std::to_string(::getpid());
};

TEST_F(SessionRefusals, Devices) {
  expect_refused({
      {"planned bytes", [this] { (void)session.planned_bytes(-1); },
       "session: device must be in [0, 1), got -1"},
      {"measured bytes", [this] { (void)session.measured_bytes(100000); },
       "session: device must be in [0, 1), got 100000"},
  });
}

TEST_F(SessionRefusals, Options) {
  const auto open = [this](SessionOptions options) {
    return [=, this] { Session s(ir, options); };
  };
  DeviceChoice idle = one_thread();
  idle.threads = -1;
  DeviceChoice crowded = one_thread();
  crowded.threads = 1025;
  DeviceChoice owing = one_thread();
  owing.memory = -2;
  DeviceChoice planned = one_thread();
  planned.device = nullptr;
  expect_refused({
      {"memory", [] { cpu_device({.memory = -2}); },
       "cpu device: memory must be at least 0 bytes, or -1 for no budget, got -2"},
      {"threads", [] { cpu_device({.threads = -1}); },
       "cpu device: threads must be at least 0, got -1"},
      {"no worker", open({.device = idle}),
       "session: device.threads: must be an integer from 0 to 1024, got '-1'"},
      {"many workers", open({.device = crowded}),
       "session: device.threads: must be an integer from 0 to 1024, got '1025'"},
      {"a negative budget", open({.device = owing}),
       "session: device.memory: must be none or bytes from 0 to "},
      {"a negative budget of remote memory", open({.device = one_thread(), .remote_memory = -2}),
       "session: remote_memory: must be none or bytes from 0 to "},
      {"nothing to run on", open({.device = planned}),
       "session: device 0 must have a target and a device"},
      {"an empty device", open({.device = one_thread(), .more_devices = {DeviceChoice()}}),
       "session: device 1 must have a target and a device; use cpu_device()"},
  });
}

TEST_F(SessionRefusals, Runs) {
  const H2dStream foreign = Ir().h2d_stream(f32_spec({2}), "foreign");
  const HostTensors results = session.run({{x, two}});
  expect_refused({
      {"program", run({}, "nosuch"), "no program 'nosuch'; there are: main, other"},
      {"nothing", run({}), "Missing input: x; program 'main' expects: x; given: none"},
      {"another's stream", run({{x, two}, {z, two}}),
       "Unexpected input: z; program 'main' expects: x; given: x, z"},
      {"twice", run({{x, two}, {x, two}}), "stream 'x' is given twice"},
      {"another Ir", run({{foreign, two}}), "stream 'foreign' belongs to another Ir"},
      {"dtype", run({{x, zeros({2, 2}, i32)}}),
       "stream 'x': the array must be float32, got int32; cast it with HostTensor::cast"},
      {"entries", run({{x, zeros({2})}}),
       "the program uses 2 entries of (2,), so the array must be (2, 2), got (2,)"},
      {"no memory", run({{x, ConstArrayView({{2, 2}, f32, {}}, nullptr)}}),
       "stream 'x': the array must have memory, got a null pointer"},
      {"a result that was not asked for", [&] { results[other_y]; },
       "results: the run wrote nothing to stream 'other_y'"},
  });
}

TEST_F(SessionRefusals, Bindings) {
  HostTensor out = zeros({2, 2});
  HostTensor flat = zeros({4});
  Session another(ir, {.device = one_thread()});
  Binding others = another.bind({{x, two}}, {{y, out}});
  Binding none;
  const auto bind = [this](std::vector<StreamOutput> outputs) {
    return [=, this] { (void)session.bind({{x, two}}, outputs); };
  };
  expect_refused({
      {"no output", bind({}), "Missing output: y; program 'main' expects: y; given: none"},
      {"another's output", bind({{y, out}, {other_y, out}}), "Unexpected output: other_y"},
      {"shape", bind({{y, flat}}), "stream 'y': Shape mismatch: the program uses 2 entries"},
      {"no memory", bind({{y, ArrayView({{2, 2}, f32, {}}, nullptr)}}),
       "stream 'y': the array must have memory, got a null pointer"},
      {"of another session", [&] { session.run_into(others); },
       "run: the binding was not made by this session"},
      {"empty", [&] { session.run_into(none); }, "run: the binding was not made by this session"},
      {"interleaved", [&] { session.run_interleaved(none, 1); }, "was not made by this session"},
  });
}

TEST_F(SessionRefusals, Variables) {
  Ir other;
  const Tensor foreign = other.main_graph().variable(zeros({2}), "foreign");
  const Tensor loaded = main.handle(main.ops()[1].outputs[0]);
  std::vector<std::byte> bytes(12);
  const auto read = [&](int64_t begin, int64_t count) {
    return [&, begin, count] { session.read_chunk(w, begin, count, bytes); };
  };
  expect_refused({
      {"of another Ir", [&] { session.read(foreign); },
       "tensor 'foreign' is not a variable of this session"},
      {"no variable", [&] { session.read(loaded); },
       "tensor 'x' is not a variable of this session"},
      {"empty", [&] { session.read(Tensor()); }, "tensor: the handle is empty"},
      {"dtype", [&] { session.write(w, zeros({2}, i32)); },
       "variable 'w': the array must be float32, got int32"},
      {"shape", [&] { session.write(w, zeros({3})); },
       "variable 'w': the array must be (2,), got (3,)"},
      {"no memory", [&] { session.write(w, ConstArrayView(f32_spec({2}), nullptr)); },
       "variable 'w': the array must have memory, got a null pointer"},
      {"beyond", read(1, 2), "variable 'w': elements [1, 3) are outside its 2"},
      {"before", read(-1, 1), "variable 'w': elements [-1, 0) are outside its 2"},
      {"less than none", read(0, -1), "variable 'w': elements [0, -1) are outside its 2"},
      {"another size", read(0, 2),
       "variable 'w': the buffer must have 8 bytes for 2 elements, got 12"},
      {"written beyond", [&] { session.write_chunk(w, 0, bytes); },
       "variable 'w': 12 bytes at element 0 are outside its 2 elements"},
      {"half an element", [&] { session.write_chunk(w, 0, std::span(bytes).first(6)); },
       "variable 'w': 6 bytes at element 0"},
  });
}

TEST_F(SessionRefusals, Files) {
  const ErrorKind bad = ErrorKind::kBadFile;
  expect_refused({
      {"another shape", load("shape", {{"w", zeros({3})}}),
       "shape: 'w' must be (2,) float32, got (3,) float32", bad},
      {"another dtype", load("dtype", {{"w", zeros({2}, i32)}}),
       "dtype: 'w' must be (2,) float32, got (2,) int32", bad},
      {"nothing of it", load("missing", {{"v", zeros({2})}}), "missing: variable 'w' is missing",
       bad},
      {"no file", [&] { session.load(folder + "/none"); }, "cannot open " + folder + "/none",
       ErrorKind::kIo},
      {"a folder", [&] { session.load(folder); },
       "cannot read " + folder + ": must be a regular file, got a folder", ErrorKind::kBadFile},
      {"no folder to save to", [&] { session.save(folder + "/no/file"); },
       "cannot create " + folder + "/no/file", ErrorKind::kIo},
  });
}

}  // namespace
}  // namespace sluice
