#include "sluice/compiler/passes/conditions.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/base/ids/ids.h"
#include "sluice/compiler/rewriter.h"

namespace sluice::compiler {
namespace {

class Spreader {
 public:
  explicit Spreader(Program& program) : program_(program) {}

  int64_t run() {
    for (const BodyId id : callees_first(program_)) {
      spread_loops(id);
      devices_[id] = devices_of(program_.body(id));
    }
    return static_cast<int64_t>(bodies_.size());
  }

 private:
  // Copies of the condition that the body of a loop has.
  struct LoopBody {
    int32_t exit = -1;
    std::vector<int32_t> devices;  // Device of each new parameter.
  };

  std::set<int32_t> devices_of(const Body& body) const {
    std::set<int32_t> devices;
    for (const Node& node : body.nodes) {
      if (!has_callees(node)) devices.insert(node.device);
      for_each_callee(node, [&](BodyId callee) {
        devices.insert(devices_.at(callee).begin(), devices_.at(callee).end());
      });
    }
    return devices;
  }

  // The device of the node that makes a value, or of one in its callees.
  int32_t maker(const Body& body, ValueIndex value) const {
    for (const Node& node : body.nodes) {
      const auto found = std::find(node.outputs.begin(), node.outputs.end(), value);
      if (found == node.outputs.end()) continue;
      const Node::Call* call = node.call();
      if (call == nullptr) return node.device;
      const Body& callee = program_.body(call->callee);
      const auto output = found - node.outputs.begin();
      if (output < call->results) return maker(callee, at(callee.results, output));
      return maker(callee, at(callee.params, at(call->updated, output - call->results)).out);
    }
    return body.device;
  }

  // Returns a node on a device that copies a value. The copy has the name of the value.
  static Node copy_on(Body& body, ValueIndex from, const Node& at, int32_t device) {
    Node copy = make_copy(body, from, "", at);
    copy.device = device;
    return copy;
  }

  const LoopBody& spread_body(const Node::Loop& loop, const Node& node) {
    const auto [found, fresh] = bodies_.try_emplace(loop.callee);
    LoopBody& known = found->second;
    if (!fresh) return known;
    known.exit = static_cast<int32_t>(bodies_.size()) - 1;
    Body& body = program_.body(loop.callee);
    const BodyParam condition = at(body.params, loop.conditions[0]);
    const int32_t first = maker(body, condition.out);
    for (const int32_t device : devices_.at(loop.callee)) {
      if (device == first) continue;
      BodyValue in = body.value(condition.in);
      in.index = static_cast<int32_t>(body.params.size());
      BodyParam param{condition.name, body.add(std::move(in)), kNone};
      Node copy = copy_on(body, condition.out, node, device);
      copy.ties = {{0, param.in}};
      param.out = copy.outputs[0];
      body.nodes.push_back(std::move(copy));
      body.params.push_back(std::move(param));
      known.devices.push_back(device);
    }
    return known;
  }

  void spread_loops(BodyId id) {
    Body& body = program_.body(id);
    Rewriter rewriter(body);
    rewriter.run([&](Node& node) {
      auto* loop = node.as<Node::Loop>();
      if (loop == nullptr || loop->conditions.empty()) return true;
      const LoopBody& copies = spread_body(*loop, node);
      loop->exit = copies.exit;
      const int32_t first = loop->conditions[0];
      const ValueIndex before = at(node.inputs, first);
      const TensorSpec spec = at(node.in_specs, first);
      ValueIndex last = kNone;
      for_each_updated(node, [&](size_t input, size_t output) {
        if (std::cmp_equal(input, first)) last = node.outputs[output];
      });
      for (const int32_t device : copies.devices) {
        const ValueIndex own = rewriter.insert(copy_on(body, before, node, device));
        const ValueIndex made = body.add(BodyValue(body.value(last)));
        loop->conditions.push_back(add_updated(node, own, made, spec));
      }
      return true;
    });
  }

  Program& program_;
  std::map<BodyId, std::set<int32_t>> devices_;
  std::map<BodyId, LoopBody> bodies_;
};

}  // namespace

int64_t spread_conditions(Program& program) { return Spreader(program).run(); }

void keep_own_condition(Node::Loop& part, const std::vector<int32_t>& new_index) {
  std::vector<int32_t> own;
  for (const int32_t c : part.conditions) {
    if (at(new_index, c) >= 0) own.push_back(at(new_index, c));
  }
  part.conditions = std::move(own);
  SLUICE_CHECK(part.conditions.size() == (part.exit >= 0 ? 1 : 0));
}

}  // namespace sluice::compiler
