#include "sluice/models/gpt/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <map>
#include <optional>

#include "sluice/base/checked.h"
#include "sluice/models/gpt/gpt_module.h"
#include "sluice/models/gpt/sampling.h"
#include "sluice/models/hugging_face/hugging_face.h"
#include "sluice/nn/module.h"
#include "sluice/ops/ops.h"
#include "sluice/train/run/load_weights.h"
#include "sluice/train/torch_weights.h"
#include "sluice/transforms/loops/loops.h"

namespace sluice::models {
namespace {

using internal::CachedRows;
using internal::Gpt;
using internal::KvCache;

// Rows of a prompt that are computed together: enough work for each byte of the weights.
constexpr int64_t kPrefillRows = 32;
// Maximum number of tokens in the queue of the callback. The program continues for some
// milliseconds if the system does not run the callback's thread.
constexpr int kOutfeedDepth = 128;

TensorSpec int_scalar() { return {{}, i32, {}}; }

// The caches of all blocks from a list of keys and values.
std::vector<KvCache> caches_of(const Tensors& list) {
  std::vector<KvCache> caches;
  for (size_t i = 0; i < list.size(); i += 2) caches.push_back({list[i], list[i + 1]});
  return caches;
}

// Computes the keys and values of a group of rows.
struct PrefillGroup : Gpt {
  using Gpt::Gpt;
  void build(nn::Builder& b, const Tensor& tokens, const Tensor& step, const Tensor& first,
             const Tensors& caches) const {
    build_cached(b, tokens, {.step = step, .first = first, .caches = caches_of(caches)});
  }
};

// Does the same and returns the logits of row `row` of the group.
struct LastGroup : Gpt {
  using Gpt::Gpt;
  Tensor build(nn::Builder& b, const Tensor& tokens, const Tensor& step, const Tensor& first,
               const Tensor& row, const Tensors& caches) const {
    Tensor x = build_cached(b, tokens, {.step = step, .first = first, .caches = caches_of(caches)});
    x = ops::gather(ops::reshape(x, {x.dim(1), x.dim(2)}), ops::reshape(row, {1}));
    return ops::flatten(logits(b, x));
  }
};

// Does the same for one token.
struct NextToken : Gpt {
  using Gpt::Gpt;
  Tensor build(nn::Builder& b, const Tensor& token, const Tensor& position,
               const Tensors& caches) const {
    const Tensor x =
        build_cached(b, token, {.step = position, .first = position, .caches = caches_of(caches)});
    return ops::flatten(logits(b, x));
  }
};

}  // namespace

namespace internal {

// Passes tokens to a callback until it returns false or throws. Then it stops the session.
class TokenSink : public FeedSink {
 public:
  void begin(const Generator::Callback& callback, Session& session) {
    callback_ = &callback;
    session_ = &session;
    calls_ = 0;
    error_ = nullptr;
    done_ = false;
  }
  void take(std::span<const ConstArrayView> fields) override {
    if (done_) return;
    ++calls_;
    try {
      done_ = !(*callback_)(*reinterpret_cast<const int32_t*>(fields[0].data));
    } catch (...) {
      error_ = std::current_exception();
      done_ = true;
    }
    if (done_) session_->stop();
  }
  // Call these after a run that has ended without an error, or when the sink is bound again.
  bool done() const { return done_; }
  int64_t calls() const { return calls_; }
  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  const Generator::Callback* callback_ = nullptr;
  Session* session_ = nullptr;
  int64_t calls_ = 0;
  std::exception_ptr error_;
  bool done_ = true;
};

// The streams of the options.
struct SamplingStreams {
  explicit SamplingStreams(Ir ir)
      : seed(ir.h2d_stream({{2}, u32, {}}, "seed")),
        temperature(ir.h2d_stream({{}, f32, {}}, "temperature")),
        noise(ir.h2d_stream({{}, f32, {}}, "noise")),
        filters(ir.h2d_stream(int_scalar(), "filters")),
        last_rank(ir.h2d_stream(int_scalar(), "last_rank")),
        mass(ir.h2d_stream({{}, f32, {}}, "mass")) {}
  internal::SamplingInputs load(Graph& g) const {
    return {g.host_load(seed),    g.host_load(temperature), g.host_load(noise),
            g.host_load(filters), g.host_load(last_rank),   g.host_load(mass)};
  }
  H2dStream seed, temperature, noise, filters, last_rank, mass;
};

// The arrays of the inputs of both programs.
class InputArrays {
 public:
  // Adds an array for a stream.
  void add(const H2dStream& stream) { arrays_.emplace_back(stream, HostTensor(stream.spec)); }
  HostTensor& operator[](const H2dStream& stream) {
    const auto found =
        std::ranges::find_if(arrays_, [&](const auto& pair) { return pair.first == stream; });
    SLUICE_CHECK(found != arrays_.end());
    return found->second;
  }
  template <typename T>
  void set(const H2dStream& stream, T value) {
    (*this)[stream].as<T>()[0] = value;
  }
  std::vector<StreamInput> inputs(const std::vector<H2dStream>& streams) const {
    std::vector<StreamInput> inputs;
    for (const auto& [stream, array] : arrays_) {
      if (std::ranges::find(streams, stream) != streams.end()) inputs.push_back({stream, array});
    }
    return inputs;
  }

 private:
  std::vector<std::pair<H2dStream, HostTensor>> arrays_;
};

}  // namespace internal

namespace {

constexpr double kMinTemperature = 1e-6;  // Logits divided by it are finite.

void check_request(const GptSizes& s, std::span<const int32_t> prompt, const GenerateOptions& o) {
  const auto length = static_cast<int64_t>(prompt.size());
  require(length >= 1, "generate: the prompt must have a token, got an empty one");
  require(length <= s.context,
          "generate: the prompt must have at most {} tokens, the context, got {}", s.context,
          length);
  for (size_t i = 0; i < prompt.size(); ++i)
    require(prompt[i] >= 0 && prompt[i] < s.vocabulary,
            "generate: token {} of the prompt must be in [0, {}), the vocabulary, got {}", i,
            s.vocabulary, prompt[i]);
  require(o.tokens >= 1, "generate: tokens must be at least 1, got {}", o.tokens);
  require(o.tokens <= s.context - length,
          "generate: prompt and new tokens must be at most {}, the context, got {} and {}",
          s.context, length, o.tokens);
  const bool is_divisor = std::isfinite(o.temperature) && o.temperature >= kMinTemperature;
  require(o.temperature == 0 || is_divisor,
          "generate: the temperature must be finite and 0 or at least {}, got {}", kMinTemperature,
          o.temperature);
  require(!o.top_k || *o.top_k >= 1, "generate: top_k must be at least 1, got {}",
          o.top_k.value_or(0));
  require(o.top_p > 0 && o.top_p <= 1, "generate: top_p must be in (0, 1], got {}", o.top_p);
}

}  // namespace

struct Generator::State {
  // A file of weights, and a function that compares it with the weights of a program.
  struct WeightFile {
    std::string path;
    std::function<void(const train::Training&)> check;
  };
  // Compares the file with the sizes before it compiles.
  State(const GptSizes& given, const SessionOptions& options,
        const std::optional<WeightFile>& file = {});

  void build_decode();
  void build_prefill();
  // Runs a program that passes tokens to the sink.
  void run(Binding& program);
  void set_inputs(std::span<const int32_t> prompt, const GenerateOptions& options);

  GptSizes sizes;
  int64_t group, groups;  // Rows of a group of a prompt, and groups of a cache.
  Ir ir;
  train::Training programs;  // Weights by path, in the program "decode".
  Tensors caches;            // Keys and values of each block, in the program "decode".
  Tensor logits;             // The logits of the last token, in "decode".
  Outfeed outfeed;
  internal::SamplingStreams sampling;
  H2dStream prompt, length, token, end;
  D2hStream first_token;
  std::unique_ptr<Session> session;
  std::shared_ptr<internal::TokenSink> sink = std::make_shared<internal::TokenSink>();
  internal::InputArrays arrays;
  HostTensor first = HostTensor(int_scalar());
  Binding prefill, decode;
};

Generator::State::State(const GptSizes& given, const SessionOptions& options,
                        const std::optional<WeightFile>& file)
    : sizes(complete_sizes(given)),
      group(std::min(sizes.context, kPrefillRows)),
      groups(ceil_div(sizes.context, group)),
      outfeed(ir.outfeed("tokens", {{"token", int_scalar()}}, {.depth = kOutfeedDepth})),
      sampling(ir),
      prompt(ir.h2d_stream({{groups, group}, i32, {}}, "prompt")),
      length(ir.h2d_stream(int_scalar(), "length")),
      token(ir.h2d_stream(int_scalar(), "first_token")),
      end(ir.h2d_stream(int_scalar(), "end")) {
  try {
    build_decode();
  } catch (const Error& e) {
    if (!file || e.kind() != ErrorKind::kUsage) throw;
    fail(ErrorKind::kBadFile, "{}: the sizes of its model: {}", file->path, e.what());
  }
  if (file) file->check(programs);
  build_prefill();
  session = std::make_unique<Session>(ir, options);
  session->bind_feed(outfeed, sink);
  std::vector<H2dStream> common{length,         sampling.seed,    sampling.temperature,
                                sampling.noise, sampling.filters, sampling.last_rank,
                                sampling.mass};
  for (const H2dStream& s : common) arrays.add(s);
  for (const H2dStream& s : {prompt, token, end}) arrays.add(s);
  const auto with = [&](std::vector<H2dStream> more) {
    more.insert(more.end(), common.begin(), common.end());
    return arrays.inputs(more);
  };
  prefill = session->bind(with({prompt}), {{first_token, first}}, "prefill");
  decode = session->bind(with({token, end}), {}, "decode");
}

void Generator::State::build_decode() {
  Graph& main = ir.entry_graph("decode");
  const int64_t kv_width = sizes.width / sizes.heads * sizes.kv_heads;
  const TensorSpec cache{{checked_mul(groups, group), kv_width}, f32, {}};
  std::vector<NamedInput> cache_inputs;
  for (int64_t i = 0; i < sizes.blocks; ++i) {
    for (const char* part : {"keys", "values"}) {
      const std::string name = fmt::format("cache.{}.{}", i, part);
      caches.push_back(main.variable(cache, Initializer::constant(0), name));
      cache_inputs.push_back({name, cache, Pass::kByReference});
    }
  }
  logits = main.variable({{sizes.vocabulary}, f32, {}}, Initializer::constant(0), "logits");
  const auto [factories, net] = nn::create_eval_graph(
      ir, NextToken(sizes), TensorSpec{{1, 1}, i32, {}}, int_scalar(), cache_inputs);
  programs.variables = factories.init(main);
  programs.torch_weights = train::torch_weights(factories);
  const internal::SamplingInputs inputs = sampling.load(main);
  const Tensor last = main.host_load(end);
  const auto goes_on = [&](const Tensor&, const Tensor& position) {
    return ops::less(position, last);
  };
  const auto body = [&](const Tensor& current, const Tensor& position) -> Tensors {
    const Tensor scores =
        net.bind(programs.variables).call(ops::reshape(current, {1, 1}), position, caches)[0];
    ops::update_slice_(logits, scores);
    const Tensor next = position + main.scalar(1, i32);
    const Tensor chosen = internal::sample_token(main, scores, next, inputs);
    main.enqueue(outfeed, Tensors{chosen});
    return {chosen, next};
  };
  ops::while_loop(main, goes_on, body, {main.host_load(token), main.host_load(length)}, {},
                  sizes.context);
}

void Generator::State::build_prefill() {
  Graph& main = ir.entry_graph("prefill");
  nn::NamedTensors weights;
  programs.variables.for_each([&](const std::string& key, const Tensor& weight) {
    weights.merge(key, ir.share_variable(weight, main));
  });
  std::vector<NamedInput> cache_inputs;
  Tensors shared;
  for (const Tensor& cache : caches) {
    shared.push_back(ir.share_variable(cache, main));
    cache_inputs.push_back({cache.name(), cache.spec(), Pass::kByReference});
  }
  const TensorSpec rows{{1, group}, i32, {}};
  const auto earlier =
      nn::create_eval_graph(ir, PrefillGroup(sizes), rows, int_scalar(), int_scalar(), cache_inputs)
          .second;
  const auto last = nn::create_eval_graph(ir, LastGroup(sizes), rows, int_scalar(), int_scalar(),
                                          int_scalar(), cache_inputs)
                        .second;
  const Tensor tokens = main.host_load(prompt), count = main.host_load(length);
  const Tensor size = main.scalar(static_cast<double>(group), i32);
  const auto group_at = [&](const Tensor& step) {
    return ops::reshape(ops::gather(tokens, step), {1, group});
  };
  const Tensor step = ops::while_loop(
      main, [&](const Tensor& i) { return ops::less((i + main.scalar(1, i32)) * size, count); },
      [&](const Tensor& i) {
        earlier.bind(weights).call(group_at(i), i, i * size, shared);
        return i + main.scalar(1, i32);
      },
      {main.scalar(0, i32)}, {}, groups)[0];
  const Tensor begin = step * size;
  const Tensor scores = last.bind(weights).call(group_at(step), step, begin,
                                                count - begin - main.scalar(1, i32), shared)[0];
  ops::update_slice_(ir.share_variable(logits, main), scores);
  const Tensor chosen = internal::sample_token(main, scores, count, sampling.load(main));
  main.enqueue(outfeed, Tensors{chosen});
  first_token = main.host_store(chosen, "chosen");
}

void Generator::State::set_inputs(std::span<const int32_t> tokens, const GenerateOptions& o) {
  const std::span<int32_t> rows = arrays[prompt].as<int32_t>();
  std::ranges::fill(rows, 0);
  std::ranges::copy(tokens, rows.begin());
  const auto count = static_cast<int64_t>(tokens.size());
  arrays.set(length, static_cast<int32_t>(count));
  arrays.set(end, static_cast<int32_t>(count + o.tokens - 1));
  const std::span<uint32_t> words = arrays[sampling.seed].as<uint32_t>();
  words[0] = static_cast<uint32_t>(o.seed >> 32);
  words[1] = static_cast<uint32_t>(o.seed);
  const bool draws = o.temperature > 0;
  arrays.set(sampling.temperature, draws ? static_cast<float>(o.temperature) : 1.0f);
  arrays.set(sampling.noise, draws ? 1.0f : 0.0f);
  const int64_t top_k = std::min(o.top_k.value_or(sizes.vocabulary), sizes.vocabulary);
  const bool filters = draws && (top_k < sizes.vocabulary || o.top_p < 1);
  arrays.set(sampling.filters, filters ? 1 : 0);
  arrays.set(sampling.last_rank, static_cast<int32_t>(top_k - 1));
  arrays.set(sampling.mass, o.top_p < 1 ? static_cast<float>(o.top_p) : 2.0f);
}

void Generator::State::run(Binding& program) {
  try {
    session->run_into(program);
  } catch (const Error& e) {
    // Ends take(), and discards the tokens that the stopped run has queued.
    session->bind_feed(outfeed, sink);
    if (e.kind() != ErrorKind::kStopped || !sink->done()) throw;
  }
  sink->rethrow();
}

Generator::Generator(const GptSizes& sizes, const SessionOptions& options)
    : state_(std::make_unique<State>(sizes, options)) {}
Generator::Generator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

Generator Generator::open(const GptSizes& sizes, const std::string& path,
                          const SessionOptions& options) {
  const auto check = [&](const train::Training& t) { train::check_weights(t, path); };
  Generator result(std::make_unique<State>(sizes, options, State::WeightFile{path, check}));
  result.load(path);
  return result;
}

Generator Generator::open_hugging_face(const GptSizes& sizes, const std::string& path,
                                       const SessionOptions& options) {
  const auto check = [&](const train::Training& t) {
    check_hugging_face(t, weight_layout(sizes.arch), path);
  };
  Generator result(std::make_unique<State>(sizes, options, State::WeightFile{path, check}));
  result.load_hugging_face(path);
  return result;
}

std::vector<std::string> Generator::load(const std::string& path) {
  return train::load_weights(*state_->session, state_->programs, path,
                             train::averages_as_weights(path))
      .unused;
}

void Generator::load_hugging_face(const std::string& path) {
  models::load_hugging_face(*state_->session, state_->programs, weight_layout(state_->sizes.arch),
                            path);
}

void Generator::copy_weights(const Session& from) {
  std::map<std::string, HostTensor> found;
  from.each_variable([&](const std::string& path, HostTensor value) {
    if (state_->programs.variables.has_leaf(path)) found.emplace(path, std::move(value));
  });
  std::vector<std::pair<Tensor, HostTensor>> values;
  state_->programs.variables.for_each([&](const std::string& path, const Tensor& weight) {
    const auto value = found.find(path);
    require(value != found.end(), "generate: the session must have the weight '{}'", path);
    values.emplace_back(weight, std::move(value->second));
  });
  state_->session->write(values);
}

int64_t Generator::generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                            const Callback& callback) {
  State& s = *state_;
  check_request(s.sizes, prompt, options);
  s.set_inputs(prompt, options);
  s.sink->begin(callback, *s.session);
  s.run(s.prefill);
  if (!s.sink->done() && options.tokens > 1) {
    s.arrays.set(s.token, s.first.as<int32_t>()[0]);
    s.run(s.decode);
  }
  return s.sink->calls();
}

HostTensor Generator::logits() const { return state_->session->read(state_->logits); }

Session& Generator::session() { return *state_->session; }

}  // namespace sluice::models
