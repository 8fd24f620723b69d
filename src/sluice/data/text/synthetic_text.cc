#include "sluice/data/text/synthetic_text.h"

#include <algorithm>
#include <string_view>

#include "sluice/base/error.h"
#include "sluice/data/draw.h"

namespace sluice::data {
namespace {

constexpr std::string_view kAdjectives[] = {"small", "old", "grey", "quick", "quiet", "hungry"};
constexpr std::string_view kAnimals[] = {"cat", "dog", "owl", "horse", "raven", "bee"};
constexpr std::string_view kVerbs[] = {"see", "follow", "hear", "like", "walk with"};
constexpr std::string_view kEnds[] = {".", " at night.", " in the garden.", " again."};

class Sentences {
 public:
  explicit Sentences(uint64_t seed)
      : draw_({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}) {}

  // "two old owls follow a bee in the garden.", or with the verb of one animal.
  void append(std::string& text) {
    const bool several = animals(text);
    text += ' ';
    const std::string_view verb = one_of(kVerbs);
    const size_t word = std::min(verb.find(' '), verb.size());
    text += verb.substr(0, word);
    if (!several) text += 's';
    text += verb.substr(word);
    text += ' ';
    animals(text);
    text += one_of(kEnds);
    text += draw_.below(3) == 0 ? '\n' : ' ';
  }

 private:
  template <size_t kCount>
  std::string_view one_of(const std::string_view (&words)[kCount]) {
    return words[draw_.below(kCount)];
  }

  // Returns whether there are several animals.
  bool animals(std::string& text) {
    constexpr std::string_view kSeveral[] = {"two ", "many ", "three "};
    const bool several = draw_.below(2) == 0;
    text += several ? one_of(kSeveral) : std::string_view("the ");
    if (draw_.below(2) == 0) {
      text += one_of(kAdjectives);
      text += ' ';
    }
    text += one_of(kAnimals);
    if (several) text += 's';
    return several;
  }

  Draw draw_;
};

}  // namespace

std::string synthetic_text(int64_t bytes, uint64_t seed) {
  require(bytes >= 1, "synthetic_text: bytes must be at least 1, got {}", bytes);
  const auto size = static_cast<size_t>(bytes);
  std::string text;
  text.reserve(size);
  Sentences sentences(seed);
  while (text.size() < size) sentences.append(text);
  text.resize(size);
  return text;
}

}  // namespace sluice::data
