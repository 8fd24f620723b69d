// Cuts off and changes every byte of a file of each format. A reader returns or throws
// Error{kBadFile}, and allocates no more than the bytes of the file justify.
#include <gtest/gtest.h>

#include <functional>

#include "sluice/base/safetensors.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/test_bytes.h"
#include "sluice/data/table/table.h"
#include "sluice/data/test_allocations.h"
#include "sluice/data/test_elements.h"
#include "sluice/data/text/tokens.h"

namespace sluice::data {
namespace {

using namespace test;  // NOLINT: the files below

struct Format {
  std::string name;
  std::string bytes;
  std::function<Dataset(const std::string&)> read;
};

/// Reads the whole dataset. Any other exception than Error{kBadFile} fails the test.
bool is_accepted(const Format& format, const std::string& bytes) {
  const TestFile file("damaged", bytes);
  largest_allocation = 0;
  bool accepted = true;
  try {
    for (const Element& element : format.read(file.path())) EXPECT_FALSE(element.arrays.empty());
  } catch (const Error& e) {
    accepted = false;
    EXPECT_EQ(e.kind(), ErrorKind::kBadFile) << format.name << ": " << e.what();
    EXPECT_NE(std::string(e.what()).find(file.path()), std::string::npos) << e.what();
  }
  // 16 KiB: text and buffers of constant size, such as zlib's.
  EXPECT_LE(largest_allocation.load(), (1 << 16) + 40 * static_cast<int64_t>(bytes.size()))
      << format.name;
  return accepted;
}

/// The samples of a table with the schema that is inferred from it.
Dataset from_table(const std::string& path) {
  try {
    const Table table(path);
    TableSchema schema = infer_schema(table, {.targets = {table.names().back()}});
    const TableRows rows = read_rows(table, schema);
    fit_scaling(schema, rows, {});
    schema = schema_from_json(to_json(schema), path);
    return from_samples(encode(table, schema, rows));
  } catch (const Error& e) {
    // Names and labels are choices of the user.
    if (e.kind() == ErrorKind::kUsage) fail(ErrorKind::kBadFile, "{}: {}", path, e.what());
    throw;
  }
}

Dataset from_ids(const std::string& path, const Tokenizer& tokenizer) {
  try {
    return consecutive_windows(Tokens(tokenizer.encode("ab bba"), tokenizer.vocabulary_size()), 1);
  } catch (const Error& e) {
    // Characters that the damaged vocabulary does not cover.
    if (e.kind() == ErrorKind::kUsage) fail(ErrorKind::kBadFile, "{}: {}", path, e.what());
    throw;
  }
}

/// A tokenizer.json with each kind of component.
std::string tokenizer_json() {
  return R"({"added_tokens":[{"id":5,"content":"<s>","special":true,"lstrip":true}],)"
         R"("normalizer":{"type":"Replace","pattern":{"String":"b"},"content":"a"},)"
         R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)"
         R"({"Regex":"\\s+|[^a]"},"behavior":"Isolated","invert":false},{"type":"Metaspace",)"
         R"("replacement":"_","prepend_scheme":"first","split":true}]},"decoder":{"type":"Fuse"},)"
         R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}}],)"
         R"("special_tokens":{"s":{"ids":[5]}}},"model":{"type":"BPE","unk_token":"a","vocab":)"
         R"({"a":0,"b":1,"_":2,"aa":3,"_a":4},"merges":["a a",["_","a"]]}})";
}

std::vector<Format> formats() {
  const std::string x = npy("<f4", "(3, 2)", bytes_of<float>({1, 2, 3, 4, 5, 6}));
  const std::string y = npy("<i8", "(3,)", bytes_of<int64_t>({1, 2, 3}), 2);
  const std::vector<std::byte> tensors = write_safetensors(
      std::vector<NamedArray>{{"x", filled({3, 2}, 1)}, {"y", HostTensor({{3}, boolean, {}})}});
  const auto labels = [](const std::string& images) {
    const TestFile file("damaged_labels", idx({3}, "123"));
    return from_idx(images, file.path());
  };
  return {
      {"npy", x, from_npy},
      {"npy 2", y, from_npy},
      {"npz", zip_file({{"x.npy", x}, {"y.npy", y}}, "!"), [](auto& p) { return from_npz(p); }},
      {"npz deflated", zip_file({{"x.npy", x, true}, {"y.npy", y, true}}),
       [](auto& p) { return from_npz(p); }},
      {"safetensors", std::string(reinterpret_cast<const char*>(tensors.data()), tensors.size()),
       [](auto& p) { return from_safetensors(p); }},
      {"idx", idx({3, 2}, "123456"), labels},
      {"idx gzip", deflated(idx({3, 2}, "123456"), 31), labels},
      {"npz zip64", zip_file({{"x.npy", x}, {"y.npy", y, true}}, "", Zip64::kYes),
       [](auto& p) { return from_npz(p); }},
      {"idx members", deflated(idx({3, 2}, "12"), 31) + deflated("3456", 31), labels},
      {"safetensors gzip",
       deflated(std::string(reinterpret_cast<const char*>(tensors.data()), tensors.size()), 31),
       [](auto& p) { return from_safetensors(p); }},
      {"csv", "a,b\n1,2\r\n\"3\", 4\n", [](auto& p) { return from_csv(p); }},
      {"csv gzip", deflated("a,b\n1,2\n3,4\n", 31), [](auto& p) { return from_csv(p); }},
      {"csv table", "a,b,c\n1,x,no\r\n\"3\",\"y\n\"\"\",yes\n5,x,yes\n", from_table},
      {"text", "abc \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80.",
       [](auto& p) { return consecutive_windows(text_tokens(p, TextUnit::kCharacter).tokens, 2); }},
      {"tokens", "a1b2c3d4e5", [](auto& p) { return consecutive_windows(tokens_file(p), 4); }},
      {"tokenizer", tokenizer_json(),
       [](auto& p) { return from_ids(p, BpeTokenizer::read_json(p)); }},
  };
}

TEST(DamagedFiles, EveryPrefixIsReadOrRefused) {
  for (const Format& format : formats()) {
    EXPECT_TRUE(is_accepted(format, format.bytes)) << format.name;
    for (size_t size = 0; size < format.bytes.size(); ++size) {
      const bool accepted = is_accepted(format, format.bytes.substr(0, size));
      const bool has_length =
          format.name != "csv" && format.name != "csv table" && format.name != "text";
      EXPECT_FALSE(accepted && has_length) << format.name << " of " << size << " bytes";
    }
  }
}

TEST(DamagedFiles, EveryChangeOfAByteIsReadOrRefused) {
  for (const Format& format : formats()) {
    for (size_t at = 0; at < format.bytes.size(); ++at) {
      for (const int change : {0x01, 0x80, 0xff, 0x10}) {
        std::string changed = format.bytes;
        changed[at] = static_cast<char>(changed[at] ^ change);
        is_accepted(format, changed);
      }
    }
  }
}

TEST(DamagedFiles, BytesInFrontBehindAndTwiceAreReadOrRefused) {
  for (const Format& format : formats()) {
    is_accepted(format, "\n" + format.bytes);
    is_accepted(format, format.bytes + format.bytes);
    is_accepted(format, format.bytes + std::string(70000, '\0'));
    is_accepted(format, std::string(100, '\xff') + format.bytes);
  }
}

}  // namespace
}  // namespace sluice::data
