#include "sluice/data/text/regex.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"

namespace sluice::data {
namespace {

TEST(Regexes, MatchCharactersOfUnicode) {
  const auto found = [](const std::string& pattern, const std::string& text) {
    return Regex(pattern, "f").matches(text);
  };
  EXPECT_EQ(found("\\p{L}+", "é1日本"), (std::vector<TextRange>{{0, 2}, {3, 9}}));
  EXPECT_EQ(found("\\s", "\u00a0\u3000"), (std::vector<TextRange>{{0, 2}, {2, 5}}));
  EXPECT_EQ(found("(?i:'s)", "'S"), (std::vector<TextRange>{{0, 2}}));
  EXPECT_EQ(found("^b$", "a\nb\nc"), (std::vector<TextRange>{{2, 3}}));
  EXPECT_EQ(found("é*", "aéb"), (std::vector<TextRange>{{0, 0}, {1, 3}, {4, 4}}));
  EXPECT_EQ(found("(?<=a)b", "abab"), (std::vector<TextRange>{{1, 2}, {3, 4}}));
  // The words of a search that needs a large stack.
  const std::string many(200000, 'a');
  EXPECT_EQ(found("(?:a|b)+", many), (std::vector<TextRange>{{0, many.size()}}));
}

TEST(Regexes, RefuseWhatLibrariesReadDifferently) {
  const auto bad = [](const std::string& pattern, const std::string& part) {
    return Refusal{pattern, [=] { Regex(pattern, "t.json"); }, part, ErrorKind::kBadFile};
  };
  expect_refused({
      bad("(a", "t.json: the regular expression '(a': byte 2: missing closing parenthesis"),
      bad("a\\h", "byte 1: must not have"),
      bad("\\p{N}{1,3}+", "byte 9: must not have"),
      bad("[a[b]]", "byte 2: must not have"),
      bad("[a&&b]", "byte 2: must not have"),
      bad("a\\Cb", "\\C is disabled"),
      bad("a\xff", "byte 0: must be UTF-8"),
      bad(std::string(65537, 'a'), "must have at most 65536 bytes"),
      {"steps", [] { Regex("(?:a+)+[bc]", "t.json").matches(std::string(60, 'a')); },
       "t.json: the regular expression '(?:a+)+[bc]': cannot be searched for: match limit exceeded",
       ErrorKind::kBadFile},
      {"order", [] { Regex("(?=ab\\K)", "t.json").matches("ab"); },
       "t.json: the regular expression", ErrorKind::kBadFile},
  });
  EXPECT_EQ(Regex("\\}+\\[[^\\[&]", "f").matches("}}[a").size(), 1u);
}

}  // namespace
}  // namespace sluice::data
