#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sluice/base/safetensors.h"
#include "sluice/compiler/compile.h"
#include "sluice/ir/ir.h"
#include "sluice/runtime/executor.h"

namespace sluice {

/// A device to run on: what compiles for it, what runs it, and its limits.
struct DeviceChoice {
  std::shared_ptr<const Target> target;
  std::shared_ptr<runtime::Device> device;
  int64_t memory = -1;  ///< Budget in bytes; -1: none.
  int threads = 1;
};

struct CpuOptions {
  int64_t memory = -1;  ///< Budget of device memory in bytes; -1: none.
  int threads = 0;      ///< Workers; 0: as many as there are usable cores.
};

/// The CPU as a device.
DeviceChoice cpu_device(const CpuOptions& options = {});

/// KiB, MiB and GiB in bytes: 4_MiB.
constexpr int64_t operator""_KiB(unsigned long long n) { return static_cast<int64_t>(n) << 10; }
constexpr int64_t operator""_MiB(unsigned long long n) { return static_cast<int64_t>(n) << 20; }
constexpr int64_t operator""_GiB(unsigned long long n) { return static_cast<int64_t>(n) << 30; }

/// The folder of remote memory in "file:FOLDER"; empty for "host". Error{kUsage} for anything else.
std::string remote_folder(const std::string& remote);

struct SessionOptions {
  DeviceChoice device = {};                     ///< Device 0; default: cpu_device().
  std::vector<DeviceChoice> more_devices = {};  ///< Devices 1 and up, with as many threads.
  /// The processes that share the replicas evenly (comm/mpi_group.h); null: this one runs all. Each makes the same calls on
  /// its session, with arrays of all replicas, and gets the same results.
  std::shared_ptr<runtime::ProcessGroup> group = nullptr;
  std::string remote = "host";  ///< Where remote buffers lie: "host", or "file:FOLDER".
  int64_t remote_memory = -1;   ///< Budget of that tier in bytes; -1: none.
  /// Bytes a second that programs move there and back at most, all replicas together; -1: as many as go.
  int64_t remote_bandwidth = -1;
  bool remote_direct = false;  ///< Files go past the system's page cache (O_DIRECT).
  bool verify_remote = false;  ///< Checksums of what files hold, checked whenever it is read.
  int io_queues = 1;  ///< For transfers beside the work: 0, 1, or 3 (loads, stores, prefetches).
  std::vector<std::string> disable = {};  ///< Optional compiler passes to leave out.
  std::string print_after = {};           ///< A pass whose result goes to stderr, or "all".
  enum class Proof : uint8_t {
    kCheck,
    kTrust
  } proof = Proof::kCheck;  ///< Whether the plan is proved before it runs.
};

/// What a session with these options compiles its program with. Error{kUsage} for options that make no session.
CompileOptions compile_options(const SessionOptions& options);

/// Shape of a stream's array: the entries of a run, then the replicas, each as an axis if there are several, then an entry's.
Shape entries_shape(const Shape& entry, int64_t entries, int64_t replicas = 1);

/// An input stream and the entries that a run reads: the stream's shape, with a leading axis of entries if it reads
/// more than one.
struct StreamInput {
  H2dStream stream;
  ConstArrayView array;
};
struct StreamOutput {
  D2hStream stream;
  ArrayView array;
};

/// Results of a run by stream.
class HostTensors {
 public:
  /// Error{kUsage} for a stream that the run did not write.
  const HostTensor& operator[](const D2hStream& stream) const;
  size_t size() const { return arrays_.size(); }

 private:
  friend class Session;
  std::vector<std::pair<D2hStream, HostTensor>> arrays_;
};

class Session;

/// Arrays that a program is bound to, checked once.
class Binding {
 private:
  friend class Session;
  const Session* session_ = nullptr;
  const exe::Program* program_ = nullptr;
  std::unique_ptr<runtime::HostStreams> streams_;
};

/// A compiled program with its memory: compiles, proves the plan, allocates, and holds the variables from run to run.
class Session {
 public:
  /// Error{kDoesNotFit} if a budget cannot be met; Error{kInternal} if the plan's proof fails.
  explicit Session(const Ir& ir, const SessionOptions& options = {});
  ~Session();

  /// Runs an entry once and returns new arrays. A stream's array has the entries of the run as first axis, if there are
  /// several, then the replicas, if there are several. Error{kUsage} naming streams that are missing or unknown, or an array
  /// whose shape or dtype differs.
  HostTensors run(const std::vector<StreamInput>& inputs = {}, const std::string& entry = "main");
  /// The streams that a run of an entry reads, and what their arrays are.
  std::vector<std::pair<H2dStream, TensorSpec>> expected_inputs(
      const std::string& entry = "main") const;
  /// Checks arrays as `run` does and remembers where they are; they must outlive the binding.
  Binding bind(const std::vector<StreamInput>& inputs, const std::vector<StreamOutput>& outputs,
               const std::string& entry = "main") const;
  /// Runs on bound arrays. Allocates nothing. Error{kUsage} for a binding of another session.
  void run_into(Binding& binding);
  /// The same, on this thread, advancing strands at random (for tests of the runtime).
  void run_interleaved(Binding& binding, uint64_t seed);

  /// A variable's whole value as the host sees it (host_spec), by its handle in any entry graph. Error{kUsage} for
  /// another tensor.
  HostTensor read(const Tensor& variable) const;
  /// Error{kUsage} if shape or dtype differs.
  void write(const Tensor& variable, const ConstArrayView& value);
  void write(const std::vector<std::pair<Tensor, HostTensor>>& values);
  /// Elements [begin, begin + count) of a variable as the host sees it, row-major.
  void read_chunk(const Tensor& variable, int64_t begin, int64_t count,
                  std::span<std::byte> out) const;
  void write_chunk(const Tensor& variable, int64_t begin, std::span<const std::byte> in);

  using VariableVisitor = std::function<void(const std::string& path, HostTensor value)>;
  /// Calls `visit` with every variable as it is now, by path in ascending order: one at a time, so that what fits no memory
  /// can be looked at.
  void each_variable(const VariableVisitor& visit) const;
  /// Gives all variables these values, by path. Error{kUsage} if others are given, or one is missing or of another spec.
  void restore(const std::vector<NamedArray>& values);
  /// All variables as safetensors, by path; a part at a time, so that they need not fit host memory. Of several processes the
  /// first one writes them.
  void save(const std::string& path) const;
  /// Sets the variables that the file names, a part at a time. Error{kBadFile} if one is missing or has another spec; names
  /// that no variable has are returned. Where the file cannot be read to its end (Error{kIo}, a bool that is none), some are set
  /// and others not. Error{kUsage} if processes find different values.
  std::vector<std::string> load(const std::string& path);

  const exe::Executable& executable() const { return executor_->executable(); }
  /// The compiler's record: passes and times.
  const Compiled& compiled() const { return compiled_; }
  /// Arena bytes of a device of one replica, as planned and as allocated: always equal.
  int64_t planned_bytes(int device = 0) const;
  int64_t measured_bytes(int device = 0) const;
  /// Bytes of host memory that hold what collectives get from other processes.
  int64_t exchange_bytes() const { return executor_->exchange_bytes(); }
  runtime::Counters counters() const { return executor_->counters(); }
  /// The processes that share the program.
  runtime::Agreement& agreement() { return agreement_; }

 private:
  // Variables by their index in the executable; elements as the host sees them.
  TensorSpec host_spec(size_t variable) const;
  template <typename F>
  void for_each_part(size_t variable, int64_t begin, int64_t count, F&& f) const;
  void read_chunk(size_t variable, int64_t begin, std::span<std::byte> out) const;
  void write_chunk(size_t variable, int64_t begin, std::span<const std::byte> in);
  HostTensor value_of(size_t variable) const;
  size_t index_of(const Tensor& variable) const;
  size_t index_of(const Tensor& variable, const ConstArrayView& value) const;
  void check_binding(const Binding& binding) const;
  void fill_memory();
  void share_outputs(const Binding& binding);
  bool every_process_has(const std::vector<int>& replicas) const;

  Ir ir_;
  Compiled compiled_;
  mutable runtime::Agreement agreement_;
  std::unique_ptr<runtime::Executor> executor_;
};

}  // namespace sluice
