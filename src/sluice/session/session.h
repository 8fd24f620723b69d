#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/host_tensor.h"
#include "sluice/ir/ir.h"
#include "sluice/session/bindings.h"
#include "sluice/session/options.h"

namespace sluice {

class CallQueue;
struct Compiled;
class Variables;
namespace report {
struct FeedReport;
class Plan;
struct Pipeline;
}  // namespace report
namespace runtime {
class Agreement;
class Executor;
struct Counters;
struct Lane;
struct StepRuns;
}  // namespace runtime
class SessionReport;

/// Two replicas that hold different copies of a variable.
struct ReplicaDifference {
  std::string path;  ///< Path of the variable.
  int replica = 0;
  int other = 0;
};

/// How a file sets variables.
struct LoadOptions {
  /// Whether the file must have each variable. If not, the other variables keep their values.
  bool strict = true;
  /// Pairs of a tensor's name in the file and the path of the variable that it sets. Both may have
  /// one `*`, which represents the same characters, dots included: {"backbone.*", "encoder.*"}. A
  /// name without `*` precedes patterns. An empty path leaves the tensor out. Other tensors set the
  /// variable of their name.
  std::map<std::string, std::string> names = {};
};

/// The differences between a file and the variables that it was loaded to.
struct LoadResult {
  std::vector<std::string> missing = {};  ///< Paths of the variables that keep their values.
  /// Names in the file that set no variable, without those that LoadOptions::names leaves out.
  std::vector<std::string> unused = {};
};

/// A run on a thread of its own; Session::run_async makes it. Several threads may use one object,
/// except that wait() takes the outputs.
class AsyncRun {
 public:
  AsyncRun(AsyncRun&&) noexcept;
  AsyncRun& operator=(AsyncRun&&) noexcept;
  /// Stops the run, waits for its end, and discards its error. Call wait() to let it finish.
  ~AsyncRun();

  /// Waits for the end of the run. Returns its output arrays; without any, for a bound program and
  /// at a second call. Rethrows the error of the run.
  HostTensors wait();
  /// Waits for the end of the run, at most for `seconds`. Returns whether it has ended.
  bool wait_for(double seconds);
  /// Whether the run has ended.
  bool done() const;
  /// Ends the run as Session::stop does. Returns false if it has ended already.
  bool stop();
  /// Returns for each feed, by name, how many elements of each replica runs have read or stored
  /// since the feed was bound. Empty after the end of the session.
  std::vector<std::pair<std::string, int64_t>> progress() const;

 private:
  friend class Session;
  struct State;
  explicit AsyncRun(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// A compiled program with its memory. A session compiles, proves the plan, allocates, and holds
/// the variables from run to run.
///
/// Several threads may call one session. Runs and accesses to variables queue: they run one at a
/// time, in the order of their calls, and each uses all workers of the session. A call waits for
/// those before it, so n threads get together the calls per second of one. Waiting allocates
/// nothing. Only run_async() does not hold the queue while its run is in progress: until its end,
/// other calls are refused. So are calls of a source or sink of a feed during a run. In a group of
/// processes, all must make their calls in one order, so one thread of each should call.
///
/// A child process of fork() has no threads of the session. There each call that runs or reads
/// variables is Error{kUsage}, and the destructor leaves the session's memory to the system.
class Session {
 public:
  /// Compiles and proves the plan, allocates its memory and initialises the variables. DoesNotFit
  /// (exe/budget/does_not_fit.h) if a budget cannot be met or, before anything is allocated, if the
  /// host or a device has less memory than this process needs; Error{kInternal} if the proof of the
  /// plan fails.
  Session(const Ir& ir, const SessionOptions& options = {});
  /// As above, without compiling: `compiled` is compile(ir, compile_options(options))
  /// (compiler/compile.h).
  Session(const Ir& ir, Compiled compiled, const SessionOptions& options);
  /// Stops a run in progress. Cancels the sources and sinks of feeds, and waits until they return.
  ~Session();

  /// Runs the program of an entry graph once and returns new arrays. A stream's array has the shape
  /// entries_shape(): entries of the run, replicas, axes of an entry. The axis of a single entry or
  /// replica is omitted. An input may have the axis of a single entry, and other axes after the
  /// first one of an entry: (8, 28, 28) for (8, 784). Error{kUsage}, which names missing or unknown
  /// streams, or an array of another shape or dtype. Streams of feeds do not have arrays.
  HostTensors run(const std::vector<StreamInput>& inputs = {}, const std::string& program = "main");
  /// Returns the streams that a run of a program reads, with the specs of their arrays.
  std::vector<std::pair<H2dStream, TensorSpec>> expected_inputs(
      const std::string& program = "main") const;
  /// Checks arrays as `run` does and stores their addresses. The arrays must outlive the binding.
  Binding bind(const std::vector<StreamInput>& inputs, const std::vector<StreamOutput>& outputs,
               const std::string& program = "main") const;
  /// Runs the program on bound arrays. Allocates nothing. Error{kUsage} for a binding of another
  /// session.
  void run_into(Binding& binding);
  /// Bind a feed to its source or sink, which the session keeps. A feed starts with element 0, also
  /// if it was bound before; the earlier source or sink is cancelled and released.
  ///
  /// Before a run that uses a feed, the feed must be bound. A thread of the feed's own calls the
  /// source in advance, as far as the rings of the plan have room. Entry k of a run is element p +
  /// k. The position p starts at 0 and moves on by the elements of each run, of any program. After
  /// a stop or an error, p is one more than the last element that the run has used. An infeed has
  /// used an element if a field was read, an outfeed if all fields were stored. With R replicas,
  /// replica r reads or writes element (p + k) * R + r. Elements after the last whole group of R
  /// are discarded at the end of data.
  ///
  /// A run throws Error{kUsage} if it needs an element after the end of data, Error{kIo} after
  /// SessionOptions::feed_deadline, or the error of the source or sink with the element's number.
  /// The original exception is nested in it (std::nested_exception). The session can run again. A
  /// run returns after its sinks have taken its elements.
  ///
  /// In a group, each process that runs a device of the feed calls its own source. All sources must
  /// produce equal data; a process discards the fields and replicas of other processes. All rings
  /// of an outfeed must belong to one process, which alone calls its sink.
  ///
  /// Error{kUsage} for a feed of another Ir, a null pointer, a run in progress, or an error of
  /// open().
  void bind_feed(const Infeed& feed, std::shared_ptr<FeedSource> source);
  void bind_feed(const Outfeed& feed, std::shared_ptr<FeedSink> sink);
  /// Start a run on a thread of its own and return at once. The arrays of `inputs` must outlive the
  /// run. Until the run ends, the session refuses other runs and access to variables.
  AsyncRun run_async(const std::vector<StreamInput>& inputs = {},
                     const std::string& program = "main");
  AsyncRun run_async(Binding binding);
  /// Runs on this thread and advances strands at random, seeded by `seed`. For tests of the
  /// runtime.
  void run_interleaved(Binding& binding, uint64_t seed);
  /// Ends the run in progress. Any thread may call it, but not a signal handler. Returns whether a
  /// run is in progress: from the check of its arguments until it is about to return or throw. That
  /// run throws Error{kStopped}, or the error of a step that failed. Kernels that have begun end
  /// first, and so do transfers on a CPU. Variables and output arrays then hold what the run has
  /// left. The session can run again, except in a group of processes: there the other processes
  /// throw this error too, with the rank of this process, and the group has ended.
  ///
  /// Without a run in progress the call has no effect, also on later runs.
  ///
  /// After a stop or an error, a run waits until devices with queues have run their commands.
  /// Error{kPeerLost} after SessionOptions::stop_deadline; from then on each run throws that error,
  /// and so does access to variables on these devices. The destructor waits for the commands.
  bool stop();

  /// Returns the whole value of a variable as the host sees it (host_spec). The handle may belong
  /// to any entry graph. Error{kUsage} for another tensor.
  HostTensor read(const Tensor& variable) const;
  /// Sets variables to these values. Error{kUsage} if a shape or dtype differs; then no variable is
  /// set.
  void write(const Tensor& variable, const ConstArrayView& value);
  void write(const std::vector<std::pair<Tensor, HostTensor>>& values);
  /// Copy elements [begin, begin + count) of a variable as the host sees it, row-major.
  void read_chunk(const Tensor& variable, int64_t begin, int64_t count,
                  std::span<std::byte> out) const;
  void write_chunk(const Tensor& variable, int64_t begin, std::span<const std::byte> in);

  /// Returns the paths and specs of all variables, in ascending order of the paths.
  std::vector<std::pair<std::string, TensorSpec>> variables() const;
  /// Copy elements from `begin` on as read_chunk() and write_chunk() do. `variable` is an index in
  /// variables().
  void read_variable(size_t variable, int64_t begin, std::span<std::byte> out) const;
  void write_variable(size_t variable, int64_t begin, std::span<const std::byte> in);
  /// Sets all variables to their first values.
  void initialize_variables();

  using VariableVisitor = std::function<void(const std::string& path, HostTensor value)>;
  /// Calls `visit` with the value of every variable, by path in ascending order. Holds one value at
  /// a time, so all values together need not fit into host memory.
  void each_variable(const VariableVisitor& visit) const;
  /// Compares the copies of each variable that several replicas hold by their hashes (XXH3-128).
  /// Returns the first variable by path whose copies differ, and the first such replicas. Shards
  /// are not compared, unless several replicas hold the same one. Each process of a group makes the
  /// call and gets the same result.
  std::optional<ReplicaDifference> find_replica_difference() const;
  /// Sets all variables by path. Error{kUsage} if a path is unknown or missing, or a spec differs;
  /// then no variable is set.
  void restore(const std::vector<NamedArray>& values);
  /// Writes all variables as safetensors, by path, a part at a time. A variable need not fit into
  /// host memory. The first process of a group writes the file; every other process returns after
  /// the file is written. `metadata` is that of the file (safetensors `__metadata__`), in UTF-8.
  void save(const std::string& path, const std::map<std::string, std::string>& metadata = {}) const;
  /// Sets all variables from such a file, a part at a time. Returns the names in the file that
  /// match no variable. Error{kBadFile} if a variable is missing or has another spec; then no
  /// variable is set. Some variables may be set if reading fails later: Error{kIo}, or
  /// Error{kBadFile} for a bool other than 0 and 1. Error{kUsage} if processes read different
  /// values.
  std::vector<std::string> load(const std::string& path);
  /// Does the same with options. Error{kUsage} for a name of LoadOptions::names that the file does
  /// not have, for patterns that are not as described there, and if two tensors set one variable.
  LoadResult load(const std::string& path, const LoadOptions& options);

  /// Returns a number that grows with each call that may change variables: a run of a program that
  /// updates some, a write, a load. Equal numbers mean equal values.
  uint64_t variable_changes() const { return changes_.load(); }

  /// Returns the plan for users: `session.plan().summary()` (report/summary.h).
  report::Plan plan() const;
  /// Returns the plan as data (exe/executable.h).
  const exe::Executable& executable() const;
  /// Returns the compiler's record: passes and times (compiler/compile.h).
  const Compiled& compiled() const { return *compiled_; }
  /// Return the arena bytes of a device in one replica, as planned and as allocated. They are
  /// always equal. Error{kUsage} for a device that the program does not have.
  int64_t planned_bytes(int device = 0) const;
  int64_t measured_bytes(int device = 0) const;
  /// Returns the bytes of host memory that receive operands of collectives from other processes.
  int64_t exchange_bytes() const;
  /// Returns counters over all runs (runtime/strand.h).
  runtime::Counters counters() const;
  /// Returns rates, occupancy and waits of each feed since it was bound (report/summary.h). Those
  /// of a run are the difference of two calls. Any thread may call it, also during a run.
  std::vector<report::FeedReport> feed_statistics() const;
  /// Returns the measured events of the last run by worker and I/O queue (runtime/events.h). Empty
  /// unless SessionOptions::events is set. No run may be in progress.
  const std::deque<runtime::Lane>& lanes() const;
  /// Returns the bytes of host memory that hold events.
  int64_t event_bytes() const;
  /// Returns how often each transfer, message and collective of this process ran in the last run,
  /// by replica (runtime/events.h). No run may be in progress.
  std::vector<runtime::StepRuns> moves() const;
  /// Adds the stages of the programs to the report that the session writes when it ends. Without a
  /// report it has no effect.
  void add_to_report(report::Pipeline stages);
  /// Returns the agreement of the processes that share the program (runtime/process_group.h).
  runtime::Agreement& agreement() { return *agreement_; }

 private:
  friend class AsyncRun;
  class Busy;
  class Call;
  void check_binding(const Binding& binding) const;
  void run_bound(const Binding& binding);
  void begin_run(const Binding& binding);
  HostTensors new_outputs(const std::string& program) const;
  size_t checked_index(size_t variable) const;
  void check_elements(size_t variable, int64_t begin, size_t bytes) const;
  int32_t feed_index(uint64_t ir, int32_t id, const std::string& name) const;
  void measure();
  void leave_to_parent();

  Ir ir_;
  std::unique_ptr<Compiled> compiled_;
  std::unique_ptr<runtime::Agreement> agreement_;
  std::unique_ptr<runtime::Executor> executor_;
  std::unique_ptr<Variables> variables_;
  std::unique_ptr<SessionReport> report_;   ///< Null unless the session writes one.
  std::vector<size_t> by_path_;             ///< Indices of the variables, ascending by path.
  std::vector<int64_t> measured_;           ///< Indexed by device.
  std::unique_ptr<CallQueue> calls_;        ///< The call in progress holds it.
  std::atomic<bool> busy_{false};           ///< A run of run_async() is in progress.
  std::atomic<uint64_t> changes_{0};        ///< See variable_changes().
  std::shared_ptr<AsyncRun::State> async_;  ///< State of the last run_async().
};

}  // namespace sluice
