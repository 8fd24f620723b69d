#include "sluice/train/phases.h"

#include <map>
#include <optional>

#include "sluice/nn/autodiff.h"
#include "sluice/nn/batch_serialise.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/train/phased_layer.h"

namespace sluice::train {
namespace {

const TensorSpec kSeed{{2}, u32, {}};

/// Runs the last block forward, the loss, and the block backward.
class Head : public nn::Module {
 public:
  Head(const Block& block, const Loss& loss, bool first)
      : block_(block), loss_(loss), first_(first) {}

  /// Returns the loss. The gradient of x follows unless the block is also the first one.
  Tensors build(nn::Builder& b, Tensor x, Tensor labels, const Tensors& seed) const {
    std::vector<TensorSpec> seeds;
    for (const Tensor& t : seed) seeds.push_back(t.spec());
    const auto [factories, forward] = nn::create_graph(b.ir(), block_, x.spec(), seeds);
    const Tensors wanted = first_ ? Tensors{} : Tensors{forward.graph().inputs()[0]};
    const auto [grad_factories, backward] = nn::autodiff_with_accumulation(
        forward, forward.args().tensors(), {.grads_required = wanted});
    const nn::NamedTensors weights = b.add_variable_inputs("fwd", factories);
    const CallSiteInfo call = forward.bind(weights).call_with_info(x, seed);
    const auto [loss, dy] = loss_(call.output(0), labels);
    Tensors dx = backward.bind(b.add_variable_inputs("bwd", grad_factories))
                     .call(dy, backward.grad_graph_info().inputs_dict(call));
    dx.insert(dx.begin(), loss);
    return dx;
  }

 private:
  const Block& block_;
  const Loss& loss_;
  bool first_;
};

/// Neighbouring blocks with the same graphs. Each has one row.
struct Group {
  int64_t first = 0;  ///< Block of row 0.
  PhasedLayer layer;
};

class Phases {
 public:
  Phases(Ir ir, const ModelSpec& model, nn::Optimizer& optimizer, const StepOptions& options,
         Training& training)
      : ir_(std::move(ir)),
        model_(model),
        optimizer_(optimizer),
        options_(options),
        training_(training),
        main_(ir_.entry_graph("train")),
        blocks_(static_cast<int64_t>(model.blocks.size())) {}

  void build() {
    const std::optional<nn::BatchSerialResult> seeds = serialise_seeds();
    group_blocks();
    for (Group& g : groups_) make_variables(g);
    const Graph::IoScope scope(main_, options_.io_mode);
    if (seeds) seeds->graph.call(&main_, 0);
    step_size_ = training_.learning_rate
                     ? -main_.host_load(*training_.learning_rate)
                     : main_.scalar(-std::get<double>(options_.learning_rate), f32, "step_size");
    for (const Group& g : groups_) {
      if (g.layer.has_forward()) g.layer.forward_phases(main_);
    }
    for (auto g = groups_.rbegin(); g != groups_.rend(); ++g)
      g->layer.backward_phases(main_, step_size_);
    build_eval();
  }

 private:
  const Block& block(int64_t j) const { return model_.blocks[static_cast<size_t>(j)]; }

  nn::BatchSerialiseOptions serial_options() const {
    nn::BatchSerialiseOptions o;
    o.steps = options_.accumulate;
    o.io_mode = options_.io_mode;
    return o;
  }

  void note(const std::string& text) {
    if (training_.note.empty()) training_.note = text;
  }

  // Reserves the next unused row of the buffer for tensors of this spec.
  nn::BatchHandle next_row(std::vector<std::pair<RemoteBuffer, int64_t>>& rows,
                           const TensorSpec& spec) {
    for (auto& [buffer, used] : rows) {
      if (buffer.spec == spec) return {buffer, used++};
    }
    rows.emplace_back(ir_.remote_buffer(spec, options_.accumulate), 1);
    return {rows.back().first, 0};
  }

  // Each block that draws gets its own seed for each micro-batch. A row of the buffer holds the
  // seeds of one block.
  std::optional<nn::BatchSerialResult> serialise_seeds() {
    if (!training_.draws) return std::nullopt;
    Graph& g = ir_.create_empty_graph("seeds");
    const Tensor seed = g.input(kSeed, "seed");
    nn::BatchSerialiseOptions o = serial_options();
    o.loads.emplace_back(seed, training_.seed);
    seed_rows_ = ir_.remote_buffer(kSeed, options_.accumulate);
    for (int64_t j = 0; j < blocks_; ++j) {
      if (!block(j).draws()) continue;
      g.add_output(nn::fold_seed(seed, block(j).path()));
      const auto row = static_cast<int64_t>(seed_row_.size());
      o.store_buffers.emplace_back(g.outputs().back(), nn::BatchHandle{seed_rows_, row});
      seed_row_.emplace(j, row);
    }
    nn::BatchSerialResult phase = nn::batch_serialise(nn::GraphWithNamedArgs(g), o);
    note(phase.note);
    return phase;
  }

  PhasedLayerOptions layer_options(int64_t rows, bool first) const {
    return {.rows = rows,
            .input_gradient = first ? InputGradient::kNo : InputGradient::kYes,
            .activations = options_.activations,
            .offload = options_.offload,
            .shard_threshold = options_.shard_threshold};
  }

  // Cuts the model into groups and makes their graphs.
  void group_blocks() {
    TensorSpec x = model_.input;
    for (int64_t j = 0; j + 1 < blocks_;) {
      const std::vector<TensorSpec> seeds(block(j).draws() ? 1 : 0, kSeed);
      auto [factories, forward] = nn::create_graph(ir_, block(j), x, seeds);
      require(forward.graph().outputs().size() == 1,
              "training: block '{}' must have 1 output, got {}", block(j).path(),
              forward.graph().outputs().size());
      const TensorSpec y = forward.graph().outputs()[0].spec();
      // A block joins the group if its input and output specs equal those of the block before it.
      // The first block has its own group because it has no gradient of x.
      int64_t count = 1;
      while (j > 0 && y == x && j + count < blocks_ - 1 &&
             block(j + count).cache_key() == block(j).cache_key()) {
        ++count;
      }
      groups_.push_back({j, PhasedLayer(std::move(factories), std::move(forward), optimizer_,
                                        layer_options(count, j == 0))});
      serialise(groups_.back(), x, y);
      j += count;
      x = y;
    }
    make_head(x);
  }

  void serialise(Group& g, const TensorSpec& x_spec, const TensorSpec& y_spec) {
    const Graph& forward = g.layer.forward().graph();
    const Graph& backward = g.layer.backward().graph();
    nn::BatchSerialiseOptions o = serial_options();
    if (g.first == 0) {
      o.loads.emplace_back(forward.inputs()[0], training_.input);
    } else {
      o.loads.emplace_back(forward.inputs()[0], x_in_);
      o.store_buffers.emplace_back(backward.outputs()[0], dx_in_);
    }
    if (block(g.first).draws()) {
      o.loads.emplace_back(forward.inputs()[1], nn::BatchHandle{seed_rows_, seed_row_.at(g.first)});
    }
    // Row r + 1 reads the output of row r. The next group reads the output of the last row.
    nn::BatchHandle x_out = next_row(x_rows_, y_spec);
    nn::BatchHandle dx_out = next_row(dx_rows_, y_spec);
    o.store_buffers.emplace_back(forward.outputs()[0], x_out);
    o.loads.emplace_back(backward.inputs()[0], dx_out);
    g.layer.serialise(o);
    note(g.layer.note());
    for (int64_t r = 1; r < g.layer.rows(); ++r) {
      x_out = next_row(x_rows_, x_spec);
      dx_out = next_row(dx_rows_, x_spec);
    }
    x_in_ = x_out;
    dx_in_ = dx_out;
  }

  void make_head(const TensorSpec& x_spec) {
    const int64_t j = blocks_ - 1;
    const bool first = j == 0;
    const std::vector<TensorSpec> seeds(block(j).draws() ? 1 : 0, kSeed);
    auto [factories, graph] = nn::create_graph(ir_, Head(block(j), model_.loss, first), x_spec,
                                               training_.labels.spec, seeds);
    const Tensors inputs = graph.graph().inputs();
    const Tensors outputs = graph.graph().outputs();
    nn::BatchSerialiseOptions o = serial_options();
    if (first) {
      o.loads.emplace_back(inputs[0], training_.input);
    } else {
      o.loads.emplace_back(inputs[0], x_in_);
      o.store_buffers.emplace_back(outputs[1], dx_in_);
    }
    o.loads.emplace_back(inputs[1], training_.labels);
    if (block(j).draws())
      o.loads.emplace_back(inputs[2], nn::BatchHandle{seed_rows_, seed_row_.at(j)});
    o.store_streams.emplace_back(outputs[0], training_.loss);
    groups_.push_back(
        {j, PhasedLayer::joint(factories, std::move(graph), optimizer_, layer_options(1, first))});
    groups_.back().layer.serialise(o);
    note(groups_.back().layer.note());
  }

  void make_variables(Group& g) {
    for (int64_t r = 0; r < g.layer.rows(); ++r) {
      const std::string& path = block(g.first + r).path();
      const auto& [weights, state] =
          g.layer.init(main_, r, {.prefix = path, .seed = options_.seed}, made_);
      const auto add = [&](const nn::NamedTensors& some, nn::NamedTensors& all) {
        some.for_each(
            [&](const std::string& key, const Tensor& t) { all.merge(path + "." + key, t); });
      };
      add(weights, training_.variables);
      add(state, training_.state);
    }
  }

  // Runs one block after another. A block's offloaded weights are loaded for that block only.
  void build_eval() {
    Graph& eval = ir_.entry_graph("eval");
    const Graph::IoScope scope(eval, options_.io_mode);
    Tensor x = eval.host_load(training_.eval_input);
    for (const Group& g : groups_) {
      const Block& first = model_.eval_blocks[static_cast<size_t>(g.first)];
      const auto [factories, graph] = nn::create_graph(ir_, first, x, Tensors{});
      x = g.layer.apply(eval, graph, x);
    }
    training_.logits = eval.host_store(x, "logits");
  }

  Ir ir_;
  const ModelSpec& model_;
  nn::Optimizer& optimizer_;
  const StepOptions& options_;
  Training& training_;
  Graph& main_;
  int64_t blocks_;
  std::vector<Group> groups_;
  nn::internal::PathCounts made_{ir_};
  Tensor step_size_;
  RemoteBuffer seed_rows_;
  std::map<int64_t, int64_t> seed_row_;                   ///< Row of each block's seeds, by block.
  std::vector<std::pair<RemoteBuffer, int64_t>> x_rows_;  ///< Number of rows in use of each buffer.
  std::vector<std::pair<RemoteBuffer, int64_t>> dx_rows_;
  nn::BatchHandle x_in_;   ///< Input of the next group's row 0.
  nn::BatchHandle dx_in_;  ///< Where that row stores the gradient of its input.
};

}  // namespace

void build_phased(Ir ir, const ModelSpec& model, nn::Optimizer& optimizer,
                  const StepOptions& options, Training& training) {
  Phases(std::move(ir), model, optimizer, options, training).build();
}

}  // namespace sluice::train
