#include "sluice/compiler/project.h"

#include <algorithm>
#include <map>

#include "sluice/base/checked.h"

namespace sluice::compiler {
namespace {

class Projector {
 public:
  Projector(Body body, const Globals& globals, const FactTable& facts, exe::Executable& executable)
      : body_(std::move(body)), facts_(facts), exe_(executable), home_(body_.values.size(), -1) {
    for (size_t v = 0; v < body_.values.size(); ++v) {
      if (body_.values[v].source == BodyValue::Source::kVariable) {
        home_[v] = globals.variables[static_cast<size_t>(body_.values[v].index)].device;
      }
    }
  }

  std::vector<Body> run() {
    for (Node& node : body_.nodes) {
      require(node.device >= 0 && node.device < static_cast<int32_t>(exe_.devices.size()),
              "{} made at {}: there is no device {}, the program has {}", name_of(node), node.where,
              node.device, exe_.devices.size());
      check_effects(node);
      for (ValueIndex& v : node.inputs) v = local(v, node.device);
      for (const Tie& t : node.ties) {
        require(owner(t.into, node.device) == node.device,
                "{} made at {}: it writes a tensor of device {} on device {}", name_of(node),
                node.where, owner(t.into, node.device), node.device);
      }
      home_.resize(body_.values.size(), -1);
      for (const ValueIndex v : node.outputs) {
        if (v != kNone) home_[static_cast<size_t>(v)] = node.device;
      }
      nodes_[node.device].push_back(std::move(node));
    }
    size_channels();
    return split();
  }

 private:
  // A stream or remote buffer has one order, that of the one device that uses it.
  void check_effects(const Node& node) {
    if (node.has_effect && node.effect.kind != Effect::Kind::kPrint) {
      const bool stream = node.effect.kind == Effect::Kind::kStreamRead ||
                          node.effect.kind == Effect::Kind::kStreamWrite;
      check_object(node, stream, node.effect.id);
    }
    for (const GraphId callee : node.callees) {
      for (const SequenceUse& use : facts_[callee].sequences) {
        if (use.sequence.of == Sequence::Of::kStream) check_object(node, true, use.sequence.id);
      }
    }
  }

  void check_object(const Node& node, bool stream, int32_t id) {
    const int32_t device = object_device_.try_emplace({stream, id}, node.device).first->second;
    require(device == node.device,
            "{} made at {}: {} is used on devices {} and {}; it must be on one of them",
            name_of(node), node.where,
            stream ? "stream '" + exe_.streams[static_cast<size_t>(id)].name + "'"
                   : fmt::format("remote buffer {}", id),
            device, node.device);
  }

  int32_t owner(ValueIndex v, int32_t otherwise) const {
    const int32_t d = static_cast<size_t>(v) < home_.size() ? home_[static_cast<size_t>(v)] : -1;
    return d < 0 ? otherwise : d;
  }

  // The value as `device` has it: itself, or what a message brought.
  ValueIndex local(ValueIndex v, int32_t device) {
    if (v == kNone || owner(v, device) == device) return v;
    const auto [place, fresh] = received_.try_emplace({v, device}, kNone);
    if (!fresh) return place->second;
    const int32_t from = owner(v, device);
    own_bytes(v, from);
    const auto [channel, first] =
        channels_.try_emplace({from, device}, static_cast<int32_t>(exe_.channels.size()));
    if (first)
      exe_.channels.push_back({fmt::format("{}to{}", from, device), from, device, 0, 0, 0, 0});
    exe::Channel& c = exe_.channels[static_cast<size_t>(channel->second)];
    const TensorSpec spec = body_.value(v).spec;
    Node send;
    send.kind = Node::Kind::kSend;
    send.inputs = {v};
    send.in_specs = {spec};
    send.channel = channel->second;
    send.message = c.capacity++;
    send.device = from;
    send.where = "message to device " + std::to_string(device);
    Node receive = send;
    receive.kind = Node::Kind::kReceive;
    receive.inputs.clear();
    receive.in_specs.clear();
    receive.out_specs = {spec};
    receive.device = device;
    receive.where = "message from device " + std::to_string(from);
    BodyValue copy = body_.value(v);
    copy.source = BodyValue::Source::kNode;
    receive.outputs = {body_.add(std::move(copy))};
    place->second = receive.outputs[0];
    c.slot_bytes = std::max(c.slot_bytes, round_up(buffer_bytes(spec, body_.value(v).layout), 64));
    nodes_[from].push_back(std::move(send));
    nodes_[device].push_back(std::move(receive));
    return place->second;
  }

  // What is sent must be a value with bytes of its own: sender and receiver know it by one name.
  void own_bytes(ValueIndex v, int32_t device) {
    for (Node& node : nodes_[device]) {
      if (node.kind == Node::Kind::kView && node.outputs[0] == v) node.kind = Node::Kind::kCopy;
    }
  }

  void size_channels() {
    for (const auto& [ends, index] : channels_) {
      exe::Channel& c = exe_.channels[static_cast<size_t>(index)];
      exe_.arenas.push_back({"slots " + c.name, exe::ArenaKind::kSlots, exe::Space::kDevice, c.to,
                             checked_mul(c.capacity, c.slot_bytes), 0});
      c.arena = static_cast<int32_t>(exe_.arenas.size() - 1);
    }
  }

  std::vector<Body> split() {
    std::vector<Body> parts;
    nodes_[0];
    for (auto& [device, nodes] : nodes_) {
      Body part = body_;
      part.device = device;
      part.nodes = std::move(nodes);
      part.variables.clear();
      for (const auto& [variable, v] : body_.variables) {
        if (owner(v, 0) == device) part.variables.emplace_back(variable, v);
      }
      if (nodes_.size() > 1) part.name += fmt::format("@{}", device);
      parts.push_back(std::move(part));
    }
    return parts;
  }

  Body body_;
  const FactTable& facts_;
  exe::Executable& exe_;
  std::vector<int32_t> home_;
  std::map<int32_t, std::vector<Node>> nodes_;
  std::map<std::pair<bool, int32_t>, int32_t>
      object_device_;  // (stream rather than buffer, number)
  std::map<std::pair<ValueIndex, int32_t>, ValueIndex> received_;
  std::map<std::pair<int32_t, int32_t>, int32_t> channels_;
};

}  // namespace

std::vector<Body> project(Body body, const Globals& globals, const FactTable& facts,
                          exe::Executable& executable) {
  for (Node& node : body.nodes) node.device = std::max(node.device, 0);
  // A variable may live elsewhere than the ops that are left.
  const bool one = std::all_of(body.nodes.begin(), body.nodes.end(),
                               [](const Node& n) { return n.device == 0; }) &&
                   std::all_of(globals.variables.begin(), globals.variables.end(),
                               [](const Globals::Variable& v) { return v.device == 0; });
  if (one) return {std::move(body)};
  return Projector(std::move(body), globals, facts, executable).run();
}

void name_messages(const exe::Program& program, exe::Executable& executable) {
  std::map<std::pair<int32_t, int64_t>, exe::ValueId> sent;
  const auto each_step = [&](auto&& visit) {
    for (const exe::Entry& entry : program.entries) {
      for (const exe::Step& step : executable.functions[static_cast<size_t>(entry.function)].steps)
        visit(step.body);
    }
  };
  each_step([&](const auto& body) {
    if (const auto* s = std::get_if<exe::Send>(&body))
      sent[{s->channel, s->message.constant()}] = s->operand.value;
  });
  each_step([&](const auto& body) {
    const auto* r = std::get_if<exe::Receive>(&body);
    if (r == nullptr) return;
    const exe::ValueId source = sent.at({r->channel, r->message.constant()});
    executable.values[static_cast<size_t>(r->operand.value)] =
        executable.values[static_cast<size_t>(source)];
  });
}

}  // namespace sluice::compiler
