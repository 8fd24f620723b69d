#include "sluice/report/value_names.h"

#include <algorithm>

#include <algorithm>
#include <cctype>

namespace sluice::report {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string leaf_of(const std::string& tensor) { return tensor.substr(tensor.rfind('/') + 1); }

std::string_view graph_of(std::string_view tensor) {
  const size_t end = tensor.rfind('/');
  return end == tensor.npos ? "" : tensor.substr(0, end);
}

bool is_gradient_graph(std::string_view graph) {
  constexpr std::string_view kMark = ")_bwd";
  const size_t at = graph.rfind(kMark);
  if (at == graph.npos) return false;
  const std::string_view rest = graph.substr(at + kMark.size());
  return rest.empty() || (rest[0] == '_' && std::all_of(rest.begin() + 1, rest.end(), is_digit));
}

std::string_view given_name(std::string_view graph) {
  return graph.substr(0, graph.find("_subgraph("));
}

std::string without_numbers(std::string name) {
  for (size_t at = name.find("__t"); at != std::string::npos; at = name.find("__t", at)) {
    size_t end = at + 3;
    while (end < name.size() && is_digit(name[end])) ++end;
    if (end == at + 3) {
      at = end;
    } else {
      name.erase(at, end - at);
    }
  }
  return name;
}

std::string op_of(std::string name) {
  while (true) {
    size_t end = name.size();
    while (end > 0 && is_digit(name[end - 1])) --end;
    if (end == name.size() || end < 2 || name[end - 1] != '_') return name;
    name.resize(end - 1);
  }
}

std::string module_in(const std::string& where) {
  const size_t end = where.rfind(' ');
  std::string module = end == std::string::npos ? "" : where.substr(0, end);
  std::replace(module.begin(), module.end(), '/', '.');
  return module;
}

}  // namespace sluice::report
