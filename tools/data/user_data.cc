#include "tools/data/user_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "sluice/base/sys.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/idx.h"
#include "tools/flags/words.h"

namespace sluice::tool {
namespace {

constexpr std::string_view kDatasetForms = "csv:FILE, npz:FILE, safetensors:FILE or idx:DIR";
constexpr std::string_view kReadable = "csv:FILE, npz:FILE, safetensors:FILE, text:FILE or idx:DIR";
constexpr uint64_t kOrderSeed = 0;  // The order in which samples are divided.
constexpr double kUsualValidation = 0.1;

struct Place {
  std::string kind;
  std::string path;
};

Place place_of(const std::string& text, std::string_view kinds) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const bool known =
      kind == "csv" || kind == "npz" || kind == "safetensors" || kind == "text" || kind == "idx";
  require(known && colon != text.npos && colon + 1 < text.size(), "--dataset: must be {}, got '{}'",
          kinds, text);
  return {kind, text.substr(colon + 1)};
}

// A place with inputs and targets of their own.
Place labelled_place(const std::string& text) {
  Place place = place_of(text, kDatasetForms);
  require(place.kind != "text",
          "--dataset: must be {}, got '{}'; none of the models reads text (sluice bench --dataset "
          "measures its windows)",
          kDatasetForms, text);
  return place;
}

struct IdxFiles {
  std::string images;
  std::string labels;
};

// Finds the files "train-…" or "t10k-…" in a folder or its subfolder mnist, plain or gzip.
std::optional<IdxFiles> find_idx(const std::string& folder, std::string_view part) {
  sys::check_folder(folder);
  for (const char* sub : {"", "/mnist"}) {
    const auto find = [&](std::string_view name) -> std::string {
      for (const char* suffix : {"", ".gz"}) {
        std::string path = fmt::format("{}{}/{}-{}{}", folder, sub, part, name, suffix);
        if (sys::exists(path)) return path;
      }
      return "";
    };
    IdxFiles files{find("images-idx3-ubyte"), find("labels-idx1-ubyte")};
    if (!files.images.empty() && !files.labels.empty()) return files;
  }
  return std::nullopt;
}

IdxFiles training_files(const std::string& folder) {
  const auto files = find_idx(folder, "train");
  if (!files) {
    fail(ErrorKind::kIo,
         "{0} or {0}/mnist must contain train-images-idx3-ubyte and train-labels-idx1-ubyte (each "
         "plain or .gz)",
         folder);
  }
  return *files;
}

// The columns of a CSV file by name.
class Columns {
 public:
  explicit Columns(const std::string& path) : names_(data::csv_columns(path)) {}

  std::vector<int> numbers(const char* option, const std::string& list) const {
    std::vector<int> result;
    for (const std::string& name : split_list(option, list)) {
      const auto found = std::find(names_.begin(), names_.end(), name);
      require(found != names_.end(), "{}: must be one of the columns {}, got '{}'", option,
              fmt::join(names_, ", "), name);
      result.push_back(static_cast<int>(found - names_.begin()));
    }
    return result;
  }
  /// All columns that are not in `excluded`.
  std::vector<data::CsvColumn> others(const std::vector<int>& excluded) const {
    std::vector<data::CsvColumn> result;
    for (int c = 0; c < count(); ++c) {
      if (std::find(excluded.begin(), excluded.end(), c) == excluded.end()) result.emplace_back(c);
    }
    return result;
  }
  int count() const { return static_cast<int>(names_.size()); }

 private:
  std::vector<std::string> names_;
};

// A dataset with the fields "input" and "target".
data::Dataset columns_of_csv(const std::string& path, const DataChoice& choice) {
  const Columns columns(path);
  const bool classes = choice.loss == models::Loss::kCrossEntropy;
  const std::vector<int> targets = choice.target.empty()
                                       ? std::vector<int>{columns.count() - 1}
                                       : columns.numbers("--target", choice.target);
  require(!classes || targets.size() == 1,
          "--target: must be one column of classes, got {}; --loss mse takes several",
          targets.size());
  std::vector<data::CsvColumn> inputs;
  if (choice.input.empty()) {
    inputs = columns.others(targets);
  } else {
    for (const int c : columns.numbers("--input", choice.input)) inputs.emplace_back(c);
  }
  require(!inputs.empty(), "--input: must be at least one column besides the target, got none");
  data::CsvField target{.name = "target", .dtype = classes ? i32 : f32};
  for (const int c : targets) target.columns.emplace_back(c);
  if (targets.size() == 1) target = {.name = "target", .column = targets[0], .dtype = target.dtype};
  return data::from_csv(path, {.fields = {{.name = "input", .columns = inputs}, target}});
}

data::Dataset renamed(const data::Dataset& fields, const std::string& x, const std::string& y) {
  return fields.map([x, y](data::Element e) {
    return data::Element{{"input", std::move(e[x])}, {"target", std::move(e[y])}};
  });
}

std::string or_else(const std::string& name, const char* usual) {
  return name.empty() ? usual : name;
}

// A dataset with the fields "input" and "target".
data::Dataset labelled(const DataChoice& choice) {
  const Place place = labelled_place(choice.place);
  if (place.kind == "csv") return columns_of_csv(place.path, choice);
  if (place.kind == "idx") {
    const IdxFiles files = training_files(place.path);
    return renamed(data::from_idx(files.images, files.labels), or_else(choice.input, "image"),
                   or_else(choice.target, "label"));
  }
  const std::string x = or_else(choice.input, "input"), y = or_else(choice.target, "target");
  return renamed(place.kind == "npz" ? data::from_npz(place.path, {x, y})
                                     : data::from_safetensors(place.path, {x, y}),
                 x, y);
}

// The test samples of an idx folder, if they are to be used and are there.
std::optional<data::Dataset> own_tests(const DataChoice& choice) {
  const Place place = labelled_place(choice.place);
  if (place.kind != "idx" || choice.validation) return std::nullopt;
  const auto files = find_idx(place.path, "t10k");
  if (!files) return std::nullopt;
  return renamed(data::from_idx(files->images, files->labels), or_else(choice.input, "image"),
                 or_else(choice.target, "label"));
}

int32_t label_of(const HostTensor& target, int64_t sample) {
  require(target.shape().elements() == 1 && !is_float(target.dtype()),
          "--target: must be one integer for each sample, got {}; mlp takes real numbers with "
          "--loss mse",
          to_string(target.spec()));
  const int32_t label = target.cast(i32).as<int32_t>()[0];
  require(label >= 0, "--target: labels must be classes from 0, got {} in sample {}", label,
          sample);
  return label;
}

HostTensor finite(const char* option, const HostTensor& array, int64_t sample) {
  HostTensor values = array.cast(f32);
  for (const float x : values.as<float>())
    require(std::isfinite(x), "{}: must be finite float32 numbers, got {} in sample {}", option, x,
            sample);
  return values;
}

Shape with_rows(int64_t rows, const Shape& sample) {
  std::vector<int64_t> dims{rows};
  dims.insert(dims.end(), sample.begin(), sample.end());
  return Shape(std::move(dims));
}

// Copies sample k to its row.
void put(HostTensor& rows, int64_t k, const HostTensor& sample) {
  const auto bytes = sample.bytes();
  if (bytes.empty()) return;
  std::memcpy(rows.bytes().data() + static_cast<size_t>(k) * bytes.size(), bytes.data(),
              bytes.size());
}

data::Samples collect(const data::Dataset& dataset, int64_t count, const DataChoice& choice) {
  const bool classes = choice.loss == models::Loss::kCrossEntropy;
  data::Samples samples;
  int64_t k = 0;
  for (const data::Element& e : dataset) {
    const HostTensor input = finite("--input", e["input"], k);
    const HostTensor& target = e["target"];
    if (k == 0) {
      samples = {HostTensor({with_rows(count, input.shape()), f32, {}}),
                 classes ? HostTensor({{count}, i32, {}})
                         : HostTensor({with_rows(count, target.shape()), f32, {}}),
                 choice.place};
    }
    put(samples.images, k, input);
    if (classes) {
      samples.labels.as<int32_t>()[static_cast<size_t>(k)] = label_of(target, k);
    } else {
      put(samples.labels, k, finite("--target", target, k));
    }
    ++k;
  }
  return samples;
}

Shape shape_of_sample(const HostTensor& images) {
  const std::vector<int64_t>& dims = images.shape().dims();
  return Shape({dims.begin() + 1, dims.end()});
}

void count_classes(const DataChoice& choice, UserData& data) {
  if (choice.loss == models::Loss::kMeanSquaredError) {
    data.classes = data.train.labels.elements() / data.train.size();
    require(data.classes >= 1, "--target: must have at least one number for each sample, got none");
    return;
  }
  const int64_t all = data.train.size() + data.test.size();
  for (const data::Samples* part : {&data.train, &data.test}) {
    for (const int32_t label : part->labels.as<int32_t>())
      data.classes = std::max<int64_t>(data.classes, label + 1);
  }
  require(data.classes <= all, "--target: labels must be below the number of samples, {}, got {}",
          all, data.classes - 1);
}

// The inputs of a CSV file with or without targets.
data::Dataset inputs_of_csv(const std::string& path, const DataChoice& choice, int64_t elements) {
  const Columns columns(path);
  std::vector<data::CsvColumn> inputs;
  if (!choice.input.empty()) {
    for (const int c : columns.numbers("--input", choice.input)) inputs.emplace_back(c);
  } else if (!choice.target.empty()) {
    inputs = columns.others(columns.numbers("--target", choice.target));
  } else if (columns.count() == elements + 1) {
    inputs = columns.others({columns.count() - 1});
  } else {
    inputs = columns.others({});
  }
  require(!inputs.empty(), "--input: must be at least one column, got none");
  return data::from_csv(path, {.fields = {{.name = "input", .columns = inputs}}});
}

// Returns the pixels of a file of images, normalised as those of a folder.
HostTensor images_of(const std::string& path) {
  const HostTensor bytes = data::read_idx_bytes(sys::read_file(path), path);
  HostTensor images({bytes.shape(), f32, {}});
  std::transform(bytes.as<uint8_t>().begin(), bytes.as<uint8_t>().end(), images.as<float>().begin(),
                 data::normalised_pixel);
  return images;
}

}  // namespace

data::Dataset open_dataset(const std::string& text) {
  const Place place = place_of(text, kReadable);
  if (place.kind == "csv") return data::from_csv(place.path);
  if (place.kind == "npz") return data::from_npz(place.path);
  if (place.kind == "safetensors") return data::from_safetensors(place.path);
  if (place.kind == "text") return data::from_text(place.path);
  const IdxFiles files = training_files(place.path);
  return data::from_idx(files.images, files.labels);
}

std::shared_ptr<const UserData> load_user_data(const DataChoice& choice) {
  const data::Dataset dataset = labelled(choice);
  const int64_t all = dataset.size().value_or(0);
  auto result = std::make_shared<UserData>();
  if (const auto tests = own_tests(choice)) {
    result->train = collect(dataset, all, choice);
    result->test = collect(*tests, tests->size().value_or(0), choice);
    require(shape_of_sample(result->train.images) == shape_of_sample(result->test.images),
            "--dataset: training and test images must have one shape, got {} and {}",
            to_string(result->train.images.shape()), to_string(result->test.images.shape()));
  } else {
    const double share = choice.validation.value_or(kUsualValidation);
    const auto tests_of = static_cast<int64_t>(std::llround(static_cast<double>(all) * share));
    require(tests_of >= 1 && tests_of < all,
            "--validation: must leave samples to train and to test on, got {} of {} samples to "
            "test",
            tests_of, all);
    const data::Dataset order = dataset.shuffle(kOrderSeed, all);
    result->train = collect(order.take(all - tests_of), all - tests_of, choice);
    result->test = collect(order.skip(all - tests_of), tests_of, choice);
  }
  count_classes(choice, *result);
  return result;
}

HostTensor load_inputs(const DataChoice& choice, int64_t elements) {
  const Place place = labelled_place(choice.place);
  if (place.kind == "idx") {
    const bool folder = sys::exists(place.path + "/.");
    return images_of(folder ? training_files(place.path).images : place.path);
  }
  const std::string x = or_else(choice.input, "input");
  const data::Dataset dataset =
      place.kind == "csv" ? inputs_of_csv(place.path, choice, elements)
                          : (place.kind == "npz" ? data::from_npz(place.path, {x})
                                                 : data::from_safetensors(place.path, {x}));
  const int64_t count = dataset.size().value_or(0);
  require(count > 0, "--dataset: must have at least one sample, got none");
  HostTensor inputs;
  int64_t k = 0;
  for (const data::Element& e : dataset) {
    const HostTensor input = finite("--input", e.arrays.at(0), k);
    if (k == 0) inputs = HostTensor({with_rows(count, input.shape()), f32, {}});
    put(inputs, k++, input);
  }
  return inputs;
}

int64_t elements_of_sample(const models::Model& model, const models::Sizes& sizes) {
  return model.build(sizes).fields().at(0).spec.shape.elements() / sizes.micro_batch;
}

void fit_sizes(const models::Model& model, const UserData& data, bool has_classes,
               models::Sizes& sizes) {
  Shape sample = shape_of_sample(data.train.images);
  if (model.fits_any_samples && !has_classes) {
    sizes.sample = sample.empty() ? Shape{1} : std::move(sample);
    sizes.classes = data.classes;
    return;
  }
  const int64_t elements = elements_of_sample(model, sizes);
  require(sample.elements() == elements,
          "--dataset: samples of {} must have {} numbers, got shape {}; {}", model.name, elements,
          to_string(sample),
          model.fits_any_samples ? "the weights are for others" : "mlp takes any shape");
  if (sizes.loss == models::Loss::kMeanSquaredError) {
    require(data.classes == sizes.classes,
            "--target: must have {} numbers for each sample, as the last layer of the weights, got "
            "{}",
            sizes.classes, data.classes);
    return;
  }
  require(data.classes <= sizes.classes,
          "--dataset: labels of {} must be below its {} classes, got {}", model.name, sizes.classes,
          data.classes - 1);
}

}  // namespace sluice::tool
