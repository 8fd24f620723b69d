#include "sluice/compiler/body.h"

#include <fmt/format.h>

namespace sluice::compiler {

std::string to_string(const Body& body) {
  const auto name = [&](ValueIndex v) {
    const BodyValue& value = body.value(v);
    return fmt::format("%{}:{}@{}", v, value.tensor, value.version);
  };
  const auto list = [&](const std::vector<ValueIndex>& values) {
    std::string text;
    for (const ValueIndex v : values)
      text += fmt::format("{}{}", text.empty() ? "" : ", ", name(v));
    return text;
  };
  static constexpr const char* kKinds[] = {"kernel", "view",     "copy",      "call", "loop",
                                           "branch", "transfer", "iteration", "send", "receive"};
  std::string text = fmt::format("body {} on device {}\n", body.name, body.device);
  for (const Node& n : body.nodes) {
    text += fmt::format("  {} {} ({}) -> ({})", kKinds[static_cast<size_t>(n.kind)],
                        n.def == nullptr ? "" : fmt::format("{}.{}", n.def->type, n.origin),
                        list(n.inputs), list(n.outputs));
    for (const Tie& t : n.ties) text += fmt::format(" [{} in {}]", t.output, name(t.into));
    text += '\n';
  }
  return text + fmt::format("  results ({})\n", list(body.results));
}

}  // namespace sluice::compiler
