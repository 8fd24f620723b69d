// Generation must have the logits of the whole model's evaluation, and sampling the tokens and
// frequencies of its definition.

#include "sluice/models/gpt/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>

#include "../../runtime/malloc_counter.h"
#include "sluice/base/rng.h"
#include "sluice/base/safetensors.h"
#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

using models::Arch;
using models::GenerateOptions;
using models::Generator;
using models::GptSizes;

constexpr int64_t kVocabulary = 13;

// A prompt may have several groups of rows (32), and the last group is not whole.
GptSizes sizes(Arch arch, int64_t context = 75) {
  return {.arch = arch,
          .blocks = 2,
          .heads = 4,
          .kv_heads = arch == Arch::kLlama ? 2 : 4,
          .width = 32,
          .context = context,
          .vocabulary = kVocabulary,
          .micro_batch = 1,
          .eval_batch = 1};
}

SessionOptions with(int threads) { return {.device = cpu_device({.threads = threads})}; }

// Gives the weights of `generator` values large enough that tokens differ.
void randomize(Generator& generator, uint32_t key) {
  std::vector<NamedArray> values;
  generator.session().each_variable([&](const std::string& path, HostTensor value) {
    if (value.dtype() == f32 && path != "logits" && !path.starts_with("cache.")) {
      const Seed seed = fold(Seed{key, 0}, path);
      auto elements = value.as<float>();
      const bool is_norm =
          path.find("ln_") != std::string::npos || path.find("norm") != std::string::npos;
      for (size_t i = 0; i < elements.size(); ++i)
        elements[i] = (is_norm ? 1.0f : 0.0f) + 0.3f * random_normal(seed, i);
    }
    values.push_back({path, std::move(value)});
  });
  generator.session().restore(values);
}

std::vector<int32_t> some_tokens(int64_t n) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>((i * i + 3 * i) % 13));
  return tokens;
}

std::vector<int32_t> generated(Generator& generator, const std::vector<int32_t>& prompt,
                               const GenerateOptions& options) {
  std::vector<int32_t> tokens;
  const int64_t calls = generator.generate(prompt, options, [&](int32_t token) {
    tokens.push_back(token);
    return true;
  });
  EXPECT_EQ(calls, static_cast<int64_t>(tokens.size()));
  return tokens;
}

GptSizes with_logits(GptSizes s) {
  s.results = models::TokenResults::kLogits;
  return s;
}

// Evaluates gpt() with the weights of a generator.
class WholeModel {
 public:
  WholeModel(const GptSizes& s, Generator& generator)
      : context_(s.context),
        model_(train::inference_model(models::gpt(with_logits(s)), {.session = with(2)})) {
    std::map<std::string, HostTensor> weights;
    generator.session().each_variable([&](const std::string& path, HostTensor value) {
      weights.emplace(path, std::move(value));
    });
    model_.compile();
    for (const auto& [path, variable] : model_.programs().variables.to_dict())
      model_.session().write(variable, weights.at(path));
  }
  // Returns the logits after each token of a sequence: (context, vocabulary).
  HostTensor operator()(std::vector<int32_t> tokens) {
    tokens.resize(static_cast<size_t>(context_));
    return model_({{"tokens", HostTensor::of<int32_t>({1, context_}, i32, tokens)}})["logits"];
  }

 private:
  int64_t context_;
  train::InferenceModel model_;
};

std::vector<float> row_of(const HostTensor& logits, int64_t row) {
  const auto all = logits.as<float>();
  const auto* const begin = all.data() + row * kVocabulary;
  return {begin, begin + kVocabulary};
}

std::vector<float> logits_of(const Generator& generator) {
  const HostTensor logits = generator.logits();
  return {logits.as<float>().begin(), logits.as<float>().end()};
}

int32_t largest(const std::vector<float>& scores) {
  return static_cast<int32_t>(std::ranges::max_element(scores) - scores.begin());
}

TEST(Generate, GreedyTokensAndLogitsAreThoseOfTheWholeModel) {
  for (const Arch arch : {Arch::kGpt2, Arch::kLlama}) {
    for (const int64_t length : {1, 31, 32, 33, 64, 70}) {
      const GptSizes s = sizes(arch);
      Generator generator(s, with(2));
      randomize(generator, 7);
      WholeModel whole(s, generator);
      std::vector<int32_t> all = some_tokens(length);
      const int64_t tokens = s.context - length;
      const std::vector<int32_t> have =
          generated(generator, all, {.tokens = tokens, .temperature = 0});
      ASSERT_EQ(static_cast<int64_t>(have.size()), tokens);
      all.insert(all.end(), have.begin(), have.end());
      const HostTensor logits = whole(all);
      for (int64_t i = 0; i < tokens; ++i)
        ASSERT_EQ(have[static_cast<size_t>(i)], largest(row_of(logits, length + i - 1)))
            << "prompt of " << length << ", token " << i;
      EXPECT_EQ(logits_of(generator), row_of(logits, s.context - 2)) << "prompt of " << length;
      // Not all tokens are equal, or the test would show little.
      const size_t different = std::set<int32_t>(have.begin(), have.end()).size();
      EXPECT_GT(different, tokens > 20 ? 2u : 0u);
      std::vector<int32_t> prompt(all.begin(), all.begin() + length);
      for (const int64_t n : {int64_t{1}, int64_t{2}, std::min<int64_t>(tokens, 4)}) {
        generated(generator, prompt, {.tokens = n, .temperature = 0});
        EXPECT_EQ(logits_of(generator), row_of(logits, length + n - 2))
            << "prompt of " << length << ", token " << n;
      }
    }
  }
}

// The random numbers of the token at a position.
std::vector<double> noise_of(uint64_t seed, int64_t position) {
  const Seed key = fold({static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)},
                        static_cast<uint64_t>(position));
  std::vector<double> noise;
  for (uint64_t i = 0; i < kVocabulary; ++i)
    noise.push_back(-std::log(-std::log(std::max(double{random_unit(key, i)}, 1e-9))));
  return noise;
}

std::vector<double> softmax(const std::vector<double>& z) {
  const double top = *std::ranges::max_element(z);
  std::vector<double> p;
  for (const double x : z) p.push_back(std::exp(x - top));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

// Returns the probability of each token, as PyTorch programs compute it: 0 for excluded ones.
std::vector<double> probabilities(const std::vector<float>& logits, const GenerateOptions& o) {
  std::vector<double> z;
  for (const float x : logits) z.push_back(static_cast<double>(x) / o.temperature);
  if (o.top_k && *o.top_k < kVocabulary) {
    std::vector<double> sorted = z;
    std::ranges::sort(sorted, std::greater());
    const double smallest = sorted[static_cast<size_t>(*o.top_k - 1)];
    for (double& x : z) {
      if (x < smallest) x = -INFINITY;
    }
  }
  std::vector<double> p = softmax(z);
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return z[a] > z[b]; });
  double before = 0;
  for (const size_t i : order) {
    const double mass = p[i];
    if (o.top_p < 1 && before >= o.top_p) z[i] = -INFINITY;
    before += mass;
  }
  return softmax(z);
}

TEST(Generate, DrawsTheTokensOfTheDefinition) {
  const GptSizes s = sizes(Arch::kGpt2);
  Generator generator(s, with(2));
  randomize(generator, 11);
  WholeModel whole(s, generator);
  const std::vector<int32_t> prompt = some_tokens(5);
  const std::vector<GenerateOptions> cases{{},
                                           {.temperature = 0.7},
                                           {.temperature = 3},
                                           {.top_k = 1},
                                           {.top_k = 3},
                                           {.top_k = 1000},
                                           {.top_p = 0.4},
                                           {.top_p = 0.9},
                                           {.top_p = 1e-6},
                                           {.temperature = 2, .top_k = 5, .top_p = 0.8}};
  for (GenerateOptions o : cases) {
    o.tokens = 60;
    o.seed = 0x123456789abcdefu;
    const std::vector<int32_t> have = generated(generator, prompt, o);
    std::vector<int32_t> all = prompt;
    all.insert(all.end(), have.begin(), have.end());
    const HostTensor logits = whole(all);
    for (size_t i = 0; i < have.size(); ++i) {
      const auto position = static_cast<int64_t>(prompt.size() + i);
      const std::vector<double> p = probabilities(row_of(logits, position - 1), o);
      const std::vector<double> noise = noise_of(o.seed, position);
      std::vector<float> scores;
      for (size_t t = 0; t < p.size(); ++t)
        scores.push_back(static_cast<float>(std::log(p[t]) + noise[t]));
      ASSERT_EQ(have[i], largest(scores))
          << "temperature " << o.temperature << ", top_k " << o.top_k.value_or(0) << ", top_p "
          << o.top_p << ", token " << i;
    }
  }
}

TEST(Generate, FrequenciesAreTheProbabilities) {
  const GptSizes s = sizes(Arch::kLlama, 8);
  Generator generator(s, with(2));
  randomize(generator, 3);
  const std::vector<int32_t> prompt = some_tokens(4);
  for (GenerateOptions o : {GenerateOptions{.temperature = 2}, GenerateOptions{.top_k = 4},
                            GenerateOptions{.temperature = 1.5, .top_p = 0.7}}) {
    constexpr int kDraws = 1500;
    std::vector<double> counts(kVocabulary);
    o.tokens = 1;
    for (o.seed = 0; o.seed < kDraws; ++o.seed)
      ++counts[static_cast<size_t>(generated(generator, prompt, o)[0])];
    const std::vector<double> p = probabilities(logits_of(generator), o);
    for (size_t t = 0; t < p.size(); ++t) {
      const double deviation = std::sqrt(kDraws * p[t] * (1 - p[t]));
      EXPECT_NEAR(counts[t], kDraws * p[t], 5 * deviation + 1e-9) << "token " << t;
    }
  }
}

TEST(Generate, ThreadsDoNotChangeTokens) {
  std::vector<std::vector<int32_t>> runs;
  for (const int threads : {1, 2, 3}) {
    Generator generator(sizes(Arch::kLlama), with(threads));
    randomize(generator, 5);
    const GenerateOptions o{.tokens = 40, .top_k = 7, .top_p = 0.95, .seed = 9};
    runs.push_back(generated(generator, some_tokens(34), o));
    EXPECT_EQ(generated(generator, some_tokens(34), o), runs.back());
    GenerateOptions other = o;
    other.seed = 10;
    EXPECT_NE(generated(generator, some_tokens(34), other), runs.back());
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

TEST(Generate, CallbackEndsTheGeneration) {
  Generator generator(sizes(Arch::kGpt2), with(2));
  randomize(generator, 5);
  const std::vector<int32_t> prompt = some_tokens(3);
  const GenerateOptions options{.tokens = 70};
  const std::vector<int32_t> whole = generated(generator, prompt, options);
  for (const size_t stop : {size_t{1}, size_t{2}, size_t{5}, size_t{69}, size_t{70}}) {
    std::vector<int32_t> tokens;
    const auto take = [&](int32_t token) {
      tokens.push_back(token);
      return tokens.size() < stop;
    };
    EXPECT_EQ(generator.generate(prompt, options, take), static_cast<int64_t>(stop));
    EXPECT_EQ(tokens,
              std::vector<int32_t>(whole.begin(), whole.begin() + static_cast<int64_t>(stop)));
    EXPECT_EQ(generated(generator, prompt, options), whole) << "after a stop at " << stop;
  }
  int calls = 0;
  const auto fails = [&](int32_t) -> bool {
    if (++calls == 4) throw std::out_of_range("the fourth token");
    return true;
  };
  EXPECT_THROW(generator.generate(prompt, options, fails), std::out_of_range);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(generated(generator, prompt, options), whole);
}

TEST(Generate, AllocatesNothing) {
  if (!counts_allocations())
    GTEST_SKIP() << "requires a build without sanitizer, which replaces malloc";
  for (const Arch arch : {Arch::kGpt2, Arch::kLlama}) {
    Generator generator(sizes(arch), with(2));
    const std::vector<int32_t> prompt = some_tokens(40);
    int64_t sum = 0;
    const Generator::Callback add = [&](int32_t token) {
      sum += token;
      return true;
    };
    for (const GenerateOptions& o :
         {GenerateOptions{.tokens = 30}, GenerateOptions{.tokens = 30, .top_k = 5, .top_p = 0.9}}) {
      generator.generate(prompt, o, add);
      const int64_t before = allocations();
      generator.generate(prompt, o, add);
      EXPECT_EQ(allocations() - before, 0);
    }
  }
}

TEST(Generate, ReadsWeightsOfATrainingAndOfAFile) {
  for (const Arch arch : {Arch::kGpt2, Arch::kLlama}) {
    const GptSizes s = sizes(arch);
    train::TrainingModel training =
        train::training_model(models::gpt(with_logits(s)),
                              {.learning_rate = 0.1, .session = with(2)}, nn::Optimizer::adam());
    std::vector<int32_t> tokens = some_tokens(s.context), labels = some_tokens(s.context + 1);
    labels.erase(labels.begin());
    const auto batch = [&](const std::vector<int32_t>& values) {
      return HostTensor::of<int32_t>({1, s.context}, i32, values);
    };
    for (int step = 0; step < 3; ++step)
      training({{"tokens", batch(tokens)}, {"labels", batch(labels)}});
    train::InferenceModel evaluation = train::inference_model(training);
    const HostTensor logits = evaluation({{"tokens", batch(tokens)}})["logits"];
    const std::vector<int32_t> prompt(tokens.begin(), tokens.begin() + 50);

    Generator copied(s, with(1)), loaded(s, with(1));
    copied.copy_weights(training.session());
    const std::string file = testing::TempDir() + "generate.safetensors";
    training.save(file);
    loaded.load(file);
    std::remove(file.c_str());
    for (Generator* generator : {&copied, &loaded}) {
      generated(*generator, prompt, {.tokens = 1});
      EXPECT_EQ(logits_of(*generator), row_of(logits, 49));
    }
  }
}

TEST(Generate, ThePlanHasTheCaches) {
  // 2 blocks · {keys, values} · 2 heads of 8 elements · 4 bytes.
  constexpr int64_t kCacheBytes = 256;
  const auto bytes = [&](int64_t context) {
    Generator generator(sizes(Arch::kLlama, context), with(1));
    int64_t caches = 0;
    generator.session().each_variable([&](const std::string& path, const HostTensor& value) {
      if (path.starts_with("cache.")) caches += static_cast<int64_t>(value.bytes().size());
    });
    EXPECT_EQ(caches, context * kCacheBytes);
    EXPECT_EQ(generator.session().planned_bytes(), generator.session().measured_bytes());
    return generator.session().planned_bytes();
  };
  // Other bytes of a position are its angles and its share of the attention's workspace.
  const int64_t added = bytes(64 + 1024) - bytes(64);
  EXPECT_GE(added, 1024 * kCacheBytes);
  EXPECT_LE(added, 1024 * (kCacheBytes + 512));
}

TEST(Generate, RefusesBadInput) {
  Generator generator(sizes(Arch::kGpt2, 16), with(1));
  const auto with_prompt = [&](std::vector<int32_t> prompt, GenerateOptions o = {.tokens = 2}) {
    return [&generator, prompt = std::move(prompt), o] {
      generator.generate(prompt, o, [](int32_t) { return true; });
    };
  };
  expect_refused(
      {{"empty", with_prompt({}), "generate: the prompt must have a token, got an empty one"},
       {"token", with_prompt({1, 2, 13}),
        "generate: token 2 of the prompt must be in [0, 13), the vocabulary, got 13"},
       {"negative", with_prompt({-1}),
        "generate: token 0 of the prompt must be in [0, 13), the vocabulary, got -1"},
       {"prompt", with_prompt(some_tokens(17)),
        "generate: the prompt must have at most 16 tokens, the context, got 17"},
       {"tokens", with_prompt(some_tokens(10), {.tokens = 7}),
        "generate: prompt and new tokens must be at most 16, the context, got 10 and 7"},
       {"no tokens", with_prompt({1}, {.tokens = 0}), "generate: tokens must be at least 1, got 0"},
       {"temperature", with_prompt({1}, {.tokens = 1, .temperature = -1}),
        "generate: the temperature must be finite and 0 or at least 1e-06, got -1"},
       {"top_k", with_prompt({1}, {.tokens = 1, .top_k = 0}),
        "generate: top_k must be at least 1, got 0"},
       {"top_p 0", with_prompt({1}, {.tokens = 1, .top_p = 0}),
        "generate: top_p must be in (0, 1], got 0"},
       {"top_p", with_prompt({1}, {.tokens = 1, .top_p = 1.5}),
        "generate: top_p must be in (0, 1], got 1.5"},
       {"weights",
        [&] {
          Generator other(sizes(Arch::kLlama, 16), with(1));
          generator.copy_weights(other.session());
        },
        "generate: the session must have the weight '"}});
}

}  // namespace
}  // namespace sluice::test
