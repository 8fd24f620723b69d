#include "sluice/train/run/load_weights.h"

#include <algorithm>
#include <set>

#include "sluice/base/hash.h"
#include "sluice/base/safetensors.h"
#include "sluice/runtime/process_group.h"
#include "sluice/session/checkpoint.h"

namespace sluice::train {
namespace {

constexpr int64_t kWeightChunk = 1 << 20;  // Elements of a variable that are read together.

/// Variables and their specs as the host sees them, by path.
struct HostVariables {
  Tensors handles;
  std::vector<NamedSpec> specs;

  void add(const nn::NamedTensors& variables) {
    variables.for_each([&](const std::string&, const Tensor& t) {
      const VariableInfo& info = *t.graph().info(t).variable;
      handles.push_back(t);
      specs.push_back({info.path, host_spec(t.spec(), info)});
    });
  }
};

HostVariables variables_of(const nn::NamedTensors& variables) {
  HostVariables result;
  result.add(variables);
  return result;
}

}  // namespace

void check_weights(const Training& training, const std::string& path) {
  match_file(SafetensorsReader(path), path, variables_of(training.variables).specs);
}

LoadResult load_weights(Session& session, const Training& training, const std::string& path,
                        const LoadOptions& options) {
  const SafetensorsReader file(path);
  const HostVariables weights = variables_of(training.variables);
  FileMatch match = match_file(file, path, weights.specs, options);
  Digest digest;
  std::vector<std::byte> part;
  for (size_t v = 0; v < weights.specs.size(); ++v) {
    const SafetensorsTensor* const tensor = match.tensors[v];
    if (tensor == nullptr) continue;
    const int64_t elements = tensor->spec.elements(), width = size_of(tensor->spec.dtype);
    for (int64_t begin = 0; begin < elements; begin += kWeightChunk) {
      part.resize(static_cast<size_t>(std::min(kWeightChunk, elements - begin) * width));
      file.read(*tensor, begin * width, part);
      if (session.agreement().size() > 1) digest.add(part);
      session.write_chunk(weights.handles[v], begin, part);
    }
  }
  session.agreement().require_same("values in " + path, digest.hex());
  std::set<std::string> state;
  for (const NamedSpec& s : variables_of(training.state).specs) state.insert(s.name);
  std::erase_if(match.result.unused, [&](const std::string& name) { return state.contains(name); });
  std::ranges::sort(match.result.unused);
  return std::move(match.result);
}

std::vector<std::string> load_weights(Session& session, const Training& training,
                                      const std::string& path) {
  return load_weights(session, training, path, {}).unused;
}

void require_state(const Training& training, const std::string& path, const LoadOptions& options) {
  LoadOptions all = options;
  all.strict = false;
  HostVariables variables = variables_of(training.variables);
  const size_t weights = variables.specs.size();
  variables.add(training.state);
  const SafetensorsReader file(path);
  const FileMatch match = match_file(file, path, variables.specs, all);
  const auto lacks = std::find(match.tensors.begin(), match.tensors.end(), nullptr);
  const auto index = static_cast<size_t>(lacks - match.tensors.begin());
  if (lacks == match.tensors.end() || index < weights) return;
  fail(ErrorKind::kBadFile,
       "{}: must have the optimizer's state '{}', got the weights alone; load_weights() "
       "(--fresh-optimizer) starts the state anew",
       path, variables.specs[index].name);
}

}  // namespace sluice::train
