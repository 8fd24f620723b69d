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

void start_averages(Session& session, const Training& training,
                    const std::function<bool(const std::string& path)>& starts) {
  std::vector<std::byte> part;
  training.averages.for_each([&](const std::string& path, const Tensor& average) {
    if (!starts(path)) return;
    const Tensor& weight = training.variables[path];
    const TensorSpec spec = host_spec(weight.spec(), *weight.graph().info(weight).variable);
    for (int64_t begin = 0; begin < spec.elements(); begin += kWeightChunk) {
      const int64_t count = std::min(kWeightChunk, spec.elements() - begin);
      part.resize(static_cast<size_t>(count * size_of(spec.dtype)));
      session.read_chunk(weight, begin, count, part);
      session.write_chunk(average, begin, part);
    }
  });
}

LoadOptions averages_as_weights(const std::string& path, LoadOptions options) {
  const SafetensorsReader file(path);
  if (!file.index().metadata.contains(kAverageKey)) return options;
  NewNames new_names(options.names);
  std::set<std::string> names;
  for (const SafetensorsTensor& t : file.index().tensors) names.insert(t.name);
  for (const std::string& name : names) {
    const std::string average = kAveragePrefix + name;
    if (!names.contains(average) || new_names(average) != average) continue;
    options.names[average] = new_names(name);
    options.names[name] = "";
  }
  return options;
}

LoadResult load_weights(Session& session, const Training& training, const std::string& path,
                        const LoadOptions& options) {
  const SafetensorsReader file(path);
  HostVariables weights = variables_of(training.variables);
  const size_t required = weights.specs.size();
  weights.add(training.averages);
  FileMatch match = match_file(file, path, weights.specs, options, required);
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
  start_missing_averages(session, training, match.result);
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

void start_missing_averages(Session& session, const Training& training, LoadResult& result) {
  const std::set<std::string> missing(result.missing.begin(), result.missing.end());
  std::set<std::string> started;
  start_averages(session, training, [&](const std::string& path) {
    const std::string average = kAveragePrefix + path;
    return missing.contains(average) && !missing.contains(path) && started.insert(average).second;
  });
  std::erase_if(result.missing, [&](const std::string& path) { return started.contains(path); });
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
