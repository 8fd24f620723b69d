#include "sluice/exe/text.h"

#include <gtest/gtest.h>

#include "sluice/base/error.h"
#include "sluice/exe/test_plans.h"

namespace sluice::exe {
namespace {

/// Without comments and the spaces before them.
std::string bare(const std::string& text) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = text.find('\n', at);
    std::string line = text.substr(at, end - at);
    const size_t comment = line.find("  # ");
    if (comment != std::string::npos) line.resize(comment);
    out += line + '\n';
    at = end + 1;
  }
  return out;
}

std::string error_of(const std::string& text) {
  try {
    parse_text(text, "f.plan");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kBadFile) << e.what();
    return e.what();
  }
  return "";
}

std::string damaged(std::string_view from, std::string_view to) {
  return error_of(plans::replaced(plans::everything(), from, to));
}

TEST(Text, RoundTripIsIdentity) {
  for (const std::string& text :
       {plans::everything(), plans::train_step(), plans::two_devices(), plans::overlapped_loop(),
        plans::carried_ring(), plans::branch(), plans::by_reference(), plans::collectives()}) {
    const Executable e = plans::plan(text);
    EXPECT_EQ(bare(to_text(e)), bare(text));
    EXPECT_EQ(parse_text(to_text(e), "again"), e);
  }
}

TEST(Text, EmptyExecutable) {
  EXPECT_EQ(to_text({}), "sluice executable 1\nend\n");
  EXPECT_EQ(parse_text(to_text({}), "f"), Executable{});
}

TEST(Text, NamesValuesInComments) {
  const std::string text = to_text(plans::plan(plans::by_reference()));
  EXPECT_NE(text.find("update %0>%2 at arena1+0 bytes 64 float32(16) row  # a v0 > a v1\n"),
            std::string::npos);
}

TEST(Text, ErrorsNameFileAndLine) {
  EXPECT_EQ(error_of(""), "f.plan:0: the text is empty");
  EXPECT_EQ(error_of("sluice executable 2\n"), "f.plan:1: '1' expected, found '2'");
  EXPECT_EQ(error_of("sluice executable 1\n"), "f.plan:1: the text ends before 'end'");
  EXPECT_EQ(error_of("sluice executable 1\nend\nmore"), "f.plan:3: text after 'end'");
  EXPECT_EQ(damaged("tier 1 \"file\"", "tier 2 \"file\""), "f.plan:6: number 1 expected, found 2");
  EXPECT_EQ(damaged("kind tier", "kind attic"), "f.plan:9: 'attic' is no kind of arena");
  EXPECT_EQ(damaged("data 00ff1a", "data 00ff1g"), "f.plan:15: '1g' is not hexadecimal");
  EXPECT_EQ(damaged("(p0*-2)", "(p0*-2"),
            "f.plan:28: index expression '(p0*-2': ')' expected at ''");
  EXPECT_EQ(damaged("float16(2,3)\nstream", "float16(2,-3)\nstream"),
            "f.plan:11: '-3' is no dimension");
  EXPECT_EQ(damaged("6 sync send", "5 sync send"), "f.plan:61: step 6 expected, found 5");
}

TEST(Text, IndicesAreChecked) {
  EXPECT_EQ(damaged("frame arena3+0", "frame arena4+0"),
            "f.plan:72: arena 4 does not exist (there are 4)");
  EXPECT_EQ(damaged("2:1\n", "3:1\n"), "f.plan:25: operand 3 does not exist (there are 3)");
  EXPECT_EQ(damaged("at param0+8", "at param2+8"),
            "f.plan:25: parameter 2 does not exist (there are 2)");
  EXPECT_EQ(damaged("5 wait queue 1", "5 wait queue 3"),
            "f.plan:60: queue 3 does not exist (there are 3)");
  EXPECT_EQ(damaged("send 0 message", "send 1 message"),
            "f.plan:61: channel 1 does not exist (there are 1)");
  EXPECT_EQ(damaged("stream_in 0", "stream_in 2"),
            "f.plan:55: stream 2 does not exist (there are 2)");
  EXPECT_EQ(damaged("message 0\n", "message it\n"), "f.plan:61: 'it' stands outside a loop");
  EXPECT_EQ(damaged("index it ((it*2)+1)", "index it"),
            "f.plan:40: 1 index arguments for 2 of 'callee'");
  EXPECT_EQ(damaged("then 0 frame frame+0", "then 1 frame frame+0"),
            "f.plan:45: 2 arguments for 0 parameters of 'main'");
}

TEST(Text, RecursionIsRefused) {
  const std::string text =
      plans::replaced(plans::two_devices(), "0 sync loop 0 frame frame+0 trips 5\n      index it",
                      "0 sync loop 2 frame frame+0 trips 5");
  EXPECT_EQ(error_of(text), "f.plan:26: function 2 'main 0' calls itself");
}

TEST(Text, DamagedBytesNeverCrash) {
  const std::string text = plans::everything();
  int refused = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'0', '\n', static_cast<char>(text[i] ^ 1)}) {
      std::string damaged = text;
      damaged[i] = c;
      refused += !error_of(damaged).empty();
    }
    refused += !error_of(text.substr(0, i)).empty();
  }
  EXPECT_GT(refused, static_cast<int>(text.size()) * 2);
}

TEST(Text, DeepExpressionsAreRefused) {
  EXPECT_NE(damaged("((p1/3)%4)", std::string(100000, '(')).find("less nesting"),
            std::string::npos);
}

TEST(IndexExpr, FoldsAndEvaluates) {
  const IndexExpr it = IndexExpr::iteration();
  EXPECT_EQ(to_string((it * 4 + 1) % 3 - IndexExpr::param(2)), "((((it*4)+1)%3)-p2)");
  EXPECT_EQ(it + 0, it);
  EXPECT_EQ(1 * it, it);
  EXPECT_EQ(it * 0, IndexExpr(0));
  EXPECT_EQ(IndexExpr(-7) / 2, IndexExpr(-4));
  EXPECT_EQ(IndexExpr(-7) % 2, IndexExpr(1));
  EXPECT_EQ(IndexExpr(7) % -2, IndexExpr(-1));
  EXPECT_EQ(it + 1 + 2, it + 3);
  EXPECT_EQ(it + 1 - 3, it - 2);
  EXPECT_EQ(it - 2 + 2, it);
  EXPECT_EQ(to_string(it + INT64_MAX + 1), "((it+9223372036854775807)+1)");
  const std::vector<IndexExpr> for_params{it * 2, IndexExpr(7)};
  EXPECT_EQ(substitute((IndexExpr::param(0) + 1) % IndexExpr::param(1), for_params),
            (it * 2 + 1) % 7);
  const std::vector<int64_t> params{10, 20};
  EXPECT_EQ(((it * 4 + IndexExpr::param(1)) % 7).evaluate({params, 3, 0}), 4);
  EXPECT_EQ((IndexExpr::replica() - 1).evaluate({{}, 0, 5}), 4);
  EXPECT_THROW((it / 0).evaluate({}), Error);
  EXPECT_THROW(IndexExpr::param(2).evaluate({params, 0, 0}), Error);
  EXPECT_THROW((it * INT64_MAX).evaluate({{}, 2, 0}), Error);
  IndexExpr deep = it;
  for (int i = 0; i < 100; ++i) deep = IndexExpr::param(0) - deep;
  EXPECT_EQ(deep.evaluate({params, 3, 0}), 3);
  EXPECT_EQ(parse_index_expr(to_string(deep)), deep);
}

TEST(Executable, ProgramByName) {
  const Executable e = plans::plan(plans::everything());
  EXPECT_EQ(e.program("load").name, "load");
  EXPECT_THROW(e.program("eval"), Error);
  EXPECT_EQ(planned_bytes(e, 0, Space::kDevice), 4096 + 384);
}

}  // namespace
}  // namespace sluice::exe
