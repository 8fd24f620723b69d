#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sluice/models/gpt.h"
#include "sluice/session/session.h"

namespace sluice::models {

struct GenerateOptions {
  int64_t tokens = 100;  ///< Maximum number of new tokens.
  /// Divisor of the logits, 0 or at least 1e-6. 0: always the token with the largest logit.
  double temperature = 1;
  /// Only tokens whose logit is at least the top_k-th largest; absent: all.
  std::optional<int64_t> top_k = {};
  /// Only the fewest most probable tokens of those whose probabilities add up to at least top_p.
  double top_p = 1;
  uint64_t seed = 0;  ///< Equal seeds return equal tokens, for any number of threads.
};

/// Continues sequences of tokens with the model of gpt(). The program "prefill" computes the rows
/// of a prompt in groups and the program "decode" one token after the other. Both are of one
/// session. The keys and values of earlier positions are variables, so the plan includes them.
///
///     models::Generator generator(sizes);
///     generator.load("model.safetensors");
///     generator.generate(prompt, {.tokens = 50, .temperature = 0.8}, [&](int32_t token) {
///       fmt::print("{}", decoded(token));
///       return true;
///     });
///
/// Logits have the bits of evaluation by gpt(). One thread at a time may call an object.
class Generator {
 public:
  /// Compiles the programs. Weights have the first values of gpt() until they are set.
  /// `micro_batch`, `eval_batch` and `dropout` are not used. Errors as for gpt() and
  /// Session.
  explicit Generator(const GptSizes& sizes, const SessionOptions& options = {});
  /// Compiles the programs and loads the weights, as load() and load_hugging_face() do. Compares
  /// the shapes of all weights with those in the file before anything is compiled. Error{kBadFile}
  /// for sizes of which no programs can be built.
  static Generator open(const GptSizes& sizes, const std::string& path,
                        const SessionOptions& options = {});
  static Generator open_hugging_face(const GptSizes& sizes, const std::string& path,
                                     const SessionOptions& options = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  /// Sets the weights from a file that a training saved. Returns the names in the file that match
  /// no weight, such as state of an optimizer. Error{kBadFile} if a weight is missing or has
  /// another shape.
  std::vector<std::string> load(const std::string& path);
  /// Sets the weights from a checkpoint of Hugging Face, with the errors of
  /// models::load_hugging_face().
  void load_hugging_face(const std::string& path);
  /// Sets the weights from the variables of equal paths of another session, such as that of a
  /// training. Error{kUsage} if one is missing or has another shape.
  void copy_weights(const Session& from);

  /// Called with each new token, on a thread of the session while further tokens are computed.
  /// Returns whether to continue. An exception ends the generation and is rethrown.
  using Callback = std::function<bool(int32_t token)>;

  /// Generates at most `options.tokens` tokens after `prompt` and returns the number of calls of
  /// `callback`. Allocates nothing after the first call, if the callback always continues.
  ///
  /// top_k is applied first, then top_p to the probabilities of the remaining tokens (sampling.h).
  /// A seed and a position determine the random numbers of a token.
  ///
  /// Error{kUsage} for an empty prompt, a token outside of the vocabulary, more than
  /// GptSizes::context tokens with the new ones, tokens or top_k below 1, a temperature that is
  /// neither 0 nor a finite number of at least 1e-6, and top_p outside (0, 1].
  int64_t generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                   const Callback& callback);

  /// Returns the logits (vocabulary) of the last token that the session has computed.
  HostTensor logits() const;
  Session& session();

 private:
  struct State;
  explicit Generator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sluice::models
