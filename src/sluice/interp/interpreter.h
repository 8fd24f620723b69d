#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sluice/interp/run_op.h"
#include "sluice/ir/ir.h"

namespace sluice {

/// The entries that a host stream brings in a run, in order.
struct Feed {
  Feed(const H2dStream& s, HostTensor entry) : stream(s), entries{std::move(entry)} {}
  Feed(const H2dStream& s, std::vector<HostTensor> e) : stream(s), entries(std::move(e)) {}
  H2dStream stream;
  std::vector<HostTensor> entries;
};

/// What a run sent to its output streams.
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
/// obvious: kernels, transforms and plans are judged against it. One replica; devices make no
/// difference.
///
/// Arrays go in and come out in the declared dtype; in Precision::kDouble, floating-point ones come
/// out as f64 (and may go in as f64) so that nothing is rounded. Variables keep their values
/// between runs.
class Interpreter {
 public:
  /// Error{kUsage} if the program has several replicas.
  explicit Interpreter(Ir ir, Precision precision = Precision::kFloat);

  /// Sets or shows a variable, by its handle in any entry graph. Error{kUsage} for another tensor
  /// or spec.
  void write(const Tensor& variable, const HostTensor& value);
  HostTensor read(const Tensor& variable);
  /// The same for an entry of a remote buffer; entries start as zeros.
  void write_remote(const RemoteBuffer& buffer, int64_t entry, const HostTensor& value);
  HostTensor read_remote(const RemoteBuffer& buffer, int64_t entry);

  /// Runs an entry graph. Error{kUsage} if a stream has too few entries or some left over, an array
  /// has another spec, or a remote entry is out of range; the message names the op.
  Collected run(const std::string& entry, const std::vector<Feed>& feeds = {});
  /// Runs a subgraph on arrays, by value, and gives its outputs.
  std::vector<HostTensor> evaluate(const Graph& graph, const std::vector<HostTensor>& inputs);

  /// Called after every op with its outputs as they come out of a run.
  using Observer =
      std::function<void(const Graph& graph, const Op& op, const std::vector<HostTensor>& outputs)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  using Buffer = std::shared_ptr<HostTensor>;  ///< In the working dtype.

  /// One activation of a graph: the buffer of each storage.
  struct Frame {
    const Graph& graph;
    std::vector<Buffer> storages;
  };
  struct StreamState {
    const std::vector<HostTensor>* entries = nullptr;
    size_t next = 0;
  };

  Frame open(const Graph& graph);
  Buffer& slot(Frame& frame, TensorId t) const;
  /// A copy of tensor t's value.
  Buffer copy(Frame& frame, TensorId t) const;
  Buffer working(const TensorSpec& spec, const HostTensor& value, std::string_view what) const;
  HostTensor shown(const TensorSpec& spec, const HostTensor& value) const;
  Buffer& variable(const std::shared_ptr<VariableInfo>& info, const TensorSpec& spec);
  Buffer& remote_entry(int32_t buffer, int64_t entry);
  Buffer& remote_entry(const RemoteBuffer& buffer, int64_t entry);
  void place_remote_variables();

  void run_ops(Frame& frame);
  void run_op_in(Frame& frame, const Op& op);
  void run_init(Frame& frame, const Op& op);
  void run_stream(Frame& frame, const Op& op);
  void run_remote(Frame& frame, const Op& op);
  void run_call(Frame& frame, const Op& op);
  void run_loop(Frame& frame, const Op& op);
  void run_branch(Frame& frame, const Op& op);
  void run_reference(Frame& frame, const Op& op);
  /// An operand as the called graph sees it: the caller's own buffer by reference, else a copy.
  Buffer argument(Frame& frame, const Operand& operand) const;
  std::vector<Buffer> run_callee(const Graph& graph, const std::vector<Buffer>& inputs);
  void set_outputs(Frame& frame, const Op& op, const std::vector<Buffer>& values) const;

  Ir ir_;
  Precision precision_;
  std::map<std::shared_ptr<VariableInfo>, Buffer> variables_;
  std::map<std::pair<int32_t, int64_t>, Buffer> remote_;
  std::map<int32_t, StreamState> streams_;
  Collected collected_;
  Observer observer_;
};

}  // namespace sluice
