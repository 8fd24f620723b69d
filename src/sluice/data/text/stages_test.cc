#include "sluice/data/text/stages.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/data/text/bpe.h"

namespace sluice::data {
namespace {

using Words = std::vector<std::string>;
using Ids = std::vector<int32_t>;

Words words(const std::string& text, const std::vector<PreTokenizer>& stages) {
  Pieces pieces{text, {{0, text.size()}}, true};
  for (const PreTokenizer& stage : stages) stage(pieces);
  Words found;
  for (const auto& [begin, end] : pieces.ranges)
    found.push_back(pieces.text.substr(begin, end - begin));
  return found;
}

Words split(const std::string& text, const std::string& pattern, SplitBehavior behavior,
            bool inverted = false) {
  return words(text, {split_words(Regex(pattern, "f"), behavior, inverted)});
}

Words decoded(Words tokens, const Decoder& decoder) {
  decoder(tokens);
  return tokens;
}

TEST(Normalizers, ReplaceMatches) {
  EXPECT_EQ(literal_regex("a.[b]*\\", "f").matches("a.[b]*\\axb").size(), 1u);
  EXPECT_EQ(replaced("a b  c", Regex(" ", "f"), "__"), "a__b____c");
  EXPECT_EQ(replaced("ab", Regex("x*", "f"), "-"), "-a-b-");
}

TEST(PreTokenizers, SplitWords) {
  using enum SplitBehavior;
  const std::string text = "-a--b";
  EXPECT_EQ(split(text, "-", kRemoved), (Words{"a", "b"}));
  EXPECT_EQ(split(text, "-", kIsolated), (Words{"-", "a", "-", "-", "b"}));
  EXPECT_EQ(split(text, "-", kMergedWithPrevious), (Words{"-", "a-", "-", "b"}));
  EXPECT_EQ(split(text, "-", kMergedWithNext), (Words{"-a", "-", "-b"}));
  EXPECT_EQ(split(text, "-", kContiguous), (Words{"-", "a", "--", "b"}));
  EXPECT_EQ(split(text, "-", kRemoved, true), (Words{"-", "-", "-"}));
  EXPECT_EQ(split("a1\n b'll  c  ", kGpt2Words, kIsolated),
            (Words{"a", "1", "\n", " b", "'ll", " ", " c", "  "}));
  EXPECT_EQ(words("a1 2", {split_words(Regex(" ", "f"), kRemoved),
                           split_words(Regex("\\d", "f"), kIsolated), add_spaces()}),
            (Words{" a", " 1", " 2"}));
}

TEST(PreTokenizers, ByteLevelMakesPrintableCharacters) {
  EXPECT_EQ(words(" é\n", {byte_level()}), (Words{"ĠÃ©Ċ"}));
  EXPECT_EQ(byte_character(0x7f), "ġ");
  EXPECT_EQ(byte_character(0xa0), "ł");
  EXPECT_EQ(byte_character(0xad), "Ń");
  EXPECT_EQ(byte_character(0xff), "ÿ");
  EXPECT_EQ(words("a  b", {add_spaces(), byte_level()}), (Words{"ĠaĠĠb"}));
}

TEST(PreTokenizers, MetaspaceMarksWords) {
  const auto marked = [](MarkedWords which, bool cuts) {
    return words("a b-c", {split_words(Regex("-", "f"), SplitBehavior::kRemoved),
                           metaspace("▁", which, cuts, "f")});
  };
  EXPECT_EQ(marked(MarkedWords::kAll, true), (Words{"▁a", "▁b", "▁c"}));
  EXPECT_EQ(marked(MarkedWords::kFirst, true), (Words{"▁a", "▁b", "c"}));
  EXPECT_EQ(marked(MarkedWords::kNone, true), (Words{"a", "▁b", "c"}));
  EXPECT_EQ(marked(MarkedWords::kFirst, false), (Words{"▁a▁b", "c"}));
  EXPECT_EQ(words(" a", {metaspace("▁", MarkedWords::kAll, true, "f")}), Words{"▁a"});
}

TEST(Decoders, ReturnBytes) {
  EXPECT_EQ(decoded({"ĠÃ", "©", "€"}, decode_byte_level()), Words{" é€"});
  EXPECT_EQ(decoded({"a", "<0xC3>", "<0xa9>", "<0xG1>", "<0x1>"}, decode_byte_fallback()),
            (Words{"a", "\xc3", "\xa9", "<0xG1>", "<0x1>"}));
  EXPECT_EQ(decoded({"a", "", "b"}, fuse()), Words{"ab"});
  EXPECT_EQ(decoded({"  a  ", " ", ""}, strip(" ", 1, 2)), (Words{" a", "", ""}));
  EXPECT_EQ(decoded({"▁a▁", "▁b"}, decode_metaspace("▁", MarkedWords::kAll)), (Words{"a", " b"}));
  EXPECT_EQ(decoded({"▁a▁", "▁b"}, decode_metaspace("▁", MarkedWords::kNone)),
            (Words{" a ", " b"}));
}

TEST(BpeModels, MergeTheLowestRankFirst) {
  const TokenIds ids{{"a", 0}, {"b", 1}, {"c", 2}, {"bc", 3}, {"ab", 4}, {"abc", 5}, {"aa", 6}};
  const BpeModel model(ids, {{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"a", "a"}}, {}, "f");
  const auto encoded = [&](std::string_view word) {
    Ids found;
    model.encode(word, found);
    return found;
  };
  EXPECT_EQ(encoded("abc"), Ids{5});
  EXPECT_EQ(encoded("aab"), (Ids{0, 4}));
  EXPECT_EQ(encoded("aaa"), (Ids{6, 0}));
  EXPECT_EQ(encoded("abcb"), (Ids{5, 1}));
  EXPECT_EQ(encoded(""), Ids{});
  // c never joins a character after it.
  EXPECT_EQ(model.separable_size("abcab"), 3u);
  EXPECT_EQ(model.separable_size("aaab"), 4u);
  EXPECT_EQ(model.separable_size("c?"), 2u);
}

TEST(BpeModels, MayIgnoreMergesOfAWholeToken) {
  const TokenIds ids{{"a", 0}, {"b", 1}, {"ab", 2}, {"aba", 3}};
  for (const bool ignores : {false, true}) {
    const BpeModel model(ids, {{"a", "b"}}, {.ignores_merges = ignores}, "f");
    Ids found;
    model.encode("aba", found);
    EXPECT_EQ(found, ignores ? Ids{3} : (Ids{2, 0}));
    model.encode("abab", found);
    EXPECT_EQ(found.size(), ignores ? 3u : 4u);
    // A beginning of the word may be a token that merges do not make.
    EXPECT_EQ(model.separable_size("abaab"), ignores ? 5u : 2u);
  }
}

TEST(BpeModels, CoverUnknownCharacters) {
  const TokenIds ids{{"?", 0}, {"a", 1}};
  const auto encoded = [&](std::string_view word, const BpeOptions& options) {
    Ids found;
    BpeModel(ids, {}, options, "f").encode(word, found);
    return found;
  };
  EXPECT_EQ(encoded("xyaz", {.unknown = 0}), (Ids{0, 0, 1, 0}));
  EXPECT_EQ(encoded("xyaz", {.unknown = 0, .fuses_unknown = true}), (Ids{0, 1, 0}));
  TokenIds bytes;
  for (int i = 0; i < 256; ++i) bytes[fmt::format("<0x{:02X}>", i)] = i;
  Ids found;
  BpeModel(bytes, {}, {.byte_fallback = true}, "f").encode("é", found);
  EXPECT_EQ(found, (Ids{0xc3, 0xa9}));
  expect_refused({
      {"unknown", [&] { encoded("aé", {}); },
       "text: each character must be covered by the tokens of the vocabulary, got 'é'"},
      {"merge",
       [&] {
         BpeModel(ids, {{"a", "a"}}, {}, "m.txt");
       },
       "m.txt: merge 1: 'aa' must be a token of the vocabulary", ErrorKind::kBadFile},
  });
}

TEST(BpeModels, AWordOfAMillionCharactersIsFast) {
  // A quadratic loop would need hours.
  const TokenIds ids{{"a", 0}, {"aa", 1}, {"aaaa", 2}};
  const BpeModel model(ids, {{"a", "a"}, {"aa", "aa"}}, {}, "f");
  Ids found;
  model.encode(std::string(1'000'001, 'a'), found);
  EXPECT_EQ(found.size(), 250'001u);
  EXPECT_EQ(found.back(), 0);
}

}  // namespace
}  // namespace sluice::data
