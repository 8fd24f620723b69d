#include <gtest/gtest.h>

#include <cmath>

#include "sluice/base/attrs.h"
#include "sluice/base/bytes.h"
#include "sluice/base/checked.h"
#include "sluice/base/host_tensor.h"
#include "sluice/base/provenance.h"
#include "sluice/base/rng.h"

namespace sluice {
namespace {

TEST(DType, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = half_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(float_to_half(value), bits);
  }
}

TEST(DType, HalfRoundsToNearestEven) {
  EXPECT_EQ(float_to_half(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(float_to_half(1.0f + 3 * 0x1p-11f), 0x3c02);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_half(0x1p-25f), 0);
  EXPECT_EQ(float_to_half(-0x1.8p-25f), 0x8001);
}

TEST(Shape, TextIsPythons) {
  EXPECT_EQ(to_string(Shape{}), "()");
  EXPECT_EQ(to_string(Shape{5}), "(5,)");
  EXPECT_EQ(to_string(Shape{2, 4}), "(2, 4)");
}

TEST(Shape, BroadcastRefusesAndNamesBoth) {
  EXPECT_EQ(broadcast({2, 1}, {3}, "add"), (Shape{2, 3}));
  try {
    broadcast({2, 4}, {3}, "add");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "add: shapes (2, 4) and (3,) do not broadcast");
  }
}

TEST(Checked, OverflowIsAnError) {
  EXPECT_THROW(checked_mul(int64_t{1} << 40, int64_t{1} << 40), Error);
  EXPECT_THROW((Shape{int64_t{1} << 40, int64_t{1} << 40}.elements()), Error);
}

// The expected words are known answers for philox4x32-10 from Random123.
TEST(Rng, PhiloxKnownAnswers) {
  EXPECT_EQ(philox({0, 0}, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff}, ~uint64_t{0}, ~uint64_t{0}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Rng, NormalHasMeanAndDeviation) {
  double sum = 0;
  double squares = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = random_normal({1, 2}, static_cast<uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.02);
}

TEST(Attrs, TextReadsBack) {
  const Attrs attrs{{{"a", true},
                     {"b", int64_t{-3}},
                     {"c", 0.1},
                     {"d", std::string("x \"y\"\\\n=")},
                     {"e", std::vector<int64_t>{1, 2}},
                     {"f", std::vector<double>{}},
                     {"g", f16},
                     {"h", -HUGE_VAL},
                     {"i", 2.0}}};
  EXPECT_EQ(parse_attrs(to_string(attrs)), attrs) << to_string(attrs);
}

enum class Shade : uint8_t { kRed, kDarkBlue, kGreen };
constexpr std::string_view words_of(Shade) { return "red,dark_blue,green"; }

struct PaintOptions {
  Shade shade = Shade::kDarkBlue;
  int64_t coats = 2;
  static auto fields(auto&& use) {
    return use(field("shade", &PaintOptions::shade, "Shade of the paint."),
               required_field("coats", &PaintOptions::coats, "Number of coats."));
  }
};

TEST(Attrs, FieldsHaveWordsAndContracts) {
  const std::vector<FieldInfo> fields = describe_fields<PaintOptions>();
  ASSERT_EQ(fields.size(), 2u);
  EXPECT_EQ(fields[0].name, "shade");
  EXPECT_EQ(fields[0].words, "red,dark_blue,green");
  EXPECT_EQ(fields[0].doc, "Shade of the paint.");
  EXPECT_FALSE(fields[0].required);
  EXPECT_EQ(fields[1].words, "");
  EXPECT_TRUE(fields[1].required);
  // Attributes have the number of an enum, so that texts of plans do not change.
  EXPECT_EQ(to_string(to_attrs(PaintOptions{})), "shade=1 coats=2");
}

TEST(Attrs, WordsAreReadAndRefused) {
  EXPECT_EQ(from_word<Shade>("green", "paint: shade"), Shade::kGreen);
  EXPECT_EQ(word_at(words_of(Shade{}), 1), "dark_blue");
  for (const char* word : {"", "re", "red,dark_blue", "Green"}) {
    try {
      from_word<Shade>(word, "paint: shade");
      ADD_FAILURE() << "'" << word << "' was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()),
                fmt::format("paint: shade: must be red, dark_blue or green, got '{}'", word));
    }
  }
}

TEST(Provenance, CopiesShareOneAndCompareItsFields) {
  const SharedProvenance none;
  EXPECT_EQ(*none, Provenance());
  EXPECT_TRUE(none == SharedProvenance(Provenance()));
  const SharedProvenance own(Provenance{.block = "B1", .line = "a.cc:1"});
  const SharedProvenance copy = own;
  EXPECT_EQ(&*copy, &*own);
  EXPECT_TRUE(own == SharedProvenance(*own));
  EXPECT_FALSE(own == none);
}

TEST(ByteReader, NeverReadsPastTheEnd) {
  const std::byte bytes[3]{};
  ByteReader reader("f", bytes);
  reader.u8("a");
  EXPECT_THROW(reader.u32_be("b"), Error);
  EXPECT_THROW(reader.take(-1, "c"), Error);
  EXPECT_EQ(reader.remaining(), 2);
}

TEST(HostTensor, CastSaturatesAndRounds) {
  const auto t = HostTensor::of<float>({3}, f32, {300.0f, -1.0f, 1.0f + 0x1p-11f});
  EXPECT_EQ(t.cast(u8).to_doubles(), (std::vector<double>{255, 0, 1}));
  EXPECT_EQ(t.cast(f16).to_doubles()[2], 1.0);
}

}  // namespace
}  // namespace sluice
