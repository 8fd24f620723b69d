#include "sluice/data/text/tokenizer.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"

namespace sluice::data {
namespace {

using Ids = std::vector<int32_t>;

TEST(CharacterTokenizers, TheVocabularyIsSortedByCodePoint) {
  const CharacterTokenizer tokenizer("b€ab😀é\n");
  EXPECT_EQ(tokenizer.vocabulary(), "\nabé€😀");
  EXPECT_EQ(tokenizer.vocabulary_size(), 6);
  EXPECT_EQ(tokenizer.encode("ab😀€é\n"), (Ids{1, 2, 5, 4, 3, 0}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.decode(Ids{5, 0, 3}), "😀\né");
  EXPECT_TRUE(tokenizer.special_tokens().empty());
  EXPECT_EQ(CharacterTokenizer(tokenizer.vocabulary()).encode("é€"), (Ids{3, 4}));
}

TEST(CharacterTokenizers, RefuseOtherTextsAndIds) {
  const CharacterTokenizer tokenizer("abc");
  expect_refused({
      {"empty", [] { CharacterTokenizer(""); }, "must have a character for the vocabulary"},
      {"vocabulary", [] { CharacterTokenizer("ab\xff"); }, "text: byte 2: must be UTF-8"},
      {"cut", [&] { tokenizer.encode("abc\xe2\x82"); }, "text: byte 3: must be UTF-8"},
      {"other", [&] { tokenizer.encode("cé"); },
       "text: byte 1: must be one of the 3 characters of the vocabulary, got 'é'"},
      {"large",
       [&] {
         tokenizer.decode(Ids{0, 3});
       },
       "token 1: must be in [0, 3), got 3"},
      {"negative", [&] { tokenizer.decode(Ids{-1}); }, "token 0: must be in [0, 3), got -1"},
  });
}

TEST(ByteTokenizers, IdsAreBytes) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.vocabulary_size(), 256);
  EXPECT_EQ(tokenizer.encode("a€\xff"), (Ids{0x61, 0xe2, 0x82, 0xac, 0xff}));
  EXPECT_EQ(tokenizer.encode(std::string_view("\0", 1)), Ids{0});
  EXPECT_EQ(tokenizer.decode(Ids{0x61, 0xff, 0}), std::string("a\xff\0", 3));
  expect_refused({{"large", [&] { tokenizer.decode(Ids{256}); }, "must be in [0, 256), got 256"}});
}

}  // namespace
}  // namespace sluice::data
