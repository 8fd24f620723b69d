#include "sluice/train/checkpoints/manifest.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"

namespace sluice::train {
namespace {

Manifest manifest() {
  return {.updates = 400,
          .files = {{"model-00001-of-00001.safetensors", 12, std::string(32, 'a')},
                    {"run.json", 7, std::string(32, 'b')}}};
}

TEST(Manifests, ParseBack) {
  const Manifest parsed = parse_manifest(to_text(manifest()), "m");
  EXPECT_EQ(parsed.updates, 400);
  ASSERT_EQ(parsed.files.size(), 2u);
  EXPECT_EQ(parsed.files[1].name, "run.json");
  EXPECT_EQ(parsed.files[1].bytes, 7);
  EXPECT_EQ(parsed.files[0].hash, std::string(32, 'a'));
  EXPECT_EQ(to_text(parsed), to_text(manifest()));
}

TEST(Manifests, AnyOtherByteIsRefused) {
  const std::string text = to_text(manifest());
  for (size_t i = 0; i < text.size(); ++i) {
    for (const int flip : {1, 0x20, 0x80}) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      EXPECT_THROW(parse_manifest(damaged, "m"), Error) << i;
    }
    EXPECT_THROW(parse_manifest(text.substr(0, i), "m"), Error) << i;
    EXPECT_THROW(parse_manifest(text.substr(0, i) + "x" + text.substr(i), "m"), Error) << i;
  }
}

TEST(Manifests, NamesAndFormatsAreChecked) {
  const auto parse = [](const Manifest& m) { return [m] { parse_manifest(to_text(m), "m"); }; };
  const auto named = [&](const char* name) { return parse({1, {{name, 1, "h"}}}); };
  const ErrorKind bad = ErrorKind::kBadFile;
  expect_refused(
      {{"folder", named("../run.json"), "must be plain and unique, got '../run.json'", bad},
       {"parent", named(".."), "must be plain", bad},
       {"empty", named(""), "must be plain", bad},
       {"twice", parse({1, {{"a", 1, "h"}, {"a", 1, "h"}}}), "unique, got 'a'", bad},
       {"size", parse({1, {{"a", -1, "h"}}}), "must be the manifest", bad},
       {"updates", parse({-1, {}}), "must be the manifest", bad}});
}

}  // namespace
}  // namespace sluice::train
