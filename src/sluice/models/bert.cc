#include "sluice/models/encoders/bert.h"

#include "sluice/base/checked.h"
#include "sluice/data/text/masked_pairs.h"
#include "sluice/models/model.h"

namespace sluice::models {

Model bert_model() {
  return {.name = "bert",
          .doc = "a bidirectional encoder that predicts masked tokens of a text",
          .data = &kMaskedTexts,
          .defaults = {{"--width", "128"},
                       {"--micro-batch", "16"},
                       {"--test-batch", "16"},
                       {"--optimizer", "adamw"}},
          .sizes = {"--blocks", "--heads", "--width", "--context", "--vocab", "--dropout"},
          .test_sizes = {.micro_batch = 2,
                         .eval_batch = 4,
                         .width = 16,
                         .dropout = 0.25,
                         .blocks = 2,
                         .heads = 2,
                         .context = 12},
          .saves_sizes = true,
          .build = [](const Sizes& s) {
            require(s.context >= data::kMinPairContext, "bert: context must be at least {}, got {}",
                    data::kMinPairContext, s.context);
            const auto padding = static_cast<int64_t>(data::PairToken::kPadding);
            return bert({.blocks = s.blocks,
                         .heads = s.heads,
                         .width = s.width,
                         .context = s.context,
                         .vocabulary = checked_add(s.vocabulary, data::kPairTokens),
                         .padding = checked_add(s.vocabulary, padding),
                         .dropout = s.dropout,
                         .micro_batch = s.micro_batch,
                         .eval_batch = s.eval_batch});
          }};
}

}  // namespace sluice::models
