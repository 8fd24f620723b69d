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

/// What a run sent to its output streams. With several replicas, the first axis of an entry is theirs.
class Collected {
 public:
  /// Every entry of a stream, in order.
  const std::vector<HostTensor>& entries(const D2hStream& stream) const;
  /// The last entry; Error{kUsage} if there was none.
  const HostTensor& operator[](const D2hStream& stream) const;

 private:
  friend class Interpreter;
  std::map<int32_t, std::vector<HostTensor>> entries_;
};

/// Runs the graphs of an Ir straight from their definition: op by op in program order with the ops'
/// reference kernels, every tensor whole, nothing shared but what the IR says is shared. Slow and
/// obvious: kernels, transforms and plans are judged against it. All replicas take each op together;
/// devices make no difference.
///
/// Arrays go in and come out in the declared dtype; in Precision::kDouble, floating-point ones come
/// out as f64 (and may go in as f64) so that nothing is rounded. Variables keep their values
/// between runs.
class Interpreter {
 public:
  /// Fixes the number of replicas.
  explicit Interpreter(Ir ir, Precision precision = Precision::kFloat);

  /// Sets or shows a variable as the host sees it (host_spec), by its handle in any entry graph.
  /// Error{kUsage} for another tensor or spec.
  void write(const Tensor& variable, const HostTensor& value);
  HostTensor read(const Tensor& variable);
  /// The same for an entry of a remote buffer; entries start as zeros. With several replicas, the
  /// first axis is theirs.
  void write_remote(const RemoteBuffer& buffer, int64_t entry, const HostTensor& value);
  HostTensor read_remote(const RemoteBuffer& buffer, int64_t entry);

  /// Runs an entry graph on the arguments of Session::run. Error{kUsage} if a stream has too few
  /// entries or some left over, an array has another spec, or a remote entry is out of range; the
  /// message names the op.
  Collected run(const std::vector<StreamInput>& inputs = {}, const std::string& program = "main");
  /// Runs a subgraph on arrays, by value, and gives its outputs. Error{kUsage} if there are several
  /// replicas.
  std::vector<HostTensor> evaluate(const Graph& graph, const std::vector<HostTensor>& inputs);

  /// Called after every op, once for each replica, with its outputs as they come out of a run.
  using Observer =
      std::function<void(const Graph& graph, const Op& op, const std::vector<HostTensor>& outputs)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  using Buffer = std::shared_ptr<HostTensor>;  ///< In the working dtype.

  /// One activation of a graph in one replica: the buffer of each storage.
  struct Frame {
    const Graph& graph;
    int replica;
    std::vector<Buffer> storages;
  };
  /// One activation of a graph in all replicas, or in one alone (an arm of a conditional).
  using Frames = std::vector<Frame>;
  using Buffers = std::vector<Buffer>;
  struct StreamState {
    ConstArrayView array;
    int64_t entries = 0;
    std::vector<int64_t> next;  ///< By replica.
  };

  Frame open(const Graph& graph, int replica);
  Buffer& slot(Frame& frame, TensorId t) const;
  /// A copy of tensor t's value.
  Buffer copy(Frame& frame, TensorId t) const;
  Buffer working(const TensorSpec& spec, const HostTensor& value, std::string_view what) const;
  HostTensor shown(const TensorSpec& spec, const HostTensor& value) const;
  /// `spec` with the replicas as first axis, if there are several.
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
  /// An operand as the called graph sees it: the caller's own buffer by reference, else a copy.
  Buffer argument(Frame& frame, const Operand& operand) const;
  /// Runs a graph in the replicas of `callers` on their inputs; the outputs of each.
  std::vector<Buffers> run_callee(const Graph& graph, const Frames& callers,
                                  const std::vector<Buffers>& inputs);
  void set_outputs(Frame& frame, const Op& op, const Buffers& values) const;

  Ir ir_;
  Precision precision_;
  int replicas_;
  std::map<std::shared_ptr<VariableInfo>, Buffers> variables_;  ///< By replica.
  std::map<std::tuple<int32_t, int64_t, int>, Buffer> remote_;  ///< By buffer, entry, replica.
  std::map<int32_t, StreamState> streams_;
  Collected collected_;
  std::map<int32_t, std::vector<size_t>> sent_;  ///< Entries of each stream, by replica.
  Observer observer_;
};

}  // namespace sluice
