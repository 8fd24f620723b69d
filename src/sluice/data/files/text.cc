#include <algorithm>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/contents.h"
#include "sluice/data/files/utf8.h"

namespace sluice::data {
namespace {

/// Calls f(character) for each character of `text`; returns their number. `name` begins the error
/// if the text is not UTF-8.
template <typename F>
int64_t for_each_character(std::string_view text, ErrorKind kind, std::string_view name, F f) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) {
    const size_t size = character_size(text.substr(at));
    if (size == 0) fail(kind, "{}: byte {}: the text must be UTF-8", name, at);
    f(text.substr(at, size));
    at += size;
  }
  return count;
}

/// Returns the number of windows, at least 1.
int64_t windows_of(int64_t characters, const TextOptions& options, ErrorKind kind,
                   std::string_view name) {
  require(options.length >= 1, "from_text: length must be at least 1 character, got {}",
          options.length);
  require(options.stride >= 0, "from_text: stride must be at least 0 characters, got {}",
          options.stride);
  if (characters <= options.length) {
    fail(kind, "{}: must have more than {} characters, the length of a window, got {}", name,
         options.length, characters);
  }
  const int64_t stride = options.stride == 0 ? options.length : options.stride;
  return (characters - options.length - 1) / stride + 1;
}

Dataset windows(std::shared_ptr<const HostTensor> ids, int64_t count, const TextOptions& options) {
  const int64_t length = options.length;
  const int64_t stride = options.stride == 0 ? length : options.stride;
  const TensorSpec window{{length}, i32, {}};
  const auto cut = [ids = std::move(ids), length, stride, window](int64_t k) {
    HostTensor input(window);
    HostTensor target(window);
    const auto from = ids->as<int32_t>().begin() + k * stride;
    std::copy_n(from, length, input.as<int32_t>().begin());
    std::copy_n(from + 1, length, target.as<int32_t>().begin());
    return Element{{"input", std::move(input)}, {"target", std::move(target)}};
  };
  return from_function(count, cut, ElementSpecs{{window, window}, {"input", "target"}});
}

}  // namespace

HostTensor Text::encode(const std::string& text) const {
  const int64_t count = for_each_character(text, ErrorKind::kUsage, "text", [](auto) {});
  HostTensor encoded({{count}, i32, {}});
  auto out = encoded.as<int32_t>().begin();
  for_each_character(text, ErrorKind::kUsage, "text", [&](std::string_view character) {
    const auto found = std::lower_bound(vocabulary.begin(), vocabulary.end(), character);
    require(found != vocabulary.end() && *found == character,
            "text: a character must be one of the {} in the vocabulary, got '{}'",
            vocabulary.size(), character);
    *out++ = static_cast<int32_t>(found - vocabulary.begin());
  });
  return encoded;
}

std::string Text::decode(const HostTensor& ids) const {
  std::string text;
  for (const int32_t id : ids.as<int32_t>()) {
    require(id >= 0 && id < std::ssize(vocabulary), "text: an id must be in [0, {}), got {}",
            vocabulary.size(), id);
    text += at(vocabulary, id);
  }
  return text;
}

Text read_text(const std::string& path) {
  const std::vector<std::byte> bytes = read_contents(path, Contents::kAnyText, "text");
  const std::string all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::set<std::string_view> characters;  // UTF-8 sorts like its code points.
  for_each_character(all, ErrorKind::kBadFile, path,
                     [&](std::string_view character) { characters.insert(character); });
  Text text;
  text.vocabulary.assign(characters.begin(), characters.end());
  text.ids = text.encode(all);
  return text;
}

Dataset from_text(const Text& text, const TextOptions& options) {
  require(text.ids.dtype() == i32 && text.ids.shape().rank() == 1,
          "from_text: the ids must be (characters) int32, got {}", to_string(text.ids.spec()));
  const int64_t count =
      windows_of(text.ids.elements(), options, ErrorKind::kUsage, "from_text: the text");
  return windows(std::make_shared<const HostTensor>(text.ids), count, options);
}

Dataset from_text(const std::string& path, const TextOptions& options) {
  Text text = read_text(path);
  const int64_t count = windows_of(text.ids.elements(), options, ErrorKind::kBadFile, path);
  return windows(std::make_shared<const HostTensor>(std::move(text.ids)), count, options);
}

}  // namespace sluice::data
