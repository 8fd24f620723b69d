// Compares tokenizers with the ids that Hugging Face's tokenizers compute (tests/tokenizers).
#include <gtest/gtest.h>

#include <map>

#include "sluice/base/sys.h"
#include "sluice/base/test_refusals.h"
#include "sluice/data/test_elements.h"
#include "sluice/data/text/tokenizer.h"

namespace sluice::data {
namespace {

using test::TestFile;
using Ids = std::vector<int32_t>;

const std::string kFolder = "tests/tokenizers/";

std::string contents(const std::string& path) {
  const std::vector<std::byte> bytes = sys::read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> cut_at(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string unescaped(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
      continue;
    }
    bytes += static_cast<char>(std::stoi(text.substr(i + 2, 2), nullptr, 16));
    i += 3;
  }
  return bytes;
}

/// Returns llama2.json, or another file, with `from` replaced by `to`.
std::string changed(const std::string& from, const std::string& to,
                    const std::string& name = "llama2.json") {
  std::string text = contents(kFolder + name);
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

BpeTokenizer tokenizer_of(const std::string& json) {
  const TestFile file("t.json", json);
  return BpeTokenizer::read_json(file.path());
}

TEST(TokenizerFiles, IdsAreThoseOfTheReference) {
  const std::map<std::string, BpeTokenizer> tokenizers{
      {"gpt2", BpeTokenizer::read_gpt2(kFolder + "gpt2-vocab.json", kFolder + "gpt2-merges.txt")},
      {"gpt2_added", BpeTokenizer::read_json(kFolder + "gpt2_added.json")},
      {"llama2", BpeTokenizer::read_json(kFolder + "llama2.json")},
      {"llama3", BpeTokenizer::read_json(kFolder + "llama3.json")}};
  int count = 0;
  for (const std::string& line : cut_at(contents(kFolder + "cases.tsv"), '\n')) {
    if (line.empty()) continue;
    const std::vector<std::string> cells = cut_at(line, '\t');
    ASSERT_EQ(cells.size(), 4u) << line;
    const BpeTokenizer& tokenizer = tokenizers.at(cells[0]);
    Ids expected;
    for (const std::string& id : cut_at(cells[2], ' ')) {
      if (!id.empty()) expected.push_back(std::stoi(id));
    }
    EXPECT_EQ(tokenizer.encode(unescaped(cells[1])), expected) << line;
    EXPECT_EQ(tokenizer.decode(expected), unescaped(cells[3])) << line;
    ++count;
  }
  EXPECT_EQ(count, 120);
}

TEST(TokenizerFiles, HaveSpecialTokensAndATemplate) {
  const BpeTokenizer llama2 = BpeTokenizer::read_json(kFolder + "llama2.json");
  EXPECT_EQ(llama2.special_tokens(),
            (std::vector<SpecialToken>{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}}));
  EXPECT_EQ(llama2.begin_tokens(), Ids{1});
  EXPECT_EQ(llama2.end_tokens(), Ids{});
  EXPECT_EQ(llama2.vocabulary_size(), 500);
  const std::string part = R"({"Sequence":{"id":"A","type_id":0}})";
  const BpeTokenizer ended =
      tokenizer_of(changed(part + "]", part + R"(,{"SpecialToken":{"id":"<s>","type_id":0}}])"));
  EXPECT_EQ(ended.begin_tokens(), Ids{1});
  EXPECT_EQ(ended.end_tokens(), Ids{1});
  const BpeTokenizer gpt2 =
      BpeTokenizer::read_gpt2(kFolder + "gpt2-vocab.json", kFolder + "gpt2-merges.txt");
  EXPECT_EQ(gpt2.special_tokens(), (std::vector<SpecialToken>{{"<|endoftext|>", 0}}));
  EXPECT_EQ(gpt2.encode("a<|endoftext|>"), (Ids{65, 0}));
}

TEST(TokenizerFiles, LongTextsAreThoseOfTheirWords) {
  // The first text is one word for llama2, which is cut where no merge joins its characters.
  const BpeTokenizer llama2 = BpeTokenizer::read_json(kFolder + "llama2.json");
  std::string text;
  Ids expected;
  for (int i = 0; i < 3000; ++i) {
    const std::string word = i % 3 == 0 ? "there" : i % 3 == 1 ? "日" : "breaks,";
    text += (i == 0 ? "" : " ") + word;
    const Ids ids = llama2.encode(word);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(llama2.encode(text), expected);
  EXPECT_EQ(llama2.decode(expected), text);
  expect_refused({
      {"utf-8", [&] { llama2.encode("ab\xff"); }, "text: byte 2: must be UTF-8"},
      {"id",
       [&] {
         llama2.decode(Ids{1, 500});
       },
       "token 1: must be in [0, 500), got 500"},
  });
}

TEST(TokenizerFiles, RefuseUnsupportedComponents) {
  const auto bad = [](const std::string& from, const std::string& to, const std::string& part) {
    return Refusal{to, [=] { tokenizer_of(changed(from, to)); }, part, ErrorKind::kBadFile};
  };
  const std::string prepend = R"("type":"Prepend")";
  const std::string no_pre = R"("pre_tokenizer":null)";
  std::string nested = R"("pre_tokenizer":)";
  for (int i = 0; i < 9; ++i) nested += R"({"type":"Sequence","pretokenizers":[)";
  for (int i = 0; i < 9; ++i) nested += "]}";
  expect_refused({
      bad(prepend, R"("type":"NFC")",
          "t.json: normalizer.normalizers[0]: the normalizer 'NFC' is not supported; it must be "
          "one "
          "of Sequence, Prepend, Replace"),
      bad(no_pre, R"("pre_tokenizer":{"type":"Whitespace"})",
          "pre_tokenizer: the pre-tokenizer 'Whitespace' is not supported"),
      bad(no_pre, nested, "must be at most 8 sequences within each other"),
      bad(R"("type":"Fuse")", R"("type":"CTC")",
          "decoder.decoders[2]: the decoder 'CTC' is not supported"),
      bad(R"("type":"TemplateProcessing")", R"("type":"BertProcessing")",
          "post_processor: the post-processor 'BertProcessing' is not supported"),
      bad(R"("type":"BPE")", R"("type":"Unigram")",
          "model: the model 'Unigram' is not supported; it must be one of BPE"),
      bad(R"("dropout":null)", R"("dropout":0.1)", "model.dropout: must be null"),
      bad(R"("end_of_word_suffix":null)", R"("end_of_word_suffix":"</w>")",
          "model.end_of_word_suffix: must be null: it is not supported, got '</w>'"),
      bad(R"("single_word":false)", R"("single_word":true)",
          "added_tokens[0].single_word: must be false"),
  });
}

TEST(TokenizerFiles, RefuseDamagedFields) {
  const auto bad = [](const std::string& from, const std::string& to, const std::string& part) {
    return Refusal{to, [=] { tokenizer_of(changed(from, to)); }, part, ErrorKind::kBadFile};
  };
  const std::string type = R"("type":"Prepend")";
  expect_refused({
      bad("{", "[", "t.json: byte "),
      bad("\"version\"", "\"version", "t.json: byte 1"),
      bad(R"("<s>":1)", R"("<s>":2)", "must be the only one of its value in [0, 500), got 2"),
      bad(R"("<s>":1)", R"("<s>":500)", "must be the only one of its value in [0, 500), got 500"),
      bad(R"("<s>":1)", R"("<s>":-1)",
          "the id of '<s>': must be an integer from 0 to 2147483647, got '-1'"),
      bad(R"("<0x00>")", R"("<0y00>")",
          "model.byte_fallback: must be false without the token <0x00>, got 'true'"),
      bad(R"("unk_token":"<unk>")", R"("unk_token":"<x>")",
          "model.unk_token: must be a token of the vocabulary, got '<x>'"),
      bad(R"({"id":0,"content":"<unk>")", R"({"id":0,"content":"<s>")",
          "added token '<s>': must have one id, got 0 and another"),
      bad(R"({"id":0,"content":"<unk>")", R"({"id":0,"content":"")",
          "added_tokens[0].content: must be a text that is not empty, got ''"),
      bad(R"("merges":[)", R"("merges":["a",)",
          "model.merges[0]: must be two tokens with a space between them, got 'a'"),
      bad(R"("merges":[)", R"("merges":["▁ Q▁",)",
          "merge 1: 'Q▁' must be a token of the vocabulary"),
      bad(R"("merges":[)", R"("merges":["e t h",)", "model.merges[0]"),
      bad(R"("prepend":"▁")", R"("prepend":1)",
          "normalizer.normalizers[0].prepend: must be a text, got '1'"),
      bad(R"({"String":" "})", R"({"Regex":"("})", "the regular expression '(': byte 1"),
      bad(R"({"String":" "})", R"({})", "pattern.Regex: must be a text, got 'null'"),
      bad(R"("content":" ","start":1)", R"("content":"ab","start":1)",
          "decoder.decoders[3].content: must be one character, got 'ab'"),
      bad(R"("ids":[1])", R"("ids":[500])",
          "special_tokens.<s>.ids[0]: must be the id of a token, got '500'"),
      bad(R"("added_tokens":[)", R"("added_tokens":[7,)", "added_tokens[0]: must be an object"),
      {"list", [] { tokenizer_of("[1]"); }, "t.json: text: must be an object, got array",
       ErrorKind::kBadFile},
      {"number", [] { tokenizer_of("{\"a\": 1e999}"); }, "t.json: must be JSON",
       ErrorKind::kBadFile},
      {"missing", [] { BpeTokenizer::read_json("missing.json"); }, "missing.json", ErrorKind::kIo},
  });
}

TEST(TokenizerFiles, RefuseDamagedMerges) {
  const auto bad = [](const std::string& merges, const std::string& part) {
    const auto read = [=] {
      const TestFile vocabulary("vocab.json", std::string_view(R"({"a":0,"b":1,"ab":2})"));
      const TestFile file("merges.txt", merges);
      BpeTokenizer::read_gpt2(vocabulary.path(), file.path());
    };
    return Refusal{merges, read, part, ErrorKind::kBadFile};
  };
  expect_refused({
      bad("a b\nab\n", "merges.txt: line 2: must be two tokens in UTF-8 with a space"),
      bad("#version: 0.2\na  b\n", "merges.txt: line 2: must be two tokens"),
      bad("a \n", "merges.txt: line 1: must be two tokens"),
      bad("a b\xff\n", "merges.txt: line 1: must be two tokens"),
      bad("b a\n", "merges.txt: merge 1: 'ba' must be a token of the vocabulary"),
  });
  const TestFile vocabulary("vocab.json", std::string_view(R"({"a":0,"b":1,"ab":2})"));
  const TestFile merges("merges.txt", std::string_view("#version: 0.2\r\na b\r\n\r\n"));
  const BpeTokenizer small = BpeTokenizer::read_gpt2(vocabulary.path(), merges.path());
  EXPECT_EQ(small.encode("abb"), (Ids{2, 1}));
  EXPECT_TRUE(small.special_tokens().empty());
  expect_refused({{"unknown", [&] { small.encode("abc"); }, "got 'c'"}});
}

}  // namespace
}  // namespace sluice::data
