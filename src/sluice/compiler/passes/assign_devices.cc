#include "sluice/compiler/passes/assign_devices.h"

#include <map>
#include <utility>
#include <vector>

#include "sluice/base/error.h"

namespace sluice::compiler {
namespace {

class TransferDevices {
 public:
  explicit TransferDevices(Program& program) : program_(program), seen_(program.bodies.size()) {
    for (const EntryBodies& entry : program.entries) visit(entry.bodies[0]);
  }

 private:
  void visit(BodyId id) {
    if (seen_[id]) return;
    seen_[id] = true;
    for (Node& node : program_.body(id).nodes) {
      for_each_callee(node, [&](BodyId callee) { visit(callee); });
      const auto* t = node.as<Node::Transfer>();
      if (t == nullptr) continue;
      const bool stream = t->effect.kind == Effect::Action::kStreamRead ||
                          t->effect.kind == Effect::Action::kStreamWrite;
      node.device = devices_.try_emplace({stream, t->effect.id}, node.device).first->second;
    }
  }

  Program& program_;
  Ids<BodyId, bool> seen_;
  // Keyed by (whether it is a stream, index).
  std::map<std::pair<bool, int32_t>, int32_t> devices_;
};

}  // namespace

int64_t assign_devices(Program& program, const Context& context) {
  const auto devices = static_cast<int32_t>(context.options.devices.size());
  int64_t inherited = 0;
  specialise<int32_t>(program, [&](BodyId id, int32_t device) {
    Body& body = program.body(id);
    body.device = device;
    std::vector<Request<int32_t>> requests;
    for (Node& node : body.nodes) {
      if (node.device == kInheritDevice) {
        node.device = device;
        ++inherited;
      }
      require(node.device >= 0 && node.device < devices,
              "{} made at {}: there is no device {}, the program has {}", name_of(node),
              node.where(), node.device, devices);
      for_each_callee(node, [&](BodyId& callee) { requests.push_back({&callee, node.device}); });
    }
    return requests;
  });
  return inherited;
}

void move_transfers(Program& program) { TransferDevices{program}; }

}  // namespace sluice::compiler
