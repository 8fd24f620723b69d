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
  EXPECT_EQ(b.lifetime, (std::vector<Interval>{{4, 4}}));
  EXPECT_FALSE(b.fixed_offset);
  EXPECT_FALSE(b.hint);
}

struct BadCsv {
  const char* text;
  const char* message;
};

TEST(ParseCsv, RefusesBadFilesByLine) {
  const BadCsv cases[] = {
      {"", "x.csv: line 1: the header line is missing"},
      {"id,lower,upper\n", "line 1: column 'size' is missing"},
      {"id,lower,upper,size,id\n", "line 1: column 'id' must occur once"},
      {"id,lower,upper,size,begin\n", "line 1: column 'lower' must occur once"},
      {"id,lower,upper,size,\x01zz\n", "hint, got '?zz'"},
      {"id,lower,upper,size\na,0,1\n", "line 2: must have 4 fields like the header, got 3"},
      {"id,lower,upper,size\na,0,1,2,3\n", "line 2: must have 4 fields like the header, got 5"},
      {"id,lower,upper,size\na,0,1,2\na,0,1,2\n",
       "line 3: id: must be unique, got 'a' as in line 2"},
      {"id,lower,upper,size\n,0,1,2\n", "line 2: id: must not be empty"},
      {"id,lower,upper,size\na,2,1,2\n", "line 2: lower 2 exceeds upper 1"},
      {"id,lower,upper,size\na,-2,1,2\n", "line 2: lower: must be at least 0, got -2"},
      {"id,lower,upper,size\na,0,1,-2\n", "line 2: size: must be at least 0, got -2"},
      {"id,lower,upper,size\na,0,1,\n", "line 2: size: must be an integer, got ''"},
      {"id,lower,upper,size\na,0,1,2x\n", "line 2: size: must be an integer, got '2x'"},
      {"id,lower,upper,size\na,0,1,+2\n", "line 2: size: must be an integer, got '+2'"},
      {"id,lower,upper,size\na,0, 1,2\n", "line 2: upper: must be an integer, got ' 1'"},
      {"id,lower,upper,size\na,0,1,1e3\n", "line 2: size: must be an integer, got '1e3'"},
      {"id,lower,upper,size\na,0,1,9223372036854775808\n", "exceeds 63 bits"},
      {"id,lower,upper,size\n\na,0,1,2\n", "line 2: must be a buffer, got an empty line"},
      {"id,lower,upper,size,alignment\na,0,1,2,0\n",
       "line 2: alignment: must be at least 1, got 0"},
      {"id,lower,upper,size,offset\na,0,1,2,-4\n", "line 2: offset: must be at least 0, got -4"},
      {"id,lower,upper,size,offset\na,0,1,2,9223372036854775807\n", "exceeds 63 bits"},
      {"id,lower,upper,size,alignment,offset\na,0,1,2,4,6\n", "not a multiple of alignment 4"},
      {"id,lower,upper,size,gaps\na,0,9,2,3\n", "line 2: gap: must be BEGIN-END, got '3'"},
      {"id,lower,upper,size,gaps\na,0,9,2,3-5@1:2\n",
       "line 2: gap: must be an integer, got '5@1:2'"},
      {"id,lower,upper,size,gaps\na,0,9,2,5-3\n", "line 2: gap: must be inside [0, 9), got 5-3"},
      {"id,lower,upper,size,gaps\na,0,9,2,5-10\n", "line 2: gap: must be inside [0, 9), got 5-10"},
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
  // A buffer that is never alive keeps its step.
  const std::string plain = "id,lower,upper,size\nb1,0,3,4\nb2,7,7,4\n";
  EXPECT_EQ(to_csv(parse_csv(plain, "x.csv")), plain);
  EXPECT_EQ(to_csv(parse_csv("\xef\xbb\xbf" + plain, "x.csv")), plain);
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
  expect_error(ErrorKind::kUsage, "must not be empty or contain a comma or line break, got 'a,b'",
               [&] { to_csv(problem); });
  problem.buffers = {make_buffer("a", 0, 1, 2), make_buffer("a", 0, 1, 2)};
  expect_error(ErrorKind::kUsage, "must be unique, got 'a' twice", [&] { to_csv(problem); });
  problem.buffers = {make_buffer("a", -1, 1, 2)};
  expect_error(ErrorKind::kUsage, "'a': must begin at step 0 or later, got -1",
               [&] { to_csv(problem); });
  problem.buffers = {make_buffer("a", 0, 1, 2)};
  const Solution none;
  expect_error(ErrorKind::kUsage, "one offset for each of 1 buffers, got 0",
               [&] { to_csv(problem, &none); });
}

}  // namespace
}  // namespace sluice::planner
