#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "sluice/interp/run_op.h"
#include "sluice/ir/ir.h"

namespace sluice {

/// The entries that a run sent to its output streams. With several replicas, the first axis of an
/// entry is the replica.
class Collected {
 public:
  /// All entries of a stream, in order.
  const std::vector<HostTensor>& entries(const D2hStream& stream) const;
  /// The last entry of a stream; Error{kUsage} if the run sent nothing to it.
  const HostTensor& operator[](const D2hStream& stream) const;

 private:
  friend class Interpreter;
  std::map<int32_t, std::vector<HostTensor>> entries_;
};

/// Runs the graphs of an Ir as the IR defines them: op by op, in program order, with the reference
/// kernels. Tensors share memory only where the IR requires it. The interpreter is slow but simple,
/// so tests compare kernels, transforms and plans with it. All replicas run an op before the next
/// op begins. Devices make no difference.
///
/// Arrays have the declared dtype. In Precision::kDouble, floating-point results are f64 and
/// floating-point inputs may be f64, so that nothing is rounded. Variables keep their values
/// between runs.
class Interpreter {
 public:
  /// Takes the number of replicas from `ir` and fixes it there.
  explicit Interpreter(Ir ir, Precision precision = Precision::kFloat);

  /// Write or read a variable as the host sees it (host_spec). `variable` is its handle in any
  /// entry graph. Error{kUsage} if it is not a variable, or `value` has another spec.
  void write(const Tensor& variable, const HostTensor& value);
  HostTensor read(const Tensor& variable);
  /// Write or read an entry of a remote buffer. Entries start as zeros. With several replicas, the
  /// first axis of the array is the replica. Error{kUsage} for a buffer of another Ir, an entry out
  /// of range or another spec.
  void write_remote(const RemoteBuffer& buffer, int64_t entry, const HostTensor& value);
  HostTensor read_remote(const RemoteBuffer& buffer, int64_t entry);

  /// Runs an entry graph on the arguments of Session::run. Error{kUsage}, naming the op, if a
  /// stream has too few entries or unread ones, an array has another spec, or a remote entry is out
  /// of range.
  Collected run(const std::vector<StreamInput>& inputs = {}, const std::string& program = "main");
  /// Runs a subgraph on copies of the arrays `inputs` and returns its outputs. Error{kUsage} if
  /// there are several replicas.
  std::vector<HostTensor> evaluate(const Graph& graph, const std::vector<HostTensor>& inputs);

  /// A function that is called after every op, once for each replica, with the outputs of the op in
  /// the dtypes that a run returns.
  using Observer =
      std::function<void(const Graph& graph, const Op& op, const std::vector<HostTensor>& outputs)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  using Buffer = std::shared_ptr<HostTensor>;  ///< An array of the working dtype.

  /// One activation of a graph in one replica, with a buffer for each storage.
  struct Frame {
    const Graph& graph;
    int replica;
    Ids<StorageId, Buffer> storages;
  };
  /// One activation of a graph in all replicas, or in only one (an arm of a conditional).
  using Frames = std::vector<Frame>;
  using Buffers = std::vector<Buffer>;
  struct StreamState {
    ConstArrayView array;
    int64_t entries = 0;
    std::map<int, int64_t> next;  ///< Number of the next entry, by replica.
  };

  Frame open(const Graph& graph, int replica);
  Buffer& slot(Frame& frame, TensorId t) const;
  /// Copies the value of tensor t.
  Buffer copy(Frame& frame, TensorId t) const;
  Buffer working(const TensorSpec& spec, const HostTensor& value, std::string_view what) const;
  HostTensor shown(const TensorSpec& spec, const HostTensor& value) const;
  /// Adds the replicas to `spec` as first axis, if there are several.
  TensorSpec of_all(const TensorSpec& spec) const;
  Buffer& variable(const TensorInfo& info, int replica);
  Buffer variable_part(const TensorInfo& info, const HostTensor& whole, int replica) const;
  Buffer& remote_entry(int32_t buffer, int64_t entry, int replica);
  Buffer& remote_entry(const RemoteBuffer& buffer, int64_t entry, int replica);
  void place_remote_variables();

  void run_ops(Frames& frames);
  void run_op_in(Frames& frames, const Op& op);
  void run_init(Frame& frame, const Op& op);
  StreamState stream_state(const StreamInput& input) const;
  void run_stream(Frame& frame, const Op& op);
  void run_remote(Frame& frame, const Op& op);
  void run_call(Frames& frames, const Op& op);
  void run_loop(Frames& frames, const Op& op);
  void run_branch(Frame& frame, const Op& op);
  void run_reference(Frame& frame, const Op& op);
  void run_collective(Frames& frames, const Op& op);
  /// Returns the argument for a called graph: a copy of the operand if the callee only reads it, or
  /// else the caller's buffer.
  Buffer argument(Frame& frame, const Operand& operand) const;
  /// Runs a graph in the replicas of `callers`, with inputs[f] for callers[f]. Returns the outputs
  /// of each caller.
  std::vector<Buffers> run_callee(const Graph& graph, const Frames& callers,
                                  const std::vector<Buffers>& inputs);
  void set_outputs(Frame& frame, const Op& op, const Buffers& values) const;

  Ir ir_;
  Precision precision_;
  int replicas_;
  std::map<std::shared_ptr<VariableInfo>, std::map<int, Buffer>>
      variables_;  ///< Indexed by replica.
  std::map<std::tuple<int32_t, int64_t, int>, Buffer>
      remote_;  ///< Indexed by buffer, entry, replica.
  std::map<int32_t, StreamState> streams_;
  Collected collected_;
  std::map<int32_t, std::map<int, size_t>> sent_;  ///< Entries sent to each stream, by replica.
  Observer observer_;
};

}  // namespace sluice
