#pragma once
#include <concepts>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "sluice/ir/graph.h"
#include "sluice/ir/stable_list.h"
#include "sluice/ir/stream.h"

namespace sluice {

struct StreamInfo {
  std::string name = {};
  TensorSpec spec = {};
  bool input = true;
  int32_t feed = -1;  ///< Feed that the stream is a field of; -1: none.
};

struct FeedInfo {
  std::string name = {};
  bool input = true;
  int depth = 3;  ///< InfeedOptions::prefetch_depth or OutfeedOptions::depth.
  std::vector<int32_t> streams = {};
};

struct RemoteBufferInfo {
  TensorSpec spec = {};
  int64_t entries = 1;
};

/// State of an Ir, shared by its copies. Tensor handles keep a weak reference to it.
struct IrState : std::enable_shared_from_this<IrState> {
  uint64_t id = 0;
  int replication = 1;
  std::string replication_user;  ///< First caller of fix_replication; empty: not fixed.
  Ids<GraphId, std::unique_ptr<Graph>> graphs;
  StableList<StreamInfo> streams;
  StableList<FeedInfo> feeds;
  StableList<RemoteBufferInfo> remote_buffers;
  std::map<std::string, GraphId> entries;
  std::map<GraphId, std::set<GraphId>> callers;  ///< Graphs with an op that called a graph.
  OpId next_op{100};
  int64_t next_graph_number = 0;
  int64_t next_tensor_suffix = 0;
  std::map<std::string, std::vector<std::string>> rows_of_blocks;
};

/// An input of a graph that `create_graph` makes: name, spec, and how it is passed.
struct NamedInput {
  std::string name = {};
  TensorSpec spec = {};
  Pass pass = Pass::kByValue;
};

/// Maximum number of replicas of a program.
inline constexpr int kMaxReplicas = 1024;

/// A program: entry graphs (main first), subgraphs, streams, remote buffers. An Ir is a cheap
/// handle; copies share the program.
class Ir {
 public:
  /// Error{kUsage} unless `replication` is 1 to kMaxReplicas.
  explicit Ir(int replication = 1);
  explicit Ir(std::shared_ptr<IrState> state) : state_(std::move(state)) {}

  uint64_t id() const { return state_->id; }
  /// Number of replicas that run the program, each on its own data.
  int replication() const { return state_->replication; }
  /// Sets the number of replicas. Error{kUsage} unless it is 1 to kMaxReplicas, or if it changes a
  /// number that was fixed by fix_replication().
  void set_replication(int replicas);
  /// Returns the number of replicas and fixes it, because `user` relies on it.
  int fix_replication(const std::string& user) const;
  Graph& main_graph() { return entry_graph("main"); }
  /// Returns the entry graph named `name`; makes it on first use. Entry graphs share variables
  /// through `share_variable`.
  Graph& entry_graph(const std::string& name);
  const std::map<std::string, GraphId>& entries() const { return state_->entries; }

  /// Makes an empty graph named "<name>_subgraph(N)".
  Graph& create_empty_graph(const std::string& name);
  /// Makes an empty graph named exactly `full_name` (gradient and wrapper graphs).
  Graph& create_graph_named(std::string full_name);
  /// Returns the number N of the next graph and counts it as used.
  int64_t take_graph_number() { return state_->next_graph_number++; }

  /// Makes a graph by running `body(Graph&, Tensor...)` once on inputs of the given specs. An input
  /// is a TensorSpec, a Tensor (for its spec) or a NamedInput. `body` returns nothing, a Tensor, or
  /// Tensors.
  template <typename Body, typename... Inputs>
  Graph& create_graph(const std::string& name, Body&& body, const Inputs&... inputs) {
    Graph& graph = create_empty_graph(name);
    int position = 0;
    [[maybe_unused]] auto make = [&](const auto& input) {
      return make_input(graph, input, position++);
    };
    std::tuple handles{make(inputs)...};
    auto run = [&](auto&&... tensors) { return body(graph, tensors...); };
    if constexpr (std::is_void_v<decltype(std::apply(run, handles))>) {
      std::apply(run, handles);
    } else {
      add_outputs(graph, std::apply(run, handles));
    }
    return graph;
  }

  /// Make streams of `spec`. Error{kUsage} for a dtype that only the host has.
  H2dStream h2d_stream(const TensorSpec& spec, std::string name = "h2d_stream");
  D2hStream d2h_stream(const TensorSpec& spec, std::string name = "d2h_stream");
  /// Make a feed with a stream for each field, named "<feed>.<field>". Every program must use all
  /// fields equally often. Error{kUsage} for a taken name, no fields, two fields of one name, a
  /// dtype that only the host has, a dimension of size 0, or a depth outside 1 to 255.
  Infeed infeed(const std::string& name, const std::vector<FeedField>& fields,
                const InfeedOptions& options = {});
  Outfeed outfeed(const std::string& name, const std::vector<FeedField>& fields,
                  const OutfeedOptions& options = {});
  /// Makes a remote buffer. Error{kUsage} unless `entries` is positive, and for a dtype that only
  /// the host has.
  RemoteBuffer remote_buffer(const TensorSpec& spec, int64_t entries = 1);
  /// Grows the buffer to at least `entries` entries. Error{kUsage} unless `entries` is positive.
  void grow(const RemoteBuffer& buffer, int64_t entries);
  int64_t remote_entries(const RemoteBuffer& buffer) const;
  /// Returns the remote buffer of `location`. Error{kUsage} if it does not exist.
  RemoteBuffer remote_buffer(const VariableLocation& location) const;
  /// Returns groups of `size` replicas that are `stride` apart; size 0 means replicas / stride.
  /// Fixes the number of replicas.
  ReplicaGrouping replica_grouping(int stride = 1, int size = 0) const;
  /// Returns the grouping in which groups[r] is the group of replica r. Error{kUsage} unless each
  /// replica has a group. Fixes the number of replicas.
  ReplicaGrouping replica_grouping_from_assignments(std::vector<int> groups) const;

  /// This function and those below return references to elements that never move. They are valid as
  /// long as the program, also if graphs, streams and buffers are added.
  Graph& graph(GraphId id) const { return *state_->graphs[id]; }
  IdRange<GraphId> graph_ids() const { return state_->graphs.ids(); }
  int graph_count() const { return static_cast<int>(state_->graphs.size()); }
  const StreamInfo& stream(int32_t id) const { return state_->streams[id]; }
  int stream_count() const { return static_cast<int>(state_->streams.size()); }
  const StableList<FeedInfo>& feeds() const { return state_->feeds; }
  const RemoteBufferInfo& remote_buffer_info(int32_t id) const {
    return state_->remote_buffers[id - 1];
  }
  int remote_buffer_count() const { return static_cast<int>(state_->remote_buffers.size()); }
  /// Names the rows of equal blocks that share the graphs of block `block` (Provenance::block).
  void name_rows(const std::string& block, std::vector<std::string> rows) const {
    state_->rows_of_blocks[block] = std::move(rows);
  }
  const std::map<std::string, std::vector<std::string>>& rows_of_blocks() const {
    return state_->rows_of_blocks;
  }
  /// Adds the variable `from` to entry graph `to` under the same path. Both programs use one
  /// storage.
  Tensor share_variable(const Tensor& from, Graph& to);

 private:
  static Tensor make_input(Graph& graph, const TensorSpec& spec, int position);
  static Tensor make_input(Graph& graph, const Tensor& like, int position);
  static Tensor make_input(Graph& graph, const NamedInput& input, int position);
  static void add_outputs(Graph& graph, const Tensor& output) { graph.add_output(output); }
  static void add_outputs(Graph& graph, const Tensors& outputs) {
    for (const Tensor& t : outputs) graph.add_output(t);
  }
  std::string unique_stream_name(const std::string& name) const;
  int32_t add_feed(const std::string& name, const std::vector<FeedField>& fields, bool input,
                   int depth);

  std::shared_ptr<IrState> state_;
};

/// Returns the schedule of a graph in the format of the documents, without a trailing newline.
/// `named` has the inputs that print as "key=%i", sorted by key.
std::string print_schedule(const Graph& graph,
                           const std::vector<std::pair<std::string, Tensor>>& named = {});

/// Returns the Graphviz text of a program: a cluster for each graph that an entry reaches, a node
/// for each op, and an edge from the op that made a tensor's version to each op that reads it.
std::string to_dot(const Ir& ir);

}  // namespace sluice
