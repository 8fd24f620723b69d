#include "sluice/planner/csv.h"

#include "sluice/planner/solve.h"
#include "sluice/planner/test_util.h"
#include "sluice/planner/validate.h"

namespace sluice::planner {
namespace {

TEST(ParseCsv, ReadsMiniMallocsExample) {
  const Problem problem = parse_csv("id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\r\n\n", "x.csv");
  ASSERT_EQ(problem.buffers.size(), 2u);
  EXPECT_EQ(problem.buffers[0].name, "b1");
  EXPECT_EQ(problem.buffers[1].lifetime, (std::vector<Interval>{{3, 9}}));
  EXPECT_EQ(problem.buffers[1].size, 4);
  EXPECT_EQ(problem.buffers[1].alignment, 1);
  EXPECT_FALSE(problem.buffers[1].fixed_offset);
  EXPECT_FALSE(problem.capacity);
}

TEST(ParseCsv, ReadsAllColumnsInAnyOrder) {
  const Problem problem = parse_csv(
      "offset,hint,gaps,alignment,size,upper,begin,buffer_id\n"
      "32,64,3-5 7-9,16,100,10,0,a\n"
      ",,,1,7,4,4,b",
      "x.csv");
  const Buffer& a = problem.buffers.at(0);
  EXPECT_EQ(a.lifetime, (std::vector<Interval>{{0, 3}, {5, 7}, {9, 10}}));
  EXPECT_EQ(a.fixed_offset, 32);
  EXPECT_EQ(a.hint, 64);
  EXPECT_EQ(a.alignment, 16);
  const Buffer& b = problem.buffers.at(1);
  EXPECT_TRUE(b.lifetime.empty());
  EXPECT_FALSE(b.fixed_offset);
  EXPECT_FALSE(b.hint);
}

struct BadCsv {
  const char* text;
  const char* message;
};

TEST(ParseCsv, RefusesBadFilesByLine) {
  const BadCsv cases[] = {
      {"", "x.csv: line 1: no header line"},
      {"id,lower,upper\n", "line 1: no column 'size'"},
      {"id,lower,upper,size,id\n", "line 1: column 'id' twice"},
      {"id,lower,upper,size,begin\n", "line 1: column 'lower' twice"},
      {"id,lower,upper,size,\x01zz\n", "line 1: unknown column '?zz'"},
      {"id,lower,upper,size\na,0,1\n", "line 2: 3 fields where the header has 4"},
      {"id,lower,upper,size\na,0,1,2,3\n", "line 2: 5 fields where the header has 4"},
      {"id,lower,upper,size\na,0,1,2\na,0,1,2\n", "line 3: id 'a' is that of line 2"},
      {"id,lower,upper,size\n,0,1,2\n", "line 2: an empty id"},
      {"id,lower,upper,size\na,2,1,2\n", "line 2: lower 2 exceeds upper 1"},
      {"id,lower,upper,size\na,-2,1,2\n", "line 2: lower -2 is negative"},
      {"id,lower,upper,size\na,0,1,-2\n", "line 2: size -2 is negative"},
      {"id,lower,upper,size\na,0,1,\n", "line 2: size '' is not a number"},
      {"id,lower,upper,size\na,0,1,2x\n", "line 2: size '2x' is not a number"},
      {"id,lower,upper,size\na,0,1,+2\n", "line 2: size '+2' is not a number"},
      {"id,lower,upper,size\na,0, 1,2\n", "line 2: upper ' 1' is not a number"},
      {"id,lower,upper,size\na,0,1,1e3\n", "line 2: size '1e3' is not a number"},
      {"id,lower,upper,size\na,0,1,9223372036854775808\n", "exceeds 63 bits"},
      {"id,lower,upper,size\n\na,0,1,2\n", "line 2: an empty line"},
      {"id,lower,upper,size,alignment\na,0,1,2,0\n", "line 2: alignment 0"},
      {"id,lower,upper,size,offset\na,0,1,2,-4\n", "line 2: offset -4 is negative"},
      {"id,lower,upper,size,offset\na,0,1,2,9223372036854775807\n", "exceeds 63 bits"},
      {"id,lower,upper,size,alignment,offset\na,0,1,2,4,6\n", "not a multiple of alignment 4"},
      {"id,lower,upper,size,gaps\na,0,9,2,3\n", "line 2: gap '3' is not BEGIN-END"},
      {"id,lower,upper,size,gaps\na,0,9,2,3-5@1:2\n", "line 2: gap '5@1:2' is not a number"},
      {"id,lower,upper,size,gaps\na,0,9,2,5-3\n", "line 2: gap 5-3 is not inside [0, 9)"},
      {"id,lower,upper,size,gaps\na,0,9,2,5-10\n", "line 2: gap 5-10 is not inside [0, 9)"},
  };
  for (const BadCsv& bad : cases) {
    expect_error(ErrorKind::kBadFile, bad.message, [&] { parse_csv(bad.text, "x.csv"); });
  }
}

TEST(ParseCsv, SurvivesEveryFlippedByte) {
  const std::string text = "id,lower,upper,size,gaps\nb1,0,9,4,3-5\nb2,3,9,4,\n";
  int refused = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = text;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      try {
        parse_csv(flipped, "x.csv");
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kBadFile) << error.what();
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 200);
}

TEST(ToCsv, RoundTrips) {
  const std::string text =
      "id,lower,upper,size,alignment,gaps,hint,offset\n"
      "a,0,10,100,16,3-5 7-9,64,32\n"
      "b,1,4,7,1,,,\n";
  EXPECT_EQ(to_csv(parse_csv(text, "x.csv")), text);
  const std::string plain = "id,lower,upper,size\nb1,0,3,4\n";
  EXPECT_EQ(to_csv(parse_csv(plain, "x.csv")), plain);
}

TEST(ToCsv, WritesAPlanThatReadsBackAsFixed) {
  const Problem problem = parse_csv("id,lower,upper,size\na,0,3,4\nb,1,9,4\nc,3,9,4\n", "x.csv");
  const Solution solution = solve(problem);
  const Problem fixed = parse_csv(to_csv(problem, &solution), "y.csv");
  const Solution again = solve(fixed);
  EXPECT_EQ(again.offsets, solution.offsets);
  EXPECT_TRUE(validate(fixed, again));
}

TEST(ToCsv, RefusesWhatCsvCannotHold) {
  Problem problem;
  problem.buffers = {make_buffer("a,b", 0, 1, 2)};
  expect_error(ErrorKind::kUsage, "a name that CSV cannot hold", [&] { to_csv(problem); });
  problem.buffers = {make_buffer("a", 0, 1, 2), make_buffer("a", 0, 1, 2)};
  expect_error(ErrorKind::kUsage, "two buffers named 'a'", [&] { to_csv(problem); });
  problem.buffers = {make_buffer("a", -1, 1, 2)};
  expect_error(ErrorKind::kUsage, "negative", [&] { to_csv(problem); });
  problem.buffers = {make_buffer("a", 0, 1, 2)};
  const Solution none;
  expect_error(ErrorKind::kUsage, "0 offsets", [&] { to_csv(problem, &none); });
}

}  // namespace
}  // namespace sluice::planner
