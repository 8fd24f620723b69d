#include "sluice/compiler/passes/place.h"

#include "sluice/base/error.h"

namespace sluice::compiler {

int64_t place(Program& program, const Context& context) {
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

}  // namespace sluice::compiler
