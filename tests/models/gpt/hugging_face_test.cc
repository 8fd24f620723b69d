// Checkpoints of Hugging Face's transformers (hugging_face.py) must have their logits here, and
// checkpoints that are written must have the same tensors.

#include "sluice/models/hugging_face/hugging_face.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sluice/base/safetensors.h"
#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
const fs::path kCheckpoints = "tests/models/gpt/checkpoints";

// The stored checkpoints, and those in the folder SLUICE_CHECKPOINTS.
std::vector<fs::path> checkpoints() {
  std::vector<fs::path> paths;
  const char* other = std::getenv("SLUICE_CHECKPOINTS");
  for (const fs::path& folder : {kCheckpoints, fs::path(other == nullptr ? "" : other)}) {
    if (folder.empty()) continue;
    for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

train::InferenceModel inference(models::GptSizes sizes) {
  sizes.results = models::TokenResults::kLogits;
  return train::inference_model(models::gpt(sizes),
                                {.session = {.device = cpu_device({.threads = 2})}});
}

train::TrainingModel training(const models::GptSizes& sizes) {
  return train::training_model(models::gpt(sizes),
                               {.session = {.device = cpu_device({.threads = 1})}});
}

template <typename Model>
void load(Model& model, models::Arch arch, const fs::path& path) {
  models::load_hugging_face(model.session(), model.programs(), models::weight_layout(arch), path);
}

std::map<std::string, HostTensor> arrays_of(const fs::path& file) {
  std::map<std::string, HostTensor> arrays;
  for (NamedArray& a : read_safetensors_file(file)) arrays.emplace(a.name, std::move(a.array));
  return arrays;
}

// An empty folder that is removed at the end.
struct Folder {
  explicit Folder(const std::string& name) : path(fs::path(testing::TempDir()) / name) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

double largest_difference(const HostTensor& a, const HostTensor& b) {
  EXPECT_EQ(to_string(a.spec()), to_string(b.spec()));
  const std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  double difference = 0, largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference = std::max(difference, std::abs(x[i] - y[i]));
    largest = std::max(largest, std::abs(y[i]));
  }
  return difference / largest;
}

models::GptSizes sizes_of(const fs::path& path) {
  return models::read_gpt_sizes(path, {.heads = 0, .micro_batch = 2, .eval_batch = 2});
}

TEST(HuggingFace, LogitsAreThoseOfTransformers) {
  double worst = 0;
  for (const fs::path& path : checkpoints()) {
    SCOPED_TRACE(path);
    const auto stored = arrays_of(path / "logits.safetensors");
    const models::GptSizes sizes = sizes_of(path);
    train::InferenceModel model = inference(sizes);
    load(model, sizes.arch, path);
    const double difference =
        largest_difference(model({{"tokens", stored.at("tokens")}})["logits"], stored.at("logits"));
    EXPECT_LE(difference, 1e-5);
    worst = std::max(worst, difference);
  }
  RecordProperty("largest_difference", std::to_string(worst));
}

// Writes each checkpoint again. hugging_face.py checks those in the folder SLUICE_SAVED.
TEST(HuggingFace, WrittenCheckpointsHaveTheSameTensors) {
  const Folder temporary("hugging_face_saved");
  const char* given = std::getenv("SLUICE_SAVED");
  for (const fs::path& path : checkpoints()) {
    SCOPED_TRACE(path);
    const models::GptSizes sizes = sizes_of(path);
    train::TrainingModel model = training(sizes);
    load(model, sizes.arch, path);
    const fs::path saved = (given == nullptr ? temporary.path : fs::path(given)) / path.filename();
    fs::create_directories(saved);
    models::save_hugging_face(model.session(), model.programs(), models::weight_layout(sizes.arch),
                              saved / "model.safetensors");
    models::write_gpt_config(sizes, saved / "config.json");

    const models::GptSizes again = sizes_of(saved);
    train::InferenceModel other = inference(again);
    load(other, again.arch, saved);
    auto stored = arrays_of(path / "logits.safetensors");
    stored.insert_or_assign("logits", other({{"tokens", stored.at("tokens")}})["logits"]);
    std::vector<NamedArray> arrays;
    for (const auto& [name, array] : stored) arrays.push_back({name, array});
    write_safetensors_file(saved / "logits.safetensors", arrays);

    const auto have = arrays_of(saved / "model.safetensors");
    EXPECT_TRUE(have.contains("lm_head.weight"));
    if (!fs::exists(path / "model.safetensors")) continue;
    for (const auto& [name, array] : arrays_of(path / "model.safetensors")) {
      if (name.ends_with("attn.bias") || name.ends_with("masked_bias")) continue;
      const auto found = have.find(have.contains(name) ? name : "transformer." + name);
      ASSERT_NE(found, have.end()) << name;
      EXPECT_TRUE(found->second.same_bits(array.cast(f32))) << name;
    }
  }
}

TEST(HuggingFace, SizesAreThoseOfTheShapesWithoutAConfiguration) {
  const Folder folder("hugging_face_shapes");
  for (const fs::path& path : checkpoints()) {
    if (!fs::exists(path / "model.safetensors")) continue;
    SCOPED_TRACE(path);
    models::GptSizes want = sizes_of(path);
    fs::copy_file(path / "model.safetensors", folder.path / "model.safetensors",
                  fs::copy_options::overwrite_existing);
    const models::GptSizes have = models::read_gpt_sizes(folder.path, want);
    EXPECT_EQ(have.arch, want.arch);
    EXPECT_EQ(have.tied, want.tied);
    for (const auto member :
         {&models::GptSizes::blocks, &models::GptSizes::heads, &models::GptSizes::kv_heads,
          &models::GptSizes::width, &models::GptSizes::hidden, &models::GptSizes::context,
          &models::GptSizes::vocabulary, &models::GptSizes::micro_batch})
      EXPECT_EQ(have.*member, want.*member);
  }
}

// Loads a checkpoint whose tensors `change` has changed into a model of its sizes.
std::function<void()> load_changed(
    const std::string& name, std::function<void(std::map<std::string, HostTensor>&)> change,
    std::function<void(models::GptSizes&)> change_sizes = [](models::GptSizes&) {}) {
  return [=] {
    const Folder folder("hugging_face_changed");
    auto arrays = arrays_of(kCheckpoints / name / "model.safetensors");
    change(arrays);
    std::vector<NamedArray> list;
    for (const auto& [key, array] : arrays) list.push_back({key, array});
    write_safetensors_file(folder.path / "changed.safetensors", list);
    models::GptSizes sizes = sizes_of(kCheckpoints / name);
    change_sizes(sizes);
    train::InferenceModel model = inference(sizes);
    load(model, sizes.arch, folder.path / "changed.safetensors");
  };
}

HostTensor zeros(Shape shape, DType dtype = f32) {
  return HostTensor(TensorSpec{std::move(shape), dtype, {}});
}

TEST(HuggingFace, RefusesOtherWeights) {
  using Arrays = std::map<std::string, HostTensor>;
  const auto nothing = [](Arrays&) {};
  const std::vector<Refusal> refusals{
      {"Llama",
       load_changed("llama_tied", nothing,
                    [](models::GptSizes& s) { s.arch = models::Arch::kGpt2; }),
       "must have the weights of GPT-2, got names of Llama"},
      {"GPT-2",
       load_changed("gpt2_half", nothing,
                    [](models::GptSizes& s) { s.arch = models::Arch::kLlama; }),
       "must have the weights of Llama, got names of GPT-2"},
      {"missing", load_changed("gpt2", [](Arrays& a) { a.erase("transformer.h.1.mlp.c_fc.bias"); }),
       "weight 'transformer.h.1.mlp.c_fc.bias' is missing"},
      {"shape",
       load_changed("gpt2",
                    [](Arrays& a) {
                      a.insert_or_assign("transformer.h.0.attn.c_proj.weight", zeros({16, 8}));
                    }),
       "'transformer.h.0.attn.c_proj.weight' must be (16, 16) of floating point, got (16, 8)"},
      {"transposed",
       load_changed(
           "llama_tied",
           [](Arrays& a) {
             a.insert_or_assign("model.layers.0.mlp.up_proj.weight", zeros({16, 24}, bf16));
           }),
       "'model.layers.0.mlp.up_proj.weight' must be (24, 16) of floating point, got"},
      {"dtype",
       load_changed(
           "gpt2",
           [](Arrays& a) { a.insert_or_assign("transformer.ln_f.bias", zeros({16}, i32)); }),
       "'transformer.ln_f.bias' must be (16,) of floating point, got (16,) int32"},
      {"block", load_changed("gpt2", nothing, [](models::GptSizes& s) { s.blocks = 1; }),
       "'transformer.h.1.attn.c_attn.bias' must have a variable in the model"},
      {"unknown",
       load_changed("gpt2",
                    [](Arrays& a) {
                      a.emplace("score.weight", zeros({2, 16}));
                    }),
       "'score.weight' must be a weight of GPT-2"},
      {"number",
       load_changed("gpt2",
                    [](Arrays& a) { a.emplace("transformer.h.01.ln_1.bias", zeros({16})); }),
       "'transformer.h.01.ln_1.bias' must be a weight of GPT-2"},
      {"tied",
       load_changed("gpt2",
                    [](Arrays& a) {
                      a.emplace("lm_head.weight", zeros({11, 16}));
                    }),
       "'lm_head.weight' must equal 'transformer.wte.weight', because the model ties them"},
      {"not tied", load_changed("llama_tied", nothing, [](models::GptSizes& s) { s.tied = false; }),
       "weight 'lm_head.weight' is missing: the checkpoint ties it to that of "
       "'embed_tokens.weight'"}};
  for (Refusal r : refusals) {
    r.kind = ErrorKind::kBadFile;
    expect_refused({r});
  }
}

TEST(HuggingFace, ReadsSecondNamesAndBuffers) {
  load_changed("gpt2", [](std::map<std::string, HostTensor>& a) {
    a.emplace("lm_head.weight", a.at("transformer.wte.weight"));
    a.emplace("transformer.h.1.attn.bias", zeros({1, 1, 12, 12}, DType::kBool));
  })();
  load_changed("llama_tied", [](std::map<std::string, HostTensor>& a) {
    a.emplace("lm_head.weight", a.at("model.embed_tokens.weight"));
    a.emplace("model.layers.0.self_attn.rotary_emb.inv_freq", zeros({2}));
  })();
}

// Loads the checkpoint "llama" whose index has been changed.
std::function<void()> load_index(const std::string& text) {
  return [text] {
    const Folder folder("hugging_face_index");
    for (const auto& entry : fs::directory_iterator(kCheckpoints / "llama"))
      fs::copy_file(entry.path(), folder.path / entry.path().filename());
    std::ofstream(folder.path / "model.safetensors.index.json") << text;
    const models::GptSizes sizes = sizes_of(kCheckpoints / "llama");
    train::InferenceModel model = inference(sizes);
    load(model, sizes.arch, folder.path);
  };
}

TEST(HuggingFace, RefusesOtherIndices) {
  const auto map = [](const std::string& text) {
    return load_index("{\"weight_map\": {" + text + "}}");
  };
  const std::string file = "\"model-00001-of-00003.safetensors\"";
  for (Refusal r : std::vector<Refusal>{
           {"text", load_index("weights"), "must be a JSON object"},
           {"map", load_index("{\"weight_map\": []}"), "must have a 'weight_map' of names"},
           {"folder", map("\"a\": \"../b\""),
            "the file of 'a' must be one of the same folder, got \"../b\""},
           {"number", map("\"a\": 1"), "the file of 'a' must be one of the same folder, got 1"},
           {"tensor", map("\"a\": " + file), "tensor 'a' is missing from its files"},
           {"rest", map("\"model.embed_tokens.weight\": " + file), "weight 'lm_head.weight' is"}}) {
    r.kind = ErrorKind::kBadFile;
    expect_refused({r});
  }
}

// Reads the sizes of a checkpoint with this config.json.
std::function<void()> read_config(const std::string& text, int64_t heads = 0) {
  return [=] {
    const Folder folder("hugging_face_config");
    std::ofstream(folder.path / "config.json") << text;
    models::read_gpt_sizes(folder.path, {.heads = heads});
  };
}

TEST(HuggingFace, RefusesOtherConfigurations) {
  const auto gpt2 = [](const std::string& text) {
    return read_config(
        "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 8, "
        "\"n_positions\": 4, \"vocab_size\": 9" +
        text + "}");
  };
  const auto llama = [](const std::string& text) {
    return read_config(
        "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 8, "
        "\"num_attention_heads\": 2, \"intermediate_size\": 8, \"vocab_size\": 9, "
        "\"max_position_embeddings\": 4" +
        text + "}");
  };
  gpt2("")();
  llama("")();
  for (Refusal r : std::vector<Refusal>{
           {"list", read_config("[]"), "config.json: must be a JSON object"},
           {"absent", read_config("{}"), "'model_type' must be \"gpt2\" or \"llama\", got nothing"},
           {"bert", read_config("{\"model_type\": \"bert\"}"),
            "'model_type' must be \"gpt2\" or \"llama\", got \"bert\""},
           {"heads", read_config("{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 0}"),
            "'n_head' must be an integer from 1 to 2147483647, got 0"},
           {"inner", gpt2(", \"n_inner\": 1.5"), "'n_inner' must be an integer from 1 to"},
           {"activation", gpt2(", \"activation_function\": \"relu\""),
            "'activation_function' must be \"gelu_new\" or \"gelu_pytorch_tanh\", got \"relu\""},
           {"inverse", gpt2(", \"scale_attn_by_inverse_layer_idx\": true"),
            "'scale_attn_by_inverse_layer_idx' must be false, got true"},
           {"bias", llama(", \"attention_bias\": true"), "'attention_bias' must be false, got"},
           {"head", llama(", \"head_dim\": 8"), "'head_dim' must be 4, got 8"},
           {"scaling", llama(", \"rope_scaling\": {\"rope_type\": \"llama3\"}"),
            "'rope_type' must be \"default\", got \"llama3\""},
           {"epsilon", llama(", \"rms_norm_eps\": -1"), "'rms_norm_eps' must be a positive number"},
           {"tied", llama(", \"tie_word_embeddings\": 1"),
            "'tie_word_embeddings' must be true or false, got 1"}}) {
    r.kind = ErrorKind::kBadFile;
    expect_refused({r});
  }
  const std::string weights = kCheckpoints / "gpt2_half" / "model.safetensors";
  const auto without_config = [&](int64_t heads) {
    return [=] {
      const Folder folder("hugging_face_config");
      fs::copy_file(weights, folder.path / "model.safetensors");
      models::read_gpt_sizes(folder.path, {.heads = heads});
    };
  };
  without_config(4)();
  expect_refused(
      {{"not given", without_config(0), "heads must be given, because there is no"},
       {"differ", [] { models::read_gpt_sizes(kCheckpoints / "gpt2", {.heads = 8}); },
        "heads must be those of the file, 4, or not given, got 8"},
       {"grouped",
        [] {
          models::write_gpt_config({.kv_heads = 2, .vocabulary = 9}, testing::TempDir() + "x.json");
        },
        "write_gpt_config: kv_heads of GPT-2 must be the heads, 4, in a checkpoint, got 2"}});
}

}  // namespace
}  // namespace sluice::test
