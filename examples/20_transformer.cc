/// Lesson 20: a transformer that learns a text character by character. A file may be given.
#include <fmt/core.h>
#include <sluice/sluice.h>
using namespace sluice;

constexpr int64_t kContext = 32, kWidth = 64;

class Transformer : public nn::Module {
 public:
  explicit Transformer(int64_t vocabulary) : vocabulary_(vocabulary) {
    for (int i = 0; i < 2; ++i)
      layers_.add(nn::TransformerLayerOptions{
          .heads = 4, .hidden = 4 * kWidth, .norm_first = true, .causal = true});
  }
  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    Tensor x = tokens_(b, in["input"]);
    x = x + b.add_variable_input("positions", nn::normal(0, 0.02), {kContext, kWidth});
    for (const auto& layer : layers_) x = layer(b, x);
    const Tensor logits = head_(b, norm_(b, x));
    train::Results results{.predictions = {{"logits", logits, "target"}}};
    if (in.wants_losses())
      results.losses = {train::cross_entropy(ops::reshape(logits, {-1, vocabulary_}),
                                             ops::reshape(in["target"], {-1}))};
    return results;
  }

 private:
  int64_t vocabulary_;
  nn::Child<nn::Embedding> tokens_{*this, "tokens", vocabulary_, kWidth};
  nn::Children<nn::TransformerEncoderLayer> layers_{*this, "layers"};
  nn::Child<nn::LayerNorm> norm_{*this, "norm"};
  nn::Child<nn::Linear> head_{*this, "head", vocabulary_};
};

int main(int argc, char** argv) {
  const data::TextTokens text =
      data::text_tokens(argc > 1 ? argv[1] : "LICENSE", data::TextUnit::kCharacter);
  const data::TokenSplit parts = data::split_tokens(text.tokens);
  const TensorSpec windows{{16, kContext}, i32};
  const train::Network network(Transformer(text.tokens.vocabulary()),
                               {{"input", windows}, {"target", windows}});
  train::TrainingModel model =
      train::training_model(network, {.learning_rate = 3e-3}, nn::Optimizer::adamw());
  const auto fit = train::fit(model, data::random_windows(parts.training, {kContext}),
                              {.calls = argc > 2 ? std::stoll(argv[2]) : 200});
  train::InferenceModel inference = train::inference_model(model);
  const auto test = train::evaluate(inference, data::consecutive_windows(parts.test, kContext));
  fmt::print("{} steps, loss {:.3f}; test loss {:.3f}, accuracy {:.1f} %\n", fit.updates, fit.loss,
             *test["loss"], *test["accuracy"]);
}
