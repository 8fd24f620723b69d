#include "sluice/data/text/tokens.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <numeric>

#include "sluice/base/test_refusals.h"
#include "sluice/data/files/test_bytes.h"
#include "sluice/data/loader.h"
#include "sluice/data/pipeline/node.h"
#include "sluice/data/test_allocations.h"
#include "sluice/data/test_elements.h"

namespace sluice::data {
namespace {

using test::bytes_of;
using test::TestFile;
using Ids = std::vector<int32_t>;

Ids ids_of(const HostTensor& array) {
  return {array.as<int32_t>().begin(), array.as<int32_t>().end()};
}

/// The ids 0, 1, …, n - 1, so that a window shows where it begins.
Tokens counted_tokens(int64_t n) {
  Ids ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return Tokens(ids, n);
}

std::vector<int64_t> starts(const Dataset& windows, int64_t count) {
  std::vector<int64_t> found;
  for (int64_t k = 0; k < count; ++k) {
    const Element element = windows.node()->at(k, 0);
    const Ids input = ids_of(element["input"]);
    const Ids target = ids_of(element["target"]);
    for (size_t i = 0; i < input.size(); ++i) {
      EXPECT_EQ(input[i], input[0] + static_cast<int32_t>(i));
      EXPECT_EQ(target[i], input[i] + 1);
    }
    found.push_back(input[0]);
  }
  return found;
}

TEST(TokenWindows, ConsecutiveWindowsDoNotOverlap) {
  const Tokens tokens = counted_tokens(23);
  EXPECT_EQ(starts(consecutive_windows(tokens, 5), 4), (std::vector<int64_t>{0, 5, 10, 15}));
  EXPECT_EQ(consecutive_windows(tokens, 5).size(), 4);
  EXPECT_EQ(consecutive_windows(tokens, 11).size(), 2);
  EXPECT_EQ(consecutive_windows(tokens, 22).size(), 1);
  EXPECT_EQ(to_string(check_static(consecutive_windows(tokens, 5))),
            "input (5,) int32, target (5,) int32");
  const TokenSplit split = split_tokens(tokens);
  EXPECT_EQ(split.training.size(), 20);
  EXPECT_EQ(starts(consecutive_windows(split.test, 1), 2), (std::vector<int64_t>{20, 21}));
  EXPECT_EQ(split_tokens(counted_tokens(20)).test.size(), 2);
}

TEST(TokenSplits, AShortPartIsNamed) {
  const TestFile text("short.txt", std::string_view("abcdefghij"));
  const ErrorKind bad = ErrorKind::kBadFile;
  for (const int64_t vocabulary : {256, 300}) {
    const Tokens tokens =
        text_tokens(text.path(), TextUnit::kByte).tokens.with_vocabulary(vocabulary);
    EXPECT_EQ(tokens.vocabulary(), vocabulary);
    expect_refused(
        {{"test", [&] { consecutive_windows(split_tokens(tokens, 4).test, 4); },
          "short.txt: test part: must have at least 5 tokens, context + 1, got 4 of the 10", bad},
         {"training", [&] { random_windows(split_tokens(tokens, 8).training, {.context = 4}); },
          "short.txt: training part: must have at least 5 tokens, context + 1, got 2 of", bad},
         {"all", [&] { random_windows(tokens, {.context = 10}); },
          "short.txt: must have at least 11 tokens, context + 1, got 10", bad}});
  }
  const Tokens all = counted_tokens(9);
  expect_refused({{"tests", [&] { split_tokens(all, 10); }, "a range must be in [0, 9)"},
                  {"part", [&] { all.range(0, 2).require_size(3, "reason"); },
                   "tokens: part: must have at least 3 tokens, reason, got 2 of the 9 tokens"},
                  {"id", [&] { all.with_vocabulary(8); }, "token 8: must be in [0, 8), got 8"}});
}

TEST(TokenWindows, RandomWindowsAreAFunctionOfSeedAndIndex) {
  const Tokens tokens = counted_tokens(12);
  const auto drawn = [&](uint64_t seed) {
    return starts(random_windows(tokens, {.context = 4, .seed = seed}), 2000);
  };
  const std::vector<int64_t> first = drawn(1);
  EXPECT_EQ(drawn(1), first);
  EXPECT_NE(drawn(2), first);
  EXPECT_NE(drawn(uint64_t{1} << 32 | 1), first);
  // Other windows would change every run.
  EXPECT_EQ((std::vector<int64_t>{first.begin(), first.begin() + 8}),
            (std::vector<int64_t>{2, 3, 7, 5, 4, 7, 2, 2}));
  std::map<int64_t, int> counts;
  for (const int64_t start : first) ++counts[start];
  ASSERT_EQ(counts.size(), 8u);  // Windows begin at 0 to 7.
  EXPECT_EQ(counts.rbegin()->first, 7);
  for (const auto& [start, count] : counts) EXPECT_NEAR(count, 250, 75) << start;
  EXPECT_EQ(random_windows(tokens, {.context = 4}).size(), kForever);
  // A later part begins there.
  const Dataset part = random_windows(tokens.range(6, 12), {.context = 5});
  EXPECT_EQ(starts(part, 3), (std::vector<int64_t>{6, 6, 6}));
}

TEST(TokenWindows, LoadersReadThem) {
  const Dataset windows = random_windows(counted_tokens(50), {.context = 3, .seed = 7});
  const std::vector<int64_t> expected = starts(windows, 8);
  std::vector<int64_t> found;
  for (const Element& element : windows.parallel_map([](Element e) { return e; }, 2).take(8))
    found.push_back(element["input"].as<int32_t>()[0]);
  EXPECT_EQ(found, expected);
  const Element batch = *windows.batch(4).iterate().next();
  EXPECT_EQ(to_string(batch["input"].spec()), "(4, 3) int32");
}

TEST(TokenFiles, AreReadByParts) {
  std::vector<uint16_t> ids(1 << 20);
  std::iota(ids.begin(), ids.end(), 0);
  const TestFile file("tokens.bin", bytes_of<uint16_t>(ids));
  test::largest_allocation = 0;
  const Tokens tokens = tokens_file(file.path());
  EXPECT_EQ(tokens.size(), 1 << 20);
  EXPECT_EQ(tokens.vocabulary(), 65536);
  const Dataset windows = consecutive_windows(tokens, 100);
  EXPECT_EQ(windows.size(), 10485);
  const Element last = windows.node()->at(10484, 0);
  EXPECT_EQ(last["input"].as<int32_t>()[99], (10484 * 100 + 99) % 65536);
  EXPECT_EQ(last["target"].as<int32_t>()[99], (10484 * 100 + 100) % 65536);
  EXPECT_LT(test::largest_allocation.load(), 1 << 14);
  Ids two(2);
  tokens.read(0x1233, two);
  EXPECT_EQ(two, (Ids{0x1233, 0x1234}));
}

TEST(TokenFiles, RefuseOtherFilesAndIds) {
  const TestFile odd("odd.bin", std::string_view("abc"));
  const TestFile file("tokens.bin", bytes_of<uint16_t>({1, 2, 3, 9, 5, 6, 7}));
  const TestFile empty("empty.bin", std::string_view());
  const Tokens tokens = tokens_file(file.path(), 9);
  EXPECT_EQ(ids_of(consecutive_windows(tokens, 2).node()->at(2, 0)["target"]), (Ids{6, 7}));
  const Tokens cut = tokens_file(file.path());
  expect_refused({
      {"odd", [&] { tokens_file(odd.path()); }, "odd.bin: must have 2 bytes for each token, got 3",
       ErrorKind::kBadFile},
      {"missing", [] { tokens_file("missing.bin"); }, "missing.bin", ErrorKind::kIo},
      {"vocabulary", [&] { tokens_file(file.path(), int64_t{1} << 31); },
       "must be in [1, 2147483647], got 2147483648"},
      {"empty", [&] { random_windows(tokens_file(empty.path())); },
       "empty.bin: must have at least 65 tokens, context + 1, got 0", ErrorKind::kBadFile},
      {"short", [&] { consecutive_windows(tokens, 7); },
       "tokens.bin: must have at least 8 tokens, context + 1, got 7", ErrorKind::kBadFile},
      {"long", [&] { random_windows(tokens, {.context = std::numeric_limits<int64_t>::max()}); },
       "must have at least 9223372036854775808 tokens", ErrorKind::kBadFile},
      {"context", [&] { consecutive_windows(tokens, 0); }, "must be at least 1 token, got 0"},
      {"id", [&] { consecutive_windows(tokens.range(1, 7), 2).node()->at(1, 0); },
       "tokens.bin: token 3: must be in [0, 9), got 9", ErrorKind::kBadFile},
      {"array",
       [] {
         Tokens({1, 2, -3}, 5);
       },
       "tokens: token 2: must be in [0, 5), got -3"},
      {"range", [&] { tokens.range(3, 8); }, "a range must be in [0, 7), got [3, 8)"},
      {"memory", [] { consecutive_windows(counted_tokens(4), 4); },
       "tokens: must have at least 5 tokens, context + 1, got 4"},
      {"shorter",
       [&] {
         std::filesystem::resize_file(file.path(), 6);
         consecutive_windows(cut, 3).node()->at(1, 0);
       },
       "tokens.bin: byte 0: the file must not change while it is read, got 6 bytes instead of 14",
       ErrorKind::kBadFile},
  });
}

TEST(TextTokens, AreCharactersOrBytes) {
  const TestFile file("a.txt", std::string_view("héllo"));
  const TextTokens characters = text_tokens(file.path(), TextUnit::kCharacter);
  EXPECT_EQ(characters.tokens.size(), 5);
  EXPECT_EQ(characters.tokens.vocabulary(), 4);
  const Element window = consecutive_windows(characters.tokens, 4).node()->at(0, 0);
  EXPECT_EQ(characters.tokenizer->decode(ids_of(window["target"])), "éllo");
  const TextTokens bytes = text_tokens(file.path(), TextUnit::kByte);
  EXPECT_EQ(bytes.tokens.size(), 6);
  EXPECT_EQ(bytes.tokens.vocabulary(), 256);
  EXPECT_EQ(text_tokens(file.path(), CharacterTokenizer("ohélz")).size(), 5);

  const TestFile cut("cut.txt", std::string_view("abc\xe2\x82"));
  const TestFile empty("empty.txt", std::string_view());
  EXPECT_EQ(text_tokens(cut.path(), TextUnit::kByte).tokens.size(), 5);
  const auto read = [](const TestFile& text) { text_tokens(text.path(), TextUnit::kCharacter); };
  expect_refused({
      {"utf-8", [&] { read(cut); }, "cut.txt: byte 3: must be UTF-8", ErrorKind::kBadFile},
      {"empty", [&] { read(empty); }, "empty.txt: must have a character", ErrorKind::kBadFile},
      {"missing", [] { text_tokens("missing.txt", TextUnit::kByte); }, "missing.txt",
       ErrorKind::kIo},
      {"other", [&] { text_tokens(file.path(), CharacterTokenizer("helo")); },
       "a.txt: byte 1: must be one of the 4 characters of the vocabulary, got 'é'",
       ErrorKind::kBadFile},
  });
}

}  // namespace
}  // namespace sluice::data
