#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/host_tensor.h"
#include "sluice/ir/ir.h"
#include "sluice/session/bindings.h"
#include "sluice/session/options.h"

namespace sluice {

struct Compiled;
class Variables;
namespace runtime {
class Agreement;
class Executor;
struct Counters;
}  // namespace runtime

/// A compiled program with its memory: compiles, proves the plan, allocates, and holds the variables from run to run.
class Session {
 public:
  /// Error{kDoesNotFit} if a budget cannot be met; Error{kInternal} if the plan's proof fails.
  Session(const Ir& ir, const SessionOptions& options = {});
  ~Session();

  /// Runs the program of an entry graph once and returns new arrays. A stream's array has the entries of the run as first axis, if there are
  /// several, then the replicas, if there are several. Error{kUsage} naming streams that are missing or unknown, or an array
  /// whose shape or dtype differs.
  HostTensors run(const std::vector<StreamInput>& inputs = {}, const std::string& program = "main");
  /// The streams that a run of a program reads, and the specs of their arrays.
  std::vector<std::pair<H2dStream, TensorSpec>> expected_inputs(
      const std::string& program = "main") const;
  /// Checks arrays as `run` does and remembers where they are; they must outlive the binding.
  Binding bind(const std::vector<StreamInput>& inputs, const std::vector<StreamOutput>& outputs,
               const std::string& program = "main") const;
  /// Runs on bound arrays. Allocates nothing. Error{kUsage} for a binding of another session.
  void run_into(Binding& binding);
  /// Runs on this thread and advances strands at random (for tests of the runtime).
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
  /// Calls `visit` with the value of every variable, by path in ascending order: one at a time, so that all together need not
  /// fit host memory.
  void each_variable(const VariableVisitor& visit) const;
  /// Gives all variables these values, by path. Error{kUsage} if others are given, or one is missing or of another spec; then
  /// none is set.
  void restore(const std::vector<NamedArray>& values);
  /// Writes all variables as safetensors, by path, a part at a time, so that they need not fit host memory. The first process of
  /// a group writes the file; the others return when it is there.
  void save(const std::string& path) const;
  /// Sets all variables from such a file, a part at a time, and returns the names in the file that no variable has.
  /// Error{kBadFile} if a variable is missing or has another spec; then none is set. Where the file cannot be read to its end
  /// (Error{kIo}, or Error{kBadFile} for a bool other than 0 and 1), some variables are set and others are not. Error{kUsage}
  /// if processes find different values.
  std::vector<std::string> load(const std::string& path);

  /// The plan (exe/executable.h).
  const exe::Executable& executable() const;
  /// The compiler's record: passes and times (compiler/compile.h).
  const Compiled& compiled() const { return *compiled_; }
  /// Arena bytes of a device of one replica, as planned and as allocated: always equal.
  int64_t planned_bytes(int device = 0) const;
  int64_t measured_bytes(int device = 0) const;
  /// Bytes of host memory that hold what collectives get from other processes.
  int64_t exchange_bytes() const;
  /// What all runs did (runtime/strand.h).
  runtime::Counters counters() const;
  /// The processes that share the program (runtime/process_group.h).
  runtime::Agreement& agreement() { return *agreement_; }

 private:
  void check_binding(const Binding& binding) const;
  void share_outputs(const Binding& binding);

  Ir ir_;
  std::unique_ptr<Compiled> compiled_;
  std::unique_ptr<runtime::Agreement> agreement_;
  std::unique_ptr<runtime::Executor> executor_;
  std::unique_ptr<Variables> variables_;
};

}  // namespace sluice
