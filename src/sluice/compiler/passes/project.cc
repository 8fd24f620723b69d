#include "sluice/compiler/passes/project.h"

#include <algorithm>
#include <compare>
#include <set>

#include "sluice/base/checked.h"
#include "sluice/base/error.h"
#include "sluice/compiler/passes/assign_devices.h"
#include "sluice/compiler/passes/conditions.h"
#include "sluice/compiler/passes/renumber.h"
#include "sluice/compiler/rewriter.h"

namespace sluice::compiler {
namespace {

constexpr int32_t kAnywhere = -1;  // Every device has the value or computes it.

// A body that is divided into parts, one for each device.
struct DividedBody {
  std::map<int32_t, BodyId> parts;  // Indexed by device.
  // For each parameter of the whole body: the device that gets it.
  std::vector<int32_t> param_device;
  // For each result of the whole body: the device that returns it.
  std::vector<int32_t> result_device;
  std::set<exe::ChannelId> channels;  // Channels that the parts use, callees included.
};

// Sort key in the node list of a device. `node`: index in the whole body.
struct Position {
  enum class Moment : uint8_t { kReceive, kNode, kSend, kReceiveBack, kCopyBack };
  NodeId node{0};
  Moment moment = Moment::kNode;
  int32_t number = 0;
  auto operator<=>(const Position&) const = default;
};

struct Message {
  exe::ChannelId channel;
  ValueIndex sent = kNone;
  ValueIndex received = kNone;
  Position from;  // Position of the Send.
  Position to;    // Position of the Receive.
};

// State shared by the projections of all bodies.
struct Shared {
  explicit Shared(Program& the_program)
      : program(the_program), variable_device(the_program.variables.size(), kAnywhere) {
    for (const BodyId id : callees_first(program)) {
      for (const Node& node : program.body(id).nodes) {
        if (const auto* loop = node.as<Node::Loop>()) carried[loop->callee] = node.carried();
      }
    }
    for (const EntryBodies& entry : program.entries) assign_updated(program.body(entry.bodies[0]));
  }

  // A variable is on the device that computes its new value, so that an update needs no message.
  // Other variables are on the device that reads them first.
  void assign_updated(const Body& body) {
    std::map<ValueIndex, int32_t> made_on;
    for (const Node& node : body.nodes) {
      if (has_callees(node)) continue;
      for (const ValueIndex v : node.outputs) made_on[v] = node.device;
    }
    for (const auto& [variable, v] : body.variables) {
      int32_t& device = variable_device[variable];
      const auto found = made_on.find(v);
      if (device == kAnywhere && found != made_on.end()) device = found->second;
    }
  }

  exe::ChannelId channel(int32_t from, int32_t to) {
    const auto [found, fresh] = channels.try_emplace({from, to}, program.channels.end_id());
    if (fresh) program.channels.push_back({from, to, 0, 0});
    return found->second;
  }

  Program& program;
  std::map<std::pair<int32_t, int32_t>, exe::ChannelId> channels;  // Keyed by sender and receiver.
  Ids<exe::VariableId, int32_t> variable_device;                   // Device by variable.
  std::map<BodyId, size_t> carried;                                // Carried values by loop body.
  std::map<BodyId, DividedBody> cuts;                              // Keyed by undivided body.
  // Number of each value that is sent, by body and value; of a variable, by -1 and its index.
  std::map<std::pair<BodyId, int32_t>, int32_t> messages;
  int64_t sends = 0;  // Number of messages.
};

class Projector {
 public:
  Projector(Shared& shared, BodyId id)
      : shared_(shared),
        id_(id),
        body_(shared.program.body(id)),
        device_(body_.values.size(), kAnywhere),
        storage_device_(body_.values.size(), kAnywhere),
        index_(body_.values.size()),
        made_at_(body_.values.size()) {}

  DividedBody run() {
    find_devices();
    if (const auto device = only_device()) return keep(*device);
    for (now_ = NodeId(0); now_ < body_.nodes.end_id(); ++now_) visit(body_.nodes[now_]);
    find_results();
    order_messages();
    add_messages();
    return make_parts();
  }

 private:
  using Moment = Position::Moment;

  int32_t& device_of(ValueIndex v) { return device_[v]; }
  int32_t& storage_device(ValueIndex v) { return storage_device_[v]; }
  const DividedBody& cut_of(BodyId callee) const { return shared_.cuts.at(callee); }
  Position at(Moment moment) { return {now_, moment, ++number_}; }

  // The number of carried values if the body is that of a loop, else 0.
  size_t carried() const {
    const auto loop = shared_.carried.find(id_);
    return loop == shared_.carried.end() ? 0 : loop->second;
  }

  // The device on which a node reads its input i.
  int32_t reader(const Node& node, size_t i) const {
    if (const auto* call = node.call()) return cut_of(call->callee).param_device[i];
    return node.is<Node::Branch>() ? branch_device(node) : node.device;
  }

  int32_t branch_device(const Node& node) const {
    int32_t device = kAnywhere;
    for_each_callee(node, [&](BodyId callee) {
      for (const auto& [d, part] : cut_of(callee).parts) {
        require(device == kAnywhere || device == d,
                "{} made at {}: its branches must run on one device, got devices {} and {}",
                name_of(node), node.where(), device, d);
        device = d;
      }
    });
    return device;
  }

  // The device of a parameter or a variable is the first device that reads or overwrites it. A
  // carried value that only rotates has the device of the value that it becomes. Any other unused
  // parameter has the body's device if this device runs a node, else the lowest device that runs a
  // node.
  void find_devices() {
    const auto settle = [&](ValueIndex v, int32_t device) {
      const auto source = body_.value(v).source;
      const bool stays =
          source == BodyValue::Source::kParam || source == BodyValue::Source::kVariable;
      if (stays && device_of(v) == kAnywhere) device_of(v) = device;
    };
    for (const Node& node : body_.nodes) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != kNone) settle(node.inputs[i], reader(node, i));
      }
      for (const Tie& t : node.ties) settle(t.into, node.device);
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t r = 0; r < carried(); ++r) {
        const ValueIndex v = body_.results[r];
        if (v == kNone || device_of(v) != kAnywhere) continue;
        settle(v, device_of(body_.params[r].in));
        changed = changed || device_of(v) != kAnywhere;
      }
    }
    const std::set<int32_t> devices = devices_of_nodes();
    const bool runs_here = devices.empty() || devices.contains(body_.device);
    for (const BodyParam& p : body_.params)
      settle(p.in, runs_here ? body_.device : *devices.begin());
    for (const ValueIndex v : body_.values.ids()) {
      const BodyValue& value = body_.values[v];
      if (value.source == BodyValue::Source::kVariable) {
        int32_t& device = shared_.variable_device[exe::VariableId(value.index)];
        if (device == kAnywhere) device = device_[v];
        device_[v] = device;
      }
      storage_device_[v] = device_[v];
    }
  }

  std::set<int32_t> devices_of_nodes() const {
    std::set<int32_t> devices;
    for (const Node& node : body_.nodes) {
      if (!has_callees(node)) devices.insert(node.device);
      for_each_callee(node, [&](BodyId callee) {
        for (const auto& [d, part] : cut_of(callee).parts) devices.insert(d);
      });
    }
    return devices;
  }

  // The device of all nodes and values of the body; empty if there are several.
  std::optional<int32_t> only_device() const {
    std::set<int32_t> devices = devices_of_nodes();
    devices.insert(device_.begin(), device_.end());
    devices.erase(kAnywhere);
    if (devices.empty()) return body_.device;
    return devices.size() == 1 ? std::optional(*devices.begin()) : std::nullopt;
  }

  DividedBody keep(int32_t device) {
    Body& body = shared_.program.body(id_);
    body.device = device;
    for (Node& node : body.nodes) {
      node.device = device;
      for_each_callee(node, [&](BodyId& callee) { callee = cut_of(callee).parts.at(device); });
    }
    return {{{device, id_}},
            std::vector<int32_t>(body.params.size(), device),
            std::vector<int32_t>(body.results.size(), device),
            {}};
  }

  ValueIndex add_value(ValueIndex like) {
    BodyValue value = body_.value(like);
    value.source = BodyValue::Source::kNode;
    value.index = -1;
    added_.push_back(std::move(value));
    return ValueIndex(body_.values.size() + added_.size() - 1);
  }

  void put(int32_t device, Position position, Node node) {
    node.device = device;
    lists_[device].emplace_back(position, std::move(node));
  }

  // Returns the value that represents `v` on a device. Adds a message or an Index node on first
  // use.
  ValueIndex local(ValueIndex v, int32_t device) {
    if (v == kNone) return v;
    const bool is_index = index_[v].valid();
    if (!is_index && (device_of(v) == kAnywhere || device_of(v) == device)) return v;
    const auto known = local_.find({v, device});
    if (known != local_.end()) return known->second;
    const ValueIndex own =
        is_index ? compute_index(v, device) : receive(v, device, Moment::kReceive);
    local_[{v, device}] = own;
    return own;
  }

  // Adds an Index node on a device, because an index expression costs less than a message.
  ValueIndex compute_index(ValueIndex v, int32_t device) {
    Node node = body_.nodes[index_[v]];
    node.outputs = {add_value(v)};
    const ValueIndex own = node.outputs[0];
    put(device, at(Moment::kReceive), std::move(node));
    return own;
  }

  ValueIndex receive(ValueIndex v, int32_t device, Moment moment) {
    Message m;
    m.channel = shared_.channel(device_of(v), device);
    m.sent = v;
    m.received = add_value(v);
    // A parameter or a variable is sent only when it is needed, so that it does not occupy a slot
    // before.
    const bool made_here = body_.value(v).source == BodyValue::Source::kNode;
    m.from = made_here ? made_at_[v] : at(Moment::kReceive);
    m.to = at(moment);
    ProgramChannel& channel = shared_.program.channels[m.channel];
    channel.slot_bytes = std::max(channel.slot_bytes, round_up(body_.value(v).spec.bytes(), 64));
    messages_.push_back(m);
    return m.received;
  }

  void visit(const Node& node) {
    if (node.is<Node::Index>()) {
      index_[node.outputs[0]] = now_;
    } else if (node.call() != nullptr) {
      visit_call(node);
    } else {
      Node own = node;
      if (node.is<Node::Branch>()) {
        own.device = branch_device(node);
        for_each_callee(own, [&](BodyId& callee) { callee = cut_of(callee).parts.at(own.device); });
      }
      for (ValueIndex& v : own.inputs) v = local(v, own.device);
      finish(std::move(own));
    }
  }

  void visit_call(const Node& node) {
    const DividedBody& cut = cut_of(node.call()->callee);
    std::vector<ValueIndex> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      inputs.push_back(local(node.inputs[i], cut.param_device[i]));
    for (const exe::ChannelId channel : cut.channels) barriers_.emplace(channel, now_);
    for (const auto& [device, part] : cut.parts) finish(part_of_call(node, cut, device, inputs));
  }

  // Returns the call of the part of one device, with the inputs, results and updates of this
  // device.
  static Node part_of_call(const Node& node, const DividedBody& cut, int32_t device,
                           const std::vector<ValueIndex>& inputs) {
    Node own = node_like(node);
    own.what = node.what;
    own.def = node.def;
    own.device = device;
    Node::Call& call = *own.call();
    call.callee = cut.parts.at(device);
    call.results = 0;
    call.updated.clear();
    int32_t carried = 0;
    std::vector<int32_t> new_index(inputs.size(), -1);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (cut.param_device[i] != device) continue;
      new_index[i] = static_cast<int32_t>(own.inputs.size());
      add_input(own, inputs[i], node.in_specs[i]);
      if (i < node.carried()) ++carried;
    }
    if (auto* loop = own.as<Node::Loop>()) {
      loop->carried = carried;
      keep_own_condition(*loop, new_index);
    }
    for (size_t r = 0; r < cut.result_device.size(); ++r) {
      if (cut.result_device[r] != device) continue;
      add_output(own, node.outputs[r], node.out_specs[r]);
      ++call.results;
    }
    for_each_updated(node, [&](size_t input, size_t output) {
      if (new_index[input] < 0) return;
      call.updated.push_back(new_index[input]);
      add_overwrite(own, node.inputs[input], node.outputs[output], node.out_specs[output]);
    });
    return own;
  }

  // Adds a node whose inputs are local. An update of another device's value overwrites the local
  // copy, and the result is sent back.
  void finish(Node own) {
    const int32_t device = own.device;
    std::vector<std::pair<ValueIndex, ValueIndex>> back;  // (new value, old value)
    for (Tie& t : own.ties) {
      const ValueIndex old = t.into;
      const ValueIndex made = sluice::at(own.outputs, t.output);
      t.into = local(old, device);
      storage_device(made) = storage_device(old);
      if (storage_device(old) != kAnywhere && storage_device(old) != device)
        back.emplace_back(made, old);
    }
    for (const ValueIndex v : own.outputs) {
      if (v == kNone) continue;
      device_of(v) = device;
      made_at_[v] = at(Moment::kSend);
    }
    const Node where = own;
    put(device, at(Moment::kNode), std::move(own));
    for (const auto& [made, old] : back) send_back(where, made, old);
  }

  void send_back(const Node& where, ValueIndex made, ValueIndex old) {
    const int32_t device = storage_device(old);
    Node copy = node_like(where);
    copy.what = Node::Copy{};
    const TensorSpec& spec = body_.value(made).spec;
    add_input(copy, receive(made, device, Moment::kReceiveBack), spec);
    const ValueIndex returned = add_value(made);
    add_overwrite(copy, local(old, device), returned, spec);
    local_[{made, device}] = copy.outputs[0];
    put(device, at(Moment::kCopyBack), std::move(copy));
  }

  // A result is on the device that computes it. A carried result is on the device of its parameter.
  void find_results() {
    for (size_t r = 0; r < body_.results.size(); ++r) {
      const ValueIndex v = body_.results[r];
      int32_t device = v == kNone ? kAnywhere : device_of(v);
      if (r < carried()) device = device_of(body_.params[r].in);
      if (device == kAnywhere) device = body_.device;
      result_device_.push_back(device);
      results_.push_back(local(v, device));
    }
    for (const BodyParam& p : body_.params)
      param_outs_.push_back(p.out == kNone ? kNone : local(p.out, device_of(p.in)));
    for (const auto& [variable, v] : body_.variables)
      variables_.push_back(local(v, shared_.variable_device[variable]));
  }

  // Moves Receives so that each channel delivers messages in the order in which they are sent,
  // including those of calls. Moves a Receive up if a later message on its channel, or a call that
  // uses the channel, is needed first.
  void order_messages() {
    std::map<exe::ChannelId, std::vector<Message*>> channels;
    for (Message& m : messages_) channels[m.channel].push_back(&m);
    for (auto& [channel, queue] : channels) {
      std::sort(queue.begin(), queue.end(),
                [](const Message* a, const Message* b) { return a->from < b->from; });
      for (Message* m : queue) {
        const auto barrier = barriers_.lower_bound({channel, after(m->from)});
        if (barrier != barriers_.end() && barrier->first == channel)
          m->to = std::min(m->to, {barrier->second, Moment::kReceive, 0});
      }
      for (size_t i = queue.size(); i-- > 1;) {
        Position& earlier = queue[i - 1]->to;
        if (std::pair(queue[i]->to.node, queue[i]->to.moment) <
            std::pair(earlier.node, earlier.moment))
          earlier = queue[i]->to;
      }
      for (Message* m : queue) {
        m->from.number = ++number_;
        m->to.number = ++number_;
      }
      count_slots(channel, queue);
    }
  }

  // The first node whose call comes after a position.
  static NodeId after(const Position& p) {
    return p.moment == Moment::kReceive ? p.node : NodeId(p.node + 1);
  }

  void count_slots(exe::ChannelId channel, const std::vector<Message*>& queue) {
    int64_t& capacity = shared_.program.channels[channel].capacity;
    size_t received = 0;
    for (size_t sent = 0; sent < queue.size(); ++sent) {
      while (received < sent && queue[received]->to < queue[sent]->from) ++received;
      capacity = std::max(capacity, static_cast<int64_t>(sent + 1 - received));
    }
  }

  // Returns the message index of a value that is sent.
  int32_t message_of(ValueIndex v) {
    const BodyValue& value = body_.value(v);
    const bool variable = value.source == BodyValue::Source::kVariable;
    const auto key = variable ? std::pair(BodyId(), value.index) : std::pair(id_, v.value());
    return shared_.messages.try_emplace(key, shared_.messages.size()).first->second;
  }

  void add_messages() {
    std::set<ValueIndex> sent;
    shared_.sends += static_cast<int64_t>(messages_.size());
    for (const Message& m : messages_) {
      const ProgramChannel& channel = shared_.program.channels[m.channel];
      const TensorSpec& spec = body_.value(m.sent).spec;
      const int32_t number = message_of(m.sent);
      Node send;
      send.what = Node::Send{m.channel, number};
      add_input(send, m.sent, spec);
      send.provenance = Provenance{.line = fmt::format("message to device {}", channel.to)};
      Node receive;
      receive.what = Node::Receive{m.channel, number};
      add_output(receive, m.received, spec);
      receive.provenance = Provenance{.line = fmt::format("message from device {}", channel.from)};
      put(channel.from, m.from, std::move(send));
      put(channel.to, m.to, std::move(receive));
      sent.insert(m.sent);
    }
    // A view that is sent becomes a copy: a plan has one value for a view and its source, but a
    // message names each by its own index.
    for (auto& [device, list] : lists_) {
      for (auto& [position, node] : list) {
        if (node.is<Node::View>() && sent.contains(node.outputs[0])) node.what = Node::Copy{};
      }
    }
  }

  DividedBody make_parts() {
    DividedBody cut;
    for (const BodyParam& p : body_.params) cut.param_device.push_back(device_of(p.in));
    cut.result_device = result_device_;
    for (const Message& m : messages_) cut.channels.insert(m.channel);
    for (const auto& [channel, node] : barriers_) cut.channels.insert(channel);
    std::set<int32_t> devices(cut.param_device.begin(), cut.param_device.end());
    devices.insert(cut.result_device.begin(), cut.result_device.end());
    for (const auto& [device, list] : lists_) devices.insert(device);
    if (devices.empty()) devices.insert(body_.device);
    for (const int32_t device : devices) {
      Body part = make_part(device, devices.size() > 1);
      cut.parts[device] = shared_.program.add(std::move(part));
    }
    return cut;
  }

  Body make_part(int32_t device, bool several) {
    Body part;
    part.graph = body_.graph;
    part.role = body_.role;
    part.name = several ? fmt::format("{}@{}", body_.name, device) : body_.name;
    part.device = device;
    part.index_params = body_.index_params;
    auto& list = lists_[device];
    std::sort(list.begin(), list.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [position, node] : list) part.nodes.push_back(std::move(node));
    std::map<ValueIndex, ValueIndex> moved;
    const auto move = [&](ValueIndex& v) {
      if (v == kNone) return;
      const auto [found, fresh] = moved.try_emplace(v, kNone);
      if (fresh) {
        const int32_t added = v - body_.values.end_id();
        found->second = part.add(added < 0 ? body_.values[v] : sluice::at(added_, added));
      }
      v = found->second;
    };
    for (size_t p = 0; p < body_.params.size(); ++p) {
      if (device_of(body_.params[p].in) != device) continue;
      BodyParam param = body_.params[p];
      param.out = param_outs_[p];
      move(param.in);
      move(param.out);
      part.value(param.in).index = static_cast<int32_t>(part.params.size());
      part.params.push_back(std::move(param));
    }
    for (Node& node : part.nodes) {
      for (ValueIndex& v : node.inputs) move(v);
      for (ValueIndex& v : node.outputs) move(v);
      for (Tie& t : node.ties) move(t.into);
    }
    for (size_t r = 0; r < results_.size(); ++r) {
      if (result_device_[r] != device) continue;
      part.results.push_back(results_[r]);
      move(part.results.back());
    }
    for (size_t i = 0; i < variables_.size(); ++i) {
      const exe::VariableId variable = body_.variables[i].first;
      if (shared_.variable_device[variable] != device) continue;
      part.variables.emplace_back(variable, variables_[i]);
      move(part.variables.back().second);
    }
    return part;
  }

  Shared& shared_;
  const BodyId id_;
  const Body& body_;
  Ids<ValueIndex, int32_t> device_;  // For each value: the device that makes it.
  // For each value in a parameter or a variable: the device of its bytes.
  Ids<ValueIndex, int32_t> storage_device_;
  Ids<ValueIndex, NodeId> index_;  // For each value: the Index node that makes it, or invalid.
  Ids<ValueIndex, Position> made_at_;
  NodeId now_{0};
  int32_t number_ = 0;
  std::map<int32_t, std::vector<std::pair<Position, Node>>> lists_;  // Indexed by device.
  std::map<std::pair<ValueIndex, int32_t>, ValueIndex> local_;       // Indexed by value and device.
  std::vector<BodyValue> added_;  // New values, with indices after those of the body.
  std::vector<Message> messages_;
  // (channel, node): the node's call uses it.
  std::set<std::pair<exe::ChannelId, NodeId>> barriers_;
  std::vector<int32_t> result_device_;
  std::vector<ValueIndex> results_;
  std::vector<ValueIndex> param_outs_;
  std::vector<ValueIndex> variables_;
};

}  // namespace

int64_t project(Program& program, const Context&) {
  move_transfers(program);
  spread_conditions(program);
  Shared shared(program);
  for (const BodyId id : callees_first(program)) {
    DividedBody cut = Projector(shared, id).run();
    shared.cuts.emplace(id, std::move(cut));
  }
  for (EntryBodies& entry : program.entries) {
    const DividedBody& cut = shared.cuts.at(entry.bodies[0]);
    entry.bodies.clear();
    for (const auto& [device, part] : cut.parts) entry.bodies.push_back(part);
  }
  for (const exe::VariableId v : program.variables.ids())
    program.variables[v].device = std::max(shared.variable_device[v], 0);
  renumber(program);
  return shared.sends;
}

}  // namespace sluice::compiler
