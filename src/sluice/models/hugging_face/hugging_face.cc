#include "sluice/models/hugging_face/hugging_face.h"

#include <algorithm>
#include <set>

#include "sluice/models/hugging_face/checkpoint.h"
#include "sluice/train/torch_weights.h"

namespace sluice::models {
namespace {

// Returns the counterpart of a variable in checkpoints with the layout.
train::TorchWeight stored_weight(const WeightLayout& layout, const std::string& variable) {
  for (const WeightName& row : layout.names) {
    if (row.stored == Stored::kTied || row.stored == Stored::kBuffer) continue;
    if (const std::optional<int64_t> block = match_name(variable_of(layout, row), variable)) {
      return {.path = variable,
              .name = numbered_name(row.name, *block),
              .transposed = row.stored == Stored::kTransposed};
    }
  }
  fail(ErrorKind::kUsage, "variable '{}' must be one of {}", variable, layout.model);
}

std::vector<train::TorchWeight> stored_weights(const WeightLayout& layout,
                                               const train::Training& training) {
  std::vector<train::TorchWeight> weights;
  for (const train::TorchWeight& weight : training.torch_weights)
    weights.push_back(stored_weight(layout, weight.path));
  return weights;
}

// Returns the second names of weights.
std::vector<train::TorchWeight> tied_weights(const WeightLayout& layout,
                                             const std::vector<train::TorchWeight>& weights) {
  const auto any = [&](const auto& is) { return std::ranges::any_of(weights, is); };
  std::vector<train::TorchWeight> tied;
  for (const WeightName& row : layout.names) {
    if (row.stored != Stored::kTied) continue;
    const bool taken = any([&](const auto& w) { return w.name == row.name; });
    if (!taken && any([&](const auto& w) { return w.path == row.variable; }))
      tied.push_back({.path = std::string(row.variable), .name = std::string(row.name)});
  }
  return tied;
}

// Finds the names of weights in files that lack the prefix of the layout. An absent weight keeps
// the name with the prefix.
void find_names(const WeightLayout& layout, const train::WeightFiles& files,
                std::vector<train::TorchWeight>& weights) {
  for (train::TorchWeight& w : weights) {
    const std::string name(without_prefix(layout, w.name));
    if (!files.has(w.name) && files.has(name)) w.name = name;
  }
}

void require_layout(const WeightLayout& layout, const train::WeightFiles& files) {
  const WeightLayout* found = find_layout(files.tensors());
  if (found != nullptr && found->model != layout.model)
    fail(ErrorKind::kBadFile, "{}: must have the weights of {}, got names of {}", files.name(),
         layout.model, found->model);
}

void require_present(const WeightLayout& layout, const train::WeightFiles& files,
                     const std::vector<train::TorchWeight>& weights) {
  for (const train::TorchWeight& w : weights) {
    if (files.has(w.name)) continue;
    for (const WeightName& row : layout.names) {
      if (row.stored == Stored::kTied && row.name == w.name) {
        fail(
            ErrorKind::kBadFile,
            "{}: weight '{}' is missing: the checkpoint ties it to that of '{}', so the model must "
            "do this too",
            files.name(), w.name, row.variable);
      }
    }
  }
}

// Checks that a tensor without a variable of its own is a buffer or the second name of a weight.
void check_extra(const WeightLayout& layout, const train::WeightFiles& files,
                 const std::vector<train::TorchWeight>& weights,
                 const std::vector<train::TorchWeight>& tied, const std::string& name) {
  for (const train::TorchWeight& second : tied) {
    if (second.name != name) continue;
    const auto first = std::ranges::find(weights, second.path, &train::TorchWeight::path);
    if (!files.has(first->name)) return;  // A later check reports the missing weight.
    if (!files.read(name).same_bits(files.read(first->name))) {
      fail(ErrorKind::kBadFile, "{}: '{}' must equal '{}', because the model ties them",
           files.name(), name, first->name);
    }
    return;
  }
  for (const WeightName& row : layout.names) {
    if (!match_name(without_prefix(layout, row.name), without_prefix(layout, name))) continue;
    if (row.stored == Stored::kBuffer) return;
    fail(ErrorKind::kBadFile, "{}: '{}' must have a variable in the model; the model must have {}",
         files.name(), name, "the blocks of the checkpoint");
  }
  fail(ErrorKind::kBadFile, "{}: '{}' must be a weight of {}", files.name(), name, layout.model);
}

// Returns the tensor of each variable, which the files have.
std::vector<train::TorchWeight> found_weights(const train::Training& training,
                                              const WeightLayout& layout,
                                              const train::WeightFiles& files) {
  require_layout(layout, files);
  std::vector<train::TorchWeight> weights = stored_weights(layout, training);
  find_names(layout, files, weights);
  require_present(layout, files, weights);
  return weights;
}

}  // namespace

void check_hugging_face(const train::Training& training, const WeightLayout& layout,
                        const std::string& path) {
  const train::WeightFiles files = open_checkpoint(path);
  train::check_named_weights(training, found_weights(training, layout, files), files);
}

void load_hugging_face(Session& session, const train::Training& training,
                       const WeightLayout& layout, const std::string& path) {
  const train::WeightFiles files = open_checkpoint(path);
  const std::vector<train::TorchWeight> weights = found_weights(training, layout, files);
  std::vector<train::TorchWeight> tied = tied_weights(layout, stored_weights(layout, training));
  find_names(layout, files, tied);
  std::set<std::string> read;
  for (const train::TorchWeight& w : weights) read.insert(w.name);
  for (const std::string& name : files.tensors()) {
    if (!read.contains(name)) check_extra(layout, files, weights, tied, name);
  }
  train::load_named_weights(session, training, weights, files);
}

void save_hugging_face(Session& session, const train::Training& training,
                       const WeightLayout& layout, const std::string& path) {
  std::vector<train::TorchWeight> weights = stored_weights(layout, training);
  for (train::TorchWeight& w : tied_weights(layout, weights)) weights.push_back(std::move(w));
  // Transformers reads files of this format only.
  train::save_named_weights(session, training, weights, path, {{"format", "pt"}});
}

}  // namespace sluice::models
