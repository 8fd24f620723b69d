#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/data/dataset.h"
#include "sluice/data/test_elements.h"

namespace sluice::data {
namespace {

using test::TestFile;
using Windows = std::vector<std::pair<std::string, std::string>>;

Windows windows(const std::string& text, const TextOptions& options) {
  const TestFile file("a.txt", text);
  const Text decoded = read_text(file.path());
  Windows found;
  for (const Element& e : from_text(file.path(), options)) {
    found.emplace_back(decoded.decode(e["input"]), decoded.decode(e["target"]));
  }
  return found;
}

TEST(TextWindows, TargetsAreInputsMovedByOneCharacter) {
  EXPECT_EQ(windows("abcdefg", {.length = 3}), (Windows{{"abc", "bcd"}, {"def", "efg"}}));
  EXPECT_EQ(windows("abcdef", {.length = 3}), (Windows{{"abc", "bcd"}}));
  EXPECT_EQ(windows("abcd", {.length = 3}), (Windows{{"abc", "bcd"}}));
  EXPECT_EQ(windows("abcde", {.length = 2, .stride = 1}),
            (Windows{{"ab", "bc"}, {"bc", "cd"}, {"cd", "de"}}));
  EXPECT_EQ(windows("abcdefgh", {.length = 1, .stride = 5}), (Windows{{"a", "b"}, {"f", "g"}}));
  EXPECT_EQ(windows("aé€😀\n", {.length = 4}), (Windows{{"aé€😀", "é€😀\n"}}));
}

TEST(TextWindows, TheVocabularyIsSortedByCodePoint) {
  const TestFile file("a.txt", std::string_view("b€ab😀é\n"));
  const Text text = read_text(file.path());
  EXPECT_EQ(text.vocabulary, (std::vector<std::string>{"\n", "a", "b", "é", "€", "😀"}));
  EXPECT_TRUE(text.ids.same_bits(HostTensor::of<int32_t>({7}, i32, {2, 4, 1, 2, 5, 3, 0})));
  EXPECT_TRUE(text.encode("ab€").same_bits(HostTensor::of<int32_t>({3}, i32, {1, 2, 4})));
  EXPECT_EQ(from_text(text, {.length = 2}).size(), 3);
  EXPECT_EQ(to_string(check_static(from_text(text, {.length = 2}))),
            "input (2,) int32, target (2,) int32");
  expect_refused({
      {"character", [&] { text.encode("c"); }, "must be one of the 6 in the vocabulary, got 'c'"},
      {"utf-8", [&] { text.encode("a\xff"); }, "text: byte 1: the text must be UTF-8"},
      {"id", [&] { text.decode(HostTensor::of<int32_t>({1}, i32, {6})); },
       "must be in [0, 6), got 6"},
      {"length", [&] { from_text(text, {.length = 0}); }, "length must be at least 1"},
      {"stride", [&] { from_text(text, {.length = 1, .stride = -1}); },
       "stride must be at least 0"},
      {"long", [&] { from_text(text, {.length = 7}); }, "must have more than 7 characters"},
  });
}

TEST(TextWindows, RefusesFilesThatAreNotText) {
  const auto bad = [](const std::string& bytes, const std::string& part) {
    return Refusal{bytes, [=] { windows(bytes, {.length = 2}); }, part, ErrorKind::kBadFile};
  };
  expect_refused({
      bad("", "a.txt: must have more than 2 characters, the length of a window, got 0"),
      bad("ab", "must have more than 2 characters, the length of a window, got 2"),
      bad("abc\x80", "a.txt: byte 3: the text must be UTF-8"), bad("abc\xc3", "byte 3"),  // cut off
      bad("abc\xc0\x80", "byte 3"),          // overlong
      bad("abc\xe0\x80\x80", "byte 3"),      // overlong
      bad("abc\xed\xa0\x80", "byte 3"),      // a surrogate
      bad("abc\xf4\x90\x80\x80", "byte 3"),  // too large
      bad("abc\xe2\x82", "byte 3"),          // cut off
  });
}

}  // namespace
}  // namespace sluice::data
