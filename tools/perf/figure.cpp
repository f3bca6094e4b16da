#include "perf/figure.hpp"

#include <fmt/format.h>

#include "base/xml_text.hpp"

namespace strait::perf {

std::string figure_begin(double width, double height, const std::string& label) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "aria-label=\"{2}\">\n"
      "<style>text{{font-family:Helvetica,Arial,sans-serif;fill:#222}}.title{{font-size:19px;font-weight:bold}}"
      ".panel{{font-size:14px;font-weight:bold}}.tick{{font-size:12px}}"
      ".halo{{font-size:12px;stroke:#fff;stroke-width:3px}}.grid{{stroke:#e3e3e3;stroke-width:1}}"
      ".axis{{stroke:#444;stroke-width:1}}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      width, height, xml_text(label));
}

std::string text(double x, double y, const char* anchor, const char* css, const std::string& content) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x, y, anchor, css,
                     xml_text(content));
}

std::string line(double x1, double y1, double x2, double y2, const char* css) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2, y2,
                     css);
}

}  // namespace strait::perf
