#include "sluice/compiler/body_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "sluice/base/ids/ids_format.h"
#include "sluice/exe/line_reader.h"
#include "sluice/ops/op.h"

namespace sluice::compiler {
namespace {

constexpr std::array<std::string_view, 3> kRoles{"entry", "function", "loop_body"};
constexpr std::array<std::string_view, 4> kEffects{"stream_in", "stream_out", "remote_load",
                                                   "remote_store"};
constexpr std::array<std::string_view, 3> kIoModes{"compute", "io", "io_overlapped"};
constexpr int32_t kMaxValues = 1 << 20;  // Largest number of a value in a body, or of a body.

std::string quoted(std::string_view s) {
  std::string out = "\"";
  for (const char c : s) {
    if (static_cast<unsigned char>(c) < ' ') {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string spec_text(const TensorSpec& spec) {
  const auto dims = [](const Shape& shape) {
    return fmt::format("({})", fmt::join(shape.dims(), ","));
  };
  std::string text = std::string(name_of(spec.dtype)) + dims(spec.shape);
  if (!spec.meta_shape.empty()) text += "of" + dims(spec.meta_shape);
  return text;
}

std::string text_of(ValueIndex v) { return v == kNone ? "%-" : fmt::format("%{}", v); }

class Writer {
 public:
  explicit Writer(const Body& body) : body_(body) {}

  /// `number`: number of the body in its program; an invalid one is omitted.
  std::string run(BodyId number = {}) {
    out_ = fmt::format("body {} {}", quoted(body_.name), at(kRoles, body_.role));
    if (number.valid()) out_ += fmt::format(" number {}", number);
    out_ += fmt::format(" device {} graph {}\n", body_.device, body_.graph);
    for (const auto& range : body_.index_params)
      out_ += range ? fmt::format("  index_param {} {}\n", range->low, range->high)
                    : "  index_param ?\n";
    for (const BodyParam& p : body_.params) {
      out_ += "  param " + value(p.in);
      if (!p.name.empty()) out_ += " " + quoted(p.name);
      if (p.out != kNone) out_ += " last " + text_of(p.out);
      out_ += '\n';
    }
    for (const ValueIndex v : body_.values.ids()) {
      const BodyValue& own = body_.values[v];
      const auto line = [&](const char* word) {
        out_ += fmt::format("  {} {} {}\n", word, own.index, value(v));
      };
      if (own.source == BodyValue::Source::kVariable) line("variable");
      if (own.source == BodyValue::Source::kConstant) line("constant");
      if (own.source == BodyValue::Source::kUndefined) line("undefined");
    }
    for (const Node& n : body_.nodes) node(n);
    out_ += "  results";
    for (const ValueIndex v : body_.results) out_ += " " + text_of(v);
    out_ += '\n';
    for (const auto& [variable, v] : body_.variables)
      out_ += fmt::format("  last {} {}\n", variable, text_of(v));
    return out_ + "end\n";
  }

 private:
  // The definition of a value: number, spec, name and version, layout.
  std::string value(ValueIndex v) const {
    if (v == kNone) return "%-";
    const BodyValue& own = body_.value(v);
    std::string text = fmt::format("%{} {}", v, spec_text(own.spec));
    if (!own.tensor.empty() || own.version != 0)
      text += fmt::format(" name {} {}", quoted(own.tensor), own.version);
    if (own.layout != Layout{}) text += " layout " + to_string(own.layout);
    return text;
  }

  void node(const Node& n) {
    out_ += "  ";
    std::visit([&](const auto& what) { head(n, what); }, n.what);
    if (!n.inputs.empty()) out_ += " in";
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      out_ += " " + text_of(n.inputs[i]);
      if (n.inputs[i] == kNone || body_.value(n.inputs[i]).spec != n.in_specs[i])
        out_ += " as " + spec_text(n.in_specs[i]);
    }
    if (!n.outputs.empty()) out_ += " out";
    for (size_t o = 0; o < n.outputs.size(); ++o) {
      out_ += " " + value(n.outputs[o]);
      if (n.outputs[o] == kNone || body_.value(n.outputs[o]).spec != n.out_specs[o])
        out_ += " as " + spec_text(n.out_specs[o]);
    }
    for (const Tie& t : n.ties) out_ += fmt::format(" tie {} {}", t.output, text_of(t.into));
    if (n.device != body_.device) out_ += fmt::format(" device {}", n.device);
    if (n.origin.valid()) out_ += fmt::format(" origin {}", n.origin);
    provenance(*n.provenance);
    out_ += '\n';
    if (const auto* kernel = n.as<Node::Kernel>()) kernel_lines(n, *kernel);
    if (const auto* c = n.as<Node::Collective>()) attrs_line("attrs", c->attrs, n.def);
  }

  void provenance(const Provenance& p) {
    const auto field = [&](const char* word, const std::string& text) {
      if (!text.empty()) out_ += fmt::format(" {} {}", word, quoted(text));
    };
    field("where", p.line);
    field("module", p.module_path);
    field("block", p.block);
    field("variable", p.variable);
    if (p.role != OpRole::kForward) out_ += fmt::format(" role {}", word(p.role));
  }

  void attrs_line(const char* word, const Attrs& attrs, const OpDef* def) {
    if (def == nullptr || !(attrs == def->options))
      out_ += fmt::format("    {} {}\n", word, to_string(attrs));
  }

  void kernel_lines(const Node& n, const Node::Kernel& kernel) {
    if (kernel.stages.empty()) return attrs_line("attrs", kernel.attrs, n.def);
    for (const OpStage& stage : kernel.stages) {
      out_ += fmt::format("    stage {} {} to {} from {}\n", stage.op->type, spec_text(stage.spec),
                          stage.output, fmt::join(stage.inputs, " "));
      attrs_line("stage_attrs", stage.attrs, stage.op);
    }
    if (!kernel.attrs.items.empty()) attrs_line("attrs", kernel.attrs, nullptr);
  }

  static std::string type_of(const Node& n) { return n.def == nullptr ? "-" : n.def->type; }

  void head(const Node& n, const Node::Kernel& k) {
    out_ += fmt::format("kernel {}{}", type_of(n), k.prints ? " prints" : "");
  }
  void head(const Node&, const Node::View&) { out_ += "view"; }
  void head(const Node&, const Node::Copy&) { out_ += "copy"; }
  void call(const Node::Call& c) {
    out_ += fmt::format(" {} results {} before {}", c.callee, c.results, c.transfers_before);
    for (const int32_t u : c.updated) out_ += fmt::format(" updated {}", u);
    for (const exe::IndexExpr& x : c.index_args) out_ += " index " + to_string(x);
  }
  void head(const Node&, const Node::Call& c) {
    out_ += "call";
    call(c);
  }
  void head(const Node&, const Node::Loop& l) {
    out_ += fmt::format("loop trips {} carried {}", l.trips, l.carried);
    for (size_t k = 0; k < l.rotates.size(); ++k) {
      if (l.rotates[k] >= 0) out_ += fmt::format(" rotates {}:{}", k, l.rotates[k]);
    }
    for (const int32_t c : l.conditions) out_ += fmt::format(" condition {}", c);
    if (l.exit >= 0) out_ += fmt::format(" exit {}", l.exit);
    call(l);
  }
  void head(const Node&, const Node::Branch& b) {
    out_ += fmt::format("branch {} {} then {} before {}", b.callees[0], b.callees[1], b.then_inputs,
                        b.transfers_before);
  }
  void head(const Node& n, const Node::Transfer& t) {
    out_ += fmt::format("transfer {} {} {} {} order {} at {} queue {} token {}", type_of(n),
                        at(kEffects, t.effect.kind), t.effect.id, at(kIoModes, t.effect.io),
                        t.effect.order, t.effect.entry, t.queue, t.token);
    if (t.entry) out_ += " index " + to_string(*t.entry);
  }
  void head(const Node& n, const Node::Wait& w) {
    out_ += fmt::format("wait {} queue {} token {}", type_of(n), w.queue, w.token);
  }
  void head(const Node&, const Node::Index& i) { out_ += "index " + to_string(i.value); }
  void head(const Node&, const Node::Send& s) {
    out_ += fmt::format("send {} message {}", s.channel, s.message);
  }
  void head(const Node&, const Node::Receive& r) {
    out_ += fmt::format("receive {} message {}", r.channel, r.message);
  }
  void head(const Node& n, const Node::Collective& c) {
    out_ += fmt::format("collective {} group {}", type_of(n), c.group);
  }

  const Body& body_;
  std::string out_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text, "body") {}

  Body one() {
    if (!in_.next_line()) in_.bad("the text is empty");
    read();
    if (in_.next_line()) in_.bad("the text must end after 'end'");
    return std::move(body_);
  }

  std::deque<Body> all() {
    std::deque<Body> bodies;
    while (in_.next_line()) {
      number_ = BodyId(bodies.size());
      read();
      if (!number_.valid() || number_ > kMaxValues)
        in_.bad("the number of a body must be 0 to {}, got {}", kMaxValues, number_);
      if (number_ >= std::ssize(bodies)) bodies.resize(static_cast<size_t>(number_) + 1);
      sluice::at(bodies, number_.value()) = std::move(body_);
    }
    return bodies;
  }

 private:
  // Parses the rest of a body, up to its `end`. The caller has read the line `body`.
  void read() {
    body_ = {};
    in_.expect("body");
    body_.name = in_.string("a name");
    body_.role = in_.one_of<Role>(kRoles, "role");
    if (in_.eat("number")) number_ = BodyId(in_.integer32("a body"));
    body_.device = in_.eat("device") ? in_.integer32("a device") : 0;
    if (in_.eat("graph")) body_.graph = GraphId(in_.integer32("a graph"));
    in_.expect_end();
    while (true) {
      if (!in_.next_line()) in_.bad("the text ends before 'end'");
      if (in_.eat("end")) return in_.expect_end();
      if (attrs_line()) continue;
      line();
      in_.expect_end();
    }
  }

  void line() {
    if (in_.eat("index_param")) {
      body_.index_params.emplace_back();
      if (!in_.eat("?")) {
        const int64_t low = in_.integer("a number");
        body_.index_params.back() = IndexRange{low, in_.integer("a number")};
      }
    } else if (in_.eat("param")) {
      BodyParam p;
      p.in = made(BodyValue::Source::kParam, static_cast<int32_t>(body_.params.size()));
      if (!in_.done() && !in_.peek("last")) p.name = in_.string("a name");
      if (in_.eat("last")) p.out = value();
      body_.params.push_back(std::move(p));
    } else if (in_.eat("variable")) {
      const int32_t index = in_.integer32("a number");
      made(BodyValue::Source::kVariable, index);
    } else if (in_.eat("constant")) {
      const int32_t index = in_.integer32("a number");
      made(BodyValue::Source::kConstant, index);
    } else if (in_.eat("undefined")) {
      const int32_t index = in_.integer32("a number");
      made(BodyValue::Source::kUndefined, index);
    } else if (in_.eat("results")) {
      while (!in_.done()) body_.results.push_back(value());
    } else if (in_.eat("last")) {
      const exe::VariableId variable(in_.integer32("a variable"));
      body_.variables.emplace_back(variable, value());
    } else if (in_.eat("stage")) {
      stage();
    } else {
      node();
    }
  }

  ValueIndex value() {
    const auto [v, other] = in_.values();
    if (other >= 0) in_.bad("must be one value, got '%{}>%{}'", v, other);
    return ValueIndex(v.value());
  }

  BodyValue& at(ValueIndex v) {
    if (!v.valid() || v > kMaxValues)
      in_.bad("the number of a value must be 0 to {}, got {}", kMaxValues, v);
    if (!body_.values.contains(v)) body_.values.resize(static_cast<size_t>(v) + 1);
    return body_.value(v);
  }

  // Parses the definition of a value.
  ValueIndex made(BodyValue::Source source, int32_t index) {
    const ValueIndex v = value();
    if (v == kNone) return v;
    BodyValue& own = at(v);
    own.source = source;
    own.index = index;
    own.spec = in_.spec();
    if (in_.eat("name")) {
      own.tensor = in_.string("a tensor");
      own.version = in_.integer("a version");
    }
    if (in_.eat("layout")) {
      const std::string layout = in_.string("a layout");
      own.layout = parsed([&] { return parse_layout(layout); });
    }
    return v;
  }

  const OpDef* op() {
    const std::string type = in_.string("an operator");
    if (type == "-") return nullptr;
    const OpDef* def = ops::find_op(type);
    if (def == nullptr) in_.bad("there is no operator '{}'", type);
    return def;
  }

  Node& last_node() {
    if (body_.nodes.empty()) in_.bad("this line must follow a node");
    return body_.nodes.back();
  }

  Node::Kernel& last_kernel() {
    auto* kernel = last_node().as<Node::Kernel>();
    if (kernel == nullptr)
      in_.bad("attributes must follow a kernel or a collective, and stages a kernel");
    return *kernel;
  }

  // Parses the rest of the line as attributes, which have their own quoting. Attributes that are
  // left out get the operator's defaults.
  Attrs attrs(const OpDef* def) {
    Attrs all = def == nullptr ? Attrs{} : def->options;
    for (auto& item : parsed([&] { return parse_attrs(in_.raw_rest()); }).items) {
      const auto known = std::find_if(all.items.begin(), all.items.end(),
                                      [&](const auto& own) { return own.first == item.first; });
      if (known == all.items.end()) {
        all.items.push_back(std::move(item));
      } else {
        known->second = std::move(item.second);
      }
    }
    return all;
  }

  // Returns f(). Reports an error of f with the number of the line, which f does not know.
  template <typename F>
  auto parsed(F&& f) -> decltype(f()) {
    try {
      return f();
    } catch (const Error& e) {
      in_.bad("{}", e.what());
    }
  }

  bool attrs_line() {
    if (in_.peek("stage_attrs")) {
      auto& stages = last_kernel().stages;
      if (stages.empty()) in_.bad("this line must follow a stage");
      stages.back().attrs = attrs(stages.back().op);
      return true;
    }
    if (!in_.peek("attrs")) return false;
    Node& node = last_node();
    if (auto* c = node.as<Node::Collective>()) {
      c->attrs = attrs(node.def);
    } else {
      last_kernel().attrs = attrs(node.def);
    }
    return true;
  }

  void stage() {
    Node::Kernel& kernel = last_kernel();
    kernel.attrs = {};
    OpStage stage;
    stage.op = op();
    if (stage.op == nullptr) in_.bad("a stage requires an operator, got '-'");
    stage.attrs = stage.op->options;
    stage.spec = in_.spec();
    stage.output = in_.labelled32("to");
    in_.expect("from");
    while (!in_.done()) stage.inputs.push_back(in_.integer32("an operand"));
    kernel.stages.push_back(std::move(stage));
  }

  void node() {
    Node n;
    n.device = body_.device;
    head(n);
    if (in_.eat("in")) {
      while (in_.peek_value()) {
        n.inputs.push_back(value());
        n.in_specs.push_back(n.inputs.back() == kNone ? TensorSpec{} : at(n.inputs.back()).spec);
        if (in_.eat("as")) n.in_specs.back() = in_.spec();
      }
    }
    if (in_.eat("out")) {
      while (in_.peek_value()) {
        n.outputs.push_back(made(BodyValue::Source::kNode, -1));
        n.out_specs.push_back(n.outputs.back() == kNone ? TensorSpec{} : at(n.outputs.back()).spec);
        if (in_.eat("as")) n.out_specs.back() = in_.spec();
      }
    }
    while (in_.eat("tie")) {
      const int32_t output = in_.integer32("an output");
      n.ties.push_back({output, value()});
    }
    auto* call = n.call();
    if (call != nullptr && call->results < 0)
      call->results = static_cast<int32_t>(n.outputs.size() - call->updated.size());
    if (in_.eat("device")) n.device = in_.integer32("a device");
    if (in_.eat("origin")) n.origin = OpId(in_.integer("an op"));
    Provenance p;
    if (in_.eat("where")) p.line = in_.string("a place");
    if (in_.eat("module")) p.module_path = in_.string("a module path");
    if (in_.eat("block")) p.block = in_.string("a block");
    if (in_.eat("variable")) p.variable = in_.string("a variable");
    if (in_.eat("role")) p.role = in_.one_of<OpRole>(kOpRoleWords, "role");
    n.provenance = std::move(p);
    body_.nodes.push_back(std::move(n));
  }

  void head(Node& n) {
    if (in_.eat("kernel")) {
      n.def = op();
      Node::Kernel k;
      if (n.def != nullptr) k.attrs = n.def->options;
      k.prints = in_.eat("prints");
      n.what = std::move(k);
    } else if (in_.eat("view")) {
      n.what = Node::View{};
    } else if (in_.eat("copy")) {
      n.what = Node::Copy{};
    } else if (in_.eat("call")) {
      Node::Call c;
      call(c);
      n.what = std::move(c);
    } else if (in_.eat("loop")) {
      Node::Loop l;
      l.trips = in_.labelled("trips");
      l.carried = in_.labelled32("carried");
      while (in_.eat("rotates")) rotates(l);
      while (in_.eat("condition")) l.conditions.push_back(in_.integer32("an input"));
      if (in_.eat("exit")) l.exit = in_.integer32("a number");
      call(l);
      n.what = std::move(l);
    } else if (in_.eat("branch")) {
      Node::Branch b;
      for (BodyId& callee : b.callees) callee = BodyId(in_.integer32("a body"));
      b.then_inputs = in_.labelled32("then");
      if (in_.eat("before")) b.transfers_before = in_.integer32("a number");
      n.what = b;
    } else if (in_.eat("transfer")) {
      transfer(n);
    } else if (in_.eat("wait")) {
      n.def = op();
      const int32_t queue = in_.labelled32("queue");
      n.what = Node::Wait{queue, in_.labelled32("token")};
    } else if (in_.eat("index")) {
      n.what = Node::Index{in_.expression()};
    } else if (in_.eat("send")) {
      const exe::ChannelId channel(in_.integer32("a channel"));
      n.what = Node::Send{channel, in_.labelled32("message")};
    } else if (in_.eat("receive")) {
      const exe::ChannelId channel(in_.integer32("a channel"));
      n.what = Node::Receive{channel, in_.labelled32("message")};
    } else if (in_.eat("collective")) {
      n.def = op();
      if (n.def == nullptr) in_.bad("a collective requires an operator, got '-'");
      n.what = Node::Collective{n.def->options, exe::GroupId(in_.labelled32("group"))};
    } else {
      in_.bad(
          "a node must be a kernel, view, copy, call, loop, branch, transfer, wait, index, send, "
          "receive or collective, got '{}'",
          in_.string("a kind of node"));
    }
  }

  void rotates(Node::Loop& l) {
    const auto [k, from] = in_.pair("carried values");
    if (k >= l.carried) in_.bad("the loop must carry value {}, it carries {}", k, l.carried);
    l.rotates.resize(static_cast<size_t>(l.carried), -1);
    sluice::at(l.rotates, k) = from;
  }

  void call(Node::Call& c) {
    c.callee = BodyId(in_.integer32("a body"));
    c.results = in_.eat("results") ? in_.integer32("a number") : -1;
    if (in_.eat("before")) c.transfers_before = in_.integer32("a number");
    while (in_.eat("updated")) c.updated.push_back(in_.integer32("an input"));
    while (in_.eat("index")) c.index_args.push_back(in_.expression());
  }

  void transfer(Node& n) {
    n.def = op();
    Node::Transfer t;
    t.effect.kind = in_.one_of<Effect::Action>(kEffects, "kind of transfer");
    t.effect.id = in_.integer32("a stream or remote buffer");
    t.effect.io = in_.one_of<IoMode>(kIoModes, "io mode");
    if (in_.eat("order")) t.effect.order = in_.integer("a number");
    if (in_.eat("at")) t.effect.entry = in_.integer("an entry");
    if (in_.eat("queue")) t.queue = in_.integer32("a queue");
    if (in_.eat("token")) t.token = in_.integer32("a token");
    if (in_.eat("index")) t.entry = in_.expression();
    n.what = std::move(t);
  }

  exe::LineReader in_;
  Body body_;
  BodyId number_;
};

}  // namespace

std::string to_text(const Body& body) { return Writer(body).run(); }

std::string to_text(const Program& program) {
  std::string text;
  for (const BodyId id : callees_first(program)) text += Writer(program.body(id)).run(id);
  return text;
}

Body parse_body(std::string_view text) { return Parser(text).one(); }

std::deque<Body> parse_bodies(std::string_view text) { return Parser(text).all(); }

}  // namespace sluice::compiler
