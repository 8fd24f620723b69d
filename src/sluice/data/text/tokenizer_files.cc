// The readers of vocab.json, merges.txt and tokenizer.json.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "sluice/base/error.h"
#include "sluice/data/files/contents.h"
#include "sluice/data/files/shown.h"
#include "sluice/data/files/utf8.h"
#include "sluice/data/text/bpe_parts.h"
#include "sluice/data/text/tokenizer.h"

namespace sluice::data {
namespace {

using TokenizerJson = nlohmann::json;
using Merges = std::vector<std::pair<std::string, std::string>>;

constexpr int kMaxDepth = 8;  // Sequences within sequences.
constexpr const char* kEndOfText = "<|endoftext|>";
constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
    {"Removed", SplitBehavior::kRemoved},
    {"Isolated", SplitBehavior::kIsolated},
    {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
    {"MergedWithNext", SplitBehavior::kMergedWithNext},
    {"Contiguous", SplitBehavior::kContiguous}};
constexpr std::pair<std::string_view, MarkedWords> kSchemes[] = {
    {"always", MarkedWords::kAll}, {"first", MarkedWords::kFirst}, {"never", MarkedWords::kNone}};

/// A value in a JSON file, with its path for errors: "model.merges[3]".
class JsonField {
 public:
  JsonField(const std::string& file, std::string path, const TokenizerJson& json)
      : file_(file), path_(std::move(path)), json_(json) {}

  const std::string& file() const { return file_; }
  const TokenizerJson& json() const { return json_; }

  [[noreturn]] void refuse(std::string_view wanted) const {
    const bool is_short = json_.is_primitive();
    fail(ErrorKind::kBadFile, "{}: {}: must be {}, got {}", file_, path_.empty() ? "text" : path_,
         wanted, is_short ? shown(json_.is_string() ? text_() : json_.dump()) : json_.type_name());
  }
  [[noreturn]] void refuse_component(std::string_view kind, std::string_view known) const {
    fail(ErrorKind::kBadFile, "{}: {}: the {} {} is not supported; it must be one of {}", file_,
         path_, kind, shown(type()), known);
  }

  bool has(const char* key) const {
    const auto found = object().find(key);
    return found != json_.end() && !found->is_null();
  }
  /// A member, or null if it is absent.
  JsonField operator[](const char* key) const {
    static const TokenizerJson kNull;
    const auto found = object().find(key);
    return {file_, path_.empty() ? key : path_ + "." + key, found == json_.end() ? kNull : *found};
  }
  JsonField element(size_t i) const { return {file_, fmt::format("{}[{}]", path_, i), list()[i]}; }

  const TokenizerJson& object() const {
    if (!json_.is_object()) refuse("an object");
    return json_;
  }
  const TokenizerJson& list() const {
    if (!json_.is_array()) refuse("a list");
    return json_;
  }
  const std::string& text() const {
    if (!json_.is_string()) refuse("a text");
    return text_();
  }
  const std::string& full_text() const {
    if (text().empty()) refuse("a text that is not empty");
    return text_();
  }
  bool boolean() const {
    if (!json_.is_boolean()) refuse("true or false");
    return json_.get<bool>();
  }
  bool boolean_or(bool usual) const { return json_.is_null() ? usual : boolean(); }
  int32_t integer() const {
    if (!json_.is_number_unsigned() || json_.get<uint64_t>() > 0x7fffffff)
      refuse("an integer from 0 to 2147483647");
    return json_.get<int32_t>();
  }
  std::string type() const { return (*this)["type"].text(); }

  template <typename T, size_t N>
  T word(const std::pair<std::string_view, T> (&words)[N]) const {
    std::string known;
    for (const auto& [name, value] : words) {
      if (text() == name) return value;
      known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
    }
    refuse("one of " + known);
  }

 private:
  const std::string& text_() const { return json_.get_ref<const std::string&>(); }

  const std::string& file_;
  std::string path_;
  const TokenizerJson& json_;
};

std::string contents_of(const std::string& path, std::string_view wanted) {
  const std::vector<std::byte> bytes = read_contents(path, Contents::kText, wanted);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TokenizerJson parsed(std::string_view text, const std::string& path) {
  try {
    return TokenizerJson::parse(text);
  } catch (const TokenizerJson::parse_error& e) {
    fail(ErrorKind::kBadFile, "{}: byte {}: must be JSON", path, std::max<size_t>(e.byte, 1) - 1);
  } catch (const TokenizerJson::exception& e) {
    fail(ErrorKind::kBadFile, "{}: must be JSON: {}", path, printable(e.what()));
  }
}

TokenIds token_ids(const JsonField& vocabulary) {
  TokenIds ids;
  ids.reserve(vocabulary.object().size());
  for (const auto& [token, id] : vocabulary.object().items())
    ids.emplace(token, JsonField(vocabulary.file(), "the id of " + shown(token), id).integer());
  return ids;
}

/// Cuts a merge at its only space; nothing if it has another number of spaces or an empty part.
std::optional<std::pair<std::string, std::string>> merge_of(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == 0 || space == line.npos || space + 1 == line.size()) return std::nullopt;
  if (line.find(' ', space + 1) != line.npos) return std::nullopt;
  return std::pair(std::string(line.substr(0, space)), std::string(line.substr(space + 1)));
}

Merges merges_of(const JsonField& field) {
  Merges merges;
  merges.reserve(field.list().size());
  for (size_t i = 0; i < field.list().size(); ++i) {
    const TokenizerJson& json = field.list()[i];
    if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string()) {
      merges.emplace_back(json[0].get<std::string>(), json[1].get<std::string>());
    } else if (auto merge =
                   json.is_string() ? merge_of(json.get_ref<const std::string&>()) : std::nullopt) {
      merges.push_back(std::move(*merge));
    } else {
      field.element(i).refuse("two tokens with a space between them");
    }
  }
  return merges;
}

Merges read_merges(std::string_view text, const std::string& path) {
  Merges merges;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    auto merge = merge_of(line);
    if (!merge || !is_utf8(line)) {
      fail(ErrorKind::kBadFile,
           "{}: line {}: must be two tokens in UTF-8 with a space between them, got {}", path,
           number, shown(line));
    }
    merges.push_back(std::move(*merge));
  }
  return merges;
}

/// Stores the tokens by their ids, which must be 0 to n - 1, and indexes the added tokens.
void store_tokens(const std::string& file, const TokenIds& vocabulary, BpeParts& parts) {
  size_t count = vocabulary.size();
  for (const AddedToken& added : parts.added) count += !vocabulary.contains(added.text);
  parts.tokens.resize(count);
  std::vector<bool> is_used(count);
  const auto store = [&](const std::string& token, int32_t id) {
    const auto index = static_cast<size_t>(id);
    if (index >= count || is_used[index]) {
      fail(ErrorKind::kBadFile,
           "{}: the id of {}: must be the only one of its value in [0, {}), got {}", file,
           shown(token), count, id);
    }
    is_used[index] = true;
    parts.tokens[index] = token;
  };
  for (const auto& [token, id] : vocabulary) store(token, id);
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < parts.added.size(); ++i) {
    const AddedToken& added = parts.added[i];
    const auto known = vocabulary.find(added.text);
    if (!names.insert(added.text).second ||
        (known != vocabulary.end() && known->second != added.id)) {
      fail(ErrorKind::kBadFile, "{}: added token {}: must have one id, got {} and another", file,
           shown(added.text), added.id);
    }
    if (known == vocabulary.end()) store(added.text, added.id);
    const std::string text = added.is_normalized ? parts.normalize(added.text) : added.text;
    TextTrie& trie = added.is_normalized ? parts.normalized : parts.raw;
    if (!text.empty()) trie.add(text, static_cast<int32_t>(i));
  }
}

/// Reads the components of tokenizer.json.
class ComponentReader {
 public:
  explicit ComponentReader(BpeParts& parts) : parts_(parts) {}

  void normalizer(const JsonField& field, int depth = 0) {
    if (field.json().is_null()) return;
    const std::string type = field.type();
    if (type == "Sequence") {
      each(field["normalizers"], depth, [&](const JsonField& f) { normalizer(f, depth + 1); });
    } else if (type == "Prepend") {
      parts_.normalizers.push_back([prefix = field["prepend"].text()](std::string text) {
        return text.empty() ? text : prefix + text;
      });
    } else if (type == "Replace") {
      parts_.normalizers.push_back([pattern = regex(field["pattern"]),
                                    content = field["content"].text()](const std::string& text) {
        return replaced(text, pattern, content);
      });
    } else {
      field.refuse_component("normalizer", "Sequence, Prepend, Replace");
    }
  }

  void pre_tokenizer(const JsonField& field, int depth = 0) {
    if (field.json().is_null()) return;
    auto& stages = parts_.pre_tokenizers;
    const std::string type = field.type();
    if (type == "Sequence") {
      each(field["pretokenizers"], depth, [&](const JsonField& f) { pre_tokenizer(f, depth + 1); });
    } else if (type == "ByteLevel") {
      if (field["add_prefix_space"].boolean_or(true)) stages.push_back(add_spaces());
      if (field["use_regex"].boolean_or(true))
        stages.push_back(split_words(Regex(kGpt2Words, field.file()), SplitBehavior::kIsolated));
      stages.push_back(byte_level());
    } else if (type == "Split") {
      stages.push_back(split_words(regex(field["pattern"]), field["behavior"].word(kBehaviors),
                                   field["invert"].boolean_or(false)));
    } else if (type == "Digits") {
      const bool is_single = field["individual_digits"].boolean_or(false);
      stages.push_back(
          split_words(Regex("\\p{N}", field.file()),
                      is_single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
    } else if (type == "Metaspace") {
      stages.push_back(metaspace(character(field["replacement"]), scheme(field),
                                 field["split"].boolean_or(true), field.file()));
    } else {
      field.refuse_component("pre-tokenizer", "Sequence, ByteLevel, Split, Digits, Metaspace");
    }
  }

  void decoder(const JsonField& field, int depth = 0) {
    if (field.json().is_null()) return;
    auto& stages = parts_.decoders;
    const std::string type = field.type();
    if (type == "Sequence") {
      each(field["decoders"], depth, [&](const JsonField& f) { decoder(f, depth + 1); });
    } else if (type == "ByteLevel") {
      stages.push_back(decode_byte_level());
    } else if (type == "ByteFallback") {
      stages.push_back(decode_byte_fallback());
    } else if (type == "Fuse") {
      stages.push_back(fuse());
    } else if (type == "Strip") {
      stages.push_back(
          strip(character(field["content"]), field["start"].integer(), field["stop"].integer()));
    } else if (type == "Replace") {
      stages.push_back([pattern = regex(field["pattern"]),
                        content = field["content"].text()](std::vector<std::string>& tokens) {
        for (std::string& token : tokens) {
          // Bytes of a decoder before this one may be a part of a character.
          if (is_utf8(token)) token = replaced(token, pattern, content);
        }
      });
    } else if (type == "Metaspace") {
      stages.push_back(decode_metaspace(character(field["replacement"]), scheme(field)));
    } else {
      field.refuse_component("decoder",
                             "Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace");
    }
  }

  void post_processor(const JsonField& field, int depth = 0) {
    if (field.json().is_null()) return;
    const std::string type = field.type();
    if (type == "Sequence") {
      each(field["processors"], depth, [&](const JsonField& f) { post_processor(f, depth + 1); });
    } else if (type == "TemplateProcessing") {
      add_template(field);
    } else if (type != "ByteLevel") {  // It changes offsets alone.
      field.refuse_component("post-processor", "Sequence, ByteLevel, TemplateProcessing");
    }
  }

 private:
  template <typename F>
  static void each(const JsonField& list, int depth, F f) {
    if (depth == kMaxDepth) list.refuse("at most 8 sequences within each other");
    for (size_t i = 0; i < list.list().size(); ++i) f(list.element(i));
  }

  static Regex regex(const JsonField& pattern) {
    if (pattern.has("String")) return literal_regex(pattern["String"].full_text(), pattern.file());
    return Regex(pattern["Regex"].full_text(), pattern.file());
  }

  static std::string character(const JsonField& field) {
    if (field.full_text().size() != character_size(field.text())) field.refuse("one character");
    return field.text();
  }

  static MarkedWords scheme(const JsonField& field) {
    if (field.has("prepend_scheme")) return field["prepend_scheme"].word(kSchemes);
    return field["add_prefix_space"].boolean_or(true) ? MarkedWords::kAll : MarkedWords::kNone;
  }

  /// A template has the parts {"SpecialToken": {"id": NAME}} and, once, {"Sequence": …}.
  void add_template(const JsonField& field) {
    const JsonField parts = field["single"];
    bool after_text = false;
    for (size_t i = 0; i < parts.list().size(); ++i) {
      const JsonField part = parts.element(i);
      if (part.has("Sequence")) {
        if (after_text) part.refuse("a special token: the template has two texts");
        after_text = true;
        continue;
      }
      const std::string name = part["SpecialToken"]["id"].text();
      const JsonField ids = field["special_tokens"][name.c_str()]["ids"];
      std::vector<int32_t>& to = after_text ? parts_.end : parts_.begin;
      for (size_t k = 0; k < ids.list().size(); ++k) {
        if (ids.element(k).integer() >= std::ssize(parts_.tokens))
          ids.element(k).refuse("the id of a token");
        to.push_back(ids.element(k).integer());
      }
    }
  }

  BpeParts& parts_;
};

std::vector<AddedToken> added_tokens(const JsonField& field) {
  std::vector<AddedToken> added;
  if (field.json().is_null()) return added;
  for (size_t i = 0; i < field.list().size(); ++i) {
    const JsonField token = field.element(i);
    if (token["single_word"].boolean_or(false))
      token["single_word"].refuse("false: whole words are not supported");
    const bool is_special = token["special"].boolean_or(false);
    added.push_back({.text = token["content"].full_text(),
                     .id = token["id"].integer(),
                     .is_special = is_special,
                     .is_normalized = token["normalized"].boolean_or(!is_special),
                     .strips_left = token["lstrip"].boolean_or(false),
                     .strips_right = token["rstrip"].boolean_or(false)});
  }
  return added;
}

BpeModel model_of(const JsonField& model, const TokenIds& vocabulary) {
  const JsonField dropout = model["dropout"];
  if (!dropout.json().is_null() && dropout.json() != 0) dropout.refuse("null: it is not supported");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.has(affix) && !model[affix].text().empty())
      model[affix].refuse("null: it is not supported");
  }
  BpeOptions options{.fuses_unknown = model["fuse_unk"].boolean_or(false),
                     .byte_fallback = model["byte_fallback"].boolean_or(false),
                     .ignores_merges = model["ignore_merges"].boolean_or(false)};
  if (model.has("unk_token")) {
    const auto found = vocabulary.find(model["unk_token"].text());
    if (found == vocabulary.end()) model["unk_token"].refuse("a token of the vocabulary");
    options.unknown = found->second;
  }
  for (int byte = 0; byte < 256 && options.byte_fallback; ++byte) {
    if (!vocabulary.contains(fmt::format("<0x{:02X}>", byte)))
      model["byte_fallback"].refuse(fmt::format("false without the token <0x{:02X}>", byte));
  }
  return {vocabulary, merges_of(model["merges"]), options, model.file()};
}

BpeTokenizer gpt2_tokenizer(std::string_view vocabulary, const std::string& vocabulary_file,
                            std::string_view merges, const std::string& merges_file) {
  const TokenizerJson json = parsed(vocabulary, vocabulary_file);
  const TokenIds ids = token_ids({vocabulary_file, "", json});
  auto parts = std::make_shared<BpeParts>();
  if (const auto end = ids.find(kEndOfText); end != ids.end())
    parts->added.push_back({.text = kEndOfText, .id = end->second, .is_special = true});
  store_tokens(vocabulary_file, ids, *parts);
  parts->model = BpeModel(ids, read_merges(merges, merges_file), {}, merges_file);
  parts->pre_tokenizers = {
      split_words(Regex(kGpt2Words, vocabulary_file), SplitBehavior::kIsolated), byte_level()};
  parts->decoders = {decode_byte_level()};
  return BpeTokenizer(std::move(parts));
}

}  // namespace

BpeTokenizer BpeTokenizer::read_gpt2(const std::string& vocabulary, const std::string& merges) {
  return gpt2_tokenizer(contents_of(vocabulary, "GPT-2's vocab.json"), vocabulary,
                        contents_of(merges, "GPT-2's merges.txt"), merges);
}

BpeTokenizer BpeTokenizer::parse_gpt2(std::string_view vocabulary, std::string_view merges,
                                      const std::string& file) {
  return gpt2_tokenizer(vocabulary, file, merges, file);
}

BpeTokenizer BpeTokenizer::read_json(const std::string& path) {
  return parse_json(contents_of(path, "a tokenizer.json"), path);
}

BpeTokenizer BpeTokenizer::parse_json(std::string_view text, const std::string& path) {
  const TokenizerJson json = parsed(text, path);
  const JsonField root(path, "", json);
  const JsonField model = root["model"];
  // Old files have no type for BPE, which alone has merges.
  if (model.has("type") ? model.type() != "BPE" : !model.has("merges"))
    model.refuse_component("model", "BPE");
  const TokenIds ids = token_ids(model["vocab"]);
  auto parts = std::make_shared<BpeParts>();
  ComponentReader reader(*parts);
  parts->added = added_tokens(root["added_tokens"]);
  reader.normalizer(root["normalizer"]);
  store_tokens(path, ids, *parts);
  parts->model = model_of(model, ids);
  reader.pre_tokenizer(root["pre_tokenizer"]);
  reader.decoder(root["decoder"]);
  reader.post_processor(root["post_processor"]);
  return BpeTokenizer(std::move(parts));
}

}  // namespace sluice::data
