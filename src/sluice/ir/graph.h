#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sluice/ir/op.h"
#include "sluice/ir/stable_list.h"
#include "sluice/ir/stream.h"
#include "sluice/ir/tensor.h"
#include "sluice/ir/variable.h"

namespace sluice {

enum class TensorKind : uint8_t { kInput, kResult, kVariable, kConstant };

/// How a graph input is passed. If a graph writes a by-reference input, the caller sees the write.
enum class Pass : uint8_t { kByValue, kByReference };

struct TensorInfo {
  std::string name;
  TensorSpec spec;
  TensorKind kind = TensorKind::kResult;
  StorageId storage;
  Version version{0};  ///< Version of the storage when this handle was made.
  Pass pass = Pass::kByValue;
  OpId producer;   ///< Op that made the tensor; -1 for inputs, variables and constants.
  int output = 0;  ///< Index of the tensor among the outputs of its producer.
  std::shared_ptr<VariableInfo> variable;
  std::shared_ptr<const HostTensor> constant;
};

/// Memory that tensor handles refer to. `writers[v]` made version v. Version 0 was made by the op,
/// input, variable or constant that made the storage.
struct Storage {
  TensorId root;
  struct Write {
    OpId op;
    /// Handle that carries this version; -1 if the writer returned none (a call).
    TensorId handle;
  };
  Ids<Version, Write> writers;
  Version version() const { return Version(writers.size() - 1); }
};

struct EmitOptions {
  std::string name = {};  ///< Name of output 0; empty: "<operator>_<op id>".
  std::vector<GraphId> callees = {};
  std::vector<Effect> effects = {};
  std::vector<Mode> modes = {};  ///< One mode per input, in place of the modes of the definition.
  std::vector<TensorSpec> outputs =
      {};  ///< Output specs, in place of the result of the shape rule.
  std::vector<std::string> output_names = {};
};

/// An ordered list of ops with inputs and outputs. Program order defines the meaning. A graph is
/// owned by its Ir and keeps its address.
class Graph {
 public:
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  GraphId id() const { return id_; }
  const std::string& name() const { return name_; }
  bool is_entry() const { return entry_; }
  Ir ir() const;

  // --- building ---

  /// Adds an input after the existing ones. Error{kUsage} on an entry graph.
  Tensor input(const TensorSpec& spec, std::string name = "t", Pass pass = Pass::kByValue);
  /// Adds a variable, in entry graphs only. `path` is its key in checkpoints and digests (default:
  /// `name`). Error{kUsage} for a dtype that only the host has.
  Tensor variable(const TensorSpec& spec, Initializer initializer, std::string name = "t",
                  std::string path = "");
  Tensor variable(HostTensor value, std::string name = "t");
  /// Adds a variable with all its properties given.
  Tensor variable(const TensorSpec& spec, VariableInfo info, std::string name);
  /// Adds a constant. Error{kUsage} for a dtype that only the host has.
  Tensor constant(HostTensor value, std::string name = "t");
  /// Adds a constant of `dtype` and shape (); floating point rounds. Error{kUsage} if the dtype
  /// cannot hold `value` (takes() in base/dtype.h).
  Tensor scalar(double value, DType dtype, std::string name = "t");
  void set_outputs(const Tensors& outputs);
  void add_output(const Tensor& output);

  /// Loads the next entry of a stream into a new tensor (two ops: Init and HostLoad).
  Tensor host_load(const H2dStream& stream, std::string name = "");
  /// Stores `t` as the next entry of a stream. Error{kUsage} if the specs differ.
  void host_store(const D2hStream& stream, const Tensor& t);
  /// Makes a stream named `name` for `t` and stores `t` in it.
  D2hStream host_store(const Tensor& t, std::string name);
  /// Loads the next element of a feed: all fields, in their order.
  Tensors dequeue(const Infeed& feed);
  /// Loads the next element of a feed; returns its fields by name.
  std::map<std::string, Tensor> dequeue_named(const Infeed& feed);
  /// Stores an element of a feed: all fields, in their order or by name. Error{kUsage} if a field
  /// is missing or unknown, or if specs differ.
  void enqueue(const Outfeed& feed, const Tensors& fields);
  void enqueue(const Outfeed& feed, const std::map<std::string, Tensor>& fields);
  /// Loads an entry of a remote buffer into a new tensor (two ops: Init and RemoteLoad).
  Tensor remote_load(const RemoteBuffer& buffer, const RemoteEntry& entry, std::string name = "");
  /// Loads an entry of a remote buffer over `t`; returns the new version of `t`. Error{kUsage} if
  /// the specs differ.
  Tensor remote_load_(const RemoteBuffer& buffer, const RemoteEntry& entry, const Tensor& t);
  /// Stores `t` in an entry of a remote buffer. Error{kUsage} if the specs differ.
  void remote_store(const RemoteBuffer& buffer, const RemoteEntry& entry, const Tensor& t);

  /// Appends an op: checks operands and options, infers outputs, records versions. Errors name the
  /// op, its module path and its source line.
  Tensors emit(const OpDef& def, const std::vector<TensorArg>& inputs, Attrs attrs,
               EmitOptions options = {});

  /// A view with its own memory, which holds elements of other tensors: some of them, or in another
  /// order. The functions append ops that copy one side of the mirror to the other.
  struct Mirror {
    Tensor view;
    Tensors sources;
    std::function<void()> refresh;     ///< Writes the sources' elements into the view.
    std::function<void()> write_back;  ///< Writes the view's elements into the sources.
  };
  /// Appends, after every later op that writes one side of the mirror, the ops that update the
  /// other side. All handles then see every write. An op that writes both sides is an
  /// Error{kUsage}.
  void keep_in_step(Mirror mirror);

  /// While a Scope exists, ops added to the graph have `scope` in their module path.
  class Scope {
   public:
    Scope(Graph& graph, const std::string& scope);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Graph& graph_;
    size_t previous_;
  };
  /// While an IoScope exists, transfers added to the graph have this mode. Transfers load from or
  /// store to streams and remote buffers.
  class IoScope {
   public:
    IoScope(Graph& graph, IoMode mode);
    ~IoScope();
    IoScope(const IoScope&) = delete;
    IoScope& operator=(const IoScope&) = delete;

   private:
    Graph& graph_;
    IoMode previous_;
  };
  /// Sets the provenance of ops (ir/provenance_scope.h).
  struct ProvenanceFields;
  class ProvenanceScope;
  /// Ops added from now on run on this device (kInheritDevice: on the device of the caller). A
  /// DeviceScope does so for a block.
  void set_device(int device);
  /// Ops added from now on belong to this block of a model (nn/block.h); empty: to none.
  void set_block(std::string block);
  const std::string& block() const;
  int device() const { return device_; }
  /// While a LineScope exists, `line` ("model.py:12") is the source line of all ops that its thread
  /// adds, to any graph. A front end in another language reports its own lines in this way. Scopes
  /// nest; an empty line leaves ops the line of their call.
  class LineScope {
   public:
    explicit LineScope(std::string line);
    ~LineScope();
    LineScope(const LineScope&) = delete;
    LineScope& operator=(const LineScope&) = delete;

   private:
    std::string previous_;
  };

  // --- reading ---

  Tensors inputs() const { return handles(inputs_); }
  Tensors outputs() const { return handles(outputs_); }
  /// The outputs, without the outputs that transforms appended (activations kept for a gradient).
  Tensors original_outputs() const;
  const std::vector<TensorId>& input_ids() const { return inputs_; }
  const std::vector<TensorId>& output_ids() const { return outputs_; }
  /// The variables, in the order in which they were made.
  Tensors variables() const;
  /// This function and those below return references to elements that never move. They are valid
  /// until a GraphEditor removes the element, also if ops are added in the meantime.
  const StableList<Op, OpIndex>& ops() const { return ops_; }
  const StableList<TensorInfo, TensorId>& tensors() const { return tensors_; }
  const StableList<Storage, StorageId>& storages() const { return storages_; }
  const Op& op(OpId id) const;
  OpIndex op_index(OpId id) const;
  int64_t tensor_count() const { return static_cast<int64_t>(tensors_.size()); }
  const TensorInfo& info(TensorId id) const { return tensors_[id]; }
  const TensorInfo& info(const Tensor& t) const { return info(t.id()); }
  const TensorSpec& spec(TensorId id) const { return info(id).spec; }
  const Storage& storage(StorageId id) const { return storages_[id]; }
  int32_t storage_count() const { return static_cast<int32_t>(storages_.size()); }
  Tensor handle(TensorId id) const;
  bool owns(const Tensor& t) const;
  /// Returns the input named `name`, or an empty handle if the graph has no such input.
  Tensor input_named(std::string_view name) const;

 private:
  friend class DeviceScope;
  friend class Ir;
  friend struct IrState;
  friend class GraphEditor;

  Graph(IrState* ir, GraphId id, std::string name, bool entry);

  Tensors handles(const std::vector<TensorId>& ids) const;
  TensorId add_tensor(TensorInfo info);
  TensorId add_root(std::string name, const TensorSpec& spec, TensorKind kind);
  std::string unique_name(std::string name);
  void check_operand(const Tensor& t, std::string_view what) const;
  /// Returns the operands of a new op, with the versions that the op reads and writes.
  std::vector<Operand> operands_of(const OpDef& def, const std::vector<TensorArg>& inputs,
                                   const std::vector<Mode>& modes) const;
  /// Adds result i of an op that is not yet in the graph.
  TensorId add_result(const Op& op, size_t i, const TensorSpec& spec, const EmitOptions& options);
  int64_t next_order(Effect::Action kind, int32_t id);
  Effect transfer(Effect::Action kind, int32_t id, int64_t entry = -1);
  /// Updates all mirrors after `op`.
  void settle_mirrors(const Op& op);
  /// Returns, for each storage, the smallest id among the storages that mirrors connect it to.
  /// Empty if there are no mirrors.
  Ids<StorageId, StorageId> mirrored() const;

  IrState* ir_;
  GraphId id_;
  std::string name_;
  bool entry_;
  StableList<TensorInfo, TensorId> tensors_;
  StableList<Storage, StorageId> storages_;
  StableList<Op, OpIndex> ops_;
  std::vector<TensorId> inputs_;
  std::vector<TensorId> outputs_;
  std::vector<size_t> appended_outputs_;  ///< Positions in outputs_ that transforms appended.
  std::unordered_map<std::string, TensorId> by_name_;
  std::unordered_map<OpId, OpIndex> op_index_;
  /// Provenance of ops that are added. Without an operator, ops have their own, and their line. A
  /// GraphEditor::Guise sets both.
  std::unique_ptr<Provenance> here_;
  int device_ = kInheritDevice;
  IoMode io_mode_ = IoMode::kCompute;
  std::vector<Mirror> mirrors_;
  bool settling_ = false;
};

/// While a DeviceScope exists, ops added to the graph run on `device` (kInheritDevice: on the
/// device of the caller). Scopes nest. The end of a scope restores the previous device.
/// Error{kUsage} for a device below kInheritDevice.
class DeviceScope {
 public:
  DeviceScope(Graph& graph, int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Graph& graph_;
  int previous_;
};

}  // namespace sluice
