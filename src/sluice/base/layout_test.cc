#include "sluice/base/layout.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "sluice/base/error.h"

namespace sluice {
namespace {

TEST(Layout, TextReadsBack) {
  const std::map<std::string, Layout> layouts = {
      {"row", Layout()},
      {"panels32", Layout("panels", {32})},
      {"tiles16x8", Layout("tiles", {16, 8})},
      {"ohwi_blocks8x16x0x9223372036854775807", Layout("ohwi_blocks", {8, 16, 0, INT64_MAX})},
      {"column", Layout("column", {})},
  };
  for (const auto& [text, layout] : layouts) {
    EXPECT_EQ(to_string(layout), text);
    EXPECT_EQ(parse_layout(text), layout);
    EXPECT_EQ(parse_layout(text).kind(), layout.kind());
    EXPECT_EQ(parse_layout(text).parameters(), layout.parameters());
  }
  EXPECT_EQ(Layout("tiles", {16, 8}).kind(), "tiles");
  EXPECT_EQ(Layout("tiles", {16, 8}).parameters(), (std::vector<int64_t>{16, 8}));
  EXPECT_EQ(Layout().kind(), "row");
  EXPECT_TRUE(Layout().parameters().empty());
  EXPECT_TRUE(Layout().is_row_major());
  EXPECT_FALSE(Layout("column", {}).is_row_major());
}

TEST(Layout, ComparesAsAValue) {
  EXPECT_EQ(Layout("tiles", {16, 8}), Layout("tiles", {16, 8}));
  EXPECT_NE(Layout("tiles", {16, 8}), Layout("tiles", {8, 16}));
  EXPECT_NE(Layout("tiles", {16}), Layout("panels", {16}));
  EXPECT_NE(Layout("tiles", {16}), Layout());
  EXPECT_NE(Layout("tiles", {16}) < Layout("tiles", {8}),
            Layout("tiles", {8}) < Layout("tiles", {16}));
}

TEST(Layout, RefusesOtherTexts) {
  for (const char* text :
       {"", "16", "Row", "row1", "panels-16", "panels+16", "panels16 ", "panels 16", "panels1y",
        "panels016", "panels16x", "panels16xx8", "panelsx16x8y", "panels99999999999999999999"}) {
    try {
      parse_layout(text);
      ADD_FAILURE() << "'" << text << "' is taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUsage);
      EXPECT_EQ(e.what(),
                "layout: must be row or a kind with its numbers, as panels32 or tiles16x8, got '" +
                    std::string(text) + "'");
    }
  }
  EXPECT_THROW(Layout("row", {}), Error);
  EXPECT_THROW(Layout("tiles16", {}), Error);
  EXPECT_THROW(Layout("tiles", {-1}), Error);
}

}  // namespace
}  // namespace sluice
