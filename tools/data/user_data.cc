#include "tools/data/user_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "sluice/data/dataset_files.h"
#include "tools/flags.h"

namespace sluice::tool {
namespace {

constexpr std::string_view kKinds = "csv:FILE, npz:FILE, safetensors:FILE or idx:DIR";
constexpr uint64_t kOrderSeed = 0;  // The order in which samples are divided.

struct Place {
  std::string kind;
  std::string path;
};

Place place_of(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const bool known = kind == "csv" || kind == "npz" || kind == "safetensors" || kind == "idx";
  require(known && colon != text.npos && colon + 1 < text.size(), "--dataset: must be {}, got '{}'",
          kKinds, text);
  return {kind, text.substr(colon + 1)};
}

// A dataset with the fields "input" and "target".
data::Dataset columns_of_csv(const std::string& path, const std::string& input,
                             const std::string& target) {
  const std::vector<std::string> columns = data::csv_columns(path);
  const auto number_of = [&](const char* option, const std::string& name) {
    const auto found = std::find(columns.begin(), columns.end(), name);
    require(found != columns.end(), "{}: must be one of the columns {}, got '{}'", option,
            fmt::join(columns, ", "), name);
    return static_cast<int>(found - columns.begin());
  };
  const int last = static_cast<int>(columns.size()) - 1;
  const int labels = target.empty() ? last : number_of("--target", target);
  std::vector<data::CsvColumn> inputs;
  if (!input.empty()) {
    for (const std::string& name : split_list("--input", input))
      inputs.emplace_back(number_of("--input", name));
  } else {
    for (int c = 0; c <= last; ++c) {
      if (c != labels) inputs.emplace_back(c);
    }
  }
  require(!inputs.empty(), "--input: must be at least one column besides the target, got none");
  return data::from_csv(path, {.fields = {{.name = "input", .columns = inputs},
                                          {.name = "target", .column = labels, .dtype = i32}}});
}

// A dataset with the fields "input" and "target".
data::Dataset labelled(const std::string& text, const std::string& input,
                       const std::string& target) {
  const Place place = place_of(text);
  if (place.kind == "csv") return columns_of_csv(place.path, input, target);
  const bool idx = place.kind == "idx";
  const std::string x = !input.empty() ? input : idx ? "image" : "input";
  const std::string y = !target.empty() ? target : idx ? "label" : "target";
  const data::Dataset fields = place.kind == "npz" ? data::from_npz(place.path, {x, y})
                               : place.kind == "safetensors"
                                   ? data::from_safetensors(place.path, {x, y})
                                   : data::from_idx(place.path, data::Split::kTrain);
  return fields.map([x, y](data::Element e) {
    return data::Element{{"input", std::move(e[x])}, {"target", std::move(e[y])}};
  });
}

int32_t label_of(const HostTensor& target, int64_t sample) {
  require(target.shape().elements() == 1 && !is_float(target.dtype()),
          "--target: must be one integer for each sample, got {}", to_string(target.spec()));
  const int32_t label = target.cast(i32).as<int32_t>()[0];
  require(label >= 0, "--target: labels must be classes from 0, got {} in sample {}", label,
          sample);
  return label;
}

data::Samples collect(const data::Dataset& dataset, int64_t count, const std::string& source) {
  data::Samples samples;
  int64_t k = 0;
  for (const data::Element& e : dataset) {
    const HostTensor input = e["input"].cast(f32);
    if (k == 0) {
      std::vector<int64_t> dims{count};
      dims.insert(dims.end(), input.shape().begin(), input.shape().end());
      samples = {HostTensor(TensorSpec{Shape(std::move(dims)), f32}), HostTensor(i32_spec({count})),
                 source};
    }
    const auto bytes = input.bytes();
    std::memcpy(samples.images.bytes().data() + static_cast<size_t>(k) * bytes.size(), bytes.data(),
                bytes.size());
    samples.labels.as<int32_t>()[static_cast<size_t>(k)] = label_of(e["target"], k);
    ++k;
  }
  return samples;
}

Shape shape_of_sample(const data::Samples& samples) {
  const std::vector<int64_t>& dims = samples.images.shape().dims();
  return Shape({dims.begin() + 1, dims.end()});
}

}  // namespace

data::Dataset open_dataset(const std::string& text) {
  const Place place = place_of(text);
  if (place.kind == "csv") return data::from_csv(place.path);
  if (place.kind == "npz") return data::from_npz(place.path);
  if (place.kind == "safetensors") return data::from_safetensors(place.path);
  return data::from_idx(place.path, data::Split::kTrain);
}

std::shared_ptr<const UserData> load_user_data(const std::string& text, const std::string& input,
                                               const std::string& target, double validation) {
  const data::Dataset dataset = labelled(text, input, target);
  const int64_t all = dataset.size().value_or(0);
  const auto tests = static_cast<int64_t>(std::llround(static_cast<double>(all) * validation));
  require(tests >= 1 && tests < all,
          "--validation: must leave samples to train and to test on, got {} of {} samples to test",
          tests, all);
  const data::Dataset order = dataset.shuffle(kOrderSeed, all);
  auto result = std::make_shared<UserData>();
  result->train = collect(order.take(all - tests), all - tests, text);
  result->test = collect(order.skip(all - tests), tests, text);
  for (const data::Samples* part : {&result->train, &result->test}) {
    for (const int32_t label : part->labels.as<int32_t>())
      result->classes = std::max<int64_t>(result->classes, label + 1);
  }
  require(result->classes <= all,
          "--target: labels must be below the number of samples, {}, got {}", all,
          result->classes - 1);
  return result;
}

void fit_sizes(const models::Model& model, const UserData& data, models::Sizes& sizes) {
  const Shape sample = shape_of_sample(data.train);
  if (model.fits_any_samples) {
    sizes.sample = sample;
    sizes.classes = data.classes;
    return;
  }
  const train::Network network = model.build(sizes);
  const int64_t elements = network.fields().at(0).spec.shape.elements() / sizes.micro_batch;
  require(sample.elements() == elements,
          "--dataset: samples of {} must have {} numbers, got shape {}; mlp takes any shape",
          model.name, elements, to_string(sample));
  require(data.classes <= sizes.classes,
          "--dataset: labels of {} must be below its {} classes, got {}", model.name, sizes.classes,
          data.classes - 1);
}

}  // namespace sluice::tool
