#include "sluice/data/cifar.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "sluice/base/bytes.h"
#include "sluice/base/error.h"
#include "sluice/base/sys.h"
#include "sluice/data/files/contents.h"

namespace sluice::data {
namespace {

constexpr std::array<const char*, 6> kCifarFiles{"data_batch_1.bin", "data_batch_2.bin",
                                                 "data_batch_3.bin", "data_batch_4.bin",
                                                 "data_batch_5.bin", "test_batch.bin"};
constexpr int64_t kRecord = 1 + kCifarChannels * kCifarPlane;
constexpr int64_t kMaxRecords = 10'000;

std::optional<std::string> cifar_folder(const std::string& folder) {
  for (const char* suffix : {"", "/cifar-10-batches-bin"}) {
    std::string candidate = folder + suffix;
    if (std::all_of(kCifarFiles.begin(), kCifarFiles.end(), [&](const char* name) {
          return find_data_file(candidate, name).has_value();
        })) {
      return candidate;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_cifar(const std::string& explicit_folder) {
  if (!explicit_folder.empty()) {
    sys::check_folder(explicit_folder);
    if (auto found = cifar_folder(explicit_folder)) return found;
    fail(
        ErrorKind::kIo,
        "{0} or {0}/cifar-10-batches-bin must contain CIFAR-10's binary files: data_batch_1.bin to "
        "data_batch_5.bin and test_batch.bin",
        explicit_folder);
  }
  if (const char* variable = std::getenv("SLUICE_DATA"); variable != nullptr && *variable != '\0') {
    if (auto found = cifar_folder(variable)) return found;
  }
  return cifar_folder("data/cifar10");
}

Samples read_cifar(std::span<const std::byte> bytes, const std::string& file) {
  const auto size = static_cast<int64_t>(bytes.size());
  ByteReader reader(file, bytes);
  if (size == 0 || size % kRecord != 0 || size / kRecord > kMaxRecords) {
    reader.bad("the file must have 1 to {} records of {} bytes, got {} bytes", kMaxRecords, kRecord,
               size);
  }
  const int64_t count = size / kRecord;
  Samples set;
  set.images = HostTensor({{count, kCifarChannels, kCifarSide, kCifarSide}, f32, {}});
  set.labels = HostTensor({{count}, i32, {}});
  set.source = file;
  auto out = set.images.as<float>().begin();
  for (int32_t& label : set.labels.as<int32_t>()) {
    const ByteReader here = reader;
    label = static_cast<int32_t>(reader.take(1, "a label")[0]);
    if (label > 9) here.bad("a label must be in [0, 9], got {}", label);
    for (int channel = 0; channel < kCifarChannels; ++channel) {
      for (const std::byte value : reader.take(kCifarPlane, "an image"))
        *out++ = normalised_color(static_cast<uint8_t>(value), channel);
    }
  }
  return set;
}

Samples load_cifar(const std::string& folder, Split split) {
  const bool train = split == Split::kTrain;
  std::vector<Samples> parts;
  int64_t count = 0;
  for (size_t i = train ? 0 : 5; i < (train ? 5u : 6u); ++i) {
    const std::string file =
        find_data_file(folder, kCifarFiles[i]).value_or(folder + "/" + kCifarFiles[i]);
    parts.push_back(read_cifar(read_contents(file, Contents::kBinary, "a file of CIFAR-10"), file));
    count += parts.back().size();
  }
  Samples set;
  set.images = HostTensor({{count, kCifarChannels, kCifarSide, kCifarSide}, f32, {}});
  set.labels = HostTensor({{count}, i32, {}});
  set.source = fmt::format("CIFAR-10, {} images of {}", train ? "training" : "test", folder);
  auto pixels = set.images.as<float>().begin();
  auto labels = set.labels.as<int32_t>().begin();
  for (const Samples& part : parts) {
    pixels = std::copy_n(part.images.as<float>().begin(), part.images.elements(), pixels);
    labels = std::copy_n(part.labels.as<int32_t>().begin(), part.size(), labels);
  }
  return set;
}

}  // namespace sluice::data
