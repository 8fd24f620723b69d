#include <cstdlib>
#include <utility>
#include <vector>

#include "sluice/base/checked.h"
#include "sluice/base/error.h"
#include "sluice/base/sys.h"
#include "sluice/data/files/contents.h"
#include "sluice/data/text/masked_pairs.h"
#include "sluice/data/text/synthetic_text.h"
#include "sluice/data/text/tokens.h"
#include "sluice/models/model.h"

namespace sluice::models {
namespace {

constexpr const char* kTextFile = "input.txt";

std::optional<std::string> text_folder(const std::string& folder) {
  for (const char* sub : {"", "/tinyshakespeare"}) {
    if (data::find_data_file(folder + sub, kTextFile)) return folder + sub;
  }
  return std::nullopt;
}

std::optional<std::string> find_text(const std::string& explicit_folder) {
  if (!explicit_folder.empty()) {
    sys::check_folder(explicit_folder);
    if (auto found = text_folder(explicit_folder)) return found;
    fail(ErrorKind::kIo, "{0} or {0}/tinyshakespeare must contain {1} (plain or .gz)",
         explicit_folder, kTextFile);
  }
  if (const char* variable = std::getenv("SLUICE_DATA"); variable != nullptr && *variable != '\0') {
    if (auto found = text_folder(variable)) return found;
  }
  return text_folder("data/tinyshakespeare");
}

SampleSet windows(const data::Tokens& tokens, data::Split split, const Sizes& sizes,
                  uint64_t seed) {
  const int64_t context = sizes.context;
  const data::Dataset drawn = split == data::Split::kTrain
                                  ? data::random_windows(tokens, {.context = context, .seed = seed})
                                  : data::consecutive_windows(tokens, context);
  return {
      drawn.map([](data::Element e) {
        return data::Element{{"tokens", std::move(e["input"])}, {"labels", std::move(e["target"])}};
      }),
      (tokens.size() - 1) / context};
}

SampleSet masked_pairs(const data::Tokens& tokens, data::Split split, const Sizes& sizes,
                       uint64_t seed) {
  const data::MaskedPairOptions options{.context = sizes.context, .seed = seed};
  const data::Dataset whole = data::consecutive_masked_pairs(tokens, options);
  return {split == data::Split::kTest ? whole : data::random_masked_pairs(tokens, options),
          *whole.size()};
}

using FromTokens = decltype(windows);

template <FromTokens from_tokens>
SampleSet load_text(const std::string& folder, data::Split split, const Sizes& sizes,
                    uint64_t seed) {
  const auto file = data::find_data_file(folder, kTextFile);
  require(file.has_value(), "{}: must contain {}", folder, kTextFile);
  const data::Tokens bytes = data::text_tokens(*file, data::TextUnit::kByte).tokens;
  const data::TokenSplit both = data::split_tokens(bytes.with_vocabulary(sizes.vocabulary));
  const bool train = split == data::Split::kTrain;
  return from_tokens(train ? both.training : both.test, split, sizes, train ? seed : 0);
}

// A small vocabulary has several bytes for a token.
template <FromTokens from_tokens>
SampleSet generate_text(int64_t samples, uint64_t seed, const Sizes& sizes) {
  const std::string text =
      data::synthetic_text(checked_add(checked_mul(samples, sizes.context), 1), seed);
  std::vector<int32_t> ids = data::ByteTokenizer().encode(text);
  for (int32_t& id : ids) id = static_cast<int32_t>(id % sizes.vocabulary);
  const data::Tokens tokens(std::move(ids), sizes.vocabulary);
  SampleSet set = from_tokens(tokens, data::Split::kTest, sizes, seed);
  return {set.dataset.take(samples), samples};
}

template <FromTokens tokens_to_samples>
constexpr Data text_data() {
  return {.name = "sentences",
          .kind = SampleKind::kTokens,
          .missing = "no text found (--data, $SLUICE_DATA, data/tinyshakespeare)",
          .find = find_text,
          .load = load_text<tokens_to_samples>,
          .generate = generate_text<tokens_to_samples>,
          .from_tokens = tokens_to_samples};
}

}  // namespace

const Data kTexts = text_data<windows>();
const Data kMaskedTexts = text_data<masked_pairs>();

}  // namespace sluice::models
