#pragma once
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/data/dataset.h"

namespace sluice::data::test {

/// An array filled with one value.
inline HostTensor filled(Shape shape, float value) {
  HostTensor array({std::move(shape), f32, {}});
  for (float& x : array.as<float>()) x = value;
  return array;
}

/// The elements 0, 1, …, n - 1 as scalars.
inline Dataset count_to(int64_t n) {
  return from_function(n, [](int64_t k) { return HostTensor::scalar(static_cast<float>(k)); });
}

/// Returns the first value of the first array of at most `max` elements of a pass.
inline std::vector<float> values(const Dataset& dataset, int64_t max = kForever,
                                 uint64_t pass = 0) {
  std::vector<float> found;
  Iterator iterator = dataset.iterate(pass);
  while (static_cast<int64_t>(found.size()) < max) {
    const std::optional<Element> element = iterator.next();
    if (!element) break;
    found.push_back(static_cast<float>(element->arrays.at(0).to_doubles().at(0)));
  }
  return found;
}

/// Reads to the end or to the error. Returns the number of elements and the message of the error,
/// "" if there was none. The iterator must be at its end afterwards.
inline std::pair<int64_t, std::string> read_all(const Dataset& dataset, int64_t max = 100000) {
  Iterator iterator = dataset.iterate();
  std::string message;
  try {
    while (iterator.position() < max && iterator.next()) {
    }
  } catch (const Error& e) {
    message = e.what();
    EXPECT_FALSE(iterator.next()) << "after an error";
    EXPECT_FALSE(iterator.next()) << "after an error";
  }
  return {iterator.position(), message};
}

/// A file that exists as long as the object.
class TestFile {
 public:
  TestFile(const std::string& name, std::span<const std::byte> bytes)
      : path_((std::filesystem::temp_directory_path() /
               fmt::format("sluice_data_{}_{}", ::getpid(), name))
                  .string()) {
    // Without the sync of sys::replace_file(): tests write very many files.
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  TestFile(const std::string& name, std::string_view text)
      : TestFile(name, std::as_bytes(std::span(text))) {}
  ~TestFile() { std::filesystem::remove(path_); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace sluice::data::test
