#include "sluice/exe/call_order.h"

#include "sluice/exe/visit_step.h"

namespace sluice::exe {

std::vector<FunctionId> callees_first(const Executable& executable) {
  enum : uint8_t { kNew, kOpen, kDone };
  Ids<FunctionId, uint8_t> state(executable.functions.size(), kNew);
  std::vector<FunctionId> order;
  for (const FunctionId root : executable.functions.ids()) {
    std::vector<FunctionId> stack{root};
    while (!stack.empty()) {
      const FunctionId f = stack.back();
      uint8_t& s = state[f];
      if (s == kNew) {
        s = kOpen;
        for (const Step& step : executable.functions[f].steps) {
          for_each_call(step, [&](const Call& c) {
            if (state[c.function] == kNew) stack.push_back(c.function);
          });
        }
        continue;
      }
      stack.pop_back();
      if (s == kOpen) order.push_back(f);
      s = kDone;
    }
  }
  return order;
}

}  // namespace sluice::exe
