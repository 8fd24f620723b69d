#include "sluice/train/phases.h"

#include <map>
#include <optional>

#include "sluice/nn/autodiff.h"
#include "sluice/nn/batch_serialise.h"
#include "sluice/nn/layers.h"
#include "sluice/nn/remote.h"

namespace sluice::train {
namespace {

const TensorSpec kSeed{{2}, u32, {}};

/// The last block forward, the loss, and the block backward.
class Head : public nn::Module {
 public:
  Head(const Block& block, const Loss& loss, bool first)
      : block_(block), loss_(loss), first_(first) {}

  /// Loss, and the gradient of x unless the block is also the first one.
  Tensors build(nn::Builder& b, Tensor x, Tensor labels, const Tensors& seed) const {
    std::vector<TensorSpec> seeds;
    for (const Tensor& t : seed) seeds.push_back(t.spec());
    const auto [facts, forward] = nn::create_graph(b.ir(), block_, x.spec(), seeds);
    const Tensors wanted = first_ ? Tensors{} : Tensors{forward.graph().inputs()[0]};
    const auto [grad_facts, backward] = nn::autodiff_with_accumulation(
        forward, forward.args().tensors(), {.grads_required = wanted});
    const nn::NamedTensors weights = b.add_variable_inputs("fwd", facts);
    const CallSiteInfo call = forward.bind(weights).call_with_info(x, seed);
    const auto [loss, dy] = loss_(call.output(0), labels);
    Tensors dx = backward.bind(b.add_variable_inputs("bwd", grad_facts))
                     .call(dy, backward.grad_graph_info().inputs_dict(call));
    dx.insert(dx.begin(), loss);
    return dx;
  }

 private:
  const Block& block_;
  const Loss& loss_;
  bool first_;
};

/// Neighbouring blocks with the same graphs; a row each.
struct Group {
  int64_t first = 0;  ///< Block of row 0.
  int64_t count = 0;
  nn::NamedVariableFactories weight_facts;
  nn::NamedVariableFactories state_facts;  ///< "<weight>.<state>".
  nn::NamedVariableFactories grad_facts;   ///< Counter and accumulators.
  std::vector<std::pair<std::string, nn::GraphWithNamedArgs>> updates;  ///< By weight.
  /// What is offloaded, under "fwd" and "optim".
  nn::NamedRemoteBuffers buffers;
  std::optional<nn::BatchSerialResult> forward;  ///< None for the last block.
  std::optional<nn::BatchSerialResult> backward;
};

/// One visit of the device by a block.
struct Phase {
  const Group* group = nullptr;
  int64_t row = 0;
  bool backward = false;  ///< With the update.
};

/// Weights and state of a block, on the device.
struct Local {
  nn::NamedTensors weights;
  nn::NamedTensors state;
  nn::NamedTensors
      loaded;  ///< Those of them that came from remote memory, as the group's buffers name them.
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
    step_size_ = main_.scalar(-options_.learning_rate, f32, "step_size");
    run(order());
    build_eval();
  }

 private:
  const Block& block(int64_t j) const { return model_.blocks[static_cast<size_t>(j)]; }

  nn::BatchSerialiseOptions serial_options(int64_t rows) const {
    nn::BatchSerialiseOptions o;
    o.steps = options_.accumulate;
    o.rows = rows;
    o.io_mode = options_.io_mode;
    return o;
  }

  nn::BatchSerialResult noted(nn::BatchSerialResult phase) {
    if (training_.note.empty()) training_.note = phase.note;
    return phase;
  }

  // A row of one buffer for each tensor of a spec, in the order asked for.
  nn::BatchHandle next_row(std::vector<std::pair<RemoteBuffer, int64_t>>& rows,
                           const TensorSpec& spec) {
    for (auto& [buffer, used] : rows) {
      if (buffer.spec == spec) return {buffer, used++};
    }
    rows.emplace_back(ir_.remote_buffer(spec, options_.accumulate), 1);
    return {rows.back().first, 0};
  }

  // Every block that draws gets a seed of its own for each micro-batch, in a row of a buffer.
  std::optional<nn::BatchSerialResult> serialise_seeds() {
    if (!training_.draws) return std::nullopt;
    Graph& g = ir_.create_empty_graph("seeds");
    const Tensor seed = g.input(kSeed, "seed");
    nn::BatchSerialiseOptions o = serial_options(1);
    o.loads.emplace_back(seed, training_.seed);
    seed_rows_ = ir_.remote_buffer(kSeed, options_.accumulate);
    for (int64_t j = 0; j < blocks_; ++j) {
      if (!block(j).draws()) continue;
      g.add_output(nn::fold_seed(seed, block(j).path()));
      const auto row = static_cast<int64_t>(seed_row_.size());
      o.store_buffers.emplace_back(g.outputs().back(), nn::BatchHandle{seed_rows_, row});
      seed_row_.emplace(j, row);
    }
    return noted(nn::batch_serialise(nn::GraphWithNamedArgs(g), o));
  }

  // Cuts the model into groups and makes their graphs.
  void group_blocks() {
    TensorSpec x = model_.input;
    for (int64_t j = 0; j < blocks_;) {
      if (j == blocks_ - 1) {
        make_head(x);
        return;
      }
      Group& g = groups_.emplace_back();
      g.first = j;
      g.count = 1;
      const std::vector<TensorSpec> seeds(block(j).draws() ? 1 : 0, kSeed);
      auto [facts, forward] = nn::create_graph(ir_, block(j), x, seeds);
      require(forward.graph().outputs().size() == 1,
              "training: block '{}' has {} outputs, must have 1", block(j).path(),
              forward.graph().outputs().size());
      const TensorSpec y = forward.graph().outputs()[0].spec();
      // A block in a row takes what the one before gives, and gives as much. The first block has no gradient of x.
      while (j > 0 && y == x && j + g.count < blocks_ - 1 &&
             block(j + g.count).cache_key() == block(j).cache_key()) {
        ++g.count;
      }
      make_layer(g, std::move(facts), forward, x, y);
      j += g.count;
      x = y;
    }
  }

  void make_layer(Group& g, nn::NamedVariableFactories facts, const nn::GraphWithNamedArgs& forward,
                  const TensorSpec& x_spec, const TensorSpec& y_spec) {
    const bool first = g.first == 0;
    const Tensor x = forward.graph().inputs()[0];
    const Tensor y = forward.graph().outputs()[0];
    const Tensors wanted = first ? Tensors{} : Tensors{x};
    auto [grad_facts, backward] = nn::autodiff_with_accumulation(forward, forward.args().tensors(),
                                                                 {.grads_required = wanted});
    if (options_.activations == Activations::kRecompute) backward = nn::recompute_graph(backward);
    g.weight_facts = std::move(facts);
    g.grad_facts = std::move(grad_facts);
    make_updates(g, forward.args());

    nn::BatchSerialiseOptions o = serial_options(g.count);
    if (first) {
      o.loads.emplace_back(x, training_.input);
    } else {
      o.loads.emplace_back(x, x_in_);
      o.store_buffers.emplace_back(backward.graph().outputs()[0], dx_in_);
    }
    if (block(g.first).draws()) {
      o.loads.emplace_back(forward.graph().inputs()[1],
                           nn::BatchHandle{seed_rows_, seed_row_.at(g.first)});
    }
    // The output of row r is the input of row r + 1, and of the next group after the last row.
    nn::BatchHandle x_out = next_row(x_rows_, y_spec);
    nn::BatchHandle dx_out = next_row(dx_rows_, y_spec);
    o.store_buffers.emplace_back(y, x_out);
    o.loads.emplace_back(backward.graph().inputs()[0], dx_out);
    auto [fwd, bwd] = nn::batch_serialise_fwd_and_grad(forward, backward, forward.args(), o);
    g.forward = noted(std::move(fwd));
    g.backward = noted(std::move(bwd));
    for (int64_t r = 1; r < g.count; ++r) {
      x_out = next_row(x_rows_, x_spec);
      dx_out = next_row(dx_rows_, x_spec);
    }
    x_in_ = x_out;
    dx_in_ = dx_out;
  }

  void make_head(const TensorSpec& x_spec) {
    const int64_t j = blocks_ - 1;
    const bool first = j == 0;
    Group& g = groups_.emplace_back();
    g.first = j;
    g.count = 1;
    const std::vector<TensorSpec> seeds(block(j).draws() ? 1 : 0, kSeed);
    auto [facts, head] = nn::create_graph(ir_, Head(block(j), model_.loss, first), x_spec,
                                          training_.labels.spec, seeds);
    g.weight_facts = facts.tree("fwd");
    g.grad_facts = facts.tree("bwd");
    make_updates(g, head.args().tree("fwd"));
    const Tensors inputs = head.graph().inputs();
    nn::BatchSerialiseOptions o = serial_options(1);
    if (first) {
      o.loads.emplace_back(inputs[0], training_.input);
    } else {
      o.loads.emplace_back(inputs[0], x_in_);
      o.store_buffers.emplace_back(head.graph().outputs()[1], dx_in_);
    }
    o.loads.emplace_back(inputs[1], training_.labels);
    if (block(j).draws())
      o.loads.emplace_back(inputs[2], nn::BatchHandle{seed_rows_, seed_row_.at(j)});
    o.store_streams.emplace_back(head.graph().outputs()[0], training_.loss);
    g.backward = noted(nn::batch_serialise(head, o));
  }

  void make_updates(Group& g, const nn::NamedTensors& weights) {
    weights.for_each([&](const std::string& key, const Tensor& w) {
      const auto& [facts, graph] = optimizer_.step_graph(ir_, w.spec(), w.spec());
      g.updates.emplace_back(key, graph);
      facts.for_each([&, k = key](const std::string& name, const nn::VariableFactory& factory) {
        g.state_facts.merge(k + "." + name, factory);
      });
    });
    const auto offload = [&](const char* name, const nn::NamedVariableFactories& facts) {
      if (!facts.empty()) g.buffers.insert(name, nn::named_variable_buffers(ir_, facts, g.count));
    };
    if (options_.offload.weights) offload("fwd", g.weight_facts);
    if (options_.offload.optimizer) offload("optim", g.state_facts);
  }

  void make_variables(const Group& g) {
    const auto make = [&](const char* name, const nn::NamedVariableFactories& facts, int64_t row,
                          const nn::InitOptions& o, nn::NamedTensors& all) {
      const nn::NamedTensors made =
          g.buffers.contains(name) ? facts.init_remote(main_, g.buffers.tree(name), row, o, made_)
                                   : facts.init(main_, o, made_);
      made.for_each(
          [&](const std::string& key, const Tensor& t) { all.merge(o.prefix + "." + key, t); });
    };
    for (int64_t r = 0; r < g.count; ++r) {
      const std::string& path = block(g.first + r).path();
      make("fwd", g.weight_facts, r, {.prefix = path, .seed = options_.seed}, training_.variables);
      make("optim", g.state_facts, r, {.prefix = path}, training_.state);
    }
  }

  std::vector<Phase> order() const {
    std::vector<Phase> phases;
    for (const Group& g : groups_) {
      for (int64_t r = 0; g.forward && r < g.count; ++r) phases.push_back({&g, r, false});
    }
    for (auto g = groups_.rbegin(); g != groups_.rend(); ++g) {
      for (int64_t r = g->count; r-- > 0;) phases.push_back({&*g, r, true});
    }
    return phases;
  }

  // Variables of the device by their keys in the block.
  static nn::NamedTensors resident(const nn::NamedVariableFactories& facts, const std::string& path,
                                   const nn::NamedTensors& all) {
    nn::NamedTensors local;
    facts.for_each([&](const std::string& key, const nn::VariableFactory&) {
      local.merge(key, all[path + "." + key]);
    });
    return local;
  }

  Local load(const Phase& p) {
    const Group& g = *p.group;
    const std::string& path = block(g.first + p.row).path();
    Local local;
    if (p.backward) {
      local.loaded = nn::load_remote(main_, g.buffers, p.row);
    } else if (g.buffers.contains("fwd")) {
      local.loaded.insert("fwd", nn::load_remote(main_, g.buffers.tree("fwd"), p.row));
    }
    const auto find = [&](const char* name, const nn::NamedVariableFactories& facts,
                          const nn::NamedTensors& all) {
      return local.loaded.contains(name) ? local.loaded.tree(name) : resident(facts, path, all);
    };
    local.weights = find("fwd", g.weight_facts, training_.variables);
    if (p.backward) local.state = find("optim", g.state_facts, training_.state);
    return local;
  }

  void run(const std::vector<Phase>& phases) {
    const bool ahead = options_.io_mode == IoMode::kIoOverlapped;
    Local next = load(phases[0]);
    for (size_t i = 0; i < phases.size(); ++i) {
      const Local local = std::move(next);
      next = {};
      const bool more = i + 1 < phases.size();
      if (ahead && more) next = load(phases[i + 1]);
      run(phases[i], local);
      if (!ahead && more) next = load(phases[i + 1]);
    }
  }

  void run(const Phase& p, const Local& local) {
    const Group& g = *p.group;
    if (!p.backward) {
      g.forward->graph.bind(local.weights).call(&main_, p.row);
      return;
    }
    const nn::NamedTensors grads = g.grad_facts.init_zero(main_);
    if (g.forward) {
      g.backward->graph.bind(local.weights).bind(grads).call(&main_, p.row);
    } else {
      nn::NamedTensors both;
      both.insert("fwd", local.weights);
      both.insert("bwd", grads);
      g.backward->graph.bind(both).call(&main_, p.row);
    }
    const nn::NamedTensors means = grads.tree("accum");
    for (const auto& [key, update] : g.updates) {
      const bool stateful = local.state.contains(key);
      update.bind(stateful ? local.state.tree(key) : nn::NamedTensors{})
          .call(local.weights[key], means[key], step_size_);
    }
    nn::store_remote(main_, g.buffers, local.loaded, p.row);
  }

  // One block after another, its weights brought in and forgotten.
  void build_eval() {
    Graph& eval = ir_.entry_graph("eval");
    const Graph::IoScope scope(eval, options_.io_mode);
    Tensor x = eval.host_load(training_.eval_input);
    for (const Group& g : groups_) {
      const Block& first = model_.eval_blocks[static_cast<size_t>(g.first)];
      const auto [facts, graph] = nn::create_graph(ir_, first, x, Tensors{});
      for (int64_t r = 0; r < g.count; ++r) {
        nn::NamedTensors weights;
        if (g.buffers.contains("fwd")) {
          weights = nn::load_remote(eval, g.buffers.tree("fwd"), r);
        } else {
          resident(g.weight_facts, block(g.first + r).path(), training_.variables)
              .for_each([&](const std::string& key, const Tensor& variable) {
                weights.merge(key, ir_.share_variable(variable, eval));
              });
        }
        x = graph.bind(weights).call(x)[0];
      }
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
  std::map<int64_t, int64_t> seed_row_;                   ///< By block.
  std::vector<std::pair<RemoteBuffer, int64_t>> x_rows_;  ///< Rows given out.
  std::vector<std::pair<RemoteBuffer, int64_t>> dx_rows_;
  nn::BatchHandle x_in_;   ///< Where the next group's row 0 finds its input.
  nn::BatchHandle dx_in_;  ///< Where it leaves the gradient of that.
};

}  // namespace

void build_phased(Ir ir, const ModelSpec& model, nn::Optimizer& optimizer,
                  const StepOptions& options, Training& training) {
  Phases(std::move(ir), model, optimizer, options, training).build();
}

}  // namespace sluice::train
