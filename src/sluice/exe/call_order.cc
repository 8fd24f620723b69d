#include "sluice/exe/call_order.h"

#include "sluice/exe/visit_step.h"

namespace sluice::exe {

std::vector<int32_t> callees_first(const Executable& executable) {
  const auto count = static_cast<int32_t>(executable.functions.size());
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> state(executable.functions.size(), kNew);
  std::vector<int32_t> order;
  for (int32_t root = 0; root < count; ++root) {
    std::vector<int32_t> stack{root};
    while (!stack.empty()) {
      const int32_t f = stack.back();
      uint8_t& s = state[static_cast<size_t>(f)];
      if (s == kNew) {
        s = kOpen;
        for (const Step& step : executable.functions[static_cast<size_t>(f)].steps) {
          for_each_call(step, [&](const Call& c) {
            if (state[static_cast<size_t>(c.function)] == kNew) stack.push_back(c.function);
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
