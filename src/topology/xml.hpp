#pragma once

#include <pugixml.hpp>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace strait {

/// A parsed XML document that knows the lines of its elements. `text` must outlive it.
class XmlFile {
 public:
  XmlFile(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Status parse() {
    const auto result = document_.load_buffer(text_.data(), text_.size());
    if (!result)
      return fail(Code::invalid_argument,
                  at(result.offset) + "this is not XML, or was cut short: " + result.description());
    Levels levels;
    if (!document_.traverse(levels)) return error(levels.deepest, "nested deeper than any machine is");
    return {};
  }
  pugi::xml_node root() const { return document_.document_element(); }
  tl::unexpected<Error> error(const pugi::xml_node& node, const std::string& message) const {
    return fail(Code::invalid_argument, at(node.offset_debug()) + "<" + node.name() + ">: " + message);
  }

 private:
  /// Limits the nesting: the readers are recursive, with a stack frame per level of the file. This check is not.
  struct Levels : pugi::xml_tree_walker {
    pugi::xml_node deepest{};
    bool for_each(pugi::xml_node& node) override {
      constexpr int most = 256;
      if (depth() < most) return true;
      deepest = node;
      return false;
    }
  };

  /// Returns a prefix for messages: "file, line 12: ".
  std::string at(std::ptrdiff_t offset) const {
    const std::string_view before = text_.substr(0, static_cast<std::size_t>(offset < 0 ? 0 : offset));
    std::size_t line = 1;
    for (const char c : before) line += c == '\n';
    return where_ + ", line " + std::to_string(line) + ": ";
  }

  std::string_view text_;
  std::string where_;
  pugi::xml_document document_;
};

}  // namespace strait
